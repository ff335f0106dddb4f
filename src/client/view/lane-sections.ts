/**
 * From blocks to groups. Blocks stand in the order of their turn index, so a section - the blocks of one index - can be
 * shown without looking at any other.
 *
 * Owns: the views of blocks already made, by block. L1 a block that has not changed (last_seq, status) keeps its view.
 */
import { BlockStatus, type Block, type TextBlock } from "../../../gen/turnwire/chat/v1/turn_state_pb.js";
import { AnswerKind } from "../../../gen/turnwire/packet/v1/answer_pb.js";
import { callView } from "./call-view.js";
import { keep, keepList } from "./keep.js";
import type { GroupView, NoticeView, TextGroup, ToolCallView, ToolGroup } from "./view-types.js";

/** When the block that a packet opened began, on the viewer's clock; undefined = not known. */
export type OpenedAt = (firstSeq: number) => number | undefined;

interface Known<T> {
  readonly lastSeq: number;
  readonly status: BlockStatus;
  readonly view: T;
}

/** Makes the groups of sections, and keeps what did not change. */
export class SectionViews {
  readonly #texts = new Map<number, Known<TextGroup>>();
  readonly #calls = new Map<number, Known<ToolCallView>>();
  readonly #groups = new Map<string, ToolGroup>();
  readonly #openedAt: OpenedAt;

  constructor(openedAt: OpenedAt) {
    this.#openedAt = openedAt;
  }

  /** The groups of one section's blocks. `isReset` says whether a cycle was taken back. */
  groupsOf(blocks: readonly Block[], isReset: (cycle: number) => boolean): GroupView[] {
    const groups: GroupView[] = [];
    const calls = blocks.filter(({ block, placement, status }) => {
      return (
        block.case === "tool" && placement?.subTurnIndex === undefined && status !== BlockStatus.DISCARDED
      );
    });
    for (const block of blocks) {
      if (block.status === BlockStatus.DISCARDED) {
        if (isReset(block.cycle)) groups.push(resetNotice(block));
      } else if (block === calls[0]) {
        groups.push(this.#toolGroup(calls, blocks));
      } else if (!calls.some((call) => call === block || isInside(block, call))) {
        groups.push(...this.#text(block));
      }
    }
    return groups;
  }

  #toolGroup(calls: readonly Block[], blocks: readonly Block[]): ToolGroup {
    const key = `tools-${calls[0]!.firstSeq}`;
    const previous = this.#groups.get(key);
    const views = keepList(
      previous?.calls,
      calls.map((call) =>
        this.#call(
          call,
          blocks.filter((block) => isInside(block, call)),
        ),
      ),
    );
    const group = keep<ToolGroup>(previous, {
      kind: "tools",
      key,
      calls: views,
      open: calls.some(({ status }) => status === BlockStatus.OPEN),
      durationMs: Math.max(...views.map(({ durationMs }) => durationMs)),
    });
    this.#groups.set(key, group);
    return group;
  }

  #call(call: Block, inside: readonly Block[]): ToolCallView {
    const known = this.#calls.get(call.firstSeq);
    const nested = keepList(known?.view.nested, this.#nested(inside));
    const agent = inside.find(
      ({ block, status }) => block.case === "agent" && status !== BlockStatus.DISCARDED,
    );
    const lastSeq = Math.max(call.lastSeq, agent?.lastSeq ?? 0);
    if (known?.lastSeq === lastSeq && known.status === call.status && known.view.nested === nested)
      return known.view;
    const agentBlock = agent?.block.case === "agent" ? agent.block.value : undefined;
    const tool = call.block.value as Extract<Block["block"], { case: "tool" }>["value"];
    const view = callView(call, tool, agentBlock, nested, this.#openedAt(call.firstSeq));
    this.#calls.set(call.firstSeq, { lastSeq, status: call.status, view });
    return view;
  }

  /** What an agent shows inside a call: its own texts in order, its calls step by step, its report. */
  #nested(inside: readonly Block[]): GroupView[] {
    const shown = inside.filter(({ status }) => status !== BlockStatus.DISCARDED);
    return shown.flatMap((block): GroupView[] => {
      if (block.block.case !== "tool") return this.#text(block);
      const step = shown.filter((other) => isSameStep(other, block));
      return step[0] === block ? [this.#toolGroup(step, [])] : [];
    });
  }

  /** The group of a text block; nothing for another one. */
  #text(block: Block): TextGroup[] {
    const kind = block.block.case;
    if (kind === undefined || kind === "tool" || kind === "agent") return [];
    const known = this.#texts.get(block.firstSeq);
    if (known?.lastSeq === block.lastSeq && known.status === block.status) return [known.view];
    const view = textGroup(block, block.block.value, this.#openedAt(block.firstSeq));
    this.#texts.set(block.firstSeq, { lastSeq: block.lastSeq, status: block.status, view });
    return [view];
  }
}

/** Whether two nested blocks are calls of one step of their agent. */
function isSameStep(a: Block, b: Block): boolean {
  const isCalls = a.block.case === "tool" && b.block.case === "tool";
  return isCalls && a.placement?.subTurnIndex === b.placement?.subTurnIndex;
}

function textGroup(block: Block, text: TextBlock, openedAtMs: number | undefined): TextGroup {
  const open = block.status === BlockStatus.OPEN;
  return {
    kind: textKind(block, text),
    key: `text-${block.firstSeq}`,
    text: text.text,
    open,
    durationMs: text.durationMs,
    openedAtMs: open ? openedAtMs : undefined,
    truncated: text.truncated,
    redacted: text.redacted,
  };
}

function textKind({ block }: Block, { kind }: TextBlock): TextGroup["kind"] {
  switch (block.case) {
    case "reasoning":
      return "reasoning";
    case "researchPlan":
      return "plan";
    case "report":
      return "report";
    default:
      return kind === AnswerKind.NARRATION ? "narration" : "answer";
  }
}

function resetNotice(block: Block): NoticeView {
  return {
    kind: "notice",
    key: `reset-${block.firstSeq}`,
    level: "info",
    text: "The model had to begin again; what it had written was taken back.",
  };
}

/** Whether a block is shown inside a call: an agent at its place, or anything nested below it. */
function isInside(block: Block, call: Block): boolean {
  if (block === call) return false;
  const [a, b] = [block.placement, call.placement];
  if (a?.turnIndex !== b?.turnIndex || a?.tabIndex !== b?.tabIndex) return false;
  return a?.subTurnIndex !== undefined || block.block.case === "agent" || block.block.case === "report";
}
