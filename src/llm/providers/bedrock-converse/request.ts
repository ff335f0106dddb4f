/** The request of Bedrock's ConverseStream. Pure. */
import type { CompletionInput } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ReasoningEffort } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import type { ModelConfig } from "../../config.js";
import type { Json } from "../../json.js";
import type { DialectRequest } from "../dialect.js";
import {
  addProviderOptions,
  answerSchemaOf,
  dropSet,
  offeredTools,
  parametersOf,
  setMembers,
  stopTexts,
  type RequestBody,
} from "../shared/request-input.js";
import { bedrockFamily, type BedrockFamily } from "./families.js";
import { conversationOf } from "./messages.js";

const MAX_STOP_TEXTS = 4;

/** Builds the streamed call. Throws INVALID_ARGUMENT naming the field. */
export function buildConverseRequest(input: CompletionInput, model: ModelConfig): DialectRequest {
  const dropped: string[] = [];
  const body = buildBody(input, model, dropped);
  addProviderOptions(body, input, ["messages", "modelId"], ["tools"]);
  return { path: `${modelPath(model.upstreamModel)}/converse-stream`, headers: {}, body, dropped };
}

/** Ids hold colons, and those of profiles slashes as well. */
export function modelPath(upstreamModel: string): string {
  return `/model/${encodeURIComponent(upstreamModel)}`;
}

/** The body without the caller's own fields. */
export function buildBody(input: CompletionInput, model: ModelConfig, dropped: string[]): RequestBody {
  const family = bedrockFamily(model.upstreamModel);
  const { system, messages, calledTools } = conversationOf(input, family.cache);
  const reasoning = reasoningOf(input, model, family, dropped);
  const strict = family.strictReasoning && reasoning !== undefined && isOn(input);
  const config = inferenceConfig(input, strict ? "none" : family.sampling, dropped);
  return setMembers({
    messages,
    system: system.length > 0 ? system : undefined,
    inferenceConfig: Object.keys(config).length > 0 ? config : undefined,
    toolConfig: toolConfig(input, model, { forced: family.toolChoice && !strict, calledTools }, dropped),
    outputConfig: outputConfig(input, dropped),
    additionalModelRequestFields: reasoning,
  });
}

function isOn(input: CompletionInput): boolean {
  return input.reasoningEffort > ReasoningEffort.OFF;
}

function reasoningOf(
  input: CompletionInput,
  model: ModelConfig,
  family: BedrockFamily,
  dropped: string[],
): Json | undefined {
  const effort = input.reasoningEffort;
  if (effort === ReasoningEffort.UNSPECIFIED) return undefined;
  if (effort === ReasoningEffort.OFF) return family.reasoningOff;
  const limit = input.sampling?.maxOutputTokens;
  // A budget must leave room for the answer: a smaller effort is taken where it does.
  const fits = (candidate: typeof effort): boolean =>
    limit === undefined || family.budgets === undefined || family.budgets[candidate] < limit;
  const fitting = ([effort, ReasoningEffort.MEDIUM, ReasoningEffort.LOW] as const).find(
    (candidate) => candidate <= effort && fits(candidate),
  );
  if (!family.reasoning || model.reasoning === false || fitting === undefined) {
    dropped.push("reasoning_effort");
    return undefined;
  }
  return family.reasoning(fitting);
}

function inferenceConfig(
  input: CompletionInput,
  takes: BedrockFamily["sampling"],
  dropped: string[],
): RequestBody {
  const { sampling } = input;
  const hasTemperature = sampling?.temperature !== undefined;
  const topP = takes === "both" || (takes === "one" && !hasTemperature) ? sampling?.topP : undefined;
  dropSet(dropped, {
    temperature: takes === "none" || (sampling?.temperature ?? 0) > 1 ? sampling?.temperature : undefined,
    top_p: topP === undefined ? sampling?.topP : undefined,
    seed: sampling?.seed,
    presence_penalty: sampling?.presencePenalty,
    frequency_penalty: sampling?.frequencyPenalty,
  });
  return setMembers({
    maxTokens: sampling?.maxOutputTokens,
    // Bedrock's temperatures end at 1.
    temperature: takes === "none" || !hasTemperature ? undefined : Math.min(sampling.temperature ?? 1, 1),
    topP,
    stopSequences: stopTexts(input, MAX_STOP_TEXTS, dropped),
  });
}

/**
 * Tools that were called must be declared, also where none may be called any more: then they stay, and the choice is dropped
 * because Bedrock has no word for it.
 */
function toolConfig(
  input: CompletionInput,
  model: ModelConfig,
  { forced, calledTools }: { readonly forced: boolean; readonly calledTools: ReadonlySet<string> },
  dropped: string[],
): Json | undefined {
  const { tools, mode, toolName } = offeredTools(input, model, dropped);
  if (input.parallelToolCalls === false && tools.length > 0) dropped.push("parallel_tool_calls");
  if (tools.length === 0 || (mode === "none" && calledTools.size === 0))
    return calledTools.size === 0 ? undefined : { tools: [...calledTools].map(formerTool) };
  const specs = tools.map((tool, at) => ({
    toolSpec: {
      name: tool.name,
      ...(tool.description !== "" && { description: tool.description }),
      inputSchema: { json: parametersOf(tool, at) },
      ...(tool.strict && { strict: true }),
    },
  }));
  const isForced = mode === "required" || mode === "one";
  if (mode === "none" || (isForced && !forced)) dropped.push("tool_choice");
  if (!isForced || !forced) return { tools: specs };
  return { tools: specs, toolChoice: mode === "one" ? { tool: { name: toolName } } : { any: {} } };
}

function formerTool(name: string): Json {
  const description = "Not available any more.";
  return { toolSpec: { name, description, inputSchema: { json: { type: "object" } } } };
}

function outputConfig(input: CompletionInput, dropped: string[]): Json | undefined {
  const format = input.responseFormat;
  if (!format) return undefined;
  const schema = answerSchemaOf(input);
  if (schema === undefined) {
    dropped.push("response_format");
    return undefined;
  }
  const name = format.name === "" ? "answer" : format.name;
  const jsonSchema = { name, schema: JSON.stringify(schema) };
  return { textFormat: { type: "json_schema", structure: { jsonSchema } } };
}
