/** What a person sees of a turn: packets in, pieces of text out, lane by lane. Pure. */
import { BlockStatus, type LaneState, type TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import type { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { StopReason, TurnOutcome, type TurnError } from "../../gen/turnwire/packet/v1/common_pb.js";
import {
  ResetReason,
  SectionStatus,
  WaitKind,
  type LaneInfo,
  type SectionEnd,
} from "../../gen/turnwire/packet/v1/control_pb.js";
import type { Packet, Placement } from "../../gen/turnwire/packet/v1/packet_pb.js";
import type { ToolCallStart } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { errorCodeName } from "../lib/errors.js";

/** One thing to show. */
export type Piece =
  | { readonly kind: "answer"; readonly text: string }
  | { readonly kind: "reasoning"; readonly text: string }
  /** A block is over: what follows stands in a paragraph of its own. */
  | { readonly kind: "break" }
  /** A line beside the answer. */
  | { readonly kind: "status"; readonly text: string; readonly bad?: boolean }
  /** What goes on right now; gives way to whatever comes next. */
  | { readonly kind: "passing"; readonly text: string };

/** Pieces and the lane they belong to; undefined = the turn. */
export interface LanePieces {
  readonly lane: number | undefined;
  readonly pieces: readonly Piece[];
  readonly laneEnded?: boolean;
}

interface RunningCall {
  readonly name: string;
  argumentsJson: string;
}

/** Reads one turn's packets in order. Knows the calls that run, to name them when they end. */
export class TurnView {
  readonly #calls = new Map<string, RunningCall>();
  #lanes: readonly LaneInfo[] = [];

  /** The lanes that were announced. */
  get lanes(): readonly LaneInfo[] {
    return this.#lanes;
  }

  /** Goes on from a state that took the place of earlier packets. */
  adopt(state: TurnState): void {
    this.#calls.clear();
    this.#lanes = state.started?.lanes ?? [];
    for (const { block, status, placement } of state.lanes.flatMap((lane) => lane.blocks)) {
      if (block.case === "tool" && status === BlockStatus.OPEN) {
        this.#calls.set(callKey(placement), {
          name: toolName(block.value.call),
          argumentsJson: block.value.ready?.argumentsJson ?? "",
        });
      }
    }
  }

  next(packet: Packet): LanePieces {
    const lane = packet.placement?.modelIndex;
    return { lane, pieces: this.#pieces(packet), laneEnded: packet.payload.case === "laneEnd" };
  }

  #pieces({ payload, placement }: Packet): Piece[] {
    switch (payload.case) {
      case "turnStarted":
        this.#lanes = payload.value.lanes;
        return [];
      case "reasoningDelta":
        return [{ kind: "reasoning", text: payload.value.reasoning }];
      case "agentResponseDelta":
        return [{ kind: "answer", text: payload.value.content }];
      case "reasoningDone":
      case "agentResponseDone":
        return [{ kind: "break" }];
      case "agentResponseReplaced":
        return [
          { kind: "break" },
          status("the answer was replaced"),
          { kind: "answer", text: payload.value.content },
          { kind: "break" },
        ];
      case "toolCallStart":
        this.#calls.set(callKey(placement), {
          name: toolName(payload.value),
          argumentsJson: "",
        });
        return this.#running(placement);
      case "toolCallReady": {
        const call = this.#calls.get(callKey(placement));
        if (call) call.argumentsJson = payload.value.argumentsJson;
        return this.#running(placement);
      }
      case "sectionEnd":
        return this.#callEnded(placement, payload.value);
      case "statusUpdate":
        return payload.value.hidden || !payload.value.description
          ? []
          : [{ kind: "passing", text: payload.value.description }];
      case "cycleReset":
        this.#calls.clear();
        return [{ kind: "break" }, status(`the answer begins again (${resetReason(payload.value.reason)})`)];
      case "waitStarted":
        return [status(`waiting for ${waitFor(payload.value.kind)}`)];
      case "clientCallRequest":
        return [status(`an answer is asked for: ${payload.value.summary}`)];
      case "userMessageAdded":
        return [{ kind: "break" }, status(`added: ${payload.value.input?.text ?? ""}`)];
      case "error":
        return [status(errorText(payload.value), true)];
      case "laneEnd":
        return [{ kind: "break" }];
      default:
        return [];
    }
  }

  #running(placement: Placement | undefined): Piece[] {
    const call = this.#calls.get(callKey(placement));
    return call ? [{ kind: "passing", text: `${callText(call)} ...` }] : [];
  }

  #callEnded(placement: Placement | undefined, end: SectionEnd): Piece[] {
    const key = callKey(placement);
    const call = this.#calls.get(key);
    if (!call) return [];
    this.#calls.delete(key);
    return [callEndPiece(call, end)];
  }
}

/** The pieces of a lane as a whole, for a state that came as a snapshot; an open block is left open. */
export function piecesOfLane(lane: LaneState): Piece[] {
  return lane.blocks.flatMap(({ block, status: blockStatus }): Piece[] => {
    if (blockStatus === BlockStatus.DISCARDED) return [];
    const end: Piece[] = blockStatus === BlockStatus.OPEN ? [] : [{ kind: "break" }];
    switch (block.case) {
      case "reasoning":
        return [{ kind: "reasoning", text: block.value.text }, ...end];
      case "answer":
        return [{ kind: "answer", text: block.value.text }, ...end];
      case "tool": {
        const { call, argumentsJson, end: callEnd } = block.value;
        const shown = { name: toolName(call), argumentsJson };
        return callEnd
          ? [callEndPiece(shown, callEnd)]
          : [{ kind: "passing", text: `${callText(shown)} ...` }];
      }
      default:
        return [];
    }
  });
}

/** How a turn ended, in a sentence; undefined = it completed, which needs no words. */
export function outcomeText(state: TurnState): string | undefined {
  const { stop } = state;
  if (!stop) return "the turn has not ended";
  const reason = stop.stopReason === StopReason.UNSPECIFIED ? "" : ` (${words(StopReason[stop.stopReason])})`;
  const error = stop.error ?? state.lanes.find((lane) => lane.end?.error)?.end?.error;
  const why = error ? `: ${errorText(error)}` : "";
  switch (stop.outcome) {
    case TurnOutcome.COMPLETED:
      return undefined;
    case TurnOutcome.STOPPED:
      return `the turn was stopped${reason}${why}`;
    case TurnOutcome.INTERRUPTED:
      return `the turn was interrupted${reason}${why}`;
    default:
      return `the turn ended in an error${reason}${why}`;
  }
}

function status(text: string, bad = false): Piece {
  return { kind: "status", text, bad };
}

function toolName(call: ToolCallStart | undefined): string {
  return call?.displayName || call?.toolName || call?.toolId || "tool";
}

function callEndPiece(call: RunningCall, end: SectionEnd): Piece {
  const took = end.durationMs > 0 ? `, ${duration(end.durationMs)}` : "";
  const why = end.message ? `: ${end.message}` : "";
  const bad = end.status !== SectionStatus.OK && end.status !== SectionStatus.UNSPECIFIED;
  return status(`[${callText(call)} ${sectionStatus(end.status)}${took}${why}]`, bad);
}

function callKey(placement: Placement | undefined): string {
  return placement
    ? [
        placement.modelIndex,
        placement.turnIndex,
        placement.tabIndex,
        placement.subTurnIndex,
        placement.subTabIndex,
      ].join("/")
    : "";
}

const MAX_ARGUMENT_CHARS = 120;

function callText({ name, argumentsJson }: RunningCall): string {
  if (argumentsJson === "" || argumentsJson === "{}") return name;
  const cut =
    argumentsJson.length > MAX_ARGUMENT_CHARS
      ? `${argumentsJson.slice(0, MAX_ARGUMENT_CHARS)}...`
      : argumentsJson;
  return `${name} ${cut}`;
}

function errorText(error: TurnError): string {
  return error.message || errorCodeName(error.code as ErrorCode);
}

function sectionStatus(code: SectionStatus): string {
  return code === SectionStatus.UNSPECIFIED ? "done" : words(SectionStatus[code]);
}

function resetReason(reason: ResetReason): string {
  return reason === ResetReason.UNSPECIFIED ? "no reason given" : words(ResetReason[reason]);
}

function waitFor(kind: WaitKind): string {
  return kind === WaitKind.UNSPECIFIED ? "an event" : `${words(WaitKind[kind])}`;
}

function words(enumName: string | undefined): string {
  return (enumName ?? "unknown").toLowerCase().replaceAll("_", " ");
}

function duration(ms: number): string {
  return ms < 1_000 ? `${ms} ms` : `${(ms / 1_000).toFixed(1)} s`;
}
