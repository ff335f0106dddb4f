/**
 * What the lines of one Ollama answer mean (/api/chat, and /api/generate where one relays it): JSON in, deltas out.
 * L1 the line with `done` ends the answer, at once. L2 calls come whole, with or without an id. L3 a count that is missing on
 * the last line is 0: Ollama leaves zeros out.
 */
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, FinishReason } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../../lib/errors.js";
import { finishReasonOf } from "../../finish-reasons.js";
import { readErrorFacts } from "../../http/upstream-error.js";
import { jsonTextOf, objectOf, objectsOf, stringOf, uint32Of, type Json } from "../../json.js";
import type { DecoderOptions, EventReader } from "../dialect.js";
import { AnswerEnd } from "../shared/answer-end.js";
import { AnswerWriter } from "../shared/answer-writer.js";

export class OllamaReader implements EventReader {
  readonly #newCallId: () => string;
  readonly #answer: AnswerWriter;
  readonly #end: AnswerEnd;
  readonly #callIds = new Set<string>();

  constructor(options: DecoderOptions) {
    this.#newCallId = options.newCallId;
    this.#answer = new AnswerWriter(options);
    this.#end = new AnswerEnd(this.#answer, options);
  }

  get ended(): boolean {
    return this.#end.ended;
  }

  get finishSeen(): boolean {
    return this.#end.finishSeen;
  }

  event(_name: string, line: Json, out: CompletionDelta[]): void {
    if (this.ended) return;
    const message = objectOf(line["message"]);
    this.#answer.reasoning(stringOf(message["thinking"]) || stringOf(line["thinking"]), false, out);
    this.#answer.text(stringOf(message["content"]) || stringOf(line["response"]), out);
    for (const call of objectsOf(message["tool_calls"])) this.#toolCall(call, out);
    if (line["error"]) this.#end.reported(readErrorFacts(line["error"], uint32Of(line["status_code"])), out);
    else if (line["done"] === true) this.#finish(line, out);
  }

  document(value: Json, out: CompletionDelta[]): void {
    if (value["message"] ?? value["response"] ?? value["error"]) this.event("", value, out);
    else this.#end.eof(out, new TurnError(ErrorCode.UPSTREAM_MALFORMED));
    this.#end.eof(out);
  }

  done(out: CompletionDelta[]): void {
    this.#end.done(out);
  }

  error(value: unknown, out: CompletionDelta[]): void {
    this.#end.errorEvent(value, out);
  }

  malformed(out: CompletionDelta[]): void {
    this.#end.malformed(out);
  }

  eof(out: CompletionDelta[], failure?: TurnError): void {
    this.#end.eof(out, failure);
  }

  /** L2. An id that was used before belongs to another call all the same. */
  #toolCall(call: Json, out: CompletionDelta[]): void {
    const fn = objectOf(call["function"]);
    const wireId = stringOf(call["id"]);
    const id = wireId !== "" && !this.#callIds.has(wireId) ? wireId : this.#newCallId();
    this.#callIds.add(id);
    const args = jsonTextOf(fn["arguments"]);
    this.#answer.callFragment({ id, index: undefined, name: stringOf(fn["name"]) || undefined, args }, out);
  }

  #finish(line: Json, out: CompletionDelta[]): void {
    const raw = stringOf(line["done_reason"]);
    this.#end.setUsage({
      inputTokens: uint32Of(line["prompt_eval_count"]) ?? 0,
      outputTokens: uint32Of(line["eval_count"]) ?? 0,
    });
    // The model was only loaded, or unloaded: nothing was asked of it.
    const idle = raw === "load" || raw === "unload";
    if (idle && !this.#answer.hasOutput) {
      this.#end.fail(new TurnError(ErrorCode.EMPTY_RESPONSE), out);
      return;
    }
    this.#end.setFinish(idle ? FinishReason.STOP : (finishReasonOf(raw) ?? FinishReason.STOP), raw);
    this.#end.done(out);
  }
}
