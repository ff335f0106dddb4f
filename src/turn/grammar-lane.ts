/** The order of one lane's packets. Part of the grammar checker; see there for the rules. */
import { AnswerKind } from "../../gen/turnwire/packet/v1/answer_pb.js";
import { TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { CycleReset, CycleStarted } from "../../gen/turnwire/packet/v1/control_pb.js";
import { SectionStatus, ToolChoiceKind } from "../../gen/turnwire/packet/v1/control_pb.js";
import type { Packet, Placement } from "../../gen/turnwire/packet/v1/packet_pb.js";
import type { ToolCallReady, ToolCallResult, ToolCallStart } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";

/** A rule's name and what is wrong. */
export type Violation = readonly [rule: string, what: string];

type TextKind = "reasoning" | "answer" | "plan" | "report" | "agent";

interface OpenBlock {
  readonly kind: TextKind;
  readonly placement: Placement;
}

interface Call {
  readonly placement: Placement;
  readonly callId: string;
  ready: boolean;
  result: ToolCallStatus | undefined;
  ended: boolean;
}

/** Where blocks are counted: the lane itself, or an agent inside one of its calls. */
interface Scope {
  next: number;
  /** The calls of the step that runs: their index, and how many. */
  group: { readonly index: number; tabs: number } | undefined;
  branches: number;
}

const freshScope = (): Scope => ({ next: 0, group: undefined, branches: 0 });

/** Checks one lane. */
export class LaneGrammar {
  ended = false;
  outcome = TurnOutcome.UNSPECIFIED;
  readonly #scopes = new Map<string, Scope>();
  readonly #calls = new Map<string, Call>();
  #blocks: OpenBlock[] = [];
  #started = false;
  #cycle = 0;
  #cycleOpen = false;
  /** The last cycle was reset: it must begin again under its number. */
  #reset = false;
  #toolChoice = ToolChoiceKind.UNSPECIFIED;
  #answered = false;
  #violations: Violation[] = [];

  push(packet: Packet): readonly Violation[] {
    this.#violations = [];
    const { payload } = packet;
    const place = packet.placement!;
    if (this.ended) this.#add("lane", "a packet after LaneEnd");
    switch (payload.case) {
      case "laneStarted":
        if (this.#started) this.#add("lane", "LaneStarted twice");
        this.#started = true;
        break;
      case "cycleStarted":
        this.#startCycle(payload.value);
        break;
      case "cycleReset":
        this.#resetCycle(payload.value);
        break;
      case "cycleEnd":
        if (!this.#cycleOpen || payload.value.cycle !== this.#cycle)
          this.#add("cycle", `cycle ${payload.value.cycle} is not running`);
        this.#requireClosed("cycle");
        this.#cycleOpen = false;
        break;
      case "laneEnd":
        if (this.#cycleOpen) this.#add("lane", `cycle ${this.#cycle} has not ended`);
        this.#requireClosed("lane");
        if (payload.value.outcome === TurnOutcome.UNSPECIFIED) this.#add("lane", "no outcome");
        this.outcome = payload.value.outcome;
        this.ended = true;
        break;
      case "reasoningStart":
        this.#requireNoReasoning(place);
        this.#openBlock("reasoning", place);
        break;
      case "agentResponseStart":
        this.#requireNoReasoning(place);
        this.#openBlock("answer", place);
        break;
      case "deepResearchPlanStart":
        this.#requireNoReasoning(place);
        this.#openBlock("plan", place);
        break;
      case "intermediateReportStart":
        this.#openBlock("report", place);
        break;
      case "researchAgentStart":
      case "codingAgentStart":
        this.#openBlock("agent", place);
        break;
      case "reasoningDelta":
        this.#requireBlock("reasoning", place);
        break;
      case "agentResponseDelta":
      case "citationInfo":
        this.#requireBlock("answer", place);
        break;
      case "deepResearchPlanDelta":
        this.#requireBlock("plan", place);
        break;
      case "intermediateReportDelta":
      case "intermediateReportCitedDocs":
        this.#requireBlock("report", place);
        break;
      case "codingAgentThinkingDelta":
      case "codingAgentFinal":
        this.#requireBlock("agent", place);
        break;
      case "reasoningDone":
        this.#closeBlock("reasoning", place);
        break;
      case "agentResponseDone":
        this.#closeBlock("answer", place);
        if (payload.value.kind === AnswerKind.UNSPECIFIED)
          this.#add("answer", "Done says neither answer nor narration");
        if (payload.value.kind === AnswerKind.ANSWER && place.subTurnIndex === undefined)
          this.#answered = true;
        break;
      case "agentResponseReplaced":
        if (!this.#started) this.#add("lane", "a replaced answer before LaneStarted");
        break;
      case "toolCallStart":
        this.#startCall(payload.value, place);
        break;
      case "toolCallArgumentDelta": {
        const call = this.#callNamed(payload.value.callId, place);
        if (call?.ready || call?.result !== undefined)
          this.#add("call", `arguments of ${payload.value.callId} after they were complete`);
        break;
      }
      case "toolCallReady":
        this.#readyCall(payload.value, place);
        break;
      case "toolCallResult":
        this.#resultOf(payload.value, place);
        break;
      case "sectionEnd":
        this.#endSection(payload.value.status, place);
        break;
      case "topLevelBranching":
        this.#branch(payload.value.numParallelBranches, place);
        break;
      case "error":
      case "statusUpdate":
      case "sourceInfo":
      case "fileInfo":
      case "embedInfo":
      case "contextInfo":
      case "usageInfo":
      case "extension":
      case "toolCallDebug":
        break;
      default:
        this.#toolPacket(place);
    }
    return this.#violations;
  }

  #add(rule: string, what: string): void {
    this.#violations.push([rule, what]);
  }

  // ---- cycles

  #startCycle({ cycle, toolChoice }: CycleStarted): void {
    if (!this.#started) this.#add("lane", "a cycle before LaneStarted");
    if (this.#cycleOpen) this.#add("cycle", `cycle ${this.#cycle} has not ended`);
    const expected = this.#reset ? this.#cycle : this.#cycle + 1;
    if (cycle !== expected) this.#add("cycle", `cycle ${cycle} where ${expected} was due`);
    this.#cycle = cycle;
    this.#cycleOpen = true;
    this.#reset = false;
    this.#toolChoice = toolChoice;
    this.#newStep();
  }

  #resetCycle(reset: CycleReset): void {
    if (!this.#cycleOpen || reset.cycle !== this.#cycle)
      this.#add("cycle", `cycle ${reset.cycle} is not running`);
    const isKept = (call: Call): boolean => reset.keptCallIds.includes(call.callId);
    const kept = [...this.#calls.values()].filter(isKept);
    for (const id of reset.keptCallIds)
      if (!this.#calls.has(id)) this.#add("cycle", `kept call ${id} is not known`);
    this.#blocks = this.#blocks.filter(({ placement }) =>
      kept.some((call) => isInside(placement, call.placement)),
    );
    for (const call of this.#calls.values()) {
      if (!isKept(call) && !kept.some((outer) => isInside(call.placement, outer.placement)))
        call.ended = true;
    }
    this.#cycleOpen = false;
    this.#reset = true;
  }

  #newStep(): void {
    const scope = this.#scope(undefined);
    scope.group = undefined;
    scope.branches = 0;
    this.#answered = false;
  }

  #requireClosed(rule: string): void {
    for (const { kind, placement } of this.#blocks) this.#add(rule, `${kind} at ${name(placement)} is open`);
    for (const call of this.#calls.values()) if (!call.ended) this.#add(rule, `call ${call.callId} is open`);
  }

  // ---- placement

  /** The scope of a place: the lane's, or that of the agent in the call at its turn and tab. */
  #scope(placement: Placement | undefined): Scope {
    const key = placement?.subTurnIndex === undefined ? "" : `${placement.turnIndex}/${placement.tabIndex}`;
    let scope = this.#scopes.get(key);
    if (!scope) this.#scopes.set(key, (scope = freshScope()));
    return scope;
  }

  #takeBlockPlace(place: Placement): void {
    if (!this.#cycleOpen) this.#add("cycle", "a block outside a cycle");
    const scope = this.#scope(place);
    const [index, tab] = indexOf(place);
    if (index !== scope.next || tab !== 0)
      this.#add("placement", `${name(place)} where index ${scope.next}, tab 0 was due`);
    scope.next = Math.max(scope.next, index + 1);
    // In an agent, text that follows the calls of a step begins the next step: agents have no cycles of their own.
    if (place.subTurnIndex !== undefined) scope.group = undefined;
  }

  #takeCallPlace(place: Placement): void {
    if (!this.#cycleOpen) this.#add("cycle", "a call outside a cycle");
    const scope = this.#scope(place);
    const [index, tab] = indexOf(place);
    const { group } = scope;
    if (group && index === group.index && tab === group.tabs) {
      group.tabs++;
      return;
    }
    const mayBegin = !group || place.subTurnIndex !== undefined;
    if (!mayBegin)
      this.#add("placement", `${name(place)} where index ${group.index}, tab ${group.tabs} was due`);
    else if (index !== scope.next || tab !== 0)
      this.#add("placement", `${name(place)} where index ${scope.next}, tab 0 was due`);
    scope.group = { index, tabs: 1 };
    scope.next = Math.max(scope.next, index + 1);
  }

  #branch(branches: number, place: Placement): void {
    const scope = this.#scope(undefined);
    if (place.subTurnIndex !== undefined) this.#add("placement", "TopLevelBranching below the top level");
    if (place.turnIndex !== scope.group?.index || place.tabIndex !== 0)
      this.#add("placement", `no calls begin at ${name(place)}`);
    if (branches < 2 || branches <= scope.branches)
      this.#add("call", `${branches} branches after ${scope.branches}`);
    scope.branches = branches;
  }

  // ---- blocks

  #openBlock(kind: TextKind, place: Placement): void {
    if (this.#find(kind, place)) this.#add("block", `${kind} at ${name(place)} begins twice`);
    // An agent and its report stand at the place of the call they run in.
    const call = this.#callAt(place);
    if ((kind === "agent" || kind === "report") && call) {
      if (!call.ready || call.result !== undefined)
        this.#add("call", `${kind} of ${call.callId} outside its run`);
    } else {
      this.#takeBlockPlace(place);
    }
    this.#blocks.push({ kind, placement: place });
  }

  #find(kind: TextKind, place: Placement): OpenBlock | undefined {
    return this.#blocks.find((block) => block.kind === kind && same(block.placement, place));
  }

  #requireBlock(kind: TextKind, place: Placement): void {
    if (!this.#find(kind, place)) this.#add("block", `no ${kind} is open at ${name(place)}`);
  }

  #closeBlock(kind: TextKind, place: Placement): void {
    this.#requireBlock(kind, place);
    this.#blocks = this.#blocks.filter((block) => block.kind !== kind || !same(block.placement, place));
  }

  #requireNoReasoning(place: Placement): void {
    const open = this.#blocks.find(
      (block) => block.kind === "reasoning" && sameScope(block.placement, place),
    );
    if (open) this.#add("reasoning", `reasoning at ${name(open.placement)} is open`);
  }

  // ---- calls

  #startCall({ callId, parentCallId }: ToolCallStart, place: Placement): void {
    if (callId === "") this.#add("call", "no call_id");
    if (this.#calls.has(callId)) this.#add("call", `call ${callId} begins twice`);
    this.#requireNoReasoning(place);
    this.#takeCallPlace(place);
    if (place.subTurnIndex === undefined) {
      if (this.#answered && this.#toolChoice !== ToolChoiceKind.NONE)
        this.#add("answer", "a call follows what was said to be the answer");
    } else if (parentCallId !== "" && !this.#calls.has(parentCallId)) {
      this.#add("call", `parent call ${parentCallId} is not known`);
    }
    this.#calls.set(callId, { placement: place, callId, ready: false, result: undefined, ended: false });
  }

  #callNamed(callId: string, place: Placement): Call | undefined {
    const call = this.#calls.get(callId);
    if (!call) this.#add("call", `call ${callId} has not begun`);
    else if (call.ended) this.#add("call", `call ${callId} has ended`);
    else if (!same(call.placement, place))
      this.#add("placement", `call ${callId} is at ${name(call.placement)}, not ${name(place)}`);
    return call;
  }

  /** The open call at a place. */
  #callAt(place: Placement): Call | undefined {
    for (const call of this.#calls.values()) if (!call.ended && same(call.placement, place)) return call;
    return undefined;
  }

  #readyCall({ callId }: ToolCallReady, place: Placement): void {
    const call = this.#callNamed(callId, place);
    if (!call) return;
    if (call.ready) this.#add("call", `call ${callId} is ready twice`);
    if (call.result !== undefined) this.#add("call", `call ${callId} is ready after its result`);
    call.ready = true;
  }

  #resultOf({ callId, status }: ToolCallResult, place: Placement): void {
    const call = this.#callNamed(callId, place);
    if (!call) return;
    if (call.result !== undefined) this.#add("call", `call ${callId} has two results`);
    if (status === ToolCallStatus.UNSPECIFIED) this.#add("call", `the result of ${callId} has no status`);
    const isCutOff = status === ToolCallStatus.CANCELLED || status === ToolCallStatus.ERROR;
    if (!call.ready && !isCutOff) this.#add("call", `call ${callId} has a result and was never ready`);
    call.result = status;
  }

  #endSection(status: SectionStatus, place: Placement): void {
    if (status === SectionStatus.UNSPECIFIED) this.#add("call", "SectionEnd has no status");
    const call = this.#callAt(place);
    const inner = this.#blocks.filter(
      ({ kind, placement }) => kind !== "reasoning" && kind !== "answer" && same(placement, place),
    );
    if (call && call.result !== undefined) {
      call.ended = true;
      this.#blocks = this.#blocks.filter((block) => !inner.includes(block));
      const below = this.#blocks.find(({ placement }) => isInside(placement, place));
      if (below) this.#add("call", `${below.kind} at ${name(below.placement)} is open inside ${call.callId}`);
      return;
    }
    const last = inner.at(-1);
    if (last) this.#blocks = this.#blocks.filter((block) => block !== last);
    else if (call) this.#add("call", `call ${call.callId} ends without a result`);
    else this.#add("block", `nothing is open at ${name(place)}`);
  }

  /** A packet of a tool family: inside the run of the call at its place, or of the call that place is nested in. */
  #toolPacket(place: Placement): void {
    const outer = [...this.#calls.values()].find((call) => !call.ended && isInside(place, call.placement));
    const call = this.#callAt(place) ?? outer;
    if (!call) this.#add("call", `no call is open at ${name(place)}`);
    else if (!call.ready) this.#add("call", `a tool's packet before ${call.callId} was ready`);
    else if (call.result !== undefined)
      this.#add("call", `a tool's packet after the result of ${call.callId}`);
  }
}

function same(a: Placement, b: Placement): boolean {
  return (
    sameScope(a, b) &&
    a.turnIndex === b.turnIndex &&
    a.tabIndex === b.tabIndex &&
    indexOf(a)[0] === indexOf(b)[0] &&
    indexOf(a)[1] === indexOf(b)[1]
  );
}

function sameScope(a: Placement, b: Placement): boolean {
  if (a.subTurnIndex === undefined || b.subTurnIndex === undefined) return a.subTurnIndex === b.subTurnIndex;
  return a.turnIndex === b.turnIndex && a.tabIndex === b.tabIndex;
}

/** True when a place is nested in the top-level place of a call. */
function isInside(place: Placement, call: Placement): boolean {
  return (
    place.subTurnIndex !== undefined &&
    call.subTurnIndex === undefined &&
    place.turnIndex === call.turnIndex &&
    place.tabIndex === call.tabIndex
  );
}

function indexOf(place: Placement): readonly [index: number, tab: number] {
  return place.subTurnIndex === undefined
    ? [place.turnIndex, place.tabIndex]
    : [place.subTurnIndex, place.subTabIndex ?? 0];
}

function name(place: Placement): string {
  const inner = place.subTurnIndex === undefined ? "" : ` > ${place.subTurnIndex}.${place.subTabIndex ?? 0}`;
  return `${place.turnIndex}.${place.tabIndex}${inner}`;
}
