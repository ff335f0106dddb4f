/** The settings of a conversation as the page edits them, and how they travel in sends and sessions. */
import { create } from "@bufbuild/protobuf";
import {
  ModelSelectionSchema,
  SessionSettingsSchema,
  ToolSelectionSchema,
  TurnOptionsSchema,
  type ModelSelection,
  type SessionSettings,
  type TurnOptions,
} from "../../../gen/turnwire/chat/v1/types_pb.js";
import { ReasoningEffort, SamplingSchema } from "../../../gen/turnwire/packet/v1/common_pb.js";

/** Plain values: kept as JSON in the outbox and in the browser's storage. */
export interface ChatSettings {
  /** Empty = the service's default model. */
  readonly modelIds: readonly string[];
  readonly reasoningEffort: ReasoningEffort;
  /** Undefined = the model's own. */
  readonly temperature: number | undefined;
  /** Undefined = all tools. */
  readonly toolIds: readonly string[] | undefined;
  readonly systemPrompt: string;
}

export const DEFAULT_SETTINGS: ChatSettings = {
  modelIds: [],
  reasoningEffort: ReasoningEffort.UNSPECIFIED,
  temperature: undefined,
  toolIds: undefined,
  systemPrompt: "",
};

/** The settings of a stored session. */
export function settingsOf(settings: SessionSettings | undefined): ChatSettings {
  if (!settings) return DEFAULT_SETTINGS;
  return {
    modelIds: settings.modelIds,
    reasoningEffort: settings.reasoningEffort,
    temperature: settings.sampling?.temperature,
    toolIds: settings.defaults?.allowedTools?.toolIds,
    systemPrompt: settings.systemPrompt,
  };
}

/** The session's settings with these in them; what the page does not edit stays. */
export function toSessionSettings(settings: ChatSettings, kept?: SessionSettings): SessionSettings {
  const { modelIds, reasoningEffort, systemPrompt } = settings;
  return {
    ...(kept ?? create(SessionSettingsSchema)),
    modelIds: [...modelIds],
    reasoningEffort,
    systemPrompt,
    sampling: samplingOf(settings),
    defaults: {
      ...(kept?.defaults ?? create(TurnOptionsSchema)),
      allowedTools: toTurnOptions(settings).allowedTools,
    },
  };
}

/** The lanes of a send. Empty = as the service does by default. */
export function toModels(settings: ChatSettings, defaultModelId: string): ModelSelection[] {
  const { modelIds, reasoningEffort, temperature } = settings;
  const isPlain = reasoningEffort === ReasoningEffort.UNSPECIFIED && temperature === undefined;
  const ids = modelIds.length > 0 || isPlain || !defaultModelId ? modelIds : [defaultModelId];
  return ids.map((modelId) =>
    create(ModelSelectionSchema, { modelId, reasoningEffort, sampling: samplingOf(settings) }),
  );
}

/** The options of a send. */
export function toTurnOptions({ toolIds }: ChatSettings): TurnOptions {
  return create(TurnOptionsSchema, {
    allowedTools: toolIds && create(ToolSelectionSchema, { toolIds: [...toolIds] }),
  });
}

function samplingOf({ temperature }: ChatSettings) {
  return temperature === undefined ? undefined : create(SamplingSchema, { temperature });
}
