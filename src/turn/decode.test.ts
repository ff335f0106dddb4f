import { describe, expect, test } from "vitest";
import { create } from "@bufbuild/protobuf";
import type { CompletionDelta } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import {
  ErrorCode,
  FinishReason,
  TurnErrorSchema,
  UsageSchema,
} from "../../gen/turnwire/packet/v1/common_pb.js";
import { ToolChoiceKind } from "../../gen/turnwire/packet/v1/control_pb.js";
import { encodePacket, MAX_PACKET_BYTES } from "./batch.js";
import { finishStep, hasFinished, nextDelta, startStep } from "./decode.js";
import { agentPlacement, lanePlacement, placementOf } from "./placement.js";
import { brief, call, content, decodeStep, delta, finish, reasoning, stepOptions } from "./test-support.js";

/** The packets of a whole stream, one line each. */
const lines = (deltas: readonly CompletionDelta[], overrides = {}): string[] =>
  decodeStep(deltas, overrides).packets.map(brief);

const search = (block: number, args: string): CompletionDelta =>
  call(block, { name: "search", callId: `p${block}`, argumentsFragment: args });

describe("text", () => {
  test("an answer", () => {
    expect(lines([content("Hel"), content("lo"), finish(FinishReason.STOP)])).toEqual([
      "0.0 agentResponseStart",
      "0.0 agentResponseDelta Hel",
      "0.0 agentResponseDelta lo",
      "0.0 agentResponseDone answer",
    ]);
  });

  test("D1 reasoning is closed before the answer and takes an index of its own", () => {
    expect(lines([reasoning("hm"), content("A")])).toEqual([
      "0.0 reasoningStart",
      "0.0 reasoningDelta hm",
      "0.0 reasoningDone",
      "1.0 agentResponseStart",
      "1.0 agentResponseDelta A",
      "1.0 agentResponseDone answer",
    ]);
  });

  test("late reasoning begins a block of its own, and so does the text after it; all of it is the answer", () => {
    expect(lines([content("Part"), reasoning("hm"), content(" two")])).toEqual([
      "0.0 agentResponseStart",
      "0.0 agentResponseDelta Part",
      "1.0 reasoningStart",
      "1.0 reasoningDelta hm",
      "1.0 reasoningDone",
      "2.0 agentResponseStart",
      "2.0 agentResponseDelta  two",
      "0.0 agentResponseDone answer",
      "2.0 agentResponseDone answer",
    ]);
  });

  test("reasoning blocks of the provider are blocks; its text blocks are one answer", () => {
    expect(
      lines([reasoning("a", 0), reasoning("b", 0), reasoning("c", 1), content("x", 2), content("y", 3)]),
    ).toEqual([
      "0.0 reasoningStart",
      "0.0 reasoningDelta a",
      "0.0 reasoningDelta b",
      "0.0 reasoningDone",
      "1.0 reasoningStart",
      "1.0 reasoningDelta c",
      "1.0 reasoningDone",
      "2.0 agentResponseStart",
      "2.0 agentResponseDelta x",
      "2.0 agentResponseDelta y",
      "2.0 agentResponseDone answer",
    ]);
  });

  test("empty deltas and NUL come to nothing; reasoning that is held back by the provider is a block without text", () => {
    expect(lines([content(""), reasoning(""), content("\0"), call(0, {}), content("x")])).toEqual([
      "0.0 agentResponseStart",
      "0.0 agentResponseDelta x",
      "0.0 agentResponseDone answer",
    ]);
    expect(lines([delta("reasoning", { redacted: true })])).toEqual([
      "0.0 reasoningStart",
      "0.0 reasoningDone",
    ]);
  });

  test("a pair that was cut is joined; half a pair becomes U+FFFD when its block ends", () => {
    expect(lines([content("a\ud83d"), content("\ude00b\ud83d"), reasoning("\ude00c")])).toEqual([
      "0.0 agentResponseStart",
      "0.0 agentResponseDelta a",
      "0.0 agentResponseDelta 😀b",
      "0.0 agentResponseDelta \ufffd",
      "1.0 reasoningStart",
      "1.0 reasoningDelta \ufffdc",
      "1.0 reasoningDone",
      "0.0 agentResponseDone answer",
    ]);
  });

  test("D5 a delta of more than 64 KiB becomes several, cut at code points", () => {
    const long = "😀".repeat(40_000);
    const { packets, outcome } = decodeStep([content(long), reasoning(long)]);
    for (const each of packets) expect(encodePacket(each).length).toBeLessThan(MAX_PACKET_BYTES);
    const texts = packets.flatMap(({ payload }) =>
      payload.case === "agentResponseDelta" ? [payload.value.content] : [],
    );
    expect(texts.length).toBe(3);
    expect(texts.join("")).toBe(long);
    expect(outcome.reasoning).toBe(long);
  });

  test("a refusal is shown as the answer and ends the step as one", () => {
    const { packets, outcome } = decodeStep([
      delta("refusal", "I can"),
      delta("refusal", "not."),
      finish(FinishReason.STOP),
    ]);
    expect(packets.map(brief)).toContain("0.0 agentResponseDelta not.");
    expect(outcome).toMatchObject({
      kind: "answered",
      text: "I cannot.",
      finishReason: FinishReason.REFUSAL,
    });
    expect(outcome.assistantMessage.parts.map(({ part }) => [part.case, part.value])).toEqual([
      ["refusal", "I cannot."],
    ]);
  });

  test("the answer's start tells the time before it, reasoning's end how long it took", () => {
    const state = startStep(stepOptions({ preAnswerMs: 70 }));
    const packets = [...nextDelta(state, reasoning("r"), 100), ...nextDelta(state, content("a"), 340)];
    expect(packets.find((each) => each.payload.case === "reasoningDone")?.payload.value).toMatchObject({
      durationMs: 240,
    });
    expect(packets.find((each) => each.payload.case === "agentResponseStart")?.payload.value).toMatchObject({
      preAnswerMs: 70,
    });
  });
});

describe("calls", () => {
  test("D2 a call is announced at its final place with its name; its arguments are shown raw and then whole", () => {
    const { packets, outcome } = decodeStep([
      call(0, { name: "search", callId: "p" }),
      call(0, { argumentsFragment: '{"q":' }),
      call(0, { argumentsFragment: '"x"}' }),
      finish(FinishReason.TOOL_CALLS),
    ]);
    expect(packets.map(brief)).toEqual([
      "0.0 toolCallStart search",
      '0.0 toolCallArgumentDelta {"q":',
      '0.0 toolCallArgumentDelta "x"}',
      '0.0 toolCallReady {"q":"x"}',
    ]);
    expect(packets[0]!.payload.value).toMatchObject({
      callId: "call-1",
      toolId: "tool-search",
      displayName: "The search",
      providerCallId: "p",
    });
    expect(outcome).toMatchObject({
      kind: "wants_tools",
      calls: [
        {
          callId: "call-1",
          providerCallId: "p",
          modelCallId: "p",
          toolId: "tool-search",
          argumentsJson: '{"q":"x"}',
          argumentsValid: true,
        },
      ],
    });
  });

  test("D3 text before calls is narration with an index of its own; the calls share the next", () => {
    expect(lines([content("Let me look."), search(1, "{}"), search(2, "{}")])).toEqual([
      "0.0 agentResponseStart",
      "0.0 agentResponseDelta Let me look.",
      "0.0 agentResponseDone narration",
      "1.0 toolCallStart search",
      "1.0 toolCallArgumentDelta {}",
      "1.0 topLevelBranching 2",
      "1.1 toolCallStart search",
      "1.1 toolCallArgumentDelta {}",
      "1.0 toolCallReady {}",
      "1.1 toolCallReady {}",
    ]);
  });

  test("text after calls is narration too and stays out of their group", () => {
    expect(lines([search(1, "{}"), content("and"), search(2, "{}"), reasoning("hm")])).toEqual([
      "0.0 toolCallStart search",
      "0.0 toolCallArgumentDelta {}",
      "1.0 agentResponseStart",
      "1.0 agentResponseDelta and",
      "1.0 agentResponseDone narration",
      "0.0 topLevelBranching 2",
      "0.1 toolCallStart search",
      "0.1 toolCallArgumentDelta {}",
      "2.0 reasoningStart",
      "2.0 reasoningDelta hm",
      "2.0 reasoningDone",
      "0.0 toolCallReady {}",
      "0.1 toolCallReady {}",
    ]);
  });

  test("when no tools were offered the text is the answer, whatever is called after it", () => {
    expect(lines([content("Well."), search(1, "{}")], { toolsOffered: false })).toContain(
      "0.0 agentResponseDone answer",
    );
  });

  test("fragments of parallel calls go to their own call", () => {
    const { outcome } = decodeStep([
      search(1, '{"a'),
      search(2, '{"b'),
      call(1, { argumentsFragment: '":1}' }),
      call(2, { argumentsFragment: '":2}' }),
    ]);
    expect(outcome.calls.map((each) => [each.argumentsJson, each.placement.tabIndex])).toEqual([
      ['{"a":1}', 0],
      ['{"b":2}', 1],
    ]);
  });

  test("a name that comes after the arguments: the call is announced then, with all it has", () => {
    expect(
      lines([
        call(0, { argumentsFragment: '{"q"' }),
        call(0, { name: "search" }),
        call(0, { argumentsFragment: ":1}" }),
      ]),
    ).toEqual([
      "0.0 toolCallStart search",
      '0.0 toolCallArgumentDelta {"q"',
      "0.0 toolCallArgumentDelta :1}",
      '0.0 toolCallReady {"q":1}',
    ]);
  });

  test("a call that never gets a name, and one of an unknown tool, are announced and can be answered", () => {
    const { packets, outcome } = decodeStep([
      call(0, { argumentsFragment: "{}" }),
      call(1, { name: "no_such", argumentsFragment: "{}" }),
    ]);
    expect(packets.map(brief)).toContain("0.0 toolCallStart no_such");
    expect(outcome.calls.map((each) => [each.toolName, each.toolId])).toEqual([
      ["", ""],
      ["no_such", ""],
    ]);
  });

  test("a provider id that comes late is told with the outcome; a new id on a used block is a new call", () => {
    const late = decodeStep([
      call(0, { name: "search", argumentsFragment: '{"q"' }),
      call(0, { callId: "late", argumentsFragment: ":1}" }),
    ]);
    expect(late.outcome.calls).toMatchObject([{ providerCallId: "late", argumentsJson: '{"q":1}' }]);
    const two = decodeStep([
      call(0, { callId: "a", name: "search", argumentsFragment: "{}" }),
      call(0, { callId: "b", name: "search", argumentsFragment: "{}" }),
      call(0, { callId: "b" }),
    ]);
    expect(two.outcome.calls.map((each) => each.providerCallId)).toEqual(["a", "b"]);
  });

  test("a provider id that is used twice is not shown to the model", () => {
    const { outcome } = decodeStep([
      call(0, { callId: "same", name: "search", argumentsFragment: "{}" }),
      call(1, { callId: "same", name: "search", argumentsFragment: "{}" }),
    ]);
    expect(outcome.calls.map((each) => each.modelCallId)).toEqual(["call-1", "call-2"]);
    const ids = outcome.assistantMessage.parts.map(
      ({ part }) => part.case === "toolCall" && part.value.callId,
    );
    expect(ids).toEqual(["call-1", "call-2"]);
  });

  test("a tool that streams its arguments gets the decoded text beside the raw", () => {
    const { packets } = decodeStep([
      call(0, { name: "run_code", argumentsFragment: '{"code":"a\\' }),
      call(0, { argumentsFragment: 'nb","n":1}' }),
    ]);
    const appended = packets.flatMap(({ payload }) =>
      payload.case === "toolCallArgumentDelta" ? [payload.value.argumentDeltas] : [],
    );
    expect(appended).toEqual([{ code: "a" }, { code: "\nb" }]);
  });

  test("NUL and half a pair are taken out of arguments, a pair that was cut is joined", () => {
    const { outcome } = decodeStep([
      call(0, { name: "search", argumentsFragment: '{"q":"a\0b\ud83d' }),
      call(0, { argumentsFragment: '\ude00\ude00"}' }),
    ]);
    expect(outcome.calls).toMatchObject([{ argumentsJson: '{"q":"ab😀"}', argumentsValid: true }]);
  });

  test("arguments that are no object are ready and not valid; the next model call gets {} for them", () => {
    const { packets, outcome } = decodeStep([search(0, '{"q":')]);
    expect(packets.map(brief)).toContain('0.0 toolCallReady {"q": invalid');
    expect(outcome).toMatchObject({
      kind: "wants_tools",
      calls: [{ argumentsValid: false, argumentsJson: '{"q":' }],
    });
    expect(outcome.assistantMessage.parts[0]!.part.value).toMatchObject({ argumentsJson: "{}" });
    const told = decodeStep([
      delta("toolCall", { name: "search", argumentsFragment: "{}", argumentsInvalid: true }),
    ]);
    expect(told.outcome.calls).toMatchObject([{ argumentsValid: false }]);
  });

  test("long arguments are cut in ToolCallReady and whole in the outcome and the deltas", () => {
    const args = JSON.stringify({ code: "é".repeat(60_000) });
    const { packets, outcome } = decodeStep([call(0, { name: "run_code", argumentsFragment: args })]);
    for (const each of packets) expect(encodePacket(each).length).toBeLessThan(MAX_PACKET_BYTES);
    const ready = packets.at(-1)!.payload;
    expect(ready).toMatchObject({ case: "toolCallReady", value: { truncated: true, argumentsValid: true } });
    if (ready.case === "toolCallReady") {
      expect(Buffer.byteLength(ready.value.argumentsJson)).toBeLessThanOrEqual(64 * 1024);
      expect(args.startsWith(ready.value.argumentsJson)).toBe(true);
    }
    expect(
      packets
        .map(({ payload }) => (payload.case === "toolCallArgumentDelta" ? payload.value.raw : ""))
        .join(""),
    ).toBe(args);
    expect(outcome.calls[0]!.argumentsJson).toBe(args);
  });

  test("the length limit: the call that was cut off ends in error without being ready, a complete one is run", () => {
    const { packets, outcome } = decodeStep([
      search(0, '{"a":1}'),
      search(1, '{"b":'),
      finish(FinishReason.LENGTH),
    ]);
    expect(packets.map(brief).slice(-3)).toEqual([
      '0.0 toolCallReady {"a":1}',
      "0.1 toolCallResult ERROR",
      "0.1 sectionEnd",
    ]);
    expect(outcome).toMatchObject({
      kind: "wants_tools",
      finishReason: FinishReason.LENGTH,
      calls: [{ providerCallId: "p0" }],
    });
    expect(outcome.assistantMessage.parts.length).toBe(1);
  });

  test("the length limit with the only call cut off: the step is over, nothing is to be run", () => {
    const { outcome } = decodeStep([content("x"), search(0, ""), finish(FinishReason.LENGTH)]);
    expect(outcome).toMatchObject({ kind: "answered", calls: [], finishReason: FinishReason.LENGTH });
  });

  test("a call without arguments that the provider calls complete is whole, also at the length limit", () => {
    const { outcome } = decodeStep([
      call(0, { name: "search", complete: true }),
      finish(FinishReason.LENGTH),
    ]);
    expect(outcome.calls).toMatchObject([{ argumentsJson: "{}", argumentsValid: true }]);
  });

  test("an agent's step counts inside the call it runs in", () => {
    const placement = agentPlacement(placementOf(3, 1, undefined, 0, undefined));
    expect(
      lines([reasoning("r"), search(0, "{}"), search(1, "{}")], { placement, parentCallId: "outer" }),
    ).toEqual([
      "3.1>0.0 reasoningStart",
      "3.1>0.0 reasoningDelta r",
      "3.1>0.0 reasoningDone",
      "3.1>1.0 toolCallStart search",
      "3.1>1.0 toolCallArgumentDelta {}",
      "3.1>1.1 toolCallStart search",
      "3.1>1.1 toolCallArgumentDelta {}",
      "3.1>1.0 toolCallReady {}",
      "3.1>1.1 toolCallReady {}",
    ]);
  });

  test("indices go on from step to step of a lane", () => {
    const placement = lanePlacement(0);
    lines([reasoning("r"), search(0, "{}")], { placement });
    expect(lines([reasoning("r"), content("a")], { placement, cycle: 2 })[0]).toBe("2.0 reasoningStart");
    expect(placement.next).toBe(4);
  });
});

describe("ends", () => {
  test("stopped in reasoning, in the answer, in a call", () => {
    const stop = (deltas: CompletionDelta[]): string[] => {
      const state = startStep(stepOptions());
      for (const each of deltas) nextDelta(state, each);
      return finishStep(state, { kind: "stopped" }).packets.map(brief);
    };
    expect(stop([reasoning("r")])).toEqual(["0.0 reasoningDone"]);
    expect(stop([content("a\ud83d")])).toEqual([
      "0.0 agentResponseDelta \ufffd",
      "0.0 agentResponseDone answer",
    ]);
    expect(stop([content("a"), search(0, '{"q":1}')])).toEqual([
      "1.0 toolCallResult CANCELLED",
      "1.0 sectionEnd",
    ]);
    expect(stop([call(0, { argumentsFragment: "{}" })])).toEqual([]); // was never announced
    expect(stop([])).toEqual([]);
  });

  test("a stopped step keeps its partial text and has no calls to run", () => {
    const state = startStep(stepOptions());
    nextDelta(state, content("part"));
    nextDelta(state, search(1, "{}"));
    const { outcome } = finishStep(state, { kind: "stopped" });
    expect(outcome).toMatchObject({
      kind: "stopped",
      text: "part",
      calls: [],
      finishReason: FinishReason.CANCELLED,
    });
    expect(outcome.assistantMessage.parts.map(({ part }) => part.case)).toEqual(["text"]);
  });

  test("an error in the stream fails the step, and nothing after it counts", () => {
    const error = create(TurnErrorSchema, { code: ErrorCode.RATE_LIMIT, message: "slow down" });
    const { packets, outcome } = decodeStep([content("a"), delta("error", error), content("b")]);
    expect(packets.map(brief)).toEqual([
      "0.0 agentResponseStart",
      "0.0 agentResponseDelta a",
      "0.0 agentResponseDone answer",
    ]);
    expect(outcome).toMatchObject({ kind: "failed", text: "a", error, finishReason: FinishReason.ERROR });
  });

  test.each([
    [FinishReason.STOP, ErrorCode.EMPTY_RESPONSE],
    [FinishReason.UNSPECIFIED, ErrorCode.EMPTY_RESPONSE],
    [FinishReason.REFUSAL, ErrorCode.MODEL_REFUSAL],
    [FinishReason.CONTENT_FILTER, ErrorCode.MODEL_REFUSAL],
  ])("nothing at all with finish %s fails with %s", (reason, code) => {
    expect(decodeStep([finish(reason)]).outcome).toMatchObject({ kind: "failed", error: { code } });
    expect(decodeStep([reasoning("r"), finish(reason)]).outcome).toMatchObject({
      kind: "answered",
      text: "",
      reasoning: "r",
    });
  });

  test("whether the stream said how it ended", () => {
    const state = startStep(stepOptions());
    nextDelta(state, content("a"));
    expect(hasFinished(state)).toBe(false);
    nextDelta(state, finish(FinishReason.STOP));
    expect(hasFinished(state)).toBe(true);
  });

  test("the assistant message has its parts in order", () => {
    const signature = { provider: "p", data: new Uint8Array([7]), blockIndex: 0 };
    const { outcome } = decodeStep([
      reasoning("th"),
      reasoning("ink"),
      delta("providerState", signature),
      content("Let me"),
      content(" see"),
      search(2, "{}"),
      content("!"),
    ]);
    expect(
      outcome.assistantMessage.parts.map(({ part }) => [
        part.case,
        typeof part.value === "string" ? part.value : "",
      ]),
    ).toEqual([
      ["reasoning", "think"],
      ["providerState", ""],
      ["text", "Let me see"],
      ["toolCall", ""],
      ["text", "!"],
    ]);
  });
});

describe("beside", () => {
  test("within an attempt the newest usage holds", () => {
    const { packets, outcome } = decodeStep([
      delta("usage", { usage: { inputTokens: 5, outputTokens: 1 } }),
      content("a"),
      delta("usage", { usage: { inputTokens: 5, outputTokens: 9 } }),
    ]);
    expect(outcome.usage).toMatchObject({ inputTokens: 5, outputTokens: 9, attempts: 1 });
    expect(packets.filter((each) => each.payload.case === "usageInfo").at(-1)!.payload.value).toMatchObject({
      cycle: 1,
      usage: { outputTokens: 9 },
    });
  });

  test("an attempt given up before anything was shown is not seen, but counted", () => {
    const { packets, outcome } = decodeStep([
      delta("usage", { usage: { inputTokens: 5 }, attempt: 1 }),
      delta("attemptBoundary", { failedAttempt: 1, nextModelId: "other" }),
      content("a"),
      delta("usage", { usage: { inputTokens: 6 }, attempt: 2 }),
    ]);
    expect(packets.map(brief)).not.toContain("0.0 cycleReset");
    expect(outcome).toMatchObject({ text: "a", modelId: "other", usage: { inputTokens: 11, attempts: 2 } });
  });

  test("an attempt given up after something was shown is taken back, and its indices are not used again", () => {
    const { packets, outcome } = decodeStep(
      [
        reasoning("r"),
        content("half"),
        call(1, { name: "search" }),
        delta("attemptBoundary", { failedAttempt: 1, nextModelId: "other" }),
        content("whole"),
      ],
      { modelId: "m", toolChoice: ToolChoiceKind.AUTO },
    );
    expect(packets.map(brief).slice(-5)).toEqual([
      "0.0 cycleReset",
      "0.0 cycleStarted",
      "3.0 agentResponseStart",
      "3.0 agentResponseDelta whole",
      "3.0 agentResponseDone answer",
    ]);
    expect(packets.find((each) => each.payload.case === "cycleReset")).toMatchObject({
      mustUnderstand: true,
    });
    expect(packets.find((each) => each.payload.case === "cycleStarted")!.payload.value).toMatchObject({
      modelId: "other",
      attempt: 2,
      toolChoice: ToolChoiceKind.AUTO,
    });
    expect(outcome).toMatchObject({ kind: "answered", text: "whole", reasoning: "", calls: [] });
  });

  test("what was taken back and what an earlier owner used are counted", () => {
    const { outcome } = decodeStep(
      [
        content("half"),
        delta("usage", { usage: { outputTokens: 5 }, attempt: 1 }),
        delta("attemptBoundary", { failedAttempt: 1 }),
        content("whole"),
        delta("usage", { usage: { outputTokens: 7 }, attempt: 2 }),
      ],
      { priorUsage: create(UsageSchema, { outputTokens: 100, attempts: 1 }) },
    );
    expect(outcome.usage).toMatchObject({ outputTokens: 112, attempts: 3 });
  });

  test("attempts that failed without any usage are counted, too", () => {
    const { outcome } = decodeStep([
      delta("attemptStarted", { attempt: 1 }),
      delta("attemptBoundary", { failedAttempt: 1 }),
      delta("attemptStarted", { attempt: 2 }),
      delta("attemptBoundary", { failedAttempt: 2 }),
      delta("attemptStarted", { attempt: 3 }),
      content("at last"),
      delta("usage", { usage: { outputTokens: 7 }, attempt: 3 }),
    ]);
    expect(outcome.usage).toMatchObject({ outputTokens: 7, attempts: 3 });
  });

  test("an attempt given up in the middle of its reasoning - reset, and nothing of it reaches the next call", () => {
    const { packets, outcome } = decodeStep([
      delta("attemptStarted", { attempt: 1 }),
      reasoning("the wrong way"),
      delta("providerState", { provider: "p", data: new Uint8Array([1]) }),
      delta("attemptBoundary", { failedAttempt: 1, nextModelId: "m" }),
      delta("attemptStarted", { attempt: 2 }),
      reasoning("the right way"),
      content("done"),
    ]);
    expect(packets.map(brief)).toEqual([
      "0.0 reasoningStart",
      "0.0 reasoningDelta the wrong way",
      "0.0 cycleReset",
      "0.0 cycleStarted",
      "1.0 reasoningStart",
      "1.0 reasoningDelta the right way",
      "1.0 reasoningDone",
      "2.0 agentResponseStart",
      "2.0 agentResponseDelta done",
      "2.0 agentResponseDone answer",
    ]);
    expect(outcome).toMatchObject({ kind: "answered", text: "done", reasoning: "the right way" });
    expect(outcome.assistantMessage.parts.map(({ part }) => part.case)).toEqual(["reasoning", "text"]);
  });

  test("sources are shown once, other things as status and context", () => {
    const cited = delta("citation", { document: { url: "https://ex.test", snippet: "x".repeat(20_000) } });
    const { packets } = decodeStep([
      cited,
      cited,
      delta("serverToolCall", { callId: "s", name: "web_search" }),
      delta("parametersDropped", { names: ["seed"] }),
      content("a"),
    ]);
    expect(packets.map((each) => each.payload.case).slice(0, 3)).toEqual([
      "sourceInfo",
      "statusUpdate",
      "contextInfo",
    ]);
    for (const each of packets) expect(encodePacket(each).length).toBeLessThan(16_384);
  });

  test("media is kept within bounds and makes an answer", () => {
    const media = delta("media", {
      mediaType: "image/png",
      source: { case: "data", value: new Uint8Array(9 * 1024 * 1024) },
    });
    const { outcome } = decodeStep([media, media]);
    expect(outcome).toMatchObject({ kind: "answered" });
    expect(outcome.media.length).toBe(1);
  });

  test("a delta this build does not know comes to nothing", () => {
    expect(lines([{ ...content("x"), delta: { case: undefined } }, content("a")]).length).toBe(3);
  });
});
