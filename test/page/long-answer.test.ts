/**
 * A long answer arrives fast: the page keeps up. The full figures (10,000 packets of 40 KB, five runs, lengths of tasks) are
 * those of `npm run bench -- page`; here a fifth of the packets, and the CPU time of tasks instead of their length, since a
 * machine that runs tests has other things to do.
 */
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { describeInChromium } from "../support/chromium.js";
import { longMarkdown, streamLongAnswer } from "./harness/long-answer.mjs";
import { serveHarness } from "./harness/serve.mjs";

const CHARS = 40_000;
const PACKETS = 2_000;
const MIB = 1024 * 1024;

let origin = "";
let closeServer: () => Promise<void>;

beforeAll(async () => {
  ({ origin, close: closeServer } = await serveHarness());
});
afterAll(() => closeServer());

describeInChromium("a long answer", (browser: () => Browser) => {
  it("is shown whole, without blocking the page, and without keeping what is over", async () => {
    const result = await streamLongAnswer(browser(), origin, {
      chars: CHARS,
      packets: PACKETS,
      perSecond: 500,
    });
    expect(result.foldText).toBe(longMarkdown(CHARS));
    expect(result.shownText).toBe(result.expectedText);
    expect(result.longestTaskCpuMs).toBeLessThan(50);
    expect(result.heapEnd - result.heapHalf).toBeLessThan(10 * MIB);
    // Half of the packets come in the second half: one update per frame, not per packet.
    expect(result.updates).toBeLessThan(PACKETS / 2 / 3);
  });
});
