/**
 * A wire dialect: how a call is written for a family of servers, and how their answer is read. Pure: no I/O, no clock.
 * One implementation per dialect; the connection to a server is made by the provider that drives it.
 */
import type { CompletionDelta, CompletionInput } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { TurnError } from "../../lib/errors.js";
import type { ModelConfig } from "../config.js";
import type { Json } from "../json.js";

/** A call as it goes to the server, but for its keys. */
export interface DialectRequest {
  /** Appended to the base URL; begins with a slash; may hold the model's name and a query. */
  readonly path: string;
  /** What the dialect always sends; the keys come from `authorize`. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Readonly<Record<string, unknown>>;
  /** Parameters that were set and that this model does not take. */
  readonly dropped: readonly string[];
}

/** A request about to leave, for dialects that sign it. */
export interface OutgoingRequest {
  readonly method: "POST" | "GET";
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export interface DecoderOptions {
  /** Counts from 1. */
  readonly attempt: number;
  /** Makes ids for calls whose server sent none. */
  readonly newCallId: () => string;
  /** Never to appear in an error, whatever the server echoes. */
  readonly secrets: readonly string[];
  /** Names of the tags in which the model writes reasoning into its text; [] = it does not. */
  readonly reasoningTags: readonly string[];
  /** The previous answer ended inside such a tag. */
  readonly reasoningOpen: boolean;
  /** The prompt opened such a tag: the answer begins inside it. Default false. */
  readonly startsInReasoning?: boolean;
  /** Largest single event, and largest answer that is not streamed. */
  readonly maxEventBytes: number;
  readonly maxResponseBytes: number;
  /** Content type of the response; "" = unknown: the first bytes tell. */
  readonly contentType: string;
}

/**
 * The stream of one answer: bytes in, deltas out. D1 the deltas, taken together, do not depend on how the bytes were cut.
 * D2 what was decoded before a failure comes out before it. D3 memory is bounded by the limits. D4 the last delta is a finish
 * or an error, exactly one.
 */
export interface StreamDecoder {
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

/** What a dialect makes of the events of one answer; the framing (SSE, NDJSON, event stream, one document) is not its matter. */
export interface EventReader {
  readonly ended: boolean;
  readonly finishSeen: boolean;
  /** One event. `name`: the event line of SSE or the event type of an event stream; "" = none. `text`: what `value` was parsed from. */
  event(name: string, value: Json, out: CompletionDelta[], text?: string): void;
  /** The whole answer of a call that was not streamed; afterwards `ended` holds. */
  document(value: Json, out: CompletionDelta[]): void;
  /** The `[DONE]` mark, where a dialect has one. */
  done(out: CompletionDelta[]): void;
  /** An event that is named an error, whatever its data is: a text, an error object, or one that holds it. */
  error(value: unknown, out: CompletionDelta[]): void;
  /** An event that does not parse: said, counted, skipped. */
  malformed(out: CompletionDelta[]): void;
  /** The body ended, or `failure` ended it: clean only if the server had said how the answer ended. */
  eof(out: CompletionDelta[], failure?: TurnError): void;
}

export interface Dialect {
  /** The name in the configuration (`api`) and in DecodeCompletion. */
  readonly api: string;
  /** Value of the Accept header. */
  readonly accept: string;
  /** Builds the call. Throws INVALID_ARGUMENT naming the field for one that cannot be sent. */
  buildRequest(input: CompletionInput, model: ModelConfig): DialectRequest;
  /** The headers that carry the key. */
  authorize(request: OutgoingRequest, apiKey: string | undefined): Readonly<Record<string, string>>;
  createDecoder(options: DecoderOptions): StreamDecoder;
  /** How the server lists its models, if it can. `read` gets the parsed answer, best default first. */
  readonly modelList?: { readonly path: string; read(answer: Json): readonly ListedModel[] };
  /** Embeddings, where the dialect has them. */
  readonly embedding?: {
    /** Texts that one request takes; undefined = any number. */
    readonly maxInputs?: number;
    request(inputs: readonly string[], model: ModelConfig): DialectRequest;
    read(answer: Json): { readonly vectors: readonly (readonly number[])[]; readonly inputTokens: number };
  };
  /** The server's own token count, where the dialect has one. */
  readonly tokenCount?: {
    request(input: CompletionInput, model: ModelConfig): DialectRequest;
    read(answer: Json): number;
  };
}

/** A model that a provider says it has. */
export interface ListedModel {
  readonly id: string;
  readonly ownedBy: string;
  /** Tokens; 0 = unknown. */
  readonly contextTokens: number;
  /** What else it says of the model. */
  readonly facts?: Partial<ModelConfig>;
}

/** What of a provider's settings shapes its dialect. */
export interface DialectSettings {
  /** Ends without a slash. */
  readonly baseUrl: string;
  /** The `quirks` of the configuration, checked by the dialect. */
  readonly quirks: Readonly<Record<string, unknown>>;
}
