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

/**
 * Streams one answer into a fresh page at \`url\`. Returns the harness's figures, with the heap after a collection at half time
 * and at the end, in bytes.
 */
export async function streamLongAnswer(browser, url, { chars, packets, perSecond }) {
  const page = await browser.newPage();
  try {
    await page.goto(url);
    await page.waitForFunction(() => "harness" in window);
    const cdp = await page.context().newCDPSession(page);
    const heap = async () => {
      await cdp.send("HeapProfiler.collectGarbage");
      return (await cdp.send("Runtime.getHeapUsage")).usedSize;
    };
    await page.evaluate(
      ([text, count, rate]) => window.harness.startStream(text, count, rate),
      [longMarkdown(chars), packets, perSecond],
    );
    await page.evaluate(() => window.harness.half());
    const heapHalf = await heap();
    const result = await page.evaluate(() => window.harness.resume());
    const heapEnd = await heap();
    return { ...result, heapHalf, heapEnd };
  } finally {
    await page.close();
  }
}
