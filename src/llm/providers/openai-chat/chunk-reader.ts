/**
 * What the chunks of one OpenAI chat answer mean: JSON in, deltas out.
 * Owns the answer's usage and end. Does not know how chunks were framed.
 * C1 only choice 0 counts. C2 a member of a wrong type is no member; unknown members are ignored. C3 reasoning that a server
 * mirrors in several members is taken once. C4 nothing is handed out after the end.
 */
import { create } from "@bufbuild/protobuf";
import {
  ProviderStateSchema,
  ServerToolCallSchema,
  type CompletionDelta,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, FinishReason } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../../lib/errors.js";
import {
  errorDelta,
  finishDelta,
  providerStateDelta,
  serverToolCallDelta,
  usageDelta,
  warningDelta,
} from "../../deltas.js";
import { finishReasonOf } from "../../finish-reasons.js";
import { readErrorFacts, upstreamError } from "../../http/upstream-error.js";
import { objectOf, stringOf, uint32Of, type Json } from "../../json.js";
import type { EventReader } from "../dialect.js";
import { AnswerWriter, type AnswerWriterOptions } from "../shared/answer-writer.js";
import { UsageFold } from "./usage-fold.js";
import type { CallsEnd } from "../shared/tool-call-assembler.js";

/** The name under which signed reasoning travels in ProviderState, and is recognised when it comes back. */
export const PROVIDER_STATE = "openai-chat/reasoning_details";

export interface ChunkReaderOptions extends AnswerWriterOptions {
  /** Number of the attempt in usage. */
  readonly attempt: number;
  /** Exact values that must never show in an error. */
  readonly secrets: readonly string[];
}

const MAX_WARNINGS = 8;
const MAX_SERVER_RESULT_CHARS = 60_000;
const MAX_STATE_CHARS = 256 * 1024;

export class ChatChunkReader implements EventReader {
  readonly #options: ChunkReaderOptions;
  readonly #answer: AnswerWriter;
  readonly #usage = new UsageFold();
  /** Signed or encrypted reasoning, as it came. */
  readonly #state: Json[] = [];
  #stateChars = 0;
  #chunks = 0;
  #warnings = 0;
  #malformed = 0;
  #sawCallList = false;
  #responseId = "";
  #finish: FinishReason | undefined;
  #rawFinish = "";
  #ended = false;

  constructor(options: ChunkReaderOptions) {
    this.#options = options;
    this.#answer = new AnswerWriter(options);
  }

  /** The answer is over; nothing more will come out. */
  get ended(): boolean {
    return this.#ended;
  }

  /** The server said how the answer ended; only usage and the end mark may follow. */
  get finishSeen(): boolean {
    return this.#finish !== undefined && this.#finish !== FinishReason.OTHER;
  }

  /** Takes one chunk. Under the name "error" all of it is the error, unless it has one inside. */
  event(name: string, value: Json, out: CompletionDelta[]): void {
    const isBare = name === "error" && Object.keys(objectOf(value["error"])).length === 0;
    this.#chunk(isBare ? { error: value["error"] ?? value } : value, out);
  }

  /** Its end is its end mark. */
  document(value: Json, out: CompletionDelta[]): void {
    if (Array.isArray(value["choices"]) || value["error"]) {
      this.#chunk(value, out);
      this.done(out);
    } else {
      if (readErrorFacts(value).message !== "") this.#chunk({ error: value }, out);
      this.eof(out, new TurnError(ErrorCode.UPSTREAM_MALFORMED));
    }
  }

  #chunk(chunk: Json, out: CompletionDelta[]): void {
    if (this.#ended) return;
    this.#chunks++;
    if (this.#responseId === "") this.#responseId = stringOf(chunk["id"]);
    if (chunk["usage"]) this.#usage.push(chunk["usage"]);
    if (chunk["x_groq"]) this.#usage.push(objectOf(chunk["x_groq"])["usage"]);
    if (chunk["citations"]) this.#answer.sources.pushList(chunk["citations"], chunk["search_results"]);
    const choices = chunk["choices"];
    const choice = Array.isArray(choices) ? choiceZero(choices as unknown[]) : undefined;
    if (choice) this.#choice(choice, out);
    const error = errorOf(chunk, choice);
    if (error !== undefined) this.#reported(error, out);
  }

  /** An `event: error` whose data is not an object. */
  errorText(text: string, out: CompletionDelta[]): void {
    this.#reported(text, out);
  }

  /** An event that does not parse: said, counted, skipped. */
  malformed(out: CompletionDelta[]): void {
    this.#malformed++;
    this.#warn("the model provider sent an unreadable event, it was skipped", out);
  }

  /** The end mark (`[DONE]`, or the end of an answer that was not streamed). */
  done(out: CompletionDelta[]): void {
    if (this.#ended) return;
    if (this.#finish !== undefined || this.#answer.hasOutput)
      this.#end(this.#finish ?? FinishReason.STOP, out);
    else
      this.#fail(
        new TurnError(this.#malformed > 0 ? ErrorCode.UPSTREAM_MALFORMED : ErrorCode.EMPTY_RESPONSE),
        out,
      );
  }

  /** The body ended, or `failure` ended it: clean if the server had said how the answer ended. */
  eof(out: CompletionDelta[], failure?: TurnError): void {
    if (this.#ended) return;
    const nothingReadable = this.#chunks === 0 && this.#malformed > 0;
    if (this.#finish !== undefined) this.#end(this.#finish, out);
    else
      this.#fail(
        failure ??
          new TurnError(nothingReadable ? ErrorCode.UPSTREAM_MALFORMED : ErrorCode.UPSTREAM_TRUNCATED),
        out,
      );
  }

  #choice(choice: Json, out: CompletionDelta[]): void {
    if (choice["usage"]) this.#usage.push(choice["usage"]);
    // Servers that send both repeat the message in full beside its delta.
    const delta = choice["delta"] ?? (this.#answer.hasOutput ? undefined : choice["message"]);
    if (delta) this.#delta(objectOf(delta), out);
    this.#takeFinish(choice["finish_reason"]);
  }

  /** The last word counts, but a word nobody knows only where nothing follows it. */
  #takeFinish(raw: unknown): void {
    const finish = finishReasonOf(raw);
    if (this.#finish === FinishReason.OTHER) this.#finish = undefined;
    if (finish === undefined || (finish === FinishReason.OTHER && this.#finish !== undefined)) return;
    this.#finish = finish;
    this.#rawFinish = stringOf(raw);
  }

  #delta(delta: Json, out: CompletionDelta[]): void {
    this.#reasoning(delta, out);
    this.#content(delta["content"], out);
    this.#answer.refusal(stringOf(delta["refusal"]), out);
    if (delta["annotations"]) this.#answer.sources.pushAnnotations(delta["annotations"]);
    if (delta["citations"]) this.#answer.sources.pushList(delta["citations"], undefined);
    this.#answer.flushSources(out);
    const calls = delta["tool_calls"];
    if (Array.isArray(calls)) {
      for (const call of calls as unknown[]) this.#toolCall(objectOf(call), out);
    } else if (delta["function_call"] && !this.#sawCallList) {
      const call = objectOf(delta["function_call"]);
      this.#callFragment("", 0, stringOf(call["name"]), call["arguments"], out);
    }
    if (Array.isArray(delta["executed_tools"])) serverTools(delta["executed_tools"] as unknown[], out);
  }

  /** C3: the plain members first; the structured one gives what they do not say. */
  #reasoning(delta: Json, out: CompletionDelta[]): void {
    const plain = stringOf(delta["reasoning_content"]) || stringOf(delta["reasoning"]);
    this.#answer.reasoning(plain, false, out);
    const details = delta["reasoning_details"];
    if (!Array.isArray(details)) return;
    for (const item of details as unknown[]) {
      const detail = objectOf(item);
      this.#keepState(detail);
      if (plain !== "") continue;
      const text = stringOf(detail["text"]);
      this.#answer.reasoning(text || stringOf(detail["summary"]), text === "", out);
    }
  }

  #content(content: unknown, out: CompletionDelta[]): void {
    if (typeof content === "string") this.#answer.text(content, out);
    else if (Array.isArray(content))
      for (const part of content as unknown[]) this.#contentPart(objectOf(part), out);
  }

  #contentPart(part: Json, out: CompletionDelta[]): void {
    switch (part["type"]) {
      case "thinking":
      case "reasoning": {
        const inner = part["thinking"] ?? part["text"];
        const pieces = Array.isArray(inner)
          ? (inner as unknown[]).map((piece) => objectOf(piece)["text"])
          : [inner];
        for (const piece of pieces) this.#answer.reasoning(stringOf(piece), false, out);
        return;
      }
      case "refusal":
        this.#answer.refusal(stringOf(part["refusal"]), out);
        return;
      default:
        this.#answer.text(stringOf(part["text"]), out);
    }
  }

  #toolCall(call: Json, out: CompletionDelta[]): void {
    this.#sawCallList = true;
    const fn = objectOf(call["function"]);
    const name = stringOf(fn["name"]) || stringOf(call["name"]);
    const args = fn["arguments"] ?? call["arguments"];
    this.#callFragment(stringOf(call["id"]), uint32Of(call["index"]), name, args, out);
  }

  #callFragment(
    id: string,
    index: number | undefined,
    name: string,
    args: unknown,
    out: CompletionDelta[],
  ): void {
    const text = typeof args === "object" && args !== null ? JSON.stringify(args) : stringOf(args);
    this.#answer.callFragment({ id: id || undefined, index, name: name || undefined, args: text }, out);
  }

  /** Signed and encrypted reasoning goes back to the provider with the next call; plain text does not need to. */
  #keepState(detail: Json): void {
    if (!detail["signature"] && !detail["data"]) return;
    const size = JSON.stringify(detail).length;
    if (this.#stateChars + size > MAX_STATE_CHARS) return;
    this.#stateChars += size;
    this.#state.push(detail);
  }

  #warn(message: string, out: CompletionDelta[]): void {
    if (this.#warnings++ < MAX_WARNINGS) out.push(warningDelta(ErrorCode.UPSTREAM_MALFORMED, message));
  }

  #end(finish: FinishReason, out: CompletionDelta[]): void {
    if (finish === FinishReason.ERROR) {
      const message = `the model provider reported that the answer failed (${this.#rawFinish})`;
      this.#fail(new TurnError(ErrorCode.UPSTREAM_UNAVAILABLE, { message }), out);
      return;
    }
    const calls = this.#answer.end(callsEnd(finish), out);
    if (calls.invalid > 0) this.#warn("the arguments of a tool call are not valid JSON", out);
    if (this.#state.length > 0) out.push(this.#providerState());
    this.#pushUsage(out);
    out.push(
      finishDelta({
        reason: this.#finalReason(finish, calls.complete + calls.invalid > 0),
        rawReason: this.#rawFinish,
        providerResponseId: this.#responseId,
        reasoningOpen: this.#answer.reasoningOpen,
      }),
    );
    this.#ended = true;
  }

  #finalReason(finish: FinishReason, called: boolean): FinishReason {
    if (finish !== FinishReason.STOP) return finish;
    if (called) return FinishReason.TOOL_CALLS;
    return this.#answer.onlyRefused ? FinishReason.REFUSAL : FinishReason.STOP;
  }

  #reported(error: unknown, out: CompletionDelta[]): void {
    this.#fail(upstreamError(readErrorFacts(error), { secrets: this.#options.secrets }), out);
  }

  #fail(error: TurnError, out: CompletionDelta[]): void {
    if (this.#ended) return;
    this.#answer.end("broken", out);
    this.#pushUsage(out);
    out.push(errorDelta(error));
    this.#ended = true;
  }

  #providerState(): CompletionDelta {
    const data = Buffer.from(JSON.stringify(this.#state));
    return providerStateDelta(create(ProviderStateSchema, { provider: PROVIDER_STATE, data, blockIndex: 0 }));
  }

  #pushUsage(out: CompletionDelta[]): void {
    const usage = this.#usage.result();
    if (usage) out.push(usageDelta(usage, this.#options.attempt));
  }
}

/** Tools that the provider ran itself. */
function serverTools(tools: readonly unknown[], out: CompletionDelta[]): void {
  for (const item of tools) {
    const tool = objectOf(item);
    const output = tool["output"];
    const result = output === undefined || output === null ? "" : JSON.stringify(output);
    const isShort = result.length <= MAX_SERVER_RESULT_CHARS;
    const call = create(ServerToolCallSchema, {
      callId: `server_${uint32Of(tool["index"]) ?? 0}`,
      name: stringOf(tool["type"]) || stringOf(tool["name"]),
      argumentsJson: stringOf(tool["arguments"]),
      resultJson: isShort ? result : JSON.stringify(result.slice(0, MAX_SERVER_RESULT_CHARS)),
      done: result !== "",
    });
    out.push(serverToolCallDelta(call));
  }
}

/** Only an answer that ended of itself has calls that may run; a filter's word is not the model's. */
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

/** C1: the choice that says it is number 0, or the first one if they say nothing. */
function choiceZero(choices: readonly unknown[]): Json | undefined {
  for (let at = 0; at < choices.length; at++) {
    const choice = objectOf(choices[at]);
    if ((uint32Of(choice["index"]) ?? at) === 0) return choice;
  }
  return undefined;
}

/** The error a chunk carries, in any of the places where servers put one. */
function errorOf(chunk: Json, choice: Json | undefined): unknown {
  const error = chunk["error"] ?? choice?.["error"];
  if (typeof error === "string" ? error !== "" : Object.keys(objectOf(error)).length > 0) return error;
  const flat =
    chunk["object"] === "error" || chunk["type"] === "error" || typeof chunk["error_code"] === "number";
  return flat && !chunk["choices"] ? { ...chunk, message: chunk["message"] ?? chunk["text"] } : undefined;
}
