/** What the families of models on Bedrock take, as data. */
import { ReasoningEffort } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import type { Json } from "../../json.js";

type Effort = Exclude<ReasoningEffort, ReasoningEffort.UNSPECIFIED | ReasoningEffort.OFF>;

export interface BedrockFamily {
  /** Members of `additionalModelRequestFields` that make it reason; undefined = it cannot be told to. */
  readonly reasoning: ((effort: Effort) => Json) | undefined;
  /** Members that switch reasoning off where it is on by default. */
  readonly reasoningOff?: Json;
  /** Tokens of reasoning by effort, where they must stay below the answer's limit. */
  readonly budgets?: Readonly<Record<Effort, number>>;
  /** While it reasons it takes neither temperature nor top_p nor a forced tool. */
  readonly strictReasoning: boolean;
  /** What it takes of temperature and top_p. */
  readonly sampling: "both" | "one" | "none";
  /** A tool can be forced. */
  readonly toolChoice: boolean;
  /** Marks in the conversation at which its cache ends. */
  readonly cache: boolean;
}

const LEVELS = {
  [ReasoningEffort.LOW]: "low",
  [ReasoningEffort.MEDIUM]: "medium",
  [ReasoningEffort.HIGH]: "high",
} as const;

const BUDGETS = {
  [ReasoningEffort.LOW]: 1_024,
  [ReasoningEffort.MEDIUM]: 8_192,
  [ReasoningEffort.HIGH]: 24_576,
} as const;

const PLAIN: BedrockFamily = {
  reasoning: undefined,
  strictReasoning: false,
  sampling: "both",
  toolChoice: false,
  cache: false,
};

const CLAUDE: BedrockFamily = { ...PLAIN, toolChoice: true, strictReasoning: true, cache: true };

const BUDGETED_CLAUDE: BedrockFamily = {
  ...CLAUDE,
  budgets: BUDGETS,
  reasoning: (effort) => ({ thinking: { type: "enabled", budget_tokens: BUDGETS[effort] } }),
};

const ADAPTIVE_CLAUDE: BedrockFamily = {
  ...CLAUDE,
  sampling: "none",
  reasoning: (effort) => ({ thinking: { type: "adaptive" }, output_config: { effort: LEVELS[effort] } }),
};

/** First match wins. Ids may carry a region ("eu.") before and a version after the name. */
const FAMILIES: readonly (readonly [RegExp, BedrockFamily])[] = [
  [/claude-(instant|v2|3-(haiku|sonnet|opus))|claude-3-5-sonnet-20240620/, { ...CLAUDE, cache: false }],
  [/claude-3-5/, CLAUDE],
  [/claude-3-7/, BUDGETED_CLAUDE],
  [/claude-(opus|sonnet)-4-6/, { ...ADAPTIVE_CLAUDE, sampling: "one" }],
  [/claude-(opus-4-1|(opus|sonnet|haiku)-4-5)/, { ...BUDGETED_CLAUDE, sampling: "one" }],
  [/claude-(opus|sonnet)-4-(20|v)/, BUDGETED_CLAUDE],
  [/claude/, ADAPTIVE_CLAUDE],
  [
    /nova-2/,
    {
      ...PLAIN,
      toolChoice: true,
      cache: true,
      reasoning: (effort) => ({
        reasoningConfig: { type: "enabled", maxReasoningEffort: LEVELS[effort] },
      }),
      reasoningOff: { reasoningConfig: { type: "disabled" } },
    },
  ],
  [/nova/, { ...PLAIN, toolChoice: true, cache: true }],
  [/gpt-oss/, { ...PLAIN, reasoning: (effort) => ({ reasoning_effort: LEVELS[effort] }) }],
  [/mistral|pixtral|magistral|ministral/, { ...PLAIN, toolChoice: true }],
];

/** Models that nobody has met yet get nothing special. */
export function bedrockFamily(upstreamModel: string): BedrockFamily {
  return FAMILIES.find(([pattern]) => pattern.test(upstreamModel))?.[1] ?? PLAIN;
}
