/**
 * The order of packets, checked. Every test that sees a turn runs it through this; it judges packets alone and shares no
 * state with the fold or the decoder.
 *
 * Rules, by the name that a violation begins with:
 *   seq        dense from 1; heartbeats have seq 0 and are in no log
 *   time       t_ms never goes back
 *   turn       TurnStarted first and once; OverallStop last and once, after every lane's end; completed if one lane is
 *   lane       announced in TurnStarted; LaneStarted before its first cycle; nothing after LaneEnd; nothing open at LaneEnd
 *   cycle      numbered on by one; blocks only inside a cycle; nothing open at CycleEnd; a reset names the running cycle
 *   placement  each block takes the next index, calls of a step share one, tabs dense; nothing is used twice
 *   block      start, deltas, done in one placement, once
 *   reasoning  closed before an answer or a call begins, and before other reasoning
 *   answer     Done says answer or narration; no call follows an answer in a cycle that offers tools
 *   call       Start, argument deltas, Ready, tool packets, Result, SectionEnd; one Result; a good one only after Ready
 *   wait       started once, ended once, none left at the end
 *   content    no empty delta, no half surrogate pair, no text over 64 KiB, no control text
 *   must       CycleReset and AgentResponseReplaced say must_understand
 */
import { StopReason, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { OverallStop, TurnStarted } from "../../gen/turnwire/packet/v1/control_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { LaneGrammar } from "./grammar-lane.js";
import { byteLength, hasLoneSurrogate, MAX_TEXT_BYTES } from "./packets.js";
import type { Payload, PayloadCase } from "./packets.js";

/** Texts that some systems write into content when a turn is cut; here the terminal packet says it. */
const CONTROL_TEXTS: ReadonlySet<string> = new Set([
  "[stopped]",
  "[cancelled]",
  "[interrupted]",
  "[error]",
  "[done]",
  "[DONE]",
]);

/** Payloads that may stand in a lane or in the turn as a whole. */
const ANYWHERE: ReadonlySet<string> = new Set<PayloadCase>([
  "error",
  "statusUpdate",
  "sourceInfo",
  "fileInfo",
  "embedInfo",
  "contextInfo",
  "usageInfo",
  "extension",
]);

/** Checks the packets of one turn, in order. */
export class GrammarChecker {
  readonly #lanes = new Map<number, LaneGrammar>();
  readonly #waits = new Set<string>();
  readonly #endedWaits = new Set<string>();
  readonly #pendingCalls = new Set<string>();
  #violations: string[] = [];
  #seq = 0;
  #tMs = 0;
  #started = false;
  #stopped = false;

  /** The violations that this packet makes; empty = none. */
  push(packet: Packet): string[] {
    this.#violations = [];
    if (packet.seq === 0) {
      if (packet.payload.case !== "chatHeartbeat") this.#add("seq", packet, "a packet without seq");
      return this.#violations;
    }
    this.#checkHeader(packet);
    this.#checkContent(packet);
    this.#checkPayload(packet);
    return this.#violations;
  }

  /** The violations of the turn as a whole: what should have come and did not. */
  finish(): string[] {
    const missing: string[] = [];
    if (!this.#started) missing.push("turn: no TurnStarted");
    if (!this.#stopped) missing.push("turn: no OverallStop");
    for (const [index, lane] of this.#lanes)
      if (!lane.ended) missing.push(`lane: lane ${index} has no LaneEnd`);
    return missing;
  }

  #add(rule: string, packet: Packet, what: string): void {
    this.#violations.push(
      `${rule}: ${what} (seq ${packet.seq}, ${packet.payload.case ?? "unknown payload"})`,
    );
  }

  #checkHeader(packet: Packet): void {
    if (packet.seq !== this.#seq + 1) this.#add("seq", packet, `expected seq ${this.#seq + 1}`);
    this.#seq = packet.seq;
    if (packet.tMs < this.#tMs) this.#add("time", packet, `t_ms ${packet.tMs} after ${this.#tMs}`);
    this.#tMs = Math.max(this.#tMs, packet.tMs);
    if (packet.payload.case === "chatHeartbeat") this.#add("seq", packet, "a heartbeat with a seq");
    if (this.#stopped) this.#add("turn", packet, "a packet after OverallStop");
    if (!this.#started && packet.payload.case !== "turnStarted")
      this.#add("turn", packet, "a packet before TurnStarted");
    const mustUnderstand =
      packet.payload.case === "cycleReset" || packet.payload.case === "agentResponseReplaced";
    if (mustUnderstand && !packet.mustUnderstand) this.#add("must", packet, "must_understand is not set");
  }

  #checkContent(packet: Packet): void {
    const text = deltaText(packet.payload as Payload);
    if (text !== undefined) {
      if (text === "") this.#add("content", packet, "an empty delta");
      if (CONTROL_TEXTS.has(text.trim()))
        this.#add("content", packet, `control text ${JSON.stringify(text)}`);
    }
    for (const value of longTexts(packet.payload as Payload)) {
      if (hasLoneSurrogate(value)) this.#add("content", packet, "half a surrogate pair");
      if (byteLength(value) > MAX_TEXT_BYTES) this.#add("content", packet, "a text over 64 KiB");
    }
  }

  #checkPayload(packet: Packet): void {
    const { payload } = packet;
    switch (payload.case) {
      case undefined:
        return; // a newer writer's packet: its order is not ours to judge
      case "turnStarted":
        return this.#startTurn(packet, payload.value);
      case "overallStop":
        return this.#stopTurn(packet, payload.value);
      case "waitStarted":
        if (this.#waits.has(payload.value.waitId) || this.#endedWaits.has(payload.value.waitId)) {
          this.#add("wait", packet, `wait ${payload.value.waitId} started twice`);
        }
        this.#waits.add(payload.value.waitId);
        return;
      case "waitEnded":
        if (!this.#waits.delete(payload.value.waitId))
          this.#add("wait", packet, `wait ${payload.value.waitId} is not open`);
        this.#endedWaits.add(payload.value.waitId);
        return;
      case "clientCallRequest":
        this.#pendingCalls.add(payload.value.clientCallId);
        return;
      case "clientCallClaimed":
      case "clientCallResolved": {
        const id = payload.value.clientCallId;
        if (!this.#pendingCalls.has(id)) this.#add("wait", packet, `client call ${id} is not open`);
        if (payload.case === "clientCallResolved") this.#pendingCalls.delete(id);
        return;
      }
      case "sessionTitle":
      case "sessionTags":
      case "followUps":
      case "userMessageAdded":
      case "chatHeartbeat":
        return;
      default:
        return this.#checkLane(packet);
    }
  }

  #startTurn(packet: Packet, started: TurnStarted): void {
    if (this.#started) this.#add("turn", packet, "TurnStarted twice");
    if (packet.seq !== 1) this.#add("turn", packet, "TurnStarted is not the first packet");
    if (started.turnId === "") this.#add("turn", packet, "no turn_id");
    if (started.lanes.length === 0) this.#add("turn", packet, "no lanes announced");
    for (const { modelIndex } of started.lanes) {
      if (this.#lanes.has(modelIndex)) this.#add("lane", packet, `lane ${modelIndex} announced twice`);
      this.#lanes.set(modelIndex, new LaneGrammar());
    }
    this.#started = true;
  }

  #stopTurn(packet: Packet, stop: OverallStop): void {
    this.#stopped = true;
    const outcomes: TurnOutcome[] = [];
    for (const [index, lane] of this.#lanes) {
      if (!lane.ended) this.#add("turn", packet, `lane ${index} has not ended`);
      else outcomes.push(lane.outcome);
    }
    const oneCompleted = outcomes.includes(TurnOutcome.COMPLETED);
    if (stop.outcome === TurnOutcome.UNSPECIFIED) this.#add("turn", packet, "no outcome");
    if (oneCompleted !== (stop.outcome === TurnOutcome.COMPLETED)) {
      this.#add(
        "turn",
        packet,
        `outcome ${TurnOutcome[stop.outcome]} beside lanes ${outcomes.map((o) => TurnOutcome[o]).join(", ")}`,
      );
    }
    if (stop.outcome === TurnOutcome.STOPPED && stop.stopReason === StopReason.UNSPECIFIED) {
      this.#add("turn", packet, "stopped without a reason");
    }
    for (const wait of this.#waits) this.#add("wait", packet, `wait ${wait} is open`);
    for (const call of this.#pendingCalls) this.#add("wait", packet, `client call ${call} is open`);
  }

  #checkLane(packet: Packet): void {
    const index = packet.placement?.modelIndex;
    if (index === undefined) {
      if (!ANYWHERE.has(packet.payload.case!)) this.#add("lane", packet, "no model_index");
      return;
    }
    const lane = this.#lanes.get(index);
    if (!lane) return this.#add("lane", packet, `lane ${index} is not announced`);
    for (const [rule, what] of lane.push(packet)) this.#add(rule, packet, what);
  }
}

/** The text of a delta that must not be empty. */
function deltaText(payload: Payload): string | undefined {
  switch (payload.case) {
    case "agentResponseDelta":
    case "intermediateReportDelta":
    case "deepResearchPlanDelta":
    case "codingAgentThinkingDelta":
      return payload.value.content;
    case "reasoningDelta":
      return payload.value.reasoning;
    case "toolCallArgumentDelta":
      return payload.value.raw;
    default:
      return undefined;
  }
}

/** Texts that have a bound of 64 KiB. */
function longTexts(payload: Payload): string[] {
  switch (payload.case) {
    case "toolCallReady":
      return [payload.value.argumentsJson];
    case "toolCallResult":
      return [payload.value.modelText];
    case "agentResponseReplaced":
      return [payload.value.content];
    case "turnStarted":
      return [payload.value.input?.text ?? ""];
    case "toolCallArgumentDelta":
      return [payload.value.raw, ...Object.values(payload.value.argumentDeltas)];
    case "pythonToolDelta":
    case "bashToolDelta":
      return [payload.value.stdout, payload.value.stderr];
    default: {
      const text = deltaText(payload);
      return text === undefined ? [] : [text];
    }
  }
}
