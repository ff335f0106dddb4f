/**
 * The blocks of one answer, for dialects whose server opens and closes blocks itself and may interleave them. Beside
 * answer-writer.ts, which finds the blocks in a flat stream of fragments.
 * Owns the numbers of the blocks and what of their text is held back. B1 a block gets its index when it first shows
 * something, counted from 0. B2 no delta holds an empty text or half a surrogate pair. B3 a call is complete when its server
 * said so, else only in an answer that ended properly; its arguments are a whole JSON object then (a custom call's: a JSON
 * string, marked as no object).
 */
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { contentDelta, reasoningDelta, refusalDelta } from "../../deltas.js";
import { SurrogateJoiner } from "../../well-formed.js";
import type { AnswerWriterOptions } from "./answer-writer.js";
import { CallBlock, type CallOptions } from "./call-block.js";
import { createTagSplitter, type ReasoningTagSplitter, type TaggedPiece } from "./reasoning-tags.js";
import type { CallsEnd, SettledCalls } from "./tool-call-assembler.js";

export class BlockWriter {
  readonly #options: AnswerWriterOptions;
  readonly #texts = new Set<TextBlock>();
  readonly #calls: CallBlock[] = [];
  readonly #callIds = new Set<string>();
  readonly #refusal = new SurrogateJoiner();
  readonly #tags: ReasoningTagSplitter | undefined;
  #lastText: TextBlock | undefined;
  #nextIndex = 0;
  #hasText = false;
  #hasOutput = false;
  #hasRefusal = false;

  constructor(options: AnswerWriterOptions) {
    this.#options = options;
    this.#tags = createTagSplitter(options);
  }

  /** Anything was handed out. */
  get hasOutput(): boolean {
    return this.#hasOutput;
  }

  /** The model refused and said nothing else. */
  get onlyRefused(): boolean {
    return this.#hasRefusal && !this.#hasText;
  }

  /** A reasoning tag is open in the text. */
  get reasoningOpen(): boolean {
    return this.#tags?.open ?? false;
  }

  /** The index that the next block to show something will get. */
  get nextIndex(): number {
    return this.#nextIndex;
  }

  openText(): TextBlock {
    return this.#keep(new TextBlock(this, "text", false));
  }

  openReasoning(summary: boolean): TextBlock {
    return this.#keep(new TextBlock(this, "reasoning", summary));
  }

  /** Announces the call. An id that was used before belongs to another call all the same. */
  openCall(options: CallOptions, out: CompletionDelta[]): CallBlock {
    const isNew = options.id !== "" && !this.#callIds.has(options.id);
    const callId = isNew ? options.id : this.#options.newCallId();
    this.#callIds.add(callId);
    const call = new CallBlock(options, callId, this.takeIndex());
    this.#calls.push(call);
    call.announce(out);
    return call;
  }

  /** A block of reasoning whose text the server withholds. Gives its index. */
  redacted(out: CompletionDelta[]): number {
    const index = this.takeIndex();
    out.push(reasoningDelta(index, "", { redacted: true }));
    return index;
  }

  refusal(text: string, out: CompletionDelta[]): void {
    const joined = this.#refusal.push(text);
    if (joined === "") return;
    this.#hasRefusal = true;
    this.#hasOutput = true;
    out.push(refusalDelta(joined));
  }

  /** Something that is no block was handed out: a tool that the server ran, an image. */
  noteOutput(): void {
    this.#hasOutput = true;
  }

  /** The end of the answer: everything that was held back, then the last delta of each call that is not complete yet. */
  end(how: CallsEnd, out: CompletionDelta[]): SettledCalls {
    for (const block of this.#texts) block.close(out);
    if (this.#tags && this.#lastText) this.#lastText.write(this.#tags.end(), out);
    const refusal = this.#refusal.flush();
    if (refusal !== "") out.push(refusalDelta(refusal));
    let complete = 0;
    let invalid = 0;
    for (const call of this.#calls) {
      const settled = call.settle(how, call === this.#calls.at(-1), out);
      if (settled === "complete" && call.asksForTools) complete++;
      else if (settled === "invalid") invalid++;
    }
    return { deltas: [], complete, invalid };
  }

  /** For blocks. */
  takeIndex(): number {
    this.#hasOutput = true;
    return this.#nextIndex++;
  }

  /** For blocks: text of the answer, taken apart if the model writes its reasoning into it. */
  split(block: TextBlock, text: string): readonly TaggedPiece[] | undefined {
    this.#hasText = true;
    this.#lastText = block;
    return this.#tags?.push(text);
  }

  /** For blocks: a server that marks reasoning does not write it into the text as well. */
  reasoningSeen(out: CompletionDelta[]): void {
    if (!this.#tags) return;
    const pieces = this.#tags.structured();
    this.#lastText?.write(pieces, out);
  }

  /** For blocks. */
  forget(block: TextBlock): void {
    this.#texts.delete(block);
  }

  #keep(block: TextBlock): TextBlock {
    this.#texts.add(block);
    return block;
  }
}

/** A block of text or reasoning. */
export class TextBlock {
  readonly #writer: BlockWriter;
  readonly #summary: boolean;
  readonly #isAnswer: boolean;
  readonly #joiner = new SurrogateJoiner();
  /** What its next text is; changes only where the text holds reasoning tags. */
  #kind: "text" | "reasoning";
  #index = -1;
  #empty = true;

  constructor(writer: BlockWriter, kind: "text" | "reasoning", summary: boolean) {
    this.#writer = writer;
    this.#kind = kind;
    this.#summary = summary;
    this.#isAnswer = kind === "text";
  }

  /** -1 = it has shown nothing yet. */
  get index(): number {
    return this.#index;
  }

  /** No text has come for it. */
  get empty(): boolean {
    return this.#empty;
  }

  push(text: string, out: CompletionDelta[]): void {
    if (text === "") return;
    this.#empty = false;
    const joined = this.#joiner.push(text);
    if (joined !== "") this.#add(joined, out);
  }

  /** What of it was held back. */
  close(out: CompletionDelta[]): void {
    const rest = this.#joiner.flush();
    if (rest !== "") this.#add(rest, out);
    this.#writer.forget(this);
  }

  /** For the writer. */
  write(pieces: readonly TaggedPiece[], out: CompletionDelta[]): void {
    for (const piece of pieces) {
      if (piece.kind !== this.#kind) this.#index = -1;
      this.#kind = piece.kind;
      this.#show(piece.text, out);
    }
  }

  #add(text: string, out: CompletionDelta[]): void {
    if (!this.#isAnswer) {
      this.#writer.reasoningSeen(out);
      this.#show(text, out);
      return;
    }
    const pieces = this.#writer.split(this, text);
    if (pieces) this.write(pieces, out);
    else this.#show(text, out);
  }

  #show(text: string, out: CompletionDelta[]): void {
    if (this.#index === -1) this.#index = this.#writer.takeIndex();
    out.push(
      this.#kind === "text"
        ? contentDelta(this.#index, text)
        : reasoningDelta(this.#index, text, { summary: this.#summary }),
    );
  }
}
