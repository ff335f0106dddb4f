/**
 * Decides what a screen reader is told while an answer is written: whole sentences, at most one announcement per interval,
 * and what goes on beside it when that changes. Pure but for what it has already told.
 *
 * Owns: how far each text was told. A1 nothing is told twice. A2 no sentence is told in pieces, unless it is the last one.
 */
import type { LaneView, TurnView } from "../../client/view.js";

/** The least time between two announcements, milliseconds. */
export const ANNOUNCE_INTERVAL_MS = 2_500;
/** Ends of sentences and of lines, so that lists and headings are told too. */
const SENTENCE_END = /[.!?…](?=\s)|[。！？]|\n/g;

/** Follows one turn's views. */
export class Announcer {
  readonly #toldChars = new Map<string, number>();
  readonly #toldStatus = new Map<string, string>();
  #toldEnd = false;

  /** Starts after what `view` shows: a stored turn, or one that was joined late, is not read out. */
  skip(view: TurnView): void {
    for (const lane of view.lanes) {
      for (const { key, text, open } of answersOf(lane))
        this.#toldChars.set(key, open ? lastSentenceEnd(text, 0) : text.length);
      this.#toldStatus.set(lane.key, lane.status?.text ?? "");
    }
    this.#toldEnd = view.progress !== "running";
  }

  /** What to say now; empty = nothing. Call it at most once per interval. */
  next(view: TurnView): string {
    const several = view.lanes.length > 1;
    const parts = view.lanes.flatMap((lane) => {
      const said = [this.#status(lane), this.#answer(lane)].filter((part) => part !== "");
      return said.length > 0 && several ? [`${lane.modelName}:`, ...said] : said;
    });
    if (view.progress !== "running" && !this.#toldEnd) {
      this.#toldEnd = true;
      parts.push(endWords(view));
    }
    return parts.join(" ");
  }

  #status(lane: LaneView): string {
    const { status } = lane;
    const text = status && status.kind !== "writing" && status.kind !== "starting" ? `${status.text}.` : "";
    if (this.#toldStatus.get(lane.key) === text) return "";
    this.#toldStatus.set(lane.key, text);
    return text;
  }

  #answer(lane: LaneView): string {
    return answersOf(lane)
      .map(({ key, text, open }) => {
        const told = this.#toldChars.get(key) ?? 0;
        const end = open ? lastSentenceEnd(text, told) : text.length;
        if (end <= told) return "";
        this.#toldChars.set(key, end);
        return plainText(text.slice(told, end));
      })
      .filter((part) => part !== "")
      .join(" ");
  }
}

function answersOf(lane: LaneView): { key: string; text: string; open: boolean }[] {
  return lane.groups.flatMap((group) =>
    group.kind === "answer" || group.kind === "narration"
      ? [{ key: `${lane.key}/${group.key}`, text: group.text, open: group.open }]
      : [],
  );
}

function lastSentenceEnd(text: string, from: number): number {
  let end = from;
  for (const match of text.slice(from).matchAll(SENTENCE_END)) end = from + match.index + match[0].length;
  return end;
}

/** Markdown without its signs, roughly: what matters is that it can be listened to. */
function plainText(markdown: string): string {
  return markdown
    .replace(/^\s*(?:```|~~~).*$/gm, "")
    .replace(/^\s*\|?[-:| ]{3,}\|?\s*$/gm, "")
    .replace(/\[\[\d+\]\]\([^)]*\)/g, "")
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/^\s*(?:#{1,6}|[-*+>]|\d+[.)])\s+/gm, "")
    .replace(/[*_`~|]+/g, " ")
    .replace(/\s+/g, " ")
    .trim();
}

function endWords(view: TurnView): string {
  const ends = [view.end, ...view.lanes.map(({ end }) => end)].filter((end) => end !== undefined);
  if (ends.length === 0) return "The answer is complete.";
  return [...new Set(ends.map(({ text, advice }) => `${text} ${advice}`.trim()))].join(" ");
}
