/** The corners of the request; the whole request is shown over HTTP in the contract tests. */
import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  CompletionInputSchema,
  Role,
  ToolChoiceMode,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, ReasoningEffort } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { modelOf, type ModelConfig } from "../../config.js";
import { PROVIDER_STATE } from "./chunk-reader.js";
import { openAiChatQuirks, type OpenAiChatQuirks } from "./vendors.js";
import { buildChatRequest } from "./request.js";

type InputInit = Parameters<typeof create<typeof CompletionInputSchema>>[1] & object;

function build(input: InputInit, model: Partial<ModelConfig> = {}, quirks: Partial<OpenAiChatQuirks> = {}) {
  const whole = create(CompletionInputSchema, {
    messages: [{ role: Role.USER, parts: [{ part: { case: "text", value: "x" } }] }],
    ...input,
  });
  return buildChatRequest(
    whole,
    { ...modelOf("m", "p"), ...model },
    openAiChatQuirks("http://local.test/v1", quirks),
  );
}

const assistant = (...parts: object[]): InputInit =>
  ({ messages: [{ role: Role.ASSISTANT, parts: parts.map((part) => ({ part })) }] }) as InputInit;
const messages = (input: InputInit, quirks?: Partial<OpenAiChatQuirks>): unknown =>
  build(input, {}, quirks).body["messages"];

describe("openai chat request", () => {
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
    expect(openAiChatQuirks("https://api.openai.com/v1").maxTokensField).toBe("max_completion_tokens");
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
      "media in a tool's result",
      { messages: [{ role: Role.TOOL, parts: [{ part: { case: "toolResult", value: { media: [{}] } } }] }] },
      ErrorCode.NOT_BUILT,
      "input.messages[0].parts[0].tool_result.media",
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
