/** Each rule of the dialect on a body of its own: this suite needs no test data. */
import { describe, expect, test } from "vitest";
import { foldDeltas, type CompletionResult } from "../../../../test/support/completion-result.js";
import { decoderOptions } from "../../../../test/support/decoder-options.js";
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { createCohereV2Decoder } from "./dialect.js";

function deltasOf(body: string, contentType = "text/event-stream"): CompletionDelta[] {
  const decoder = createCohereV2Decoder(decoderOptions({ contentType }));
  return [...decoder.push(Buffer.from(body)), ...decoder.end()];
}

const decode = (...events: string[]): CompletionResult => foldDeltas(deltasOf(events.join("")));
const event = (type: string, more: object = {}): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`;
const message = (type: string, message: object, index = 0): string =>
  event(type, { index, delta: { message } });
const content = (content: object, index = 0): string => message("content-delta", { content }, index);
const end = (finish_reason: string, more: object = {}): string =>
  event("message-end", { delta: { finish_reason, ...more } });
const fn = (fn: object, id?: string): object => ({
  tool_calls: { ...(id && { id, type: "function" }), function: fn },
});

describe("cohere answers", () => {
  test("thinking, text, counts; message-end is the end, whatever follows", () => {
    const usage = {
      billed_units: { input_tokens: 1, output_tokens: 1 },
      tokens: { input_tokens: 9, output_tokens: 4 },
      cached_tokens: 3,
    };
    const got = decode(
      event("message-start", { id: "c1" }),
      message("content-start", { content: { type: "thinking", thinking: "" } }),
      content({ thinking: "hm" }),
      event("content-end", { index: 0 }),
      message("content-start", { content: { type: "text", text: "" } }, 1),
      content({ text: "Hi" }, 1),
      event("content-end", { index: 1 }),
      end("COMPLETE", { usage }),
      content({ text: "late" }),
      "data: [DONE]\n\n",
    );
    expect(got).toMatchObject({
      text: "Hi",
      reasoning: "hm",
      order: ["reasoning", "text"],
      finish: "stop",
      rawFinish: "COMPLETE",
    });
    expect(got.usage).toEqual({ input: 9, output: 4, reasoning: 0, cached: 3, cacheWrite: 0 });
  });

  test("calls by their number, the plan before them goes back as state", () => {
    const deltas = deltasOf(
      [
        message("tool-plan-delta", { tool_plan: "I will " }),
        message("tool-plan-delta", { tool_plan: "look." }),
        message("tool-call-start", fn({ name: "f", arguments: "" }, "f_1"), 0),
        message("tool-call-delta", fn({ arguments: `{"a"` }), 0),
        message("tool-call-delta", fn({ arguments: ":1}" }), 0),
        event("tool-call-end", { index: 0 }),
        message("tool-call-start", fn({ name: "g", arguments: "" }, "g_1"), 1),
        event("tool-call-end", { index: 1 }),
        message("tool-call-start", fn({ name: "h", arguments: "null" }, "h_1"), 2),
        end("TOOL_CALL"),
      ].join(""),
    );
    const got = foldDeltas(deltas);
    expect(got).toMatchObject({ text: "", reasoning: "", finish: "tool-calls" });
    expect(got.toolCalls.map(({ id, name, args, complete }) => [id, name, args, complete])).toEqual([
      ["f_1", "f", `{"a":1}`, true],
      ["g_1", "g", "{}", true],
      ["h_1", "h", "{}", true],
    ]);
    const states = deltas.flatMap(({ delta }) => (delta.case === "providerState" ? [delta.value] : []));
    expect(states.map(({ provider, data }) => [provider, Buffer.from(data).toString()])).toEqual([
      ["cohere-v2/tool_plan", `"I will look."`],
    ]);
  });

  test("citations of documents and of tools, with their passage", () => {
    const citation = (sources: object[]): string =>
      message("citation-start", {
        citations: { start: 0, end: 5, text: "Paris", sources, type: "TEXT_CONTENT" },
      });
    const deltas = deltasOf(
      [
        content({ text: "Paris it is." }),
        citation([
          {
            type: "document",
            id: "doc:0",
            document: { id: "doc:0", title: "Atlas", snippet: "a city", url: "https://a.test" },
          },
          { type: "tool", id: "f_1:0", tool_output: { content: "said so" } },
        ]),
        event("citation-end", { index: 0 }),
        end("COMPLETE"),
      ].join(""),
    );
    const citations = deltas.flatMap(({ delta }) => (delta.case === "citation" ? [delta.value] : []));
    expect(citations).toMatchObject([
      {
        blockIndex: 0,
        startChar: 0,
        endChar: 5,
        document: { documentId: "doc:0", url: "https://a.test", title: "Atlas" },
      },
      {
        blockIndex: 0,
        startChar: 0,
        endChar: 5,
        document: { documentId: "f_1:0", url: "", snippet: "said so", source: "tool" },
      },
    ]);
  });

  test.each([
    ["MAX_TOKENS", "length"],
    ["STOP_SEQUENCE", "stop"],
    ["ERROR_TOXIC", "content-filter"],
    ["SOMETHING_NEW", "other"],
  ])("finish reason %s", (raw, finish) => {
    expect(decode(content({ text: "x" }), end(raw))).toMatchObject({ finish, rawFinish: raw });
  });

  test("failures: in the last event, in an event of their own, by a missing end", () => {
    const call = message("tool-call-start", fn({ name: "f", arguments: "{}" }, "f_1"));
    const failed = decode(content({ text: "Hel" }), call, end("ERROR", { error: "backend died" }));
    expect(failed).toMatchObject({ text: "Hel", finish: undefined, error: { code: "UPSTREAM_UNAVAILABLE" } });
    expect(failed.error?.message).toContain("backend died");
    expect(failed.toolCalls).toMatchObject([{ complete: false }]);
    expect(decode(content({ text: "Hel" }), end("ERROR")).error?.message).toContain("ERROR");
    expect(decode(`data: {"message":"too many requests","status_code":429}\n\n`).error?.code).toBe(
      "RATE_LIMIT",
    );
    expect(decode(content({ text: "Hel" }))).toMatchObject({
      text: "Hel",
      error: { code: "UPSTREAM_TRUNCATED" },
    });
    expect(decode(content({ text: "Hi" }), "data: [DONE]\n\n")).toMatchObject({ text: "Hi", finish: "stop" });
  });

  test("unknown events say nothing", () => {
    expect(decode(event("debug", { prompt: "x" }), content({ text: "Hi" }), end("COMPLETE"))).toMatchObject({
      text: "Hi",
      warnings: [],
    });
  });

  test("an answer that was not streamed", () => {
    const whole = (value: object): CompletionResult =>
      foldDeltas(deltasOf(JSON.stringify(value, null, 2), "application/json"));
    const calls = [{ id: "f_1", type: "function", function: { name: "f", arguments: "null" } }];
    expect(
      whole({ id: "c", message: { content: [{ type: "text", text: "Hi" }] }, finish_reason: "COMPLETE" }),
    ).toMatchObject({ text: "Hi", finish: "stop" });
    expect(
      whole({ id: "c", message: { tool_plan: "p", tool_calls: calls }, finish_reason: "TOOL_CALL" })
        .toolCalls,
    ).toMatchObject([{ id: "f_1", args: "{}", complete: true }]);
    expect(whole({ id: "c", message: { content: [{ type: "text", text: "Hi" }] } })).toMatchObject({
      text: "Hi",
      error: { code: "UPSTREAM_TRUNCATED" },
    });
    expect(whole({ message: "invalid api token" }).error?.message).toContain("invalid api token");
    expect(whole({}).error?.code).toBe("UPSTREAM_MALFORMED");
  });
});
