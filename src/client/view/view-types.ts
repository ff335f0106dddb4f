/**
 * What a user interface shows of a turn: plain, immutable values, free of protobuf's oneofs and of anything that is only
 * bookkeeping. Made by turn-viewer.ts (live) and lane-view.ts (stored); the same shapes either way.
 *
 * V1 what did not change is the same object as before, so `===` tells a UI what to draw anew. V2 keys are unique within a
 * lane and never change while the thing lives. V3 a stored lane gives the same view as the live one at its end.
 */
import type { Attachment, Document, Usage } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { ToolBody } from "./tool-body.js";

/** Where a turn or a lane stands. */
export type Progress = "running" | "completed" | "stopped" | "error" | "interrupted";

/** A whole turn. */
export interface TurnView {
  readonly turnId: string;
  /** Seq of the last packet that is shown. */
  readonly seq: number;
  readonly progress: Progress;
  readonly lanes: readonly LaneView[];
  /** What belongs to the turn as a whole: errors, messages that joined. */
  readonly notices: readonly NoticeView[];
  /** What clients are asked to do, while it is not settled. */
  readonly clientCalls: readonly ClientCallView[];
  /** How the turn ended, when that needs words and no lane says it. */
  readonly end: EndView | undefined;
  readonly title: string;
  readonly followUps: readonly string[];
  /** True if this build met something that it cannot show and must not skip: reload with a newer one. */
  readonly incomplete: boolean;
}

/** One model's part of a turn. */
export interface LaneView {
  readonly key: string;
  readonly modelIndex: number;
  readonly modelId: string;
  /** The model's name for people. */
  readonly modelName: string;
  /** The message that the lane writes: what SelectMessage takes to pick this answer. */
  readonly messageId: string;
  readonly progress: Progress;
  /** What to show, from top to bottom. */
  readonly groups: readonly GroupView[];
  readonly citations: CitationMap;
  /** What goes on right now; undefined when nothing does. */
  readonly status: StatusView | undefined;
  /** How the lane ended, when that needs words. */
  readonly end: EndView | undefined;
  /** Errors that the lane survived. */
  readonly notices: readonly NoticeView[];
  /** Documents that stand behind the answer without a number in the text. */
  readonly sources: readonly Document[];
  readonly files: readonly Attachment[];
  readonly usage: Usage | undefined;
  /** Milliseconds that the model reasoned, and that tools ran (parallel calls count once). */
  readonly reasoningMs: number;
  readonly toolMs: number;
}

/** The documents that an answer cites, by the number in its text, in the order of their first citation. */
export type CitationMap = ReadonlyMap<number, Document>;

/** One thing from top to bottom. */
export type GroupView = TextGroup | ToolGroup | NoticeView;

/** A block of text. */
export interface TextGroup {
  readonly kind: "reasoning" | "answer" | "narration" | "plan" | "report";
  readonly key: string;
  readonly text: string;
  /** True while more may come. */
  readonly open: boolean;
  /** How long it took, milliseconds; 0 = not known. */
  readonly durationMs: number;
  /** When it began, on the viewer's clock; only while it is open and the packet that opened it was seen. */
  readonly openedAtMs: number | undefined;
  /** True if the text ends early. */
  readonly truncated: boolean;
  /** True if the provider withheld text. */
  readonly redacted: boolean;
}

/** The calls of one step: shown as tabs when there are several. */
export interface ToolGroup {
  readonly kind: "tools";
  readonly key: string;
  readonly calls: readonly ToolCallView[];
  readonly open: boolean;
  /** The longest of its calls, milliseconds. */
  readonly durationMs: number;
}

/** How a call stands. */
export type CallStatus =
  "preparing" | "running" | "ok" | "error" | "timeout" | "cancelled" | "denied" | "unknown";

/** One tool call. */
export interface ToolCallView {
  readonly key: string;
  readonly callId: string;
  readonly toolId: string;
  /** The tool's name for people. */
  readonly name: string;
  readonly status: CallStatus;
  /** The arguments as far as they are known: JSON text, or what a model wrote in its place. */
  readonly argumentsJson: string;
  /** What the tool itself shows. */
  readonly body: ToolBody;
  /** What the model reads of the result; undefined = none yet. */
  readonly resultText: string | undefined;
  /** The file with the whole result, when the text is cut. */
  readonly resultFileId: string;
  readonly files: readonly Attachment[];
  /** A word about its end. */
  readonly message: string;
  /** The call that ran in this one's place; empty = it ran itself. */
  readonly mergedIntoCallId: string;
  readonly durationMs: number;
  readonly openedAtMs: number | undefined;
  /** What an agent inside the call shows. */
  readonly nested: readonly GroupView[];
}

/** A line beside the answer. */
export interface NoticeView {
  readonly kind: "notice";
  readonly key: string;
  readonly level: "info" | "success" | "warning" | "error";
  readonly text: string;
}

/** What goes on right now. */
export interface StatusView {
  readonly kind: "starting" | "reasoning" | "writing" | "tool" | "waiting" | "note";
  readonly text: string;
}

/** How something ended, and what a person can do about it. */
export interface EndView {
  readonly progress: Exclude<Progress, "running" | "completed">;
  /** What happened, one sentence. */
  readonly text: string;
  /** What to do, one sentence; empty = nothing. */
  readonly advice: string;
  /** True if the same request may succeed later. */
  readonly retryable: boolean;
  /** Milliseconds to wait before trying again; 0 = no advice. */
  readonly retryAfterMs: number;
  /** True if another model may do better. */
  readonly isForOtherModel: boolean;
}

/** Something that clients are asked to do. */
export interface ClientCallView {
  readonly key: string;
  readonly clientCallId: string;
  readonly kind: "tool" | "approval" | "question" | "confirmation" | "python" | "completion" | "other";
  readonly toolCallId: string;
  readonly summary: string;
  readonly claimed: boolean;
}
