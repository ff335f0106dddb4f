/** The request of Cohere's v2 chat. Pure. */
import type {
  CompletionInput,
  ContentPart,
  MediaPart,
  ToolCallPart,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ReasoningEffort } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import type { ModelConfig } from "../../config.js";
import { stringOf, type Json } from "../../json.js";
import { messagesByRole, onlyOffered } from "../shared/chat-roles.js";
import { readState } from "../shared/provider-state.js";
import {
  addProviderOptions,
  answerSchemaOf,
  argumentsOf,
  invalid,
  mediaData,
  mediaText,
  offeredTools,
  plainText,
  seedOf,
  setMembers,
  stopTexts,
  type RequestBody,
} from "../shared/request-input.js";
import { COHERE_PLAN_STATE } from "./reader.js";

const MAX_STOP_TEXTS = 5;
/** Models that reason; the others refuse `thinking`. */
const REASONING_MODELS = /reasoning|command-a-plus/i;

export interface CohereRequest {
  readonly body: Readonly<Record<string, unknown>>;
  readonly dropped: readonly string[];
}

/** Builds the streamed call. Throws INVALID_ARGUMENT naming the field. */
export function buildCohereRequest(input: CompletionInput, model: ModelConfig): CohereRequest {
  const dropped: string[] = [];
  const writers = { user: userMessage, assistant: assistantMessage, toolResult: toolMessage };
  const messages = messagesByRole(input, writers);
  const body: RequestBody = { model: model.upstreamModel, messages, stream: true };
  addTools(body, input, model, dropped);
  Object.assign(body, samplingOf(input, dropped), thinkingOf(input, model, dropped));
  addResponseFormat(body, input, dropped);
  addProviderOptions(body, input, ["model", "messages", "stream", "tools"]);
  return { body, dropped };
}

function userMessage(parts: readonly ContentPart[], field: string): Json {
  const content = parts.flatMap((part, at): Json[] => {
    const where = `${field}.parts[${at}]`;
    const text = plainText(part);
    if (text !== undefined) return [{ type: "text", text }];
    if (part.part.case === "media") return [mediaContent(part.part.value, `${where}.media`)];
    if (part.part.case === "providerState") return [];
    throw invalid(where, "is not a part that this role can have");
  });
  const plain = content.every(({ type }) => type === "text");
  return { role: "user", content: plain ? content.map(({ text }) => text).join("") : content };
}

function mediaContent(media: MediaPart, field: string): Json {
  const document = mediaText(media);
  if (document !== undefined) return { type: "text", text: document };
  if (!/^image\//i.test(media.mediaType))
    throw invalid(field, "must be an image or a text: Cohere takes nothing else");
  const url =
    media.source.case === "url"
      ? media.source.value
      : `data:${media.mediaType};base64,${mediaData(media, field).toString("base64")}`;
  return { type: "image_url", image_url: { url } };
}

function assistantMessage(parts: readonly ContentPart[], field: string): Json | undefined {
  let text = "";
  let thinking = "";
  let plan = "";
  const calls: Json[] = [];
  for (const [at, part] of parts.entries()) {
    const said = plainText(part);
    if (said !== undefined) text += said;
    else if (part.part.case === "reasoning") thinking += part.part.value;
    else if (part.part.case === "toolCall") calls.push(toolCall(part.part.value));
    else if (part.part.case === "providerState") {
      plan += stringOf(readState(part.part.value, COHERE_PLAN_STATE));
    } else throw invalid(`${field}.parts[${at}]`, "is not a part that an assistant can have");
  }
  const content = [
    ...(thinking === "" ? [] : [{ type: "thinking", thinking }]),
    ...(text === "" ? [] : [{ type: "text", text }]),
  ];
  if (content.length === 0 && calls.length === 0) return undefined;
  return {
    role: "assistant",
    ...(content.length > 0 && { content: thinking === "" ? text : content }),
    ...(plan !== "" && { tool_plan: plan }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}

function toolCall(call: ToolCallPart): Json {
  const fn = { name: call.name, arguments: JSON.stringify(argumentsOf(call)) };
  return { id: call.callId, type: "function", function: fn };
}

function toolMessage({ part }: ContentPart, field: string): Json {
  if (part.case !== "toolResult") throw invalid(field, "must be a tool_result");
  if (part.value.media.length > 0)
    throw invalid(`${field}.tool_result.media`, "must be empty: Cohere takes text from tools");
  return { role: "tool", tool_call_id: part.value.callId, content: part.value.text };
}

function addTools(body: RequestBody, input: CompletionInput, model: ModelConfig, dropped: string[]): void {
  const offered = offeredTools(input, model, dropped);
  const { tools, mode } = offered;
  if (tools.length === 0) return;
  body["tools"] = onlyOffered(offered);
  if (mode === "none") body["tool_choice"] = "NONE";
  else if (mode !== "auto") body["tool_choice"] = "REQUIRED";
  if (tools.some(({ strict }) => strict)) body["strict_tools"] = true;
  if (input.parallelToolCalls === false) dropped.push("parallel_tool_calls");
}

/** Cohere's ranges are narrower than ours: temperature and penalties end at 1, negative penalties do not exist. */
function samplingOf(input: CompletionInput, dropped: string[]): RequestBody {
  const { sampling } = input;
  return setMembers({
    temperature: between(0, 1, "temperature", sampling?.temperature, dropped),
    p: between(0.01, 0.99, "top_p", sampling?.topP, []), // the ends mean the same to a model
    max_tokens: sampling?.maxOutputTokens,
    seed: seedOf(input, Number.MAX_SAFE_INTEGER, dropped),
    stop_sequences: stopTexts(input, MAX_STOP_TEXTS, dropped),
    presence_penalty: between(0, 1, "presence_penalty", sampling?.presencePenalty, dropped),
    frequency_penalty: between(0, 1, "frequency_penalty", sampling?.frequencyPenalty, dropped),
  });
}

/** The nearest value that is taken, and said where it is another. */
function between(
  min: number,
  max: number,
  name: string,
  value: number | undefined,
  dropped: string[],
): number | undefined {
  if (value === undefined) return undefined;
  if (value < min || value > max) dropped.push(name);
  return Math.min(Math.max(value, min), max);
}

const BUDGETS = {
  [ReasoningEffort.LOW]: 1_024,
  [ReasoningEffort.MEDIUM]: 8_192,
  [ReasoningEffort.HIGH]: undefined, // no limit
} as const;

function thinkingOf(input: CompletionInput, model: ModelConfig, dropped: string[]): Json {
  const effort = input.reasoningEffort;
  const reasons = model.reasoning ?? REASONING_MODELS.test(model.upstreamModel);
  if (effort === ReasoningEffort.UNSPECIFIED) return {};
  if (!reasons) {
    if (effort !== ReasoningEffort.OFF) dropped.push("reasoning_effort");
    return {};
  }
  if (effort === ReasoningEffort.OFF) return { thinking: { type: "disabled" } };
  return { thinking: setMembers({ type: "enabled", token_budget: BUDGETS[effort] }) };
}

/** Cohere gives a JSON answer only where no tools are offered. */
function addResponseFormat(body: RequestBody, input: CompletionInput, dropped: string[]): void {
  if (!input.responseFormat) return;
  const schema = answerSchemaOf(input);
  if (body["tools"] !== undefined) dropped.push("response_format");
  else body["response_format"] = setMembers({ type: "json_object", json_schema: schema });
}
