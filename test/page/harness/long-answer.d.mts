import type { Browser } from "playwright-core";
import type { StreamResult } from "./harness.js";

export function longMarkdown(chars: number): string;
export function streamLongAnswer(
  browser: Browser,
  url: string,
  options: { readonly chars: number; readonly packets: number; readonly perSecond: number },
): Promise<StreamResult & { readonly heapHalf: number; readonly heapEnd: number }>;
