/** What the request builders of all dialects need of a CompletionInput: checked tools, schemas, options, media. Pure. */
import {
  ToolChoiceMode,
  type CompletionInput,
  type ContentPart,
  type MediaPart,
  type ToolCallPart,
  type ToolDefinition,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../../lib/errors.js";
import type { ModelConfig } from "../../config.js";
import { isJsonObject, nestsDeeper, objectOf, parseJson, type Json } from "../../json.js";

/** Servers take no more levels either, and writing very deep JSON overflows the stack. */
const MAX_NESTING = 64;

/** A request body that is being built. */
export type RequestBody = Record<string, unknown>;

/** INVALID_ARGUMENT that names the field. */
export function invalid(field: string, what: string): TurnError {
  return new TurnError(ErrorCode.INVALID_ARGUMENT, { message: `${field} ${what}`, details: { field } });
}

export interface OfferedTools {
  readonly tools: readonly ToolDefinition[];
  readonly mode: "auto" | "none" | "required" | "one";
  /** The tool, for `one`; else "". */
  readonly toolName: string;
}

/** The tools and the choice, checked. Without tools nothing is offered, whatever the choice. */
export function offeredTools(input: CompletionInput, model: ModelConfig, dropped: string[]): OfferedTools {
  if (input.tools.length > 0 && model.tools === false) dropped.push("tools");
  const tools = model.tools === false ? [] : input.tools;
  const toolName = input.toolChoice?.toolName ?? "";
  switch (input.toolChoice?.mode) {
    case ToolChoiceMode.NONE:
      return { tools, mode: "none", toolName: "" };
    case ToolChoiceMode.REQUIRED:
      return { tools, mode: "required", toolName: "" };
    case ToolChoiceMode.ONE:
      if (tools.length > 0 && !tools.some(({ name }) => name === toolName))
        throw invalid("input.tool_choice.tool_name", "names no offered tool");
      return { tools, mode: "one", toolName };
    default:
      return { tools, mode: "auto", toolName: "" };
  }
}

/** The JSON schema of a tool's arguments. */
export function parametersOf(tool: ToolDefinition, at: number): Json {
  if (tool.parametersJsonSchema === "") return { type: "object", properties: {} };
  return jsonField(tool.parametersJsonSchema, `input.tools[${at}].parameters_json_schema`);
}

/** The JSON schema of the answer; undefined = any JSON, or no format asked for. */
export function answerSchemaOf(input: CompletionInput): Json | undefined {
  const schema = input.responseFormat?.jsonSchema ?? "";
  return schema === "" ? undefined : jsonField(schema, "input.response_format.json_schema");
}

function jsonField(text: string, field: string): Json {
  if (!isJsonObject(text)) throw invalid(field, "is not a JSON object");
  const value = objectOf(parseJson(text));
  if (nestsDeeper(value, MAX_NESTING)) throw invalid(field, `is nested deeper than ${MAX_NESTING} levels`);
  return value;
}

/** The seed, if it fits the server's number; otherwise it is dropped. */
export function seedOf(input: CompletionInput, max: number, dropped: string[]): number | undefined {
  const { seed } = input.sampling ?? {};
  if (seed === undefined) return undefined;
  const value = Number(seed);
  if (Number.isSafeInteger(value) && Math.abs(value) <= max) return value;
  dropped.push("seed");
  return undefined;
}

/** The stop texts, as many as the server takes. */
export function stopTexts(input: CompletionInput, max: number, dropped: string[]): string[] | undefined {
  const stop = input.sampling?.stop ?? [];
  if (stop.length > max) dropped.push("stop");
  return stop.length === 0 ? undefined : stop.slice(0, max);
}

/** Names the parameters of the list that are set: this server takes none of them. */
export function dropSet(dropped: string[], parameters: Readonly<Record<string, unknown>>): void {
  for (const [name, value] of Object.entries(parameters)) if (value !== undefined) dropped.push(name);
}

/** The members of the object that are set. */
export function setMembers(members: Readonly<Record<string, unknown>>): RequestBody {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined));
}

/** The calls of the conversation by their id: results name the call only. */
export function callsById(input: CompletionInput): ReadonlyMap<string, ToolCallPart> {
  const calls = new Map<string, ToolCallPart>();
  for (const { parts } of input.messages)
    for (const { part } of parts) if (part.case === "toolCall") calls.set(part.value.callId, part.value);
  return calls;
}

/** Arguments as an object; {} where the model wrote none that parse or far too deep ones: servers refuse anything else. */
export function argumentsOf(call: ToolCallPart): Json {
  const value = isJsonObject(call.argumentsJson) ? objectOf(parseJson(call.argumentsJson)) : {};
  return nestsDeeper(value, MAX_NESTING) ? {} : value;
}

/** Text and refusal as they are; undefined = the part is no text. */
export function plainText({ part }: ContentPart): string | undefined {
  return part.case === "text" || part.case === "refusal" ? part.value : undefined;
}

/** The text of a message that can hold nothing else. */
export function textOnly(parts: readonly ContentPart[], field: string): string {
  return parts
    .map((part, at) => {
      if (part.part.case === "providerState" || part.part.case === "reasoning") return "";
      const text = plainText(part);
      if (text === undefined) throw invalid(`${field}.parts[${at}]`, "is not a part that this role can have");
      return text;
    })
    .join("");
}

/** The content of media that must travel in the request. */
export function mediaData(media: MediaPart, field: string): Buffer {
  if (media.source.case === "data") return Buffer.from(media.source.value);
  const what =
    media.source.case === "url"
      ? "must hold its data: this provider fetches no addresses"
      : "must hold its data or an address";
  throw invalid(field, what);
}

/** A document that is text anyway, with its name; undefined = it is not. */
export function mediaText(media: MediaPart): string | undefined {
  const isText = /^(text\/|application\/(json|xml|yaml|x-yaml|javascript)\b)/i.test(media.mediaType);
  if (!isText || media.source.case !== "data") return undefined;
  const text = Buffer.from(media.source.value).toString("utf8");
  return media.name === "" ? text : `${media.name}:\n${text}`;
}

/**
 * Adds the caller's own fields: objects are merged, lists named in `appended` grow, all else is replaced. Throws
 * INVALID_ARGUMENT for a `reserved` field: the call would not be the one that was asked for.
 */
export function addProviderOptions(
  body: RequestBody,
  input: CompletionInput,
  reserved: readonly string[],
  appended: readonly string[] = [],
): void {
  if (input.providerOptionsJson === "") return;
  const field = "input.provider_options_json";
  const options = jsonField(input.providerOptionsJson, field);
  const taken = reserved.find((name) => name in options);
  if (taken !== undefined) throw invalid(field, `must not set ${taken}`);
  merge(body, options, appended);
}

function merge(body: RequestBody, options: Json, appended: readonly string[]): void {
  for (const [name, value] of Object.entries(options)) {
    if (name === "__proto__") continue;
    const present = body[name];
    if (appended.includes(name) && Array.isArray(present) && Array.isArray(value))
      body[name] = [...(present as unknown[]), ...(value as unknown[])];
    else if (isPlainObject(present) && isPlainObject(value))
      body[name] = merged({ ...present }, value, appended);
    else body[name] = value;
  }
}

function merged(body: RequestBody, options: Json, appended: readonly string[]): RequestBody {
  merge(body, options, appended);
  return body;
}

function isPlainObject(value: unknown): value is RequestBody {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
