/** The conversation as Anthropic Messages wants it: system text apart, roles in turn, results before anything else. Pure. */
import {
  Role,
  type CompletionInput,
  type ContentPart,
  type MediaPart,
  type ModelMessage,
  type ToolResultPart,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { objectOf, type Json } from "../../json.js";
import { readState } from "../shared/provider-state.js";
import { argumentsOf, invalid, plainText, textOnly } from "../shared/request-input.js";
import { PROVIDER_STATE } from "./content-block.js";

/** A content block that is being built; `cache_control` may be added to it. */
type Block = Record<string, unknown>;

export interface Conversation {
  readonly system: readonly Json[];
  readonly messages: readonly { readonly role: "user" | "assistant"; readonly content: Block[] }[];
}

/** More breakpoints than this are refused. */
const MAX_CACHE_BREAKPOINTS = 4;

/** Throws INVALID_ARGUMENT naming the field for what cannot be said. */
export function conversationOf(input: CompletionInput): Conversation {
  const system: Block[] = [];
  const messages: { role: "user" | "assistant"; content: Block[] }[] = [];
  const breakpoints: Block[] = [];
  for (const [at, message] of input.messages.entries()) {
    const field = `input.messages[${at}]`;
    const isSystem = message.role === Role.SYSTEM && messages.length === 0;
    const blocks = isSystem ? textBlocks(textOnly(message.parts, field)) : messageBlocks(message, field);
    const marked = message.cacheBreakpoint ? blocks.findLast(({ type }) => !UNMARKABLE.has(type)) : undefined;
    if (marked) breakpoints.push(marked);
    if (isSystem) system.push(...blocks);
    else addMessage(messages, message.role === Role.ASSISTANT ? "assistant" : "user", blocks);
  }
  if (messages.length === 0) throw invalid("input.messages", "must hold a message that is not the system's");
  for (const block of breakpoints.slice(-MAX_CACHE_BREAKPOINTS))
    block["cache_control"] = { type: "ephemeral" };
  trimEnd(messages.at(-1));
  return { system, messages };
}

/** What the model is told where it does not go on with an answer by itself. */
const GO_ON = "Go on with your answer exactly where it stops. Repeat nothing of it.";

/** True if the conversation ends in text of the model. */
export function endsInAnswer({ messages }: Conversation): boolean {
  const last = messages.at(-1);
  return last?.role === "assistant" && last.content.at(-1)?.["type"] === "text";
}

/** The messages with the user asking for the rest of the answer. */
export function askingToGoOn({ messages }: Conversation): Conversation["messages"] {
  return [...messages, { role: "user", content: [{ type: "text", text: GO_ON }] }];
}

/** True if the answer goes on after tools: thinking can be asked for only if the answer so far began with it. */
export function goesOnWithoutThinking({ messages }: Conversation): boolean {
  const assistant = messages.findLast(({ role }) => role === "assistant");
  const isLoop = assistant?.content.some(({ type }) => type === "tool_use") ?? false;
  return isLoop && !assistant?.content.some(({ type }) => UNMARKABLE.has(type));
}

/** Blocks that take no cache mark. */
const UNMARKABLE: ReadonlySet<unknown> = new Set(["thinking", "redacted_thinking"]);

function addMessage(
  messages: { role: "user" | "assistant"; content: Block[] }[],
  role: "user" | "assistant",
  blocks: readonly Block[],
): void {
  if (blocks.length === 0) return;
  const last = messages.at(-1);
  if (last?.role !== role) {
    messages.push({ role, content: [...blocks] });
    return;
  }
  const results = blocks.filter(({ type }) => type === "tool_result");
  const behind = last.content.findLastIndex(({ type }) => type === "tool_result") + 1;
  last.content.splice(behind, 0, ...results);
  last.content.push(...blocks.filter(({ type }) => type !== "tool_result"));
}

function messageBlocks(message: ModelMessage, field: string): Block[] {
  switch (message.role) {
    case Role.UNSPECIFIED:
      throw invalid(`${field}.role`, "must be set");
    case Role.ASSISTANT:
      return message.parts.flatMap((part, at) => assistantBlocks(part, `${field}.parts[${at}]`));
    case Role.TOOL:
      return message.parts.map(({ part }, at) => {
        if (part.case !== "toolResult") throw invalid(`${field}.parts[${at}]`, "must be a tool_result");
        return resultBlock(part.value, `${field}.parts[${at}].tool_result`);
      });
    default:
      return message.parts.flatMap((part, at) => userBlocks(part, `${field}.parts[${at}]`));
  }
}

function userBlocks(part: ContentPart, field: string): Block[] {
  if (part.part.case === "media") return [mediaBlock(part.part.value, `${field}.media`)];
  return textBlocks(textOnly([part], field));
}

/** Thinking goes back in the block it was signed in; as plain text it cannot. Media that a model made cannot either. */
function assistantBlocks(content: ContentPart, field: string): Block[] {
  const { part } = content;
  switch (part.case) {
    case "toolCall":
      return [
        {
          type: "tool_use",
          id: callId(part.value.callId),
          name: part.value.name,
          input: argumentsOf(part.value),
        },
      ];
    case "providerState":
      return stateBlocks(readState(part.value, PROVIDER_STATE));
    case "reasoning":
    case "media":
      return [];
    case "toolResult":
      throw invalid(field, "is not a part that an assistant can have");
    default:
      return textBlocks(plainText(content) ?? "");
  }
}

/** Blocks as they were, some still in the event that they came in. */
function stateBlocks(state: unknown): Block[] {
  const items = Array.isArray(state) ? (state as unknown[]).map((item) => objectOf(item)) : [];
  return items.map((item) => ({ ...objectOf(item["content_block"] ?? item) }));
}

/** Blank text is refused. */
function textBlocks(text: string): Block[] {
  return text.trim() === "" ? [] : [{ type: "text", text }];
}

function resultBlock(result: ToolResultPart, field: string): Block {
  const content = [
    ...textBlocks(result.text),
    ...result.media.map((media, at) => mediaBlock(media, `${field}.media[${at}]`)),
  ];
  return {
    type: "tool_result",
    tool_use_id: callId(result.callId),
    ...(content.length > 0 && { content }),
    ...(result.isError && { is_error: true }),
  };
}

function mediaBlock(media: MediaPart, field: string): Block {
  const { mediaType, source, name } = media;
  if (source.case !== "data" && source.case !== "url")
    throw invalid(field, "must hold its data or an address");
  if (mediaType.startsWith("image/")) return { type: "image", source: sourceOf(media) };
  const title = name === "" ? {} : { title: name };
  if (mediaType === "application/pdf") return { type: "document", source: sourceOf(media), ...title };
  const isText = /^(?:text\/|application\/(?:json|xml|yaml|x-yaml|javascript)\b)/.test(mediaType);
  if (!isText || source.case !== "data")
    throw invalid(field, `has a type that this model does not take: ${mediaType}`);
  const data = Buffer.from(source.value).toString("utf8");
  return { type: "document", source: { type: "text", media_type: "text/plain", data }, ...title };
}

function sourceOf({ mediaType, source }: MediaPart): Json {
  if (source.case === "url") return { type: "url", url: source.value };
  const data = source.case === "data" ? Buffer.from(source.value).toString("base64") : "";
  return { type: "base64", media_type: mediaType, data };
}

/** Ids of other providers may hold characters that are refused. */
function callId(id: string): string {
  return id.replace(/[^A-Za-z0-9_-]/g, "_");
}

/** An answer that is to be continued must not end in blanks. */
function trimEnd(last: Conversation["messages"][number] | undefined): void {
  const block = last?.role === "assistant" ? last.content.at(-1) : undefined;
  if (typeof block?.["text"] === "string") block["text"] = block["text"].trimEnd();
}
