/**
 * How one answer ends, for readers of all dialects: its usage, its calls, then one finish or one error.
 * Owns the end of an answer. N1 exactly one finish or error is handed out, last. N2 only an answer that ended of itself has
 * complete calls. N3 a body that ends without the server's word is an error, after what is kept.
 */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, FinishReason, UsageSchema } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError, type KnownErrorCode } from "../../../lib/errors.js";
import { objectOf } from "../../json.js";
import { errorDelta, finishDelta, usageDelta, warningDelta } from "../../deltas.js";
import { readErrorFacts, upstreamError, type UpstreamErrorFacts } from "../../http/upstream-error.js";
import type { AnswerWriter } from "./answer-writer.js";
import type { CallsEnd } from "./tool-call-assembler.js";

export interface AnswerEndOptions {
  /** Number of the attempt in usage. */
  readonly attempt: number;
  /** Exact values that must never show in an error. */
  readonly secrets: readonly string[];
  /** Called once, before the answer is closed: for what the reader still holds. */
  readonly beforeEnd?: (out: CompletionDelta[], calls: CallsEnd) => void;
}

/** The writer of an answer, as far as its end goes. */
export type EndingAnswer = Pick<AnswerWriter, "hasOutput" | "onlyRefused" | "reasoningOpen" | "end">;

const MAX_WARNINGS = 8;
/** Sums of what servers claim may be more than the contract can say. */
const MAX_TOKENS = 0xffffffff;
const TOKEN_COUNTS = [
  "inputTokens",
  "outputTokens",
  "reasoningTokens",
  "cacheReadTokens",
  "cacheWriteTokens",
] as const;
const MAX_WORD_CHARS = 256;

export class AnswerEnd {
  readonly #options: AnswerEndOptions;
  readonly #answer: EndingAnswer;
  #usage: MessageInitShape<typeof UsageSchema> | undefined;
  #responseId = "";
  #finish: FinishReason | undefined;
  #rawFinish = "";
  #failureCode: KnownErrorCode = ErrorCode.UPSTREAM_UNAVAILABLE;
  #warnings = 0;
  #malformed = 0;
  #ended = false;

  constructor(answer: EndingAnswer, options: AnswerEndOptions) {
    this.#answer = answer;
    this.#options = options;
  }

  /** The answer is over; nothing more will come out. */
  get ended(): boolean {
    return this.#ended;
  }

  /** The server said how the answer ended; only usage and the end mark may follow. */
  get finishSeen(): boolean {
    return this.#finish !== undefined;
  }

  /** The first id counts. */
  setResponseId(id: string): void {
    if (this.#responseId === "") this.#responseId = shortWord(id);
  }

  /** The newest counts; they take the place of those before. */
  setUsage(usage: MessageInitShape<typeof UsageSchema>): void {
    this.#usage = usage;
  }

  /** How the answer ended, in our word and the server's. `failureCode`: what it is, where the reason is ERROR. */
  setFinish(reason: FinishReason, raw: string, failureCode?: KnownErrorCode): void {
    this.#finish = reason;
    this.#rawFinish = shortWord(raw);
    if (failureCode !== undefined) this.#failureCode = failureCode;
  }

  /** The protocol's end mark: an answer without a reason ended well if it says anything. */
  done(out: CompletionDelta[]): void {
    if (this.#ended) return;
    if (this.#finish !== undefined || this.#answer.hasOutput)
      this.#end(this.#finish ?? FinishReason.STOP, out);
    else
      this.fail(
        new TurnError(this.#malformed > 0 ? ErrorCode.UPSTREAM_MALFORMED : ErrorCode.EMPTY_RESPONSE),
        out,
      );
  }

  /** The body ended, or `failure` ended it: clean only if the server had said how the answer ended. */
  eof(out: CompletionDelta[], failure?: TurnError): void {
    if (this.#ended) return;
    if (this.#finish !== undefined) {
      this.#end(this.#finish, out);
      return;
    }
    const nothingReadable = this.#malformed > 0 && !this.#answer.hasOutput;
    const code = nothingReadable ? ErrorCode.UPSTREAM_MALFORMED : ErrorCode.UPSTREAM_TRUNCATED;
    this.fail(failure ?? new TurnError(code), out);
  }

  /** The server reported a failure inside its answer. */
  reported(facts: UpstreamErrorFacts, out: CompletionDelta[], retryAfterMs = 0): void {
    this.fail(upstreamError(facts, { secrets: this.#options.secrets, retryAfterMs }), out);
  }

  /** An event that is an error: a text, an error object, or an object that holds one. */
  errorEvent(value: unknown, out: CompletionDelta[]): void {
    this.reported(readErrorFacts(objectOf(value)["error"] ?? value), out);
  }

  fail(error: TurnError, out: CompletionDelta[]): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#options.beforeEnd?.(out, "broken");
    this.#answer.end("broken", out);
    this.#pushUsage(out);
    out.push(errorDelta(error));
  }

  /** An event that does not parse: said, counted, skipped. */
  malformed(out: CompletionDelta[]): void {
    this.#malformed++;
    this.warn("the model provider sent an unreadable event, it was skipped", out);
  }

  warn(message: string, out: CompletionDelta[]): void {
    if (this.#ended || this.#warnings >= MAX_WARNINGS) return;
    this.#warnings++;
    out.push(warningDelta(ErrorCode.UPSTREAM_MALFORMED, message));
  }

  #end(finish: FinishReason, out: CompletionDelta[]): void {
    if (finish === FinishReason.ERROR) {
      const message = `the model provider reported that the answer failed (${this.#rawFinish})`;
      this.fail(new TurnError(this.#failureCode, { message }), out);
      return;
    }
    const how = callsEnd(finish);
    this.#options.beforeEnd?.(out, how);
    const calls = this.#answer.end(how, out);
    if (calls.invalid > 0) this.warn("the arguments of a tool call are not valid JSON", out);
    this.#ended = true;
    this.#pushUsage(out);
    out.push(
      finishDelta({
        reason: this.#finalReason(finish, calls.complete + calls.invalid > 0),
        rawReason: this.#rawFinish,
        providerResponseId: this.#responseId,
        reasoningOpen: this.#answer.reasoningOpen,
      }),
    );
  }

  #finalReason(finish: FinishReason, called: boolean): FinishReason {
    if (finish !== FinishReason.STOP) return finish;
    if (called) return FinishReason.TOOL_CALLS;
    return this.#answer.onlyRefused ? FinishReason.REFUSAL : FinishReason.STOP;
  }

  #pushUsage(out: CompletionDelta[]): void {
    if (!this.#usage) return;
    const usage = create(UsageSchema, { ...this.#usage, attempts: 1 });
    for (const name of TOKEN_COUNTS) usage[name] = Math.min(usage[name], MAX_TOKENS);
    out.push(usageDelta(usage, this.#options.attempt));
  }
}

/** A server's own word or id, as far as it is one. */
function shortWord(text: string): string {
  return text.slice(0, MAX_WORD_CHARS).replace(/\p{Surrogate}/gu, "\ufffd");
}

/** N2: the limit cut the last call, a filter's word is not the model's. */
function callsEnd(finish: FinishReason): CallsEnd {
  switch (finish) {
    case FinishReason.LENGTH:
      return "cut";
    case FinishReason.CONTENT_FILTER:
    case FinishReason.REFUSAL:
      return "broken";
    default:
      return "proper";
  }
}
