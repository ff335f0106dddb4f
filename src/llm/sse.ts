/**
 * Server-sent events, bytes in and events out, in whatever pieces the network delivers them.
 * Owns the unfinished line and the unfinished event of one response. Knows nothing of what events mean.
 * S1 the events do not depend on how the bytes were cut. S2 memory is at most one event of `maxEventChars`.
 * S3 lines end at LF, CR or CRLF, mixed, also when a CRLF is cut in two. S4 an event that the body's end cuts off is
 * handed out once, marked `unterminated`: only the reader can tell whether its data is whole.
 */

export interface SseEvent {
  /** The `event:` field; "" = none. */
  readonly event: string;
  /** All data lines, joined by LF. */
  readonly data: string;
  /** The body ended before the blank line that closes an event. */
  readonly unterminated: boolean;
}

/** Parses one response. An event that outgrows the limit ends it: what came before is kept, nothing comes after. */
export class SseParser {
  readonly #decoder = new TextDecoder("utf-8"); // drops a BOM at the start, replaces broken UTF-8
  readonly #maxEventChars: number;
  /** The line so far; only ever appended to, so that long lines in small reads stay cheap. */
  #line = "";
  #event = "";
  #data: string | undefined;
  /** The last line ended at a CR: an LF that follows belongs to it. */
  #skipLineFeed = false;

  #overflowed = false;

  /** `maxEventChars`: largest event, UTF-16 units. */
  constructor(maxEventChars: number) {
    this.#maxEventChars = maxEventChars;
  }

  /** An event was too large; the rest of the response is not read. */
  get overflowed(): boolean {
    return this.#overflowed;
  }

  /** The events that these bytes complete. */
  push(bytes: Uint8Array): SseEvent[] {
    const events: SseEvent[] = [];
    this.#pushText(this.#decoder.decode(bytes, { stream: true }), events);
    return events;
  }

  /** What is left at the end of the body. */
  end(): SseEvent[] {
    const events: SseEvent[] = [];
    this.#pushText(this.#decoder.decode(), events);
    if (this.#line !== "") this.#endLine(this.#takeLine(""), events);
    if (this.#data !== undefined) this.#dispatch(true, events);
    return events;
  }

  #pushText(text: string, events: SseEvent[]): void {
    if (text === "" || this.#overflowed) return;
    let start = this.#skipLineFeed && text.startsWith("\n") ? 1 : 0;
    this.#skipLineFeed = false;
    if (text.includes("\r")) {
      for (let at = start; at < text.length; at++) {
        const unit = text.charCodeAt(at);
        if (unit !== 10 && unit !== 13) continue;
        this.#endLine(this.#takeLine(text.slice(start, at)), events);
        if (unit === 13) {
          if (at + 1 === text.length) this.#skipLineFeed = true;
          else if (text.charCodeAt(at + 1) === 10) at++;
        }
        start = at + 1;
      }
    } else {
      for (let at = text.indexOf("\n", start); at !== -1; at = text.indexOf("\n", start)) {
        this.#endLine(this.#takeLine(text.slice(start, at)), events);
        start = at + 1;
      }
    }
    if (start < text.length && !this.#overflowed) this.#line += start === 0 ? text : text.slice(start);
    this.#checkSize();
  }

  #takeLine(rest: string): string {
    if (this.#line === "") return rest;
    const line = this.#line + rest;
    this.#line = "";
    return line;
  }

  #endLine(line: string, events: SseEvent[]): void {
    if (this.#overflowed) return;
    if (line === "") {
      this.#dispatch(false, events);
    } else if (line.startsWith("data: ")) {
      this.#addData(line.slice(6));
    } else if (line.startsWith("data:")) {
      this.#addData(line.slice(5));
    } else if (line.startsWith("event:")) {
      this.#event = line.slice(line.charCodeAt(6) === 32 ? 7 : 6);
    } else if (line === "data") {
      this.#addData("");
    }
    // Comments, id, retry and unknown fields say nothing that we need.
  }

  #addData(data: string): void {
    this.#data = this.#data === undefined ? data : `${this.#data}\n${data}`;
    this.#checkSize();
  }

  #dispatch(unterminated: boolean, events: SseEvent[]): void {
    if (this.#data !== undefined) events.push({ event: this.#event, data: this.#data, unterminated });
    this.#data = undefined;
    this.#event = "";
  }

  #checkSize(): void {
    if (this.#line.length + (this.#data?.length ?? 0) <= this.#maxEventChars) return;
    this.#line = "";
    this.#data = undefined;
    this.#overflowed = true;
  }
}
