/** Rows of the store as the contract shows them. Pure. */
import { create, fromBinary } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { LaneStateSchema, type LaneState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import {
  MessageRole,
  MessageSchema,
  SessionSchema,
  SessionSettingsSchema,
  TurnStatus,
  TurnSummarySchema,
  type Message,
  type Session,
  type TurnSummary,
} from "../../gen/turnwire/chat/v1/types_pb.js";
import { UsageSchema, UserInputSchema } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { MessageRow, SessionRow, TurnRow } from "../store/store.js";

export function viewSession(row: SessionRow, activeTurns: readonly TurnSummary[] = []): Session {
  return create(SessionSchema, {
    sessionId: row.sessionId,
    title: row.title,
    tags: [...row.tags],
    createTime: timestampFromDate(row.createTime),
    updateTime: timestampFromDate(row.updateTime),
    settings: fromBinary(SessionSettingsSchema, row.settings),
    currentMessageId: row.currentMessageId,
    activeTurns: [...activeTurns],
    archived: row.archived,
    revision: row.revision.toString(),
  });
}

export function viewTurnStatus(row: TurnRow): TurnStatus {
  return row.phase === "running" ? TurnStatus.RUNNING : TurnStatus.ENDED;
}

export function viewTurn(row: TurnRow, headSeq: number): TurnSummary {
  return create(TurnSummarySchema, {
    turnId: row.turnId,
    sessionId: row.sessionId,
    status: viewTurnStatus(row),
    headSeq,
    lanes: row.lanes.map((lane) => ({
      modelIndex: lane.modelIndex,
      modelId: lane.modelId,
      messageId: lane.messageId,
      outcome: lane.outcome,
      usage: lane.usage && fromBinary(UsageSchema, lane.usage),
    })),
    startTime: timestampFromDate(row.startTime),
    endTime: row.endTime && timestampFromDate(row.endTime),
    userMessageId: row.userMessageId,
    requestId: row.requestId,
    outcome: row.outcome,
    stopReason: row.stopReason,
    usage: row.usage && fromBinary(UsageSchema, row.usage),
  });
}

/** Answers of one reply may be this long together; what is beyond comes as text only, or cut (GetTurn has it whole). */
const ANSWERS_BYTES = 3 * 1024 * 1024;
const CUT_TEXT_CHARS = 16 * 1024;

/** Messages of one page, kept below the limit of one reply by leaving out blocks of the longest answers. */
export function viewMessages(rows: readonly MessageRow[]): Message[] {
  let room = ANSWERS_BYTES;
  return rows.map((row) => {
    const bytes = (row.answer?.length ?? 0) + (row.input?.length ?? 0);
    const whole = bytes <= room;
    room -= whole ? bytes : Math.min(bytes, CUT_TEXT_CHARS * 4);
    return viewMessage(row, whole);
  });
}

function viewMessage(row: MessageRow, whole: boolean): Message {
  const answer = row.answer && fromBinary(LaneStateSchema, row.answer);
  const input = row.input && fromBinary(UserInputSchema, row.input);
  return create(MessageSchema, {
    messageId: row.messageId,
    parentMessageId: row.parentMessageId,
    turnId: row.turnId,
    modelIndex: row.modelIndex,
    role: row.role === "user" ? MessageRole.USER : MessageRole.ASSISTANT,
    input:
      input && (whole ? input : { ...input, text: input.text.slice(0, CUT_TEXT_CHARS), truncated: true }),
    answer: answer && (whole ? answer : cutAnswer(answer)),
    answerTruncated: !whole && answer !== undefined,
    createTime: timestampFromDate(row.createTime),
    childMessageIds: [...row.childMessageIds],
    siblingMessageIds: [...row.siblingMessageIds],
    sessionId: row.sessionId,
    rating: row.rating,
  });
}

function cutAnswer(answer: LaneState): LaneState {
  return create(LaneStateSchema, {
    ...answer,
    text: answer.text.slice(0, CUT_TEXT_CHARS),
    blocks: [],
    sources: [],
    citations: [],
  });
}
