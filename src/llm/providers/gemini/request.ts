/** The request of Gemini's generateContent, as the Gemini API and Vertex AI take it. Pure. */
import {
  Role,
  type CompletionInput,
  type ContentPart,
  type MediaPart,
  type ModelMessage,
  type ToolCallPart,
  type ToolResultPart,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ReasoningEffort } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { assertNever } from "../../../lib/assert-never.js";
import type { ModelConfig } from "../../config.js";
import type { Json } from "../../json.js";
import type { DialectRequest } from "../dialect.js";
import {
  addProviderOptions,
  answerSchemaOf,
  argumentsOf,
  callsById,
  dropSet,
  invalid,
  mediaData,
  offeredTools,
  parametersOf,
  plainText,
  seedOf,
  setMembers,
  stopTexts,
  textOnly,
  type RequestBody,
} from "../shared/request-input.js";
import { geminiFamily, type GeminiFamily } from "./families.js";
import { geminiState, type GeminiState } from "./state.js";

const MAX_STOP_TEXTS = 5;
const MAX_SEED = 0x7fffffff;
/** Gemini takes it in the place of a signature for calls that another model made. */
const FOREIGN_SIGNATURE = "skip_thought_signature_validator";

type GeminiContent = { readonly role: "user" | "model"; readonly parts: Json[] };

/** Builds the streamed call. Throws INVALID_ARGUMENT naming the field. */
export function buildGeminiRequest(input: CompletionInput, model: ModelConfig): DialectRequest {
  const dropped: string[] = [];
  const body = buildBody(input, model, dropped);
  const path = `${modelPath(model.upstreamModel)}:streamGenerateContent?alt=sse`;
  return { path, headers: {}, body, dropped };
}

/** "gemini-x", or a full name such as "tunedModels/x" or "endpoints/7"; a name with steps such as ".." is one of neither. */
export function modelPath(upstreamModel: string): string {
  const steps = upstreamModel.split("/");
  const isFullName = steps.length > 1 && !steps.some((step) => /^\.*$/.test(step));
  return isFullName
    ? `/${steps.map(encodeURIComponent).join("/")}`
    : `/models/${encodeURIComponent(upstreamModel)}`;
}

export function buildBody(input: CompletionInput, model: ModelConfig, dropped: string[]): RequestBody {
  const family = geminiFamily(model.upstreamModel);
  const system = input.messages
    .map((message, at) =>
      message.role === Role.SYSTEM ? textOnly(message.parts, `input.messages[${at}]`) : "",
    )
    .filter((text) => text !== "");
  const body: RequestBody = { contents: contentsOf(input, family) };
  if (system.length > 0) body["systemInstruction"] = { parts: system.map((text) => ({ text })) };
  addTools(body, input, model, dropped);
  const config = generationConfig(input, model, family, dropped);
  if (Object.keys(config).length > 0) body["generationConfig"] = config;
  addProviderOptions(body, input, ["contents"], ["tools"]);
  return body;
}

/** What the parts of one message need to know of the others. */
interface Conversation {
  readonly family: GeminiFamily;
  readonly calls: ReadonlyMap<string, ToolCallPart>;
  /** Ids that Gemini gave; those that we made mean nothing to it. */
  readonly wireIds: ReadonlySet<string>;
}

/** The conversation; neighbours of one role become one content, as the results of one step must. */
function contentsOf(input: CompletionInput, family: GeminiFamily): GeminiContent[] {
  const conversation = { family, calls: callsById(input), wireIds: wireIdsOf(input) };
  const contents: GeminiContent[] = [];
  for (const [at, message] of input.messages.entries()) {
    const role = message.role === Role.ASSISTANT ? "model" : "user";
    const parts = partsOf(message, `input.messages[${at}]`, conversation);
    const last = contents.at(-1);
    if (parts.length === 0) continue;
    if (last?.role === role) last.parts.push(...parts);
    else contents.push({ role, parts });
  }
  return contents;
}

function wireIdsOf(input: CompletionInput): ReadonlySet<string> {
  const states = input.messages.flatMap(({ parts }) => parts.flatMap((part) => stateOf(part) ?? []));
  return new Set(states.flatMap((state) => (state.kind === "call" && state.wireId ? [state.callId] : [])));
}

function partsOf(message: ModelMessage, field: string, conversation: Conversation): Json[] {
  switch (message.role) {
    case Role.SYSTEM:
      return []; // stands in systemInstruction
    case Role.USER:
    case Role.REMINDER:
      return message.parts.flatMap((part, at) => userPart(part, `${field}.parts[${at}]`));
    case Role.ASSISTANT:
      return modelParts(message.parts, field, conversation);
    case Role.TOOL:
      return resultParts(message.parts, field, conversation);
    case Role.UNSPECIFIED:
      throw invalid(`${field}.role`, "must be set");
    default:
      return assertNever(message.role, "role");
  }
}

function stateOf({ part }: ContentPart): GeminiState | undefined {
  return part.case === "providerState" ? geminiState(part.value) : undefined;
}

function userPart(part: ContentPart, field: string): Json[] {
  const text = plainText(part);
  if (text !== undefined) return text === "" ? [] : [{ text }];
  if (part.part.case === "media") return [mediaPart(part.part.value, field)];
  if (part.part.case === "providerState") return [];
  throw invalid(field, "is not a part that this role can have");
}

/** Signatures go back with the part they came with; a part that was dropped takes its signature with it. */
function modelParts(parts: readonly ContentPart[], field: string, { family, wireIds }: Conversation): Json[] {
  const signatures = new Map<string, string>();
  for (const part of parts) {
    const state = stateOf(part);
    if (state?.kind === "call" && state.signature !== "") signatures.set(state.callId, state.signature);
  }
  const out: Record<string, unknown>[] = [];
  let unsigned = family.signedCalls && signatures.size === 0;
  for (const [at, part] of parts.entries()) {
    const text = plainText(part);
    const state = stateOf(part);
    if (text !== undefined) {
      if (text !== "") out.push({ text });
    } else if (part.part.case === "toolCall") {
      const call = part.part.value;
      const signature = signatures.get(call.callId) ?? (unsigned ? FOREIGN_SIGNATURE : undefined);
      unsigned = false; // only the first call of a step is signed
      out.push({ ...functionCall(call, wireIds), ...(signature && { thoughtSignature: signature }) });
    } else if (part.part.case === "media") {
      out.push(mediaPart(part.part.value, `${field}.parts[${at}]`));
    } else if (state?.kind === "part") {
      out.push(state.part);
    } else if (state?.kind === "text") {
      signText(out, state.signature);
    } else if (part.part.case === "toolResult") {
      throw invalid(`${field}.parts[${at}]`, "is not a part that an assistant can have");
    }
  }
  return out;
}

function signText(parts: Record<string, unknown>[], signature: string): void {
  const last = parts.at(-1);
  if (last?.["text"] !== undefined && last["thoughtSignature"] === undefined)
    last["thoughtSignature"] = signature;
  else parts.push({ text: "", thoughtSignature: signature });
}

function functionCall(call: ToolCallPart, wireIds: ReadonlySet<string>): Json {
  const id = wireIds.has(call.callId) ? { id: call.callId } : {};
  return { functionCall: { ...id, name: call.name, args: argumentsOf(call) } };
}

function resultParts(parts: readonly ContentPart[], field: string, conversation: Conversation): Json[] {
  const results: Json[] = [];
  const media: Json[] = [];
  for (const [at, { part }] of parts.entries()) {
    const where = `${field}.parts[${at}]`;
    if (part.case !== "toolResult") throw invalid(where, "must be a tool_result");
    results.push(functionResponse(part.value, conversation, where));
    media.push(
      ...part.value.media.map((item, index) => mediaPart(item, `${where}.tool_result.media[${index}]`)),
    );
  }
  return [...results, ...media];
}

function functionResponse(result: ToolResultPart, { calls, wireIds }: Conversation, field: string): Json {
  const call = calls.get(result.callId);
  if (!call) throw invalid(`${field}.tool_result.call_id`, "names no call of the conversation");
  const id = wireIds.has(result.callId) ? { id: result.callId } : {};
  const response = result.isError ? { error: result.text } : { output: result.text };
  return { functionResponse: { ...id, name: call.name, response } };
}

function mediaPart(media: MediaPart, field: string): Json {
  if (media.source.case === "url")
    return { fileData: { mimeType: media.mediaType, fileUri: media.source.value } };
  const data = mediaData(media, `${field}.media`).toString("base64");
  return { inlineData: { mimeType: media.mediaType, data } };
}

function addTools(body: RequestBody, input: CompletionInput, model: ModelConfig, dropped: string[]): void {
  const { tools, mode, toolName } = offeredTools(input, model, dropped);
  if (tools.length === 0) return;
  const functionDeclarations = tools.map((tool, at) => ({
    name: tool.name,
    description: tool.description,
    parametersJsonSchema: parametersOf(tool, at),
  }));
  body["tools"] = [{ functionDeclarations }];
  const modes = { auto: "AUTO", none: "NONE", required: "ANY", one: "ANY" } as const;
  if (input.toolChoice) {
    const only = mode === "one" ? { allowedFunctionNames: [toolName] } : {};
    body["toolConfig"] = { functionCallingConfig: { mode: modes[mode], ...only } };
  }
  if (tools.some(({ strict }) => strict)) dropped.push("tools.strict");
  if (input.parallelToolCalls === false) dropped.push("parallel_tool_calls");
}

function generationConfig(
  input: CompletionInput,
  model: ModelConfig,
  family: GeminiFamily,
  dropped: string[],
): RequestBody {
  const { sampling } = input;
  const penalties = {
    presence_penalty: sampling?.presencePenalty,
    frequency_penalty: sampling?.frequencyPenalty,
  };
  if (!family.penalties) dropSet(dropped, penalties);
  return setMembers({
    temperature: sampling?.temperature,
    topP: sampling?.topP,
    maxOutputTokens: sampling?.maxOutputTokens,
    seed: seedOf(input, MAX_SEED, dropped),
    stopSequences: stopTexts(input, MAX_STOP_TEXTS, dropped),
    ...(family.penalties && {
      presencePenalty: sampling?.presencePenalty,
      frequencyPenalty: sampling?.frequencyPenalty,
    }),
    ...responseFormat(input, family, dropped),
    thinkingConfig: thinkingConfig(input, model, family, dropped),
  });
}

function responseFormat(input: CompletionInput, family: GeminiFamily, dropped: string[]): Json {
  if (!input.responseFormat) return {};
  const schema = answerSchemaOf(input);
  if (input.tools.length > 0 && !family.jsonWithTools) {
    dropped.push("response_format");
    return {};
  }
  return setMembers({ responseMimeType: "application/json", responseJsonSchema: schema });
}

/** Thoughts are asked for wherever the model has some. */
function thinkingConfig(
  input: CompletionInput,
  model: ModelConfig,
  family: GeminiFamily,
  dropped: string[],
): Json | undefined {
  const effort = input.reasoningEffort;
  if (!family.thinking || model.reasoning === false) {
    if (effort > ReasoningEffort.OFF) dropped.push("reasoning_effort");
    return undefined;
  }
  if (effort === ReasoningEffort.UNSPECIFIED) return { includeThoughts: true };
  return { ...family.thinking[effort], includeThoughts: effort !== ReasoningEffort.OFF };
}
