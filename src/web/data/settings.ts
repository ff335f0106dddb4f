/**
 * The settings of a conversation as the page edits them. They live in its session, which a first send makes with them;
 * sends themselves carry none, so that what only other clients edit holds for them too.
 */
import { create } from "@bufbuild/protobuf";
import {
  SessionSettingsSchema,
  ToolSelectionSchema,
  TurnOptionsSchema,
  type SessionSettings,
} from "../../../gen/turnwire/chat/v1/types_pb.js";
import { ReasoningEffort, SamplingSchema, type Sampling } from "../../../gen/turnwire/packet/v1/common_pb.js";

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
  const { modelIds, reasoningEffort, temperature, toolIds, systemPrompt } = settings;
  return {
    ...(kept ?? create(SessionSettingsSchema)),
    modelIds: [...modelIds],
    reasoningEffort,
    systemPrompt,
    sampling: samplingOf(temperature, kept?.sampling),
    defaults: {
      ...(kept?.defaults ?? create(TurnOptionsSchema)),
      allowedTools: toolIds && create(ToolSelectionSchema, { toolIds: [...toolIds] }),
    },
  };
}

function samplingOf(temperature: number | undefined, kept: Sampling | undefined): Sampling | undefined {
  if (temperature === undefined && !kept) return undefined;
  return { ...(kept ?? create(SamplingSchema)), temperature };
}
