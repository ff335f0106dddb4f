/**
 * One lane as it is shown. A LaneViewer follows a lane that is written; `storedLaneView` shows one that is stored.
 *
 * Owns: which sections are settled. L2 a section is settled when nothing in it is open and a later one has begun; settled
 * sections are not looked at again until the viewer is told that the state was replaced or something was taken back. So
 * an update costs what is new, however long the lane is (besides one copy of the list when a group changed).
 */
import {
  BlockStatus,
  type Block,
  type Citation,
  type LaneState,
} from "../../../gen/turnwire/chat/v1/turn_state_pb.js";
import { StopReason, TurnOutcome, type Document } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { endView, errorText, finishNote, progressOf } from "./end-view.js";
import { Derived, keep } from "./keep.js";
import { SectionViews, type OpenedAt } from "./lane-sections.js";
import { laneStatus } from "./lane-status.js";
import type { CitationMap, GroupView, LaneView, NoticeView, StatusView } from "./view-types.js";

/** Makes the views of one lane, one after the other. */
export class LaneViewer {
  readonly #sections: SectionViews;
  readonly #citations = new Derived(citationMap);
  readonly #notices = new Derived(noticesOf);
  readonly #sources = new Derived(sourcesOf);
  readonly #files = new Derived((lane: LaneState) => [...lane.files]);
  readonly #end = new Derived(({ end }: LaneState) =>
    endView(end?.outcome, StopReason.UNSPECIFIED, end?.error),
  );
  #settled = new Groups();
  /** The list last shown, and how many of its groups were settled then. */
  #list: readonly GroupView[] = [];
  #listSettled = 0;
  #status: StatusView | undefined;
  #view: LaneView | undefined;

  constructor(openedAt: OpenedAt = () => undefined) {
    this.#sections = new SectionViews(openedAt);
  }

  /** Looks at every section again with the next view: the state was replaced, or something was taken back. */
  forget(): void {
    this.#settled = new Groups();
    this.#listSettled = 0;
  }

  /** The view of the lane as it is now; `waitText` says what it waits for. */
  view(lane: LaneState, waitText = ""): LaneView {
    const { rest, list } = this.#groups(lane);
    const { citations, errors, sources, files, end } = lane;
    const status = end ? undefined : laneStatus(lane, list.at(-1), waitText);
    this.#status = status && keep(this.#status, status);
    this.#view = keep(this.#view, {
      key: `lane-${lane.modelIndex}`,
      modelIndex: lane.modelIndex,
      modelId: lane.modelId,
      modelName: lane.displayName || lane.modelId,
      messageId: lane.assistantMessageId,
      progress: progressOf(end?.outcome),
      groups: list,
      citations: this.#citations.get(citations, citations, citations.length),
      status: this.#status,
      end: this.#end.get(lane, end),
      notices: this.#notices.get(lane, errors, errors.length, end),
      sources: this.#sources.get(lane, sources, sources.length),
      files: this.#files.get(lane, files, files.length),
      usage: lane.usage,
      reasoningMs: rest.reasoningMs,
      toolMs: rest.toolMs,
    });
    return this.#view;
  }

  /** Settles what can be; answers the groups after that, with the times of all, and the list of all. */
  #groups(lane: LaneState): { rest: Groups; list: readonly GroupView[] } {
    const { blocks } = lane;
    if (blocks.length < this.#settled.blocks) this.forget();
    let rest = this.#settled.rest();
    while (rest.blocks < blocks.length) {
      const begin = rest.blocks;
      const section = blocks.slice(begin, sectionEnd(blocks, begin));
      const groups = this.#sections.groupsOf(section, (cycle) => isReset(lane, cycle));
      const isSettled = begin + section.length < blocks.length && !section.some(isOpen);
      if (isSettled && this.#settled.blocks === begin) {
        this.#settled.add(section.length, groups);
        rest = this.#settled.rest();
      } else rest.add(section.length, groups);
    }
    return { rest, list: this.#share(rest.list) };
  }

  /** The list that ends with `rest`: the one last shown if it says the same, which only what was not settled then can tell. */
  #share(rest: readonly GroupView[]): readonly GroupView[] {
    const settled = this.#settled.list;
    const known = this.#list;
    const length = settled.length + rest.length;
    let same = known.length === length;
    for (let i = this.#listSettled; same && i < length; i++)
      same = known[i] === (i < settled.length ? settled[i] : rest[i - settled.length]);
    this.#listSettled = settled.length;
    if (!same) this.#list = settled.concat(rest);
    return this.#list;
  }
}

/** Groups of a lane that follow each other, and what all up to them took. */
class Groups {
  readonly list: GroupView[] = [];
  blocks = 0;
  reasoningMs = 0;
  toolMs = 0;
  #last: GroupView | undefined;

  /** What follows these: no groups yet, counted on from here. */
  rest(): Groups {
    const rest = new Groups();
    rest.blocks = this.blocks;
    rest.reasoningMs = this.reasoningMs;
    rest.toolMs = this.toolMs;
    rest.#last = this.#last;
    return rest;
  }

  add(blocks: number, groups: readonly GroupView[]): void {
    this.blocks += blocks;
    for (const group of groups) {
      // One notice is enough for whatever was taken back in a row.
      if (group.kind === "notice" && this.#last?.kind === "notice") continue;
      if (group.kind === "tools") this.toolMs += group.durationMs;
      else if (group.kind === "reasoning") this.reasoningMs += group.durationMs;
      this.list.push(group);
      this.#last = group;
    }
  }
}

/** The view of a lane as a message stores it. */
export function storedLaneView(lane: LaneState): LaneView {
  return new LaneViewer().view(lane);
}

/** Where the section that begins at a block ends. */
function sectionEnd(blocks: readonly Block[], begin: number): number {
  const index = blocks[begin]!.placement?.turnIndex;
  let end = begin + 1;
  while (end < blocks.length && blocks[end]!.placement?.turnIndex === index) end++;
  return end;
}

function isOpen({ status }: Block): boolean {
  return status === BlockStatus.OPEN;
}

function isReset(lane: LaneState, cycle: number): boolean {
  return lane.cycles.some((known) => known.cycle === cycle && known.reset);
}

function citationMap(citations: readonly Citation[]): CitationMap {
  return new Map(
    citations.flatMap(({ number, document }): [number, Document][] => (document ? [[number, document]] : [])),
  );
}

function sourcesOf(lane: LaneState): Document[] {
  return lane.sources.flatMap(({ documents }) => documents);
}

/** What is to be said beside the answer: errors that the lane survived (its end tells the one it ended with), a cut. */
function noticesOf({ errors, end }: LaneState): NoticeView[] {
  const told = end?.error;
  const texts = errors
    .filter(({ code, message }) => code !== told?.code || message !== told.message)
    .map(errorText);
  const note = end?.outcome === TurnOutcome.COMPLETED ? finishNote(end.finishReason) : "";
  if (note) texts.push(note);
  return texts.map((text, i) => ({ kind: "notice", key: `notice-${i}`, level: "warning", text }));
}
