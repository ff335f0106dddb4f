/** What the service needs of a provider: one implementation per wire dialect. */
import type { CompletionDelta, CompletionInput } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { ModelConfig } from "../config.js";
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
  /** Aborted = nobody wants the answer: the connection to the provider closes at once. */
  readonly signal: AbortSignal;
}

/** A call that was checked and built, but not sent. */
export interface PreparedCompletion {
  /** Parameters that were set and that this model does not take. */
  readonly droppedParameters: readonly string[];
  /**
   * Sends it. Yields the deltas of each read, the last one a finish or an error: a provider's failure is never thrown.
   * Throws the signal's reason when it aborts.
   */
  stream(): AsyncGenerator<readonly CompletionDelta[], void, undefined>;
}

export interface CompletionProvider {
  readonly name: string;
  /** Throws INVALID_ARGUMENT or NOT_BUILT, naming the field, for a call that cannot be sent. */
  prepare(call: CompletionCall): PreparedCompletion;
  /** What the provider lists, best default first. Throws the provider's failure as a TurnError. */
  listModels(signal: AbortSignal): Promise<readonly ListedModel[]>;
  close(): Promise<void>;
}
