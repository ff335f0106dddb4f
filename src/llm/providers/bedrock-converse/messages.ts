/** The conversation as Bedrock's Converse takes it: users and assistants in turn, ids and names as it wants them. Pure. */
import {
  Role,
  type CompletionInput,
  type ContentPart,
  type MediaPart,
  type ModelMessage,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { assertNever } from "../../../lib/assert-never.js";
import { objectOf, type Json } from "../../json.js";
import { readState } from "../shared/provider-state.js";
import { argumentsOf, invalid, mediaData, plainText, textOnly } from "../shared/request-input.js";
import { BEDROCK_REASONING_STATE } from "./reader.js";

export interface Conversation {
  readonly system: Json[];
  readonly messages: readonly { readonly role: "user" | "assistant"; readonly content: Json[] }[];
  /** Names of the tools that were called. */
  readonly calledTools: ReadonlySet<string>;
}

/** Cache points that one request may have. */
const MAX_CACHE_POINTS = 4;
const CACHE_POINT: Json = { cachePoint: { type: "default" } };

/** `cache`: the model knows cache points; only the last few breakpoints become some. */
export function conversationOf(input: CompletionInput, cache: boolean): Conversation {
  const marked = input.messages.filter((message) => message.cacheBreakpoint).slice(-MAX_CACHE_POINTS);
  const writer = new MessageWriter();
  const system: Json[] = [];
  const messages: { role: "user" | "assistant"; content: Json[] }[] = [];
  for (const [at, message] of input.messages.entries()) {
    const content = writer.contentOf(message, `input.messages[${at}]`);
    if (content.length > 0 && cache && marked.includes(message)) content.push(CACHE_POINT);
    const role = message.role === Role.ASSISTANT ? "assistant" : "user";
    const last = messages.at(-1);
    if (message.role === Role.SYSTEM) system.push(...content);
    else if (last?.role === role) last.content.push(...content);
    else if (content.length > 0) messages.push({ role, content });
  }
  return { system, messages, calledTools: writer.calledTools };
}

/** Writes the contents of one conversation; owns the names that must not repeat in it. */
class MessageWriter {
  readonly calledTools = new Set<string>();
  readonly #callIds = new Map<string, string>();
  readonly #documentNames = new Map<string, number>();

  contentOf(message: ModelMessage, field: string): Json[] {
    switch (message.role) {
      case Role.SYSTEM:
        return textBlocks(textOnly(message.parts, field));
      case Role.USER:
      case Role.REMINDER:
      case Role.ASSISTANT:
      case Role.TOOL:
        return message.parts.flatMap((part, at) => this.#part(part, message.role, `${field}.parts[${at}]`));
      case Role.UNSPECIFIED:
        throw invalid(`${field}.role`, "must be set");
      default:
        return assertNever(message.role, "role");
    }
  }

  #part(content: ContentPart, role: Role, field: string): Json[] {
    const { part } = content;
    const text = plainText(content);
    if (text !== undefined && role !== Role.TOOL) return textBlocks(text);
    if (part.case === "toolResult" && role === Role.TOOL) return [this.#toolResult(part.value, field)];
    if (part.case === "toolCall" && role === Role.ASSISTANT) {
      this.calledTools.add(part.value.name);
      const toolUseId = this.#callId(part.value.callId);
      return [{ toolUse: { toolUseId, name: part.value.name, input: argumentsOf(part.value) } }];
    }
    if (part.case === "media" && role !== Role.TOOL) return [this.#media(part.value, `${field}.media`)];
    if (part.case === "reasoning") return []; // only signed reasoning goes back, from its state
    if (part.case === "providerState") {
      const block = readState(part.value, BEDROCK_REASONING_STATE);
      return block !== undefined && role === Role.ASSISTANT ? [{ reasoningContent: objectOf(block) }] : [];
    }
    throw invalid(field, "is not a part that this role can have");
  }

  #toolResult(
    result: { callId: string; text: string; isError: boolean; media: MediaPart[] },
    field: string,
  ): Json {
    const media = result.media.map((item, at) => this.#media(item, `${field}.tool_result.media[${at}]`));
    const text = result.text.trim() === "" && media.length === 0 ? "(empty)" : result.text; // blank texts are refused
    return {
      toolResult: {
        toolUseId: this.#callId(result.callId),
        content: [...textBlocks(text), ...media],
        status: result.isError ? "error" : "success",
      },
    };
  }

  /** Bedrock takes short ids only; the others get one of their own. */
  #callId(callId: string): string {
    if (/^[A-Za-z0-9_-]{1,64}$/.test(callId)) return callId;
    const known = this.#callIds.get(callId) ?? `tooluse_${this.#callIds.size + 1}`;
    this.#callIds.set(callId, known);
    return known;
  }

  #media(media: MediaPart, field: string): Json {
    const [kind, format] = formatOf(media.mediaType) ?? [];
    if (!kind) throw invalid(field, "must be an image, a document or a video that Bedrock takes");
    const source = sourceOf(media, field);
    if (kind !== "document") return { [kind]: { format, source } };
    return { document: { format, name: this.#documentName(media.name), source } };
  }

  /** Letters, digits, blanks, hyphens and brackets only, and no name twice. */
  #documentName(name: string): string {
    const clean =
      name
        .replace(/[^A-Za-z0-9\s\-()[\]]/g, "-")
        .replace(/\s+/g, " ")
        .trim() || "document";
    const count = (this.#documentNames.get(clean) ?? 0) + 1;
    this.#documentNames.set(clean, count);
    return count === 1 ? clean : `${clean} (${count})`;
  }
}

function textBlocks(text: string): Json[] {
  return text.trim() === "" ? [] : [{ text }];
}

function sourceOf(media: MediaPart, field: string): Json {
  if (media.source.case === "url" && media.source.value.startsWith("s3://"))
    return { s3Location: { uri: media.source.value } };
  return { bytes: mediaData(media, field).toString("base64") };
}

const FORMATS: ReadonlyMap<string, readonly ["image" | "document" | "video", string]> = new Map([
  ...formats("image", { "image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp" }),
  ...formats("document", {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
  }),
  ...formats("video", {
    "video/mp4": "mp4",
    "video/quicktime": "mov",
    "video/x-matroska": "mkv",
    "video/webm": "webm",
    "video/mpeg": "mpeg",
    "video/x-ms-wmv": "wmv",
    "video/3gpp": "three_gp",
  }),
]);

function formats(kind: "image" | "document" | "video", names: Readonly<Record<string, string>>) {
  return Object.entries(names).map(([type, name]) => [type, [kind, name]] as const);
}

function formatOf(mediaType: string) {
  return FORMATS.get(mediaType.toLowerCase().replace(/;.*$/, "").trim());
}
