/** What the service needs of a provider: one implementation per wire dialect. */
import type {
  Caller,
  CompletionDelta,
  CompletionInput,
} from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { Clock } from "../../lib/clock.js";
import type { Logger } from "../../lib/log.js";
import type { LlmLimits, ModelConfig } from "../config.js";
import type { ListedModel } from "./dialect.js";

export type { ListedModel } from "./dialect.js";

/** One model call. */
export interface CompletionCall {
  readonly input: CompletionInput;
  readonly model: ModelConfig;
  /** Counts from 1. */
  readonly attempt: number;
  /** Milliseconds from the request to the first delta that shows anything. */
  readonly firstTokenTimeoutMs: number;
  /** Milliseconds without a byte after that. */
  readonly stallTimeoutMs: number;
  /** Milliseconds that are left for the whole call; undefined = no end. For peers that want to know. */
  readonly deadlineMs?: number;
  /** On whose behalf, for peers that are told. */
  readonly caller?: Caller | undefined;
  /** Names the call, for servers that know idempotent requests; "" or undefined = it has no name. */
  readonly idempotencyKey?: string;
  /** Aborted = nobody wants the answer: the connection to the provider closes at once. */
  readonly signal: AbortSignal;
}

/** A call that was checked and built, but not sent. */
export interface PreparedCompletion {
  /** Parameters that were set and that this model does not take. */
  readonly droppedParameters: readonly string[];
  /**
   * Sends it. Yields the deltas of each read, the last one a finish or an error: a provider's failure is never thrown.
   * Throws the signal's reason when it aborts. `apiKey`: undefined = the provider's first.
   */
  stream(apiKey?: string): AsyncGenerator<readonly CompletionDelta[], void, undefined>;
}

export interface CompletionProvider {
  readonly name: string;
  /** It is known not to answer at present. Default: false. */
  readonly isDown?: boolean;
  /** Throws INVALID_ARGUMENT or NOT_BUILT, naming the field, for a call that cannot be sent. */
  prepare(call: CompletionCall): PreparedCompletion;
  /** What the provider lists, best default first. Throws the provider's failure as a TurnError. */
  listModels(signal: AbortSignal): Promise<readonly ListedModel[]>;
  /** Embeddings, where the provider has them. Throws its failure as a TurnError. */
  embed?(call: EmbedCall): Promise<EmbedResult>;
  /** The provider's own count, where it has one. Throws its failure as a TurnError. */
  countTokens?(call: CountCall): Promise<number>;
  close(): Promise<void>;
}

/** What the calls have in common that answer at once. */
export interface PlainCall {
  readonly model: ModelConfig;
  readonly apiKey?: string;
  readonly caller?: Caller | undefined;
  readonly signal: AbortSignal;
}

export interface EmbedCall extends PlainCall {
  readonly inputs: readonly string[];
}

export interface EmbedResult {
  readonly vectors: readonly (readonly number[])[];
  /** 0 = not told. */
  readonly inputTokens: number;
}

export interface CountCall extends PlainCall {
  readonly input: CompletionInput;
}

/** What every provider is made with. */
export interface ProviderDeps {
  readonly limits: LlmLimits;
  readonly clock: Clock;
  readonly logger: Logger;
}
