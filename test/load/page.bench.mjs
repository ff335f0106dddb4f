/**
 * A long answer in a real browser: 10,000 packets of a 40 KB Markdown answer at 500 per second. Two ways:
 *   components  the page's components alone, fed in the browser
 *   page        the page as `npm start` serves it, fed by a provider through the whole service
 * Per run, of the second half (the last 10 s): long tasks, the longest one, the CPU time of the longest and of all, the heap
 * after a collection at half time and at the end, and whether what is shown is what the whole text looks like. Run it on an
 * idle machine: the length of a task counts the time in which others ran.
 * Options: --runs 5 --packets 10000 --chars 40000 --rate 500 --json FILE
 */
import { writeFileSync } from "node:fs";
import { chromium } from "playwright-core";
import { CHROMIUM_HELP, getChromium } from "../../scripts/get-chromium.mjs";
import { longMarkdown, streamLongAnswer } from "../page/harness/long-answer.mjs";
import { serveHarness } from "../page/harness/serve.mjs";
import { startWholeService, streamThroughPage } from "../page/harness/whole-page.mjs";

const LONG_TASK_MS = 50;
const MIB = 1024 * 1024;

function option(options, name, fallback) {
  const at = options.indexOf(`--${name}`);
  return at < 0 ? fallback : options[at + 1];
}

export async function run(options) {
  const number = (name, fallback) => Number(option(options, name, fallback));
  const runs = number("runs", 5);
  const answer = {
    chars: number("chars", 40_000),
    packets: number("packets", 10_000),
    perSecond: number("rate", 500),
  };
  const executablePath = getChromium(console.error);
  if (!executablePath) throw new Error(`no Chromium: ${CHROMIUM_HELP}`);
  const harness = await serveHarness();
  const service = await startWholeService();
  const browser = await chromium.launch({
    executablePath,
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });
  const ways = { components: [], page: [] };
  try {
    const text = longMarkdown(answer.chars);
    for (let i = 0; i < runs; i++) {
      const alone = await streamLongAnswer(browser, harness.origin, answer);
      ways.components.push(
        figuresOf(alone, alone.foldText === text && alone.shownText === alone.expectedText),
      );
      const whole = await streamThroughPage(browser, service, answer);
      ways.page.push(figuresOf(whole, whole.shownText === alone.expectedText));
      console.error(`round ${i + 1} of ${runs}`);
    }
    const figures = { ...answer, runs, log: service.log, browser: browser.version(), ways };
    print(figures);
    const file = option(options, "json", undefined);
    if (file) writeFileSync(file, JSON.stringify(figures, undefined, 2));
  } finally {
    await browser.close();
    await service.close();
    await harness.close();
  }
}

function figuresOf(measured, textEqual) {
  const long = measured.longTasksMs.filter((ms) => ms > LONG_TASK_MS);
  return {
    longTasks: long.length,
    longestTaskMs: Math.max(0, ...long),
    longestTaskCpuMs: measured.longestTaskCpuMs,
    cpuMs: measured.cpuMs,
    heapHalfMiB: measured.heapHalf / MIB,
    heapEndMiB: measured.heapEnd / MIB,
    textEqual,
  };
}

function print({ packets, chars, perSecond, runs, browser, log, ways }) {
  console.log(
    `\nChromium ${browser}, log ${log}; ${packets} packets, ${chars} characters, ${perSecond}/s; figures of the second half\n`,
  );
  console.log(
    "| way | run | long tasks > 50 ms | longest ms | longest, CPU ms | all tasks, CPU ms | heap after gc, half -> end MiB | text equal |\n|---|---|---|---|---|---|---|---|",
  );
  for (const [way, results] of Object.entries(ways))
    results.forEach((each, i) =>
      console.log(
        `| ${way} | ${i + 1} | ${each.longTasks} | ${each.longestTaskMs.toFixed(0)} | ${each.longestTaskCpuMs.toFixed(1)} | ${each.cpuMs.toFixed(0)} | ${each.heapHalfMiB.toFixed(1)} -> ${each.heapEndMiB.toFixed(1)} | ${each.textEqual ? "yes" : "NO"} |`,
      ),
    );
  for (const [way, results] of Object.entries(ways))
    console.log(
      `${way}: ${results.filter(({ longTasks }) => longTasks === 0).length} of ${runs} runs without a long task`,
    );
}
