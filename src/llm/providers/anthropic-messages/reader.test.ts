/** Each rule of the dialect on a body of its own: this suite needs no test data. */
import { describe, expect, test } from "vitest";
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { foldDeltas } from "../../../../test/support/completion-result.js";
import { expectSameHoweverCut } from "../../../../test/support/cut-bodies.js";
import { decoderOptions } from "../../../../test/support/decoder-options.js";
import { createAnthropicMessagesDecoder } from "./dialect.js";

type Event = Readonly<Record<string, unknown>> & { readonly type: string };

const decoder = (reasoningTags: readonly string[] = []) =>
  createAnthropicMessagesDecoder(decoderOptions({ secrets: ["sk-ant-verysecret"], reasoningTags }));

const bodyOf = (events: readonly Event[]): string =>
  events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}  \n\n`).join("");

function deltasOf(body: string, tags: readonly string[] = []): CompletionDelta[] {
  const one = decoder(tags);
  return [...one.push(Buffer.from(body)), ...one.end()];
}

const decode = (...events: Event[]) => foldDeltas(deltasOf(bodyOf(events)));

const valuesOf = <Case extends CompletionDelta["delta"]["case"]>(
  deltas: readonly CompletionDelta[],
  wanted: Case,
) => deltas.flatMap(({ delta }) => (delta.case === wanted ? [delta.value] : []));

const statesOf = (deltas: readonly CompletionDelta[]): unknown[] =>
  deltas.flatMap(({ delta }) =>
    delta.case === "providerState" ? [JSON.parse(Buffer.from(delta.value.data).toString()) as unknown] : [],
  );

const begin = (more: object = {}): Event => ({
  type: "message_start",
  message: { id: "msg_1", content: [], usage: { input_tokens: 9, output_tokens: 1, ...more } },
});
const open = (index: number, content_block: object): Event => ({
  type: "content_block_start",
  index,
  content_block,
});
const delta = (index: number, type: string, members: object): Event => ({
  type: "content_block_delta",
  index,
  delta: { type, ...members },
});
const close = (index: number): Event => ({ type: "content_block_stop", index });
const text = (index: number, value: string): Event => delta(index, "text_delta", { text: value });
const args = (index: number, value: string): Event =>
  delta(index, "input_json_delta", { partial_json: value });
const stop = (stop_reason: string, usage: object = { output_tokens: 7 }): Event => ({
  type: "message_delta",
  delta: { stop_reason },
  usage,
});
const end: Event = { type: "message_stop" };
const whole = (value: string): Event[] => [open(0, { type: "text", text: "" }), text(0, value), close(0)];

describe("anthropic answers", () => {
  test("usage is the newest of each count; cached tokens are input", () => {
    const start = begin({ cache_read_input_tokens: 100, cache_creation_input_tokens: 20 });
    const usage = { output_tokens: 7, output_tokens_details: { thinking_tokens: 3 } };
    expect(decode(start, ...whole("Hi"), stop("end_turn", usage), end)).toMatchObject({
      text: "Hi",
      finish: "stop",
      rawFinish: "end_turn",
      usage: { input: 129, output: 7, reasoning: 3, cached: 100, cacheWrite: 20 },
    });
  });

  test("what compaction cost is added, what a fallback model cost is in the totals already", () => {
    const iterations = [
      { type: "compaction", input_tokens: 1000, output_tokens: 50, cache_read_input_tokens: 5 },
      { type: "message", input_tokens: 9, output_tokens: 7 },
    ];
    const usage = { input_tokens: 9, output_tokens: 7, iterations };
    expect(decode(begin(), ...whole("Hi"), stop("end_turn", usage), end).usage).toMatchObject({
      input: 1014,
      output: 57,
      cached: 5,
    });
  });

  test("event lines may be missing, pings and unknown events anywhere, a second start says nothing", () => {
    const events = [
      begin(),
      { type: "ping" },
      begin(),
      open(0, { type: "novelty" }),
      delta(0, "novelty_delta", { x: 1 }),
      close(0),
      { type: "novel_event", index: 1 },
      open(1, { type: "text", text: "" }),
      text(1, "Hi"),
      delta(1, "novelty_delta", { x: 1 }),
      close(1),
      stop("end_turn"),
      end,
    ];
    const body = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
    const got = foldDeltas(deltasOf(body));
    expect(got).toMatchObject({ text: "Hi", order: ["text"], finish: "stop", warnings: [] });
  });

  test("blocks may interleave; each keeps its place", () => {
    const got = decode(
      begin(),
      open(0, { type: "tool_use", id: "toolu_1", name: "f", input: {} }),
      open(1, { type: "tool_use", id: "toolu_2", name: "g", input: {} }),
      args(1, `{"b":`),
      args(0, `{"a":1}`),
      args(1, `2}`),
      close(1),
      close(0),
      stop("tool_use"),
      end,
    );
    expect(got.toolCalls.map(({ id, name, args, complete }) => [id, name, args, complete])).toEqual([
      ["toolu_1", "f", `{"a":1}`, true],
      ["toolu_2", "g", `{"b":2}`, true],
    ]);
    expect(got.finish).toBe("tool-calls");
  });

  test("a call without arguments has none; bridges put them into the start", () => {
    const got = decode(
      begin(),
      open(0, { type: "tool_use", id: "toolu_1", name: "f", input: {} }),
      args(0, ""),
      close(0),
      open(1, { type: "tool_use", id: "", name: "g", input: { a: 1 } }),
      close(1),
      stop("tool_use"),
      end,
    );
    expect(got.toolCalls.map(({ id, args, complete }) => [id, args, complete])).toEqual([
      ["toolu_1", "{}", true],
      ["call_1", `{"a":1}`, true],
    ]);
  });

  test("the limit cuts the call it met, not those before it", () => {
    const got = decode(
      begin(),
      open(0, { type: "tool_use", id: "toolu_1", name: "f", input: {} }),
      args(0, `{"a":1}`),
      close(0),
      open(1, { type: "tool_use", id: "toolu_2", name: "f", input: {} }),
      args(1, `{"a":"hal`),
      close(1),
      stop("max_tokens"),
      end,
    );
    expect(got).toMatchObject({ finish: "length", warnings: [] });
    expect(got.toolCalls.map(({ complete, invalid }) => [complete, invalid])).toEqual([
      [true, false],
      [false, false],
    ]);
  });

  test("arguments that are no JSON object are said to be none", () => {
    const call = open(0, { type: "tool_use", id: "toolu_1", name: "f", input: {} });
    const got = decode(begin(), call, args(0, `{"a":1}{"b":2}`), close(0), stop("tool_use"), end);
    expect(got.toolCalls).toMatchObject([{ complete: false, invalid: true }]);
    expect(got).toMatchObject({ finish: "tool-calls", warnings: ["UPSTREAM_MALFORMED"] });
  });

  test.each(["refusal", "model_context_window_exceeded", "pause_turn", "stop_sequence"])(
    "stop reason %s",
    (reason) => {
      const finish = { refusal: "refusal", model_context_window_exceeded: "length" }[reason] ?? "stop";
      expect(decode(begin(), ...whole("He"), stop(reason), end)).toMatchObject({
        ...{ text: "He", finish, rawFinish: reason, error: undefined },
      });
    },
  );

  test("a refusal says why, where Anthropic says it", () => {
    const details = { stop_reason: "refusal", stop_details: { explanation: "Not this." } };
    const got = decode(begin(), { type: "message_delta", delta: details }, end);
    expect(got).toMatchObject({ refusal: "Not this.", finish: "refusal" });
  });

  test("half a character waits for its mate in its own block", () => {
    const got = decode(
      begin(),
      open(0, { type: "thinking", thinking: "" }),
      open(1, { type: "text", text: "" }),
      delta(0, "thinking_delta", { thinking: "\ud83d" }),
      text(1, "\ud83c"),
      delta(0, "thinking_delta", { thinking: "\ude00" }),
      text(1, "\udf0d!"),
      close(0),
      close(1),
      stop("end_turn"),
      end,
    );
    expect(got).toMatchObject({ reasoning: "😀", text: "🌍!" });
  });

  test("no cut changes what a body means", () => {
    const body = bodyOf([
      begin(),
      open(0, { type: "thinking", thinking: "" }),
      delta(0, "thinking_delta", { thinking: "h\u00e4" }),
      close(0),
      open(1, { type: "tool_use", id: "t", name: "f", input: {} }),
      args(1, `{"a":"\u{1f30d}"}`),
      close(1),
      stop("tool_use"),
      end,
    ]);
    const got = foldDeltas(deltasOf(body));
    expect(got).toMatchObject({ reasoning: "hä", toolCalls: [{ args: `{"a":"🌍"}`, complete: true }] });
    expectSameHoweverCut(decoder, Buffer.from(body), got);
  });

  test("reasoning tags are taken out of the text only where asked for", () => {
    const body = bodyOf([begin(), ...whole("<think>hm</think>\nHi"), stop("end_turn"), end]);
    expect(foldDeltas(deltasOf(body)).text).toBe("<think>hm</think>\nHi");
    expect(foldDeltas(deltasOf(body, ["think"]))).toMatchObject({
      reasoning: "hm",
      text: "Hi",
      order: ["reasoning", "text"],
    });
  });
});

describe("anthropic answers - what goes back", () => {
  test("thinking with its signature, sealed thinking, each where its block ends", () => {
    const deltas = deltasOf(
      bodyOf([
        begin(),
        open(0, { type: "thinking", thinking: "", signature: "" }),
        delta(0, "thinking_delta", { thinking: "hm" }),
        delta(0, "signature_delta", { signature: "s1" }),
        close(0),
        open(1, { type: "redacted_thinking", data: "xyz" }),
        close(1),
        open(2, { type: "text", text: "" }),
        text(2, "Hi"),
        close(2),
        stop("end_turn"),
        end,
      ]),
    );
    expect(deltas.map(({ delta }) => delta.case)).toEqual([
      ...["reasoning", "providerState", "reasoning", "providerState", "content", "usage", "finish"],
    ]);
    expect(statesOf(deltas)).toEqual([
      [{ type: "thinking", thinking: "hm", signature: "s1" }],
      [{ type: "redacted_thinking", data: "xyz" }],
    ]);
    expect(valuesOf(deltas, "reasoning")).toMatchObject([
      { blockIndex: 0, redacted: false },
      { blockIndex: 1, text: "", redacted: true },
    ]);
  });

  test("a server tool's call and result, without what is sealed in what people see", () => {
    const call = { type: "server_tool_use", id: "srv_1", name: "web_search", input: {} };
    const found = { type: "web_search_result", url: "https://a.test", title: "A", encrypted_content: "zzz" };
    const result = { type: "web_search_tool_result", tool_use_id: "srv_1", content: [found] };
    const deltas = deltasOf(
      bodyOf([
        begin(),
        open(0, call),
        args(0, `{"query":"a"}`),
        close(0),
        open(1, result),
        close(1),
        open(2, { type: "text", text: "" }),
        delta(2, "citations_delta", {
          citation: {
            type: "web_search_result_location",
            url: "https://a.test",
            title: "A",
            cited_text: "quoted",
          },
        }),
        text(2, "Because 🌍"),
        close(2),
        stop("end_turn"),
        end,
      ]),
    );
    expect(valuesOf(deltas, "serverToolCall")).toMatchObject([
      { callId: "srv_1", name: "web_search", argumentsJson: "", done: false },
      { argumentsJson: `{"query":"a"}`, resultJson: "" },
      { resultJson: `[{"type":"web_search_result","url":"https://a.test","title":"A"}]`, done: true },
    ]);
    expect(valuesOf(deltas, "citation")).toMatchObject([
      {
        ...{ blockIndex: 0, startChar: 0, endChar: 9 },
        document: { url: "https://a.test", title: "A", snippet: "quoted", source: "web" },
      },
    ]);
    expect(statesOf(deltas)).toMatchObject([[{ ...call, input: { query: "a" } }, { content_block: result }]]);
  });

  test("a server tool that an answer paused on goes back alone", () => {
    const call = { type: "server_tool_use", id: "srv_1", name: "web_search", input: {} };
    const deltas = deltasOf(
      bodyOf([begin(), open(0, call), args(0, `{"query":"a"}`), close(0), stop("pause_turn"), end]),
    );
    expect(statesOf(deltas)).toEqual([[{ ...call, input: { query: "a" } }]]);
  });

  test("citations of a document that was sent along name it by its place", () => {
    const citation = {
      type: "page_location",
      document_index: 2,
      document_title: "T",
      cited_text: "q",
      start_page_number: 4,
    };
    const deltas = deltasOf(
      bodyOf([
        begin(),
        open(0, { type: "text", text: "x", citations: [citation] }),
        close(0),
        stop("end_turn"),
        end,
      ]),
    );
    expect(valuesOf(deltas, "citation")).toMatchObject([
      {
        document: {
          documentId: "document-2",
          title: "T",
          snippet: "q",
          page: 4,
          url: "",
          source: "document",
        },
      },
    ]);
  });

  test("calls that a server tool made and that were answered do not make an answer that asks for tools", () => {
    const body = {
      type: "message",
      id: "msg_1",
      content: [
        { type: "server_tool_use", id: "srv_1", name: "code_execution", input: { code: "f()" } },
        { type: "tool_use", id: "toolu_1", name: "f", input: { a: 1 }, caller: { tool_id: "srv_1" } },
        { type: "code_execution_tool_result", tool_use_id: "srv_1", content: { stdout: "1" } },
        { type: "text", text: "Done" },
      ],
      stop_reason: "end_turn",
      usage: { input_tokens: 1, output_tokens: 2 },
    };
    const got = foldDeltas(deltasOf(JSON.stringify(body)));
    expect(got).toMatchObject({ text: "Done", finish: "stop", toolCalls: [{ name: "f", complete: true }] });
  });
});

describe("anthropic answers - how they fail", () => {
  const part = [begin(), open(0, { type: "text", text: "" }), text(0, "Hel")];

  test("a body that ends without a stop reason is an error, what came is kept", () => {
    const call = [open(1, { type: "tool_use", id: "t", name: "f", input: {} }), args(1, `{"a":1}`), close(1)];
    const got = decode(...part, ...call);
    expect(got).toMatchObject({ text: "Hel", error: { code: "UPSTREAM_TRUNCATED" }, finish: undefined });
    expect(got.toolCalls).toMatchObject([{ complete: false, invalid: false }]);
    expect(got.usage).toMatchObject({ input: 9 });
  });

  test("a stop reason makes an answer whole, also without the end mark", () => {
    expect(decode(...part, close(0), stop("end_turn"))).toMatchObject({ text: "Hel", finish: "stop" });
  });

  test("the end mark ends at once", () => {
    const one = decoder();
    one.push(Buffer.from(bodyOf([...part, stop("end_turn"), end])));
    expect(one.ended).toBe(true);
    expect(one.push(Buffer.from(bodyOf(whole("more"))))).toEqual([]);
    expect(one.end()).toEqual([]);
  });

  test("an error at any time ends the answer; keys are masked", () => {
    const error = { type: "overloaded_error", message: "Overloaded, key sk-ant-verysecret" };
    const got = decode(...part, { type: "error", error }, text(0, "lo"), end);
    expect(got).toMatchObject({ text: "Hel", error: { code: "UPSTREAM_UNAVAILABLE", retryable: true } });
    expect(JSON.stringify(got.error)).not.toContain("verysecret");
    const refused = { type: "error", error: { type: "rate_limit_error", message: "slow" } };
    expect(foldDeltas(deltasOf(JSON.stringify(refused))).error?.code).toBe("RATE_LIMIT");
  });

  test("a document that is neither message nor error is unreadable; an unreadable event is skipped", () => {
    expect(foldDeltas(deltasOf(`{"hello":"world"}`)).error?.code).toBe("UPSTREAM_MALFORMED");
    const got = foldDeltas(
      deltasOf(`data: {"type":\n\n${bodyOf([begin(), ...whole("Hi"), stop("end_turn"), end])}`),
    );
    expect(got).toMatchObject({ text: "Hi", finish: "stop", warnings: ["UPSTREAM_MALFORMED"] });
  });

  test("members of a wrong type say nothing", () => {
    const odd: Event[] = [
      { type: "message_start", message: null },
      { type: "content_block_start", index: "x", content_block: [1] },
      { type: "content_block_delta", index: null, delta: "text" },
      { type: "content_block_delta", delta: { type: "text_delta", text: 7 } },
      { type: "message_delta", delta: { stop_reason: 5 }, usage: { output_tokens: "many" } },
    ];
    expect(decode(...odd, text(3, "Hi"), stop("end_turn"), end)).toMatchObject({
      text: "Hi",
      finish: "stop",
    });
  });
});
