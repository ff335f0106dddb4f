/**
 * The state of one step's decoding, and its text blocks.
 *
 * Owns: which blocks of the step are open, the text held back, the assistant message as it grows. Does not own: seq and
 * time (the writer's), the lane's counter (the lane's), what happens after the step (cycle.ts).
 */
import type {
  CompletionDelta,
  MediaPart,
  ProviderState,
  Warning,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { AnswerKind } from "../../gen/turnwire/packet/v1/answer_pb.js";
import type { TurnError, Usage } from "../../gen/turnwire/packet/v1/common_pb.js";
import { FinishReason } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet, Placement } from "../../gen/turnwire/packet/v1/packet_pb.js";
import type { ArgumentStream } from "./argument-stream.js";
import {
  answerDelta,
  isHighSurrogate,
  MAX_TEXT_BYTES,
  packet,
  reasoningDelta,
  replaceLoneSurrogates,
  splitText,
} from "./packets.js";
import { CitationWriter, type CitedPiece } from "./citations.js";
import type { CallGroup } from "./placement.js";
import { nextBlock } from "./placement.js";
import type { StepOptions } from "./step.js";

/** A text block that takes deltas. */
interface OpenText {
  readonly placement: Placement;
  /** A first half of a surrogate pair at the end of the last delta: it waits for the next one of this block. */
  held: string;
}

interface OpenReasoning extends OpenText {
  readonly kind: "reasoning";
  readonly blockIndex: number;
  readonly startMs: number;
  redacted: boolean;
}

interface OpenAnswer extends OpenText {
  readonly kind: "answer";
  /** undefined = nothing can be cited: the text is shown as it comes. */
  readonly citations: CitationWriter | undefined;
}

/** A call while its fragments arrive. */
export interface CallInProgress {
  readonly callId: string;
  blockIndex: number;
  providerCallId: string;
  name: string;
  toolId: string;
  clientSide: boolean;
  argumentsText: string;
  /** A first half of a surrogate pair at the end of the last fragment. */
  held: string;
  /** The provider said that its arguments are whole. */
  complete: boolean;
  invalid: boolean;
  /** Reads string arguments for tools that stream them. */
  stream: ArgumentStream | undefined;
  /** undefined = not announced yet: its name has not come. */
  placement: Placement | undefined;
}

/** A part of the assistant message that the next model call is given. */
export type MessagePart =
  | { readonly kind: "text" | "refusal"; text: string }
  | { readonly kind: "reasoning"; readonly blockIndex: number; text: string }
  | { readonly kind: "provider_state"; readonly state: ProviderState }
  | { readonly kind: "call"; readonly call: CallInProgress };

/** Opaque outside src/turn; owned by one step. */
export interface StepState {
  readonly options: StepOptions;
  /** The block that takes text now. */
  current: OpenReasoning | OpenAnswer | undefined;
  /** Answer blocks begun and not done: whether they are answer or narration is known when calls begin or the step ends. */
  provisional: OpenAnswer[];
  calls: CallInProgress[];
  group: CallGroup | undefined;
  parts: MessagePart[];
  /** Something of this attempt was shown. */
  visible: boolean;
  attempt: number;
  modelId: string;
  /** Who answers is not told before the lane's end, so no price is: it would tell. */
  secret: boolean;
  usageByAttempt: Map<number, Usage>;
  finishReason: FinishReason;
  finished: boolean;
  refused: boolean;
  reasoningOpen: boolean;
  error: TurnError | undefined;
  media: MediaPart[];
  warnings: Warning[];
  sourceIds: Set<string>;
}

/** Everything that one attempt builds up. */
export function freshAttempt(): Omit<
  StepState,
  "options" | "attempt" | "modelId" | "secret" | "usageByAttempt" | "warnings"
> {
  return {
    current: undefined,
    provisional: [],
    calls: [],
    group: undefined,
    parts: [],
    visible: false,
    finishReason: FinishReason.UNSPECIFIED,
    finished: false,
    refused: false,
    reasoningOpen: false,
    error: undefined,
    media: [],
    sourceIds: new Set(),
  };
}

type ReasoningDelta = Extract<CompletionDelta["delta"], { case: "reasoning" }>["value"];

/** Shows reasoning; a new block index is a new block. */
export function addReasoning(state: StepState, out: Packet[], delta: ReasoningDelta, tMs: number): void {
  const text = withoutNul(delta.text);
  if (text === "" && !delta.redacted) return;
  let open = state.current;
  if (open?.kind !== "reasoning" || open.blockIndex !== delta.blockIndex) {
    leaveCurrent(state, out, tMs);
    open = {
      kind: "reasoning",
      placement: nextBlock(state.options.placement),
      held: "",
      blockIndex: delta.blockIndex,
      startMs: tMs,
      redacted: false,
    };
    state.current = open;
    state.visible = true;
    out.push(packet("reasoningStart", {}, open.placement));
  }
  open.redacted ||= delta.redacted;
  writeText(state, out, open, text);
}

/** Shows answer text (a refusal too); it goes on in the block that takes text, whatever the provider calls its blocks. */
export function addAnswer(
  state: StepState,
  out: Packet[],
  content: string,
  isRefusal: boolean,
  tMs: number,
): void {
  const text = withoutNul(content);
  if (text === "") return;
  if (isRefusal) state.refused = true;
  let open = state.current;
  if (open?.kind !== "answer") {
    leaveCurrent(state, out, tMs);
    const { placement, citations } = state.options;
    open = {
      kind: "answer",
      placement: nextBlock(placement),
      held: "",
      citations: citations && new CitationWriter(citations.style, citations.documentOf),
    };
    state.current = open;
    state.provisional.push(open);
    state.visible = true;
    out.push(
      packet(
        "agentResponseStart",
        {
          preAnswerMs: state.options.preAnswerMs ?? 0,
          finalDocuments: state.options.finalDocuments ? [...state.options.finalDocuments] : [],
        },
        open.placement,
      ),
    );
  }
  writeText(state, out, open, text);
}

/** Ends the deltas of the block that takes text: reasoning is done, an answer waits for its kind. */
export function leaveCurrent(state: StepState, out: Packet[], tMs: number): void {
  const open = state.current;
  if (!open) return;
  state.current = undefined;
  if (open.held) emitText(state, out, open, "\ufffd");
  open.held = "";
  if (open.kind === "answer" && open.citations) showCited(out, open, open.citations.end());
  if (open.kind === "reasoning") {
    const durationMs = Math.max(0, tMs - open.startMs);
    out.push(packet("reasoningDone", { durationMs, redacted: open.redacted }, open.placement));
  }
}

/** Says of all answer blocks that have begun what they are. */
export function settleAnswers(
  state: StepState,
  out: Packet[],
  kind: AnswerKind,
  finishReason: FinishReason,
  truncated: boolean,
): void {
  for (const { placement } of state.provisional) {
    out.push(packet("agentResponseDone", { kind, finishReason, truncated }, placement));
  }
  state.provisional = [];
}

/** What the text of this step is, given that it has calls. */
export function kindBesideCalls(state: StepState): AnswerKind {
  return state.options.toolsOffered === false ? AnswerKind.ANSWER : AnswerKind.NARRATION;
}

function writeText(state: StepState, out: Packet[], open: OpenReasoning | OpenAnswer, text: string): void {
  let ready = open.held + text;
  open.held = "";
  if (isHighSurrogate(ready.charCodeAt(ready.length - 1))) {
    open.held = ready.slice(-1);
    ready = ready.slice(0, -1);
  }
  if (ready !== "") emitText(state, out, open, replaceLoneSurrogates(ready));
}

function emitText(state: StepState, out: Packet[], open: OpenReasoning | OpenAnswer, text: string): void {
  if (open.kind === "reasoning") {
    for (const piece of splitText(text, MAX_TEXT_BYTES)) out.push(reasoningDelta(piece, open.placement));
    const last = state.parts.at(-1);
    if (last?.kind === "reasoning" && last.blockIndex === open.blockIndex) last.text += text;
    else state.parts.push({ kind: "reasoning", blockIndex: open.blockIndex, text });
    return;
  }
  if (open.citations) showCited(out, open, open.citations.push(text));
  else showAnswer(out, open, text);
  const kind = state.refused ? "refusal" : "text";
  const last = state.parts.at(-1);
  if (last?.kind === kind) last.text += text;
  else state.parts.push({ kind, text });
}

function showAnswer(out: Packet[], { placement }: OpenAnswer, text: string): void {
  for (const piece of splitText(text, MAX_TEXT_BYTES)) out.push(answerDelta(piece, placement));
}

/** The news of a citation stands right before the delta that holds its marker. */
function showCited(out: Packet[], open: OpenAnswer, pieces: readonly CitedPiece[]): void {
  for (const piece of pieces) {
    if (piece.kind === "text") showAnswer(out, open, piece.text);
    else {
      const { number: citationNumber, documentId, startChar, endChar } = piece;
      out.push(packet("citationInfo", { citationNumber, documentId, startChar, endChar }, open.placement));
    }
  }
}

/** NUL has no place in a text that databases and terminals will hold. */
export function withoutNul(text: string): string {
  return text.includes("\0") ? text.replaceAll("\0", "") : text;
}
