/**
 * The end of a turn (durability.md 2): all packets acked -> one transaction with the final rows, the last archive part and
 * the terminal's exact bytes -> the terminal into the log -> closed. A crash between any two of them is repaired by
 * recover-turn.ts from what is stored.
 */
import { toBinary } from "@bufbuild/protobuf";
import { LaneStateSchema, type LaneState, type TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import {
  DocumentSchema,
  ErrorCode,
  StopReason,
  TurnOutcome,
  UsageSchema,
} from "../../gen/turnwire/packet/v1/common_pb.js";
import type { OverallStop } from "../../gen/turnwire/packet/v1/control_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { whileUnavailable } from "../lib/retry.js";
import type { CommitInput, ToolCallRow } from "../store/store.js";
import { TurnError } from "../lib/errors.js";
import { closeOpen, overallStop, type CloseHow } from "../turn/close-open.js";
import { errorMessage, zeroUsage } from "../turn/packets.js";
import type { ActiveTurn } from "./active-turn.js";
import { FencedError } from "./turn-writer.js";

/**
 * Closes what is open (as `how` says; none = the lanes have all ended by themselves) and ends the turn. Retries both stores
 * until they answer; throws when fenced.
 */
export async function endTurn(turn: ActiveTurn, how?: CloseHow): Promise<void> {
  const ended = await closeTurn(turn, how);
  const terminal = overallStop(turn.state, ended);
  await commitEnd(turn, await turn.writer.encodeTerminal(terminal), "to publish");
}

/** Stores the end of a turn whose fold has its terminal, then puts the terminal into the log unless it stands there. */
export async function commitEnd(
  turn: ActiveTurn,
  terminalBatch: Uint8Array,
  terminal: "to publish" | "logged",
): Promise<void> {
  const { writer, deps, row } = turn;
  const { store, clock } = deps;
  const stop = writer.state.stop!;
  const archive = await writer.lastArchivePart();
  const input: CommitInput = {
    turnId: row.turnId,
    epoch: turn.epoch,
    outcome: stop.outcome,
    stopReason: stop.stopReason,
    usage: toBinary(UsageSchema, stop.usage ?? zeroUsage()),
    terminalSeq: writer.state.seq,
    terminalBatch,
    endTime: clock.now(),
    lanes: laneCommits(turn, writer.state, stop),
    archive,
  };
  const patience = turn.life;
  if ((await whileUnavailable(() => store.commitTurn(input), clock, patience)) === "fenced")
    throw new FencedError("another process owns the turn");
  if (terminal === "to publish") await writer.publishTerminal(terminalBatch, patience);
  await whileUnavailable(() => store.markClosed(row.turnId), clock, patience);
}

/** Closes what is open; answers how the turn ended: a reason that came when all lanes had ended is none any more. */
async function closeTurn({ writer }: ActiveTurn, how: CloseHow | undefined): Promise<CloseHow | undefined> {
  let ended: CloseHow | undefined;
  await writer.seal();
  writer.close((state) => {
    const open = state.lanes.some((lane) => !lane.end);
    ended = open ? (how ?? LEFT_OPEN) : howLanesEnded(state);
    return open ? closeOpen(state, ended!) : [];
  });
  await writer.flush();
  return ended;
}

/** A lane that ends without saying so is a fault of ours; the turn ends all the same (I9). */
const LEFT_OPEN: CloseHow = { kind: "error", error: errorMessage(new TurnError(ErrorCode.INTERNAL)) };

/** Why a turn ended whose lanes were all ended one by one: stopped by their user, or by an owner that was lost since. */
function howLanesEnded(state: TurnState): CloseHow | undefined {
  const outcomes = state.lanes.map((lane) => lane.end?.outcome);
  if (outcomes.includes(TurnOutcome.COMPLETED)) return undefined;
  if (outcomes.includes(TurnOutcome.STOPPED))
    return { kind: "stopped", stopReason: StopReason.USER_CANCELLED };
  if (outcomes.includes(TurnOutcome.INTERRUPTED))
    return { kind: "interrupted", stopReason: StopReason.OWNER_LOST };
  return undefined;
}

function laneCommits(turn: ActiveTurn, state: TurnState, stop: OverallStop): CommitInput["lanes"] {
  return turn.row.lanes.map((lane) => {
    const folded = state.lanes.find((candidate) => candidate.modelIndex === lane.modelIndex)!;
    return {
      modelIndex: lane.modelIndex,
      messageId: lane.messageId,
      modelId: folded.end?.modelId || lane.modelId,
      outcome: folded.end?.outcome ?? stop.outcome,
      usage: toBinary(UsageSchema, folded.usage ?? zeroUsage()),
      answer: toBinary(LaneStateSchema, folded),
      text: folded.text,
      toolCalls: toolCallRows(folded),
      citations: folded.citations.flatMap((citation) =>
        citation.document
          ? [
              {
                number: citation.number,
                documentId: citation.document.documentId,
                document: toBinary(DocumentSchema, citation.document),
              },
            ]
          : [],
      ),
    };
  });
}

function toolCallRows(lane: LaneState): ToolCallRow[] {
  return lane.blocks.flatMap((block) => {
    if (block.block.case !== "tool") return [];
    const tool = block.block.value;
    return [
      {
        callId: tool.call?.callId ?? "",
        modelIndex: lane.modelIndex,
        cycle: block.cycle,
        toolId: tool.call?.toolId ?? "",
        argumentsJson: tool.argumentsJson || (tool.ready?.argumentsJson ?? ""),
        status: tool.result?.status ?? ToolCallStatus.UNSPECIFIED,
        modelText: tool.result?.modelText ?? "",
      },
    ];
  });
}
