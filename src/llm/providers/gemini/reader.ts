/**
 * What the chunks of one Gemini answer mean, streamed or not: JSON in, deltas out.
 * Owns the open call and the metadata of one answer. G1 only candidate 0 counts. G2 a call comes whole, or value by value
 * (Vertex AI); one that the next part, or the end, finds open is over. G3 signatures and the parts of server-run tools come
 * out as provider state, right after the part they belong to.
 */
import { create } from "@bufbuild/protobuf";
import {
  MediaPartSchema,
  type CompletionDelta,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, FinishReason } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError, type KnownErrorCode } from "../../../lib/errors.js";
import { finishReasonOf } from "../../finish-reasons.js";
import { mediaDelta } from "../../deltas.js";
import { objectOf, objectsOf, stringOf, uint32Of, type Json } from "../../json.js";
import type { DecoderOptions, EventReader } from "../dialect.js";
import { AnswerEnd } from "../shared/answer-end.js";
import { AnswerWriter } from "../shared/answer-writer.js";
import { serverToolDelta } from "../shared/server-tools.js";
import type { CallsEnd } from "../shared/tool-call-assembler.js";
import { addCitations, addGrounding, type TextBlock } from "./grounding.js";
import { PartialArguments } from "./partial-args.js";
import { isServerPart, readServerPart } from "./server-parts.js";
import { GEMINI_STATE, type GeminiState } from "./state.js";

/** Base64 of one file: a message of the stream holds it whole. */
const MAX_MEDIA_CHARS = 4 * 1024 * 1024 - 64 * 1024;

interface OpenCall {
  readonly callId: string;
  readonly wireId: boolean;
  readonly args: PartialArguments;
  signature: string;
}

export class GeminiReader implements EventReader {
  readonly #options: DecoderOptions;
  readonly #answer: AnswerWriter;
  readonly #end: AnswerEnd;
  readonly #callIds = new Set<string>();
  readonly #blocks: TextBlock[] = [];
  #call: OpenCall | undefined;
  #serverCallId = "";
  #grounding: Json = {};

  constructor(options: DecoderOptions) {
    this.#options = options;
    this.#answer = new AnswerWriter(options);
    this.#end = new AnswerEnd(this.#answer, {
      ...options,
      beforeEnd: (out, calls) => this.#beforeEnd(out, calls),
    });
  }

  get ended(): boolean {
    return this.#end.ended;
  }

  get finishSeen(): boolean {
    return this.#end.finishSeen;
  }

  event(_name: string, chunk: Json, out: CompletionDelta[]): void {
    if (this.ended) return;
    // Vertex AI's client libraries wrap some answers; a relay may pass them on.
    const body = chunk["response"] === undefined ? chunk : objectOf(chunk["response"]);
    this.#end.setResponseId(stringOf(body["responseId"]));
    if (body["usageMetadata"]) this.#usage(objectOf(body["usageMetadata"]));
    const candidate = candidateZero(body["candidates"]);
    if (candidate) this.#candidate(candidate, out);
    else this.#promptFeedback(objectOf(body["promptFeedback"]));
    if (body["error"]) this.#reported(body["error"], out);
  }

  document(value: Json, out: CompletionDelta[]): void {
    const isAnswer = ["candidates", "promptFeedback", "usageMetadata", "response", "error"].some(
      (name) => name in value,
    );
    if (isAnswer) this.event("", value, out);
    const malformed = isAnswer ? undefined : new TurnError(ErrorCode.UPSTREAM_MALFORMED);
    this.#end.eof(out, malformed);
  }

  done(out: CompletionDelta[]): void {
    this.#end.done(out);
  }

  error(value: unknown, out: CompletionDelta[]): void {
    this.#reported(objectOf(value)["error"] ?? value, out);
  }

  malformed(out: CompletionDelta[]): void {
    this.#end.malformed(out);
  }

  eof(out: CompletionDelta[], failure?: TurnError): void {
    this.#end.eof(out, failure);
  }

  #candidate(candidate: Json, out: CompletionDelta[]): void {
    for (const part of objectsOf(objectOf(candidate["content"])["parts"])) this.#part(part, out);
    if (candidate["groundingMetadata"]) this.#grounding = objectOf(candidate["groundingMetadata"]);
    if (candidate["citationMetadata"])
      addCitations(objectOf(candidate["citationMetadata"]), this.#answer.sources);
    const raw = stringOf(candidate["finishReason"]);
    if (raw !== "" && raw !== "FINISH_REASON_UNSPECIFIED") {
      const [reason, failure] = FINISH_REASONS.get(raw) ?? [finishReasonOf(raw) ?? FinishReason.OTHER];
      this.#end.setFinish(reason, raw, failure);
    }
  }

  #part(part: Json, out: CompletionDelta[]): void {
    const signature = stringOf(part["thoughtSignature"]);
    if (part["functionCall"]) {
      this.#functionCall(objectOf(part["functionCall"]), signature, out);
      return;
    }
    const text = stringOf(part["text"]);
    const isServers = isServerPart(part);
    const isMedia = !isServers && Boolean(part["inlineData"] ?? part["fileData"]);
    if (text !== "" || isServers || isMedia) this.#closeCall(out);
    if (text !== "") this.#text(text, part["thought"] === true, out);
    if (isServers) this.#serverPart(part, out);
    else if (isMedia) this.#media(part, out);
    else if (signature !== "") this.#keep({ kind: "text", signature }, out);
  }

  #text(text: string, thought: boolean, out: CompletionDelta[]): void {
    if (thought) {
      this.#answer.reasoning(text, true, out);
      return;
    }
    this.#answer.text(text, out);
    const last = this.#blocks.at(-1);
    if (last?.index === this.#answer.blockIndex) last.text += text;
    else this.#blocks.push({ index: this.#answer.blockIndex, text });
  }

  /** G2: a name opens a call, pieces of arguments belong to the open one, anything without `willContinue` closes it. */
  #functionCall(call: Json, signature: string, out: CompletionDelta[]): void {
    const name = stringOf(call["name"]);
    if (name !== "") this.#openCall(name, stringOf(call["id"]), out);
    const open = this.#call;
    if (!open) return;
    if (signature !== "") open.signature = signature;
    if (call["args"]) open.args.assign(call["args"]);
    for (const piece of objectsOf(call["partialArgs"])) open.args.push(piece);
    if (call["willContinue"] !== true) this.#closeCall(out);
  }

  #openCall(name: string, id: string, out: CompletionDelta[]): void {
    this.#closeCall(out);
    const wireId = id !== "" && !this.#callIds.has(id);
    const callId = wireId ? id : this.#options.newCallId();
    this.#callIds.add(callId);
    this.#call = { callId, wireId, args: new PartialArguments(), signature: "" };
    this.#answer.callFragment({ id: callId, index: undefined, name, args: "" }, out);
  }

  #closeCall(out: CompletionDelta[]): void {
    const call = this.#call;
    if (!call) return;
    this.#call = undefined;
    this.#answer.callFragment(
      { id: call.callId, index: undefined, name: undefined, args: call.args.text() },
      out,
    );
    const { callId, wireId, signature } = call;
    if (signature !== "" || wireId) this.#keep({ kind: "call", callId, signature, wireId }, out);
  }

  /** A result without an id belongs to the call before it. */
  #serverPart(part: Json, out: CompletionDelta[]): void {
    const { id, name, args, result } = readServerPart(part);
    if (args !== undefined || this.#serverCallId === "") this.#serverCallId = id || this.#options.newCallId();
    const argumentsJson = args === undefined ? "" : JSON.stringify(args);
    const callId = id || this.#serverCallId;
    const step = serverToolDelta({ callId, name, argumentsJson, result, done: result !== undefined });
    this.#answer.beside(step, out);
    this.#keep({ kind: "part", part }, out);
  }

  #media(part: Json, out: CompletionDelta[]): void {
    if (part["thought"] === true) return; // a sketch of the reasoning
    const inline = objectOf(part["inlineData"]);
    const file = objectOf(part["fileData"]);
    const base64 = stringOf(inline["data"]);
    if (base64.length > MAX_MEDIA_CHARS) {
      this.#end.warn("the model made a file that is too large, it was left out", out);
      return;
    }
    const value = create(MediaPartSchema, {
      mediaType: (stringOf(inline["mimeType"]) || stringOf(file["mimeType"])).slice(0, 255),
      source: part["inlineData"]
        ? { case: "data", value: Buffer.from(base64, "base64") }
        : { case: "url", value: stringOf(file["fileUri"]).slice(0, 8_192) },
    });
    this.#answer.beside(mediaDelta(value), out);
  }

  #keep(state: GeminiState, out: CompletionDelta[]): void {
    this.#answer.providerState(GEMINI_STATE, state, out);
  }

  /** Each chunk repeats the totals, but some of Vertex AI's hold none. Thoughts are not among the candidates' tokens. */
  #usage(usage: Json): void {
    const input = uint32Of(usage["promptTokenCount"]);
    const output = uint32Of(usage["candidatesTokenCount"]);
    if (input === undefined && output === undefined) return;
    const reasoning = uint32Of(usage["thoughtsTokenCount"]) ?? 0;
    this.#end.setUsage({
      inputTokens: input ?? 0,
      outputTokens: (output ?? 0) + reasoning,
      reasoningTokens: reasoning,
      cacheReadTokens: uint32Of(usage["cachedContentTokenCount"]) ?? 0,
    });
  }

  #promptFeedback(feedback: Json): void {
    const raw = stringOf(feedback["blockReason"]);
    if (raw !== "" && raw !== "BLOCK_REASON_UNSPECIFIED")
      this.#end.setFinish(FinishReason.CONTENT_FILTER, raw);
  }

  #reported(error: unknown, out: CompletionDelta[]): void {
    const facts = objectOf(error);
    const code = uint32Of(facts["code"]) ?? 0;
    const type = stringOf(facts["status"]);
    const message = typeof error === "string" ? error : stringOf(facts["message"]);
    this.#end.reported(
      { message, code: code === 0 ? "" : String(code), type, status: code },
      out,
      retryDelayMs(facts),
    );
  }

  #beforeEnd(out: CompletionDelta[], calls: CallsEnd): void {
    if (calls === "proper") this.#closeCall(out);
    addGrounding(this.#grounding, this.#blocks, this.#answer.sources);
  }
}

/** Our word for theirs; a failure has its error code. */
const FINISH_REASONS: ReadonlyMap<string, Meaning> = new Map([
  ...named([FinishReason.STOP], "STOP"),
  ...named([FinishReason.LENGTH], "MAX_TOKENS"),
  ...named(
    [FinishReason.CONTENT_FILTER],
    ...["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"],
    ...["IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"],
  ),
  ...named(
    [FinishReason.ERROR, ErrorCode.UPSTREAM_MALFORMED],
    ...["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"],
  ),
  ...named([FinishReason.ERROR, ErrorCode.UPSTREAM_REJECTED], "MISSING_THOUGHT_SIGNATURE"),
]);

type Meaning = readonly [FinishReason, KnownErrorCode?];

function named(meaning: Meaning, ...raw: string[]): [string, Meaning][] {
  return raw.map((name) => [name, meaning]);
}

/** G1. */
function candidateZero(candidates: unknown): Json | undefined {
  return objectsOf(candidates).find((item) => (uint32Of(item["index"]) ?? 0) === 0);
}

/** What a RetryInfo among the details asks for: "34.4s". */
function retryDelayMs(error: Json): number {
  const delay =
    objectsOf(error["details"])
      .map((detail) => stringOf(detail["retryDelay"]))
      .find((text) => text !== "") ?? "";
  const seconds = Number.parseFloat(delay);
  return seconds > 0 ? Math.min(Math.round(seconds * 1_000), 86_400_000) : 0;
}
