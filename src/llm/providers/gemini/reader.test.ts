/** Each rule of the dialect on a body of its own: this suite needs no test data. */
import { describe, expect, test } from "vitest";
import { foldDeltas } from "../../../../test/support/completion-result.js";
import { decoderOptions } from "../../../../test/support/decoder-options.js";
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { createGeminiDecoder } from "./dialect.js";
import { geminiState, type GeminiState } from "./state.js";

function deltasOf(body: string, contentType = "text/event-stream"): CompletionDelta[] {
  const decoder = createGeminiDecoder(decoderOptions({ contentType, secrets: ["AIzaSECRETSECRET"] }));
  return [...decoder.push(Buffer.from(body)), ...decoder.end()];
}

const decode = (...chunks: object[]) => foldDeltas(deltasOf(chunks.map(event).join("")));
const event = (chunk: object): string => `data: ${JSON.stringify(chunk)}\r\n\r\n`;
const parts = (parts: object[], more: object = {}): object => ({
  candidates: [{ content: { parts, role: "model" }, index: 0, ...more }],
  responseId: "r1",
});
const stop = { finishReason: "STOP" };

const valuesOf = (deltas: readonly CompletionDelta[], wanted: CompletionDelta["delta"]["case"]) =>
  deltas.flatMap(({ delta }) => (delta.case === wanted ? [delta.value] : []));

function statesOf(deltas: readonly CompletionDelta[]): (GeminiState | undefined)[] {
  return deltas.flatMap(({ delta }) => (delta.case === "providerState" ? [geminiState(delta.value)] : []));
}

describe("gemini answers", () => {
  test("thoughts are reasoning, and not among the candidates' tokens", () => {
    const usageMetadata = {
      promptTokenCount: 5,
      candidatesTokenCount: 7,
      thoughtsTokenCount: 30,
      cachedContentTokenCount: 2,
    };
    const got = decode(
      parts([{ text: "hm", thought: true }]),
      { ...parts([{ text: "Hi" }], stop), usageMetadata },
      { usageMetadata: { trafficType: "ON_DEMAND" } },
    );
    expect(got).toMatchObject({
      text: "Hi",
      reasoning: "hm",
      order: ["reasoning", "text"],
      finish: "stop",
      rawFinish: "STOP",
    });
    expect(got.usage).toEqual({ input: 5, output: 37, reasoning: 30, cached: 2, cacheWrite: 0 });
  });

  test("calls without ids get ids, two of one name are two, STOP means they wait", () => {
    const call = (args?: object) => ({ functionCall: { name: "f", ...(args && { args }) } });
    const got = decode(
      parts([call({ a: 1 }), call(), { functionCall: { name: "g", args: {}, id: "w1" } }], stop),
    );
    expect(got.finish).toBe("tool-calls");
    expect(got.toolCalls.map(({ id, name, args, complete }) => [id, name, args, complete])).toEqual([
      ["call_1", "f", `{"a":1}`, true],
      ["call_2", "f", "{}", true],
      ["w1", "g", "{}", true],
    ]);
  });

  test("an id that repeats belongs to another call all the same", () => {
    const call = { functionCall: { name: "f", args: {}, id: "w1" } };
    expect(decode(parts([call, call], stop)).toolCalls.map(({ id }) => id)).toEqual(["w1", "call_1"]);
  });

  test("signatures are kept right after the part they came with", () => {
    const deltas = deltasOf(
      [
        parts([
          { functionCall: { name: "f", args: {} }, thoughtSignature: "c2ln" },
          { functionCall: { name: "g" } },
        ]),
        parts([{ text: "ok", thoughtSignature: "dGV4dA==" }]),
        parts([{ text: "", thoughtSignature: "ZW5k" }], stop),
      ]
        .map(event)
        .join(""),
    );
    expect(statesOf(deltas)).toEqual([
      { kind: "call", callId: "call_1", signature: "c2ln", wireId: false },
      { kind: "text", signature: "dGV4dA==" },
      { kind: "text", signature: "ZW5k" },
    ]);
    const order = deltas.map(({ delta }) => delta.case);
    expect(order.indexOf("providerState")).toBe(1);
    expect(foldDeltas(deltas).text).toBe("ok");
  });

  test("arguments that Vertex AI streams value by value", () => {
    const piece = (call: object): object => parts([{ functionCall: call }]);
    const got = decode(
      piece({ name: "write", willContinue: true }),
      piece({
        partialArgs: [{ jsonPath: "$.items[0].title", stringValue: "Fre", willContinue: true }],
        willContinue: true,
      }),
      piece({ partialArgs: [{ jsonPath: "$.items[0].title", stringValue: "sh" }], willContinue: true }),
      piece({
        partialArgs: [
          { jsonPath: "$.items[0].price", numberValue: 0 },
          { jsonPath: "$.items[1]['a b']", boolValue: false },
        ],
        willContinue: true,
      }),
      piece({ partialArgs: [{ jsonPath: "$.none", nullValue: "NULL_VALUE" }] }),
      piece({ name: "second" }),
      piece({}),
      parts([{ text: "" }], stop),
    );
    expect(got.toolCalls.map(({ name, args, complete }) => [name, JSON.parse(args), complete])).toEqual([
      ["write", { items: [{ title: "Fresh", price: 0 }, { "a b": false }], none: null }, true],
      ["second", {}, true],
    ]);
  });

  test("a call whose end never came is over at the end of the answer, unless a limit cut it", () => {
    const open = parts([
      { functionCall: { name: "f", partialArgs: [{ jsonPath: "$.a", numberValue: 1 }], willContinue: true } },
    ]);
    expect(decode(open, parts([], stop)).toolCalls[0]).toMatchObject({ args: `{"a":1}`, complete: true });
    for (const [finishReason, finish] of [
      ["MAX_TOKENS", "length"],
      ["SAFETY", "content-filter"],
    ]) {
      const got = decode(open, parts([], { finishReason }));
      expect(got.finish).toBe(finish);
      expect(got.toolCalls[0]).toMatchObject({ name: "f", complete: false });
    }
    expect(decode(open).toolCalls[0]).toMatchObject({ name: "f", complete: false });
  });

  test.each([
    ["a path that jumps ahead", { jsonPath: "$.a[4000000000]", numberValue: 1 }],
    ["a path that is none", { jsonPath: "a.b", numberValue: 1 }],
    ["a path into a text", { jsonPath: "$.text.x", numberValue: 1 }],
    ["no value", { jsonPath: "$.a" }],
    ["a very deep path", { jsonPath: `$${".a".repeat(100)}`, numberValue: 1 }],
  ])("pieces of arguments that do not fit - %s", (_name, piece) => {
    const first = { jsonPath: "$.text", stringValue: "x" };
    const got = decode(parts([{ functionCall: { name: "f", partialArgs: [first, piece] } }], stop));
    expect(got.toolCalls[0]).toMatchObject({ complete: false, invalid: true });
    expect(got.warnings).toEqual(["UPSTREAM_MALFORMED"]);
  });

  test("a blocked prompt is a content filter's end", () => {
    const got = decode({ promptFeedback: { blockReason: "SAFETY" }, usageMetadata: { promptTokenCount: 5 } });
    expect(got).toMatchObject({ finish: "content-filter", rawFinish: "SAFETY", usage: { input: 5 } });
  });

  test.each([
    ["MALFORMED_FUNCTION_CALL", "UPSTREAM_MALFORMED", true],
    ["UNEXPECTED_TOOL_CALL", "UPSTREAM_MALFORMED", true],
    ["MISSING_THOUGHT_SIGNATURE", "UPSTREAM_REJECTED", false],
  ])("finish reason %s is a failure", (finishReason, code, retryable) => {
    const got = decode({ candidates: [{ content: {}, finishReason }] });
    expect(got.error).toMatchObject({ code, retryable });
    expect(got.error?.message).toContain(finishReason);
  });

  test("other finish reasons", () => {
    for (const [raw, finish] of [
      ["MAX_TOKENS", "length"],
      ["SPII", "content-filter"],
      ["IMAGE_SAFETY", "content-filter"],
      ["LANGUAGE", "other"],
    ])
      expect(decode(parts([{ text: "x" }], { finishReason: raw }))).toMatchObject({ finish, rawFinish: raw });
    expect(decode(parts([{ text: "x" }], { finishReason: "FINISH_REASON_UNSPECIFIED" })).error?.code).toBe(
      "UPSTREAM_TRUNCATED",
    );
  });

  test("an error in the stream keeps the text, says when to come back, hides the key", () => {
    const error = {
      code: 429,
      status: "RESOURCE_EXHAUSTED",
      message: "quota of AIzaSECRETSECRET is used up",
      details: [{ "@type": "type.googleapis.com/google.rpc.RetryInfo", retryDelay: "34.4s" }],
    };
    const deltas = deltasOf(event(parts([{ text: "Hel" }])) + event({ error }));
    expect(foldDeltas(deltas)).toMatchObject({
      text: "Hel",
      finish: undefined,
      error: { code: "RATE_LIMIT", retryable: true },
    });
    expect(JSON.stringify(deltas)).not.toContain("SECRETSECRET");
    expect(valuesOf(deltas, "error")).toMatchObject([{ retryAfterMs: 34_400 }]);
  });

  test("code that the server ran, and its own tools, come out beside the text and go back whole", () => {
    const code = { executableCode: { language: "PYTHON", code: "print(1)" } };
    const output = { codeExecutionResult: { outcome: "OUTCOME_OK", output: "1" } };
    const search = {
      toolCall: { toolType: "GOOGLE_SEARCH_WEB", id: "s1", args: { queries: ["q"] } },
      thoughtSignature: "c2ln",
    };
    const found = { toolResponse: { toolType: "GOOGLE_SEARCH_WEB", id: "s1", response: { n: 1 } } };
    const deltas = deltasOf(event(parts([{ text: "a" }, code, output, search, found, { text: "b" }], stop)));
    expect(foldDeltas(deltas)).toMatchObject({ text: "ab", order: ["text", "text"], toolCalls: [] });
    expect(valuesOf(deltas, "serverToolCall")).toMatchObject([
      {
        callId: "call_1",
        name: "code_execution",
        argumentsJson: JSON.stringify(code.executableCode),
        done: false,
      },
      {
        callId: "call_1",
        name: "code_execution",
        resultJson: JSON.stringify(output.codeExecutionResult),
        done: true,
      },
      { callId: "s1", name: "GOOGLE_SEARCH_WEB", argumentsJson: `{"queries":["q"]}`, done: false },
      { callId: "s1", name: "GOOGLE_SEARCH_WEB", resultJson: `{"n":1}`, done: true },
    ]);
    expect(statesOf(deltas)).toEqual([code, output, search, found].map((part) => ({ kind: "part", part })));
  });

  test("sources come with each passage that they support, in code points", () => {
    const passage = "Paris is big.";
    const groundingMetadata = {
      groundingChunks: [
        { web: { uri: "https://a.test/1", title: "A" } },
        { web: { uri: "https://b.test/2", title: "B" } },
        { retrievedContext: { title: "notes.txt", text: "from the notes" } },
      ],
      groundingSupports: [
        { segment: { startIndex: 6, endIndex: 19, text: passage }, groundingChunkIndices: [0, 2] },
        { segment: { text: "not in the text" }, groundingChunkIndices: [1] },
      ],
    };
    const deltas = deltasOf(
      event(parts([{ text: "🗼! " }])) +
        event(parts([{ text: `${passage} End.` }], { ...stop, groundingMetadata })),
    );
    expect(valuesOf(deltas, "citation")).toMatchObject([
      {
        blockIndex: 0,
        startChar: 3,
        endChar: 16,
        document: { url: "https://a.test/1", title: "A", source: "web" },
      },
      { startChar: 0, endChar: 0, document: { url: "https://b.test/2" } },
      {
        startChar: 3,
        endChar: 16,
        document: { url: "", documentId: "notes.txt", snippet: "from the notes", source: "document" },
      },
    ]);
  });

  test("media that the model made", () => {
    const inlineData = { mimeType: "image/png", data: Buffer.from("png").toString("base64") };
    const [media] = valuesOf(deltasOf(event(parts([{ inlineData }], stop))), "media");
    expect(media).toMatchObject({
      mediaType: "image/png",
      source: { case: "data", value: Buffer.from("png") },
    });
  });

  test("only candidate 0 counts, members of wrong types are no members", () => {
    const got = decode(
      {
        candidates: [
          { index: 1, content: { parts: [{ text: "other" }] } },
          { index: 0, content: { parts: [{ text: "mine" }] } },
        ],
      },
      { candidates: "none", usageMetadata: 7 },
      { candidates: [{ content: { parts: "x" } }] },
      { candidates: [null] },
      parts([{ text: 7 }, null as unknown as object], stop),
    );
    expect(got).toMatchObject({ text: "mine", finish: "stop", warnings: [] });
  });

  test("one document, and one array of chunks", () => {
    const whole = {
      ...parts([{ text: "Hi" }], stop),
      usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 1 },
    };
    const got = foldDeltas(deltasOf(JSON.stringify(whole, null, 2), "application/json"));
    expect(got).toMatchObject({ text: "Hi", finish: "stop", usage: { input: 1 } });
    const array = JSON.stringify([parts([{ text: "H" }]), parts([{ text: "i" }], stop)], null, 2);
    expect(foldDeltas(deltasOf(array, "application/json"))).toMatchObject({ text: "Hi", finish: "stop" });
    expect(foldDeltas(deltasOf("{}", "application/json")).error?.code).toBe("UPSTREAM_MALFORMED");
    const cut = JSON.stringify(whole).slice(0, -9);
    expect(foldDeltas(deltasOf(cut, "application/json")).error?.code).toBe("UPSTREAM_TRUNCATED");
  });
});
