import type { Browser, Page } from "playwright-core";
import type { StreamFigures, Texts } from "./harness.js";

export interface LongAnswer extends StreamFigures, Texts {
  readonly longTasksMs: readonly number[];
  readonly heapHalf: number;
  readonly heapEnd: number;
  readonly longestTaskCpuMs: number;
  readonly cpuMs: number;
}

export function longMarkdown(chars: number): string;
export function streamLongAnswer(
  browser: Browser,
  url: string,
  options: { readonly chars: number; readonly packets: number; readonly perSecond: number },
): Promise<LongAnswer>;

/** What a stretch of work costs a page: long tasks and CPU time of the main thread, heap after a collection before and after. */
export function measureSecondHalf(
  browser: Browser,
  page: Page,
  run: () => Promise<void>,
): Promise<{
  longTasksMs: number[];
  longestTaskCpuMs: number;
  cpuMs: number;
  heapHalf: number;
  heapEnd: number;
}>;
