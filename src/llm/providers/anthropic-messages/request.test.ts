/** What a call of Anthropic Messages looks like on the wire. */
import { describe, expect, test } from "vitest";
import {
  Role,
  ToolChoiceMode,
  type CompletionInput,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, ReasoningEffort } from "../../../../gen/turnwire/packet/v1/common_pb.js";
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
import { PROVIDER_STATE } from "./content-block.js";
import { createAnthropicMessagesDialect } from "./dialect.js";

const dialect = createAnthropicMessagesDialect({ baseUrl: "https://api.anthropic.com/v1", quirks: {} });
const modelNamed = (upstreamModel: string) => ({ ...modelOf("m", "p"), upstreamModel });
const build = (input: CompletionInput, upstreamModel = "claude-sonnet-4-5-20250929") =>
  dialect.buildRequest(input, modelNamed(upstreamModel));
const messages = (...conversation: ReturnType<typeof says>[]): unknown =>
  build(completionInput(conversation)).body["messages"];
const kept = (...blocks: object[]) =>
  state({ provider: PROVIDER_STATE, data: Buffer.from(JSON.stringify(blocks)) });
const user = says(Role.USER, text("x"));
const tools = ["f", "g"].map((name) => ({ name, description: `does ${name}` }));

describe("anthropic requests - the conversation", () => {
  test("system apart, neighbours of one role together, results before all else", () => {
    const input = completionInput([
      says(Role.SYSTEM, text("Be brief.")),
      says(Role.USER, text("Look"), media("image/png", Buffer.from("p"))),
      says(Role.ASSISTANT, text("Well "), call("toolu_1", "f", `{"a":1}`), call("bad id!", "g", "{oops")),
      says(Role.USER, text("Hurry")),
      says(Role.TOOL, result("toolu_1", "one"), result("bad id!", "", true)),
      says(Role.REMINDER, text("Two calls are left.")),
    ]);
    const { path, headers, body, dropped } = build(input);
    expect({ path, headers, dropped }).toEqual({
      path: "/messages",
      headers: { "anthropic-version": "2023-06-01" },
      dropped: [],
    });
    expect(body).toEqual({
      model: "claude-sonnet-4-5-20250929",
      max_tokens: 32_000,
      stream: true,
      system: [{ type: "text", text: "Be brief." }],
      messages: [
        {
          role: "user",
          content: [
            { type: "text", text: "Look" },
            { type: "image", source: { type: "base64", media_type: "image/png", data: "cA==" } },
          ],
        },
        {
          role: "assistant",
          content: [
            { type: "text", text: "Well " },
            { type: "tool_use", id: "toolu_1", name: "f", input: { a: 1 } },
            { type: "tool_use", id: "bad_id_", name: "g", input: {} },
          ],
        },
        {
          role: "user",
          content: [
            { type: "tool_result", tool_use_id: "toolu_1", content: [{ type: "text", text: "one" }] },
            { type: "tool_result", tool_use_id: "bad_id_", is_error: true },
            { type: "text", text: "Hurry" },
            { type: "text", text: "Two calls are left." },
          ],
        },
      ],
    });
  });

  test("thinking goes back as it was signed, where it stood; as text it does not", () => {
    const thinking = { type: "thinking", thinking: "hm", signature: "s" };
    const search = { type: "server_tool_use", id: "srv_1", name: "web_search", input: {} };
    const found = { type: "web_search_tool_result", tool_use_id: "srv_1", content: [] };
    const event = { type: "content_block_start", index: 3, content_block: found };
    const foreign = state({ provider: "gemini", data: Buffer.from("[{}]") });
    const answer = says(
      Role.ASSISTANT,
      ...[
        reasoning("hm"),
        kept(thinking),
        text("Let me see"),
        kept(search, event),
        foreign,
        call("c", "f", "{}"),
      ],
    );
    expect(messages(user, answer, says(Role.TOOL, result("c", "r")))).toMatchObject([
      {},
      {
        role: "assistant",
        content: [thinking, { type: "text", text: "Let me see" }, search, found, { type: "tool_use" }],
      },
      {},
    ]);
  });

  test("documents and addresses; what cannot be read is named", () => {
    const question = says(
      Role.USER,
      media("application/pdf", "https://a.test/x.pdf", "x.pdf"),
      media("text/csv", Buffer.from("a,b"), "t.csv"),
      media("image/jpeg", "https://a.test/y.jpg"),
    );
    expect(messages(question)).toEqual([
      {
        role: "user",
        content: [
          { type: "document", source: { type: "url", url: "https://a.test/x.pdf" }, title: "x.pdf" },
          {
            type: "document",
            source: { type: "text", media_type: "text/plain", data: "a,b" },
            title: "t.csv",
          },
          { type: "image", source: { type: "url", url: "https://a.test/y.jpg" } },
        ],
      },
    ]);
    expect(() => messages(says(Role.USER, text("x"), media("audio/wav", Buffer.from("w"))))).toThrow(
      "input.messages[0].parts[1].media has a type that this model does not take: audio/wav",
    );
    expect(() => messages(says(Role.SYSTEM, text("x")))).toThrow("input.messages must hold a message");
  });

  test("blank text is left out, an answer to be continued does not end in blanks", () => {
    expect(messages(user, says(Role.ASSISTANT, text("\n")), says(Role.ASSISTANT, text("Once ")))).toEqual([
      { role: "user", content: [{ type: "text", text: "x" }] },
      { role: "assistant", content: [{ type: "text", text: "Once" }] },
    ]);
  });

  test("the last four cache breakpoints are marked, never on thinking", () => {
    const marked = (role: Role, ...parts: Parameters<typeof says>[1][]) => ({
      ...says(role, ...parts),
      cacheBreakpoint: true,
    });
    const thinking = { type: "thinking", thinking: "hm", signature: "s" };
    const input = completionInput([
      marked(Role.SYSTEM, text("a")),
      marked(Role.USER, text("b")),
      marked(Role.ASSISTANT, text("c"), kept(thinking)),
      marked(Role.USER, text("d")),
      marked(Role.USER, text("e")),
    ]);
    const json = JSON.stringify(build(input).body);
    expect(json.match(/"text":"\w","cache_control":\{"type":"ephemeral"\}/g)).toHaveLength(4);
    expect(json).toContain(`{"type":"text","text":"a"}`);
    expect(json).toContain(`{"type":"thinking","thinking":"hm","signature":"s"}`);
  });
});

describe("anthropic requests - parameters", () => {
  const built = (more: Parameters<typeof completionInput>[1], upstreamModel?: string) => {
    const { body, dropped } = build(completionInput([user], more), upstreamModel);
    const { model: _m, messages: _c, stream: _s, max_tokens: _t, ...rest } = body;
    return { ...rest, dropped };
  };

  test.each([
    [ToolChoiceMode.AUTO, { type: "auto" }],
    [ToolChoiceMode.NONE, { type: "none" }],
    [ToolChoiceMode.REQUIRED, { type: "any" }],
    [ToolChoiceMode.ONE, { type: "tool", name: "g" }],
  ])("tool choice %s", (mode, wanted) => {
    const got = built({ tools, toolChoice: { mode, toolName: "g" } });
    expect(got).toMatchObject({ tool_choice: wanted });
  });

  test("tools with their schemas; one call at a time", () => {
    const strict = { name: "h", description: "", parametersJsonSchema: `{"properties":{}}`, strict: true };
    expect(built({ tools: [tools[0]!, strict], parallelToolCalls: false })).toEqual({
      tools: [
        { name: "f", description: "does f", input_schema: { type: "object", properties: {} } },
        { name: "h", input_schema: { type: "object", properties: {} }, strict: true },
      ],
      tool_choice: { type: "auto", disable_parallel_tool_use: true },
      dropped: [],
    });
  });

  test("an answer goes on where it stops, by itself or when asked to, and then without thinking", () => {
    const begun = [user, says(Role.ASSISTANT, text("Once"))];
    const effort = { reasoningEffort: ReasoningEffort.LOW };
    const older = build(completionInput(begun, effort), "claude-sonnet-4-5");
    expect(older.body["messages"]).toHaveLength(2);
    expect(older.dropped).toEqual(["reasoning_effort"]);
    const newer = build(completionInput(begun, effort), "claude-opus-4-6");
    expect(newer.body["messages"]).toMatchObject([{}, {}, { role: "user" }]);
    expect(newer.body["thinking"]).toEqual({ type: "adaptive" });
  });

  const EFFORT = { reasoningEffort: ReasoningEffort.MEDIUM };
  test.each([
    ["claude-sonnet-4-5", { thinking: { type: "enabled", budget_tokens: 8192 } }],
    ["claude-opus-4-5-20251101", { thinking: { budget_tokens: 8192 }, output_config: { effort: "medium" } }],
    ["claude-opus-4-6", { thinking: { type: "adaptive" }, output_config: { effort: "medium" } }],
    ["anthropic.claude-opus-4-7-v1:0", { thinking: { type: "adaptive", display: "summarized" } }],
    ["claude-3-5-haiku-latest", { dropped: ["reasoning_effort"] }],
    ["some-other-model", { thinking: { type: "enabled" } }],
  ])("reasoning of %s", (model, wanted) => {
    expect(built(EFFORT, model)).toMatchObject(wanted);
  });

  test("no thinking beside a forced call, in the middle of an answer that began without, or in too few tokens", () => {
    const forced = { tools, toolChoice: { mode: ToolChoiceMode.REQUIRED }, ...EFFORT };
    const loop = [user, says(Role.ASSISTANT, call("c", "f", "{}")), says(Role.TOOL, result("c", "r"))];
    expect(built(forced)).toMatchObject({ tool_choice: { type: "any" }, dropped: ["reasoning_effort"] });
    expect(build(completionInput(loop, EFFORT)).dropped).toEqual(["reasoning_effort"]);
    expect(built({ sampling: { maxOutputTokens: 1000 }, ...EFFORT }).dropped).toEqual(["reasoning_effort"]);
    expect(built({ reasoningEffort: ReasoningEffort.OFF })).toEqual({ dropped: [] });
  });

  const SAMPLING = { temperature: 1.5, topP: 0.9, seed: "7", presencePenalty: 1, stop: ["END", " "] };
  test.each([
    ["claude-3-5-sonnet-latest", { temperature: 1, top_p: 0.9 }, ["temperature"]],
    ["claude-sonnet-4-5", { temperature: 1 }, ["temperature", "top_p"]],
    ["claude-opus-4-7", {}, ["temperature", "top_p"]],
  ])("sampling of %s", (model, wanted, dropped) => {
    expect(built({ sampling: SAMPLING }, model)).toEqual({
      ...wanted,
      stop_sequences: ["END"],
      dropped: [...dropped, "presence_penalty", "seed", "stop"],
    });
  });

  test("the longest answer is what was asked for, within what the family writes", () => {
    const most = (model: string, maxOutputTokens?: number) =>
      build(completionInput([user], { sampling: { maxOutputTokens } }), model).body["max_tokens"];
    expect([
      most("claude-3-haiku-20240307"),
      most("claude-3-haiku-20240307", 9000),
      most("claude-opus-4-6", 100_000),
    ]).toEqual([4096, 4096, 100_000]);
  });

  test("a schema for the answer where the model keeps to one", () => {
    const responseFormat = { jsonSchema: `{"type":"object"}` };
    expect(built({ responseFormat })).toEqual({
      output_config: { format: { type: "json_schema", schema: { type: "object" } } },
      dropped: [],
    });
    expect(built({ responseFormat }, "claude-3-7-sonnet-latest")).toEqual({ dropped: ["response_format"] });
    expect(built({ responseFormat: {} })).toEqual({ dropped: ["response_format"] });
  });

  test("what is nested so deeply that it could not be written is refused, in old calls left out", () => {
    const deep = (levels: number): string => `{"a":`.repeat(levels) + "1" + "}".repeat(levels);
    const error = (field: string) =>
      expect.objectContaining({
        code: ErrorCode.INVALID_ARGUMENT,
        message: `${field} is nested deeper than 64 levels`,
      }) as Error;
    for (const levels of [65, 10_000]) {
      const parametersJsonSchema = deep(levels);
      expect(() => build(completionInput([user], { providerOptionsJson: deep(levels) }))).toThrow(
        error("input.provider_options_json"),
      );
      expect(() =>
        build(completionInput([user], { tools: [{ ...tools[0]!, parametersJsonSchema }] })),
      ).toThrow(error("input.tools[0].parameters_json_schema"));
    }
    const called = (levels: number) =>
      build(completionInput([user, says(Role.ASSISTANT, call("c", "f", deep(levels)))])).body;
    expect(called(10_000)).toMatchObject({ messages: [{}, { content: [{ input: {} }] }] });
    expect(JSON.stringify(called(64))).toContain(deep(64));
    const { body } = build(completionInput([user], { providerOptionsJson: deep(64) }));
    expect(JSON.stringify(body)).toContain(deep(64).slice(1));
  });

  test("provider options: server tools beside ours, betas as a header", () => {
    const search = { type: "web_search_20250305", name: "web_search" };
    const options = { tools: [search], anthropic_beta: ["a", "b"], metadata: { user_id: "u" } };
    const input = completionInput([user], {
      tools: [tools[0]!],
      providerOptionsJson: JSON.stringify(options),
    });
    const { headers, body } = build(input);
    expect(headers["anthropic-beta"]).toBe("a,b");
    expect(body).toMatchObject({ tools: [{ name: "f" }, search], metadata: { user_id: "u" } });
    expect(body).not.toHaveProperty("anthropic_beta");
    expect(() => build(completionInput([user], { providerOptionsJson: `{"model":"other"}` }))).toThrow(
      "input.provider_options_json must not set model",
    );
  });
});

describe("anthropic dialect", () => {
  test("counts tokens with what is counted alone", () => {
    const input = completionInput([user], { tools: [tools[0]!], sampling: { temperature: 1 } });
    const request = dialect.tokenCount!.request(input, modelNamed("claude-sonnet-4-5"));
    expect(request.path).toBe("/messages/count_tokens");
    expect(Object.keys(request.body)).toEqual(["model", "messages", "tools"]);
    expect(dialect.tokenCount!.read({ input_tokens: 12 })).toBe(12);
  });

  test("lists models, the newest of the middle size first", () => {
    const data = [
      {
        id: "claude-opus-4-7",
        display_name: "Claude Opus 4.7",
        max_input_tokens: 1_000_000,
        max_tokens: 128_000,
      },
      { id: "claude-sonnet-4-6", display_name: "Claude Sonnet 4.6" },
    ];
    expect(dialect.modelList!.read({ data })).toMatchObject([
      {
        id: "claude-sonnet-4-6",
        ownedBy: "anthropic",
        contextTokens: 200_000,
        facts: { maxOutputTokens: 64_000, reasoning: true },
      },
      {
        id: "claude-opus-4-7",
        contextTokens: 1_000_000,
        facts: { displayName: "Claude Opus 4.7", maxOutputTokens: 128_000 },
      },
    ]);
  });

  test("the key travels as the server wants it", () => {
    const request = { method: "GET", url: "https://a.test", headers: {}, body: "" } as const;
    const version = { "anthropic-version": "2023-06-01" };
    expect(dialect.authorize(request, "k")).toEqual({ ...version, "x-api-key": "k" });
    const bearer = createAnthropicMessagesDialect({ baseUrl: "https://a.test", quirks: { auth: "bearer" } });
    expect(bearer.authorize(request, "k")).toEqual({ ...version, authorization: "Bearer k" });
    expect(() => createAnthropicMessagesDialect({ baseUrl: "https://a.test", quirks: { x: 1 } })).toThrow(
      "quirks.x",
    );
  });
});
