/**
 * `reasoning_details` of one answer: reasoning in pieces, with the signatures and sealed data under which its provider takes it
 * back. Pieces of one entry are put together, since a signature stands for the whole text.
 */
import { stringOf, type Json } from "../../json.js";

/** Characters of all entries. */
const MAX_CHARS = 180_000;
/** Members whose pieces are parts of one text. */
const TEXTS = ["text", "summary", "data"];

export class ReasoningDetails {
  readonly #entries: Record<string, unknown>[] = [];
  #chars = 0;
  #sealed = false;
  #overflowed = false;

  push(detail: Json): void {
    this.#chars += TEXTS.reduce((sum, name) => sum + stringOf(detail[name]).length, 256);
    this.#overflowed ||= this.#chars > MAX_CHARS;
    if (this.#overflowed) return;
    this.#sealed ||= Boolean(detail["signature"] ?? detail["data"]);
    const entry = this.#entryOf(detail);
    if (!entry) {
      this.#entries.push({ ...detail });
      return;
    }
    for (const [name, value] of Object.entries(detail)) {
      if (TEXTS.includes(name) && typeof value === "string") entry[name] = stringOf(entry[name]) + value;
      else if (value !== null && value !== "") entry[name] = value;
    }
  }

  /** What has to go back; undefined = nothing: plain text needs not, and a part of it would be refused. */
  get result(): readonly Json[] | undefined {
    return this.#sealed && !this.#overflowed ? this.#entries : undefined;
  }

  /** The entry that this piece continues: of its type and index, if it is not over. */
  #entryOf({ type, index, id }: Json): Record<string, unknown> | undefined {
    const last = this.#entries.findLast((entry) => entry["type"] === type && entry["index"] === index);
    const isOther = typeof id === "string" && typeof last?.["id"] === "string" && last["id"] !== id;
    const isOver = index === undefined && (last?.["signature"] !== undefined || last?.["data"] !== undefined);
    return isOther || isOver ? undefined : last;
  }
}
