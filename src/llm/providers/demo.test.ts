import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { foldDeltas } from "../../../test/support/completion-result.js";
import {
  CompletionInputSchema,
  Role,
  ToolChoiceMode,
  type CompletionDelta,
} from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { Clock } from "../../lib/clock.js";
import { systemClock } from "../../lib/clock.js";
import { modelOf } from "../config.js";
import { createDemoProvider } from "./demo.js";

type InputInit = Parameters<typeof create<typeof CompletionInputSchema>>[1] & object;

const text = (value: string) => ({ part: { case: "text" as const, value } });
const user = (value: string) => ({ role: Role.USER, parts: [text(value)] });
const CLOCK = { name: "clock", parametersJsonSchema: `{"properties":{"timezone":{}}}` };
const OPEN_URL = { name: "open_url", parametersJsonSchema: `{"properties":{"urls":{}}}` };
const SEARCH = { name: "search", parametersJsonSchema: `{"properties":{"queries":{}}}` };
const OTHER = { name: "other", parametersJsonSchema: "{}" };

async function play(
  input: InputInit,
  clock: Clock = systemClock,
  delayMs = 0,
  signal = new AbortController().signal,
) {
  const provider = createDemoProvider({ name: "demo", deltaDelayMs: delayMs }, clock);
  const call = provider.prepare({
    input: create(CompletionInputSchema, input),
    model: modelOf("demo", "demo"),
    attempt: 1,
    firstTokenTimeoutMs: 1000,
    stallTimeoutMs: 1000,
    signal,
  });
  const deltas: CompletionDelta[] = [];
  for await (const batch of call.stream()) deltas.push(...batch);
  return { ...foldDeltas(deltas), deltas };
}

const called = ({ toolCalls }: Awaited<ReturnType<typeof play>>) =>
  toolCalls.map(({ name, args, complete }) => [name, args, complete]);

describe("demo model", () => {
  test("without tools - thinks, says that it is a demo, quotes the question", async () => {
    const result = await play({ messages: [user("good morning")] });
    expect(result).toMatchObject({ order: ["reasoning", "text"], finish: "stop" });
    expect(result.text).toMatch(/built-in demo.*no language model/);
    expect(result.text).toContain("> good morning");
    const usage = result.deltas.flatMap(({ delta }) => (delta.case === "usage" ? [delta.value.usage] : []));
    expect(usage).toMatchObject([{ inputTokens: 3, estimated: true }]);
    expect(result.deltas.length).toBeGreaterThan(20);
  });

  test("a question about documents and search offered - searches, then quotes with numbers", async () => {
    const question = user("What do my documents say about grey herons?");
    const asked = await play({ messages: [question], tools: [CLOCK, SEARCH] });
    expect(called(asked)).toEqual([["search", `{"queries":["grey herons"]}`, true]]);
    const found =
      "[101] Birds > Herons (page 2)\n# Herons\n\nGrey herons wade.\n\n[102] Water\nHerons need it.\n\n[9] is no passage";
    const call = {
      part: { case: "toolCall" as const, value: { callId: "c", name: "search", argumentsJson: "{}" } },
    };
    const result = { part: { case: "toolResult" as const, value: { callId: "c", text: found } } };
    const answer = await play({
      messages: [question, { role: Role.ASSISTANT, parts: [call] }, { role: Role.TOOL, parts: [result] }],
      tools: [CLOCK, SEARCH],
    });
    expect(answer.text).toContain("- **Birds > Herons (page 2)**: “Grey herons wade.” [101]");
    expect(answer.text).toContain("- **Water**: “Herons need it.” [102]");
  });

  test("documents and an address - searches and opens it in one step", async () => {
    const result = await play({
      messages: [user("Compare my report on storks with https://a.test/storks")],
      tools: [CLOCK, OPEN_URL, SEARCH],
    });
    expect(called(result).map(([name]) => name)).toEqual(["search", "open_url"]);
  });

  test("an address and open_url offered - opens it", async () => {
    const result = await play({
      messages: [user("read https://a.test/b?c=d, please")],
      tools: [CLOCK, OPEN_URL],
    });
    expect(called(result)).toEqual([["open_url", `{"urls":["https://a.test/b?c=d"]}`, true]]);
    expect(result).toMatchObject({ order: ["reasoning", "tool_call"], finish: "tool-calls", text: "" });
  });

  test("no address, or no open_url - the clock, in the zone that was named", async () => {
    expect(
      called(await play({ messages: [user("time in Europe/Berlin?")], tools: [OPEN_URL, CLOCK] })),
    ).toEqual([["clock", `{"timezone":"Europe/Berlin"}`, true]]);
    expect(called(await play({ messages: [user("see https://a.test")], tools: [CLOCK] }))).toEqual([
      ["clock", `{"timezone":"UTC"}`, true],
    ]);
  });

  test("a city names its zone", async () => {
    expect(called(await play({ messages: [user("What time is it in New York?")], tools: [CLOCK] }))).toEqual([
      ["clock", `{"timezone":"America/New_York"}`, true],
    ]);
  });

  test("something to be explained - a long answer at once, without a tool", async () => {
    const result = await play({ messages: [user("Explain what a log is.")], tools: [CLOCK, OPEN_URL] });
    expect(result).toMatchObject({ toolCalls: [], finish: "stop" });
    expect(result.text.length).toBeGreaterThan(1_500);
  });

  test("the choice of tools is kept: none, one, required", async () => {
    const messages = [user("see https://a.test")];
    const tools = [OPEN_URL, CLOCK, OTHER];
    const choose = (mode: ToolChoiceMode, toolName = "", offered = tools) =>
      play({ messages, tools: offered, toolChoice: { mode, toolName } });
    expect(called(await choose(ToolChoiceMode.NONE))).toEqual([]);
    expect(called(await choose(ToolChoiceMode.ONE, "clock"))).toEqual([
      ["clock", `{"timezone":"UTC"}`, true],
    ]);
    expect(called(await choose(ToolChoiceMode.ONE, "other"))).toEqual([["other", "{}", true]]);
    expect(called(await choose(ToolChoiceMode.REQUIRED, "", [OTHER]))).toEqual([["other", "{}", true]]);
    expect(called(await choose(ToolChoiceMode.AUTO, "", [OTHER]))).toEqual([]);
  });

  test("after the tool's result - an answer that quotes it; the next question starts anew", async () => {
    const toolCall = {
      role: Role.ASSISTANT,
      parts: [
        { part: { case: "toolCall" as const, value: { callId: "c", name: "clock", argumentsJson: "{}" } } },
      ],
    };
    const result = {
      role: Role.TOOL,
      parts: [
        { part: { case: "toolResult" as const, value: { callId: "c", text: "It is noon [3]\nin UTC" } } },
      ],
    };
    const messages = [user("time?"), toolCall, result];
    const answer = await play({ messages, tools: [CLOCK] });
    expect(answer).toMatchObject({ finish: "stop", toolCalls: [] });
    expect(answer.text).toContain("`clock` answered:\n\n> It is noon [3]\n> in UTC");
    expect(called(await play({ messages: [...messages, user("again?")], tools: [CLOCK] }))).toHaveLength(1);
    const reminded = await play({
      messages: [...messages, { role: Role.REMINDER, parts: [text("cite")] }],
      tools: [CLOCK],
    });
    expect(reminded.toolCalls).toEqual([]);
  });

  test("the same conversation - the same deltas", async () => {
    const input = { messages: [user("x https://a.test")], tools: [OPEN_URL] };
    expect((await play(input)).deltas).toEqual((await play(input)).deltas);
  });

  test("pauses between deltas by the clock; ends at once when nobody wants it", async () => {
    const slept: number[] = [];
    const call = new AbortController();
    const clock: Clock = {
      ...systemClock,
      sleep: (ms, signal) => {
        slept.push(ms);
        if (slept.length === 3) call.abort(new Error("stopped"));
        return signal?.aborted ? Promise.reject(signal.reason as Error) : Promise.resolve();
      },
    };
    await expect(play({ messages: [user("x")] }, clock, 15, call.signal)).rejects.toThrow("stopped");
    expect(slept).toEqual([15, 15, 15]);
  });
});
