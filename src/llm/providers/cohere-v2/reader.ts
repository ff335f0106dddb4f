/**
 * What the events of one Cohere v2 answer mean, streamed or not: JSON in, deltas out.
 * H1 `message-end` ends the answer, at once. H2 the plan that precedes calls is neither text nor reasoning of the answer: it goes
 * back to Cohere with the calls. H3 calls are numbered by themselves, not among the content blocks.
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
import type { Source } from "../shared/source-collector.js";

/** The name under which the plan travels in ProviderState. */
export const COHERE_PLAN_STATE = "cohere-v2/tool_plan";

const MAX_PLAN_CHARS = 64 * 1024;

export class CohereReader implements EventReader {
  readonly #answer: AnswerWriter;
  readonly #end: AnswerEnd;
  /** Calls that have arguments, by their number. */
  readonly #argued = new Set<number>();
  #plan = "";

  constructor(options: DecoderOptions) {
    this.#answer = new AnswerWriter(options);
    this.#end = new AnswerEnd(this.#answer, { ...options, beforeEnd: (out) => this.#keepPlan(out) });
  }

  get ended(): boolean {
    return this.#end.ended;
  }

  get finishSeen(): boolean {
    return this.#end.finishSeen;
  }

  event(name: string, value: Json, out: CompletionDelta[]): void {
    if (this.ended) return;
    const delta = objectOf(value["delta"]);
    const message = objectOf(delta["message"]);
    switch (stringOf(value["type"]) || name) {
      case "message-start":
        this.#end.setResponseId(stringOf(value["id"]));
        return;
      case "content-start":
      case "content-delta":
        for (const part of listOf(message["content"])) this.#content(part, out);
        return;
      case "content-end":
        this.#answer.endBlock(out);
        return;
      case "tool-plan-delta":
        this.#addPlan(stringOf(message["tool_plan"]));
        return;
      case "tool-call-start":
      case "tool-call-delta":
        for (const call of listOf(message["tool_calls"])) this.#toolCall(call, uint32Of(value["index"]), out);
        return;
      case "citation-start":
        for (const citation of listOf(message["citations"])) this.#citation(citation);
        this.#answer.flushSources(out);
        return;
      case "message-end":
        this.#messageEnd(delta, out);
        return;
      default:
        if (value["error"] ?? value["message"])
          this.#end.reported(readErrorFacts(value["error"] ?? value), out);
    }
  }

  document(value: Json, out: CompletionDelta[]): void {
    const message = objectOf(value["message"]);
    if (typeof value["message"] === "object") {
      this.#end.setResponseId(stringOf(value["id"]));
      this.#addPlan(stringOf(message["tool_plan"]));
      for (const part of objectsOf(message["content"])) this.#content(part, out);
      for (const citation of objectsOf(message["citations"])) this.#citation(citation);
      for (const [at, call] of objectsOf(message["tool_calls"]).entries()) this.#toolCall(call, at, out);
      if (value["finish_reason"]) this.#messageEnd(value, out);
    } else if (value["message"]) {
      this.#end.reported(readErrorFacts(value), out);
    } else {
      this.#end.eof(out, new TurnError(ErrorCode.UPSTREAM_MALFORMED));
    }
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

  #content(content: Json, out: CompletionDelta[]): void {
    this.#answer.reasoning(stringOf(content["thinking"]), false, out);
    this.#answer.text(stringOf(content["text"]), out);
  }

  #addPlan(text: string): void {
    if (this.#plan.length + text.length <= MAX_PLAN_CHARS) this.#plan += text;
  }

  /** A call without arguments may have the word "null" in their place. */
  #toolCall(call: Json, index: number | undefined, out: CompletionDelta[]): void {
    const fn = objectOf(call["function"]);
    const number = index ?? 0;
    const text = jsonTextOf(fn["arguments"]);
    const args = text === "null" && !this.#argued.has(number) ? "" : text;
    if (args !== "") this.#argued.add(number);
    const id = stringOf(call["id"]) || undefined;
    this.#answer.callFragment({ id, index, name: stringOf(fn["name"]) || undefined, args }, out);
  }

  #citation(citation: Json): void {
    if (citation["type"] === "PLAN" || citation["type"] === "THINKING_CONTENT") return;
    for (const source of objectsOf(citation["sources"]))
      this.#answer.sources.push(sourceOf(source, citation));
  }

  #messageEnd(end: Json, out: CompletionDelta[]): void {
    const usage = objectOf(end["usage"]);
    const counted = objectOf(usage["tokens"] ?? usage["billed_units"]);
    if (usage["tokens"] ?? usage["billed_units"]) {
      this.#end.setUsage({
        inputTokens: uint32Of(counted["input_tokens"]) ?? 0,
        outputTokens: uint32Of(counted["output_tokens"]) ?? 0,
        cacheReadTokens: uint32Of(usage["cached_tokens"]) ?? 0,
      });
    }
    const raw = stringOf(end["finish_reason"]);
    const said = stringOf(end["error"]);
    if (said !== "") {
      this.#end.reported({ ...readErrorFacts(said), type: raw }, out);
      return;
    }
    this.#end.setFinish(FINISH_REASONS.get(raw) ?? finishReasonOf(raw) ?? FinishReason.OTHER, raw);
    this.#end.done(out);
  }

  /** H2. */
  #keepPlan(out: CompletionDelta[]): void {
    if (this.#plan !== "") this.#answer.providerState(COHERE_PLAN_STATE, this.#plan, out);
  }
}

const FINISH_REASONS: ReadonlyMap<string, FinishReason> = new Map([
  ["COMPLETE", FinishReason.STOP],
  ["STOP_SEQUENCE", FinishReason.STOP],
  ["MAX_TOKENS", FinishReason.LENGTH],
  ["TOOL_CALL", FinishReason.TOOL_CALLS],
  ["ERROR_TOXIC", FinishReason.CONTENT_FILTER],
  ["ERROR", FinishReason.ERROR],
  ["ERROR_LIMIT", FinishReason.ERROR],
  ["TIMEOUT", FinishReason.ERROR],
]);

/** One object, or a list of them. */
function listOf(value: unknown): Json[] {
  return Array.isArray(value) ? objectsOf(value) : [objectOf(value)];
}

/** A document of the request, or what a tool said. */
function sourceOf(source: Json, citation: Json): Source {
  const document = objectOf(source["document"] ?? source["tool_output"]);
  const address = stringOf(document["url"]);
  const url = /^https?:/i.test(address) ? address : "";
  const text = ["snippet", "text", "data", "content"].map((name) => stringOf(document[name])).find(Boolean);
  const documentId = stringOf(source["id"]) || stringOf(document["id"]) || url;
  return {
    url,
    title: stringOf(document["title"]),
    snippet: text ?? "",
    number: 0,
    startChar: uint32Of(citation["start"]) ?? 0,
    endChar: uint32Of(citation["end"]) ?? 0,
    documentId,
    origin: source["type"] === "tool" ? "tool" : "document",
  };
}
