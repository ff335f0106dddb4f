/**
 * Finds secrets in text that comes in pieces: in each letter case, url-encoded, in JSON, in base64, and long ones by half. One
 * automaton (Aho and Corasick) for all of them: a character costs the same however many there are. Immutable once made.
 */
import { base64Cores, plainForms } from "./secret-forms.js";

/** Stands for what was found. */
export const MASK = "[key]";
/** Shorter ones are no secrets, and would be found everywhere. */
const MIN_SECRET_CHARS = 8;
/** A secret this long is known by either half. */
const HALVED_CHARS = 24;
const ASCII = 128;

/** Where the search stands after the text so far; 0 = nothing has begun. */
export type MatchState = number;

/** Characters from `start` on, up to `end`. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

export class SecretMatcher {
  /** Nothing is looked for. */
  readonly isEmpty: boolean;
  readonly #root = new Int32Array(ASCII);
  readonly #next: ReadonlyMap<number, number>[] = [new Map()];
  readonly #fail: number[] = [0];
  /** Characters from the root: so much of the text's end may be the beginning of a secret. */
  readonly #depth: number[] = [0];
  /** Length of the longest secret that ends here; 0 = none. */
  readonly #found: number[] = [0];

  constructor(secrets: readonly string[]) {
    const wanted = secrets.filter(({ length }) => length >= MIN_SECRET_CHARS).flatMap(formsOf);
    this.isEmpty = wanted.length === 0;
    for (const form of new Set(wanted.map(lowerAscii))) this.#add(form);
    this.#link();
  }

  /** The state after one more character code. */
  step(state: MatchState, code: number): MatchState {
    if (code >= ASCII) return 0; // no secret has such a character
    const lower = code >= 65 && code <= 90 ? code + 32 : code;
    for (let at = state; at !== 0; at = this.#fail[at]!) {
      const next = this.#next[at]!.get(lower);
      if (next !== undefined) return next;
    }
    return this.#root[lower]!;
  }

  depth(state: MatchState): number {
    return this.#depth[state]!;
  }

  /** How many of the last characters are a secret; 0 = none. */
  found(state: MatchState): number {
    return this.#found[state]!;
  }

  /** A text that is whole, with its secrets masked; the same one when it has none. */
  mask(text: string): string {
    const spans: Span[] = [];
    let state = 0;
    for (let at = 0; at < text.length; at++) {
      state = this.step(state, text.charCodeAt(at));
      const length = this.#found[state]!;
      if (length > 0) addSpan(spans, { start: at + 1 - length, end: at + 1 });
    }
    if (spans.length === 0) return text;
    let out = "";
    let done = 0;
    for (const { start, end } of spans) {
      out += text.slice(done, start) + MASK;
      done = end;
    }
    return out + text.slice(done);
  }

  #add(form: string): void {
    let state = 0;
    for (let at = 0; at < form.length; at++) {
      const code = form.charCodeAt(at);
      if (code >= ASCII) return; // such a one cannot be sent either
      const children = this.#next[state] as Map<number, number>;
      let child = children.get(code);
      if (child === undefined) {
        child = this.#next.push(new Map()) - 1;
        this.#depth.push(at + 1);
        this.#fail.push(0);
        this.#found.push(0);
        children.set(code, child);
      }
      state = child;
    }
    this.#found[state] = form.length;
  }

  /** Where to go on when a character does not fit, level by level. */
  #link(): void {
    for (const [code, child] of this.#next[0]!) this.#root[code] = child;
    const queue = [...this.#next[0]!.values()];
    for (const state of queue) {
      for (const [code, child] of this.#next[state]!) {
        const shorter = this.step(this.#fail[state]!, code);
        this.#fail[child] = shorter;
        this.#found[child] ||= this.#found[shorter]!;
        queue.push(child);
      }
    }
  }
}

/** Adds a span that ends after all others; those that it overlaps become one with it. */
export function addSpan(spans: Span[], added: Span): void {
  let { start } = added;
  for (let last = spans.at(-1); last && last.end > start; last = spans.at(-1)) {
    start = Math.min(start, last.start);
    spans.pop();
  }
  spans.push({ start, end: added.end });
}

function formsOf(secret: string): string[] {
  const half = Math.floor(secret.length / 2);
  const halves = secret.length >= HALVED_CHARS ? [secret.slice(0, half), secret.slice(half)] : [];
  return [...plainForms(secret), ...base64Cores(secret), ...halves];
}

function lowerAscii(text: string): string {
  return text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
}
