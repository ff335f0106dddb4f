/**
 * Follows one turn and shows it: TurnState in, TurnView out. Call `update` once per frame with what arrived since; the
 * cost is that of what arrived, not of the turn's length.
 *
 * Owns: the views last made, and when open blocks began on the viewer's clock (a state holds no such times).
 */
import type { PendingCall, TurnState, Wait } from "../../../gen/turnwire/chat/v1/turn_state_pb.js";
import { ClientCallKind } from "../../../gen/turnwire/packet/v1/client_calls_pb.js";
import { StopReason, TurnOutcome } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { WaitKind } from "../../../gen/turnwire/packet/v1/control_pb.js";
import type { Packet } from "../../../gen/turnwire/packet/v1/packet_pb.js";
import { endView, errorText, progressOf } from "./end-view.js";
import { Derived, keep, keepList } from "./keep.js";
import { newestNote } from "./lane-status.js";
import { LaneViewer } from "./lane-view.js";
import type { ClientCallView, EndView, LaneView, NoticeView, TurnView } from "./view-types.js";

/** Makes the views of one turn, one after the other. */
export class TurnViewer {
  readonly #nowMs: () => number;
  readonly #openedAtMs = new Map<number, number>();
  readonly #lanes = new Map<number, LaneViewer>();
  readonly #notices = new Derived(turnNotices);
  readonly #calls = new Derived((state: TurnState) => state.pendingCalls.map(clientCall));
  readonly #followUps = new Derived((state: TurnState) => [...state.followUps]);
  readonly #end = new Derived(turnEnd);
  #startedAtMs = Infinity;
  #view: TurnView | undefined;

  /** @param nowMs the clock of the durations shown while something runs; the UI's timers must use the same. */
  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  /** The view last made; undefined before the first update. */
  get view(): TurnView | undefined {
    return this.#view;
  }

  /**
   * The view of `state` now. `packets` are those folded in since the last update, in any number of calls' worth; leave
   * them out when the state was replaced as a whole (a snapshot).
   */
  update(state: TurnState, packets?: readonly Packet[]): TurnView {
    if (packets) for (const packet of packets) this.#note(packet);
    else this.#forget();
    const { stop, errors, steeredMessages, pendingCalls, followUps } = state;
    const lanes = state.lanes.map((lane) =>
      this.#lane(lane.modelIndex).view(lane, waitText(state, lane.modelIndex)),
    );
    this.#view = keep(this.#view, {
      turnId: state.turnId,
      seq: state.seq,
      progress: progressOf(stop?.outcome),
      lanes: keepList(this.#view?.lanes, lanes),
      notices: this.#notices.get(state, errors, errors.length, steeredMessages, steeredMessages.length, stop),
      clientCalls: this.#calls.get(
        state,
        pendingCalls,
        pendingCalls.length,
        ...pendingCalls.map(({ claimed }) => claimed),
      ),
      end: this.#end.get({ state, lanes }, stop),
      title: state.title,
      followUps: this.#followUps.get(state, followUps),
      incomplete: state.mustUnderstandMissed,
    });
    return this.#view;
  }

  #lane(modelIndex: number): LaneViewer {
    const known = this.#lanes.get(modelIndex);
    if (known) return known;
    const viewer = new LaneViewer((firstSeq) => this.#openedAtMs.get(firstSeq));
    this.#lanes.set(modelIndex, viewer);
    return viewer;
  }

  #note({ seq, tMs, placement, payload }: Packet): void {
    // The packet that came fastest tells best when the turn began on our clock.
    this.#startedAtMs = Math.min(this.#startedAtMs, this.#nowMs() - tMs);
    switch (payload.case) {
      case "reasoningStart":
      case "agentResponseStart":
      case "toolCallStart":
      case "deepResearchPlanStart":
      case "intermediateReportStart":
        this.#openedAtMs.set(seq, this.#startedAtMs + tMs);
        return;
      case "cycleReset":
      case "agentResponseReplaced":
        this.#lane(placement?.modelIndex ?? 0).forget();
        return;
      case "overallStop":
        this.#openedAtMs.clear();
        return;
      default:
    }
  }

  #forget(): void {
    for (const lane of this.#lanes.values()) lane.forget();
  }
}

/** The view of a state that nobody follows: an ended turn, a snapshot. */
export function viewOfTurn(state: TurnState): TurnView {
  return new TurnViewer(() => 0).update(state);
}

function turnNotices({ errors, steeredMessages, stop }: TurnState): NoticeView[] {
  const told = stop?.error;
  return [
    ...steeredMessages.map(({ added, seq }): NoticeView => ({
      kind: "notice",
      key: `steered-${seq}`,
      level: "info",
      text: `You added: ${added?.input?.text ?? ""}`,
    })),
    ...errors
      .filter(({ code, message }) => code !== told?.code || message !== told.message)
      .map((error, i): NoticeView => ({
        kind: "notice",
        key: `error-${i}`,
        level: "error",
        text: errorText(error),
      })),
  ];
}

/** How the turn ended, if its lanes do not tell it all: why it was stopped, or an error that no lane had. */
function turnEnd({ state, lanes }: { state: TurnState; lanes: readonly LaneView[] }): EndView | undefined {
  const { stop } = state;
  const end = stop && endView(stop.outcome, stop.stopReason, stop.error);
  if (!end) return undefined;
  const isTold = lanes.some((lane) => lane.end?.text === end.text);
  const isPlainStop =
    stop.outcome === TurnOutcome.STOPPED && stop.stopReason === StopReason.USER_CANCELLED && lanes.length > 0;
  return isTold || isPlainStop ? undefined : end;
}

/** What a lane waits for, in words; empty = nothing. */
function waitText({ waits, statuses }: TurnState, modelIndex: number): string {
  const own = ({ modelIndex: of }: Wait): boolean => of === undefined || of === modelIndex;
  const wait = waits.findLast(own);
  return wait ? waitWords(wait.started?.kind) : newestNote(statuses);
}

function waitWords(kind: WaitKind | undefined): string {
  switch (kind) {
    case WaitKind.APPROVAL:
      return "Waiting for an approval";
    case WaitKind.CLIENT_CALL:
      return "Waiting for an app to do its part";
    case WaitKind.QUESTION:
      return "Waiting for an answer";
    case WaitKind.QUEUE:
      return "Waiting for a free place";
    case WaitKind.RECOVERY:
      return "Recovering: the process that wrote this was lost";
    default:
      return "Waiting";
  }
}

function clientCall({ request, claimed }: PendingCall): ClientCallView {
  return {
    key: `client-call-${request?.clientCallId ?? ""}`,
    clientCallId: request?.clientCallId ?? "",
    kind: clientCallKind(request?.kind),
    toolCallId: request?.toolCallId ?? "",
    summary: request?.summary ?? "",
    claimed,
  };
}

function clientCallKind(kind: ClientCallKind | undefined): ClientCallView["kind"] {
  switch (kind) {
    case ClientCallKind.TOOL:
      return "tool";
    case ClientCallKind.APPROVAL:
      return "approval";
    case ClientCallKind.QUESTION:
      return "question";
    case ClientCallKind.CONFIRMATION:
      return "confirmation";
    case ClientCallKind.PYTHON:
      return "python";
    case ClientCallKind.COMPLETION:
      return "completion";
    default:
      return "other";
  }
}
