/** What the families of Gemini models take, as data. */
import { ReasoningEffort } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import type { Json } from "../../json.js";

type Efforts = Readonly<Record<Exclude<ReasoningEffort, ReasoningEffort.UNSPECIFIED>, Json>>;

export interface GeminiFamily {
  /** Members of `thinkingConfig` by effort; undefined = the model does not think. */
  readonly thinking: Efforts | undefined;
  /** Presence and frequency penalties. */
  readonly penalties: boolean;
  /** A JSON answer also where tools are offered. */
  readonly jsonWithTools: boolean;
  /** Refuses calls in its history that carry no signature. */
  readonly signedCalls: boolean;
}

const levels = (off: string, medium: string): Efforts => ({
  [ReasoningEffort.OFF]: { thinkingLevel: off },
  [ReasoningEffort.LOW]: { thinkingLevel: "low" },
  [ReasoningEffort.MEDIUM]: { thinkingLevel: medium },
  [ReasoningEffort.HIGH]: { thinkingLevel: "high" },
});

const budgets = (off: number, high: number): Efforts => ({
  [ReasoningEffort.OFF]: { thinkingBudget: off },
  [ReasoningEffort.LOW]: { thinkingBudget: 1_024 },
  [ReasoningEffort.MEDIUM]: { thinkingBudget: 8_192 },
  [ReasoningEffort.HIGH]: { thinkingBudget: high },
});

const OLD: GeminiFamily = {
  thinking: undefined,
  penalties: true,
  jsonWithTools: false,
  signedCalls: false,
};
const BUDGETED = { penalties: false, jsonWithTools: false, signedCalls: false };
const NEW = { penalties: false, jsonWithTools: true, signedCalls: true };

/** First match wins. Thinking cannot be switched off everywhere: the least that a model takes stands for off. */
const FAMILIES: readonly (readonly [RegExp, GeminiFamily])[] = [
  [/-(tts|live|image)\b|native-audio|nano-banana/, { ...BUDGETED, thinking: undefined }],
  [/gemini-(1|2\.0)|gemma|^(learnlm|text-)/, OLD],
  [/gemini-2\.5-pro/, { ...BUDGETED, thinking: budgets(128, 32_768) }],
  [/gemini-2\.5/, { ...BUDGETED, thinking: budgets(0, 24_576) }],
  [/gemini-3-pro/, { ...NEW, thinking: levels("low", "high") }],
  [/gemini-3(\.[0-6])?-flash/, { ...NEW, thinking: levels("minimal", "medium") }],
];

/** Models that nobody has met yet are taken for new ones; a name that is no Gemini's gets nothing special. */
export function geminiFamily(upstreamModel: string): GeminiFamily {
  const known = FAMILIES.find(([pattern]) => pattern.test(upstreamModel))?.[1];
  if (known) return known;
  return upstreamModel.includes("gemini") ? { ...NEW, thinking: levels("low", "medium") } : OLD;
}
