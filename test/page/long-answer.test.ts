/**
 * A long answer arrives fast: the page keeps up. The full figures (10,000 packets, 40 KB, five runs) are those of
 * `npm run bench -- page`; here a fifth of it, the best two of three runs, since the machine of a test has other things to do.
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
    const longest: number[] = [];
    for (let run = 0; run < 3; run++) {
      const result = await streamLongAnswer(browser(), origin, {
        chars: CHARS,
        packets: PACKETS,
        perSecond: 500,
      });
      expect(result.foldText).toBe(longMarkdown(CHARS));
      expect(result.shownText).toBe(result.expectedText);
      expect(result.heapEnd - result.heapHalf).toBeLessThan(10 * MIB);
      // Many packets, one update per frame.
      expect(result.updates).toBeLessThan(PACKETS / 3);
      longest.push(Math.max(0, ...result.longTasks.map(({ durationMs }) => durationMs)));
      if (longest.filter((ms) => ms <= 50).length >= 2) return;
    }
    expect(
      longest.filter((ms) => ms <= 50).length,
      `longest tasks: ${longest.join(", ")} ms`,
    ).toBeGreaterThanOrEqual(2);
  });
});
