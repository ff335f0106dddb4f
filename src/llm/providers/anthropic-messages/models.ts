/** What the families of Claude take. Data; the first family whose pattern is in the model's name counts. */

export interface ClaudeFamily {
  readonly pattern: RegExp;
  /** Most tokens of one answer. */
  readonly maxOutputTokens: number;
  /** budget: thinks up to a number of tokens. adaptive: thinks as it sees fit, steered by `effort`. */
  readonly thinking: "none" | "budget" | "adaptive";
  /** Takes `output_config.effort`. */
  readonly effort: boolean;
  /** one: temperature or top_p, not both. */
  readonly sampling: "both" | "one" | "none";
  /** Keeps to a JSON schema, for answers and for tools. */
  readonly schema: boolean;
  /** Hides its thinking unless a summary is asked for. */
  readonly hidesThinking: boolean;
  /** Goes on with an answer that the conversation ends in. */
  readonly goesOn: boolean;
}

const OLD = {
  thinking: "none",
  effort: false,
  sampling: "both",
  schema: false,
  hidesThinking: false,
  goesOn: true,
} as const;
const BUDGET = { ...OLD, thinking: "budget" } as const;
const BUDGET_SCHEMA = { ...BUDGET, sampling: "one", schema: true } as const;
const ADAPTIVE = { ...BUDGET_SCHEMA, thinking: "adaptive", effort: true, goesOn: false } as const;
const NEWEST = { ...ADAPTIVE, sampling: "none", hidesThinking: true } as const;

const FAMILIES: readonly ClaudeFamily[] = [
  { pattern: /claude-3[.-]7/, maxOutputTokens: 64_000, ...BUDGET },
  { pattern: /claude-3[.-]5/, maxOutputTokens: 8_192, ...OLD },
  { pattern: /claude-(?:3|2|instant)/, maxOutputTokens: 4_096, ...OLD },
  { pattern: /opus-4[.-]1(?!\d)/, maxOutputTokens: 32_000, ...BUDGET_SCHEMA },
  { pattern: /opus-4[.-]5(?!\d)/, maxOutputTokens: 64_000, ...BUDGET_SCHEMA, effort: true },
  { pattern: /(?:sonnet|haiku)-4[.-]5(?!\d)/, maxOutputTokens: 64_000, ...BUDGET_SCHEMA },
  { pattern: /sonnet-4[.-]6(?!\d)/, maxOutputTokens: 64_000, ...ADAPTIVE },
  { pattern: /opus-4[.-]6(?!\d)/, maxOutputTokens: 128_000, ...ADAPTIVE },
  { pattern: /claude-opus-4(?:-0|-20\d{6}|@|$)/, maxOutputTokens: 32_000, ...BUDGET },
  { pattern: /claude-sonnet-4(?:-0|-20\d{6}|@|$)/, maxOutputTokens: 64_000, ...BUDGET },
  { pattern: /claude/, maxOutputTokens: 128_000, ...NEWEST },
  // Other makers behind the same dialect.
  { pattern: /(?:)/, maxOutputTokens: 8_192, ...BUDGET },
];

/** The family of a model, by the provider's name for it. */
export function familyOf(upstreamModel: string): ClaudeFamily {
  const family = FAMILIES.find(({ pattern }) => pattern.test(upstreamModel.toLowerCase()));
  if (!family) throw new Error("the last family matches every name");
  return family;
}
