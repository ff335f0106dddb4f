/** What a call of OpenAI Responses looks like on the wire. */
import { describe, expect, test } from "vitest";
import {
  Role,
  ToolChoiceMode,
  type CompletionInput,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ReasoningEffort } from "../../../../gen/turnwire/packet/v1/common_pb.js";
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
import { modelOf } from "../../config.js";
import { createOpenAiResponsesDialect } from "./dialect.js";
import { PROVIDER_STATE } from "./item.js";

const OPENAI = "https://api.openai.com/v1";
const dialectAt = (baseUrl: string, quirks = {}) => createOpenAiResponsesDialect({ baseUrl, quirks });
const modelNamed = (upstreamModel: string) => ({ ...modelOf("m", "p"), upstreamModel });
const build = (input: CompletionInput, upstreamModel = "gpt-4.1", baseUrl = "https://a.test/v1") =>
  dialectAt(baseUrl).buildRequest(input, modelNamed(upstreamModel));
const items = (...conversation: ReturnType<typeof says>[]): unknown =>
  build(completionInput(conversation)).body["input"];
const kept = (item: object) => state({ provider: PROVIDER_STATE, data: Buffer.from(JSON.stringify(item)) });
const user = says(Role.USER, text("x"));
const tools = ["f", "g"].map((name) => ({ name, description: `does ${name}` }));

describe("responses requests - the conversation", () => {
  test("a flat list of items, nothing kept by the server", () => {
    const longId = `${"a".repeat(40)}${"b".repeat(40)}`;
    const shortId = `${"a".repeat(32)}${"b".repeat(32)}`;
    const input = completionInput([
      says(Role.SYSTEM, text("Be brief.")),
      says(
        Role.USER,
        text("Look"),
        media("image/png", Buffer.from("p")),
        media("image/png", "https://a.test/y.png"),
      ),
      says(Role.ASSISTANT, text("Well"), call("call_1", "f", `{"a":1}`), call(longId, "g", "{oops")),
      says(Role.TOOL, result("call_1", "one"), result(longId, "two", true)),
      says(Role.REMINDER, text("Two calls are left.")),
    ]);
    const { path, body, dropped } = build(input);
    expect({ path, dropped }).toEqual({ path: "/responses", dropped: [] });
    expect(body).toEqual({
      ...{ model: "gpt-4.1", stream: true, store: false },
      input: [
        { role: "system", content: "Be brief." },
        {
          role: "user",
          content: [
            { type: "input_text", text: "Look" },
            { type: "input_image", image_url: "data:image/png;base64,cA==" },
            { type: "input_image", image_url: "https://a.test/y.png" },
          ],
        },
        { role: "assistant", content: [{ type: "output_text", text: "Well" }] },
        { type: "function_call", call_id: "call_1", name: "f", arguments: `{"a":1}` },
        { type: "function_call", call_id: shortId, name: "g", arguments: "{}" },
        { type: "function_call_output", call_id: "call_1", output: "one" },
        { type: "function_call_output", call_id: shortId, output: "two" },
        { role: "user", content: [{ type: "input_text", text: "Two calls are left." }] },
      ],
    });
  });

  test("sealed reasoning goes back before the item it led to, never alone", () => {
    const thought = (id: string) => ({ type: "reasoning", id, summary: [], encrypted_content: "xyz" });
    const search = { type: "web_search_call", id: "ws_1", status: "completed" };
    const answer = says(
      Role.ASSISTANT,
      ...[reasoning("hm"), kept(thought("rs_1")), kept(search), kept(thought("rs_2")), text("Hi")],
      ...[kept({ type: "phase", phase: "commentary" }), call("c", "f", "{}"), kept(thought("rs_3"))],
    );
    expect(items(user, answer)).toEqual([
      { role: "user", content: [{ type: "input_text", text: "x" }] },
      thought("rs_1"),
      search,
      thought("rs_2"),
      { role: "assistant", content: [{ type: "output_text", text: "Hi" }], phase: "commentary" },
      { type: "function_call", call_id: "c", name: "f", arguments: "{}" },
    ]);
  });

  test("files and texts; what cannot be read is named", () => {
    const question = says(
      Role.USER,
      media("application/pdf", Buffer.from("p"), "x.pdf"),
      media("application/pdf", "https://a.test/x.pdf"),
      media("text/csv", Buffer.from("a,b"), "t.csv"),
    );
    expect(items(question)).toEqual([
      {
        role: "user",
        content: [
          { type: "input_file", filename: "x.pdf", file_data: "data:application/pdf;base64,cA==" },
          { type: "input_file", file_url: "https://a.test/x.pdf" },
          { type: "input_text", text: "t.csv:\na,b" },
        ],
      },
    ]);
    expect(() => items(says(Role.USER, media("audio/wav", Buffer.from("w"))))).toThrow(
      "input.messages[0].parts[0].media has a type that this dialect does not take: audio/wav",
    );
  });
});

describe("responses requests - parameters", () => {
  const built = (more: Parameters<typeof completionInput>[1], upstreamModel?: string, baseUrl?: string) => {
    const { body, dropped } = build(completionInput([user], more), upstreamModel, baseUrl);
    const { model: _m, input: _c, stream: _s, store: _t, ...rest } = body;
    return { ...rest, dropped };
  };

  test.each([
    [ToolChoiceMode.AUTO, "auto"],
    [ToolChoiceMode.NONE, "none"],
    [ToolChoiceMode.REQUIRED, "required"],
    [ToolChoiceMode.ONE, { type: "function", name: "g" }],
  ])("tool choice %s", (mode, wanted) => {
    expect(built({ tools, toolChoice: { mode, toolName: "g" } })).toMatchObject({ tool_choice: wanted });
  });

  test("tools say whether they are strict: left out, they would be", () => {
    expect(built({ tools: [tools[0]!], parallelToolCalls: false })).toEqual({
      tools: [
        {
          type: "function",
          name: "f",
          description: "does f",
          parameters: { type: "object", properties: {} },
          strict: false,
        },
      ],
      parallel_tool_calls: false,
      dropped: [],
    });
  });

  const SHOWN = { include: ["reasoning.encrypted_content"] };
  test.each<[string, ReasoningEffort, object]>([
    [
      "gpt-5-mini",
      ReasoningEffort.HIGH,
      { reasoning: { effort: "high", summary: "auto" }, ...SHOWN, dropped: [] },
    ],
    ["gpt-5-mini", ReasoningEffort.UNSPECIFIED, { reasoning: { summary: "auto" }, ...SHOWN, dropped: [] }],
    [
      "gpt-5-mini",
      ReasoningEffort.OFF,
      { reasoning: { effort: "minimal", summary: "auto" }, ...SHOWN, dropped: [] },
    ],
    ["gpt-5.2", ReasoningEffort.OFF, { reasoning: { effort: "none" }, dropped: [] }],
    [
      "o4-mini",
      ReasoningEffort.OFF,
      { reasoning: { summary: "auto" }, ...SHOWN, dropped: ["reasoning_effort"] },
    ],
    ["gpt-4.1", ReasoningEffort.LOW, { dropped: ["reasoning_effort"] }],
    ["gpt-4.1", ReasoningEffort.OFF, { dropped: [] }],
    [
      "some-model",
      ReasoningEffort.LOW,
      { reasoning: { effort: "low", summary: "auto" }, ...SHOWN, dropped: [] },
    ],
    ["some-model", ReasoningEffort.UNSPECIFIED, { dropped: [] }],
  ])("reasoning of %s at %s", (model, reasoningEffort, wanted) => {
    expect(built({ reasoningEffort }, model)).toEqual(wanted);
  });

  const SAMPLING = { temperature: 1.5, topP: 0.9, maxOutputTokens: 5, seed: "7", stop: ["END"] };
  test.each<[string, ReasoningEffort, object]>([
    ["gpt-4.1", ReasoningEffort.UNSPECIFIED, { temperature: 1.5, top_p: 0.9, dropped: ["seed", "stop"] }],
    ["gpt-5.2", ReasoningEffort.OFF, { temperature: 1.5, top_p: 0.9, dropped: ["seed", "stop"] }],
    ["gpt-5.2", ReasoningEffort.LOW, { dropped: ["temperature", "top_p", "seed", "stop"] }],
    ["o3", ReasoningEffort.UNSPECIFIED, { dropped: ["temperature", "top_p", "seed", "stop"] }],
  ])("sampling of %s at %s", (model, reasoningEffort, wanted) => {
    const {
      reasoning: _r,
      include: _i,
      ...rest
    } = built({ sampling: SAMPLING, reasoningEffort }, model) as Record<string, unknown>;
    expect(rest).toEqual({ ...wanted, max_output_tokens: 16 });
  });

  test("the form of the answer", () => {
    const format = { name: "city", jsonSchema: `{"type":"object"}`, strict: true };
    expect(built({ responseFormat: format })).toEqual({
      text: { format: { type: "json_schema", name: "city", schema: { type: "object" }, strict: true } },
      dropped: [],
    });
    expect(built({ responseFormat: {} })).toEqual({ text: { format: { type: "json_object" } }, dropped: [] });
  });

  test("OpenAI gets a key for its cache that stays as the conversation grows, and sends no padding", () => {
    const system = { ...says(Role.SYSTEM, text("Be brief.")), cacheBreakpoint: true };
    const keyOf = (...more: ReturnType<typeof says>[]) =>
      build(completionInput([system, ...more]), "gpt-4.1", OPENAI).body;
    expect(keyOf(user)["prompt_cache_key"]).toMatch(/^[0-9a-f]{32}$/);
    expect(keyOf(user, user)["prompt_cache_key"]).toBe(keyOf(user)["prompt_cache_key"]);
    expect(keyOf(user)["stream_options"]).toEqual({ include_obfuscation: false });
    expect(build(completionInput([system, user])).body).not.toHaveProperty("prompt_cache_key");
  });

  test("provider options: server tools and includes beside ours", () => {
    const options = { tools: [{ type: "web_search" }], include: ["web_search_call.action.sources"] };
    const more = { tools: [tools[0]!], providerOptionsJson: JSON.stringify(options) };
    expect(built(more, "gpt-5")).toMatchObject({
      tools: [{ type: "function" }, { type: "web_search" }],
      include: ["reasoning.encrypted_content", "web_search_call.action.sources"],
    });
    expect(() => built({ providerOptionsJson: `{"input":[]}` })).toThrow("must not set input");
  });
});

describe("responses dialect", () => {
  test("counts tokens where the server can", () => {
    const dialect = dialectAt(OPENAI);
    const request = dialect.tokenCount!.request(
      completionInput([user], { tools: [tools[0]!] }),
      modelNamed("gpt-4.1"),
    );
    expect(request.path).toBe("/responses/input_tokens");
    expect(Object.keys(request.body)).toEqual(["model", "input", "tools"]);
    expect(dialect.tokenCount!.read({ input_tokens: 12 })).toBe(12);
    expect(dialectAt("https://a.test/v1").tokenCount).toBeUndefined();
  });

  test("lists OpenAI's chat models, a good default first; others list what they have", () => {
    const data = ["text-embedding-3-small", "o3", "gpt-4o-audio-preview", "gpt-5-mini"].map((id) => ({
      id,
      owned_by: "x",
    }));
    expect(
      dialectAt(OPENAI)
        .modelList!.read({ data })
        .map(({ id }) => id),
    ).toEqual(["gpt-5-mini", "o3"]);
    expect(dialectAt("https://a.test/v1").modelList!.read({ data })).toHaveLength(4);
  });

  test("the key travels as the server wants it; quirks are checked", () => {
    const request = { method: "GET", url: "https://a.test", headers: {}, body: "" } as const;
    expect(dialectAt(OPENAI).authorize(request, "k")).toEqual({ authorization: "Bearer k" });
    expect(dialectAt("https://x.openai.azure.com/openai/v1").authorize(request, "k")).toEqual({
      "api-key": "k",
    });
    expect(dialectAt(OPENAI).authorize(request, undefined)).toEqual({});
    expect(() => dialectAt(OPENAI, { rawReasoning: "yes" })).toThrow(
      "quirks.rawReasoning must be true or false",
    );
    expect(() => dialectAt(OPENAI, { chatModels: "x" })).toThrow("quirks.chatModels is not known");
  });
});
