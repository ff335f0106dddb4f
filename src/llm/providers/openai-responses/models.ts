/** What models and servers of the Responses dialect take. Data only; a provider's settings may override the server's. */

export interface ResponsesQuirks {
  /** How the key travels. */
  readonly auth: "bearer" | "api-key";
  /** Show reasoning that is no summary (`reasoning_text`). Off where the makers ask not to. */
  readonly rawReasoning: boolean;
  /** Ask for the sealed reasoning that goes back with the next call, for models that reason. */
  readonly sealedReasoning: boolean;
  /** Ask for a summary of the reasoning, for models that reason. */
  readonly reasoningSummary: boolean;
  /** Name the part of the conversation that is to stay in the server's cache. */
  readonly cacheKey: boolean;
  /** Leave out the padding of the events. */
  readonly plainEvents: boolean;
  /** The server counts tokens (`/responses/input_tokens`). */
  readonly countsTokens: boolean;
  /** Ids of the server's model list that answer chats; undefined = all. */
  readonly chatModels: RegExp | undefined;
  /** Models preferred as the default among those the server lists, best first. */
  readonly preferredModels: readonly string[];
}

const COMPATIBLE: ResponsesQuirks = {
  auth: "bearer",
  rawReasoning: false,
  sealedReasoning: true,
  reasoningSummary: true,
  cacheKey: false,
  plainEvents: false,
  countsTokens: false,
  chatModels: undefined,
  preferredModels: [],
};

const AZURE: Partial<ResponsesQuirks> = { auth: "api-key", cacheKey: true };

/** By the end of the host's name. */
const BY_HOST: readonly (readonly [string, Partial<ResponsesQuirks>])[] = [
  [
    "api.openai.com",
    {
      cacheKey: true,
      plainEvents: true,
      countsTokens: true,
      chatModels:
        /^(?:gpt-|o\d|chatgpt-|codex-)(?!.*(?:audio|realtime|image|transcribe|tts|search|instruct))/,
      preferredModels: ["gpt-5-mini", "gpt-4.1-mini", "gpt-4o-mini"],
    },
  ],
  [".openai.azure.com", AZURE],
  [".services.ai.azure.com", AZURE],
  ["openrouter.ai", { rawReasoning: true }],
  ["api.deepseek.com", { rawReasoning: true }],
];

/** The quirks of the server at this address. */
export function responsesQuirks(baseUrl: string, overrides: Partial<ResponsesQuirks>): ResponsesQuirks {
  const { hostname } = new URL(baseUrl);
  const known = BY_HOST.find(([end]) => hostname === end || (end.startsWith(".") && hostname.endsWith(end)));
  return { ...COMPATIBLE, ...known?.[1], ...overrides };
}

export interface ModelFamily {
  readonly pattern: RegExp;
  /** undefined = unknown: what is asked for is passed on. */
  readonly reasons: boolean | undefined;
  /** What reasoning is called when it is to be off; undefined = it cannot be. */
  readonly effortOff: string | undefined;
  /** Takes temperature and top_p: always, never, or when it does not reason. */
  readonly sampling: "always" | "never" | "unless reasoning";
}

const NO_CHOICE = { reasons: true, effortOff: undefined, sampling: "never" } as const;

/** The first whose pattern is in the model's name. */
const FAMILIES: readonly ModelFamily[] = [
  { pattern: /gpt-5[^/]*chat|chatgpt/, reasons: false, effortOff: undefined, sampling: "always" },
  { pattern: /gpt-5[^/]*-pro/, ...NO_CHOICE },
  { pattern: /gpt-5\.\d+[^/]*codex/, ...NO_CHOICE, effortOff: "none" },
  { pattern: /gpt-5[^/]*codex|codex-mini/, ...NO_CHOICE },
  { pattern: /gpt-5\.\d/, reasons: true, effortOff: "none", sampling: "unless reasoning" },
  { pattern: /gpt-5/, ...NO_CHOICE, effortOff: "minimal" },
  { pattern: /(?:^|\/)o\d/, ...NO_CHOICE },
  { pattern: /(?:^|\/)gpt-[34]/, reasons: false, effortOff: undefined, sampling: "always" },
  { pattern: /(?:^|\/)gpt-oss/, reasons: true, effortOff: "low", sampling: "always" },
  { pattern: /(?:^|\/)gpt-/, reasons: true, effortOff: "none", sampling: "unless reasoning" },
  { pattern: /(?:)/, reasons: undefined, effortOff: "none", sampling: "always" },
];

/** The family of a model, by the server's name for it. */
export function familyOf(upstreamModel: string): ModelFamily {
  const family = FAMILIES.find(({ pattern }) => pattern.test(upstreamModel.toLowerCase()));
  if (!family) throw new Error("the last family matches every name");
  return family;
}
