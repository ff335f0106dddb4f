/** The request body of the OpenAI chat dialect. Pure. */
import {
  Role,
  ToolChoiceMode,
  type CompletionInput,
  type ContentPart,
  type ModelMessage,
  type ToolCallPart,
  type ToolDefinition,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, ReasoningEffort } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { assertNever } from "../../../lib/assert-never.js";
import { TurnError } from "../../../lib/errors.js";
import type { ModelConfig } from "../../config.js";
import { isJsonObject, objectOf, parseJson, type Json } from "../../json.js";
import { PROVIDER_STATE } from "./chunk-reader.js";
import type { OpenAiChatQuirks } from "./vendors.js";

export interface ChatRequest {
  readonly body: Readonly<Record<string, unknown>>;
  /** Parameters that were set and left out. */
  readonly dropped: readonly string[];
}

/** Members that options must not replace: the call would not be the one that was asked for. */
const RESERVED_OPTIONS = ["model", "messages", "stream", "n", "tools", "functions"];

/** Builds the request. Throws INVALID_ARGUMENT or NOT_BUILT naming the field. */
export function buildChatRequest(
  input: CompletionInput,
  model: ModelConfig,
  quirks: OpenAiChatQuirks,
): ChatRequest {
  const dropped: string[] = [];
  const body: Record<string, unknown> = {
    model: model.upstreamModel,
    messages: input.messages.flatMap((message, at) => chatMessages(message, `input.messages[${at}]`, quirks)),
    stream: true,
  };
  if (quirks.streamUsage) body["stream_options"] = { include_usage: true };
  addTools(body, input, model, dropped);
  addSampling(body, input, quirks, dropped);
  addReasoningEffort(body, input, model, quirks, dropped);
  addResponseFormat(body, input);
  addProviderOptions(body, input);
  return { body, dropped };
}

function chatMessages(message: ModelMessage, field: string, quirks: OpenAiChatQuirks): Json[] {
  switch (message.role) {
    case Role.SYSTEM:
      return [{ role: "system", content: plainText(message.parts, field) }];
    case Role.USER:
    case Role.REMINDER: // what the model is reminded of stands last, and only the user may speak there
      return [{ role: "user", content: plainText(message.parts, field) }];
    case Role.ASSISTANT:
      return [assistantMessage(message, field, quirks)];
    case Role.TOOL:
      return toolMessages(message, field);
    case Role.UNSPECIFIED:
      throw invalid(`${field}.role`, "must be set");
    default:
      return assertNever(message.role, "role");
  }
}

/** Text of a message that can hold nothing else. */
function plainText(parts: readonly ContentPart[], field: string): string {
  const texts = parts.map(({ part }, at) => {
    switch (part.case) {
      case "text":
      case "refusal":
        return part.value;
      case "media":
        throw notBuilt(`${field}.parts[${at}].media`);
      case "providerState":
        return "";
      default:
        throw invalid(`${field}.parts[${at}]`, "is not a part that this role can have");
    }
  });
  return texts.join("");
}

function assistantMessage(message: ModelMessage, field: string, quirks: OpenAiChatQuirks): Json {
  let content = "";
  let reasoning = "";
  const calls: Json[] = [];
  const details: unknown[] = [];
  for (const [at, { part }] of message.parts.entries()) {
    switch (part.case) {
      case "text":
      case "refusal":
        content += part.value;
        break;
      case "reasoning":
        reasoning += part.value;
        break;
      case "toolCall":
        calls.push(toolCall(part.value));
        break;
      case "providerState":
        if (part.value.provider === PROVIDER_STATE)
          details.push(...listOf(Buffer.from(part.value.data).toString("utf8")));
        break;
      case "media":
        throw notBuilt(`${field}.parts[${at}].media`);
      default:
        throw invalid(`${field}.parts[${at}]`, "is not a part that an assistant can have");
    }
  }
  return {
    role: "assistant",
    content: content === "" && calls.length > 0 ? null : content,
    ...(calls.length > 0 && { tool_calls: calls }),
    ...(quirks.reasoningField !== "" && reasoning !== "" && { [quirks.reasoningField]: reasoning }),
    ...(details.length > 0 && { reasoning_details: details }),
  };
}

/** Servers refuse a conversation that holds arguments they cannot parse, so such a call goes back without them. */
function toolCall(call: ToolCallPart): Json {
  const args = isJsonObject(call.argumentsJson) ? call.argumentsJson : "{}";
  return { id: call.callId, type: "function", function: { name: call.name, arguments: args } };
}

function toolMessages(message: ModelMessage, field: string): Json[] {
  return message.parts.map(({ part }, at) => {
    if (part.case !== "toolResult") throw invalid(`${field}.parts[${at}]`, "must be a tool_result");
    if (part.value.media.length > 0) throw notBuilt(`${field}.parts[${at}].tool_result.media`);
    return { role: "tool", tool_call_id: part.value.callId, content: part.value.text };
  });
}

function addTools(
  body: Record<string, unknown>,
  input: CompletionInput,
  model: ModelConfig,
  dropped: string[],
): void {
  if (input.tools.length === 0) return;
  if (model.tools === false) {
    dropped.push("tools");
    return;
  }
  body["tools"] = input.tools.map((tool, at) => toolDefinition(tool, `input.tools[${at}]`));
  const choice = toolChoice(input);
  if (choice !== undefined) body["tool_choice"] = choice;
  if (input.parallelToolCalls !== undefined) body["parallel_tool_calls"] = input.parallelToolCalls;
}

function toolDefinition(tool: ToolDefinition, field: string): Json {
  const schema =
    tool.parametersJsonSchema === ""
      ? { type: "object", properties: {} }
      : parseJson(tool.parametersJsonSchema);
  if (schema === undefined) throw invalid(`${field}.parameters_json_schema`, "is not JSON");
  return {
    type: "function",
    function: {
      name: tool.name,
      description: tool.description,
      parameters: schema,
      ...(tool.strict && { strict: true }),
    },
  };
}

function toolChoice(input: CompletionInput): unknown {
  const choice = input.toolChoice;
  switch (choice?.mode) {
    case undefined:
    case ToolChoiceMode.UNSPECIFIED:
      return undefined;
    case ToolChoiceMode.AUTO:
      return "auto";
    case ToolChoiceMode.NONE:
      return "none";
    case ToolChoiceMode.REQUIRED:
      return "required";
    case ToolChoiceMode.ONE:
      if (!input.tools.some((tool) => tool.name === choice?.toolName)) {
        throw invalid("input.tool_choice.tool_name", "names no offered tool");
      }
      return { type: "function", function: { name: choice?.toolName } };
  }
}

function addSampling(
  body: Record<string, unknown>,
  input: CompletionInput,
  quirks: OpenAiChatQuirks,
  dropped: string[],
): void {
  const sampling = input.sampling;
  if (!sampling) return;
  const set = (name: string, value: unknown): void => void (value !== undefined && (body[name] = value));
  set("temperature", sampling.temperature);
  set("top_p", sampling.topP);
  set(quirks.maxTokensField, sampling.maxOutputTokens);
  set("presence_penalty", sampling.presencePenalty);
  set("frequency_penalty", sampling.frequencyPenalty);
  if (sampling.stop.length > 0) body["stop"] = [...sampling.stop];
  if (sampling.seed === undefined) return;
  const seed = Number(sampling.seed);
  if (Number.isSafeInteger(seed)) body["seed"] = seed;
  else dropped.push("seed");
}

const EFFORTS = {
  [ReasoningEffort.LOW]: "low",
  [ReasoningEffort.MEDIUM]: "medium",
  [ReasoningEffort.HIGH]: "high",
} as const;

function addReasoningEffort(
  body: Record<string, unknown>,
  input: CompletionInput,
  model: ModelConfig,
  quirks: OpenAiChatQuirks,
  dropped: string[],
): void {
  const effort = input.reasoningEffort;
  if (effort === ReasoningEffort.UNSPECIFIED) return;
  if (effort === ReasoningEffort.OFF) {
    if (model.reasoning === true && quirks.effortOff !== "") body["reasoning_effort"] = quirks.effortOff;
  } else if (model.reasoning === false) {
    dropped.push("reasoning_effort");
  } else {
    body["reasoning_effort"] = EFFORTS[effort];
  }
}

function addResponseFormat(body: Record<string, unknown>, input: CompletionInput): void {
  const format = input.responseFormat;
  if (!format) return;
  if (format.jsonSchema === "") {
    body["response_format"] = { type: "json_object" };
    return;
  }
  const schema = parseJson(format.jsonSchema);
  if (schema === undefined) throw invalid("input.response_format.json_schema", "is not JSON");
  const name = format.name === "" ? "answer" : format.name;
  body["response_format"] = { type: "json_schema", json_schema: { name, schema, strict: format.strict } };
}

function addProviderOptions(body: Record<string, unknown>, input: CompletionInput): void {
  if (input.providerOptionsJson === "") return;
  if (!isJsonObject(input.providerOptionsJson))
    throw invalid("input.provider_options_json", "is not a JSON object");
  const options = objectOf(parseJson(input.providerOptionsJson));
  const taken = RESERVED_OPTIONS.find((name) => name in options);
  if (taken !== undefined) throw invalid("input.provider_options_json", `must not set ${taken}`);
  for (const [name, value] of Object.entries(options)) {
    if (name !== "__proto__") body[name] = value;
  }
}

function listOf(json: string): unknown[] {
  const value = parseJson(json);
  return Array.isArray(value) ? (value as unknown[]) : [];
}

function invalid(field: string, what: string): TurnError {
  return new TurnError(ErrorCode.INVALID_ARGUMENT, { message: `${field} ${what}`, details: { field } });
}

function notBuilt(field: string): TurnError {
  return new TurnError(ErrorCode.NOT_BUILT, { message: `${field} is not built yet`, details: { field } });
}
