/** Each rule of the dialect on a body of its own: this suite needs no test data. */
import { describe, expect, test } from "vitest";
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { foldDeltas } from "../../../../test/support/completion-result.js";
import { expectSameHoweverCut } from "../../../../test/support/cut-bodies.js";
import { decoderOptions } from "../../../../test/support/decoder-options.js";
import { createOpenAiResponsesDecoder } from "./dialect.js";

type Event = Readonly<Record<string, unknown>> & { readonly type: string };

const decoder = (rawReasoning = false) =>
  createOpenAiResponsesDecoder(decoderOptions({ secrets: ["sk-verysecret"] }), rawReasoning);

const bodyOf = (events: readonly Event[]): string =>
  events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("");

function deltasOf(body: string, rawReasoning = false): CompletionDelta[] {
  const one = decoder(rawReasoning);
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

const created: Event = {
  type: "response.created",
  response: { id: "resp_1", status: "in_progress", output: [] },
};
const added = (output_index: number, item: object): Event => ({
  type: "response.output_item.added",
  output_index,
  item,
});
const done = (output_index: number, item: object): Event => ({
  type: "response.output_item.done",
  output_index,
  item,
});
const text = (output_index: number, delta: string, more: object = {}): Event => ({
  type: "response.output_text.delta",
  ...{ output_index, content_index: 0, delta, ...more },
});
const args = (output_index: number, delta: string): Event => ({
  type: "response.function_call_arguments.delta",
  ...{ output_index, delta },
});
const usage = {
  input_tokens: 10,
  input_tokens_details: { cached_tokens: 4, cache_write_tokens: 2 },
  output_tokens: 6,
  output_tokens_details: { reasoning_tokens: 3 },
};
const completed = (more: object = {}): Event => ({
  type: "response.completed",
  response: { id: "resp_1", status: "completed", output: [], usage, ...more },
});
const message = { type: "message", id: "msg_1", status: "in_progress", role: "assistant", content: [] };
const call = (name: string, more: object = {}) => ({
  type: "function_call",
  call_id: `call_${name}`,
  name,
  arguments: "",
  ...more,
});

describe("responses answers", () => {
  test("text, usage and the end", () => {
    expect(decode(created, added(0, message), text(0, "Hi"), completed())).toMatchObject({
      ...{ text: "Hi", order: ["text"], finish: "stop", rawFinish: "completed" },
      usage: { input: 10, output: 6, reasoning: 3, cached: 4, cacheWrite: 2 },
    });
  });

  test("what done events repeat counts only where no delta came", () => {
    const part = { type: "output_text", text: "Hi", annotations: [] };
    const repeats: Event[] = [
      { type: "response.output_text.done", output_index: 0, content_index: 0, text: "Hi" },
      { type: "response.content_part.done", output_index: 0, content_index: 0, part },
      done(0, { ...message, content: [part] }),
      completed({ output: [{ ...message, content: [part] }] }),
    ];
    expect(decode(created, added(0, message), text(0, "H"), text(0, "i"), ...repeats).text).toBe("Hi");
    for (let at = 0; at < repeats.length; at++)
      expect(decode(created, ...repeats.slice(at)), `from ${repeats[at]?.type}`).toMatchObject({
        text: "Hi",
        finish: "stop",
      });
  });

  test("items are told apart by their place: ids may change with every event", () => {
    const got = decode(
      created,
      added(0, { ...message, id: "a" }),
      added(1, call("f", { id: "b" })),
      text(0, "H", { item_id: "c" }),
      { ...args(1, `{"a":`), item_id: "d" },
      text(0, "i", { item_id: "e" }),
      { ...args(1, `1}`), item_id: "f" },
      done(1, call("f", { id: "g", status: "completed", arguments: `{"a":1}` })),
      completed(),
    );
    expect(got).toMatchObject({ text: "Hi", finish: "tool-calls" });
    expect(got.toolCalls).toMatchObject([{ id: "call_f", name: "f", args: `{"a":1}`, complete: true }]);
  });

  test("without a place the id tells; unknown events and items say nothing", () => {
    const delta = { type: "response.output_text.delta", content_index: 0, delta: "Hi" };
    const got = decode(
      created,
      added(0, { type: "novelty_call", id: "n" }),
      added(1, { ...message, id: "m" }),
      { type: "response.novelty_call.progress", output_index: 0 },
      { ...delta, item_id: "m" },
      { type: "unheard_of" },
      completed(),
    );
    expect(got).toMatchObject({ text: "Hi", warnings: [], finish: "stop" });
  });

  test("interleaved calls; arguments only in the done event", () => {
    const got = decode(
      created,
      added(0, call("f")),
      added(1, call("g")),
      args(1, `{"b":2}`),
      { type: "response.function_call_arguments.done", output_index: 0, arguments: `{"a":1}` },
      done(0, call("f", { status: "completed", arguments: `{"a":1}` })),
      done(1, call("g", { arguments: `{"b":2}` })),
      completed(),
    );
    expect(got.toolCalls.map(({ id, args: json, complete }) => [id, json, complete])).toEqual([
      ["call_f", `{"a":1}`, true],
      ["call_g", `{"b":2}`, true],
    ]);
  });

  test("a custom tool's input is a JSON string, and no object", () => {
    const item = { type: "custom_tool_call", call_id: "c", name: "sql", input: "" };
    const input = (delta: string): Event => ({
      type: "response.custom_tool_call_input.delta",
      output_index: 0,
      delta,
    });
    const got = decode(
      created,
      added(0, item),
      input(`say "`),
      input(`hi"\n`),
      done(0, { ...item, status: "completed" }),
      completed(),
    );
    expect(got.toolCalls).toEqual([
      { id: "c", name: "sql", args: `"say \\"hi\\"\\n"`, complete: true, invalid: true },
    ]);
    expect(got).toMatchObject({ finish: "tool-calls", warnings: [] });
  });

  test("patches are calls; a shell may be the server's, so its end says what it waits for", () => {
    const operation = { type: "delete_file", path: "a" };
    const patch = { type: "apply_patch_call", call_id: "p", status: "completed", operation };
    const shell = {
      type: "shell_call",
      call_id: "s",
      status: "completed",
      action: { commands: ["ls"], timeout_ms: null },
    };
    expect(decode(created, added(0, patch), done(0, patch), completed())).toMatchObject({
      finish: "tool-calls",
      toolCalls: [{ name: "apply_patch", args: JSON.stringify({ callId: "p", operation }), complete: true }],
    });
    expect(decode(created, added(0, shell), done(0, shell), completed())).toMatchObject({
      finish: "stop",
      toolCalls: [{ name: "shell", args: `{"action":{"commands":["ls"]}}`, complete: true }],
    });
  });

  test("refusals", () => {
    const refused: Event = {
      type: "response.refusal.delta",
      output_index: 0,
      content_index: 0,
      delta: "No.",
    };
    const part = { type: "refusal", refusal: "No." };
    const got = decode(
      created,
      added(0, message),
      refused,
      done(0, { ...message, content: [part] }),
      completed(),
    );
    expect(got).toMatchObject({ refusal: "No.", text: "", finish: "refusal" });
  });

  test("sources with the passage that cites them, once each; files have no address", () => {
    const cited = { type: "url_citation", url: "https://a.test", title: "A", start_index: 0, end_index: 2 };
    const file = { type: "file_citation", file_id: "file_1", filename: "a.pdf", index: 2 };
    const annotation = (value: object): Event => ({
      type: "response.output_text.annotation.added",
      ...{ output_index: 0, content_index: 0, annotation: value },
    });
    const content = [{ type: "output_text", text: "Hi", annotations: [cited, file] }];
    const events = [
      created,
      added(0, message),
      text(0, "Hi"),
      annotation(cited),
      done(0, { ...message, content }),
      completed(),
    ];
    expect(valuesOf(deltasOf(bodyOf(events)), "citation")).toMatchObject([
      { blockIndex: 0, startChar: 0, endChar: 2, document: { url: "https://a.test", title: "A" } },
      { blockIndex: 0, document: { url: "", documentId: "file_1", title: "a.pdf", source: "file" } },
    ]);
  });

  test("an answer that was not streamed gives the same", () => {
    const item = call("f", { status: "completed", arguments: `{"a":1}` });
    const content = [{ type: "output_text", text: "Hi", annotations: [] }];
    const output = [
      { type: "reasoning", summary: [{ type: "summary_text", text: "hm" }] },
      { ...message, content },
      item,
    ];
    const got = foldDeltas(
      deltasOf(JSON.stringify({ id: "resp_1", object: "response", status: "completed", output, usage })),
    );
    expect(got).toMatchObject({
      reasoning: "hm",
      text: "Hi",
      finish: "tool-calls",
      order: ["reasoning", "text", "tool_call"],
    });
    expect(got.toolCalls).toMatchObject([{ args: `{"a":1}`, complete: true }]);
  });

  test("no cut changes what a body means", () => {
    const body = bodyOf([
      created,
      added(0, message),
      text(0, "h\u00e4 \ud83c"),
      text(0, "\udf0d"),
      added(1, call("f")),
      args(1, `{"a":"\u{1f30d}"}`),
      done(1, call("f", { status: "completed" })),
      completed(),
    ]);
    const got = foldDeltas(deltasOf(body));
    expect(got).toMatchObject({ text: "hä 🌍", toolCalls: [{ args: `{"a":"🌍"}`, complete: true }] });
    expectSameHoweverCut(decoder, Buffer.from(body), got);
  });
});

describe("responses answers - reasoning and the server's tools", () => {
  const reasoning = { type: "reasoning", id: "rs_1", summary: [] };
  const summary = (summary_index: number, delta: string): Event => ({
    type: "response.reasoning_summary_text.delta",
    ...{ output_index: 0, summary_index, delta },
  });
  const raw: Event = {
    type: "response.reasoning_text.delta",
    output_index: 0,
    content_index: 0,
    delta: "raw",
  };

  test("each part of a summary is a block; the sealed reasoning goes back as its item", () => {
    const whole = { ...reasoning, encrypted_content: "xyz", summary: [{ type: "summary_text", text: "ab" }] };
    const events = [
      created,
      added(0, reasoning),
      summary(0, "a"),
      summary(0, "b"),
      summary(1, "c"),
      done(0, whole),
      completed(),
    ];
    const deltas = deltasOf(bodyOf(events));
    expect(valuesOf(deltas, "reasoning").map((value) => value)).toMatchObject([
      { blockIndex: 0, text: "a", summary: true },
      { blockIndex: 0, text: "b" },
      { blockIndex: 1, text: "c" },
    ]);
    expect(statesOf(deltas)).toEqual([whole]);
  });

  test("raw reasoning is shown only where asked for, and goes back either way", () => {
    const whole = { ...reasoning, content: [{ type: "reasoning_text", text: "raw" }] };
    const body = bodyOf([
      created,
      added(0, reasoning),
      raw,
      done(0, whole),
      added(1, message),
      text(1, "Hi"),
      completed(),
    ]);
    expect(foldDeltas(deltasOf(body))).toMatchObject({ reasoning: "", order: ["text"] });
    expect(foldDeltas(deltasOf(body, true))).toMatchObject({
      reasoning: "raw",
      order: ["reasoning", "text"],
    });
    expect(statesOf(deltasOf(body))).toEqual([whole]);
  });

  test("a search: shown when it begins, its arguments and its result when it is done", () => {
    const search = {
      type: "web_search_call",
      id: "ws_1",
      status: "completed",
      action: { type: "search", query: "a" },
    };
    const deltas = deltasOf(
      bodyOf([created, added(0, { ...search, action: undefined }), done(0, search), completed()]),
    );
    expect(valuesOf(deltas, "serverToolCall")).toMatchObject([
      { callId: "ws_1", name: "web_search", argumentsJson: "", done: false },
      { argumentsJson: `{"type":"search","query":"a"}`, resultJson: "", done: false },
      { resultJson: `{"status":"completed","type":"search","query":"a"}`, done: true },
    ]);
    expect(statesOf(deltas)).toEqual([search]);
  });

  test("outputs that are items of their own belong to the call before them", () => {
    const search = { type: "tool_search_call", id: "tsc_1", call_id: null, arguments: { paths: ["f"] } };
    const found = { type: "tool_search_output", id: "tso_1", call_id: null, tools: [{ name: "f" }] };
    const deltas = deltasOf(
      bodyOf([created, added(0, search), done(0, search), added(1, found), done(1, found), completed()]),
    );
    expect(valuesOf(deltas, "serverToolCall").map((value) => value)).toMatchObject([
      { callId: "tsc_1", name: "tool_search" },
      { argumentsJson: `{"paths":["f"]}` },
      { callId: "tsc_1", resultJson: `{"tools":[{"name":"f"}]}`, done: true },
    ]);
  });

  test("an image is media", () => {
    const image = {
      type: "image_generation_call",
      id: "ig_1",
      status: "completed",
      output_format: "webp",
      result: "aGk=",
    };
    const partial: Event = {
      type: "response.image_generation_call.partial_image",
      output_index: 0,
      partial_image_index: 0,
    };
    const deltas = deltasOf(
      bodyOf([created, added(0, { ...image, result: null }), partial, done(0, image), completed()]),
    );
    expect(valuesOf(deltas, "media")).toMatchObject([
      { mediaType: "image/webp", source: { case: "data", value: Buffer.from("hi") } },
    ]);
    const large = { ...image, result: "a".repeat(4 * 1024 * 1024 + 4) };
    expect(valuesOf(deltasOf(bodyOf([created, done(0, large), completed()])), "warning")).toMatchObject([
      { message: "the model made an image that is too large, it was left out" },
    ]);
    expect(valuesOf(deltas, "serverToolCall").map((value) => value)).toMatchObject([
      { name: "image_generation" },
      { resultJson: `{"partial_image":0}`, done: false },
      {},
      { resultJson: `{"status":"completed"}`, done: true },
    ]);
  });
});

describe("responses answers - how they fail", () => {
  const part = [created, added(0, message), text(0, "Hel")];

  test("a body that ends without the last event is an error, what came is kept", () => {
    expect(decode(...part)).toMatchObject({
      text: "Hel",
      error: { code: "UPSTREAM_TRUNCATED" },
      finish: undefined,
    });
    expect(foldDeltas(deltasOf("")).error?.code).toBe("UPSTREAM_TRUNCATED");
  });

  test("of the calls in it those are whole that the server called completed", () => {
    const whole = done(1, call("f", { status: "completed", arguments: "{}" }));
    const got = decode(...part, whole, added(2, call("g")), args(2, `{"a":1}`));
    expect(got.toolCalls.map(({ name, complete }) => [name, complete])).toEqual([
      ["f", true],
      ["g", false],
    ]);
    expect(got.error?.code).toBe("UPSTREAM_TRUNCATED");
  });

  test.each([
    ["max_output_tokens", "length", true],
    ["content_filter", "content-filter", false],
  ])("incomplete: %s", (reason, finish, complete) => {
    const response = { status: "incomplete", incomplete_details: { reason }, usage };
    const got = decode(
      ...part,
      done(1, call("f", { status: "completed", arguments: `{"a":1}` })),
      added(2, call("g")),
      args(2, `{"a":`),
      done(2, call("g", { status: "incomplete", arguments: `{"a":` })),
      { type: "response.incomplete", response },
    );
    expect(got).toMatchObject({ finish, rawFinish: reason, usage: { input: 10 } });
    expect(got.toolCalls.map((each) => each.complete)).toEqual([complete, false]);
  });

  test.each<[string, Event, string]>([
    ["flat error", { type: "error", code: "rate_limit_exceeded", message: "slow down" }, "RATE_LIMIT"],
    [
      "error of its own",
      { type: "error", error: { code: "server_error", message: "oops" } },
      "UPSTREAM_UNAVAILABLE",
    ],
    [
      "failed",
      { type: "response.failed", response: { error: { code: "server_error", message: "oops" } } },
      "UPSTREAM_UNAVAILABLE",
    ],
    ["cancelled", { type: "response.cancelled", response: { status: "cancelled" } }, "UPSTREAM_UNAVAILABLE"],
  ])("%s", (_name, event, code) => {
    expect(decode(...part, event, text(0, "lo"))).toMatchObject({
      text: "Hel",
      error: { code },
      finish: undefined,
    });
  });

  test("keys are masked; a document that is no answer is unreadable; one that still runs is none", () => {
    const failed = foldDeltas(
      deltasOf(`{"error":{"message":"bad key sk-verysecret","code":"invalid_api_key"}}`),
    );
    expect(failed.error?.code).toBe("UPSTREAM_AUTH");
    expect(JSON.stringify(failed)).not.toContain("verysecret");
    expect(foldDeltas(deltasOf(`{"hello":1}`)).error?.code).toBe("UPSTREAM_MALFORMED");
    expect(foldDeltas(deltasOf(`{"status":"queued","output":[]}`)).error?.code).toBe("UPSTREAM_UNAVAILABLE");
  });

  test("the last event ends at once", () => {
    const one = decoder();
    one.push(Buffer.from(bodyOf([...part, completed()])));
    expect(one.ended).toBe(true);
    expect(one.push(Buffer.from("data: [DONE]\n\n"))).toEqual([]);
  });

  test("members of a wrong type say nothing", () => {
    const odd: Event[] = [
      { type: "response.created", response: 5 },
      { type: "response.output_item.added", output_index: "0", item: null },
      { type: "response.output_text.delta", output_index: 3, delta: { a: 1 } },
      { type: "response.output_item.done", output_index: 3, item: { type: "message", content: "x" } },
    ];
    expect(decode(...odd, added(4, message), text(4, "Hi"), completed({ usage: "many" }))).toMatchObject({
      ...{ text: "Hi", finish: "stop", usage: undefined },
    });
  });
});
