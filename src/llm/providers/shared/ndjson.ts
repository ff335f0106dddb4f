/** One JSON value per line. Blank lines say nothing; the last line may lack its end. */
import type { EventParser, TakeEvent } from "./event-parser.js";
import { LineSplitter } from "./line-splitter.js";

export class NdjsonParser implements EventParser {
  readonly #lines: LineSplitter;

  /** `maxEventChars`: longest line, UTF-16 units. */
  constructor(maxEventChars: number) {
    this.#lines = new LineSplitter(maxEventChars);
  }

  get overflowed(): boolean {
    return this.#lines.overflowed;
  }

  push(bytes: Uint8Array, take: TakeEvent): void {
    this.#lines.push(bytes, (line) => takeLine(line, true, take));
  }

  end(take: TakeEvent): void {
    this.#lines.end((line) => takeLine(line, false, take));
  }
}

function takeLine(line: string, whole: boolean, take: TakeEvent): void {
  if (line.trim() !== "") take("", line, whole);
}
