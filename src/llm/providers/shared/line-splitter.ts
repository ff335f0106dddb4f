/**
 * Lines of a text body, in whatever pieces the network delivers it. Lines end at LF, CR or CRLF, mixed, also when a CRLF is cut
 * in two. Owns the unfinished line.
 */
import { Utf8Decoder } from "./utf8-decoder.js";

export class LineSplitter {
  readonly #decoder = new Utf8Decoder();
  readonly #maxChars: number;
  /** The line so far; only ever appended to, so that long lines in small reads stay cheap. */
  #rest = "";
  /** The last line ended at a CR: an LF that follows belongs to it. */
  #skipLineFeed = false;
  #overflowed = false;

  /** `maxChars`: longest line, UTF-16 units. */
  constructor(maxChars: number) {
    this.#maxChars = maxChars;
  }

  /** A line was too long: no more lines come. */
  get overflowed(): boolean {
    return this.#overflowed;
  }

  /** UTF-16 units of the unfinished line. */
  get pendingChars(): number {
    return this.#rest.length;
  }

  push(bytes: Uint8Array, take: (line: string) => void): void {
    this.#pushText(this.#decoder.push(bytes), take);
  }

  /** The last line, if it lacks an end. */
  end(take: (line: string) => void): void {
    this.#pushText(this.#decoder.end(), take);
    const line = this.#rest;
    this.#rest = "";
    if (line !== "") take(line);
  }

  #pushText(text: string, take: (line: string) => void): void {
    if (text === "" || this.#overflowed) return;
    let start = this.#skipLineFeed && text.charCodeAt(0) === 10 ? 1 : 0;
    this.#skipLineFeed = false;
    start = text.includes("\r") ? this.#mixedLines(text, start, take) : this.#plainLines(text, start, take);
    if (start < text.length) this.#rest += start === 0 ? text : text.slice(start);
    if (this.#rest.length <= this.#maxChars) return;
    this.#rest = "";
    this.#overflowed = true;
  }

  /** Lines that end at LF. Returns where the unfinished one starts. */
  #plainLines(text: string, from: number, take: (line: string) => void): number {
    let start = from;
    for (let at = text.indexOf("\n", start); at !== -1; at = text.indexOf("\n", start)) {
      take(this.#completed(text.slice(start, at)));
      start = at + 1;
    }
    return start;
  }

  /** Lines of any ends; each mark is searched for from where it was found last. */
  #mixedLines(text: string, from: number, take: (line: string) => void): number {
    let start = from;
    let lineFeed = text.indexOf("\n", start);
    let carriageReturn = text.indexOf("\r", start);
    while (lineFeed !== -1 || carriageReturn !== -1) {
      const isReturn = carriageReturn !== -1 && (lineFeed === -1 || carriageReturn < lineFeed);
      const end = isReturn ? carriageReturn : lineFeed;
      take(this.#completed(text.slice(start, end)));
      start = end + 1;
      if (isReturn) {
        if (start === text.length) this.#skipLineFeed = true;
        else if (lineFeed === start) start++;
        carriageReturn = text.indexOf("\r", start);
      }
      if (lineFeed !== -1 && lineFeed < start) lineFeed = text.indexOf("\n", start);
    }
    return start;
  }

  #completed(end: string): string {
    if (this.#rest === "") return end;
    const line = this.#rest + end;
    this.#rest = "";
    return line;
  }
}
