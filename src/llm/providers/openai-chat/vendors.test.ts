/** What vendors of the dialect get: every parameter is sent under their name for it, mapped, or left out and said. */
import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  CompletionInputSchema,
  Role,
  ToolChoiceMode,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, ReasoningEffort } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import type { ModelConfig } from "../../config.js";
import { modelOf } from "../../config.js";
import type { DialectRequest } from "../dialect.js";
import { createOpenAiChatDialect } from "./dialect.js";
import { VENDORS } from "./vendors.js";

type InputInit = Parameters<typeof create<typeof CompletionInputSchema>>[1] & object;

interface Ask {
  readonly url?: string;
  readonly vendor?: string;
  readonly model?: string;
  readonly config?: Partial<ModelConfig>;
}

function build(ask: Ask, input: InputInit): DialectRequest {
  const quirks = ask.vendor === undefined ? {} : { vendor: ask.vendor };
  const dialect = createOpenAiChatDialect({ baseUrl: ask.url ?? "http://local.test/v1", quirks });
  const messages = [{ role: Role.USER, parts: [{ part: { case: "text" as const, value: "x" } }] }];
  const model = { ...modelOf(ask.model ?? "m", "p"), ...ask.config };
  return dialect.buildRequest(create(CompletionInputSchema, { messages, ...input }), model);
}

/** Everything that can be set. */
const ALL: InputInit = {
  tools: [{ name: "f", strict: true }],
  toolChoice: { mode: ToolChoiceMode.REQUIRED },
  parallelToolCalls: false,
  sampling: {
    ...{ temperature: 0.5, topP: 0.9, maxOutputTokens: 7, presencePenalty: 1, frequencyPenalty: 1 },
    ...{ seed: "3", stop: ["a"] },
  },
  reasoningEffort: ReasoningEffort.MEDIUM,
  responseFormat: { name: "n", jsonSchema: `{"type":"object"}`, strict: true },
};

/** What was asked for is either in the request or named as dropped. */
const MEMBERS_OF: Readonly<Record<string, readonly string[]>> = {
  tools: ["tools"],
  tool_choice: ["tool_choice"],
  parallel_tool_calls: ["parallel_tool_calls"],
  temperature: ["temperature"],
  top_p: ["top_p"],
  max_output_tokens: ["max_tokens", "max_completion_tokens"],
  presence_penalty: ["presence_penalty"],
  frequency_penalty: ["frequency_penalty"],
  seed: ["seed", "random_seed"],
  stop: ["stop"],
  reasoning_effort: ["reasoning_effort", "reasoning", "thinking", "enable_thinking"],
  response_format: ["response_format"],
};

describe("openai chat vendors", () => {
  for (const vendor of VENDORS.keys()) {
    test(`${vendor} - what is set is sent, or named as dropped, never both`, () => {
      for (const model of ["m", "gpt-5", "gpt-5.1", "o3", "gpt-4o", "grok-4.3", "grok-4", "qwen3"]) {
        const { body, dropped } = build({ vendor, model }, ALL);
        for (const [name, members] of Object.entries(MEMBERS_OF)) {
          if (dropped.includes("tools") && ["tool_choice", "parallel_tool_calls"].includes(name)) continue;
          const isSent = members.some((member) => member in body);
          expect([vendor, model, name, isSent], JSON.stringify(dropped)).toEqual([
            ...[vendor, model, name],
            !dropped.includes(name),
          ]);
        }
        for (const name of dropped) expect(Object.keys(MEMBERS_OF)).toContain(name.split(".")[0]);
      }
    });
  }

  test.each([
    ["https://api.openai.com/v1", "gpt-5", { reasoning_effort: "medium", max_completion_tokens: 7 }],
    ["https://api.deepseek.com", "m", { thinking: { type: "enabled" }, reasoning_effort: "high" }],
    ["https://api.groq.com/openai/v1", "qwen/qwen3-32b", { reasoning_effort: "default" }],
    ["https://api.mistral.ai/v1", "m", { random_seed: 3, tool_choice: "any" }],
    ["https://api.x.ai/v1", "grok-3-mini", { reasoning_effort: "low" }],
    ["https://openrouter.ai/api/v1", "m", { reasoning: { effort: "medium" }, usage: { include: true } }],
    ["https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "m", { enable_thinking: true }],
    ["https://api.moonshot.ai/v1", "m", { thinking: { type: "enabled" } }],
    ["https://api.z.ai/api/paas/v4", "m", { response_format: { type: "json_object" } }],
    ["http://127.0.0.1:1234/v1", "m", { response_format: { type: "json_schema" } }],
  ])("%s is known by its host", (url, model, members) => {
    expect(build({ url, model }, ALL).body).toMatchObject(members);
  });

  test("more stop texts than the server takes - the first ones, and that is said", () => {
    expect(build({ vendor: "zai" }, { sampling: { stop: ["a", "b"] } })).toMatchObject({
      body: { stop: ["a"] },
      dropped: ["stop"],
    });
  });

  test("no vendor by its host - nothing is left out", () => {
    expect(build({}, ALL).dropped).toEqual([]);
  });

  test("reasoning off - said where it is on by default, or where the model is known to reason", () => {
    const off = (ask: Ask): unknown[] => {
      const { body, dropped } = build(ask, { reasoningEffort: ReasoningEffort.OFF });
      return [body["thinking"] ?? body["reasoning_effort"] ?? body["chat_template_kwargs"], dropped];
    };
    expect(off({ vendor: "deepseek" })).toEqual([{ type: "disabled" }, []]);
    expect(off({ vendor: "openai", model: "gpt-4o" })).toEqual([undefined, []]);
    expect(off({ vendor: "openai", model: "gpt-5", config: { reasoning: true } })).toEqual(["minimal", []]);
    expect(off({ vendor: "openai", model: "o3", config: { reasoning: true } })).toEqual([
      undefined,
      ["reasoning_effort"],
    ]);
    expect(off({ vendor: "vllm", config: { reasoning: true } })).toEqual([{ enable_thinking: false }, []]);
    expect(off({ vendor: "deepseek", config: { reasoning: false } })).toEqual([undefined, []]);
  });

  test("azure - deployments and versions, the key in a header of its own", () => {
    const at = (url: string): string => build({ url, model: "my gpt" }, {}).path;
    expect(at("https://r.openai.azure.com")).toBe(
      "/openai/deployments/my%20gpt/chat/completions?api-version=2024-10-21",
    );
    expect(at("https://r.openai.azure.com/openai/deployments/d")).toBe(
      "/chat/completions?api-version=2024-10-21",
    );
    expect(at("https://r.openai.azure.com/openai/v1")).toBe("/chat/completions");
    const dialect = createOpenAiChatDialect({ baseUrl: "https://r.openai.azure.com", quirks: {} });
    const outgoing = { method: "POST" as const, url: "", headers: {}, body: "" };
    expect(dialect.authorize(outgoing, "k")).toEqual({ "api-key": "k" });
    expect(dialect.modelList).toBeUndefined();
  });

  test("a choice against tools that the server does not know - none are offered", () => {
    const none = { tools: [{ name: "f" }], toolChoice: { mode: ToolChoiceMode.NONE } };
    expect(build({ vendor: "zai" }, none).body).not.toHaveProperty("tools");
    expect(build({ vendor: "openai" }, none).body).toMatchObject({ tool_choice: "none" });
  });

  test("a format of any object - as a schema where the server knows nothing else", () => {
    expect(build({ vendor: "lmstudio" }, { responseFormat: {} })).toMatchObject({
      body: { response_format: { type: "json_schema", json_schema: { schema: { type: "object" } } } },
      dropped: [],
    });
    expect(build({ vendor: "deepseek" }, ALL).dropped).toContain("response_format.json_schema");
  });

  test.each([
    [{ vendor: "nobody" }, "quirks.vendor"],
    [{ maxTokensFeild: "x" }, "quirks.maxTokensFeild"],
    [{ streamUsage: "yes" }, "quirks.streamUsage"],
    [{ drops: "seed" }, "quirks.drops"],
    [{ efforts: ["low"] }, "quirks.efforts"],
  ])("%j is refused, naming the key", (quirks, field) => {
    expect(() => createOpenAiChatDialect({ baseUrl: "http://local.test", quirks })).toThrow(
      expect.objectContaining({ code: ErrorCode.INVALID_ARGUMENT, details: { field } }),
    );
  });

  test("embeddings - asked for and read in the order of the texts", () => {
    const { embedding } = createOpenAiChatDialect({ baseUrl: "http://local.test/v1", quirks: {} });
    expect(embedding?.request(["a", "b"], modelOf("e", "p"))).toMatchObject({
      path: "/embeddings",
      body: { model: "e", input: ["a", "b"] },
    });
    const data = [
      { index: 1, embedding: [2] },
      { index: 0, embedding: [1] },
    ];
    expect(embedding?.read({ data, usage: { prompt_tokens: 4 } })).toEqual({
      vectors: [[1], [2]],
      inputTokens: 4,
    });
  });
});
