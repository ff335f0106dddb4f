/** The conversation as Responses wants it: a flat list of items. Pure. */
import {
  Role,
  type CompletionInput,
  type ContentPart,
  type MediaPart,
  type ModelMessage,
  type ToolResultPart,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { isJsonObject, objectOf, stringOf, type Json } from "../../json.js";
import { readState } from "../shared/provider-state.js";
import { invalid, mediaText, plainText, textOnly } from "../shared/request-input.js";
import { PROVIDER_STATE } from "./item.js";

/** Longer ids are refused. */
const MAX_CALL_ID_CHARS = 64;

/** The items of one message. Throws INVALID_ARGUMENT naming the field for what cannot be said. */
export function inputItems(message: ModelMessage, field: string): Json[] {
  switch (message.role) {
    case Role.UNSPECIFIED:
      throw invalid(`${field}.role`, "must be set");
    case Role.SYSTEM:
      return [{ role: "system", content: textOnly(message.parts, field) }];
    case Role.ASSISTANT:
      return new AssistantItems(message, field).items;
    case Role.TOOL:
      return message.parts.map(({ part }, at) => {
        if (part.case !== "toolResult") throw invalid(`${field}.parts[${at}]`, "must be a tool_result");
        return resultItem(part.value, `${field}.parts[${at}].tool_result`);
      });
    default:
      return [
        {
          role: "user",
          content: message.parts.flatMap((part, at) => userPart(part, `${field}.parts[${at}]`)),
        },
      ];
  }
}

/** All items. */
export function conversationItems(input: CompletionInput): Json[] {
  return input.messages.flatMap((message, at) => inputItems(message, `input.messages[${at}]`));
}

/**
 * Takes a model's message apart. Reasoning goes back sealed, as the item it came in, and only before the item that it led
 * to: alone it is refused.
 */
class AssistantItems {
  readonly items: Json[] = [];
  readonly #reasoning: Json[] = [];
  #text: { readonly type: string; readonly text?: string; readonly refusal?: string }[] = [];

  constructor(message: ModelMessage, field: string) {
    for (const [at, part] of message.parts.entries()) this.#part(part, `${field}.parts[${at}]`);
    this.#endText("");
  }

  #part(content: ContentPart, field: string): void {
    const { part } = content;
    switch (part.case) {
      case "text":
        if (part.value !== "") this.#text.push({ type: "output_text", text: part.value });
        return;
      case "refusal":
        this.#text.push({ type: "refusal", refusal: part.value });
        return;
      case "toolCall": {
        const { callId, name, argumentsJson } = part.value;
        // Servers refuse a conversation that holds arguments they cannot parse.
        const args = isJsonObject(argumentsJson) ? argumentsJson : "{}";
        this.#add({ type: "function_call", call_id: shortId(callId), name, arguments: args });
        return;
      }
      case "providerState":
        this.#state(objectOf(readState(part.value, PROVIDER_STATE)));
        return;
      case "toolResult":
        throw invalid(field, "is not a part that an assistant can have");
      case "reasoning":
      case "media":
      case undefined:
        return; // open reasoning and what the model drew are not taken back
    }
  }

  #state(item: Json): void {
    const type = stringOf(item["type"]);
    if (type === "phase") this.#endText(stringOf(item["phase"]));
    else if (type === "reasoning") {
      this.#endText("");
      this.#reasoning.push(item);
    } else if (type !== "") this.#add(item);
  }

  #endText(phase: string): void {
    if (this.#text.length === 0) return;
    const content = this.#text;
    this.#text = [];
    this.#add({ role: "assistant", content, ...(phase !== "" && { phase }) });
  }

  #add(item: Json): void {
    this.#endText("");
    this.items.push(...this.#reasoning.splice(0), item);
  }
}

function userPart(part: ContentPart, field: string): Json[] {
  if (part.part.case === "media") return [mediaItem(part.part.value, `${field}.media`)];
  const text = part.part.case === "reasoning" || part.part.case === "providerState" ? "" : plainText(part);
  if (text === undefined) throw invalid(field, "is not a part that this role can have");
  return text === "" ? [] : [{ type: "input_text", text }];
}

function resultItem(result: ToolResultPart, field: string): Json {
  const media = result.media.map((each, at) => mediaItem(each, `${field}.media[${at}]`));
  const text = result.text === "" ? [] : [{ type: "input_text", text: result.text }];
  return {
    type: "function_call_output",
    call_id: shortId(result.callId),
    output: media.length === 0 ? result.text : [...text, ...media],
  };
}

function mediaItem(media: MediaPart, field: string): Json {
  const { mediaType, source, name } = media;
  const text = mediaText(media);
  if (text !== undefined) return { type: "input_text", text };
  if (source.case !== "data" && source.case !== "url")
    throw invalid(field, "must hold its data or an address");
  if (mediaType.startsWith("audio/") || mediaType.startsWith("video/"))
    throw invalid(field, `has a type that this dialect does not take: ${mediaType}`);
  const isImage = mediaType.startsWith("image/");
  if (source.case === "url")
    return isImage
      ? { type: "input_image", image_url: source.value }
      : { type: "input_file", file_url: source.value };
  const url = `data:${mediaType};base64,${Buffer.from(source.value).toString("base64")}`;
  return isImage
    ? { type: "input_image", image_url: url }
    : { type: "input_file", filename: name || "file", file_data: url };
}

/** Ids of other providers may be longer than this one takes: both ends tell them apart. */
function shortId(id: string): string {
  if (id.length <= MAX_CALL_ID_CHARS) return id;
  const half = MAX_CALL_ID_CHARS / 2;
  return id.slice(0, half) + id.slice(-half);
}
