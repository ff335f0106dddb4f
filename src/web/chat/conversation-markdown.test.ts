import { create } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { LaneStateSchema } from "../../../gen/turnwire/chat/v1/turn_state_pb.js";
import { MessageSchema } from "../../../gen/turnwire/chat/v1/types_pb.js";
import { viewOfLanes } from "../../client/live/stored-turn.js";
import type { ExchangeView } from "../../client/live/conversation.js";
import { conversationMarkdown } from "./conversation-markdown.js";

const exchange = (question: string, ...answers: [model: string, text: string][]): ExchangeView => ({
  key: question,
  user: create(MessageSchema, { messageId: question, input: { text: question } }),
  userVersions: [],
  turn: viewOfLanes(
    "t",
    answers.map(([modelId, text], modelIndex) =>
      create(LaneStateSchema, {
        modelIndex,
        modelId,
        text,
        started: true,
        blocks: [{ block: { case: "answer", value: { text } } }],
        citations: [
          { number: 2, document: { documentId: "d2", title: "Shipping", url: "https://a.example/s" } },
          { number: 1, document: { documentId: "d1", title: "Returns" } },
        ],
        end: { outcome: 1 },
      }),
    ),
  ),
  selectedId: "",
  answerVersions: [],
  isRunning: false,
  ratings: new Map(),
});

describe("a conversation as Markdown", () => {
  it("holds questions, each model's answer, and the sources by number", () => {
    const text = conversationMarkdown("Lamps", [exchange("How long?", ["north", "60 **days** [1]."])]);
    expect(text).toBe(
      "# Lamps\n\n## You\n\nHow long?\n\n## north\n\n60 **days** [1].\n\n- [1] Returns\n- [2] Shipping, <https://a.example/s>\n",
    );
  });

  it("keeps the answers of several models apart", () => {
    const text = conversationMarkdown("", [exchange("Who?", ["north", "One."], ["south", "Two."])]);
    expect(text).toMatch(/^# Conversation\n[^]*## north\n\nOne\.[^]*## south\n\nTwo\./);
  });
});
