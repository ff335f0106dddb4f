/**
 * Vendors of the OpenAI chat dialect, with what their servers take. A vendor is found by the host of the base URL, or named
 * in the configuration (`quirks: {vendor: ...}`), where a quirk can also be set by itself.
 */
import type { Json } from "../../json.js";
import type { ChatQuirks, EffortMembers } from "./chat-quirks.js";

export interface Vendor {
  /** Of the host, with its port where that tells. */
  readonly hosts?: RegExp;
  readonly quirks: Partial<ChatQuirks>;
  /** What depends on the base URL. */
  readonly quirksAt?: (baseUrl: URL) => Partial<ChatQuirks>;
  /** The first that matches the model's name counts; its `drops` come on top. */
  readonly models?: readonly { readonly match: RegExp; readonly quirks: Partial<ChatQuirks> }[];
  /** Ids of its model list that answer chats; undefined = all. */
  readonly chatModels?: RegExp;
  /** Models preferred as the default among those it lists, best first. */
  readonly preferredModels?: readonly string[];
}

type Level = keyof EffortMembers;

/** An effort that is a member of the request, by the vendor's words. */
function effortAs(member: (value: string) => Json, words: Partial<Record<Level, string>>): EffortMembers {
  return Object.fromEntries(Object.entries(words).map(([level, word]) => [level, member(word)]));
}

const plainEffort = (words: Partial<Record<Level, string>>): EffortMembers =>
  effortAs((value) => ({ reasoning_effort: value }), words);

const LOW_TO_HIGH = { low: "low", medium: "medium", high: "high" };
/** Reasoning that can be on or off, but not more or less. */
const SWITCH: EffortMembers = effortAs((type) => ({ thinking: { type } }), {
  ...{ off: "disabled", low: "enabled", medium: "enabled", high: "enabled" },
});
const TEMPLATE_OFF = { chat_template_kwargs: { enable_thinking: false } };
const PENALTIES = ["presence_penalty", "frequency_penalty"];

/** A server of which nothing is known. */
export const COMPATIBLE: ChatQuirks = {
  path: "/chat/completions",
  apiVersion: "",
  modelsPath: "/models",
  embeddingsPath: "/embeddings",
  keyHeader: "authorization",
  maxTokensField: "max_tokens",
  seedField: "seed",
  streamUsage: true,
  maxStops: 16,
  toolChoices: ["none", "required", "one"],
  formats: ["object", "schema"],
  media: ["image", "audio", "file"],
  efforts: plainEffort({ off: "none", ...LOW_TO_HIGH }),
  offByDefault: false,
  reasoningField: "",
  cacheMarks: false,
  callIds: "any",
  nullContent: true,
  userAfterTool: true,
  drops: [],
  extra: {},
};

/** OpenAI's reasoning models refuse what steers the choice of words; its others refuse an effort. */
const OPENAI_MODELS: Vendor["models"] = [
  { match: /^gpt-5.*chat|^chatgpt-/, quirks: { drops: ["reasoning_effort"] } },
  {
    match: /^gpt-5\.\d/,
    quirks: { drops: ["temperature", "top_p", "stop", ...PENALTIES] },
  },
  {
    match: /^gpt-5/,
    quirks: {
      efforts: plainEffort({ off: "minimal", ...LOW_TO_HIGH }),
      drops: ["temperature", "top_p", "stop", ...PENALTIES],
    },
  },
  {
    match: /^o\d/,
    quirks: {
      efforts: plainEffort(LOW_TO_HIGH),
      drops: ["temperature", "top_p", "stop", "parallel_tool_calls", ...PENALTIES],
    },
  },
  { match: /^gpt-[34]/, quirks: { drops: ["reasoning_effort"] } },
];

const OPENAI: Partial<ChatQuirks> = { maxTokensField: "max_completion_tokens", maxStops: 4 };
const AZURE_API_VERSION = "2024-10-21";

export const VENDORS: ReadonlyMap<string, Vendor> = new Map<string, Vendor>([
  ["compatible", { quirks: {} }],
  [
    "openai",
    {
      hosts: /^api\.openai\.com$/,
      quirks: OPENAI,
      models: OPENAI_MODELS,
      chatModels: /^(?:gpt-|o\d|chatgpt-)(?!.*(?:audio|realtime|image|transcribe|tts|search|instruct|codex))/,
      preferredModels: ["gpt-5-mini", "gpt-4.1-mini", "gpt-4o-mini"],
    },
  ],
  [
    "azure",
    {
      hosts: /\.(?:openai\.azure|services\.ai\.azure|cognitiveservices\.azure)\.com$/,
      // Its list names what could be deployed, not what is.
      quirks: { ...OPENAI, keyHeader: "api-key", modelsPath: "", apiVersion: AZURE_API_VERSION },
      quirksAt: ({ pathname }) => azurePaths(pathname),
      models: OPENAI_MODELS,
    },
  ],
  [
    "deepseek",
    {
      hosts: /^api\.deepseek\.com$/,
      quirks: {
        reasoningField: "reasoning_content",
        efforts: {
          off: { thinking: { type: "disabled" } },
          low: { thinking: { type: "enabled" }, reasoning_effort: "low" },
          medium: { thinking: { type: "enabled" }, reasoning_effort: "high" },
          high: { thinking: { type: "enabled" }, reasoning_effort: "max" },
        },
        offByDefault: true,
        formats: ["object"],
        media: [],
        drops: ["seed", "parallel_tool_calls"],
      },
    },
  ],
  [
    "groq",
    {
      hosts: /^api\.groq\.com$/,
      quirks: { maxTokensField: "max_completion_tokens", maxStops: 4, media: ["image"], drops: PENALTIES },
      models: [
        { match: /gpt-oss/, quirks: { efforts: plainEffort(LOW_TO_HIGH) } },
        {
          match: /qwen/,
          quirks: {
            efforts: plainEffort({ off: "none", low: "default", medium: "default", high: "default" }),
            offByDefault: true,
          },
        },
        { match: /./, quirks: { drops: ["reasoning_effort"] } },
      ],
    },
  ],
  [
    "mistral",
    {
      hosts: /^(?:api|codestral)\.mistral\.ai$/,
      quirks: {
        seedField: "random_seed",
        streamUsage: false, // comes by itself
        toolChoices: ["none", "any", "one"],
        media: ["image"],
        callIds: "nine",
        userAfterTool: false,
        drops: ["reasoning_effort"],
      },
    },
  ],
  [
    "xai",
    {
      hosts: /^api\.x\.ai$/,
      quirks: { maxTokensField: "max_completion_tokens", media: ["image"], drops: ["stop", ...PENALTIES] },
      models: [
        { match: /^grok-3-mini/, quirks: { efforts: plainEffort({ ...LOW_TO_HIGH, medium: "low" }) } },
        { match: /^grok-4\.3|^grok-latest/, quirks: {} },
        { match: /^grok-(?:4\.[5-9]|[5-9])/, quirks: { efforts: plainEffort(LOW_TO_HIGH) } },
        { match: /./, quirks: { drops: ["reasoning_effort"] } },
      ],
    },
  ],
  [
    "openrouter",
    {
      hosts: /^openrouter\.ai$/,
      quirks: {
        efforts: effortAs((effort) => ({ reasoning: { effort } }), { off: "none", ...LOW_TO_HIGH }),
        offByDefault: true,
        cacheMarks: true,
        extra: { usage: { include: true } },
      },
    },
  ],
  [
    "perplexity",
    {
      hosts: /^api\.perplexity\.ai$/,
      quirks: {
        modelsPath: "",
        formats: ["schema"],
        media: ["image"],
        drops: ["tools", "seed", "stop", "parallel_tool_calls"],
      },
      models: [
        { match: /deep-research/, quirks: { efforts: plainEffort(LOW_TO_HIGH) } },
        { match: /./, quirks: { drops: ["reasoning_effort"] } },
      ],
    },
  ],
  [
    "alibaba",
    {
      hosts: /^dashscope(?:-[a-z]+)?\.aliyuncs\.com$/,
      quirks: {
        efforts: {
          off: { enable_thinking: false },
          low: { enable_thinking: true, thinking_budget: 1024 },
          medium: { enable_thinking: true, thinking_budget: 8192 },
          high: { enable_thinking: true },
        },
        offByDefault: true,
        toolChoices: ["none", "one"],
        media: ["image", "audio"],
        cacheMarks: true,
        drops: ["frequency_penalty"],
      },
    },
  ],
  [
    "moonshot",
    {
      hosts: /^api\.moonshot\.(?:ai|cn)$/,
      quirks: {
        reasoningField: "reasoning_content",
        efforts: SWITCH,
        toolChoices: ["none"],
        media: ["image"],
        drops: ["seed", "parallel_tool_calls"],
      },
    },
  ],
  [
    "zai",
    {
      hosts: /^(?:api\.z\.ai|open\.bigmodel\.cn)$/,
      quirks: {
        efforts: SWITCH,
        offByDefault: true,
        toolChoices: [],
        formats: ["object"],
        media: ["image"],
        maxStops: 1,
        drops: ["seed", "parallel_tool_calls", ...PENALTIES],
      },
    },
  ],
  [
    "vllm",
    {
      quirks: {
        reasoningField: "reasoning",
        efforts: { ...plainEffort(LOW_TO_HIGH), off: TEMPLATE_OFF },
        media: ["image", "audio"],
      },
    },
  ],
  [
    "llama-cpp",
    {
      quirks: {
        reasoningField: "reasoning_content",
        efforts: { ...plainEffort(LOW_TO_HIGH), off: TEMPLATE_OFF },
        media: ["image", "audio"],
      },
    },
  ],
  [
    "lmstudio",
    {
      hosts: /:1234$/,
      quirks: {
        formats: ["schema"],
        toolChoices: ["none", "required"],
        media: ["image"],
        nullContent: false,
      },
    },
  ],
  [
    "ollama",
    {
      hosts: /:11434$/,
      quirks: {
        reasoningField: "reasoning",
        nullContent: false,
        toolChoices: [],
        media: ["image"],
        drops: ["parallel_tool_calls"],
      },
    },
  ],
  [
    "snowflake",
    {
      hosts: /\.snowflakecomputing\.(?:com|cn)$/,
      quirks: {
        modelsPath: "",
        maxTokensField: "max_completion_tokens",
        formats: ["schema"],
        media: ["image"],
        drops: ["seed", "stop", "parallel_tool_calls", ...PENALTIES],
      },
    },
  ],
  [
    "writer",
    {
      hosts: /^api\.writer\.com$/,
      quirks: {
        path: "/chat",
        formats: ["schema"],
        media: [],
        drops: ["seed", "parallel_tool_calls", "reasoning_effort", ...PENALTIES],
      },
    },
  ],
]);

/** The vendor whose host this is. */
export function vendorAt({ hostname, host }: URL): Vendor {
  const known = [...VENDORS.values()].find(({ hosts }) => hosts?.test(hostname) || hosts?.test(host));
  return known ?? { quirks: {} };
}

/** Resources with an API of versions know models as deployments; the newer one is like OpenAI's. */
function azurePaths(pathname: string): Partial<ChatQuirks> {
  if (/\/v1$/.test(pathname)) return {};
  const prefix = /\/deployments\//.test(pathname) ? "" : "/openai/deployments/{model}";
  return {
    path: `${prefix}/chat/completions?api-version={apiVersion}`,
    embeddingsPath: `${prefix}/embeddings?api-version={apiVersion}`,
  };
}
