/**
 * The stream of one answer, for all dialects: bytes in, deltas out. Pure: no I/O, no clock.
 * Owns the framing (events, one JSON document or one JSON array, told apart by the content type or the first character) and
 * the limits; what events mean is the reader's. Keeps D1 to D4 of StreamDecoder.
 */
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../../lib/errors.js";
import { isJsonObject, objectOf, parseJson, type Json } from "../../json.js";
import type { EventReader, StreamDecoder } from "../dialect.js";
import { ByteCollector } from "./byte-collector.js";
import type { EventParser, TakeEvent } from "./event-parser.js";
import { JsonArrayParser } from "./json-array.js";
import { NdjsonParser } from "./ndjson.js";
import { SseParser } from "./sse.js";

export interface FramedDecoderSettings {
  readonly reader: EventReader;
  /** How the dialect streams: one of the text framings, or a parser of its own (it gets the largest event in bytes). */
  readonly framing: "sse" | "ndjson" | ((maxEventBytes: number) => EventParser);
  /** Of the response; "" = unknown. */
  readonly contentType: string;
  /** Largest single event, and largest document. */
  readonly maxEventBytes: number;
  readonly maxResponseBytes: number;
}

/** Makes the decoder of one response. */
export function createFramedDecoder(settings: FramedDecoderSettings): StreamDecoder {
  return new FramedDecoder(settings);
}

/** How the body goes on. A document is one event: it is collected and parsed at its end. `prefix`: at most a brace. */
type Body =
  | { readonly kind: "unknown"; readonly prefix: Uint8Array }
  | { readonly kind: "document"; readonly bytes: ByteCollector }
  | { readonly kind: "events"; readonly parser: EventParser };

class FramedDecoder implements StreamDecoder {
  readonly #settings: FramedDecoderSettings;
  readonly #reader: EventReader;
  #body: Body = { kind: "unknown", prefix: Buffer.alloc(0) };
  #bytes = 0;
  /** Where the deltas of the running push go. */
  #out: CompletionDelta[] = [];

  constructor(settings: FramedDecoderSettings) {
    this.#settings = settings;
    this.#reader = settings.reader;
  }

  get ended(): boolean {
    return this.#reader.ended;
  }

  get finishSeen(): boolean {
    return this.#reader.finishSeen;
  }

  push(bytes: Uint8Array): CompletionDelta[] {
    const out: CompletionDelta[] = [];
    if (this.ended || bytes.length === 0) return out;
    this.#bytes += bytes.length;
    this.#run(out, () => {
      if (this.#body.kind === "events") this.#body.parser.push(bytes, this.#take);
      else if (this.#body.kind === "document") this.#body.bytes.push(bytes);
      else this.#pushFirst(Buffer.concat([this.#body.prefix, bytes]));
    });
    const failure = this.#overflow();
    if (failure) this.#reader.eof(out, failure);
    return out;
  }

  end(): CompletionDelta[] {
    const out: CompletionDelta[] = [];
    if (this.ended) return out;
    this.#run(out, () => {
      if (this.#body.kind === "document") this.#document(this.#body.bytes.text());
      else if (this.#body.kind === "events") this.#body.parser.end(this.#take);
    });
    if (!this.ended) this.#reader.eof(out);
    return out;
  }

  fail(error: TurnError): CompletionDelta[] {
    const out: CompletionDelta[] = [];
    if (!this.ended) this.#reader.eof(out, error);
    return out;
  }

  /** A parser that cannot go on ends the answer with its error. */
  #run(out: CompletionDelta[], step: () => void): void {
    this.#out = out;
    try {
      step();
    } catch (error) {
      if (!(error instanceof TurnError)) throw error;
      this.#reader.eof(out, error);
    }
  }

  /** What the body is: its first character tells, after blanks and a BOM, which are no part of it. */
  #pushFirst(bytes: Uint8Array): void {
    const at = bytes.findIndex((byte) => !isBlank(byte));
    if (at === -1) return;
    const prefix = bytes.subarray(at);
    const kind = bodyKind(prefix, this.#settings);
    if (kind === "unknown") {
      this.#body = { kind, prefix };
    } else if (kind === "document") {
      this.#body = { kind, bytes: new ByteCollector() };
      this.#body.bytes.push(prefix);
    } else {
      const parser =
        kind === "array" ? new JsonArrayParser(this.#settings.maxEventBytes) : this.#parser(prefix[0]);
      this.#body = { kind: "events", parser };
      parser.push(prefix, this.#take);
    }
  }

  /** Relays turn lines into server-sent events and the other way round: how the body begins counts. */
  #parser(first = 0): EventParser {
    const { framing, maxEventBytes } = this.#settings;
    if (typeof framing === "function") return framing(maxEventBytes);
    const isLines = framing === "sse" ? first === 0x7b : !SSE_FIRST.includes(first);
    return isLines ? new NdjsonParser(maxEventBytes) : new SseParser(maxEventBytes);
  }

  #overflow(): TurnError | undefined {
    const { maxEventBytes, maxResponseBytes } = this.#settings;
    if (this.#body.kind === "events" && this.#body.parser.overflowed) {
      const message = "the model provider sent an event that is too large";
      return new TurnError(ErrorCode.UPSTREAM_MALFORMED, { message });
    }
    if (this.#bytes <= (this.#body.kind === "events" ? maxResponseBytes : maxEventBytes)) return undefined;
    return new TurnError(ErrorCode.SIZE_LIMIT, { message: "the model provider's answer is too large" });
  }

  readonly #take: TakeEvent = (name, data, whole) => {
    if (this.#reader.ended || data === "") return;
    const value = parseJson(data);
    if (value !== undefined) this.#value(name, value, data);
    else this.#text(name, data.trim(), whole);
  };

  /** What is no JSON: an end mark, an error in prose, events in an event, or nothing that can be read. */
  #text(name: string, text: string, whole: boolean): void {
    if (text === "[DONE]") this.#reader.done(this.#out);
    else if (name === "error") this.#reader.error(text, this.#out);
    else if (text.includes("\n")) this.#lines(name, text, whole);
    else if (text.startsWith("data:"))
      this.#take(name, text.slice(5).trim(), whole); // a relay framed it twice
    else if (whole && text !== "" && !text.startsWith(":")) this.#reader.malformed(this.#out); // else a comment
  }

  /** Events that a server forgot to part by blank lines. */
  #lines(name: string, data: string, whole: boolean): void {
    for (const line of data.split("\n")) this.#take(name, line, whole);
  }

  #value(name: string, value: unknown, data: string): void {
    if (value === null) return; // a keep-alive of some servers
    if (name === "error") this.#reader.error(value, this.#out);
    else if (isObject(value)) this.#reader.event(name, value, this.#out, data);
    else if (Array.isArray(value) && value.every(isObject))
      for (const item of value) this.#reader.event(name, item, this.#out);
    else if (value === "[DONE]") this.#reader.done(this.#out);
    else this.#reader.malformed(this.#out);
  }

  /** An answer that was not streamed, or lines that were announced as one. Of one that is cut off nothing is kept. */
  #document(text: string): void {
    const parsed = parseJson(text);
    if (parsed !== undefined) this.#reader.document(objectOf(parsed), this.#out);
    else if (isJsonObject(text.slice(0, text.indexOf("\n")))) this.#lines("", text, true);
    else this.#reader.eof(this.#out, new TurnError(ErrorCode.UPSTREAM_TRUNCATED));
  }
}

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** First characters of the lines of server-sent events: data, event, id, retry, a comment. */
const SSE_FIRST = Array.from("deir:", (char) => char.charCodeAt(0));
/** Content types of one JSON value per line. */
const LINES_TYPE = /\b(?:x-)?(?:ndjson|jsonl|json-?lines|stream\+json)\b/i;

/** `{` opens a document where events begin otherwise, `[` an array. */
function bodyKind(
  [first, next]: Uint8Array,
  { framing, contentType }: FramedDecoderSettings,
): Body["kind"] | "array" {
  if (first === 0x5b) return "array";
  if (first !== 0x7b || LINES_TYPE.test(contentType)) return "events";
  if (framing !== "ndjson" || /^application\/json\b/i.test(contentType)) return "document";
  if (next === undefined) return "unknown";
  return next === 0x0a || next === 0x0d ? "document" : "events"; // a line holds a whole value
}

function isBlank(byte: number): boolean {
  return (
    byte === 0x20 ||
    byte === 0x0a ||
    byte === 0x0d ||
    byte === 0x09 ||
    byte === 0xef ||
    byte === 0xbb ||
    byte === 0xbf
  );
}
