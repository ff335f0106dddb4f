/**
 * The end of a turn (durability.md 2): all packets acked -> one transaction with the final rows, the last archive part and
 * the terminal's exact bytes -> the terminal into the log -> closed. A crash between any two of them is repaired by
 * recover-turn.ts from what is stored.
 */
import { toBinary } from "@bufbuild/protobuf";
import { LaneStateSchema, type LaneState, type TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { DocumentSchema, UsageSchema } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { OverallStop } from "../../gen/turnwire/packet/v1/control_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { whileUnavailable } from "../lib/retry.js";
import type { CommitInput, ToolCallRow } from "../store/store.js";
import { overallStop, type CloseHow } from "../turn/close-open.js";
import { zeroUsage } from "../turn/packets.js";
import type { ActiveTurn } from "./active-turn.js";
import { FencedError } from "./turn-writer.js";

/** The turn's closing packets must be queued already. Retries both stores until they answer; throws when fenced. */
export async function endTurn(turn: ActiveTurn, how?: CloseHow): Promise<void> {
  const { writer, deps, row } = turn;
  const { store, clock } = deps;
  await writer.flush();
  const terminal = overallStop(writer.state, how);
  const terminalBatch = await writer.encodeTerminal(terminal);
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
  await writer.publishTerminal(terminalBatch, patience);
  await whileUnavailable(() => store.markClosed(row.turnId), clock, patience);
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
