/**
 * What the chunks of one OpenAI chat answer mean: JSON in, deltas out.
 * Owns the answer's blocks, calls, usage and end. Does not know how chunks were framed.
 * C1 only choice 0 counts. C2 a member of a wrong type is no member; unknown members are ignored. C3 block indices are
 * counted by blocks that really opened. C4 reasoning that a server mirrors in several members is taken once. C5 nothing is
 * handed out after the end.
 */
import { create } from "@bufbuild/protobuf";
import {
  ProviderStateSchema,
  ServerToolCallSchema,
  type CompletionDelta,
} from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, FinishReason } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../lib/errors.js";
import {
  contentDelta,
  errorDelta,
  finishDelta,
  providerStateDelta,
  reasoningDelta,
  refusalDelta,
  serverToolCallDelta,
  usageDelta,
  warningDelta,
} from "../deltas.js";
import { finishReasonOf } from "../finish-reasons.js";
import { readErrorFacts, upstreamError } from "../http/upstream-error.js";
import { objectOf, stringOf, uint32Of, type Json } from "../json.js";
import { ThinkTagSplitter } from "../think-tags.js";
import { SurrogateJoiner } from "../well-formed.js";
import { SourceCollector } from "./openai-chat-sources.js";
import { UsageFold } from "./openai-chat-usage.js";
import { ToolCallAssembler, type CallsEnd } from "./tool-call-assembler.js";

/** The name under which signed reasoning travels in ProviderState, and is recognised when it comes back. */
export const PROVIDER_STATE = "openai-chat/reasoning_details";

export interface ChunkReaderOptions {
  /** Number of the attempt in usage. */
  readonly attempt: number;
  /** Makes ids for calls whose server sent none. */
  readonly newCallId: () => string;
  /** Exact values that must never show in an error. */
  readonly secrets: readonly string[];
  /** Take `<think>` tags out of the text. */
  readonly thinkTags: boolean;
  /** The previous answer ended inside such a tag. */
  readonly reasoningOpen: boolean;
}

const MAX_WARNINGS = 8;
const MAX_SERVER_RESULT_CHARS = 60_000;
const MAX_STATE_CHARS = 256 * 1024;

type OpenBlock = "none" | "text" | "reasoning" | "other";

export class ChatChunkReader {
  readonly #options: ChunkReaderOptions;
  readonly #usage = new UsageFold();
  readonly #sources = new SourceCollector();
  readonly #calls: ToolCallAssembler;
  readonly #text = new SurrogateJoiner();
  readonly #reasoning = new SurrogateJoiner();
  readonly #refusal = new SurrogateJoiner();
  #tags: ThinkTagSplitter | undefined;
  readonly #state: Json[] = [];
  #stateChars = 0;
  #nextBlock = 0;
  #open: OpenBlock = "none";
  #openIndex = 0;
  #textIndex = 0;
  #chunks = 0;
  #warnings = 0;
  #malformed = 0;
  #hasText = false;
  #hasRefusal = false;
  #hasOutput = false;
  #sawCallList = false;
  #responseId = "";
  #finish: FinishReason | undefined;
  #rawFinish = "";
  #ended = false;

  constructor(options: ChunkReaderOptions) {
    this.#options = options;
    this.#calls = new ToolCallAssembler(() => this.#openBlock("other"), options.newCallId);
    this.#tags = options.thinkTags ? new ThinkTagSplitter(options.reasoningOpen) : undefined;
  }

  /** The answer is over; nothing more will come out. */
  get ended(): boolean {
    return this.#ended;
  }

  /** The server said how the answer ended; only usage and the end mark may follow. */
  get finishSeen(): boolean {
    return this.#finish !== undefined && this.#finish !== FinishReason.OTHER;
  }

  /** Takes one chunk, or the whole answer of a call that was not streamed. */
  chunk(chunk: Json, out: CompletionDelta[]): void {
    if (this.#ended) return;
    this.#chunks++;
    if (this.#responseId === "") this.#responseId = stringOf(chunk["id"]);
    if (chunk["usage"]) this.#usage.push(chunk["usage"]);
    if (chunk["x_groq"]) this.#usage.push(objectOf(chunk["x_groq"])["usage"]);
    if (chunk["citations"]) this.#sources.pushList(chunk["citations"], chunk["search_results"]);
    const choices = chunk["choices"];
    const choice = Array.isArray(choices) ? choiceZero(choices as unknown[]) : undefined;
    if (choice) this.#choice(choice, out);
    const error = errorOf(chunk, choice);
    if (error !== undefined)
      this.#fail(upstreamError(readErrorFacts(error), { secrets: this.#options.secrets }), out);
  }

  /** An `event: error` whose data is not an object. */
  errorText(text: string, out: CompletionDelta[]): void {
    this.#fail(upstreamError(readErrorFacts(text), { secrets: this.#options.secrets }), out);
  }

  /** An event that does not parse: said, counted, skipped. */
  malformed(out: CompletionDelta[]): void {
    this.#malformed++;
    this.#warn(
      ErrorCode.UPSTREAM_MALFORMED,
      "the model provider sent an unreadable event, it was skipped",
      out,
    );
  }

  /** The end mark (`[DONE]`, or the end of an answer that was not streamed). */
  done(out: CompletionDelta[]): void {
    if (this.#ended) return;
    if (this.#finish === undefined && !this.#hasOutput && this.#calls.count === 0) {
      this.#fail(
        new TurnError(this.#malformed > 0 ? ErrorCode.UPSTREAM_MALFORMED : ErrorCode.EMPTY_RESPONSE),
        out,
      );
      return;
    }
    this.#end(this.#finish ?? FinishReason.STOP, out);
  }

  /** The body ended, or `failure` ended it: clean if the server had said how the answer ended. */
  eof(out: CompletionDelta[], failure?: TurnError): void {
    if (this.#ended) return;
    if (this.#finish !== undefined) {
      this.#end(this.#finish, out);
    } else if (failure) {
      this.#fail(failure, out);
    } else if (this.#chunks === 0 && this.#malformed > 0) {
      this.#fail(new TurnError(ErrorCode.UPSTREAM_MALFORMED), out);
    } else {
      this.#fail(new TurnError(ErrorCode.UPSTREAM_TRUNCATED), out);
    }
  }

  #choice(choice: Json, out: CompletionDelta[]): void {
    if (choice["usage"]) this.#usage.push(choice["usage"]);
    const streamed = choice["delta"];
    // Servers that send both repeat the message in full beside its delta.
    const delta = streamed ?? (this.#hasOutput || this.#calls.count > 0 ? undefined : choice["message"]);
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
    this.#reasoningMembers(delta, out);
    const content = delta["content"];
    if (typeof content === "string") {
      if (content !== "") this.#content(content, out);
    } else if (Array.isArray(content)) {
      for (const part of content as unknown[]) this.#contentPart(objectOf(part), out);
    }
    const refusal = delta["refusal"];
    if (typeof refusal === "string" && refusal !== "") this.#addRefusal(refusal, out);
    if (delta["annotations"]) this.#sources.pushAnnotations(delta["annotations"]);
    if (delta["citations"]) this.#sources.pushList(delta["citations"], undefined);
    if (this.#sources.waiting && this.#open === "text") this.#sources.flush(this.#openIndex, out);
    const calls = delta["tool_calls"];
    if (Array.isArray(calls)) {
      for (const call of calls as unknown[]) this.#toolCall(objectOf(call), out);
    } else if (delta["function_call"] && !this.#sawCallList) {
      this.#legacyCall(objectOf(delta["function_call"]), out);
    }
    if (Array.isArray(delta["executed_tools"])) this.#serverTools(delta["executed_tools"] as unknown[], out);
  }

  /** C4: the plain members first; the structured one gives what they do not say. */
  #reasoningMembers(delta: Json, out: CompletionDelta[]): void {
    const plain = stringOf(delta["reasoning_content"]) || stringOf(delta["reasoning"]);
    const details = delta["reasoning_details"];
    if (plain !== "" || Array.isArray(details)) this.#dropTags(out);
    if (plain !== "") this.#addReasoning(plain, false, out);
    if (!Array.isArray(details)) return;
    for (const item of details as unknown[]) {
      const detail = objectOf(item);
      this.#keepState(detail);
      if (plain !== "") continue;
      const summary = stringOf(detail["summary"]);
      this.#addReasoning(stringOf(detail["text"]) || summary, summary !== "" && !detail["text"], out);
    }
  }

  /** A server that says what is reasoning does not write it into the text as well. */
  #dropTags(out: CompletionDelta[]): void {
    const tags = this.#tags;
    if (!tags) return;
    this.#tagged(tags.end(), out);
    this.#tags = undefined;
  }

  #contentPart(part: Json, out: CompletionDelta[]): void {
    switch (part["type"]) {
      case "thinking":
      case "reasoning": {
        const inner = part["thinking"] ?? part["text"];
        const pieces = Array.isArray(inner)
          ? (inner as unknown[]).map((piece) => stringOf(objectOf(piece)["text"]))
          : [stringOf(inner)];
        for (const piece of pieces) this.#addReasoning(piece, false, out);
        return;
      }
      case "refusal":
        this.#addRefusal(stringOf(part["refusal"]), out);
        return;
      default:
        this.#content(stringOf(part["text"]), out);
    }
  }

  #content(text: string, out: CompletionDelta[]): void {
    const joined = this.#text.push(text);
    if (joined === "") return;
    if (this.#tags) this.#tagged(this.#tags.push(joined), out);
    else this.#addText(joined, out);
  }

  #tagged(pieces: ReturnType<ThinkTagSplitter["push"]>, out: CompletionDelta[]): void {
    for (const piece of pieces) {
      if (piece.kind === "text") this.#addText(piece.text, out);
      else this.#addReasoning(piece.text, false, out);
    }
  }

  #addText(text: string, out: CompletionDelta[]): void {
    if (this.#open !== "text") {
      this.#closeBlock(out);
      this.#textIndex = this.#openBlock("text");
    }
    this.#hasText = true;
    this.#hasOutput = true;
    out.push(contentDelta(this.#openIndex, text));
  }

  #addReasoning(text: string, summary: boolean, out: CompletionDelta[]): void {
    const joined = this.#reasoning.push(text);
    if (joined === "") return;
    if (this.#open !== "reasoning") {
      this.#closeBlock(out);
      this.#openBlock("reasoning");
    }
    this.#hasOutput = true;
    out.push(reasoningDelta(this.#openIndex, joined, { summary }));
  }

  #addRefusal(text: string, out: CompletionDelta[]): void {
    const joined = this.#refusal.push(text);
    if (joined === "") return;
    this.#hasRefusal = true;
    this.#hasOutput = true;
    out.push(refusalDelta(joined));
  }

  #toolCall(call: Json, out: CompletionDelta[]): void {
    this.#sawCallList = true;
    const fn = objectOf(call["function"]);
    const name = stringOf(fn["name"]) || stringOf(call["name"]);
    this.#callFragment(
      stringOf(call["id"]),
      uint32Of(call["index"]),
      name,
      fn["arguments"] ?? call["arguments"],
      out,
    );
  }

  #legacyCall(call: Json, out: CompletionDelta[]): void {
    this.#callFragment("", 0, stringOf(call["name"]), call["arguments"], out);
  }

  #callFragment(
    id: string,
    index: number | undefined,
    name: string,
    args: unknown,
    out: CompletionDelta[],
  ): void {
    const text =
      typeof args === "string" ? args : typeof args === "object" && args !== null ? JSON.stringify(args) : "";
    if (this.#open !== "other") this.#releaseText(out);
    this.#calls.push({ id: id || undefined, index, name: name || undefined, args: text }, out);
  }

  /** Tools that the provider ran itself. */
  #serverTools(tools: readonly unknown[], out: CompletionDelta[]): void {
    for (const item of tools) {
      const tool = objectOf(item);
      const output = tool["output"];
      const result = output === undefined || output === null ? "" : JSON.stringify(output);
      const call = create(ServerToolCallSchema, {
        callId: `server_${uint32Of(tool["index"]) ?? 0}`,
        name: stringOf(tool["type"]) || stringOf(tool["name"]),
        argumentsJson: stringOf(tool["arguments"]),
        resultJson:
          result.length <= MAX_SERVER_RESULT_CHARS
            ? result
            : JSON.stringify(result.slice(0, MAX_SERVER_RESULT_CHARS)),
        done: result !== "",
      });
      out.push(serverToolCallDelta(call));
    }
  }

  #openBlock(kind: OpenBlock): number {
    this.#open = kind;
    this.#openIndex = this.#nextBlock++;
    return this.#openIndex;
  }

  /** Before another block opens: what is held of the one before comes out. */
  #closeBlock(out: CompletionDelta[]): void {
    if (this.#open === "other") this.#calls.announceAll(out);
    this.#releaseText(out);
  }

  /** Halves of characters that never found their mate, in the block they belong to. */
  #releaseText(out: CompletionDelta[]): void {
    const text = this.#text.flush();
    if (text !== "" && this.#open === "text") out.push(contentDelta(this.#openIndex, text));
    const reasoning = this.#reasoning.flush();
    if (reasoning !== "" && this.#open === "reasoning") out.push(reasoningDelta(this.#openIndex, reasoning));
  }

  /** Signed and encrypted reasoning goes back to the provider with the next call; plain text does not need to. */
  #keepState(detail: Json): void {
    if (!detail["signature"] && !detail["data"]) return;
    const size = JSON.stringify(detail).length;
    if (this.#stateChars + size > MAX_STATE_CHARS) return;
    this.#stateChars += size;
    this.#state.push(detail);
  }

  #warn(code: ErrorCode.UPSTREAM_MALFORMED, message: string, out: CompletionDelta[]): void {
    if (this.#warnings++ < MAX_WARNINGS) out.push(warningDelta(code, message));
  }

  #end(finish: FinishReason, out: CompletionDelta[]): void {
    if (finish === FinishReason.ERROR) {
      const message = `the model provider reported that the answer failed (${this.#rawFinish})`;
      this.#fail(new TurnError(ErrorCode.UPSTREAM_UNAVAILABLE, { message }), out);
      return;
    }
    this.#releaseAll(out);
    const calls = this.#calls.settle(callsEnd(finish));
    out.push(...calls.deltas);
    if (calls.invalid > 0)
      this.#warn(ErrorCode.UPSTREAM_MALFORMED, "the arguments of a tool call are not valid JSON", out);
    if (this.#state.length > 0) out.push(this.#providerState());
    this.#pushUsage(out);
    out.push(
      finishDelta({
        reason: this.#finalReason(finish, calls.complete + calls.invalid > 0),
        rawReason: this.#rawFinish,
        providerResponseId: this.#responseId,
        reasoningOpen: this.#tags?.open ?? false,
      }),
    );
    this.#ended = true;
  }

  #finalReason(finish: FinishReason, called: boolean): FinishReason {
    if (finish === FinishReason.STOP && called) return FinishReason.TOOL_CALLS;
    if (finish === FinishReason.STOP && this.#hasRefusal && !this.#hasText) return FinishReason.REFUSAL;
    return finish;
  }

  #fail(error: TurnError, out: CompletionDelta[]): void {
    if (this.#ended) return;
    this.#releaseAll(out);
    out.push(...this.#calls.settle("broken").deltas);
    this.#pushUsage(out);
    out.push(errorDelta(error));
    this.#ended = true;
  }

  #releaseAll(out: CompletionDelta[]): void {
    const text = this.#text.flush();
    if (this.#tags) this.#tagged([...this.#tags.push(text), ...this.#tags.end()], out);
    else if (text !== "") this.#addText(text, out);
    const reasoning = this.#reasoning.flush();
    if (reasoning !== "" && this.#open === "reasoning") out.push(reasoningDelta(this.#openIndex, reasoning));
    if (this.#refusal.flush() !== "") out.push(refusalDelta("\ufffd"));
    if (this.#sources.waiting) this.#sources.flush(this.#textIndex, out);
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
