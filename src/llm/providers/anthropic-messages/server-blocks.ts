/**
 * Content blocks of tools that Anthropic ran itself.
 * Owns which of their calls wait for a result. M2 a call goes back only with its result, or alone when the answer paused on it.
 */
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { objectOf, parseJson, stringOf, type Json } from "../../json.js";
import type { BlockWriter } from "../shared/block-writer.js";
import type { CallBlock } from "../shared/call-block.js";
import { pushState, pushStateText } from "../shared/provider-state.js";
import { serverToolDelta } from "../shared/server-tools.js";
import { PROVIDER_STATE, type ContentBlock } from "./content-block.js";

/** The tools that Anthropic runs in this answer. */
export class ServerTools {
  readonly #writer: BlockWriter;
  /** Calls without a result, as they go back. */
  readonly #waiting = new Map<string, Json>();
  /** Calls for the client that a server tool made, by the id of its call. */
  readonly #made = new Map<string, CallBlock[]>();

  constructor(writer: BlockWriter) {
    this.#writer = writer;
  }

  called(id: string, call: Json): void {
    this.#writer.noteOutput();
    this.#waiting.set(id, call);
  }

  calls(id: string, call: CallBlock): void {
    this.#made.set(id, [...(this.#made.get(id) ?? []), call]);
  }

  nameOf(id: string): string {
    return stringOf(this.#waiting.get(id)?.["name"]);
  }

  /** M2: the pair goes back, or neither. */
  answered(id: string, resultJson: string, out: CompletionDelta[]): void {
    this.#writer.noteOutput();
    const call = this.#waiting.get(id);
    this.#waiting.delete(id);
    for (const made of this.#made.get(id) ?? []) made.answered();
    const pair = call ? `${JSON.stringify(call)},${resultJson}` : resultJson;
    pushStateText(PROVIDER_STATE, `[${pair}]`, this.#writer.nextIndex, out);
  }

  /** The answer ended properly: what is still under way goes back as it is. */
  pause(out: CompletionDelta[]): void {
    for (const call of this.#waiting.values()) pushState(PROVIDER_STATE, [call], this.#writer.nextIndex, out);
    this.#waiting.clear();
  }
}

export class ServerToolUse implements ContentBlock {
  readonly #start: Json;
  readonly #tools: ServerTools;
  #args = "";

  constructor(start: Json, tools: ServerTools, out: CompletionDelta[]) {
    this.#start = start;
    this.#tools = tools;
    tools.called(stringOf(start["id"]), start);
    out.push(serverToolDelta({ callId: stringOf(start["id"]), name: stringOf(start["name"]) }));
  }

  delta(delta: Json): void {
    if (delta["type"] === "input_json_delta") this.#args += stringOf(delta["partial_json"]);
  }

  stop(out: CompletionDelta[]): void {
    const input = this.#args.trim() === "" ? objectOf(this.#start["input"]) : objectOf(parseJson(this.#args));
    const callId = stringOf(this.#start["id"]);
    this.#tools.called(callId, { ...this.#start, input });
    const argumentsJson = this.#args.trim() === "" ? JSON.stringify(input) : this.#args;
    out.push(serverToolDelta({ callId, name: stringOf(this.#start["name"]), argumentsJson }));
  }
}

/** It comes whole in its start. Results are large: they go back as the event that they came in. */
export class ServerToolResult implements ContentBlock {
  readonly #result: Json;
  readonly #text: string;
  readonly #tools: ServerTools;

  constructor(start: Json, text: string, tools: ServerTools) {
    this.#result = start;
    this.#text = text;
    this.#tools = tools;
  }

  delta(): void {
    // Results have no deltas.
  }

  stop(out: CompletionDelta[]): void {
    const callId = stringOf(this.#result["tool_use_id"]);
    const content = this.#result["content"];
    const name = this.#tools.nameOf(callId) || stringOf(this.#result["type"]).replace(/_tool_result$/, "");
    out.push(serverToolDelta({ callId, name, result: content ?? null, done: true }));
    this.#tools.answered(callId, this.#text || JSON.stringify(this.#result), out);
  }
}
