import { create } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { MessageRole, MessageSchema, type Message } from "../../../gen/turnwire/chat/v1/types_pb.js";
import { TurnStartedSchema } from "../../../gen/turnwire/packet/v1/control_pb.js";
import { MessageTree } from "./message-tree.js";

let second = 0n;
const user = (messageId: string, parentMessageId = ""): Message =>
  create(MessageSchema, {
    messageId,
    parentMessageId,
    turnId: `turn of ${messageId}`,
    role: MessageRole.USER,
    createTime: { seconds: (second += 1n) },
  });
const answer = (
  messageId: string,
  parentMessageId: string,
  turnId = `turn of ${messageId}`,
  modelIndex = 0,
): Message =>
  create(MessageSchema, {
    messageId,
    parentMessageId,
    turnId,
    modelIndex,
    role: MessageRole.ASSISTANT,
    answer: { text: messageId },
    createTime: { seconds: (second += 1n) },
  });

function treeOf(...messages: Message[]): MessageTree {
  const tree = new MessageTree();
  tree.add(messages);
  return tree;
}

const shown = (tree: MessageTree, leafId: string): string[] =>
  tree
    .branch(leafId)
    .flatMap(({ user: { messageId }, selectedId }) => [messageId, selectedId].filter(Boolean));

describe("message tree", () => {
  it("shows the branch that ends in a message, and what else there is at each fork", () => {
    const tree = treeOf(
      user("q1"),
      answer("a1", "q1"),
      answer("a1b", "q1"),
      user("q2", "a1"),
      user("q2b", "a1"),
      answer("a2", "q2"),
    );
    expect(shown(tree, "a2")).toEqual(["q1", "a1", "q2", "a2"]);
    expect(tree.branch("a2")[0]!.answerVersions.map(({ messageId }) => messageId)).toEqual(["a1", "a1b"]);
    expect(tree.branch("a2")[1]!.userVersions).toEqual(["q2", "q2b"]);
    expect(shown(tree, "q2b")).toEqual(["q1", "a1", "q2b"]);
  });

  it("takes the lanes of a turn for one version", () => {
    const tree = treeOf(
      user("q"),
      answer("l0", "q", "t1", 0),
      answer("l1", "q", "t1", 1),
      answer("again", "q", "t2"),
    );
    const [exchange] = tree.branch("l1");
    expect(exchange!.answers.map(({ messageId }) => messageId)).toEqual(["l0", "l1"]);
    expect(exchange!.selectedId).toBe("l1");
    expect(exchange!.answerVersions.map(({ turnId }) => turnId)).toEqual(["t1", "t2"]);
  });

  it("finds the end of the newest branch, by the lane that was gone on from", () => {
    const tree = treeOf(user("q"), answer("l0", "q", "t1", 0), answer("l1", "q", "t1", 1), user("q2", "l1"));
    expect(tree.leafBelow("q")).toBe("q2");
    expect(tree.leafBelow("l0")).toBe("l0");
  });

  it("shows a turn that has begun before its messages are stored, and then the stored ones", () => {
    const tree = treeOf(user("q"), answer("a", "q"));
    const started = create(TurnStartedSchema, {
      turnId: "t",
      userMessageId: "q2",
      input: { text: "more" },
      lanes: [{ assistantMessageId: "a2", modelIndex: 0 }],
    });
    tree.addTurn(started, "a");
    expect(shown(tree, "a2")).toEqual(["q", "a", "q2", "a2"]);
    tree.add([answer("a2", "q2", "t")]);
    tree.addTurn(started, "a"); // told again, by the packets
    expect(tree.get("a2")!.answer?.text).toBe("a2");
  });

  it("keeps an answer that it has when a list comes without it", () => {
    const tree = treeOf(user("q"), answer("a", "q"));
    tree.add([create(MessageSchema, { ...answer("a", "q"), answer: undefined })]);
    expect(tree.get("a")!.answer?.text).toBe("a");
  });

  it("knows where more answers exist than were read", () => {
    const tree = treeOf(user("q"), { ...answer("a", "q"), siblingMessageIds: ["a", "b"] });
    expect(tree.withUnknownAnswers("a")).toEqual(["q"]);
    tree.add([answer("b", "q")]);
    expect(tree.withUnknownAnswers("a")).toEqual([]);
  });

  it("begins where its oldest known message is", () => {
    expect(shown(treeOf(user("q2", "not read"), answer("a2", "q2")), "a2")).toEqual(["q2", "a2"]);
    expect(shown(new MessageTree(), "nothing")).toEqual([]);
  });
});
