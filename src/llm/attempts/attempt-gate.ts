/**
 * What of one attempt may be handed on, and when. Owns what the attempt has said so far.
 * G1 until the attempt shows something, what it says is held: a failure there leaves no trace but its usage; more than 8 MiB of it is
 * SIZE_LIMIT. G2 reasoning is
 * shown at once and can be taken back; content, calls and all else that is shown commit the attempt: nobody is asked again.
 * G3 the end (finish or error) is kept, not handed on: whoever drives the attempt decides what becomes of it. G4 usage is
 * priced; where the provider told none, or the answer was cut, it is estimated and marked.
 */
import { create, toBinary } from "@bufbuild/protobuf";
import {
  CompletionDeltaSchema,
  type CompletionDelta,
  type CompletionInput,
  type FinishDelta,
} from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import {
  ErrorCode,
  FinishReason,
  UsageSchema,
  type Usage,
} from "../../../gen/turnwire/packet/v1/common_pb.js";
import { ERROR_TABLE, TurnError, type KnownErrorCode } from "../../lib/errors.js";
import { estimatedUsage, TokenEstimate, withCost } from "../accounting/usage.js";
import type { PriceConfig } from "../config.js";
import { attemptBoundaryDelta, attemptStartedDelta, usageDelta } from "../deltas.js";

/** How much is held, encoded. */
const MAX_HELD_BYTES = 8 * 1024 * 1024;
/** What each delta costs beside its content. */
const HELD_DELTA_BYTES = 64;

export interface GateOptions {
  /** Number of the attempt, from 1. */
  readonly attempt: number;
  readonly input: CompletionInput;
  readonly price: PriceConfig | undefined;
  /** The name that stands for who answers until the end; "" = nothing is hidden. */
  readonly hiddenAs: string;
}

/** How an attempt ended. */
export type AttemptEnd =
  | { readonly kind: "finished"; readonly finish: FinishDelta }
  | { readonly kind: "failed"; readonly error: TurnError };

export class AttemptGate {
  readonly #options: GateOptions;
  #held: CompletionDelta[] = [];
  #heldBytes = 0;
  #shown = false;
  #committed = false;
  /** Number of the attempt now: a peer behind us may make several. */
  #attempt: number;
  #usage: Usage | undefined;
  /** The newest usage was handed on. */
  #usageTold = false;
  #output = new TokenEstimate();
  /** Pictures that the model made. */
  #images = 0;
  #selected = "";
  #end: AttemptEnd | undefined;

  constructor(options: GateOptions) {
    this.#options = options;
    this.#attempt = options.attempt;
  }

  /** Something was said that cannot be taken back. */
  get committed(): boolean {
    return this.#committed;
  }

  /** Number of the last attempt that was announced. */
  get attempt(): number {
    return this.#attempt;
  }

  /** The model that a peer behind us says it chose; "" = none. */
  get selected(): string {
    return this.#selected;
  }

  /** What the attempt has cost so far. */
  get usage(): Usage | undefined {
    const { input, price } = this.#options;
    const output = this.#output.tokens;
    const finished = this.#end?.kind === "finished";
    if (!this.#usage) {
      // An answer that never began is taken to cost nothing.
      return this.#shown || finished
        ? withCost(estimatedUsage(input, output), price, this.#images)
        : undefined;
    }
    if (finished || this.#usage.outputTokens >= output) return this.#usage;
    const told = create(UsageSchema, { ...this.#usage, outputTokens: output, estimated: true });
    return withCost({ ...told, costMicros: "0" }, price, this.#images);
  }

  /** How it ended; an attempt that said nothing of its end was cut off. */
  get end(): AttemptEnd {
    const end = this.#end ?? {
      kind: "failed",
      error: new TurnError(ErrorCode.UPSTREAM_TRUNCATED),
    };
    if (end.kind === "failed" || this.#shown) return end;
    return emptyAnswer(end.finish) ?? end;
  }

  /** The next deltas of the provider; what of them may go on. */
  take(deltas: readonly CompletionDelta[]): CompletionDelta[] {
    const out: CompletionDelta[] = [];
    for (const delta of deltas) this.#takeOne(delta, out);
    return out;
  }

  /** What is left to say before the end is told. `keepHeld` = false: the attempt leaves no trace but its usage. */
  finish(keepHeld: boolean): CompletionDelta[] {
    const released = this.#release();
    const held = keepHeld ? released : [];
    const { usage } = this;
    const told = usage === undefined || (this.#usageTold && usage === this.#usage);
    this.#usageTold = true;
    return told ? held : [...held, usageDelta(usage, this.#attempt)];
  }

  #takeOne(delta: CompletionDelta, out: CompletionDelta[]): void {
    const step = delta.delta;
    switch (step.case) {
      case "reasoning":
        this.#output.add(step.value.text);
        this.#show(out);
        break;
      case "content":
        if (step.value.text === "") return;
        this.#output.add(step.value.text);
        this.#commit(out);
        break;
      case "refusal":
        if (step.value === "") return;
        this.#output.add(step.value);
        this.#commit(out);
        break;
      case "toolCall":
        this.#output.add(step.value.argumentsFragment);
        this.#commit(out);
        break;
      case "media":
        if (step.value.mediaType.startsWith("image/")) this.#images++;
        this.#commit(out);
        break;
      case "serverToolCall":
      case "citation":
        this.#commit(out);
        break;
      case "usage":
        return this.#takeUsage(step.value.usage, out);
      case "finish":
        this.#end ??= { kind: "finished", finish: step.value };
        return;
      case "error":
        this.#end ??= { kind: "failed", error: errorOf(step.value) };
        return;
      case "modelSelected":
        this.#selected = step.value.modelId;
        if (this.#options.hiddenAs !== "") return;
        break;
      case "attemptStarted":
        return this.#innerAttempt(step.value.attempt, step.value.provider, step.value.upstreamModel, out);
      case "attemptBoundary":
        return this.#innerBoundary(delta, out);
      case "providerState":
      case "parametersDropped":
      case "warning":
      case undefined:
        break;
      default:
        step satisfies never;
    }
    if (this.#end) return; // what comes after the end is nothing
    if (this.#shown) out.push(delta);
    else this.#hold(delta);
  }

  #hold(delta: CompletionDelta): void {
    this.#heldBytes += HELD_DELTA_BYTES + toBinary(CompletionDeltaSchema, delta).length;
    if (this.#heldBytes > MAX_HELD_BYTES)
      throw new TurnError(ErrorCode.SIZE_LIMIT, { message: "the model's answer begins with too much data" });
    this.#held.push(delta);
  }

  #release(): CompletionDelta[] {
    const held = this.#held;
    this.#held = [];
    this.#heldBytes = 0;
    return held;
  }

  #takeUsage(usage: Usage | undefined, out: CompletionDelta[]): void {
    if (!usage) return;
    this.#usage = withCost(usage, this.#options.price, this.#images);
    this.#usageTold = this.#shown && !this.#end;
    if (this.#usageTold) out.push(usageDelta(this.#usage, this.#attempt));
  }

  #show(out: CompletionDelta[]): void {
    if (this.#shown || this.#end) return;
    this.#shown = true;
    for (const delta of this.#release()) out.push(delta);
  }

  #commit(out: CompletionDelta[]): void {
    this.#show(out);
    this.#committed = this.#shown;
  }

  /** A peer behind us asks again by itself: its attempts go on from ours. The first one is ours, and was announced. */
  #innerAttempt(attempt: number, provider: string, upstreamModel: string, out: CompletionDelta[]): void {
    if (attempt <= 1) return;
    this.#attempt = this.#options.attempt + attempt - 1;
    const hidden = this.#options.hiddenAs !== "";
    out.push(attemptStartedDelta(this.#attempt, hidden ? "" : provider, hidden ? "" : upstreamModel));
  }

  #innerBoundary(delta: CompletionDelta, out: CompletionDelta[]): void {
    if (delta.delta.case !== "attemptBoundary" || this.#committed) return;
    const { cause, nextModelId } = delta.delta.value;
    const { hiddenAs } = this.#options;
    out.push(...this.finish(false));
    out.push(
      attemptBoundaryDelta(this.#attempt, boundaryCause(errorOf(cause), hiddenAs), hiddenAs || nextModelId),
    );
    this.#shown = false;
    this.#usage = undefined;
    this.#usageTold = false;
    this.#output = new TokenEstimate();
    this.#images = 0;
  }
}

const NOTHING_SAID: ReadonlySet<FinishReason> = new Set([
  ...[FinishReason.UNSPECIFIED, FinishReason.STOP, FinishReason.OTHER, FinishReason.TOOL_CALLS],
]);

/** An answer that ends as if it were whole and says nothing, or ends in the provider's own failure. */
function emptyAnswer(finish: FinishDelta): AttemptEnd | undefined {
  if (NOTHING_SAID.has(finish.reason))
    return { kind: "failed", error: new TurnError(ErrorCode.EMPTY_RESPONSE) };
  return finish.reason === FinishReason.ERROR
    ? { kind: "failed", error: new TurnError(ErrorCode.UPSTREAM_MALFORMED) }
    : undefined;
}

/** The cause as it may be told: an arena's must not name who failed. */
export function boundaryCause(cause: TurnError, hiddenAs: string): TurnError {
  return hiddenAs === "" ? cause : new TurnError(cause.code, { retryAfterMs: cause.retryAfterMs });
}

type ErrorMessage = Extract<CompletionDelta["delta"], { case: "error" }>["value"];

function errorOf(error: ErrorMessage | undefined): TurnError {
  if (!error) return new TurnError(ErrorCode.UPSTREAM_UNAVAILABLE);
  // A peer of a newer version may know codes that this one does not.
  const code = error.code in ERROR_TABLE ? (error.code as KnownErrorCode) : ErrorCode.INTERNAL;
  const { message, retryAfterMs, details } = error;
  return new TurnError(code, { message, retryAfterMs, details });
}
