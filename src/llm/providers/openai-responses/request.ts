/** The request body of OpenAI Responses. Pure. The server is told to keep nothing: all it needs travels with each call. */
import { createHash } from "node:crypto";
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
import { conversationItems, inputItems } from "./input-items.js";
import { familyOf, type ModelFamily, type ResponsesQuirks } from "./models.js";

export interface ResponsesRequest {
  readonly body: Readonly<RequestBody>;
  /** Parameters that were set and that this model does not take. */
  readonly dropped: readonly string[];
}

/** Fewer are refused. */
const MIN_OUTPUT_TOKENS = 16;

const EFFORTS = {
  [ReasoningEffort.LOW]: "low",
  [ReasoningEffort.MEDIUM]: "medium",
  [ReasoningEffort.HIGH]: "high",
} as const;

/** Builds the request. Throws INVALID_ARGUMENT naming the field for one that cannot be sent. */
export function buildResponsesRequest(
  input: CompletionInput,
  model: ModelConfig,
  quirks: ResponsesQuirks,
): ResponsesRequest {
  const dropped: string[] = [];
  const family = familyOf(model.upstreamModel);
  const body: RequestBody = {
    model: model.upstreamModel,
    input: conversationItems(input),
    stream: true,
    store: false,
  };
  if (quirks.plainEvents) body["stream_options"] = { include_obfuscation: false };
  if (quirks.cacheKey) addCacheKey(body, input);
  addTools(body, input, offeredTools(input, model, dropped));
  addReasoning(body, { input, model, family, quirks }, dropped);
  addSampling(body, input, family, dropped);
  addAnswerFormat(body, input);
  addProviderOptions(body, input, ["model", "input", "stream"], ["tools", "include"]);
  return { body, dropped };
}

/** The members that say what is to be counted. */
const COUNTED = ["model", "input", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text"];

/** The request that counts the tokens of the same call. */
export function buildCountRequest(
  input: CompletionInput,
  model: ModelConfig,
  quirks: ResponsesQuirks,
): ResponsesRequest {
  const { body, dropped } = buildResponsesRequest(input, model, quirks);
  return {
    body: Object.fromEntries(Object.entries(body).filter(([name]) => COUNTED.includes(name))),
    dropped,
  };
}

/** Calls that share the conversation up to its first breakpoint go to the same cache. */
function addCacheKey(body: RequestBody, input: CompletionInput): void {
  const end = input.messages.findIndex(({ cacheBreakpoint }) => cacheBreakpoint);
  if (end === -1) return;
  const shared = input.messages
    .slice(0, end + 1)
    .map((message, at) => inputItems(message, `input.messages[${at}]`));
  const text = JSON.stringify([body["model"], shared]);
  body["prompt_cache_key"] = createHash("sha256").update(text).digest("hex").slice(0, 32);
}

function addTools(body: RequestBody, input: CompletionInput, offered: OfferedTools): void {
  if (offered.tools.length === 0) return;
  body["tools"] = offered.tools.map((tool, at) => ({
    type: "function",
    name: tool.name,
    ...(tool.description !== "" && { description: tool.description }),
    parameters: parametersOf(tool, at),
    strict: tool.strict, // left out, it would mean true
  }));
  if (input.toolChoice !== undefined)
    body["tool_choice"] =
      offered.mode === "one" ? { type: "function", name: offered.toolName } : offered.mode;
  if (input.parallelToolCalls !== undefined) body["parallel_tool_calls"] = input.parallelToolCalls;
}

interface ReasoningCase {
  readonly input: CompletionInput;
  readonly model: ModelConfig;
  readonly family: ModelFamily;
  readonly quirks: ResponsesQuirks;
}

function addReasoning(
  body: RequestBody,
  { input, model, family, quirks }: ReasoningCase,
  dropped: string[],
): void {
  const wanted = input.reasoningEffort;
  const reasons = model.reasoning ?? family.reasons;
  if (reasons === false) {
    if (wanted !== ReasoningEffort.UNSPECIFIED && wanted !== ReasoningEffort.OFF)
      dropped.push("reasoning_effort");
    return;
  }
  const effort = effortOf(wanted, family, reasons, dropped);
  const isOff = wanted === ReasoningEffort.OFF && effort !== undefined && effort === family.effortOff;
  const shows = (reasons === true || effort !== undefined) && !(isOff && effort === "none");
  const reasoning = {
    ...(effort !== undefined && { effort }),
    ...(shows && quirks.reasoningSummary && { summary: "auto" }),
  };
  if (Object.keys(reasoning).length > 0) body["reasoning"] = reasoning;
  if (shows && quirks.sealedReasoning) body["include"] = ["reasoning.encrypted_content"];
}

/** A model that may not reason at all is not told to stop. */
function effortOf(
  wanted: ReasoningEffort,
  family: ModelFamily,
  reasons: boolean | undefined,
  dropped: string[],
): string | undefined {
  if (wanted === ReasoningEffort.UNSPECIFIED) return undefined;
  if (wanted !== ReasoningEffort.OFF) return EFFORTS[wanted];
  if (reasons === true && family.effortOff === undefined) dropped.push("reasoning_effort");
  return reasons === true ? family.effortOff : undefined;
}

function addSampling(
  body: RequestBody,
  input: CompletionInput,
  family: ModelFamily,
  dropped: string[],
): void {
  const sampling = input.sampling;
  if (!sampling) return;
  const { temperature, topP, maxOutputTokens, presencePenalty, frequencyPenalty, seed, stop } = sampling;
  const { effort } = (body["reasoning"] ?? {}) as { effort?: string };
  const takes = family.sampling === "always" || (family.sampling === "unless reasoning" && effort === "none");
  if (takes) {
    if (temperature !== undefined) body["temperature"] = temperature;
    if (topP !== undefined) body["top_p"] = topP;
  } else {
    dropSet(dropped, { temperature, top_p: topP });
  }
  if (maxOutputTokens !== undefined) body["max_output_tokens"] = Math.max(maxOutputTokens, MIN_OUTPUT_TOKENS);
  dropSet(dropped, {
    ...{ presence_penalty: presencePenalty, frequency_penalty: frequencyPenalty, seed },
    stop: stop.length > 0 ? stop : undefined,
  });
}

function addAnswerFormat(body: RequestBody, input: CompletionInput): void {
  const format = input.responseFormat;
  if (!format) return;
  const schema = answerSchemaOf(input);
  const name = format.name === "" ? "answer" : format.name;
  body["text"] = {
    format:
      schema === undefined
        ? { type: "json_object" }
        : { type: "json_schema", name, schema, strict: format.strict },
  };
}
