/** Each rule of the dialect on a body of its own: this suite needs no test data. */
import { describe, expect, test } from "vitest";
import { foldDeltas, type CompletionResult } from "../../../../test/support/completion-result.js";
import { decoderOptions } from "../../../../test/support/decoder-options.js";
import { createOllamaChatDecoder } from "./dialect.js";

function decode(
  lines: readonly (object | string)[],
  options: { readonly end?: string; readonly contentType?: string } = {},
): CompletionResult {
  const body = lines.map((line) => (typeof line === "string" ? line : JSON.stringify(line))).join("\n");
  const decoder = createOllamaChatDecoder(
    decoderOptions({ contentType: options.contentType ?? "application/x-ndjson" }),
  );
  const deltas = [...decoder.push(Buffer.from(body + (options.end ?? "\n")))];
  return foldDeltas([...deltas, ...decoder.end()]);
}

const says = (message: object): object => ({
  model: "m",
  message: { role: "assistant", content: "", ...message },
  done: false,
});
const done = (more: object = {}): object => ({ ...says({}), done: true, done_reason: "stop", ...more });

describe("ollama answers", () => {
  test("thinking, then text, then counts", () => {
    const got = decode([
      says({ thinking: "hm" }),
      says({ content: "Hi" }),
      done({ prompt_eval_count: 3, eval_count: 2 }),
    ]);
    expect(got).toMatchObject({ text: "Hi", reasoning: "hm", order: ["reasoning", "text"], finish: "stop" });
    expect(got.usage).toMatchObject({ input: 3, output: 2 });
  });

  test("counts that are missing are zeros, a reason that is missing is a stop", () => {
    const got = decode([says({ content: "Hi" }), { ...says({}), done: true }]);
    expect(got).toMatchObject({ finish: "stop", usage: { input: 0, output: 0 } });
  });

  test("blank lines, CRLF, no end of the last line", () => {
    const lines = [says({ content: "a" }), "", "  ", says({ content: "b" }), "\r", done()];
    expect(decode(lines, { end: "" })).toMatchObject({ text: "ab", finish: "stop", warnings: [] });
  });

  test("calls as objects, without ids, in one line or several", () => {
    const call = (name: string, args?: unknown, id?: string) => ({
      ...(id && { id }),
      function: { name, arguments: args },
    });
    const got = decode([
      says({ tool_calls: [call("f", { a: 1 }), call("f", { a: 1 })] }),
      says({ tool_calls: [call("g", undefined, "w1")] }),
      says({ tool_calls: [call("g", `{"b":2}`, "w1")] }),
      done(),
    ]);
    expect(got.finish).toBe("tool-calls");
    expect(got.toolCalls.map(({ id, name, args, complete }) => [id, name, args, complete])).toEqual([
      ["call_1", "f", `{"a":1}`, true],
      ["call_2", "f", `{"a":1}`, true],
      ["w1", "g", "{}", true],
      ["call_3", "g", `{"b":2}`, true],
    ]);
  });

  test("an error line keeps what came, and no call runs", () => {
    const got = decode([
      says({ content: "Hel" }),
      says({ tool_calls: [{ function: { name: "f", arguments: {} } }] }),
      { error: "model runner stopped" },
    ]);
    expect(got).toMatchObject({ text: "Hel", finish: undefined, error: { code: "UPSTREAM_UNAVAILABLE" } });
    expect(got.error?.message).toContain("model runner stopped");
    expect(got.toolCalls).toMatchObject([{ complete: false }]);
  });

  test("a stream without its last line is cut off", () => {
    expect(decode([says({ content: "Hel" })]).error?.code).toBe("UPSTREAM_TRUNCATED");
    expect(decode([says({ content: "Hel" }), `{"model":"m","mess`], { end: "" })).toMatchObject({
      text: "Hel",
      error: { code: "UPSTREAM_TRUNCATED" },
    });
  });

  test("a model that was only loaded said nothing", () => {
    expect(decode([done({ done_reason: "load" })]).error?.code).toBe("EMPTY_RESPONSE");
  });

  test("length, and a line that does not parse", () => {
    const got = decode([says({ content: "One" }), "<html>", done({ done_reason: "length" })]);
    expect(got).toMatchObject({ text: "One", finish: "length", warnings: ["UPSTREAM_MALFORMED"] });
  });

  test("an answer that was not streamed", () => {
    const contentType = "application/json; charset=utf-8";
    expect(decode([done({ message: { role: "assistant", content: "Hi" } })], { contentType })).toMatchObject({
      text: "Hi",
      finish: "stop",
    });
    expect(decode([{ error: "model not found" }], { contentType }).error?.message).toContain(
      "model not found",
    );
    expect(decode([says({ content: "Hi" })], { contentType }).error?.code).toBe("UPSTREAM_TRUNCATED");
    expect(decode([{ models: [] }], { contentType }).error?.code).toBe("UPSTREAM_MALFORMED");
  });
});
