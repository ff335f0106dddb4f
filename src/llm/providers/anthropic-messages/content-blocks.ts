/**
 * The content blocks of one Anthropic answer, each from its start to its stop.
 * Owns what a block gathers until it stops. M1 whatever must go back with the next call (thinking with its signature, sealed
 * thinking, the tools that Anthropic ran) is handed out as provider state where its block ends. M2 stands in
 * server-blocks.ts. M3 a citation is handed out when its block stops: only then the passage is known.
 */
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { jsonTextOf, objectOf, stringOf, uint32Of, type Json } from "../../json.js";
import type { BlockWriter, TextBlock } from "../shared/block-writer.js";
import type { CallBlock } from "../shared/call-block.js";
import { MAX_STATE_BYTES, pushState } from "../shared/provider-state.js";
import type { SourceCollector } from "../shared/source-collector.js";
import { PROVIDER_STATE, type ContentBlock } from "./content-block.js";
import { ServerToolResult, ServerToolUse, type ServerTools } from "./server-blocks.js";

/** What the blocks of one answer share. */
export interface AnswerParts {
  readonly writer: BlockWriter;
  readonly sources: SourceCollector;
  readonly serverTools: ServerTools;
}

/** Opens the block that `content_block_start` describes. `text`: the event as it came; "" = the block did not come as one. */
export function openBlock(start: Json, parts: AnswerParts, out: CompletionDelta[], text = ""): ContentBlock {
  const type = stringOf(start["type"]);
  switch (type) {
    case "text":
      return new Text(start, parts, out);
    case "thinking":
      return new Thinking(start, parts, out);
    case "redacted_thinking":
      return new Sealed(start, parts.writer.redacted(out));
    case "tool_use":
      return new ToolUse(start, parts, out);
    case "compaction":
      return new Compaction(start, parts, out);
    default:
      if (type.endsWith("_tool_use")) return new ServerToolUse(start, parts.serverTools, out);
      if (type.endsWith("_tool_result")) return new ServerToolResult(start, text, parts.serverTools);
      return IGNORED;
  }
}

/** A block whose start was lost, if its first delta tells what it is. */
export function blockOfDelta(delta: Json, parts: AnswerParts, out: CompletionDelta[]): ContentBlock {
  switch (delta["type"]) {
    case "text_delta":
    case "citations_delta":
      return openBlock({ type: "text" }, parts, out);
    case "thinking_delta":
      return openBlock({ type: "thinking" }, parts, out);
    default:
      return IGNORED;
  }
}

const IGNORED: ContentBlock = { delta: () => undefined, stop: () => undefined };

class Text implements ContentBlock {
  readonly #parts: AnswerParts;
  readonly #block: TextBlock;
  readonly #citations: Json[] = [];
  #text = "";

  constructor(start: Json, parts: AnswerParts, out: CompletionDelta[]) {
    this.#parts = parts;
    this.#block = parts.writer.openText();
    if (Array.isArray(start["citations"]))
      for (const citation of start["citations"] as unknown[]) this.#citations.push(objectOf(citation));
    this.#write(stringOf(start["text"]), out);
  }

  delta(delta: Json, out: CompletionDelta[]): void {
    if (delta["type"] === "text_delta") this.#write(stringOf(delta["text"]), out);
    else if (delta["type"] === "citations_delta") this.#citations.push(objectOf(delta["citation"]));
  }

  stop(out: CompletionDelta[]): void {
    this.#block.close(out);
    if (this.#citations.length === 0) return;
    const blockIndex = Math.max(this.#block.index, 0);
    const endChar = [...this.#text].length;
    for (const citation of this.#citations) pushCitation(citation, blockIndex, endChar, this.#parts.sources);
    this.#parts.sources.flush(blockIndex, out);
  }

  #write(text: string, out: CompletionDelta[]): void {
    this.#text += text;
    this.#block.push(text, out);
  }
}

/** Web pages have an address; parts of a document that was sent along have the document's place in the conversation. */
function pushCitation(citation: Json, blockIndex: number, endChar: number, sources: SourceCollector): void {
  const url = stringOf(citation["url"]);
  const document = uint32Of(citation["document_index"]) ?? uint32Of(citation["search_result_index"]);
  const source = stringOf(citation["source"]);
  sources.push({
    url,
    title: stringOf(citation["title"]) || stringOf(citation["document_title"]),
    snippet: stringOf(citation["cited_text"]),
    number: 0,
    startChar: 0,
    endChar,
    blockIndex,
    page: uint32Of(citation["start_page_number"]) ?? 0,
    ...(url === "" && { documentId: source || `document-${document ?? 0}`, origin: "document" }),
  });
}

class Thinking implements ContentBlock {
  readonly #block: TextBlock;
  readonly #writer: BlockWriter;
  #thinking = "";
  #signature = "";

  constructor(start: Json, { writer }: AnswerParts, out: CompletionDelta[]) {
    this.#writer = writer;
    this.#block = writer.openReasoning(false);
    this.#signature = stringOf(start["signature"]);
    this.#write(stringOf(start["thinking"]), out);
  }

  delta(delta: Json, out: CompletionDelta[]): void {
    if (delta["type"] === "thinking_delta") this.#write(stringOf(delta["thinking"]), out);
    else if (delta["type"] === "signature_delta") this.#signature += stringOf(delta["signature"]);
  }

  stop(out: CompletionDelta[]): void {
    this.#block.close(out);
    if (this.#signature === "") return;
    const index = this.#block.index === -1 ? this.#writer.nextIndex : this.#block.index;
    pushState(
      PROVIDER_STATE,
      [{ type: "thinking", thinking: this.#thinking, signature: this.#signature }],
      index,
      out,
    );
  }

  #write(text: string, out: CompletionDelta[]): void {
    if (this.#thinking.length <= MAX_STATE_BYTES) this.#thinking += text;
    this.#block.push(text, out);
  }
}

/** Thinking that only Anthropic can read. */
class Sealed implements ContentBlock {
  readonly #start: Json;
  readonly #index: number;

  constructor(start: Json, index: number) {
    this.#start = start;
    this.#index = index;
  }

  delta(): void {
    // It comes whole.
  }

  stop(out: CompletionDelta[]): void {
    pushState(PROVIDER_STATE, [{ type: "redacted_thinking", data: this.#start["data"] }], this.#index, out);
  }
}

class ToolUse implements ContentBlock {
  readonly #call: CallBlock;
  readonly #input: unknown;

  constructor(start: Json, { writer, serverTools }: AnswerParts, out: CompletionDelta[]) {
    this.#call = writer.openCall({ id: stringOf(start["id"]), name: stringOf(start["name"]) }, out);
    this.#input = start["input"];
    const caller = stringOf(objectOf(start["caller"])["tool_id"]);
    if (caller !== "") serverTools.calls(caller, this.#call);
  }

  delta(delta: Json, out: CompletionDelta[]): void {
    if (delta["type"] === "input_json_delta") this.#call.push(jsonTextOf(delta["partial_json"]), out);
  }

  /** Bridges put the whole input into the start. */
  stop(out: CompletionDelta[]): void {
    const input = jsonTextOf(this.#input);
    if (this.#call.empty && input !== "{}") this.#call.push(input, out);
  }
}

/** A summary that takes the place of the conversation so far. */
class Compaction implements ContentBlock {
  readonly #writer: BlockWriter;
  readonly #block: TextBlock;
  #content = "";

  constructor(start: Json, { writer }: AnswerParts, out: CompletionDelta[]) {
    this.#writer = writer;
    this.#block = writer.openText();
    this.delta({ type: "compaction_delta", content: start["content"] }, out);
  }

  delta(delta: Json, out: CompletionDelta[]): void {
    const content = delta["type"] === "compaction_delta" ? stringOf(delta["content"]) : "";
    this.#content += content;
    this.#block.push(content, out);
  }

  stop(out: CompletionDelta[]): void {
    this.#block.close(out);
    const index = this.#block.index === -1 ? this.#writer.nextIndex : this.#block.index;
    pushState(PROVIDER_STATE, [{ type: "compaction", content: this.#content }], index, out);
  }
}
