/** Each rule of the dialect on a body of its own: this suite needs no test data. */
import { describe, expect, test } from "vitest";
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { foldDeltas, type CompletionResult } from "../../../../test/support/completion-result.js";
import { decoderOptions } from "../../../../test/support/decoder-options.js";
import type { DecoderOptions } from "../dialect.js";
import { DEFAULT_REASONING_TAGS } from "../shared/reasoning-tags.js";
import { createOpenAiChatDecoder } from "./dialect.js";

function decode(body: string, options: Partial<DecoderOptions> = {}, cut = 0): CompletionResult {
  const bytes = Buffer.from(body);
  const decoder = createOpenAiChatDecoder(decoderOptions(options));
  const deltas = [
    ...decoder.push(bytes.subarray(0, cut)),
    ...decoder.push(bytes.subarray(cut)),
    ...decoder.end(),
  ];
  const late = decoder.push(Buffer.from(`data: {"choices":[{"delta":{"content":"late"}}]}\n\n`));
  if (!decoder.ended || late.length > 0) throw new Error("the decoder goes on after its end");
  return foldDeltas(deltas);
}

const event = (json: unknown): string => `data: ${JSON.stringify(json)}\n\n`;
const choice = (delta: unknown, finish: unknown = null): string =>
  event({ id: "r1", choices: [{ index: 0, delta, finish_reason: finish }] });
const text = (content: unknown): string => choice({ content });
const stop = choice({}, "stop");
const calls = choice({}, "tool_calls");
const done = "data: [DONE]\n\n";
const call = (fragment: object): string => choice({ tool_calls: [fragment] });
const head = (index: number, id: string, name: string, args: unknown = ""): object => ({
  index,
  id,
  type: "function",
  function: { name, arguments: args },
});
const tail = (index: number | undefined, args: unknown): object => ({ index, function: { arguments: args } });

interface Row {
  readonly name: string;
  readonly body: string;
  readonly want: Partial<CompletionResult>;
  readonly options?: Partial<DecoderOptions>;
}

/** A complete call as the fold gives it. */
const whole = (id: string, name: string, args: string) => ({
  id,
  name,
  args,
  complete: true,
  invalid: false,
});
const error = (code: string, extra: object = {}) =>
  expect.objectContaining({ code, ...extra }) as CompletionResult["error"];

const ENDS: readonly Row[] = [
  {
    name: "finish and end mark",
    body: text("a") + stop + done,
    want: { text: "a", finish: "stop", error: undefined },
  },
  {
    name: "what follows the end mark",
    body: text("a") + stop + done + text("b"),
    want: { text: "a", finish: "stop" },
  },
  {
    name: "finish, then end of body",
    body: text("a") + stop,
    want: { text: "a", finish: "stop", error: undefined },
  },
  {
    name: "end mark without finish",
    body: text("a") + done,
    want: { text: "a", finish: "stop", error: undefined },
  },
  {
    name: "neither: cut off, text kept",
    body: text("a"),
    want: { text: "a", finish: undefined, error: error("UPSTREAM_TRUNCATED", { retryable: true }) },
  },
  {
    name: "cut inside an event",
    body: text("a") + `data: {"choices":[{"del`,
    want: { text: "a", warnings: [], error: error("UPSTREAM_TRUNCATED") },
  },
  {
    name: "last event without blank line",
    body: text("a") + stop.trimEnd(),
    want: { finish: "stop", error: undefined },
  },
  { name: "empty body", body: "", want: { error: error("UPSTREAM_TRUNCATED") } },
  { name: "only comments", body: ": wait\n\n: wait\n\n", want: { error: error("UPSTREAM_TRUNCATED") } },
  { name: "only the end mark", body: done, want: { error: error("EMPTY_RESPONSE") } },
  {
    name: "only garbage",
    body: "data: <oops>\n\n",
    want: { warnings: ["UPSTREAM_MALFORMED"], error: error("UPSTREAM_MALFORMED") },
  },
  {
    name: "garbage in the middle",
    body: text("a") + "data: {oops\n\ndata: 17\n\n" + text("b") + stop,
    want: { text: "ab", finish: "stop", warnings: ["UPSTREAM_MALFORMED", "UPSTREAM_MALFORMED"] },
  },
  {
    name: "events not parted by blank lines",
    body: (text("a") + text("b") + stop + done).replaceAll("\n\n", "\n"),
    want: { text: "ab", finish: "stop", warnings: [] },
  },
  {
    name: "keep-alives",
    body: "data: null\n\ndata:\n\n: x\n\ndata\n\n" + text("a") + stop,
    want: { text: "a", warnings: [] },
  },
  {
    name: "finish words that mean nothing",
    body:
      choice({ content: "a" }, "") +
      choice({ content: "b" }, "None") +
      choice({ content: "c" }, "eos_token") +
      stop,
    want: { text: "abc", finish: "stop" },
  },
  {
    name: "unknown finish word at the end",
    body: text("a") + choice({}, "whatever"),
    want: { finish: "other", rawFinish: "whatever", error: undefined },
  },
  {
    name: "unknown finish word, then more, then cut off",
    body: choice({ content: "a" }, "whatever") + text("b"),
    want: { text: "ab", error: error("UPSTREAM_TRUNCATED") },
  },
  {
    name: "finish twice",
    body: text("a") + stop + choice({ content: "" }, "stop") + done,
    want: { text: "a", finish: "stop" },
  },
  { name: "length", body: text("a") + choice({}, "length") + done, want: { finish: "length" } },
  {
    name: "content filter",
    body: text("a") + choice({}, "content_filter") + done,
    want: { text: "a", finish: "content-filter" },
  },
  {
    name: "refusal",
    body: choice({ refusal: "no" }) + choice({ refusal: " way" }) + stop + done,
    want: { refusal: "no way", text: "", finish: "refusal" },
  },
  {
    name: "server gave up",
    body: text("a") + choice({}, "insufficient_system_resource") + done,
    want: { text: "a", error: error("UPSTREAM_UNAVAILABLE") },
  },
];

const ERRORS: readonly Row[] = [
  {
    name: "object",
    body: text("a") + event({ error: { message: "queue full", code: 503 } }) + done,
    want: {
      text: "a",
      error: error("UPSTREAM_UNAVAILABLE", { details: { upstream_status: "503", upstream_code: "503" } }),
    },
  },
  { name: "string", body: event({ error: "backend lost" }), want: { error: error("UPSTREAM_UNAVAILABLE") } },
  {
    name: "beside a choice that failed",
    body:
      text("a") +
      event({
        error: { message: "x", code: 429 },
        choices: [{ index: 0, delta: { content: "b" }, finish_reason: "error" }],
      }) +
      done,
    want: { text: "ab", error: error("RATE_LIMIT") },
  },
  {
    name: "in the choice",
    body: event({ choices: [{ index: 0, delta: {}, error: { code: 502, message: "x" } }] }),
    want: { error: error("UPSTREAM_UNAVAILABLE") },
  },
  {
    name: "event: error with an object",
    body: `event: error\n${event({ message: "m", type: "overloaded_error" })}`,
    want: { error: error("UPSTREAM_UNAVAILABLE") },
  },
  {
    name: "event: error with a text",
    body: "event: error\ndata: boom\n\n",
    want: { error: error("UPSTREAM_UNAVAILABLE") },
  },
  {
    name: "flat object",
    body: event({ object: "error", message: "maximum context length is 8 tokens", code: 400 }),
    want: { error: error("CONTEXT_TOO_LONG") },
  },
  {
    name: "no error: null, empty string, empty object",
    body:
      event({ error: null, choices: [{ delta: { content: "a" } }] }) +
      event({ error: "", choices: [] }) +
      event({ error: {}, choices: [] }) +
      stop,
    want: { text: "a", error: undefined },
  },
  {
    name: "tool use failed may pass",
    body: event({ error: { message: "m", code: "tool_use_failed", status_code: 400 } }),
    want: { error: error("UPSTREAM_MALFORMED", { retryable: true }) },
  },
  {
    name: "secrets",
    body: event({ error: { message: "key sk-abcdefghijklmnop1234 at https://x.test/y refused" } }),
    want: {
      error: error("UPSTREAM_UNAVAILABLE", {
        message: "the model provider is not available: key [key] at [address] refused",
      }),
    },
  },
];

const CHUNKS: readonly Row[] = [
  {
    name: "choices missing, null, empty",
    body: event({}) + event({ choices: null }) + event({ choices: [] }) + text("a") + stop,
    want: { text: "a", finish: "stop" },
  },
  {
    name: "delta missing and null",
    body: event({ choices: [{ index: 0 }] }) + choice(null) + text("a") + choice(null, "stop"),
    want: { text: "a", finish: "stop" },
  },
  {
    name: "members of wrong types",
    body:
      choice({ content: 5, reasoning: {}, tool_calls: "x", refusal: [] }) +
      event({ choices: "x", usage: 3, id: 9 }) +
      text("a") +
      stop,
    want: { text: "a", finish: "stop" },
  },
  {
    name: "role null, repeated, missing",
    body: choice({ role: null, content: "a" }) + choice({ role: "assistant", content: "b" }) + stop,
    want: { text: "ab" },
  },
  {
    name: "only choice 0",
    body:
      event({
        choices: [
          { index: 1, delta: { content: "x" }, finish_reason: "stop" },
          { index: 0, delta: { content: "a" } },
        ],
      }) + stop,
    want: { text: "a", finish: "stop" },
  },
  {
    name: "no index at all",
    body: event({ choices: [{ delta: { content: "a" } }, { delta: { content: "x" } }] }) + stop,
    want: { text: "a" },
  },
  {
    name: "content as a list",
    body:
      text([
        { type: "thinking", thinking: [{ type: "text", text: "t" }] },
        { type: "text", text: "a" },
      ]) + stop,
    want: { reasoning: "t", text: "a", order: ["reasoning", "text"] },
  },
  {
    name: "message beside the delta",
    body:
      event({ choices: [{ index: 0, delta: { content: "a" }, message: { content: "whole" } }] }) +
      event({ choices: [{ index: 0, message: { content: "whole" }, finish_reason: "stop" }] }),
    want: { text: "a", finish: "stop" },
  },
  {
    name: "message instead of deltas",
    body: event({ choices: [{ index: 0, message: { content: "whole" }, finish_reason: "stop" }] }),
    want: { text: "whole", finish: "stop" },
  },
  {
    name: "reasoning in two members",
    body:
      choice({ reasoning: "a", reasoning_content: "a" }) +
      choice({ reasoning: "b", reasoning_details: [{ type: "reasoning.text", text: "b" }] }) +
      text("c") +
      stop,
    want: { reasoning: "ab", text: "c" },
  },
  {
    name: "reasoning in details only",
    body:
      choice({
        reasoning_details: [
          { type: "reasoning.text", text: "a" },
          { type: "reasoning.summary", summary: "b" },
        ],
      }) +
      text("c") +
      stop,
    want: { reasoning: "ab" },
  },
  {
    name: "blocks in order",
    body:
      choice({ reasoning_content: "r" }) +
      text("a") +
      call(head(0, "c1", "f", "{}")) +
      text("b") +
      choice({ reasoning_content: "s" }) +
      calls,
    want: { order: ["reasoning", "text", "tool_call", "text", "reasoning"] },
  },
  {
    name: "halves of an emoji",
    body: text("\ud83c") + text("\udf0d") + text("\ud83c") + stop,
    want: { text: "\u{1f30d}\ufffd" },
  },
  {
    name: "think tags stay without the option",
    body: text("<think>a</think>b") + stop,
    want: { text: "<think>a</think>b", reasoning: "" },
  },
  {
    name: "think tags with it",
    body: text("<th") + text("ink>a</think>b") + stop,
    want: { text: "b", reasoning: "a" },
    options: { reasoningTags: DEFAULT_REASONING_TAGS },
  },
  {
    name: "think tag that the prompt opened",
    body: text("hm") + text("m</think>\n\na") + stop,
    want: { reasoning: "hmm", text: "a", reasoningOpen: false },
    options: { reasoningTags: DEFAULT_REASONING_TAGS, startsInReasoning: true },
  },
  {
    name: "think tag left open",
    body: text("<think>a") + choice({}, "length"),
    want: { reasoning: "a", reasoningOpen: true, finish: "length" },
    options: { reasoningTags: DEFAULT_REASONING_TAGS },
  },
  {
    name: "think tags where the server says what is reasoning",
    body: choice({ reasoning: "r" }) + text("<think>a</think>") + stop,
    want: { reasoning: "r", text: "<think>a</think>" },
    options: { reasoningTags: DEFAULT_REASONING_TAGS },
  },
];

const CALLS: readonly Row[] = [
  {
    name: "fragments by index",
    body:
      call(head(0, "c1", "f")) +
      call(head(1, "c2", "g")) +
      call(tail(0, `{"a":`)) +
      call(tail(1, `{"b":`)) +
      call(tail(0, "1}")) +
      call(tail(1, "2}")) +
      calls,
    want: { toolCalls: [whole("c1", "f", `{"a":1}`), whole("c2", "g", `{"b":2}`)], finish: "tool-calls" },
  },
  {
    name: "no index, fragments of the open call",
    body:
      call({ id: "c1", function: { name: "f", arguments: "{" } }) +
      call({ function: { arguments: "}" } }) +
      calls,
    want: { toolCalls: [whole("c1", "f", "{}")] },
  },
  {
    name: "index null",
    body:
      call({ index: null, id: "c1", function: { name: "f" } }) +
      call({ index: null, function: { arguments: "{}" } }) +
      calls,
    want: { toolCalls: [whole("c1", "f", "{}")] },
  },
  {
    name: "fragments by id without index",
    body:
      choice({
        tool_calls: [
          { id: "c1", function: { name: "f" } },
          { id: "c2", function: { name: "g" } },
        ],
      }) +
      call({ id: "c1", function: { arguments: "{}" } }) +
      call({ id: "c2", function: { arguments: `{"b":1}` } }) +
      calls,
    want: { toolCalls: [whole("c1", "f", "{}"), whole("c2", "g", `{"b":1}`)] },
  },
  {
    name: "new id on a used index",
    body: call(head(0, "c1", "f", "{}")) + call(head(0, "c2", "f", `{"b":1}`)) + calls,
    want: { toolCalls: [whole("c1", "f", "{}"), whole("c2", "f", `{"b":1}`)] },
  },
  {
    name: "heads share an index, tails do not",
    body:
      call(head(0, "c1", "f")) +
      call(head(0, "c2", "g")) +
      call(tail(0, "{}")) +
      call(tail(1, `{"b":1}`)) +
      calls,
    want: { toolCalls: [whole("c1", "f", "{}"), whole("c2", "g", `{"b":1}`)] },
  },
  {
    name: "all share an index, one after the other",
    body:
      call(head(0, "c1", "f")) +
      call(tail(0, "{}")) +
      call(head(0, "c2", "g")) +
      call(tail(0, `{"b":1}`)) +
      calls,
    want: { toolCalls: [whole("c1", "f", "{}"), whole("c2", "g", `{"b":1}`)] },
  },
  {
    name: "head shares an index, its tail has the right one",
    body: call(head(0, "c1", "f", "{}")) + call(head(0, "c2", "g")) + call(tail(1, `{"b":1}`)) + calls,
    want: { toolCalls: [whole("c1", "f", "{}"), whole("c2", "g", `{"b":1}`)] },
  },
  {
    name: "an id of its own in each fragment",
    body:
      call(head(0, "c1", "f")) +
      call({ index: 0, id: "x2", function: { arguments: "{" } }) +
      call({ index: 0, id: "x3", function: { arguments: "}" } }) +
      calls,
    want: { toolCalls: [whole("c1", "f", "{}")] },
  },
  {
    name: "the id after the name",
    body:
      call({ index: 0, function: { name: "f" } }) +
      call({ index: 0, id: "c1", function: { arguments: "{}" } }) +
      calls,
    want: { toolCalls: [whole("call_1", "f", "{}")] },
  },
  {
    name: "name in two parts",
    body:
      call(head(0, "c1", "get_")) + call({ index: 0, function: { name: "time", arguments: "{}" } }) + calls,
    want: { toolCalls: [whole("c1", "get_time", "{}")] },
  },
  {
    name: "name repeated, empty, null",
    body:
      call(head(0, "c1", "f")) +
      call({ index: 0, function: { name: "f", arguments: "{" } }) +
      call({ index: 0, function: { name: "", arguments: "" } }) +
      call({ index: 0, function: { name: null, arguments: "}" } }) +
      calls,
    want: { toolCalls: [whole("c1", "f", "{}")] },
  },
  {
    name: "two calls without id or index",
    body:
      choice({
        tool_calls: [
          { function: { name: "f", arguments: "{}" } },
          { function: { name: "f", arguments: `{"b":1}` } },
        ],
      }) + calls,
    want: { toolCalls: [whole("call_1", "f", "{}"), whole("call_2", "f", `{"b":1}`)] },
  },
  {
    name: "arguments null, empty, missing",
    body:
      call(head(0, "c1", "f", null)) +
      call(head(1, "c2", "g", "")) +
      call({ index: 2, id: "c3", function: { name: "h" } }) +
      calls,
    want: { toolCalls: [whole("c1", "f", "{}"), whole("c2", "g", "{}"), whole("c3", "h", "{}")] },
  },
  {
    name: "arguments as an object",
    body: call(head(0, "c1", "f", { a: [1] })) + calls,
    want: { toolCalls: [whole("c1", "f", `{"a":[1]}`)] },
  },
  {
    name: "halves of an emoji in arguments",
    body: call(head(0, "c1", "f", `{"a":"\ud83c`)) + call(tail(0, `\udf0d"}`)) + calls,
    want: { toolCalls: [whole("c1", "f", `{"a":"\u{1f30d}"}`)] },
  },
  {
    name: "stop though a call was made",
    body: call(head(0, "c1", "f", "{}")) + stop,
    want: { finish: "tool-calls", rawFinish: "stop" },
  },
  {
    name: "unparsable arguments",
    body: call(head(0, "c1", "f", `{"a":`)) + calls,
    want: {
      toolCalls: [{ id: "c1", name: "f", args: `{"a":`, complete: false, invalid: true }],
      warnings: ["UPSTREAM_MALFORMED"],
      finish: "tool-calls",
    },
  },
  {
    name: "two objects in one slot",
    body: call(head(0, "c1", "f", `{"a":1}`)) + call(tail(0, `{"b":2}`)) + calls,
    want: {
      toolCalls: [{ id: "c1", name: "f", args: `{"a":1}{"b":2}`, complete: false, invalid: true }],
    },
  },
  {
    name: "arguments that are no object",
    body: call(head(0, "c1", "f", "[1]")) + calls,
    want: { toolCalls: [{ id: "c1", name: "f", args: "[1]", complete: false, invalid: true }] },
  },
  {
    name: "cut by the length limit",
    body: call(head(0, "c1", "f", "{}")) + call(head(1, "c2", "g", `{"b`)) + choice({}, "length"),
    want: {
      toolCalls: [
        whole("c1", "f", "{}"),
        { id: "c2", name: "g", args: `{"b`, complete: false, invalid: false },
      ],
      finish: "length",
    },
  },
  {
    name: "cut by the length limit before its arguments",
    body: call(head(0, "c1", "f")) + choice({}, "length"),
    want: { toolCalls: [{ id: "c1", name: "f", args: "", complete: false, invalid: false }] },
  },
  {
    name: "cut off: none is complete",
    body: call(head(0, "c1", "f", `{"a":1}`)) + call(head(1, "c2", "g")),
    want: {
      toolCalls: [
        { id: "c1", name: "f", args: `{"a":1}`, complete: false, invalid: false },
        { id: "c2", name: "g", args: "", complete: false, invalid: false },
      ],
      error: error("UPSTREAM_TRUNCATED"),
    },
  },
  {
    name: "legacy function_call",
    body:
      choice({ function_call: { name: "f", arguments: "" } }) +
      choice({ function_call: { arguments: "{}" } }) +
      choice({}, "function_call"),
    want: { toolCalls: [whole("call_1", "f", "{}")], finish: "tool-calls" },
  },
  {
    name: "function_call beside tool_calls",
    body:
      choice({ tool_calls: [head(0, "c1", "f", "{}")], function_call: { name: "f", arguments: "{}" } }) +
      calls,
    want: { toolCalls: [whole("c1", "f", "{}")] },
  },
];

const counts = (prompt: number, completion: number, extra: object = {}): object => ({
  prompt_tokens: prompt,
  completion_tokens: completion,
  ...extra,
});

const BESIDE: readonly Row[] = [
  {
    name: "usage after the finish",
    body:
      text("a") +
      stop +
      event({
        choices: [],
        usage: counts(3, 4, {
          completion_tokens_details: { reasoning_tokens: 1 },
          prompt_tokens_details: { cached_tokens: 2 },
        }),
      }) +
      done,
    want: { usage: { input: 3, output: 4, reasoning: 1, cached: 2, cacheWrite: 0 } },
  },
  {
    name: "usage on every chunk, null at times",
    body:
      event({ choices: [{ delta: { content: "a" } }], usage: counts(3, 1) }) +
      event({ choices: [], usage: null }) +
      event({ choices: [{ delta: {}, finish_reason: "stop" }], usage: counts(3, 9) }) +
      done,
    want: { usage: { input: 3, output: 9, reasoning: 0, cached: 0, cacheWrite: 0 } },
  },
  {
    name: "reasoning outside the completion",
    body:
      text("a") +
      stop +
      event({
        choices: [],
        usage: counts(5, 1, { total_tokens: 16, completion_tokens_details: { reasoning_tokens: 10 } }),
      }),
    want: { usage: { input: 5, output: 11, reasoning: 10, cached: 0, cacheWrite: 0 } },
  },
  {
    name: "usage in x_groq",
    body:
      text("a") + event({ choices: [{ delta: {}, finish_reason: "stop" }], x_groq: { usage: counts(3, 4) } }),
    want: { usage: { input: 3, output: 4, reasoning: 0, cached: 0, cacheWrite: 0 } },
  },
  {
    name: "usage in the choice",
    body: text("a") + event({ choices: [{ delta: {}, finish_reason: "stop", usage: counts(3, 4) }] }),
    want: { usage: { input: 3, output: 4, reasoning: 0, cached: 0, cacheWrite: 0 } },
  },
  {
    name: "usage of a cut-off answer",
    body: event({ choices: [{ delta: { content: "a" } }], usage: counts(3, 1) }),
    want: {
      usage: { input: 3, output: 1, reasoning: 0, cached: 0, cacheWrite: 0 },
      error: error("UPSTREAM_TRUNCATED"),
    },
  },
  {
    name: "usage of nonsense",
    body:
      text("a") +
      stop +
      event({ choices: [], usage: { prompt_tokens: -1, completion_tokens: "x", total_tokens: 1e99 } }),
    want: { usage: undefined },
  },
  {
    name: "sources repeated on every chunk",
    body:
      event({ citations: ["https://a.test/", "https://b.test/"], choices: [{ delta: { content: "x" } }] }) +
      event({ citations: ["https://a.test/", "https://b.test/", "https://c.test/"], choices: [] }) +
      stop,
    want: { sources: ["https://a.test/", "https://b.test/", "https://c.test/"] },
  },
  {
    name: "annotations",
    body:
      choice({
        annotations: [
          {
            type: "url_citation",
            url_citation: { url: "https://a.test/", title: "A", start_index: 1, end_index: 2 },
          },
          { type: "file_citation" },
        ],
      }) +
      text("x") +
      stop,
    want: { sources: ["https://a.test/"] },
  },
  {
    name: "sources that are no web address",
    body:
      event({
        citations: ["javascript:alert(1)", "file:///etc/passwd", 7],
        choices: [{ delta: { content: "x" } }],
      }) + stop,
    want: { sources: [] },
  },
];

const DOCUMENTS: readonly Row[] = [
  {
    name: "whole answer",
    body: JSON.stringify({
      id: "r",
      choices: [
        {
          index: 0,
          message: { role: "assistant", reasoning_content: "r", content: "a" },
          finish_reason: "stop",
        },
      ],
      usage: counts(1, 2),
    }),
    want: {
      text: "a",
      reasoning: "r",
      finish: "stop",
      usage: { input: 1, output: 2, reasoning: 0, cached: 0, cacheWrite: 0 },
    },
  },
  {
    name: "calls",
    body: JSON.stringify({
      choices: [
        {
          message: { content: null, tool_calls: [{ id: "c1", function: { name: "f", arguments: "{}" } }] },
          finish_reason: "tool_calls",
        },
      ],
    }),
    want: { toolCalls: [whole("c1", "f", "{}")], finish: "tool-calls" },
  },
  {
    name: "blanks and a byte order mark before it",
    body: "\ufeff\n " + JSON.stringify({ choices: [{ message: { content: "a" } }] }),
    want: { text: "a", finish: "stop" },
  },
  {
    name: "error under status 200",
    body: JSON.stringify({ error: { message: "m", type: "server_error" } }),
    want: { error: error("UPSTREAM_UNAVAILABLE") },
  },
  {
    name: "another document that says what is wrong",
    body: `{"detail":"Not Found"}`,
    want: {
      error: error("UPSTREAM_UNAVAILABLE", { message: expect.stringContaining("Not Found") as string }),
    },
  },
  { name: "another document", body: `{"hello":"world"}`, want: { error: error("UPSTREAM_MALFORMED") } },
  {
    name: "cut off",
    body: `{"choices":[{"message":{"content":"a`,
    want: { text: "", error: error("UPSTREAM_TRUNCATED") },
  },
];

for (const [group, rows] of Object.entries({
  ends: ENDS,
  errors: ERRORS,
  chunks: CHUNKS,
  calls: CALLS,
  beside: BESIDE,
  documents: DOCUMENTS,
})) {
  describe(`openai chat - ${group}`, () => {
    for (const { name, body, want, options } of rows) {
      test(`${name} - whole and cut in two at every byte`, () => {
        const got = decode(body, options);
        expect(got).toMatchObject(want);
        expect(got.finish === undefined).toBe(got.error !== undefined);
        const wanted = JSON.stringify(got);
        for (let at = 1; at < Buffer.byteLength(body); at++) {
          const cut = decode(body, options, at);
          if (JSON.stringify(cut) !== wanted) expect(cut, `cut at ${at}`).toEqual(got);
        }
      });
    }
  });
}

describe("openai chat - limits", () => {
  test("an endless line - an error, text kept", () => {
    const got = decode(text("a") + `data: ${"x".repeat(3000)}`, { maxEventBytes: 2000 });
    expect(got).toMatchObject({ text: "a", error: { code: "UPSTREAM_MALFORMED" } });
  });

  test("an endless answer - an error, text kept", () => {
    const got = decode(text("a").repeat(100), { maxResponseBytes: 2000 });
    expect(got.error?.code).toBe("SIZE_LIMIT");
  });

  test("a hundred broken events - eight warnings", () => {
    expect(decode(text("a") + "data: {\n\n".repeat(100) + stop).warnings).toHaveLength(8);
  });

  test("the connection fails after the finish - clean; before it - that failure", () => {
    const failure = createOpenAiChatDecoder(decoderOptions());
    failure.push(Buffer.from(text("a") + stop));
    expect(failure.finishSeen).toBe(true);
    expect(foldDeltas(failure.end())).toMatchObject({ finish: "stop", error: undefined });
  });
});

describe("openai chat - beside text and calls", () => {
  const deltasOf = (body: string): CompletionDelta["delta"][] => {
    const decoder = createOpenAiChatDecoder(decoderOptions());
    return [...decoder.push(Buffer.from(body)), ...decoder.end()].map(({ delta }) => delta);
  };
  const details = (...items: object[]): string => choice({ reasoning_details: items });
  const statesOf = (body: string): unknown[] =>
    deltasOf(body).flatMap((delta) =>
      delta.case === "providerState" ? [JSON.parse(Buffer.from(delta.value.data).toString())] : [],
    );

  test("signed reasoning - its pieces come back as one, in order, also what was not signed", () => {
    const body =
      details({ type: "reasoning.text", index: 0, text: "Let " }) +
      details({ type: "reasoning.text", index: 0, text: "me" }) +
      details({ type: "reasoning.text", index: 0, text: "", signature: "s1" }) +
      details({ type: "reasoning.summary", index: 1, summary: "sum" }) +
      details(
        { type: "reasoning.encrypted", id: "a", data: "AA" },
        { type: "reasoning.encrypted", id: "b", data: "BB" },
      ) +
      text("hi") +
      stop;
    expect(statesOf(body)).toEqual([
      [
        { type: "reasoning.text", index: 0, text: "Let me", signature: "s1" },
        { type: "reasoning.summary", index: 1, summary: "sum" },
        { type: "reasoning.encrypted", id: "a", data: "AA" },
        { type: "reasoning.encrypted", id: "b", data: "BB" },
      ],
    ]);
  });

  test("reasoning that nobody signed, or that was cut off - nothing goes back", () => {
    expect(statesOf(details({ type: "reasoning.text", text: "a" }) + stop)).toEqual([]);
    expect(statesOf(details({ type: "reasoning.text", text: "a", signature: "s" }))).toEqual([]);
  });

  test("what a server hangs on a call - kept with the call's id", () => {
    const signed = { ...head(0, "c1", "f", "{}"), extra_content: { google: { thought_signature: "s" } } };
    expect(statesOf(call(signed) + calls)).toEqual([
      { id: "c1", extra_content: { google: { thought_signature: "s" } } },
    ]);
  });

  test("an image that the model made", () => {
    const image = (url: string): string => choice({ images: [{ type: "image_url", image_url: { url } }] });
    const media = deltasOf(
      image("data:image/png;base64,cG5n") + image("https://a.test/x.png") + image("data:nonsense") + stop,
    ).filter((delta) => delta.case === "media");
    expect(media).toMatchObject([
      { value: { mediaType: "image/png", source: { case: "data", value: Buffer.from("png") } } },
    ]);
  });
});
