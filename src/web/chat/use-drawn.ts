/**
 * Which exchanges of a conversation are drawn. Drawing a long answer takes a good part of a frame: so the newest, or the one
 * that was asked for, come first, and then one at a time whenever the browser has nothing better to do, nearest to the
 * reader first. What is far from the reader is taken away again once the whole is past the budget.
 */
import { startTransition, useEffect, useState, type RefObject } from "react";
import type { ExchangeView } from "../../client/live/conversation.js";
import { charsOf } from "./exchange-size.js";

/** What is drawn at once at most: so much that few conversations have more, and no browser runs out of memory. */
const MAX_CHARS = 600_000;
const MAX_EXCHANGES = 400;
/** Characters that the first sight of a conversation draws. */
const FIRST_CHARS = 12_000;
/** Longest wait for an idle moment, milliseconds. */
const IDLE_MS = 100;

/** The keys of those to be drawn. @param wanted the key of one that must be, and around which the others follow. */
export function useDrawn(
  exchanges: readonly ExchangeView[],
  scroller: RefObject<HTMLElement | null>,
  wanted: string,
): ReadonlySet<string> {
  const [drawn, setDrawn] = useState<ReadonlySet<string>>(NONE);
  const [scrolls, setScrolls] = useState(0);
  const first = firstOf(exchanges, wanted);
  const shown = new Set([...drawn, ...first]);

  useEffect(() => {
    const idle = whenIdle(() => {
      const at = wanted ? exchanges.findIndex(({ key }) => key === wanted) : -1;
      const next = nextDrawn(exchanges, shown, at >= 0 ? at : readAt(exchanges, scroller.current));
      // in slices: whatever the reader does meanwhile comes first
      startTransition(() => setDrawn((before) => (isSameSet(before, next) ? before : next)));
    });
    return idle;
    // `shown` follows from these
  }, [exchanges, drawn, wanted, scrolls, scroller]);

  useEffect(() => {
    const box = scroller.current;
    if (!box) return undefined;
    let frame = 0;
    const onScroll = (): void => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        setScrolls((count) => count + 1);
      });
    };
    box.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      box.removeEventListener("scroll", onScroll);
      cancelAnimationFrame(frame);
    };
  }, [scroller]);
  return shown;
}

const NONE: ReadonlySet<string> = new Set();

/** The newest, as far as a first sight goes; and the one that is wanted. */
function firstOf(exchanges: readonly ExchangeView[], wanted: string): string[] {
  const keys = wanted ? [wanted] : [];
  let room = FIRST_CHARS;
  for (let i = exchanges.length - 1; i >= 0 && room > 0; i -= 1) {
    keys.push(exchanges[i]!.key);
    room -= charsOf(exchanges[i]!) + 500;
  }
  return keys;
}

/** What is drawn, with the nearest to `at` that is not, and without what is then too much. */
export function nextDrawn(
  exchanges: readonly ExchangeView[],
  drawn: ReadonlySet<string>,
  at: number,
): ReadonlySet<string> {
  const keep = new Set<string>();
  let chars = 0;
  let added = "";
  for (const exchange of byDistance(exchanges, at)) {
    chars += charsOf(exchange);
    if (keep.size > 0 && (chars > MAX_CHARS || keep.size >= MAX_EXCHANGES)) break;
    if (!drawn.has(exchange.key)) {
      if (added) continue;
      added = exchange.key;
    }
    keep.add(exchange.key);
  }
  return keep;
}

function isSameSet(a: ReadonlySet<string>, b: ReadonlySet<string>): boolean {
  return a.size === b.size && [...a].every((key) => b.has(key));
}

function* byDistance<T>(items: readonly T[], at: number): Generator<T> {
  for (let away = 0; away < items.length; away += 1) {
    if (at - away >= 0) yield items[at - away]!;
    if (away > 0 && at + away < items.length) yield items[at + away]!;
  }
}

/** The index of the exchange in the middle of what is seen. */
function readAt(exchanges: readonly ExchangeView[], box: HTMLElement | null): number {
  if (!box) return exchanges.length - 1;
  const middle = box.getBoundingClientRect().top + box.clientHeight / 2;
  let low = 0;
  let high = exchanges.length - 1;
  while (low < high) {
    const at = (low + high) >> 1;
    const element = document.getElementById(`m-${exchanges[at]!.user.messageId}`);
    if (!element || element.getBoundingClientRect().bottom >= middle) high = at;
    else low = at + 1;
  }
  return low;
}

function whenIdle(run: () => void): () => void {
  if (typeof requestIdleCallback !== "function") {
    const timer = setTimeout(run, IDLE_MS);
    return () => clearTimeout(timer);
  }
  const id = requestIdleCallback(run, { timeout: IDLE_MS });
  return () => cancelIdleCallback(id);
}
