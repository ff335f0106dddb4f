/**
 * The stream of one OpenAI chat answer: bytes in, deltas out. Pure: no I/O, no clock.
 * Owns the framing (events or one JSON document, told apart by the first character) and ends at the end mark, not at the
 * end of the body. D1 the deltas, taken together, do not depend on how the bytes were cut. D2 what was decoded before a failure
 * comes out before it. D3 memory is bounded by the limits.
 */
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { CompletionDelta } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { TurnError } from "../../lib/errors.js";
import { readErrorFacts } from "../http/upstream-error.js";
import { objectOf, parseJson } from "../json.js";
import { SseParser, type SseEvent } from "../sse.js";
import { ChatChunkReader, type ChunkReaderOptions } from "./openai-chat-chunks.js";

export interface OpenAiChatDecoderOptions extends Partial<ChunkReaderOptions> {
  /** Largest single event. Default 8 MiB. */
  readonly maxEventBytes?: number;
  /** Largest body. Default 64 MiB. */
  readonly maxResponseBytes?: number;
}

export interface OpenAiChatDecoder {
  /** The deltas that these bytes complete. Nothing once `ended`. */
  push(bytes: Uint8Array): CompletionDelta[];
  /** The body ended. */
  end(): CompletionDelta[];
  /** The connection failed: clean if the answer was over, else an error delta after what is kept. */
  fail(error: TurnError): CompletionDelta[];
  /** The last delta (finish or error) was handed out. */
  readonly ended: boolean;
  /** The answer is over but for usage and the end mark. */
  readonly finishSeen: boolean;
}

const DEFAULT_MAX_EVENT_BYTES = 8 * 1024 * 1024;
const DEFAULT_MAX_RESPONSE_BYTES = 64 * 1024 * 1024;

/** What the first character says the body is. */
type Framing =
  | { readonly kind: "unknown" }
  | { readonly kind: "events" }
  | { readonly kind: "json"; readonly pieces: Uint8Array[] };

/** A decoder for one response. */
export function createOpenAiChatDecoder(options: OpenAiChatDecoderOptions = {}): OpenAiChatDecoder {
  return new StreamDecoder(options);
}

class StreamDecoder implements OpenAiChatDecoder {
  readonly #reader: ChatChunkReader;
  readonly #sse: SseParser;
  readonly #maxBytes: number;
  readonly #maxJsonBytes: number;
  #framing: Framing = { kind: "unknown" };
  #bytes = 0;

  constructor(options: OpenAiChatDecoderOptions) {
    let calls = 0;
    this.#reader = new ChatChunkReader({
      attempt: options.attempt ?? 1,
      newCallId: options.newCallId ?? (() => `call_${++calls}`),
      secrets: options.secrets ?? [],
      thinkTags: options.thinkTags ?? false,
      reasoningOpen: options.reasoningOpen ?? false,
    });
    this.#maxJsonBytes = options.maxEventBytes ?? DEFAULT_MAX_EVENT_BYTES;
    this.#sse = new SseParser(this.#maxJsonBytes);
    this.#maxBytes = options.maxResponseBytes ?? DEFAULT_MAX_RESPONSE_BYTES;
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
    if (this.#framing.kind === "unknown") this.#framing = framingOf(bytes);
    if (this.#framing.kind === "json") this.#framing.pieces.push(bytes);
    else for (const event of this.#sse.push(bytes)) this.#event(event, out);
    const failure = this.#overflow();
    if (failure) this.#reader.eof(out, failure);
    return out;
  }

  end(): CompletionDelta[] {
    const out: CompletionDelta[] = [];
    if (this.ended) return out;
    if (this.#framing.kind === "json")
      this.#document(Buffer.concat(this.#framing.pieces).toString("utf8"), out);
    else for (const event of this.#sse.end()) this.#event(event, out);
    this.#reader.eof(out);
    return out;
  }

  fail(error: TurnError): CompletionDelta[] {
    const out: CompletionDelta[] = [];
    this.#reader.eof(out, error);
    return out;
  }

  #overflow(): TurnError | undefined {
    if (this.#sse.overflowed) {
      const message = "the model provider sent an event that is too large";
      return new TurnError(ErrorCode.UPSTREAM_MALFORMED, { message });
    }
    if (this.#bytes <= (this.#framing.kind === "json" ? this.#maxJsonBytes : this.#maxBytes))
      return undefined;
    return new TurnError(ErrorCode.SIZE_LIMIT, { message: "the model provider's answer is too large" });
  }

  #event(event: SseEvent, out: CompletionDelta[]): void {
    if (this.ended || event.data === "") return;
    const chunk = parseJson(event.data);
    if (chunk !== undefined) this.#value(chunk, event, out);
    else if (event.data.trim() === "[DONE]") this.#reader.done(out);
    else if (event.event === "error") this.#reader.errorText(event.data, out);
    else if (event.data.includes("\n")) this.#lines(event, out);
    else if (!event.unterminated) this.#reader.malformed(out);
  }

  #value(chunk: unknown, event: SseEvent, out: CompletionDelta[]): void {
    if (chunk === null) return; // a keep-alive of some servers
    if (event.event === "error") {
      const members = objectOf(chunk);
      if (Object.keys(objectOf(members["error"])).length > 0) this.#reader.chunk(members, out);
      else this.#reader.chunk({ error: members["error"] ?? chunk }, out);
    } else if (typeof chunk === "object" && !Array.isArray(chunk)) {
      this.#reader.chunk(objectOf(chunk), out);
    } else {
      this.#reader.malformed(out);
    }
  }

  /** Events that a server forgot to part by blank lines. */
  #lines(event: SseEvent, out: CompletionDelta[]): void {
    for (const data of event.data.split("\n"))
      this.#event({ event: event.event, data, unterminated: event.unterminated }, out);
  }

  /** An answer that was not streamed: its end is its end mark. */
  #document(text: string, out: CompletionDelta[]): void {
    const parsed = parseJson(text.slice(text.indexOf("{"))); // a BOM may stand before it
    const document = objectOf(parsed);
    if (Array.isArray(document["choices"]) || document["error"]) {
      this.#reader.chunk(document, out);
      this.#reader.done(out);
    } else if (parsed === undefined) {
      this.#reader.eof(out, new TurnError(ErrorCode.UPSTREAM_TRUNCATED));
    } else {
      if (readErrorFacts(document).message !== "") this.#reader.chunk({ error: document }, out);
      this.#reader.eof(out, new TurnError(ErrorCode.UPSTREAM_MALFORMED));
    }
  }
}

/** `{` opens a document; nothing in an event stream begins so. Leading blanks and a BOM decide nothing. */
function framingOf(bytes: Uint8Array): Framing {
  for (const byte of bytes) {
    if (byte === 0x7b) return { kind: "json", pieces: [] };
    if (byte > 0x20 && byte !== 0xef && byte !== 0xbb && byte !== 0xbf) return { kind: "events" };
  }
  return { kind: "unknown" };
}
