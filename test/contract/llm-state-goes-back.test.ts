/** What a provider wants back travels through a turn's step into the next call, in its place. */
import { describe, expect, test } from "vitest";
import { create } from "@bufbuild/protobuf";
import {
  CompletionInputSchema,
  Role,
  type ModelMessage,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { modelOf } from "../../src/llm/config.js";
import { createDialect } from "../../src/llm/providers/dialects.js";
import { finishStep, nextDelta, startStep } from "../../src/turn/decode.js";
import { lanePlacement } from "../../src/turn/placement.js";
import { completionInput, result, says, text } from "../support/completion-input.js";
import { decoderOptions } from "../support/decoder-options.js";

type Event = Readonly<Record<string, unknown>> & { readonly type: string };

const dialectNamed = (api: string) => createDialect(api, { baseUrl: "https://upstream.test/v1", quirks: {} });

/** The model's message as the turn keeps it. */
function messageOf(api: string, events: readonly Event[]): ModelMessage {
  let calls = 0;
  const state = startStep({
    ...{ modelIndex: 0, cycle: 1, placement: lanePlacement(0), toolByName: () => undefined },
    newCallId: () => `ours_${++calls}`,
  });
  const decoder = dialectNamed(api).createDecoder(decoderOptions());
  const body = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
  for (const delta of [...decoder.push(Buffer.from(body)), ...decoder.end()]) nextDelta(state, delta);
  return finishStep(state, { kind: "done" }).outcome.assistantMessage;
}

/** The next call: the question, the model's message, its tool's result. */
function nextRequest(api: string, upstreamModel: string, answer: ModelMessage) {
  const { messages } = completionInput([
    says(Role.USER, text("x")),
    answer,
    says(Role.TOOL, result("c1", "r")),
  ]);
  const input = create(CompletionInputSchema, { modelId: "m", messages });
  return dialectNamed(api).buildRequest(input, { ...modelOf("m", "p"), upstreamModel }).body;
}

describe("what a provider wants back", () => {
  test("anthropic: signed thinking before the text and the call, the search with its result between them", () => {
    const delta = (index: number, value: object): Event => ({
      type: "content_block_delta",
      index,
      delta: value,
    });
    const found = { type: "web_search_tool_result", tool_use_id: "s1", content: [] };
    const blocks = [
      { type: "thinking", thinking: "", signature: "" },
      { type: "server_tool_use", id: "s1", name: "web_search", input: {} },
      found,
      { type: "text", text: "So" },
      { type: "tool_use", id: "c1", name: "f", input: { a: 1 } },
    ];
    const events = blocks.flatMap((content_block, index): Event[] => [
      { type: "content_block_start", index, content_block },
      ...(index === 0
        ? [
            delta(0, { type: "thinking_delta", thinking: "hm" }),
            delta(0, { type: "signature_delta", signature: "s" }),
          ]
        : []),
      { type: "content_block_stop", index },
    ]);
    const stop = { type: "message_delta", delta: { stop_reason: "tool_use" } };
    const answer = messageOf("anthropic-messages", [...events, stop, { type: "message_stop" }]);
    expect(nextRequest("anthropic-messages", "claude-sonnet-4-5", answer)["messages"]).toMatchObject([
      { role: "user" },
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "hm", signature: "s" },
          { type: "server_tool_use", id: "s1" },
          found,
          { type: "text", text: "So" },
          { type: "tool_use", id: "c1", input: { a: 1 } },
        ],
      },
      { role: "user", content: [{ type: "tool_result", tool_use_id: "c1" }] },
    ]);
  });

  test("responses: sealed reasoning before the call it led to", () => {
    const thought = { type: "reasoning", id: "rs_1", summary: [], encrypted_content: "xyz" };
    const call = {
      type: "function_call",
      call_id: "c1",
      name: "f",
      status: "completed",
      arguments: `{"a":1}`,
    };
    const items = [thought, call].map((item, output_index) => ({
      type: "response.output_item.done",
      output_index,
      item,
    }));
    const completed = { type: "response.completed", response: { status: "completed" } };
    const answer = messageOf("openai-responses", [...items, completed]);
    expect(nextRequest("openai-responses", "gpt-5-mini", answer)["input"]).toEqual([
      { role: "user", content: [{ type: "input_text", text: "x" }] },
      thought,
      { type: "function_call", call_id: "c1", name: "f", arguments: `{"a":1}` },
      { type: "function_call_output", call_id: "c1", output: "r" },
    ]);
  });
});
