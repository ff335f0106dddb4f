import { create } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { LaneState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import type { ModelMessage } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { Role } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { UserInput } from "../../gen/turnwire/packet/v1/common_pb.js";
import { UserInputSchema } from "../../gen/turnwire/packet/v1/common_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { fold } from "./fold.js";
import type { BranchMessage } from "./history.js";
import { appendStep, buildModelMessages } from "./history.js";
import { anyTurn, call, content, decodeStep, reasoning, simulateTurn } from "./test-support.js";

const input = (text: string): UserInput => create(UserInputSchema, { text });
const user = (text: string): BranchMessage => ({ role: "user", input: input(text) });
const answer = (lane?: LaneState): BranchMessage => ({ role: "assistant", ...(lane && { answer: lane }) });

/** A message in one line. */
function line(message: ModelMessage): string {
  const parts = message.parts.map(({ part }) => {
    switch (part.case) {
      case "toolCall":
        return `call ${part.value.callId} ${part.value.name}(${part.value.argumentsJson})`;
      case "toolResult":
        return `result ${part.value.callId}${part.value.isError ? " error" : ""}: ${part.value.text}`;
      case "media":
        return `media ${part.value.name}`;
      default:
        return `${part.value as string}`;
    }
  });
  return `${Role[message.role]} ${parts.join(" | ")}`;
}

const build = (
  branch: readonly BranchMessage[],
  limits: { maxChars?: number; maxResultChars?: number } = {},
) => {
  const built = buildModelMessages({
    systemPrompt: "Be kind.",
    branch,
    userInput: input("now"),
    maxChars: 10_000,
    ...limits,
  });
  return { lines: built.messages.map(line), dropped: built.droppedMessages };
};

const laneOf = (packets: ReturnType<typeof simulateTurn>): LaneState => fold(packets).lanes[0]!;
const plain = laneOf(
  simulateTurn([{ steps: [[reasoning("hm"), content("Hello.")]], tools: [], maxCycles: 2 }]),
);
const withTools = laneOf(
  simulateTurn([
    {
      steps: [
        [
          content("Let me look."),
          call(0, { callId: "p0", name: "search", argumentsFragment: '{"q":1}' }),
          call(1, { callId: "p1", name: "search", argumentsFragment: "{" }),
        ],
        [content("Found.")],
      ],
      tools: [{ status: ToolCallStatus.OK, stopsTurn: false, packets: [] }],
      maxCycles: 4,
    },
  ]),
);

describe("buildModelMessages", () => {
  test("the branch, root first, then the new message; reasoning stays behind", () => {
    expect(build([user("hi"), answer(plain)])).toEqual({
      lines: ["SYSTEM Be kind.", "USER hi", "ASSISTANT Hello.", "USER now"],
      dropped: 0,
    });
  });

  test("without a system prompt and a branch", () => {
    const { messages } = buildModelMessages({
      systemPrompt: "",
      branch: [],
      userInput: input("now"),
      maxChars: 1,
    });
    expect(messages.map(line)).toEqual(["USER now"]);
  });

  test("an answer with tools: what it wrote and called, its results, then the answer", () => {
    expect(build([user("hi"), answer(withTools)]).lines).toEqual([
      "SYSTEM Be kind.",
      "USER hi",
      'ASSISTANT Let me look. | call p0 search({"q":1}) | call p1 search({})',
      "TOOL result p0: result",
      "TOOL result p1 error: result",
      "ASSISTANT Found.",
      "USER now",
    ]);
  });

  test("results are bounded", () => {
    expect(build([user("hi"), answer(withTools)], { maxResultChars: 3 }).lines).toContain(
      "TOOL result p0: res\n(3 more characters are left out.)",
    );
  });

  test("messages without an answer do not run into the next one", () => {
    const empty = laneOf(simulateTurn([{ steps: [[]], tools: [], maxCycles: 1 }]));
    expect(build([user("a"), answer(), user("b"), user("c"), answer(empty)]).lines).toEqual([
      "SYSTEM Be kind.",
      "USER a",
      "ASSISTANT (This message was not answered.)",
      "USER b",
      "ASSISTANT (This message was not answered.)",
      "USER c",
      "ASSISTANT (This message was not answered.)",
      "USER now",
    ]);
  });

  test("the oldest exchanges are left out whole", () => {
    const branch = [user("old"), answer(withTools), user("newer"), answer(plain)];
    expect(build(branch, { maxChars: 25 })).toEqual({
      lines: ["SYSTEM Be kind.", "USER newer", "ASSISTANT Hello.", "USER now"],
      dropped: 2,
    });
    expect(build(branch, { maxChars: 22 }).dropped).toBe(2); // fits exactly
    expect(build(branch, { maxChars: 21 }).dropped).toBe(4);
    expect(build(branch, { maxChars: 0 })).toEqual({ lines: ["SYSTEM Be kind.", "USER now"], dropped: 4 });
  });

  test("attachments are media", () => {
    const withFile = create(UserInputSchema, {
      text: "see",
      attachments: [{ fileId: "f", name: "a.png", mediaType: "image/png" }],
    });
    const { messages } = buildModelMessages({
      systemPrompt: "",
      branch: [],
      userInput: withFile,
      maxChars: 100,
    });
    expect(messages.map(line)).toEqual(["USER media a.png | see"]);
  });

  test("every call has its result right behind it, whatever the turn and the limit", () => {
    fc.assert(
      fc.property(anyTurn, fc.nat(300), fc.nat(), (packets, maxChars, n) => {
        const cut = fold(packets.slice(0, n % (packets.length + 1))); // also turns that were never closed
        const branch = [user("a"), answer(cut.lanes[0]), user("b"), answer(fold(packets).lanes[0])];
        const { messages } = buildModelMessages({
          systemPrompt: "",
          branch,
          userInput: input("now"),
          maxChars,
        });
        let due: string[] = [];
        for (const { role, parts } of messages) {
          if (role === Role.TOOL) {
            const [part] = parts;
            expect(part!.part.case === "toolResult" && part!.part.value.callId).toBe(due.shift());
            continue;
          }
          expect(due).toEqual([]);
          due = parts.flatMap(({ part }) => (part.case === "toolCall" ? [part.value.callId] : []));
          for (const { part } of parts) if (part.case === "toolCall") JSON.parse(part.value.argumentsJson);
        }
        expect(due).toEqual([]);
        const roles = messages.map(({ role }) => role);
        expect(roles.some((role, i) => role === Role.USER && roles[i + 1] === Role.USER)).toBe(false);
        expect(roles[0]).toBe(Role.USER);
      }),
      { numRuns: 200 },
    );
  });
});

describe("appendStep", () => {
  test("the step's message and its calls' results, in call order, by the ids of that message", () => {
    const { outcome } = decodeStep([
      content("N"),
      call(0, { callId: "p0", name: "search", argumentsFragment: "{}" }),
      call(1, { name: "search", argumentsFragment: "{}" }),
    ]);
    const results = [{ callId: "call-2", status: ToolCallStatus.ERROR, modelText: "bad" }];
    expect(appendStep([], outcome, results).map(line)).toEqual([
      "ASSISTANT N | call p0 search({}) | call call-2 search({})",
      "TOOL result p0 error: The call has no result.",
      "TOOL result call-2 error: bad",
    ]);
  });

  test("leaves what it was given alone", () => {
    const messages = Object.freeze([] as ModelMessage[]);
    appendStep(messages, decodeStep([content("a")]).outcome, []);
    expect(messages).toEqual([]);
  });
});
