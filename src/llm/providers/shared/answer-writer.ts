/**
 * Turns what a dialect's reader found into deltas, for all dialects: text, reasoning, refusals, calls, sources.
 * Owns the blocks of one answer. A1 block indices are counted by blocks that really opened. A2 no delta holds an empty text
 * or half a surrogate pair. A3 a source is handed out with the text block it belongs to. A4 what is held back comes out
 * at the end of its block, at the latest at the end of the answer.
 */
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { contentDelta, reasoningDelta, refusalDelta } from "../../deltas.js";
import { createTagSplitter, type ReasoningTagSplitter, type TaggedPiece } from "./reasoning-tags.js";
import { pushStateText } from "./provider-state.js";
import { SurrogateJoiner } from "../../well-formed.js";
import { SourceCollector } from "./source-collector.js";
import {
  ToolCallAssembler,
  type CallsEnd,
  type SettledCalls,
  type ToolCallFragment,
} from "./tool-call-assembler.js";

export interface AnswerWriterOptions {
  /** Makes ids for calls whose server sent none. */
  readonly newCallId: () => string;
  /** Names of the tags in which the model writes reasoning into its text; [] = it does not. */
  readonly reasoningTags: readonly string[];
  /** The previous answer ended inside such a tag. */
  readonly reasoningOpen: boolean;
  /** The prompt opened such a tag. Default false. */
  readonly startsInReasoning?: boolean;
}

/** Provider state of one answer, as JSON. */
const MAX_STATE_CHARS = 512 * 1024;

type OpenBlock = "none" | "text" | "reasoning" | "call";

export class AnswerWriter {
  readonly sources = new SourceCollector();
  readonly #calls: ToolCallAssembler;
  readonly #text = new SurrogateJoiner();
  readonly #reasoning = new SurrogateJoiner();
  readonly #refusal = new SurrogateJoiner();
  readonly #tags: ReasoningTagSplitter | undefined;
  #open: OpenBlock = "none";
  #openIndex = 0;
  #nextBlock = 0;
  #textIndex = 0;
  #hasText = false;
  #hasReasoning = false;
  #hasRefusal = false;
  #hasOther = false;
  #stateChars = 0;

  constructor(options: AnswerWriterOptions) {
    this.#calls = new ToolCallAssembler(() => this.#openBlock("call"), options.newCallId);
    this.#tags = createTagSplitter(options);
  }

  /** Anything was handed out, or is about to be. */
  get hasOutput(): boolean {
    const said = this.#hasText || this.#hasReasoning || this.#hasRefusal;
    return said || this.#hasOther || this.#calls.count > 0;
  }

  /** Index of the block that is open, or was last. */
  get blockIndex(): number {
    return this.#openIndex;
  }

  /** The model refused and said nothing else. */
  get onlyRefused(): boolean {
    return this.#hasRefusal && !this.#hasText;
  }

  /** A reasoning tag is open. */
  get reasoningOpen(): boolean {
    return this.#tags?.open ?? false;
  }

  text(text: string, out: CompletionDelta[]): void {
    const joined = this.#text.push(text);
    if (joined === "") return;
    if (this.#open === "reasoning") this.#releaseReasoning(out);
    this.#addAnswer(joined, out);
  }

  /** Reasoning that the server marked as such: it does not write it into the text as well. */
  reasoning(text: string, summary: boolean, out: CompletionDelta[]): void {
    if (text === "") return;
    this.#releaseText(out);
    if (this.#tags) this.#tagged(this.#tags.structured(), out);
    this.#addReasoning(text, summary, out);
  }

  refusal(text: string, out: CompletionDelta[]): void {
    const joined = this.#refusal.push(text);
    if (joined === "") return;
    this.#hasRefusal = true;
    out.push(refusalDelta(joined));
  }

  callFragment(fragment: ToolCallFragment, out: CompletionDelta[]): void {
    if (fragment.id === undefined && fragment.name === undefined && fragment.args === "") return;
    if (this.#open !== "call") this.#releaseHeld(out);
    this.#calls.push(fragment, out);
  }

  /** A delta that is no block of its own (media, a tool the server ran): the open block ends before it. */
  beside(delta: CompletionDelta, out: CompletionDelta[]): void {
    this.endBlock(out);
    this.#hasOther = true;
    out.push(delta);
  }

  /** Ends the open block: what follows opens another, also of the same kind. */
  endBlock(out: CompletionDelta[]): void {
    this.#releaseHeld(out);
    this.#closeBlock(out);
    this.#open = "none";
  }

  /** What the provider wants back, beside the block that is open or was last. What is beyond the limits is left out. */
  providerState(provider: string, value: unknown, out: CompletionDelta[]): void {
    if (this.#open === "call") this.#calls.announceAll(out);
    const json = JSON.stringify(value);
    if (this.#stateChars + json.length > MAX_STATE_CHARS) return;
    if (pushStateText(provider, json, this.#openIndex, out)) this.#stateChars += json.length;
  }

  /** Hands out sources that wait, if a text block is open for them. */
  flushSources(out: CompletionDelta[]): void {
    if (this.sources.waiting && this.#open === "text") this.sources.flush(this.#textIndex, out);
  }

  /** The end of the answer: everything that was held back, then the last delta of each call. */
  end(callsEnd: CallsEnd, out: CompletionDelta[]): SettledCalls {
    this.#releaseHeld(out);
    const refusal = this.#refusal.flush();
    if (refusal !== "") out.push(refusalDelta(refusal));
    if (this.sources.waiting) this.sources.flush(this.#textIndex, out);
    const calls = this.#calls.settle(callsEnd);
    out.push(...calls.deltas);
    return calls;
  }

  #addAnswer(text: string, out: CompletionDelta[]): void {
    if (this.#tags) this.#tagged(this.#tags.push(text), out);
    else this.#addText(text, out);
  }

  #tagged(pieces: readonly TaggedPiece[], out: CompletionDelta[]): void {
    for (const piece of pieces) {
      if (piece.kind === "text") this.#addText(piece.text, out);
      else this.#addReasoning(piece.text, false, out);
    }
  }

  #addText(text: string, out: CompletionDelta[]): void {
    if (this.#open !== "text") {
      this.#closeBlock(out);
      this.#textIndex = this.#openBlock("text");
    }
    this.#hasText = true;
    out.push(contentDelta(this.#openIndex, text));
  }

  #addReasoning(text: string, summary: boolean, out: CompletionDelta[]): void {
    const joined = this.#reasoning.push(text);
    if (joined === "") return;
    if (this.#open !== "reasoning") {
      this.#closeBlock(out);
      this.#openBlock("reasoning");
    }
    this.#hasReasoning = true;
    out.push(reasoningDelta(this.#openIndex, joined, { summary }));
  }

  #openBlock(kind: OpenBlock): number {
    this.#open = kind;
    this.#openIndex = this.#nextBlock++;
    return this.#openIndex;
  }

  #closeBlock(out: CompletionDelta[]): void {
    if (this.#open === "call") this.#calls.announceAll(out);
  }

  /** What was held back, as half a character or what may have become a tag, comes before what follows it. */
  #releaseHeld(out: CompletionDelta[]): void {
    this.#releaseText(out);
    if (this.#tags) this.#tagged(this.#tags.end(), out);
    this.#releaseReasoning(out);
  }

  #releaseText(out: CompletionDelta[]): void {
    const half = this.#text.flush();
    if (half !== "") this.#addAnswer(half, out);
  }

  #releaseReasoning(out: CompletionDelta[]): void {
    const half = this.#reasoning.flush();
    if (half !== "" && this.#open === "reasoning") out.push(reasoningDelta(this.#openIndex, half));
  }
}
