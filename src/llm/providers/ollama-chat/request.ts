/** The request of Ollama's /api/chat. Pure. */
import type {
  CompletionInput,
  ContentPart,
  ToolCallPart,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ReasoningEffort } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import type { ModelConfig } from "../../config.js";
import type { Json } from "../../json.js";
import { messagesByRole, onlyOffered } from "../shared/chat-roles.js";
import {
  addProviderOptions,
  answerSchemaOf,
  argumentsOf,
  callsById,
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

const MAX_STOP_TEXTS = 16;
const MAX_SEED = 0x7fffffff;

export interface OllamaRequest {
  readonly body: Readonly<Record<string, unknown>>;
  readonly dropped: readonly string[];
}

/** Builds the streamed call. Throws INVALID_ARGUMENT naming the field. */
export function buildOllamaRequest(input: CompletionInput, model: ModelConfig): OllamaRequest {
  const dropped: string[] = [];
  const calls = callsById(input);
  const messages = messagesByRole(input, {
    user: userMessage,
    assistant: assistantMessage,
    toolResult: (part, field) => toolMessage(part, field, calls),
  });
  const body: RequestBody = { model: model.upstreamModel, messages, stream: true };
  addTools(body, input, model, dropped);
  const think = thinkOf(input, model, dropped);
  if (think !== undefined) body["think"] = think;
  if (input.responseFormat) body["format"] = answerSchemaOf(input) ?? "json";
  const options = optionsOf(input, model, dropped);
  if (Object.keys(options).length > 0) body["options"] = options;
  addProviderOptions(body, input, ["model", "messages", "stream", "tools"]);
  return { body, dropped };
}

function userMessage(parts: readonly ContentPart[], field: string): Json {
  const texts: string[] = [];
  const images: string[] = [];
  for (const [at, part] of parts.entries()) {
    const where = `${field}.parts[${at}]`;
    const text = plainText(part);
    if (text !== undefined) texts.push(text);
    else if (part.part.case === "media") {
      const document = mediaText(part.part.value);
      if (document !== undefined) texts.push(document);
      else if (/^image\//i.test(part.part.value.mediaType))
        images.push(mediaData(part.part.value, `${where}.media`).toString("base64"));
      else throw invalid(`${where}.media`, "must be an image or a text: Ollama takes nothing else");
    } else if (part.part.case !== "providerState") {
      throw invalid(where, "is not a part that this role can have");
    }
  }
  return { role: "user", content: texts.join("\n\n"), ...(images.length > 0 && { images }) };
}

function assistantMessage(parts: readonly ContentPart[], field: string): Json | undefined {
  let content = "";
  let thinking = "";
  const calls: Json[] = [];
  for (const [at, part] of parts.entries()) {
    const text = plainText(part);
    if (text !== undefined) content += text;
    else if (part.part.case === "reasoning") thinking += part.part.value;
    else if (part.part.case === "toolCall") calls.push(toolCall(part.part.value));
    else if (part.part.case !== "providerState")
      throw invalid(`${field}.parts[${at}]`, "is not a part that an assistant can have");
  }
  if (content === "" && thinking === "" && calls.length === 0) return undefined;
  return {
    role: "assistant",
    content,
    ...(thinking !== "" && { thinking }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}

function toolCall(call: ToolCallPart): Json {
  return { id: call.callId, function: { name: call.name, arguments: argumentsOf(call) } };
}

function toolMessage({ part }: ContentPart, field: string, calls: ReadonlyMap<string, ToolCallPart>): Json {
  if (part.case !== "toolResult") throw invalid(field, "must be a tool_result");
  const images = part.value.media.map((media, at) => {
    const where = `${field}.tool_result.media[${at}]`;
    if (!/^image\//i.test(media.mediaType))
      throw invalid(where, "must be an image: Ollama takes nothing else");
    return mediaData(media, where).toString("base64");
  });
  return {
    role: "tool",
    content: part.value.text,
    tool_name: calls.get(part.value.callId)?.name ?? "",
    tool_call_id: part.value.callId,
    ...(images.length > 0 && { images }),
  };
}

/** Ollama knows no choice: what can be had by offering less is done so, the rest is dropped. */
function addTools(body: RequestBody, input: CompletionInput, model: ModelConfig, dropped: string[]): void {
  const offered = offeredTools(input, model, dropped);
  const { tools, mode } = offered;
  if (tools.length === 0 || mode === "none") return;
  if (mode === "one" || mode === "required") dropped.push("tool_choice");
  if (tools.some(({ strict }) => strict)) dropped.push("tools.strict");
  if (input.parallelToolCalls === false) dropped.push("parallel_tool_calls");
  body["tools"] = onlyOffered(offered);
}

const EFFORTS = {
  [ReasoningEffort.OFF]: "low", // cannot be switched off
  [ReasoningEffort.LOW]: "low",
  [ReasoningEffort.MEDIUM]: "medium",
  [ReasoningEffort.HIGH]: "high",
} as const;

/** Models whose reasoning has degrees; all others only know on and off. */
const GRADED_MODELS = /gpt-oss/i;

function thinkOf(
  input: CompletionInput,
  model: ModelConfig,
  dropped: string[],
): boolean | string | undefined {
  const effort = input.reasoningEffort;
  const graded = GRADED_MODELS.test(model.upstreamModel);
  if (effort === ReasoningEffort.UNSPECIFIED) return model.reasoning === true && !graded ? true : undefined;
  if (model.reasoning === false) {
    if (effort !== ReasoningEffort.OFF) dropped.push("reasoning_effort");
    return undefined;
  }
  return graded ? EFFORTS[effort] : effort !== ReasoningEffort.OFF;
}

/** `num_ctx`: without it Ollama cuts long conversations silently, however much the model could take. */
function optionsOf(input: CompletionInput, model: ModelConfig, dropped: string[]): RequestBody {
  const { sampling } = input;
  return setMembers({
    temperature: sampling?.temperature,
    top_p: sampling?.topP,
    num_predict: sampling?.maxOutputTokens,
    seed: seedOf(input, MAX_SEED, dropped),
    stop: stopTexts(input, MAX_STOP_TEXTS, dropped),
    presence_penalty: sampling?.presencePenalty,
    frequency_penalty: sampling?.frequencyPenalty,
    num_ctx: model.contextTokens > 0 ? model.contextTokens : undefined,
  });
}
