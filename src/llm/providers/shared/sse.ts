/**
 * Server-sent events, bytes in and events out, in whatever pieces the network delivers them.
 * Owns the unfinished event of one response. Knows nothing of what events mean. A line that begins with a brace is no field:
 * servers write errors so into their streams. It and the lines up to the next field or blank line are data.
 * S1 the events do not depend on how the bytes were cut. S2 memory is at most one event of `maxEventChars`. S3 an event that
 * the body's end cuts off is handed out once, marked as not whole: only the reader can tell whether its data is.
 */
import type { EventParser, TakeEvent } from "./event-parser.js";
import { LineSplitter } from "./line-splitter.js";

/** Parses one response. An event that outgrows the limit ends it: what came before is kept, nothing comes after. */
export class SseParser implements EventParser {
  readonly #lines: LineSplitter;
  readonly #maxEventChars: number;
  #name = "";
  #data: string | undefined;
  /** The data is JSON that no field holds. */
  #bare = false;
  #take: TakeEvent = () => undefined;
  #overflowed = false;

  /** `maxEventChars`: largest event, UTF-16 units. */
  constructor(maxEventChars: number) {
    this.#maxEventChars = maxEventChars;
    this.#lines = new LineSplitter(maxEventChars);
  }

  get overflowed(): boolean {
    return this.#overflowed || this.#lines.overflowed;
  }

  push(bytes: Uint8Array, take: TakeEvent): void {
    this.#take = take;
    this.#lines.push(bytes, this.#line);
    this.#checkSize(this.#lines.pendingChars);
  }

  end(take: TakeEvent): void {
    this.#take = take;
    this.#lines.end(this.#line);
    this.#dispatch(false);
  }

  readonly #line = (line: string): void => {
    if (this.#overflowed) return;
    if (line === "") {
      this.#dispatch(true);
    } else if (line.startsWith("data: ")) {
      this.#addData(line.slice(6));
    } else if (line.startsWith("data:")) {
      this.#addData(line.slice(5));
    } else if (line.startsWith("event:")) {
      this.#name = line.slice(line.charCodeAt(6) === 32 ? 7 : 6);
    } else if (line === "data") {
      this.#addData("");
    } else if (this.#bare || line.charCodeAt(0) === 0x7b) {
      this.#addBare(line);
    }
    // Comments, id, retry and unknown fields say nothing that we need.
  };

  #addBare(line: string): void {
    if (!this.#bare) this.#dispatch(true);
    this.#append(line);
    this.#bare = true;
  }

  #addData(data: string): void {
    if (this.#bare) this.#dispatch(true);
    this.#append(data);
  }

  #append(data: string): void {
    this.#data = this.#data === undefined ? data : `${this.#data}\n${data}`;
    this.#checkSize(0);
  }

  #dispatch(whole: boolean): void {
    const data = this.#data;
    const name = this.#name;
    this.#data = undefined;
    this.#name = "";
    this.#bare = false;
    if (data !== undefined) this.#take(name, data, whole);
  }

  #checkSize(pendingChars: number): void {
    if (pendingChars + (this.#data?.length ?? 0) <= this.#maxEventChars) return;
    this.#data = undefined;
    this.#overflowed = true;
  }
}
