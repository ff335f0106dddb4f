/** The request body of Anthropic Messages. Pure. */
import type { CompletionInput } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ReasoningEffort } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import type { ModelConfig } from "../../config.js";
import {
  addProviderOptions,
  answerSchemaOf,
  dropSet,
  offeredTools,
  parametersOf,
  type OfferedTools,
  type RequestBody,
} from "../shared/request-input.js";
import {
  askingToGoOn,
  conversationOf,
  endsInAnswer,
  goesOnWithoutThinking,
  type Conversation,
} from "./messages.js";
import { familyOf, type ClaudeFamily } from "./models.js";

export interface MessagesRequest {
  readonly body: Readonly<RequestBody>;
  /** Parameters that were set and that this model does not take. */
  readonly dropped: readonly string[];
}

/** Where neither the request nor the model's settings say how long an answer may be. */
const DEFAULT_MAX_TOKENS = 32_000;
const MIN_THINKING_TOKENS = 1_024;
const MAX_STOP_TEXTS = 16;
const EFFORTS = {
  [ReasoningEffort.LOW]: { name: "low", budget: 2_048 },
  [ReasoningEffort.MEDIUM]: { name: "medium", budget: 8_192 },
  [ReasoningEffort.HIGH]: { name: "high", budget: 24_576 },
} as const;

/** Builds the request. Throws INVALID_ARGUMENT naming the field for one that cannot be sent. */
export function buildMessagesRequest(input: CompletionInput, model: ModelConfig): MessagesRequest {
  const dropped: string[] = [];
  const family = familyOf(model.upstreamModel);
  const conversation = conversationOf(input);
  const offered = offeredTools(input, model, dropped);
  const body: RequestBody = {
    model: model.upstreamModel,
    max_tokens: maxTokens(input, model, family),
    ...(conversation.system.length > 0 && { system: conversation.system }),
    messages:
      endsInAnswer(conversation) && !family.goesOn ? askingToGoOn(conversation) : conversation.messages,
    stream: true,
  };
  addTools(body, input, offered, family);
  addReasoning(body, { input, model, family, conversation, offered }, dropped);
  addSampling(body, input, family, dropped);
  addAnswerFormat(body, input, family, dropped);
  addProviderOptions(body, input, ["model", "messages", "system", "stream"], ["tools"]);
  return { body, dropped };
}

/** The members that say what is to be counted. */
const COUNTED = ["model", "system", "messages", "tools", "tool_choice", "thinking"];

/** The request that counts the tokens of the same call. */
export function buildCountRequest(input: CompletionInput, model: ModelConfig): MessagesRequest {
  const { body, dropped } = buildMessagesRequest(input, model);
  return {
    body: Object.fromEntries(Object.entries(body).filter(([name]) => COUNTED.includes(name))),
    dropped,
  };
}

function maxTokens(input: CompletionInput, model: ModelConfig, family: ClaudeFamily): number {
  const most = model.maxOutputTokens || family.maxOutputTokens;
  return Math.min(input.sampling?.maxOutputTokens ?? DEFAULT_MAX_TOKENS, most);
}

function addTools(
  body: RequestBody,
  input: CompletionInput,
  offered: OfferedTools,
  family: ClaudeFamily,
): void {
  if (offered.tools.length === 0) return;
  body["tools"] = offered.tools.map((tool, at) => ({
    name: tool.name,
    ...(tool.description !== "" && { description: tool.description }),
    input_schema: { type: "object", ...parametersOf(tool, at) },
    ...(tool.strict && family.schema && { strict: true }),
  }));
  const oneAtATime = input.parallelToolCalls === false && offered.mode !== "none";
  if (input.toolChoice === undefined && !oneAtATime) return;
  body["tool_choice"] = { ...choiceOf(offered), ...(oneAtATime && { disable_parallel_tool_use: true }) };
}

function choiceOf({ mode, toolName }: OfferedTools): RequestBody {
  switch (mode) {
    case "required":
      return { type: "any" };
    case "one":
      return { type: "tool", name: toolName };
    default:
      return { type: mode };
  }
}

interface ReasoningCase {
  readonly input: CompletionInput;
  readonly model: ModelConfig;
  readonly family: ClaudeFamily;
  readonly conversation: Conversation;
  readonly offered: OfferedTools;
}

/** No thinking beside a forced call, nor in the middle of an answer that began without. Off is what happens if nothing is said. */
function addReasoning(body: RequestBody, call: ReasoningCase, dropped: string[]): void {
  const { input, model, family, conversation, offered } = call;
  const effort = input.reasoningEffort;
  if (effort === ReasoningEffort.UNSPECIFIED || effort === ReasoningEffort.OFF) return;
  const { name, budget } = EFFORTS[effort];
  const forced = offered.tools.length > 0 && (offered.mode === "required" || offered.mode === "one");
  const limit = Number(body["max_tokens"]);
  const tokens = Math.min(budget, Math.floor(limit * 0.8));
  const goesOn = family.goesOn && endsInAnswer(conversation);
  const possible = model.reasoning !== false && !forced && !goesOn && !goesOnWithoutThinking(conversation);
  if (possible && family.thinking === "adaptive") {
    body["thinking"] = { type: "adaptive", ...(family.hidesThinking && { display: "summarized" }) };
  } else if (possible && family.thinking === "budget" && tokens >= MIN_THINKING_TOKENS) {
    body["thinking"] = { type: "enabled", budget_tokens: tokens };
  } else {
    dropped.push("reasoning_effort");
    return;
  }
  if (family.effort) body["output_config"] = { effort: name };
}

/** Thinking models pick their words themselves. */
function addSampling(
  body: RequestBody,
  input: CompletionInput,
  family: ClaudeFamily,
  dropped: string[],
): void {
  const sampling = input.sampling;
  if (!sampling) return;
  const takes = body["thinking"] === undefined ? family.sampling : "none";
  const { temperature, topP, presencePenalty, frequencyPenalty, seed } = sampling;
  if (takes === "none") {
    dropSet(dropped, { temperature, top_p: topP });
  } else {
    if (temperature !== undefined) body["temperature"] = Math.min(temperature, 1);
    if (temperature !== undefined && temperature > 1) dropped.push("temperature");
    const isOneTooMany = takes === "one" && temperature !== undefined;
    if (isOneTooMany) dropSet(dropped, { top_p: topP });
    else if (topP !== undefined) body["top_p"] = topP;
  }
  dropSet(dropped, { presence_penalty: presencePenalty, frequency_penalty: frequencyPenalty, seed });
  const stop = sampling.stop.filter((text) => text.trim() !== "");
  if (stop.length < sampling.stop.length || stop.length > MAX_STOP_TEXTS) dropped.push("stop");
  if (stop.length > 0) body["stop_sequences"] = stop.slice(0, MAX_STOP_TEXTS);
}

function addAnswerFormat(
  body: RequestBody,
  input: CompletionInput,
  family: ClaudeFamily,
  dropped: string[],
): void {
  if (!input.responseFormat) return;
  const schema = answerSchemaOf(input);
  if (schema === undefined || !family.schema) {
    dropped.push("response_format");
    return;
  }
  const config = (body["output_config"] ?? {}) as RequestBody;
  body["output_config"] = { ...config, format: { type: "json_schema", schema } };
}
