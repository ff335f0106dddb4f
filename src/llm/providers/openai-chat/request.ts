/** The request of the OpenAI chat dialect. Pure. */
import {
  ToolChoiceMode,
  type CompletionInput,
  type ToolDefinition,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ReasoningEffort } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import type { ModelConfig } from "../../config.js";
import type { Json } from "../../json.js";
import { functionTool } from "../shared/chat-roles.js";
import {
  addProviderOptions,
  answerSchemaOf,
  offeredTools,
  seedOf,
  stopTexts,
  type OfferedTools,
  type RequestBody,
} from "../shared/request-input.js";
import { chatMessages } from "./messages.js";
import type { ChatQuirks, EffortMembers } from "./chat-quirks.js";

export interface ChatRequest {
  readonly body: Readonly<RequestBody>;
  /** Parameters that were set and left out. */
  readonly dropped: readonly string[];
}

/** Members that options must not replace: the call would not be the one that was asked for. */
const RESERVED_OPTIONS = ["model", "messages", "stream", "n", "tools", "functions"];

/** Builds the request. Throws INVALID_ARGUMENT naming the field. */
export function buildChatRequest(
  input: CompletionInput,
  model: ModelConfig,
  quirks: ChatQuirks,
): ChatRequest {
  const dropped: string[] = [];
  const body: RequestBody = {
    model: model.upstreamModel,
    messages: chatMessages(input, quirks, dropped),
    stream: true,
    ...(quirks.streamUsage && { stream_options: { include_usage: true } }),
    ...quirks.extra,
  };
  const add = new ParameterWriter(body, quirks, dropped);
  addTools(add, input, model);
  addSampling(add, input);
  addEffort(add, input, model);
  addFormat(add, input);
  addProviderOptions(body, input, RESERVED_OPTIONS);
  return { body, dropped: [...new Set(dropped)] };
}

/** Adds parameters that are set, and names those that the model does not take. */
class ParameterWriter {
  constructor(
    readonly body: RequestBody,
    readonly quirks: ChatQuirks,
    readonly dropped: string[],
  ) {}

  /** True if it is set and taken. */
  takes(name: string, value: unknown): boolean {
    if (value === undefined) return false;
    const takes = !this.quirks.drops.includes(name);
    if (!takes) this.dropped.push(name);
    return takes;
  }

  set(name: string, value: unknown, member = name): void {
    if (this.takes(name, value)) this.body[member] = value;
  }
}

function addTools(add: ParameterWriter, input: CompletionInput, model: ModelConfig): void {
  const offered = offeredTools(input, model, add.dropped);
  if (offered.tools.length === 0 || !add.takes("tools", offered.tools)) return;
  const choice = toolChoice(add, offered, input.toolChoice?.mode);
  if (choice === "no tools") return;
  add.body["tools"] = offered.tools.map(toolDefinition);
  if (choice !== undefined) add.body["tool_choice"] = choice;
  add.set("parallel_tool_calls", input.parallelToolCalls);
}

/** A choice that the server does not know is left to the model; one against tools is kept by offering none. */
function toolChoice(
  { quirks, dropped }: ParameterWriter,
  { mode, toolName }: OfferedTools,
  asked: ToolChoiceMode | undefined,
): unknown {
  const { toolChoices } = quirks;
  if (mode === "auto") return asked === ToolChoiceMode.AUTO ? "auto" : undefined;
  if (mode === "none") return toolChoices.includes("none") ? "none" : "no tools";
  if (mode === "one" && toolChoices.includes("one"))
    return { type: "function", function: { name: toolName } };
  if (mode === "required") {
    const word = toolChoices.find((name) => name === "required" || name === "any");
    if (word !== undefined) return word;
  }
  dropped.push("tool_choice");
  return undefined;
}

function toolDefinition(tool: ToolDefinition, at: number): Json {
  const plain = functionTool(tool, at);
  return tool.strict ? { ...plain, function: { ...plain.function, strict: true } } : plain;
}

function addSampling(add: ParameterWriter, input: CompletionInput): void {
  const { sampling } = input;
  if (!sampling) return;
  const { quirks, dropped } = add;
  add.set("temperature", sampling.temperature);
  add.set("top_p", sampling.topP);
  add.set("max_output_tokens", sampling.maxOutputTokens, quirks.maxTokensField);
  add.set("presence_penalty", sampling.presencePenalty);
  add.set("frequency_penalty", sampling.frequencyPenalty);
  if (add.takes("stop", sampling.stop.length > 0 ? sampling.stop : undefined))
    add.body["stop"] = stopTexts(input, quirks.maxStops, dropped);
  if (add.takes("seed", sampling.seed)) {
    const seed = seedOf(input, Number.MAX_SAFE_INTEGER, dropped);
    if (seed !== undefined) add.body[quirks.seedField] = seed;
  }
}

const LEVELS: Readonly<Record<ReasoningEffort, keyof EffortMembers | undefined>> = {
  [ReasoningEffort.UNSPECIFIED]: undefined,
  [ReasoningEffort.OFF]: "off",
  [ReasoningEffort.LOW]: "low",
  [ReasoningEffort.MEDIUM]: "medium",
  [ReasoningEffort.HIGH]: "high",
};

/** A model that does not reason is off already; one of which is not known whether it does is told only if that cannot hurt. */
function addEffort(add: ParameterWriter, input: CompletionInput, model: ModelConfig): void {
  const level = LEVELS[input.reasoningEffort];
  const { efforts, offByDefault, drops } = add.quirks;
  const reasons =
    model.reasoning ?? (level !== "off" || (offByDefault && !drops.includes("reasoning_effort")));
  if (level === undefined || (level === "off" && !reasons)) return;
  const members = reasons ? efforts[level] : undefined;
  if (members === undefined) add.dropped.push("reasoning_effort");
  else if (add.takes("reasoning_effort", members)) Object.assign(add.body, members);
}

/** A server that knows no schemas is asked for any object, one that knows nothing else gets a schema that allows any. */
function addFormat(add: ParameterWriter, input: CompletionInput): void {
  const format = input.responseFormat;
  if (!add.takes("response_format", format)) return;
  const { formats } = add.quirks;
  const schema = answerSchemaOf(input);
  if (schema !== undefined && !formats.includes("schema")) add.dropped.push("response_format.json_schema");
  if (formats.includes("object") && (schema === undefined || !formats.includes("schema"))) {
    add.body["response_format"] = { type: "json_object" };
    return;
  }
  add.body["response_format"] = {
    type: "json_schema",
    json_schema: {
      name: format?.name || "answer",
      schema: schema ?? { type: "object" },
      strict: format?.strict ?? false,
    },
  };
}
