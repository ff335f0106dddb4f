/**
 * One JSON array that arrives in pieces: its elements are handed out as each is complete. Only finds where they end; what
 * stands in them is for the reader to parse.
 */
import type { EventParser, TakeEvent } from "./event-parser.js";
import { Utf8Decoder } from "./utf8-decoder.js";

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

export class JsonArrayParser implements EventParser {
  readonly #decoder = new Utf8Decoder();
  readonly #maxEventChars: number;
  /** The element so far. */
  #element = "";
  /** 0 = outside the array, 1 = between elements, more = inside one. */
  #depth = 0;
  #inString = false;
  #escaped = false;
  #overflowed = false;

  /** `maxEventChars`: largest element, UTF-16 units. */
  constructor(maxEventChars: number) {
    this.#maxEventChars = maxEventChars;
  }

  get overflowed(): boolean {
    return this.#overflowed;
  }

  push(bytes: Uint8Array, take: TakeEvent): void {
    this.#scan(this.#decoder.push(bytes), take);
  }

  end(take: TakeEvent): void {
    this.#scan(this.#decoder.end(), take);
    if (this.#element !== "") take("", this.#element, false);
    this.#element = "";
  }

  #scan(text: string, take: TakeEvent): void {
    if (this.#overflowed) return;
    let start = 0;
    for (let at = 0; at < text.length; at++) {
      const unit = text.charCodeAt(at);
      if (this.#inString) {
        this.#insideString(unit);
      } else if (unit === QUOTE) {
        this.#inString = this.#depth > 1;
      } else if (isOpen(unit)) {
        if (++this.#depth === 2) start = at;
      } else if (isClose(unit) && --this.#depth === 1) {
        take("", this.#element + text.slice(start, at + 1), true);
        this.#element = "";
      }
    }
    if (this.#depth > 1) this.#element += text.slice(start);
    if (this.#element.length > this.#maxEventChars) {
      this.#element = "";
      this.#overflowed = true;
    }
  }

  #insideString(unit: number): void {
    if (this.#escaped) this.#escaped = false;
    else if (unit === BACKSLASH) this.#escaped = true;
    else if (unit === QUOTE) this.#inString = false;
  }
}

function isOpen(unit: number): boolean {
  return unit === 0x7b || unit === 0x5b;
}

function isClose(unit: number): boolean {
  return unit === 0x7d || unit === 0x5d;
}
