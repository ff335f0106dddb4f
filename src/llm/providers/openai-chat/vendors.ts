/** How servers of the OpenAI chat dialect differ in what they accept. Data only; a provider's settings may override it. */

export interface OpenAiChatQuirks {
  /** The member that limits the answer. */
  readonly maxTokensField: "max_tokens" | "max_completion_tokens";
  /** Whether `stream_options.include_usage` may be sent. */
  readonly streamUsage: boolean;
  /** The member of an assistant message in which earlier reasoning goes back; "" = it does not. */
  readonly reasoningField: "" | "reasoning_content" | "reasoning";
  /** What `reasoning_effort` is called when reasoning is to be off; "" = the member is left out. */
  readonly effortOff: string;
  /** Ids of the server's model list that answer chats; undefined = all. */
  readonly chatModels: RegExp | undefined;
  /** Models preferred as the default among those the server lists, best first. */
  readonly preferredModels: readonly string[];
}

const COMPATIBLE: OpenAiChatQuirks = {
  maxTokensField: "max_tokens",
  streamUsage: true,
  reasoningField: "",
  effortOff: "none",
  chatModels: undefined,
  preferredModels: [],
};

const BY_HOST: ReadonlyMap<string, Partial<OpenAiChatQuirks>> = new Map([
  [
    "api.openai.com",
    {
      maxTokensField: "max_completion_tokens",
      chatModels: /^(?:gpt-|o\d|chatgpt-)(?!.*(?:audio|realtime|image|transcribe|tts|search|instruct|codex))/,
      preferredModels: ["gpt-5-mini", "gpt-4.1-mini", "gpt-4o-mini"],
    },
  ],
  ["api.deepseek.com", { reasoningField: "reasoning_content", effortOff: "" }],
]);

/** The quirks of the server at this address. */
export function openAiChatQuirks(
  baseUrl: string,
  overrides: Partial<OpenAiChatQuirks> = {},
): OpenAiChatQuirks {
  return { ...COMPATIBLE, ...BY_HOST.get(new URL(baseUrl).hostname), ...overrides };
}
