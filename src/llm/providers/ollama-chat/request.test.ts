/** What an Ollama call looks like on the wire. */
import { describe, expect, test } from "vitest";
import {
  call,
  completionInput,
  media,
  reasoning,
  result,
  says,
  text,
} from "../../../../test/support/completion-input.js";
import {
  Role,
  ToolChoiceMode,
  type CompletionInput,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ReasoningEffort } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import type { ModelConfig } from "../../config.js";
import { modelOf } from "../../config.js";
import { createOllamaChatDialect } from "./dialect.js";

const dialect = createOllamaChatDialect({ baseUrl: "http://127.0.0.1:11434", quirks: {} });
const build = (input: CompletionInput, model: Partial<ModelConfig> = {}) =>
  dialect.buildRequest(input, { ...modelOf("qwen3", "p"), ...model });
const tools = ["f", "g"].map((name) => ({ name, description: "", parametersJsonSchema: "" }));
const specOf = (name: string) => ({
  type: "function",
  function: { name, description: "", parameters: { type: "object", properties: {} } },
});

describe("ollama requests", () => {
  test("an assistant that said nothing is left out", () => {
    const { body } = build(completionInput([says(Role.USER, text("x")), says(Role.ASSISTANT, text(""))]));
    expect(body["messages"]).toEqual([{ role: "user", content: "x" }]);
  });

  test("a conversation with images, texts, thinking, calls and results", () => {
    const { path, body, dropped } = build(
      completionInput([
        says(Role.SYSTEM, text("Be brief.")),
        says(
          Role.USER,
          text("Look"),
          media("image/png", Buffer.from("p")),
          media("text/csv", Buffer.from("a,b"), "t.csv"),
        ),
        says(
          Role.ASSISTANT,
          reasoning("hm"),
          text("Let me see"),
          call("c1", "f", `{"a":1}`),
          call("c2", "g", "broken"),
        ),
        says(Role.TOOL, result("c1", "one"), result("c2", "two")),
      ]),
    );
    expect(path).toBe("/api/chat");
    expect(body).toEqual({
      model: "qwen3",
      stream: true,
      messages: [
        { role: "system", content: "Be brief." },
        { role: "user", content: "Look\n\nt.csv:\na,b", images: ["cA=="] },
        {
          role: "assistant",
          content: "Let me see",
          thinking: "hm",
          tool_calls: [
            { id: "c1", function: { name: "f", arguments: { a: 1 } } },
            { id: "c2", function: { name: "g", arguments: {} } },
          ],
        },
        { role: "tool", content: "one", tool_name: "f", tool_call_id: "c1" },
        { role: "tool", content: "two", tool_name: "g", tool_call_id: "c2" },
      ],
    });
    expect(dropped).toEqual([]);
  });

  test.each([
    [ToolChoiceMode.AUTO, ["f", "g"], []],
    [ToolChoiceMode.NONE, undefined, []],
    [ToolChoiceMode.REQUIRED, ["f", "g"], ["tool_choice"]],
    [ToolChoiceMode.ONE, ["g"], ["tool_choice"]],
  ])("tool choice %i is kept as far as offering less can", (mode, offered, dropped) => {
    const request = build(completionInput(undefined, { tools, toolChoice: { mode, toolName: "g" } }));
    expect(request.body["tools"]).toEqual(offered?.map(specOf));
    expect(request.dropped).toEqual(dropped);
  });

  test.each([
    ["qwen3", undefined, ReasoningEffort.UNSPECIFIED, undefined],
    ["qwen3", true, ReasoningEffort.UNSPECIFIED, true],
    ["qwen3", undefined, ReasoningEffort.OFF, false],
    ["qwen3", undefined, ReasoningEffort.LOW, true],
    ["gpt-oss:20b", undefined, ReasoningEffort.HIGH, "high"],
    ["gpt-oss:20b", undefined, ReasoningEffort.OFF, "low"],
    ["llama3.2", false, ReasoningEffort.OFF, undefined],
  ])("%s (reasoning %s) with effort %i thinks %s", (upstreamModel, reasoning, reasoningEffort, think) => {
    const { body, dropped } = build(completionInput(undefined, { reasoningEffort }), {
      upstreamModel,
      reasoning,
    });
    expect(body["think"]).toBe(think);
    expect(dropped).toEqual([]);
  });

  test("options, the format, the context that was configured, own fields", () => {
    const input = completionInput(undefined, {
      sampling: {
        temperature: 0,
        topP: 0.9,
        maxOutputTokens: 10,
        seed: "7",
        stop: ["END"],
        presencePenalty: 1,
        frequencyPenalty: 2,
      },
      responseFormat: { jsonSchema: `{"type":"object"}` },
      reasoningEffort: ReasoningEffort.HIGH,
      providerOptionsJson: `{"keep_alive":"5m","options":{"top_k":5}}`,
    });
    const { body, dropped } = build(input, { contextTokens: 32_768, reasoning: false });
    expect(body["options"]).toEqual({
      ...{ temperature: 0, top_p: 0.9, num_predict: 10, seed: 7, stop: ["END"] },
      ...{ presence_penalty: 1, frequency_penalty: 2, num_ctx: 32_768, top_k: 5 },
    });
    expect(body).toMatchObject({ format: { type: "object" }, keep_alive: "5m" });
    expect(dropped).toEqual(["reasoning_effort"]);
    expect(build(completionInput(undefined, { responseFormat: {} })).body["format"]).toBe("json");
  });

  test("media that Ollama cannot take name the field", () => {
    const sends =
      (...parts: Parameters<typeof says>[1][]) =>
      () =>
        build(completionInput([says(Role.USER, ...parts)]));
    expect(sends(media("image/png", "https://a.test/x.png"))).toThrow(
      "input.messages[0].parts[0].media must hold its data",
    );
    expect(sends(text("x"), media("audio/wav", Buffer.from("p")))).toThrow(
      "input.messages[0].parts[1].media",
    );
  });
});

describe("ollama servers", () => {
  test("models that chat, and embeddings", () => {
    expect(dialect.modelList?.path).toBe("/api/tags");
    const models = [{ name: "qwen3:latest", model: "qwen3:latest" }, { name: "nomic-embed-text" }, {}];
    expect(dialect.modelList?.read({ models })).toEqual([
      { id: "qwen3:latest", ownedBy: "ollama", contextTokens: 0 },
    ]);
    expect(dialect.embedding?.request(["a", "b"], modelOf("e", "p"))).toMatchObject({
      path: "/api/embed",
      body: { model: "e", input: ["a", "b"] },
    });
    expect(dialect.embedding?.read({ embeddings: [[1], [2]], prompt_eval_count: 4 })).toEqual({
      vectors: [[1], [2]],
      inputTokens: 4,
    });
  });

  test("an address that ends with /api is the same server", () => {
    const other = createOllamaChatDialect({ baseUrl: "http://127.0.0.1:11434/api", quirks: {} });
    expect(other.buildRequest(completionInput(), modelOf("m", "p")).path).toBe("/chat");
    const outgoing = { method: "POST", url: "", headers: {}, body: "" } as const;
    expect([other.authorize(outgoing, undefined), other.authorize(outgoing, "k")]).toEqual([
      {},
      { authorization: "Bearer k" },
    ]);
  });
});
