/**
 * The output items of one Responses answer, each from `output_item.added` to `output_item.done`.
 * Owns what an item gathers. I1 what a done event repeats counts only where no delta came. I2 what must go back with the next
 * call (sealed reasoning, tools that the server ran) is handed out as provider state where its item ends. I3 a call that
 * the server called completed is whole, also if the answer breaks off after it.
 */
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { jsonTextOf, objectOf, stringOf, uint32Of, type Json } from "../../json.js";
import type { TextBlock } from "../shared/block-writer.js";
import type { CallBlock } from "../shared/call-block.js";
import { pushState } from "../shared/provider-state.js";
import type { SourceCollector } from "../shared/source-collector.js";
import { PROVIDER_STATE, type OutputItem } from "./item.js";
import { serverItem, type ServerParts } from "./server-items.js";

/** What the items of one answer share. */
export interface AnswerParts extends ServerParts {
  readonly sources: SourceCollector;
  /** Calls that the server called completed. */
  readonly completed: CallBlock[];
  /** Show reasoning that is no summary. */
  readonly rawReasoning: boolean;
}

/** Opens an item. Items nobody knows are ignored. */
export function openItem(item: Json, parts: AnswerParts, out: CompletionDelta[]): OutputItem {
  const type = stringOf(item["type"]);
  if (type === "message") return new Message(parts);
  if (type === "reasoning") return new Reasoning(parts);
  const kind = CALL_KINDS.get(type);
  if (kind) return new Call(item, kind, parts, out);
  if (type === "compaction") return { event: () => undefined, done: (whole) => keep(whole, parts, out) };
  return serverItem(item, parts, out) ?? IGNORED;
}

/** An item whose start was lost; undefined = its event does not tell what it is. */
export function itemOfEvent(type: string, value: Json, parts: AnswerParts): OutputItem | undefined {
  const isText = type.startsWith("response.output_text.") || type.startsWith("response.refusal.");
  if (isText || objectOf(value["part"])["type"] === "output_text") return new Message(parts);
  return type.startsWith("response.reasoning_") ? new Reasoning(parts) : undefined;
}

const IGNORED: OutputItem = { event: () => undefined, done: () => undefined };

/** Hands out an item that goes back as it is. */
function keep(
  item: Json,
  { writer }: AnswerParts,
  out: CompletionDelta[],
  blockIndex = writer.nextIndex,
): void {
  const { status: _status, ...rest } = item;
  pushState(PROVIDER_STATE, rest, blockIndex, out);
}

class Message implements OutputItem {
  readonly #parts: AnswerParts;
  readonly #texts = new Map<number, TextBlock>();
  #refused = false;

  constructor(parts: AnswerParts) {
    this.#parts = parts;
  }

  event(type: string, value: Json, out: CompletionDelta[]): void {
    switch (type) {
      case "response.output_text.delta":
        this.#text(contentIndex(value)).push(stringOf(value["delta"]), out);
        return;
      case "response.output_text.done":
        this.#fill(contentIndex(value), stringOf(value["text"]), out);
        return;
      case "response.refusal.delta":
        this.#refuse(stringOf(value["delta"]), out);
        return;
      case "response.refusal.done":
        if (!this.#refused) this.#refuse(stringOf(value["refusal"]), out);
        return;
      case "response.content_part.done":
        this.#part(contentIndex(value), objectOf(value["part"]), out);
        return;
      case "response.output_text.annotation.added":
        this.#annotate(contentIndex(value), [value["annotation"]], out);
    }
  }

  done(item: Json, out: CompletionDelta[]): void {
    const content = Array.isArray(item["content"]) ? (item["content"] as unknown[]) : [];
    for (const [at, part] of content.entries()) this.#part(at, objectOf(part), out);
    for (const text of this.#texts.values()) text.close(out);
    if (typeof item["phase"] === "string") keep({ type: "phase", phase: item["phase"] }, this.#parts, out);
  }

  #part(at: number, part: Json, out: CompletionDelta[]): void {
    if (part["type"] === "refusal" && !this.#refused) this.#refuse(stringOf(part["refusal"]), out);
    if (part["type"] !== "output_text") return;
    this.#fill(at, stringOf(part["text"]), out);
    if (Array.isArray(part["annotations"])) this.#annotate(at, part["annotations"] as unknown[], out);
  }

  #text(at: number): TextBlock {
    let text = this.#texts.get(at);
    if (!text) this.#texts.set(at, (text = this.#parts.writer.openText()));
    return text;
  }

  /** I1. */
  #fill(at: number, whole: string, out: CompletionDelta[]): void {
    const text = this.#text(at);
    if (text.empty) text.push(whole, out);
  }

  #refuse(text: string, out: CompletionDelta[]): void {
    this.#refused ||= text !== "";
    this.#parts.writer.refusal(text, out);
  }

  #annotate(at: number, annotations: readonly unknown[], out: CompletionDelta[]): void {
    const { sources, writer } = this.#parts;
    const { index } = this.#text(at);
    sources.pushAnnotations(annotations);
    for (const annotation of annotations) pushFile(objectOf(annotation), sources);
    sources.flush(index === -1 ? writer.nextIndex : index, out);
  }
}

/** Files that a search or the code interpreter found have no address. */
function pushFile(annotation: Json, sources: SourceCollector): void {
  const type = annotation["type"];
  if (type !== "file_citation" && type !== "container_file_citation" && type !== "file_path") return;
  sources.push({
    url: "",
    documentId: stringOf(annotation["file_id"]),
    title: stringOf(annotation["filename"]),
    snippet: "",
    number: 0,
    startChar: uint32Of(annotation["start_index"]) ?? 0,
    endChar: uint32Of(annotation["end_index"]) ?? 0,
    origin: "file",
  });
}

class Reasoning implements OutputItem {
  readonly #parts: AnswerParts;
  readonly #summaries = new Map<number, TextBlock>();
  readonly #raw = new Map<number, TextBlock>();

  constructor(parts: AnswerParts) {
    this.#parts = parts;
  }

  event(type: string, value: Json, out: CompletionDelta[]): void {
    switch (type) {
      case "response.reasoning_summary_text.delta":
        this.#summary(summaryIndex(value)).push(stringOf(value["delta"]), out);
        return;
      case "response.reasoning_summary_text.done":
        fill(this.#summary(summaryIndex(value)), stringOf(value["text"]), out);
        return;
      case "response.reasoning_summary_part.done":
        fill(this.#summary(summaryIndex(value)), stringOf(objectOf(value["part"])["text"]), out);
        return;
      case "response.reasoning_text.delta":
        this.#text(contentIndex(value))?.push(stringOf(value["delta"]), out);
        return;
      case "response.reasoning_text.done":
        fill(this.#text(contentIndex(value)), stringOf(value["text"]), out);
    }
  }

  done(item: Json, out: CompletionDelta[]): void {
    for (const [at, part] of listOf(item["summary"]).entries())
      fill(this.#summary(at), stringOf(objectOf(part)["text"]), out);
    for (const [at, part] of listOf(item["content"]).entries())
      fill(this.#text(at), stringOf(objectOf(part)["text"]), out);
    const blocks = [...this.#summaries.values(), ...this.#raw.values()];
    for (const block of blocks) block.close(out);
    if (stringOf(item["encrypted_content"]) === "" && listOf(item["content"]).length === 0) return;
    const shown = blocks.find(({ index }) => index !== -1);
    keep(item, this.#parts, out, shown?.index);
  }

  #summary(at: number): TextBlock {
    let block = this.#summaries.get(at);
    if (!block) this.#summaries.set(at, (block = this.#parts.writer.openReasoning(true)));
    return block;
  }

  #text(at: number): TextBlock | undefined {
    if (!this.#parts.rawReasoning) return undefined;
    let block = this.#raw.get(at);
    if (!block) this.#raw.set(at, (block = this.#parts.writer.openReasoning(false)));
    return block;
  }
}

/** A tool call that the client is to run, in one of its forms. */
interface CallKind {
  /** The tool, where the item does not name it. */
  readonly name?: string;
  readonly form: "object" | "text";
  /** The whole arguments, out of a finished item. */
  readonly args: (item: Json) => string;
  /** False where the server may have run it: it says with the answer's end what it waits for. */
  readonly asksForTools?: boolean;
}

const CALL_KINDS: ReadonlyMap<string, CallKind> = new Map<string, CallKind>([
  ["function_call", { form: "object", args: (item) => jsonTextOf(item["arguments"]) }],
  ["custom_tool_call", { form: "text", args: (item) => stringOf(item["input"]) }],
  ["apply_patch_call", { name: "apply_patch", form: "object", args: patchArgs }],
  ["shell_call", { name: "shell", form: "object", args: shellArgs, asksForTools: false }],
  ["local_shell_call", { name: "local_shell", form: "object", args: actionArgs }],
  ["computer_call", { name: "computer", form: "object", args: actionArgs }],
]);

function patchArgs(item: Json): string {
  return JSON.stringify({ callId: item["call_id"], operation: item["operation"] });
}

function shellArgs(item: Json): string {
  return JSON.stringify({ action: { commands: objectOf(item["action"])["commands"] } });
}

function actionArgs(item: Json): string {
  return JSON.stringify({ action: item["action"] });
}

class Call implements OutputItem {
  readonly #kind: CallKind;
  readonly #parts: AnswerParts;
  readonly #call: CallBlock;

  constructor(item: Json, kind: CallKind, parts: AnswerParts, out: CompletionDelta[]) {
    this.#kind = kind;
    this.#parts = parts;
    const { form, asksForTools = true } = kind;
    const id = stringOf(item["call_id"]) || stringOf(item["id"]);
    this.#call = parts.writer.openCall(
      { id, name: kind.name ?? stringOf(item["name"]), form, asksForTools },
      out,
    );
  }

  event(type: string, value: Json, out: CompletionDelta[]): void {
    switch (type) {
      case "response.function_call_arguments.delta":
      case "response.custom_tool_call_input.delta":
        this.#call.push(jsonTextOf(value["delta"]), out);
        return;
      case "response.function_call_arguments.done":
        this.#fill(jsonTextOf(value["arguments"]), out);
        return;
      case "response.custom_tool_call_input.done":
        this.#fill(stringOf(value["input"]), out);
    }
  }

  done(item: Json, out: CompletionDelta[]): void {
    if (item["status"] === "incomplete") {
      this.#call.cut();
      return;
    }
    this.#fill(this.#kind.args(item), out);
    if (item["status"] === "completed") this.#parts.completed.push(this.#call); // I3
  }

  #fill(whole: string, out: CompletionDelta[]): void {
    if (this.#call.empty) this.#call.push(whole, out);
  }
}

/** I1. */
function fill(block: TextBlock | undefined, whole: string, out: CompletionDelta[]): void {
  if (block?.empty) block.push(whole, out);
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : [];
}

function contentIndex(value: Json): number {
  return uint32Of(value["content_index"]) ?? 0;
}

function summaryIndex(value: Json): number {
  return uint32Of(value["summary_index"]) ?? 0;
}
