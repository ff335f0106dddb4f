/** Each rule of the dialect on a body of its own: this suite needs no test data. */
import { describe, expect, test } from "vitest";
import { foldDeltas, type CompletionResult } from "../../../../test/support/completion-result.js";
import { decoderOptions } from "../../../../test/support/decoder-options.js";
import { converseEvent, converseException } from "../../../../test/support/event-stream-frames.js";
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { createBedrockConverseDecoder } from "./dialect.js";

function deltasOf(body: Uint8Array, contentType = "application/vnd.amazon.eventstream"): CompletionDelta[] {
  const decoder = createBedrockConverseDecoder(decoderOptions({ contentType }));
  return [...decoder.push(body), ...decoder.end()];
}

const decode = (...frames: Buffer[]): CompletionResult => foldDeltas(deltasOf(Buffer.concat(frames)));
const start = (start: object, contentBlockIndex: number): Buffer =>
  converseEvent("contentBlockStart", { start, contentBlockIndex });
const delta = (delta: object, contentBlockIndex = 0): Buffer =>
  converseEvent("contentBlockDelta", { delta, contentBlockIndex });
const stopBlock = (contentBlockIndex = 0): Buffer => converseEvent("contentBlockStop", { contentBlockIndex });
const stop = (stopReason: string): Buffer => converseEvent("messageStop", { stopReason });
const usage = { inputTokens: 5, outputTokens: 7, cacheReadInputTokens: 2, cacheWriteInputTokens: 1 };
const metadata = converseEvent("metadata", { usage, metrics: { latencyMs: 1 } });

function statesOf(deltas: readonly CompletionDelta[]): unknown[] {
  return deltas.flatMap(({ delta }) =>
    delta.case === "providerState" ? [JSON.parse(Buffer.from(delta.value.data).toString()) as unknown] : [],
  );
}

describe("bedrock answers", () => {
  test("text, then the end, then the counts; what the cache holds is input as well", () => {
    const got = decode(
      converseEvent("messageStart", { role: "assistant" }),
      delta({ text: "Hi" }),
      stopBlock(),
      stop("end_turn"),
      metadata,
    );
    expect(got).toMatchObject({ text: "Hi", finish: "stop", rawFinish: "end_turn" });
    expect(got.usage).toEqual({ input: 8, output: 7, reasoning: 0, cached: 2, cacheWrite: 1 });
  });

  test("a reason without counts is enough, counts without a reason are not", () => {
    expect(decode(delta({ text: "Hi" }), stop("end_turn"))).toMatchObject({ text: "Hi", finish: "stop" });
    expect(decode(delta({ text: "Hi" }), metadata)).toMatchObject({
      text: "Hi",
      error: { code: "UPSTREAM_TRUNCATED" },
    });
  });

  test("signed reasoning is kept whole before what follows it", () => {
    const deltas = deltasOf(
      Buffer.concat([
        delta({ reasoningContent: { text: "h" } }),
        delta({ reasoningContent: { text: "m" } }),
        delta({ reasoningContent: { signature: "sig" } }),
        stopBlock(0),
        delta({ reasoningContent: { redactedContent: "cmVk" } }, 1),
        delta({ text: "Hi" }, 2),
        stop("end_turn"),
        metadata,
      ]),
    );
    expect(foldDeltas(deltas)).toMatchObject({ text: "Hi", reasoning: "hm", order: ["reasoning", "text"] });
    expect(statesOf(deltas)).toEqual([
      { reasoningText: { text: "hm", signature: "sig" } },
      { redactedContent: "cmVk" },
    ]);
    const order = deltas.map(({ delta }) => delta.case);
    expect(order.lastIndexOf("providerState")).toBeLessThan(order.indexOf("content"));
  });

  test("reasoning without a signature is not sent back", () => {
    expect(
      statesOf(deltasOf(Buffer.concat([delta({ reasoningContent: { text: "h" } }), stop("end_turn")]))),
    ).toEqual([]);
  });

  test("calls in fragments, what a tool of the server returned is skipped", () => {
    const got = decode(
      start({ toolUse: { toolUseId: "t1", name: "f" } }, 0),
      delta({ toolUse: { input: `{"a"` } }),
      delta({ toolUse: { input: ":1}" } }),
      stopBlock(),
      start({ toolResult: { toolUseId: "t1", type: "x" } }, 1),
      delta({ toolResult: [{ json: { ok: true } }] }, 1),
      stopBlock(1),
      start({ toolUse: { toolUseId: "t2", name: "g" } }, 2),
      delta({ toolUse: { input: "" } }, 2),
      stopBlock(2),
      stop("tool_use"),
      metadata,
    );
    expect(got).toMatchObject({ finish: "tool-calls", order: ["tool_call", "tool_call"], warnings: [] });
    expect(got.toolCalls.map(({ id, name, args, complete }) => [id, name, args, complete])).toEqual([
      ["t1", "f", `{"a":1}`, true],
      ["t2", "g", "{}", true],
    ]);
  });

  test("a limit cuts the last call", () => {
    const got = decode(
      start({ toolUse: { toolUseId: "t1", name: "f" } }, 0),
      delta({ toolUse: { input: `{"a"` } }),
      stop("max_tokens"),
      metadata,
    );
    expect(got).toMatchObject({ finish: "length", toolCalls: [{ args: `{"a"`, complete: false }] });
  });

  test.each([
    ["guardrail_intervened", "content-filter"],
    ["content_filtered", "content-filter"],
    ["model_context_window_exceeded", "length"],
    ["stop_sequence", "stop"],
    ["something_new", "other"],
  ])("stop reason %s", (raw, finish) => {
    expect(decode(delta({ text: "x" }), stop(raw), metadata)).toMatchObject({ finish, rawFinish: raw });
  });

  test("a model that wrote a broken call failed", () => {
    expect(decode(stop("malformed_tool_use"), metadata).error).toMatchObject({
      code: "UPSTREAM_MALFORMED",
      retryable: true,
    });
  });

  test.each([
    ["throttlingException", "RATE_LIMIT", true],
    ["serviceUnavailableException", "UPSTREAM_UNAVAILABLE", true],
    ["modelStreamErrorException", "UPSTREAM_UNAVAILABLE", true],
    ["validationException", "UPSTREAM_REJECTED", false],
    ["accessDeniedException", "UPSTREAM_AUTH", false],
  ])("%s keeps what came and is %s", (type, code, retryable) => {
    const call = start({ toolUse: { toolUseId: "t1", name: "f" } }, 1);
    const got = decode(
      delta({ text: "Hel" }),
      call,
      delta({ toolUse: { input: "{}" } }, 1),
      converseException(type, "no"),
    );
    expect(got).toMatchObject({ text: "Hel", finish: undefined, error: { code, retryable } });
    expect(got.error?.message).toContain("no");
    expect(got.toolCalls).toMatchObject([{ complete: false }]);
  });

  test("a damaged stream is an error after what came", () => {
    const bad = delta({ text: "lo" });
    bad[bad.length - 6]! ^= 1;
    expect(decode(delta({ text: "Hel" }), bad)).toMatchObject({
      text: "Hel",
      error: { code: "UPSTREAM_MALFORMED" },
    });
    expect(
      foldDeltas(deltasOf(Buffer.from("<html>no such page, and quite a long one</html>"))).error?.code,
    ).toBe("UPSTREAM_MALFORMED");
  });

  test("sources of a citation", () => {
    const citation = {
      title: "T",
      location: { web: { url: "https://a.test" } },
      sourceContent: [{ text: "s" }],
    };
    const deltas = deltasOf(Buffer.concat([delta({ text: "Hi" }), delta({ citation }), stop("end_turn")]));
    expect(deltas.flatMap(({ delta }) => (delta.case === "citation" ? [delta.value] : []))).toMatchObject([
      { blockIndex: 0, document: { url: "https://a.test", title: "T", snippet: "s" } },
    ]);
  });

  test("an answer that was not streamed", () => {
    const whole = (value: object): CompletionDelta[] =>
      deltasOf(Buffer.from(JSON.stringify(value)), "application/json");
    const content = [
      { reasoningContent: { reasoningText: { text: "hm", signature: "sig" } } },
      { text: "Hi" },
      { toolUse: { toolUseId: "t1", name: "f", input: { a: 1 } } },
    ];
    const deltas = whole({
      output: { message: { role: "assistant", content } },
      stopReason: "tool_use",
      usage,
    });
    expect(foldDeltas(deltas)).toMatchObject({
      text: "Hi",
      reasoning: "hm",
      finish: "tool-calls",
      toolCalls: [{ id: "t1", args: `{"a":1}`, complete: true }],
      usage: { input: 8, output: 7 },
    });
    expect(statesOf(deltas)).toEqual([content[0]?.reasoningContent]);
    expect(foldDeltas(whole({ message: "Too many tokens, please wait" })).error?.message).toContain(
      "please wait",
    );
    expect(foldDeltas(whole({ Output: {} })).error?.code).toBe("UPSTREAM_MALFORMED");
  });
});
