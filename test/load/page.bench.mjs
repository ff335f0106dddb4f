/**
 * A long answer in a real browser: 10,000 packets of a 40 KB Markdown answer at 500 per second, drawn by the page's
 * components. Per run: long tasks in the second half (the last 10 s), the longest one, what that one and all tasks took of the
 * CPU, how often the page was drawn, the heap after a collection at half time and at the end, and whether the text shown is
 * that of the fold. Run it on an idle machine: the length of a task counts the time in which others ran.
 * Options: --runs 5 --packets 10000 --chars 40000 --rate 500 --json FILE
 */
import { writeFileSync } from "node:fs";
import { chromium } from "playwright-core";
import { CHROMIUM_HELP, getChromium } from "../../scripts/get-chromium.mjs";
import { longMarkdown, streamLongAnswer } from "../page/harness/long-answer.mjs";
import { serveHarness } from "../page/harness/serve.mjs";

const LONG_TASK_MS = 50;
const MIB = 1024 * 1024;

function option(options, name, fallback) {
  const at = options.indexOf(`--${name}`);
  return at < 0 ? fallback : options[at + 1];
}

export async function run(options) {
  const number = (name, fallback) => Number(option(options, name, fallback));
  const runs = number("runs", 5);
  const [packets, chars, perSecond] = [
    number("packets", 10_000),
    number("chars", 40_000),
    number("rate", 500),
  ];
  const executablePath = getChromium(console.error);
  if (!executablePath) throw new Error(`no Chromium: ${CHROMIUM_HELP}`);
  const { origin, close } = await serveHarness();
  const browser = await chromium.launch({
    executablePath,
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });
  try {
    const results = [];
    for (let i = 0; i < runs; i++) {
      const result = await streamLongAnswer(browser, origin, { chars, packets, perSecond });
      results.push(figuresOf(result, longMarkdown(chars)));
      console.error(`run ${i + 1} of ${runs}`);
    }
    const figures = { packets, chars, perSecond, runs, browser: browser.version(), results };
    print(figures);
    const file = option(options, "json", undefined);
    if (file) writeFileSync(file, JSON.stringify(figures, undefined, 2));
  } finally {
    await browser.close();
    await close();
  }
}

function figuresOf(result, text) {
  const durations = result.longTasks.map(({ durationMs }) => durationMs);
  return {
    longTasks: durations.filter((ms) => ms > LONG_TASK_MS).length,
    longestTaskMs: Math.max(0, ...durations),
    longestTaskCpuMs: result.longestTaskCpuMs,
    cpuMs: result.cpuMs,
    updates: result.updates,
    maxUpdateMs: result.maxUpdateMs,
    seconds: result.durationMs / 1_000,
    heapHalfMiB: result.heapHalf / MIB,
    heapEndMiB: result.heapEnd / MIB,
    heapGrowthMiB: (result.heapEnd - result.heapHalf) / MIB,
    textEqual: result.foldText === text && result.shownText === result.expectedText,
  };
}

function print({ packets, chars, perSecond, runs, browser, results }) {
  console.log(
    `\nChromium ${browser}; ${packets} packets, ${chars} characters, ${perSecond}/s; figures of the second half\n`,
  );
  console.log(
    "| run | long tasks > 50 ms | longest ms | longest, CPU ms | all tasks, CPU ms | draws | longest draw ms | heap after gc, half -> end MiB | text equal |\n|---|---|---|---|---|---|---|---|---|",
  );
  results.forEach((each, i) =>
    console.log(
      `| ${i + 1} | ${each.longTasks} | ${each.longestTaskMs.toFixed(0)} | ${each.longestTaskCpuMs.toFixed(1)} | ${each.cpuMs.toFixed(0)} | ${each.updates} | ${each.maxUpdateMs.toFixed(1)} | ${each.heapHalfMiB.toFixed(1)} -> ${each.heapEndMiB.toFixed(1)} | ${each.textEqual ? "yes" : "NO"} |`,
    ),
  );
  const without = results.filter(({ longTasks }) => longTasks === 0).length;
  console.log(`\n${without} of ${runs} runs without a long task`);
}
