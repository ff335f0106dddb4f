/** What a send asks for, resolved once before anything is stored: its models, its tools, its options. */
import { create, fromBinary } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  CitationMode,
  SessionSettingsSchema,
  ToolCallingMode,
  type ModelSelection,
  type SearchFilters,
  type SessionSettings,
  type TurnOptions,
} from "../../gen/turnwire/chat/v1/types_pb.js";
import type { Model } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import {
  ErrorCode,
  ReasoningEffort,
  UserInputSchema,
  type Sampling,
  type UserInput,
} from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnStartedSchema, type TurnStarted } from "../../gen/turnwire/packet/v1/control_pb.js";
import type { Tool } from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { TurnError } from "../lib/errors.js";
import type { Principal } from "../lib/rpc/service-binding.js";
import type { SessionRow } from "../store/store.js";
import { splitText } from "../turn/packets.js";
import type { ChatDeps } from "./ports.js";
import type { Position } from "./resolve-position.js";
import type { SendRequest } from "./send-request.js";

/** Text that a packet carries inline at most, bytes; the rest is in a file. */
export const INLINE_TEXT_BYTES = 64 * 1024;
/** What one lane asks its model with. */
export interface LanePlan {
  readonly modelIndex: number;
  readonly model: Model;
  /** The send's, else the session's, else as the model does by default. */
  readonly sampling: Sampling | undefined;
  readonly reasoningEffort: ReasoningEffort;
  readonly messageId: string;
}

/** What a turn needs to run, resolved once. */
export interface TurnPlan {
  readonly started: TurnStarted;
  /** Of the user, when the turn was sent: they decide which models may answer. */
  readonly groups: readonly string[];
  /** The whole input, however long. */
  readonly input: UserInput;
  readonly lanes: readonly LanePlan[];
  readonly tools: readonly Tool[];
  readonly forcedToolId: string | undefined;
  readonly systemPrompt: string;
  readonly additionalContext: string;
  readonly citationMode: CitationMode;
  /** What narrows the search tools; undefined = nothing. */
  readonly searchFilters: SearchFilters | undefined;
  readonly maxCycles: number;
  readonly deadlineMs: number;
}

/** Throws a TurnError that names the field for what is not there or does not fit. */
export async function resolvePlan(
  deps: ChatDeps,
  principal: Principal,
  request: SendRequest,
  session: SessionRow | undefined,
  { answeredMessageId, input }: Position,
  signal: AbortSignal,
): Promise<TurnPlan> {
  const settings = session ? fromBinary(SessionSettingsSchema, session.settings) : request.newSession;
  const options = mergeOptions(settings?.defaults, request.options);
  const lanes = await resolveLanes(deps, principal, request, settings, signal);
  const { tools, forcedToolId } = await resolveTools(deps, principal, options, signal);
  const deadlineMs = Math.min(options.deadlineMs ?? deps.limits.turnDeadlineMs, deps.limits.turnDeadlineMs);
  const started = create(TurnStartedSchema, {
    turnId: deps.newId(),
    sessionId: request.sessionId === "" ? deps.newId() : request.sessionId,
    sessionCreated: request.sessionId === "",
    userMessageId: answeredMessageId ?? deps.newId(),
    requestId: request.requestId === "" ? deps.newId() : request.requestId,
    startedAt: timestampFromDate(deps.clock.now()),
    lanes: lanes.map((lane) => ({
      modelIndex: lane.modelIndex,
      modelId: lane.model.modelId,
      assistantMessageId: lane.messageId,
      displayName: lane.model.displayName,
    })),
    input: inlineInput(input, deps.newId),
  });
  return {
    started,
    groups: principal.groups ?? [],
    input,
    lanes,
    tools,
    forcedToolId,
    systemPrompt: settings?.systemPrompt ?? "",
    additionalContext: options.additionalContext ?? "",
    citationMode: options.citationMode || CitationMode.HYPERLINK,
    searchFilters: options.searchFilters,
    maxCycles: options.maxCycles || deps.limits.maxCycles,
    deadlineMs,
  };
}

/** The request's options over the session's defaults, field by field. */
function mergeOptions(defaults: TurnOptions | undefined, own: TurnOptions | undefined): Partial<TurnOptions> {
  const merged: Record<string, unknown> = { ...defaults };
  for (const [field, value] of Object.entries(own ?? {})) if (value !== undefined) merged[field] = value;
  return merged;
}

async function resolveLanes(
  deps: ChatDeps,
  principal: Principal,
  request: SendRequest,
  settings: SessionSettings | undefined,
  signal: AbortSignal,
): Promise<LanePlan[]> {
  const models = await deps.models.listModels(principal, signal);
  const wanted = wantedModels(request, settings);
  if (wanted.length > deps.limits.maxLanes) {
    throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
      message: `at most ${deps.limits.maxLanes} models may answer one turn`,
      details: { field: "models" },
    });
  }
  return wanted.map(({ modelId, selection, field }, modelIndex) => ({
    modelIndex,
    model: findModel(models, modelId, field),
    sampling: selection?.sampling ?? settings?.sampling,
    reasoningEffort: selection?.reasoningEffort || (settings?.reasoningEffort ?? ReasoningEffort.UNSPECIFIED),
    messageId: deps.newId(),
  }));
}

interface WantedModel {
  readonly modelId: string;
  readonly selection: ModelSelection | undefined;
  /** Where the request names it. */
  readonly field: string;
}

/** The request's models, else the session's, else the default one. */
function wantedModels(request: SendRequest, settings: SessionSettings | undefined): WantedModel[] {
  if (request.models.length > 0)
    return request.models.map((selection, index) => ({
      modelId: selection.modelId,
      selection,
      field: `models[${index}].model_id`,
    }));
  const modelIds = settings?.modelIds ?? [];
  if (modelIds.length === 0) return [{ modelId: "", selection: undefined, field: "models" }];
  const owner = request.newSession ? "new_session" : "session.settings";
  return modelIds.map((modelId, index) => ({
    modelId,
    selection: undefined,
    field: `${owner}.model_ids[${index}]`,
  }));
}

/** "" = the default model. Names and aliases are matched exactly. */
function findModel(models: readonly Model[], modelId: string, field: string): Model {
  const found =
    modelId === ""
      ? (models.find((model) => model.isDefault) ?? models[0])
      : models.find((model) => model.modelId === modelId || model.aliases.includes(modelId));
  if (!found) {
    throw new TurnError(ErrorCode.MODEL_NOT_FOUND, {
      message:
        modelId === ""
          ? "there are no models: configure a provider"
          : `no model is called "${modelId.slice(0, 128)}": ListModels names those that are there`,
      details: { field },
    });
  }
  return found;
}

async function resolveTools(
  deps: ChatDeps,
  principal: Principal,
  options: Partial<TurnOptions>,
  signal: AbortSignal,
): Promise<{ tools: readonly Tool[]; forcedToolId: string | undefined }> {
  const forcedToolId = options.forcedToolId || undefined;
  if (options.toolCalling === ToolCallingMode.OFF) {
    if (forcedToolId)
      throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
        message: "a tool is forced and tool calling is off",
        details: { field: "options.forced_tool_id" },
      });
    return { tools: [], forcedToolId: undefined };
  }
  const known = await deps.tools.listTools(principal, signal);
  const allowed = options.allowedTools?.toolIds;
  const named = [
    ...(allowed ?? []).map((toolId) => ({ toolId, field: "options.allowed_tools" })),
    ...(forcedToolId ? [{ toolId: forcedToolId, field: "options.forced_tool_id" }] : []),
  ];
  for (const { toolId, field } of named) {
    if (known.some((tool) => tool.toolId === toolId)) continue;
    throw new TurnError(ErrorCode.TOOL_NOT_FOUND, {
      message: `no tool is called "${toolId.slice(0, 128)}": ListTools names those that are there`,
      details: { field },
    });
  }
  const tools = allowed ? known.filter((tool) => allowed.includes(tool.toolId)) : known;
  if (forcedToolId && !tools.some((tool) => tool.toolId === forcedToolId)) {
    throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
      message: "the forced tool is not among the allowed ones",
      details: { field: "options.forced_tool_id" },
    });
  }
  return { tools, forcedToolId };
}

/** What TurnStarted shows of the input: whole, or its first 64 KiB and the id of the file that holds it all. */
function inlineInput(input: UserInput, newId: () => string): UserInput {
  if (Buffer.byteLength(input.text) <= INLINE_TEXT_BYTES) return input;
  const [head] = splitText(input.text, INLINE_TEXT_BYTES);
  return create(UserInputSchema, { ...input, text: head ?? "", truncated: true, textFileId: newId() });
}
