/** The conversation in the OpenAI chat dialect. Pure. */
import { createHash } from "node:crypto";
import {
  Role,
  type CompletionInput,
  type ContentPart,
  type MediaPart,
  type ModelMessage,
  type ToolCallPart,
  type ToolResultPart,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { assertNever } from "../../../lib/assert-never.js";
import { isJsonObject, objectOf, stringOf, type Json } from "../../json.js";
import { readState } from "../shared/provider-state.js";
import { invalid, mediaText, textOnly } from "../shared/request-input.js";
import { CALL_STATE, PROVIDER_STATE } from "./chunk-reader.js";
import type { ChatQuirks, MediaKind } from "./chat-quirks.js";

/** Builds `messages`. Throws INVALID_ARGUMENT naming the field for what cannot be sent. */
export function chatMessages(input: CompletionInput, quirks: ChatQuirks, dropped: string[]): Json[] {
  const writer = new MessageWriter(quirks, dropped);
  for (const [at, message] of input.messages.entries()) writer.add(message, `input.messages[${at}]`);
  return writer.messages;
}

class MessageWriter {
  readonly messages: Record<string, unknown>[] = [];
  readonly #quirks: ChatQuirks;
  readonly #dropped: string[];

  constructor(quirks: ChatQuirks, dropped: string[]) {
    this.#quirks = quirks;
    this.#dropped = dropped;
  }

  add(message: ModelMessage, field: string): void {
    switch (message.role) {
      case Role.SYSTEM:
        this.messages.push({ role: "system", content: textOnly(message.parts, field) });
        break;
      case Role.USER:
      case Role.REMINDER: // what the model is reminded of stands last, and only the user may speak there
        this.#user(message.parts, field);
        break;
      case Role.ASSISTANT:
        this.#assistant(message.parts, field);
        break;
      case Role.TOOL:
        this.#toolResults(message.parts, field);
        break;
      case Role.UNSPECIFIED:
        throw invalid(`${field}.role`, "must be set");
      default:
        assertNever(message.role, "role");
    }
    if (message.cacheBreakpoint && this.#quirks.cacheMarks) this.#markCache();
  }

  #user(parts: readonly ContentPart[], field: string): void {
    const last = this.messages.at(-1);
    const isText = parts.every(({ part }) => part.case !== "media");
    if (isText && last?.["role"] === "tool" && !this.#quirks.userAfterTool) {
      last["content"] = `${String(last["content"])}\n\n${textOnly(parts, field)}`;
      return;
    }
    const content = isText ? textOnly(parts, field) : this.#contentParts(parts, field);
    this.messages.push({ role: "user", content });
  }

  #contentParts(parts: readonly ContentPart[], field: string): Json[] {
    return parts.flatMap(({ part }, at): Json[] => {
      if (part.case === "media")
        return [mediaPart(part.value, `${field}.parts[${at}].media`, this.#quirks.media)];
      const text = textOnly(parts.slice(at, at + 1), field);
      return text === "" ? [] : [{ type: "text", text }];
    });
  }

  /** A message that says nothing, as after a refusal, is left out: servers refuse it. */
  #assistant(parts: readonly ContentPart[], field: string): void {
    let content = "";
    let reasoning = "";
    const calls: Json[] = [];
    const details: unknown[] = [];
    const extras = extrasOfCalls(parts);
    for (const [at, { part }] of parts.entries()) {
      switch (part.case) {
        case "text":
        case "refusal":
          content += part.value;
          break;
        case "reasoning":
          reasoning += part.value;
          break;
        case "toolCall":
          calls.push({ ...this.#toolCall(part.value), ...extras.get(part.value.callId) });
          break;
        case "providerState":
          details.push(...listOf(readState(part.value, PROVIDER_STATE)));
          break;
        case "media": // what a model made cannot be given back to it
          if (!this.#dropped.includes("media")) this.#dropped.push("media");
          break;
        default:
          throw invalid(`${field}.parts[${at}]`, "is not a part that an assistant can have");
      }
    }
    const { reasoningField, nullContent } = this.#quirks;
    const more = {
      ...(calls.length > 0 && { tool_calls: calls }),
      ...(reasoningField !== "" && reasoning !== "" && { [reasoningField]: reasoning }),
      ...(details.length > 0 && { reasoning_details: details }),
    };
    if (content === "" && Object.keys(more).length === 0) return;
    const isNull = content === "" && calls.length > 0 && nullContent;
    this.messages.push({ role: "assistant", content: isNull ? null : content, ...more });
  }

  /** Servers refuse a conversation that holds arguments they cannot parse, so such a call goes back without them. */
  #toolCall(call: ToolCallPart): Json {
    const args = isJsonObject(call.argumentsJson) ? call.argumentsJson : "{}";
    return {
      id: this.#callId(call.callId),
      type: "function",
      function: { name: call.name, arguments: args },
    };
  }

  /** A tool's message holds text only: media follow in a user's message, after all results of the step. */
  #toolResults(parts: readonly ContentPart[], field: string): void {
    const media: Json[] = [];
    for (const [at, { part }] of parts.entries()) {
      if (part.case !== "toolResult") throw invalid(`${field}.parts[${at}]`, "must be a tool_result");
      const { callId, text } = part.value;
      this.messages.push({ role: "tool", tool_call_id: this.#callId(callId), content: text });
      media.push(...this.#resultMedia(part.value, `${field}.parts[${at}].tool_result.media`));
    }
    if (media.length > 0) this.messages.push({ role: "user", content: media });
  }

  #resultMedia({ callId, media }: ToolResultPart, field: string): Json[] {
    if (media.length === 0) return [];
    if (!this.#quirks.userAfterTool) {
      if (!this.#dropped.includes("media")) this.#dropped.push("media");
      return [];
    }
    const title = { type: "text", text: `Result of the call ${callId}:` };
    return [title, ...media.map((item, at) => mediaPart(item, `${field}[${at}]`, this.#quirks.media))];
  }

  #callId(id: string): string {
    return this.#quirks.callIds === "nine" ? nineCharacters(id) : id;
  }

  #markCache(): void {
    const last = this.messages.at(-1);
    const content = last?.["content"];
    const parts = typeof content === "string" && content !== "" ? [{ type: "text", text: content }] : content;
    if (!last || !Array.isArray(parts) || parts.length === 0) return;
    const end = { ...(parts.at(-1) as Json), cache_control: { type: "ephemeral" } };
    last["content"] = [...(parts.slice(0, -1) as Json[]), end];
  }
}

function mediaPart(media: MediaPart, field: string, kinds: readonly MediaKind[]): Json {
  const { mediaType } = media;
  const kind = /^image\//i.test(mediaType) ? "image" : /^audio\//i.test(mediaType) ? "audio" : "file";
  const text = mediaText(media);
  if (text !== undefined) return { type: "text", text };
  if (!kinds.includes(kind)) throw invalid(field, `is of type ${mediaType}, which this model does not take`);
  if (kind === "image") return { type: "image_url", image_url: { url: addressOf(media, field) } };
  if (media.source.case !== "data")
    throw invalid(field, "must hold its data: only images may be named by address");
  const data = Buffer.from(media.source.value).toString("base64");
  if (kind === "audio") return { type: "input_audio", input_audio: { data, format: audioFormat(mediaType) } };
  const filename = media.name === "" ? "document" : media.name;
  return { type: "file", file: { filename, file_data: `data:${mediaType};base64,${data}` } };
}

function addressOf(media: MediaPart, field: string): string {
  switch (media.source.case) {
    case "url":
      return media.source.value;
    case "data":
      return `data:${media.mediaType};base64,${Buffer.from(media.source.value).toString("base64")}`;
    default:
      throw invalid(field, "must hold its data or an address");
  }
}

function audioFormat(mediaType: string): string {
  return /mpeg|mp3/i.test(mediaType) ? "mp3" : (/^audio\/(?:x-)?([a-z0-9]+)/i.exec(mediaType)?.[1] ?? "wav");
}

/** The id itself if it has that form already, else one that always follows from it. */
function nineCharacters(id: string): string {
  if (/^[A-Za-z0-9]{9}$/.test(id)) return id;
  return createHash("sha256").update(id).digest("hex").slice(0, 9);
}

/** What belongs to calls and goes back with them, by their ids. */
function extrasOfCalls(parts: readonly ContentPart[]): ReadonlyMap<string, Json> {
  const extras = new Map<string, Json>();
  for (const { part } of parts) {
    if (part.case !== "providerState") continue;
    const { id, ...extra } = objectOf(readState(part.value, CALL_STATE));
    if (stringOf(id) !== "") extras.set(stringOf(id), extra);
  }
  return extras;
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : [];
}
