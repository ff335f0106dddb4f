/**
 * What the events of one Anthropic Messages answer mean: JSON in, deltas out.
 * Owns which content blocks are open. R1 blocks are told apart by their index and may interleave. R2 unknown events,
 * blocks and deltas are ignored. R3 an answer starts once: a second start says nothing. R4 the stop reason makes an answer
 * whole; `message_stop` only ends the waiting.
 */
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { TurnError } from "../../../lib/errors.js";
import { finishReasonOf } from "../../finish-reasons.js";
import { readErrorFacts } from "../../http/upstream-error.js";
import { objectOf, stringOf, uint32Of, type Json } from "../../json.js";
import type { DecoderOptions, EventReader } from "../dialect.js";
import { AnswerEnd } from "../shared/answer-end.js";
import { BlockWriter } from "../shared/block-writer.js";
import { SourceCollector } from "../shared/source-collector.js";
import type { ContentBlock } from "./content-block.js";
import { blockOfDelta, openBlock, type AnswerParts } from "./content-blocks.js";
import { ServerTools } from "./server-blocks.js";
import { UsageFold } from "./usage.js";

export class MessageReader implements EventReader {
  readonly #parts: AnswerParts;
  readonly #end: AnswerEnd;
  readonly #usage = new UsageFold();
  readonly #open = new Map<number, ContentBlock>();
  #started = false;

  constructor(options: DecoderOptions) {
    const writer = new BlockWriter(options);
    this.#parts = { writer, sources: new SourceCollector(), serverTools: new ServerTools(writer) };
    this.#end = new AnswerEnd(writer, {
      attempt: options.attempt,
      secrets: options.secrets,
      beforeEnd: (out, how) => this.#beforeEnd(out, how === "broken"),
    });
  }

  get ended(): boolean {
    return this.#end.ended;
  }

  get finishSeen(): boolean {
    return this.#end.finishSeen;
  }

  event(name: string, value: Json, out: CompletionDelta[], text = ""): void {
    if (this.#end.ended) return;
    switch (value["type"] ?? name) {
      case "content_block_delta":
        this.#delta(value, out);
        return;
      case "content_block_start":
        this.#start(value, text, out);
        return;
      case "content_block_stop":
        this.#stop(indexOf(value), out);
        return;
      case "message_start":
        this.#message(objectOf(value["message"]), out);
        return;
      case "message_delta":
        this.#usage.push(value["usage"]);
        this.#takeStop(objectOf(value["delta"] ?? value), out);
        return;
      case "message_stop":
        this.done(out);
        return;
      case "error":
        this.#end.reported(readErrorFacts(value["error"] ?? value), out);
        return;
      default:
        if (value["error"]) this.#end.reported(readErrorFacts(value["error"]), out);
    }
  }

  /** A message has an error's shape, or its own; all else is neither. */
  document(value: Json, out: CompletionDelta[]): void {
    if (value["type"] === "error" || value["error"]) {
      this.#end.reported(readErrorFacts(value["error"] ?? value), out);
    } else if (Array.isArray(value["content"])) {
      this.#message(value, out);
      this.done(out);
    } else {
      this.#end.malformed(out);
      this.#end.eof(out);
    }
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

  /** What of an answer is there from the start: all of it, if it was not streamed. */
  #message(message: Json, out: CompletionDelta[]): void {
    this.#end.setResponseId(stringOf(message["id"]));
    this.#usage.push(message["usage"]);
    if (this.#started) return; // R3
    this.#started = true;
    const content = message["content"];
    if (Array.isArray(content)) {
      for (const item of content as unknown[]) {
        const block = openBlock(objectOf(item), this.#parts, out);
        block.stop(out);
      }
    }
    this.#takeStop(message, out);
  }

  #start(value: Json, text: string, out: CompletionDelta[]): void {
    const index = indexOf(value);
    this.#stop(index, out);
    this.#open.set(index, openBlock(objectOf(value["content_block"]), this.#parts, out, text));
  }

  #delta(value: Json, out: CompletionDelta[]): void {
    const delta = objectOf(value["delta"]);
    const index = indexOf(value);
    let block = this.#open.get(index);
    if (!block) {
      block = blockOfDelta(delta, this.#parts, out);
      this.#open.set(index, block);
    }
    block.delta(delta, out);
  }

  #stop(index: number, out: CompletionDelta[]): void {
    this.#open.get(index)?.stop(out);
    this.#open.delete(index);
  }

  #takeStop(from: Json, out: CompletionDelta[]): void {
    const raw = from["stop_reason"];
    const reason = finishReasonOf(raw);
    if (reason === undefined) return;
    this.#end.setFinish(reason, stringOf(raw));
    this.#parts.writer.refusal(stringOf(objectOf(from["stop_details"])["explanation"]), out);
  }

  /** The counts are known; blocks that never stopped are closed for what they hold. */
  #beforeEnd(out: CompletionDelta[], broken: boolean): void {
    const usage = this.#usage.result();
    if (usage) this.#end.setUsage(usage);
    if (broken) {
      this.#open.clear();
      return;
    }
    for (const index of [...this.#open.keys()]) this.#stop(index, out);
    this.#parts.serverTools.pause(out);
  }
}

function indexOf(value: Json): number {
  return uint32Of(value["index"]) ?? 0;
}
