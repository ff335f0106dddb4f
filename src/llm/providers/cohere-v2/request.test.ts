/** What a Cohere call looks like on the wire. */
import { describe, expect, test } from "vitest";
import {
  call,
  completionInput,
  media,
  reasoning,
  result,
  says,
  state,
  text,
} from "../../../../test/support/completion-input.js";
import {
  Role,
  ToolChoiceMode,
  type CompletionInput,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ReasoningEffort } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { modelOf } from "../../config.js";
import { createCohereV2Dialect } from "./dialect.js";
import { COHERE_PLAN_STATE } from "./reader.js";

const dialect = createCohereV2Dialect();
const build = (input: CompletionInput, upstreamModel = "command-a-03-2025") =>
  dialect.buildRequest(input, { ...modelOf("m", "p"), upstreamModel });
const tools = ["f", "g"].map((name) => ({
  name,
  description: "d",
  parametersJsonSchema: `{"type":"object"}`,
}));

describe("cohere requests", () => {
  test("an assistant that said nothing is left out", () => {
    const { body } = build(completionInput([says(Role.USER, text("x")), says(Role.ASSISTANT, text(""))]));
    expect(body["messages"]).toEqual([{ role: "user", content: "x" }]);
  });

  test("a conversation with images, thinking, a plan, calls and results", () => {
    const { path, body } = build(
      completionInput([
        says(Role.SYSTEM, text("Be brief.")),
        says(
          Role.USER,
          text("Look"),
          media("image/png", Buffer.from("p")),
          media("image/png", "https://a.test/x.png"),
        ),
        says(Role.ASSISTANT, reasoning("hm"), text("So.")),
        says(Role.USER, text("a"), text("b")),
        says(
          Role.ASSISTANT,
          state({ provider: COHERE_PLAN_STATE, data: Buffer.from(`"I will look."`) }),
          call("f_1", "f", `{"a": 1}`),
        ),
        says(Role.TOOL, result("f_1", "one")),
      ]),
    );
    expect(path).toBe("/v2/chat");
    expect(body).toEqual({
      model: "command-a-03-2025",
      stream: true,
      messages: [
        { role: "system", content: "Be brief." },
        {
          role: "user",
          content: [
            { type: "text", text: "Look" },
            { type: "image_url", image_url: { url: "data:image/png;base64,cA==" } },
            { type: "image_url", image_url: { url: "https://a.test/x.png" } },
          ],
        },
        {
          role: "assistant",
          content: [
            { type: "thinking", thinking: "hm" },
            { type: "text", text: "So." },
          ],
        },
        { role: "user", content: "ab" },
        {
          role: "assistant",
          tool_plan: "I will look.",
          tool_calls: [{ id: "f_1", type: "function", function: { name: "f", arguments: `{"a":1}` } }],
        },
        { role: "tool", tool_call_id: "f_1", content: "one" },
      ],
    });
  });

  test.each([
    [ToolChoiceMode.AUTO, ["f", "g"], undefined],
    [ToolChoiceMode.NONE, ["f", "g"], "NONE"],
    [ToolChoiceMode.REQUIRED, ["f", "g"], "REQUIRED"],
    [ToolChoiceMode.ONE, ["g"], "REQUIRED"],
  ])("tool choice %i", (mode, offered, choice) => {
    const { body } = build(completionInput(undefined, { tools, toolChoice: { mode, toolName: "g" } }));
    expect((body["tools"] as { function: { name: string } }[]).map((tool) => tool.function.name)).toEqual(
      offered,
    );
    expect(body["tool_choice"]).toBe(choice);
  });

  test("sampling within Cohere's ranges, what does not exist is said", () => {
    const sampling = {
      temperature: 1.5,
      topP: 1,
      maxOutputTokens: 10,
      seed: "7",
      stop: ["a"],
      presencePenalty: -1,
      frequencyPenalty: 2,
    };
    const { body, dropped } = build(
      completionInput(undefined, { sampling, tools, parallelToolCalls: false, responseFormat: {} }),
    );
    expect(body).toMatchObject({
      temperature: 1,
      p: 0.99,
      max_tokens: 10,
      seed: 7,
      stop_sequences: ["a"],
      presence_penalty: 0,
      frequency_penalty: 1,
    });
    const said = ["temperature", "presence_penalty", "frequency_penalty"];
    expect(dropped).toEqual(["parallel_tool_calls", ...said, "response_format"]);
  });

  test.each([
    ["command-a-reasoning-08-2025", ReasoningEffort.UNSPECIFIED, undefined, []],
    ["command-a-reasoning-08-2025", ReasoningEffort.OFF, { type: "disabled" }, []],
    ["command-a-reasoning-08-2025", ReasoningEffort.LOW, { type: "enabled", token_budget: 1_024 }, []],
    ["command-a-reasoning-08-2025", ReasoningEffort.HIGH, { type: "enabled" }, []],
    ["command-a-03-2025", ReasoningEffort.OFF, undefined, []],
    ["command-a-03-2025", ReasoningEffort.LOW, undefined, ["reasoning_effort"]],
  ])("%s with effort %i", (model, reasoningEffort, thinking, dropped) => {
    const request = build(completionInput(undefined, { reasoningEffort }), model);
    expect(request.body["thinking"]).toEqual(thinking);
    expect(request.dropped).toEqual(dropped);
  });

  test("a JSON answer, strict tools, own fields", () => {
    const { body } = build(
      completionInput(undefined, {
        responseFormat: { jsonSchema: `{"type":"object"}` },
        providerOptionsJson: `{"safety_mode":"OFF"}`,
      }),
    );
    expect(body).toMatchObject({
      response_format: { type: "json_object", json_schema: { type: "object" } },
      safety_mode: "OFF",
    });
    expect(
      build(completionInput(undefined, { tools: [{ ...tools[0], strict: true }] })).body["strict_tools"],
    ).toBe(true);
  });

  test("media that Cohere cannot take name the field", () => {
    const pdf = completionInput([says(Role.USER, media("application/pdf", Buffer.from("p")))]);
    expect(() => build(pdf)).toThrow("input.messages[0].parts[0].media");
  });
});

describe("cohere servers", () => {
  test("models that chat, embeddings", () => {
    const models = [
      { name: "command-a-03-2025", endpoints: ["chat"], context_length: 288_000 },
      { name: "embed", endpoints: ["embed"] },
    ];
    expect(dialect.modelList?.read({ models })).toEqual([
      { id: "command-a-03-2025", ownedBy: "cohere", contextTokens: 288_000 },
    ]);
    expect(dialect.embedding?.request(["a"], modelOf("e", "p"))).toMatchObject({
      path: "/v2/embed",
      body: { texts: ["a"], embedding_types: ["float"] },
    });
    const answer = { embeddings: { float: [[1]] }, meta: { billed_units: { input_tokens: 2 } } };
    expect(dialect.embedding?.read(answer)).toEqual({ vectors: [[1]], inputTokens: 2 });
  });
});
