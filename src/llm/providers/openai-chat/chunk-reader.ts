/**
 * What the chunks of one OpenAI chat answer mean: JSON in, deltas out. Does not know how chunks were framed.
 * C1 only choice 0 counts. C2 a member of a wrong type is no member; unknown members are ignored. C3 reasoning that a server
 * mirrors in several members is taken once. C4 nothing is handed out after the end. C5 the last word about the end counts, but
 * one that nobody knows only where nothing follows it.
 */
import { create } from "@bufbuild/protobuf";
import {
  MediaPartSchema,
  type CompletionDelta,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, FinishReason } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../../lib/errors.js";
import { mediaDelta } from "../../deltas.js";
import { finishReasonOf } from "../../finish-reasons.js";
import { readErrorFacts } from "../../http/upstream-error.js";
import { jsonTextOf, objectOf, stringOf, uint32Of, type Json } from "../../json.js";
import type { EventReader } from "../dialect.js";
import { AnswerEnd } from "../shared/answer-end.js";
import { AnswerWriter, type AnswerWriterOptions } from "../shared/answer-writer.js";
import { serverToolDelta } from "../shared/server-tools.js";
import type { CallsEnd } from "../shared/tool-call-assembler.js";
import { ReasoningDetails } from "./reasoning-details.js";
import { UsageFold } from "./usage-fold.js";

/** The name under which signed reasoning travels in ProviderState, and is recognised when it comes back. */
export const PROVIDER_STATE = "openai-chat/reasoning_details";
/** The same for what a server hangs on a call, by the call's id (Gemini signs its thoughts so). */
export const CALL_STATE = "openai-chat/extra_content";

export interface ChunkReaderOptions extends AnswerWriterOptions {
  /** Number of the attempt in usage. */
  readonly attempt: number;
  /** Exact values that must never show in an error. */
  readonly secrets: readonly string[];
}

/** Of an image in base64. */
const MAX_IMAGE_CHARS = 28 * 1024 * 1024;

export class ChatChunkReader implements EventReader {
  readonly #answer: AnswerWriter;
  readonly #end: AnswerEnd;
  readonly #usage = new UsageFold();
  readonly #details = new ReasoningDetails();
  #hasId = false;
  #sawCallList = false;
  #finish: FinishReason | undefined;
  #rawFinish = "";

  constructor(options: ChunkReaderOptions) {
    this.#answer = new AnswerWriter(options);
    const { attempt, secrets } = options;
    this.#end = new AnswerEnd(this.#answer, {
      attempt,
      secrets,
      beforeEnd: (...end) => this.#beforeEnd(...end),
    });
  }

  get ended(): boolean {
    return this.#end.ended;
  }

  get finishSeen(): boolean {
    return this.#finish !== undefined && this.#finish !== FinishReason.OTHER;
  }

  event(_name: string, value: Json, out: CompletionDelta[]): void {
    this.#chunk(value, out);
  }

  /** Its end is its end mark. */
  document(value: Json, out: CompletionDelta[]): void {
    if (Array.isArray(value["choices"]) || value["error"]) {
      this.#chunk(value, out);
      this.done(out);
    } else {
      const error = errorOf(value, undefined) ?? value;
      if (readErrorFacts(error).message !== "") this.#end.reported(readErrorFacts(error), out);
      this.eof(out, new TurnError(ErrorCode.UPSTREAM_MALFORMED));
    }
  }

  error(value: unknown, out: CompletionDelta[]): void {
    this.#end.errorEvent(value, out);
  }

  malformed(out: CompletionDelta[]): void {
    this.#end.malformed(out);
  }

  done(out: CompletionDelta[]): void {
    this.#tellFinish();
    this.#end.done(out);
  }

  eof(out: CompletionDelta[], failure?: TurnError): void {
    this.#tellFinish();
    this.#end.eof(out, failure);
  }

  #chunk(chunk: Json, out: CompletionDelta[]): void {
    if (this.ended) return;
    if (!this.#hasId && chunk["id"]) {
      this.#end.setResponseId(stringOf(chunk["id"]));
      this.#hasId = true;
    }
    if (chunk["usage"]) this.#usage.push(chunk["usage"]);
    if (chunk["x_groq"]) this.#usage.push(objectOf(chunk["x_groq"])["usage"]);
    const found = chunk["citations"] ?? chunk["search_results"] ?? chunk["web_search"];
    if (found) this.#answer.sources.pushList(found, chunk["search_results"]);
    const choices = chunk["choices"];
    const choice = Array.isArray(choices) ? choiceZero(choices as unknown[]) : undefined;
    if (choice) this.#choice(choice, out);
    const error = errorOf(chunk, choice);
    if (error !== undefined) this.#end.reported(readErrorFacts(error), out);
  }

  #choice(choice: Json, out: CompletionDelta[]): void {
    if (choice["usage"]) this.#usage.push(choice["usage"]);
    // Servers that send both repeat the message in full beside its delta.
    const delta = choice["delta"] ?? (this.#answer.hasOutput ? undefined : choice["message"]);
    if (delta) this.#delta(objectOf(delta), out);
    this.#takeFinish(choice["finish_reason"]);
  }

  /** C5. */
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
    } else if (calls) {
      this.#toolCall(objectOf(calls), out);
    } else if (delta["function_call"] && !this.#sawCallList) {
      const call = objectOf(delta["function_call"]);
      this.#callFragment("", 0, stringOf(call["name"]), call["arguments"], out);
    }
    if (Array.isArray(delta["executed_tools"])) serverTools(delta["executed_tools"] as unknown[], out);
    if (Array.isArray(delta["images"])) this.#images(delta["images"] as unknown[], out);
  }

  /** C3: the plain members first; the structured one gives what they do not say. */
  #reasoning(delta: Json, out: CompletionDelta[]): void {
    const usual = stringOf(delta["reasoning_content"]) || stringOf(delta["reasoning"]);
    const plain = usual !== "" || delta["content"] ? usual : rareReasoning(delta);
    this.#answer.reasoning(plain, false, out);
    const details = delta["reasoning_details"];
    if (!Array.isArray(details)) return;
    for (const item of details as unknown[]) {
      const detail = objectOf(item);
      this.#details.push(detail);
      if (plain !== "") continue;
      const text = stringOf(detail["text"]);
      this.#answer.reasoning(text || stringOf(detail["summary"]), text === "", out);
    }
  }

  #content(content: unknown, out: CompletionDelta[]): void {
    if (typeof content === "string") this.#answer.text(content, out);
    else if (content) for (const part of partsOf(content)) this.#contentPart(part, out);
  }

  #contentPart(part: Json, out: CompletionDelta[]): void {
    switch (part["type"]) {
      case "thinking":
      case "reasoning":
        for (const piece of partsOf(part["thinking"] ?? part["summary"] ?? part["text"]))
          this.#answer.reasoning(stringOf(piece["text"]), false, out);
        return;
      case "image_url":
        this.#images([part], out);
        return;
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
    const id = stringOf(call["id"]);
    const extra = call["extra_content"];
    if (extra && id !== "") this.#answer.providerState(CALL_STATE, { id, extra_content: extra }, out);
    this.#callFragment(id, uint32Of(call["index"]), name, args, out);
  }

  #callFragment(
    id: string,
    index: number | undefined,
    name: string,
    args: unknown,
    out: CompletionDelta[],
  ): void {
    const text = jsonTextOf(args);
    this.#answer.callFragment({ id: id || undefined, index, name: name || undefined, args: text }, out);
  }

  #images(images: readonly unknown[], out: CompletionDelta[]): void {
    for (const item of images) {
      const url = stringOf(objectOf(objectOf(item)["image_url"])["url"]);
      const [, mediaType = "", base64 = ""] = /^data:([^;,]{1,255});base64,(.+)$/s.exec(url) ?? [];
      if (mediaType === "" || base64.length > MAX_IMAGE_CHARS) continue;
      const value = Buffer.from(base64, "base64");
      const media = create(MediaPartSchema, { mediaType, source: { case: "data", value } });
      this.#answer.beside(mediaDelta(media), out);
    }
  }

  #tellFinish(): void {
    if (this.#finish !== undefined) this.#end.setFinish(this.#finish, this.#rawFinish);
  }

  #beforeEnd(out: CompletionDelta[], calls: CallsEnd): void {
    const usage = this.#usage.result();
    if (usage) this.#end.setUsage(usage);
    const details = this.#details.result;
    if (details && calls !== "broken") this.#answer.providerState(PROVIDER_STATE, details, out);
  }
}

/** Tools that the provider ran itself; the block in which they are told goes on. */
function serverTools(tools: readonly unknown[], out: CompletionDelta[]): void {
  for (const item of tools) {
    const tool = objectOf(item);
    const result = tool["output"] ?? undefined;
    const step = {
      callId: `server_${uint32Of(tool["index"]) ?? 0}`,
      name: stringOf(tool["type"]) || stringOf(tool["name"]),
      argumentsJson: jsonTextOf(tool["arguments"]),
      done: result !== undefined,
    };
    out.push(serverToolDelta(result === undefined ? step : { ...step, result }));
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

/** What few servers call it. */
function rareReasoning(delta: Json): string {
  return (
    stringOf(delta["reasoning_text"]) || stringOf(delta["thinking"]) || stringOf(delta["thinking_content"])
  );
}

/** Content in parts: a list, or one alone; a bare text is a part of text. */
function partsOf(content: unknown): Json[] {
  const parts = Array.isArray(content) ? (content as unknown[]) : [content];
  return parts.map((part) => (typeof part === "string" ? { text: part } : objectOf(part)));
}

/** The error a chunk carries, in any of the places where servers put one. */
function errorOf(chunk: Json, choice: Json | undefined): unknown {
  const error = chunk["error"] ?? choice?.["error"];
  if (isSaid(error)) return error === true ? { ...chunk, error: undefined } : error;
  const result = objectOf(chunk["base_resp"]);
  if ((uint32Of(result["status_code"]) ?? 0) > 0)
    return { message: result["status_msg"], code: result["status_code"] };
  return chunk["choices"] ? undefined : flatError(chunk);
}

function isSaid(error: unknown): boolean {
  return typeof error === "object" ? Object.keys(objectOf(error)).length > 0 : Boolean(error);
}

/** A chunk without choices that says what went wrong, and by some other member that something did. */
function flatError(chunk: Json): unknown {
  if (isSaid(chunk["errors"])) return chunk["errors"];
  const isNamed = chunk["object"] === "error" || chunk["type"] === "error";
  const isOther = chunk["object"] !== undefined || chunk["usage"] !== undefined;
  const hasCode = ["code", "status", "status_code", "statusCode", "error_code", "error_type"].some(
    (name) => chunk[name],
  );
  const says = hasCode ? readErrorFacts(chunk).message !== "" : typeof chunk["detail"] === "string";
  return isNamed || (!isOther && says) ? chunk : undefined;
}
