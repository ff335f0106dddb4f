/**
 * What the events of one Bedrock Converse answer mean, streamed or not: JSON in, deltas out.
 * B1 `messageStop` says how the answer ended, `metadata` with the usage ends it. B2 reasoning that is signed or withheld goes
 * back as it came, so its blocks are kept whole. B3 what a tool of the server returned is for the model alone.
 */
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, FinishReason } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError, type KnownErrorCode } from "../../../lib/errors.js";
import { finishReasonOf } from "../../finish-reasons.js";
import type { UpstreamErrorFacts } from "../../http/upstream-error.js";
import { jsonTextOf, objectOf, objectsOf, stringOf, uint32Of, type Json } from "../../json.js";
import type { DecoderOptions, EventReader } from "../dialect.js";
import { AnswerEnd } from "../shared/answer-end.js";
import { AnswerWriter } from "../shared/answer-writer.js";
import { EXCEPTION_PREFIX } from "../shared/event-stream.js";

/** The name under which blocks of reasoning travel in ProviderState. */
export const BEDROCK_REASONING_STATE = "bedrock-converse/reasoning";

export class ConverseReader implements EventReader {
  readonly #answer: AnswerWriter;
  readonly #end: AnswerEnd;
  /** Number of the open content block. */
  #block = 0;
  /** The reasoning of the open block, as it goes back. */
  #reasoning = { text: "", signature: "", redacted: "" };

  constructor(options: DecoderOptions) {
    this.#answer = new AnswerWriter(options);
    this.#end = new AnswerEnd(this.#answer, { ...options, beforeEnd: (out) => this.#endBlock(out) });
  }

  get ended(): boolean {
    return this.#end.ended;
  }

  get finishSeen(): boolean {
    return this.#end.finishSeen;
  }

  event(name: string, value: Json, out: CompletionDelta[]): void {
    if (this.ended) return;
    const index = uint32Of(value["contentBlockIndex"]) ?? 0;
    switch (name) {
      case "contentBlockStart":
        this.#openBlock(index, out);
        this.#start(objectOf(value["start"]), index, out);
        return;
      case "contentBlockDelta":
        this.#openBlock(index, out);
        this.#delta(objectOf(value["delta"]), index, out);
        return;
      case "contentBlockStop":
        this.#endBlock(out);
        return;
      case "messageStop":
        this.#stop(value["stopReason"]);
        return;
      case "metadata":
        this.#usage(objectOf(value["usage"]));
        if (this.finishSeen) this.#end.done(out);
        return;
      default:
        if (name.startsWith(EXCEPTION_PREFIX))
          this.#end.reported(exceptionFacts(name.slice(EXCEPTION_PREFIX.length), value), out);
    }
  }

  document(value: Json, out: CompletionDelta[]): void {
    const message = objectOf(objectOf(value["output"])["message"]);
    if (!Array.isArray(message["content"])) {
      const said = stringOf(value["message"]) || stringOf(value["Message"]);
      if (said !== "") this.#end.reported(exceptionFacts(stringOf(value["__type"]), value), out);
      else this.#end.eof(out, new TurnError(ErrorCode.UPSTREAM_MALFORMED));
      return;
    }
    for (const [at, block] of objectsOf(message["content"]).entries()) {
      this.#openBlock(at, out);
      this.#wholeBlock(block, at, out);
      this.#endBlock(out);
    }
    this.#usage(objectOf(value["usage"]));
    this.#stop(value["stopReason"]);
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

  #start(start: Json, index: number, out: CompletionDelta[]): void {
    if (!start["toolUse"]) return; // B3: a toolResult
    const tool = objectOf(start["toolUse"]);
    const id = stringOf(tool["toolUseId"]) || undefined;
    this.#answer.callFragment({ id, index, name: stringOf(tool["name"]) || undefined, args: "" }, out);
  }

  #delta(delta: Json, index: number, out: CompletionDelta[]): void {
    this.#answer.text(stringOf(delta["text"]), out);
    if (delta["toolUse"]) {
      const args = jsonTextOf(objectOf(delta["toolUse"])["input"]);
      this.#answer.callFragment({ id: undefined, index, name: undefined, args }, out);
    }
    if (delta["reasoningContent"]) this.#reason(objectOf(delta["reasoningContent"]), out);
    if (delta["citation"]) this.#citation(objectOf(delta["citation"]), out);
  }

  #wholeBlock(block: Json, index: number, out: CompletionDelta[]): void {
    this.#answer.text(stringOf(block["text"]), out);
    if (block["toolUse"]) {
      this.#start(block, index, out);
      const args = jsonTextOf(objectOf(block["toolUse"])["input"]);
      this.#answer.callFragment({ id: undefined, index, name: undefined, args }, out);
    }
    const reasoning = objectOf(block["reasoningContent"]);
    this.#reason({ ...reasoning, ...objectOf(reasoning["reasoningText"]) }, out);
    const cited = objectOf(block["citationsContent"]);
    for (const part of objectsOf(cited["content"])) this.#answer.text(stringOf(part["text"]), out);
    for (const citation of objectsOf(cited["citations"])) this.#citation(citation, out);
  }

  #reason(reasoning: Json, out: CompletionDelta[]): void {
    const text = stringOf(reasoning["text"]);
    this.#reasoning.text += text;
    this.#reasoning.signature += stringOf(reasoning["signature"]);
    this.#reasoning.redacted += stringOf(reasoning["redactedContent"]);
    this.#answer.reasoning(text, false, out);
  }

  #citation(citation: Json, out: CompletionDelta[]): void {
    const location = objectOf(citation["location"]);
    const url = stringOf(objectOf(location["web"])["url"]);
    const title = stringOf(citation["title"]);
    const snippet = objectsOf(citation["sourceContent"])
      .map((part) => stringOf(part["text"]))
      .join("");
    const documentId = url || stringOf(citation["source"]) || title;
    const origin = url === "" ? "document" : "web";
    this.#answer.sources.push({
      url,
      title,
      snippet,
      number: 0,
      startChar: 0,
      endChar: 0,
      documentId,
      origin,
    });
    this.#answer.flushSources(out);
  }

  #stop(stopReason: unknown): void {
    const raw = stringOf(stopReason);
    if (raw === "") return;
    const [reason, failure] = STOP_REASONS.get(raw) ?? [finishReasonOf(raw) ?? FinishReason.OTHER];
    this.#end.setFinish(reason, raw, failure);
  }

  /** Tokens from and into the cache are not among the input's. */
  #usage(usage: Json): void {
    const input = uint32Of(usage["inputTokens"]);
    const output = uint32Of(usage["outputTokens"]);
    if (input === undefined && output === undefined) return;
    const cacheRead = uint32Of(usage["cacheReadInputTokens"]) ?? 0;
    const cacheWrite = uint32Of(usage["cacheWriteInputTokens"]) ?? 0;
    this.#end.setUsage({
      inputTokens: (input ?? 0) + cacheRead + cacheWrite,
      outputTokens: output ?? 0,
      cacheReadTokens: cacheRead,
      cacheWriteTokens: cacheWrite,
    });
  }

  #openBlock(index: number, out: CompletionDelta[]): void {
    if (index !== this.#block) this.#endBlock(out);
    this.#block = index;
  }

  #endBlock(out: CompletionDelta[]): void {
    this.#keepReasoning(out);
    this.#answer.endBlock(out);
  }

  /** B2. */
  #keepReasoning(out: CompletionDelta[]): void {
    const { text, signature, redacted } = this.#reasoning;
    if (text === "" && signature === "" && redacted === "") return;
    this.#reasoning = { text: "", signature: "", redacted: "" };
    if (signature === "" && redacted === "") return;
    const block = redacted === "" ? { reasoningText: { text, signature } } : { redactedContent: redacted };
    this.#answer.providerState(BEDROCK_REASONING_STATE, block, out);
  }
}

const STOP_REASONS: ReadonlyMap<string, readonly [FinishReason, KnownErrorCode?]> = new Map<
  string,
  readonly [FinishReason, KnownErrorCode?]
>([
  ["end_turn", [FinishReason.STOP]],
  ["stop_sequence", [FinishReason.STOP]],
  ["tool_use", [FinishReason.TOOL_CALLS]],
  ["max_tokens", [FinishReason.LENGTH]],
  ["model_context_window_exceeded", [FinishReason.LENGTH]],
  ["guardrail_intervened", [FinishReason.CONTENT_FILTER]],
  ["content_filtered", [FinishReason.CONTENT_FILTER]],
  ["refusal", [FinishReason.REFUSAL]],
  ["malformed_model_output", [FinishReason.ERROR, ErrorCode.UPSTREAM_MALFORMED]],
  ["malformed_tool_use", [FinishReason.ERROR, ErrorCode.UPSTREAM_MALFORMED]],
]);

/** HTTP statuses that the same failures have outside a stream. */
const EXCEPTION_STATUS: ReadonlyMap<string, number> = new Map([
  ["throttlingexception", 429],
  ["modelnotreadyexception", 503],
  ["serviceunavailableexception", 503],
  ["internalserverexception", 500],
  ["modelstreamerrorexception", 500],
  ["modelerrorexception", 500],
  ["modeltimeoutexception", 408],
  ["validationexception", 400],
  ["accessdeniedexception", 403],
  ["unrecognizedclientexception", 403],
  ["expiredtokenexception", 403],
  ["resourcenotfoundexception", 404],
]);

function exceptionFacts(name: string, payload: Json): UpstreamErrorFacts {
  const type = name.replace(/^.*#/, "");
  return {
    message: stringOf(payload["message"]) || stringOf(payload["Message"]),
    code: "",
    type,
    status: EXCEPTION_STATUS.get(type.toLowerCase()) ?? 0,
  };
}
