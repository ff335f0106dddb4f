/** A long answer streamed into the page, and what it cost. Shared by the test and the benchmark. */

const SECTION = (i) => `## Part ${i}: what was *found*

The **${i}th** observation concerns \`value_${i}\`: it rose by ${i % 17} %, see [the table](https://example.com/t/${i}) and the
note below it. Long sentences follow, as models like them, with emphasis in *unexpected* places and an entity &amp; more.

- first point with **bold** words
- second point with \`code\`
  - a nested one
- third point

| name | value | change |
|---|---:|:-:|
| alpha | ${i} | +${i % 7} |
| beta | ${i * 2} | -${i % 5} |

\`\`\`ts
export function part${i}(value: number): number {
  return value * ${i}; // not **bold**
}
\`\`\`

> A quotation that closes the part.

`;

/** Markdown of exactly this many characters. */
export function longMarkdown(chars) {
  let text = "# A long answer\n\n";
  for (let i = 1; text.length < chars; i++) text += SECTION(i);
  return text.slice(0, chars);
}

/** Streams one answer into a fresh page at `url`: what `measureSecondHalf` measures, with the harness's own figures and texts. */
export async function streamLongAnswer(browser, url, { chars, packets, perSecond }) {
  const page = await browser.newPage();
  try {
    await page.goto(url);
    await page.waitForFunction(() => "harness" in window);
    const text = longMarkdown(chars);
    await page.evaluate(
      ([whole, count, rate]) => window.harness.startStream(whole, count, rate),
      [text, packets, perSecond],
    );
    await page.evaluate(() => window.harness.half());
    let figures;
    const measured = await measureSecondHalf(browser, page, async () => {
      figures = await page.evaluate(() => window.harness.resume());
    });
    const texts = await page.evaluate((whole) => window.harness.texts(whole), text);
    return { ...measured, ...figures, ...texts };
  } finally {
    await page.close();
  }
}

/**
 * What the rest of an answer costs a page: its long tasks (milliseconds), the heap after a collection before and after it
 * (bytes), and the CPU time that the main thread took, for its longest task and for all (milliseconds). Unlike the length of
 * a task, CPU time does not depend on what else the machine does.
 */
export async function measureSecondHalf(browser, page, run) {
  const cdp = await page.context().newCDPSession(page);
  const heap = async () => {
    await cdp.send("HeapProfiler.collectGarbage");
    return (await cdp.send("Runtime.getHeapUsage")).usedSize;
  };
  const heapHalf = await heap();
  await page.evaluate(() => {
    window.longTasks = [];
    window.observer = new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) window.longTasks.push(duration);
    });
    window.observer.observe({ entryTypes: ["longtask"] });
  });
  await browser.startTracing(page, { categories: ["toplevel"] });
  await run();
  const trace = await browser.stopTracing();
  const longTasksMs = await page.evaluate(() => {
    window.observer.disconnect();
    return window.longTasks;
  });
  const heapEnd = await heap();
  return { longTasksMs, ...mainThreadCpu(trace), heapHalf, heapEnd };
}

function mainThreadCpu(trace) {
  const { traceEvents } = JSON.parse(trace.toString());
  const threadOf = ({ pid, tid }) => `${pid}/${tid}`;
  const main = new Set(
    traceEvents
      .filter(({ name, args }) => name === "thread_name" && args.name === "CrRendererMain")
      .map(threadOf),
  );
  const cpuMs = traceEvents
    .filter((event) => event.name === "ThreadControllerImpl::RunTask" && main.has(threadOf(event)))
    .map(({ tdur = 0 }) => tdur / 1_000);
  if (cpuMs.length === 0) throw new Error("the browser's trace has no tasks of its main thread");
  return { longestTaskCpuMs: Math.max(...cpuMs), cpuMs: cpuMs.reduce((sum, ms) => sum + ms, 0) };
}
