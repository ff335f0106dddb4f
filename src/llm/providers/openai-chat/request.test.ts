/** The corners of the request; the whole request is shown over HTTP in the contract tests. */
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
import { CALL_STATE, PROVIDER_STATE } from "./chunk-reader.js";
import { chatQuirks, quirksOfModel } from "./quirks.js";
import { buildChatRequest } from "./request.js";

type InputInit = Parameters<typeof create<typeof CompletionInputSchema>>[1] & object;

function build(input: InputInit, model: Partial<ModelConfig> = {}, quirks: object = {}, host = "local.test") {
  const whole = create(CompletionInputSchema, {
    messages: [{ role: Role.USER, parts: [{ part: { case: "text", value: "x" } }] }],
    ...input,
  });
  const config = { ...modelOf("m", "p"), ...model };
  const settings = { baseUrl: `http://${host}/v1`, quirks: quirks as Record<string, unknown> };
  return buildChatRequest(whole, config, quirksOfModel(chatQuirks(settings), config.upstreamModel));
}

const assistant = (...parts: object[]): InputInit =>
  ({ messages: [{ role: Role.ASSISTANT, parts: parts.map((part) => ({ part })) }] }) as InputInit;
const messages = (input: InputInit, quirks?: object): unknown => build(input, {}, quirks).body["messages"];

const media = (source: object, mediaType = "image/png", name = ""): object => ({
  part: { case: "media", value: { mediaType, name, source } },
});
const data = (text: string): object => ({ case: "data", value: Buffer.from(text) });
const text = (value: string): object => ({ part: { case: "text", value } });

describe("openai chat request", () => {
  test("an assistant that said nothing is left out; calls alone have the content that their server takes", () => {
    const nothing = assistant({ case: "reasoning", value: "hm" }, { case: "text", value: "" });
    expect(messages(nothing)).toEqual([]);
    expect(messages(nothing, { vendor: "moonshot" })).toEqual([
      { role: "assistant", content: "", reasoning_content: "hm" },
    ]);
    const calls = assistant({ case: "toolCall", value: { callId: "c", name: "f", argumentsJson: "{}" } });
    expect(messages(calls)).toMatchObject([{ content: null }]);
    for (const vendor of ["ollama", "lmstudio"])
      expect(messages(calls, { vendor })).toMatchObject([{ content: "" }]);
  });

  test("nothing set - nothing but model, messages and stream", () => {
    expect(build({}).body).toEqual({
      model: "m",
      messages: [{ role: "user", content: "x" }],
      stream: true,
      stream_options: { include_usage: true },
    });
    expect(build({}, {}, { streamUsage: false }).body).not.toHaveProperty("stream_options");
  });

  test("an assistant's message - text, calls, reasoning where the server takes it back", () => {
    const call = { case: "toolCall", value: { callId: "c", name: "f", argumentsJson: `{"a":1}` } };
    const reasoning = { case: "reasoning", value: "r" };
    const calls = [{ id: "c", type: "function", function: { name: "f", arguments: `{"a":1}` } }];
    expect(messages(assistant({ case: "text", value: "a" }, { case: "text", value: "b" }))).toEqual([
      { role: "assistant", content: "ab" },
    ]);
    expect(messages(assistant(reasoning, call))).toEqual([
      { role: "assistant", content: null, tool_calls: calls },
    ]);
    expect(messages(assistant(reasoning, call), { reasoningField: "reasoning_content" })).toEqual([
      { role: "assistant", content: null, tool_calls: calls, reasoning_content: "r" },
    ]);
  });

  test("arguments that no server would parse go back empty", () => {
    const call = { case: "toolCall", value: { callId: "c", name: "f", argumentsJson: `{"a":` } };
    expect(JSON.stringify(messages(assistant(call)))).toContain(`"arguments":"{}"`);
  });

  test("signed reasoning goes back to whom it came from, and to nobody else", () => {
    const detail = { type: "reasoning.text", text: "t", signature: "s" };
    const state = (provider: string, data: string) =>
      assistant(
        { case: "text", value: "a" },
        { case: "providerState", value: { provider, data: Buffer.from(data) } },
      );
    expect(messages(state(PROVIDER_STATE, JSON.stringify([detail])))).toEqual([
      { role: "assistant", content: "a", reasoning_details: [detail] },
    ]);
    expect(messages(state("another", JSON.stringify([detail])))).toEqual([
      { role: "assistant", content: "a" },
    ]);
    expect(messages(state(PROVIDER_STATE, "no json"))).toEqual([{ role: "assistant", content: "a" }]);
  });

  test("media - images, sound and documents beside the text", () => {
    const parts = [
      text("look"),
      media(data("png")),
      media({ case: "url", value: "https://a.test/b.png" }),
      media(data("mp3"), "audio/mpeg"),
      media(data("pdf"), "application/pdf", "a.pdf"),
      media(data("hi"), "text/plain", "a.txt"),
    ];
    expect(messages({ messages: [{ role: Role.USER, parts }] } as InputInit)).toEqual([
      {
        role: "user",
        content: [
          { type: "text", text: "look" },
          { type: "image_url", image_url: { url: "data:image/png;base64,cG5n" } },
          { type: "image_url", image_url: { url: "https://a.test/b.png" } },
          { type: "input_audio", input_audio: { data: "bXAz", format: "mp3" } },
          { type: "file", file: { filename: "a.pdf", file_data: "data:application/pdf;base64,cGRm" } },
          { type: "text", text: "a.txt:\nhi" },
        ],
      },
    ]);
  });

  test("media that the vendor does not take - refused, naming the field", () => {
    const input = { messages: [{ role: Role.USER, parts: [media(data("x"), "audio/wav")] }] } as InputInit;
    expect(() => build(input, {}, { vendor: "groq" })).toThrow(/parts\[0\]\.media is of type audio\/wav/);
  });

  test("media in results - in a user's message after all results of the step", () => {
    const result = (callId: string, images: object[]): object => ({
      part: { case: "toolResult", value: { callId, text: callId, media: images } },
    });
    const image = { mediaType: "image/png", source: data("png") };
    const input = {
      messages: [{ role: Role.TOOL, parts: [result("a", [image]), result("b", [])] }],
    } as InputInit;
    expect(messages(input)).toMatchObject([
      { role: "tool", tool_call_id: "a", content: "a" },
      { role: "tool", tool_call_id: "b", content: "b" },
      { role: "user", content: [{ type: "text" }, { type: "image_url" }] },
    ]);
    expect(build(input, {}, { vendor: "mistral" })).toMatchObject({ dropped: ["media"] });
  });

  test("what a model made is not given back to it, and that is said", () => {
    const made = {
      messages: [{ role: Role.ASSISTANT, parts: [text("a"), media(data("png"))] }],
    } as InputInit;
    expect(build(made)).toMatchObject({
      body: { messages: [{ role: "assistant", content: "a" }] },
      dropped: ["media"],
    });
  });

  test("where the cache may end - marked for vendors that ask for it", () => {
    const input = {
      messages: [{ role: Role.SYSTEM, parts: [text("s")], cacheBreakpoint: true }],
    } as InputInit;
    expect(messages(input)).toEqual([{ role: "system", content: "s" }]);
    expect(messages(input, { vendor: "openrouter" })).toEqual([
      { role: "system", content: [{ type: "text", text: "s", cache_control: { type: "ephemeral" } }] },
    ]);
  });

  test("mistral - ids of nine characters that stay the same, the user never right after a tool", () => {
    const call = {
      part: { case: "toolCall", value: { callId: "call_long_id", name: "f", argumentsJson: "{}" } },
    };
    const result = { part: { case: "toolResult", value: { callId: "call_long_id", text: "r" } } };
    const input = {
      messages: [
        { role: Role.ASSISTANT, parts: [call] },
        { role: Role.TOOL, parts: [result] },
        { role: Role.REMINDER, parts: [text("be brief")] },
      ],
    } as InputInit;
    const [assistantSays, toolSays] = messages(input, { vendor: "mistral" }) as {
      tool_calls?: { id: string }[];
      tool_call_id?: string;
      content: unknown;
    }[];
    expect(assistantSays?.tool_calls?.[0]?.id).toMatch(/^[A-Za-z0-9]{9}$/);
    expect(toolSays).toMatchObject({
      tool_call_id: assistantSays?.tool_calls?.[0]?.id,
      content: "r\n\nbe brief",
    });
  });

  test("what a server hung on a call goes back with that call", () => {
    const extra = { google: { thought_signature: "s" } };
    const state = Buffer.from(JSON.stringify({ id: "c2", extra_content: extra }));
    const call = (callId: string) => ({
      case: "toolCall",
      value: { callId, name: "f", argumentsJson: "{}" },
    });
    const input = assistant(call("c1"), call("c2"), {
      case: "providerState",
      value: { provider: CALL_STATE, data: state },
    });
    const [message] = messages(input) as { tool_calls: { extra_content?: object }[] }[];
    expect(message?.tool_calls.map(({ extra_content }) => extra_content)).toEqual([undefined, extra]);
  });

  test("reasoning effort - by what the model is known to take", () => {
    const effort = (reasoningEffort: ReasoningEffort, reasoning: boolean | undefined) => {
      const { body, dropped } = build({ reasoningEffort }, { reasoning });
      return [body["reasoning_effort"], dropped];
    };
    expect(effort(ReasoningEffort.HIGH, undefined)).toEqual(["high", []]);
    expect(effort(ReasoningEffort.HIGH, true)).toEqual(["high", []]);
    expect(effort(ReasoningEffort.HIGH, false)).toEqual([undefined, ["reasoning_effort"]]);
    expect(effort(ReasoningEffort.OFF, true)).toEqual(["none", []]);
    expect(effort(ReasoningEffort.OFF, undefined)).toEqual([undefined, []]);
  });

  test("the limit of the answer - under the name the server knows", () => {
    const sampling = { maxOutputTokens: 5 };
    expect(build({ sampling }).body).toMatchObject({ max_tokens: 5 });
    expect(build({ sampling }, {}, {}, "api.openai.com").body).toMatchObject({ max_completion_tokens: 5 });
    expect(build({ sampling }, {}, { maxTokensField: "limit" }).body).toMatchObject({ limit: 5 });
  });

  test("a seed that JSON cannot hold is left out, and said", () => {
    expect(build({ sampling: { seed: "9007199254740993" } })).toMatchObject({ dropped: ["seed"] });
    expect(build({ sampling: { seed: "-3" } }).body).toMatchObject({ seed: -3 });
  });

  test("tool choice - only with tools", () => {
    expect(build({ toolChoice: { mode: ToolChoiceMode.NONE } }).body).not.toHaveProperty("tool_choice");
    const tools = [{ name: "f" }];
    for (const [mode, sent] of [
      [ToolChoiceMode.NONE, "none"],
      [ToolChoiceMode.AUTO, "auto"],
      [ToolChoiceMode.REQUIRED, "required"],
      [ToolChoiceMode.UNSPECIFIED, undefined],
    ] as const) {
      expect(build({ tools, toolChoice: { mode } }).body["tool_choice"]).toBe(sent);
    }
    expect(build({ tools }).body["tools"]).toEqual([
      {
        type: "function",
        function: { name: "f", description: "", parameters: { type: "object", properties: {} } },
      },
    ]);
  });

  test("a format without a schema asks for any object", () => {
    expect(build({ responseFormat: {} }).body["response_format"]).toEqual({ type: "json_object" });
  });

  test.each([
    [
      "a role that is not set",
      { messages: [{ role: Role.UNSPECIFIED }] },
      ErrorCode.INVALID_ARGUMENT,
      "input.messages[0].role",
    ],
    [
      "a call in a user's message",
      { messages: [{ role: Role.USER, parts: [{ part: { case: "toolCall", value: {} } }] }] },
      ErrorCode.INVALID_ARGUMENT,
      "input.messages[0].parts[0]",
    ],
    [
      "a text in a tool's message",
      { messages: [{ role: Role.TOOL, parts: [{ part: { case: "text", value: "x" } }] }] },
      ErrorCode.INVALID_ARGUMENT,
      "input.messages[0].parts[0]",
    ],
    [
      "media that is stored elsewhere",
      { messages: [{ role: Role.USER, parts: [media({ case: "fileId", value: "f" })] }] },
      ErrorCode.INVALID_ARGUMENT,
      "input.messages[0].parts[0].media",
    ],
    [
      "a document by address",
      {
        messages: [
          { role: Role.USER, parts: [media({ case: "url", value: "https://a.test/x" }, "application/pdf")] },
        ],
      },
      ErrorCode.INVALID_ARGUMENT,
      "input.messages[0].parts[0].media",
    ],
    [
      "a format that is no JSON",
      { responseFormat: { jsonSchema: "{" } },
      ErrorCode.INVALID_ARGUMENT,
      "input.response_format.json_schema",
    ],
  ])("%s is refused, naming the field", (_, input, code, field) => {
    expect(() => build(input as InputInit)).toThrow(expect.objectContaining({ code, details: { field } }));
  });
});
