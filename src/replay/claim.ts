/**
 * How a writer uses the log: it claims the turn before it reads or does anything else, and repeats every append until its
 * outcome is known. Both are written against the port alone.
 */
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { assertNever } from "../lib/assert-never.js";
import { systemClock, type Clock } from "../lib/clock.js";
import { TurnError } from "../lib/errors.js";
import {
  NOTHING,
  type Entry,
  type LoggedEntry,
  type Position,
  type ReplayLog,
  type TurnLogKey,
} from "./replay-log.js";

const RETRY_FIRST_MS = 50;
const RETRY_MOST_MS = 500;

export type SureOutcome =
  | { readonly kind: "appended"; readonly position: Position }
  /** Another writer owns the turn now, or it was erased: write nothing more. */
  | { readonly kind: "fenced"; readonly last: LoggedEntry }
  /** The log lost entries that it had acknowledged: end the turn, never renumber. */
  | { readonly kind: "truncated"; readonly last: LoggedEntry | undefined }
  /** The store is full: nothing was stored. */
  | { readonly kind: "full" };

export interface SureOptions {
  readonly clock?: Clock;
}

/**
 * Appends until the outcome is known: an unknown one is repeated with the same bytes and the same expectation, 50 to
 * 500 ms apart, until `signal` aborts (then its reason is thrown; the entry may be in the log).
 */
export async function appendSurely(
  log: ReplayLog,
  turn: TurnLogKey,
  expected: Position,
  entry: Entry,
  signal: AbortSignal,
  options: SureOptions = {},
): Promise<SureOutcome> {
  const clock = options.clock ?? systemClock;
  for (let pause = RETRY_FIRST_MS; ; pause = Math.min(pause * 2, RETRY_MOST_MS)) {
    signal.throwIfAborted();
    const outcome = await log.append(turn, expected, entry, signal);
    switch (outcome.kind) {
      case "appended":
      case "full":
        return outcome;
      case "refused": {
        const judged = judgeRefusal(expected, entry, outcome.last);
        if (judged) return judged;
        break;
      }
      case "unknown":
        break;
      default:
        assertNever(outcome);
    }
    await clock.sleep(pause, signal);
  }
}

/** What a refusal means; undefined = nothing yet: an earlier attempt is still on its way, so the last entry is not there. */
function judgeRefusal(
  expected: Position,
  entry: Entry,
  last: LoggedEntry | undefined,
): SureOutcome | undefined {
  if ((last?.position ?? NOTHING) === expected) return undefined;
  if (!last || last.position < expected) return { kind: "truncated", last };
  return isSame(last, entry) ? { kind: "appended", position: last.position } : { kind: "fenced", last };
}

/** Whether `last` is what an own earlier attempt to append `entry` stored. */
function isSame(last: LoggedEntry, entry: Entry): boolean {
  return (
    !last.erased &&
    last.epoch === entry.epoch &&
    last.incarnation === entry.incarnation &&
    last.firstSeq === entry.firstSeq &&
    last.lastSeq === entry.lastSeq
  );
}

export interface ClaimOptions {
  /** The epoch in the turn's row. */
  readonly minEpoch: number;
  /** Random id of this process's life. */
  readonly incarnation: string;
  readonly signal: AbortSignal;
  /** The turn is new: the claim's epoch is `minEpoch` itself, and what others have put into the log is left as it is. */
  readonly firstClaim?: boolean;
  readonly clock?: Clock;
}

export interface Claim {
  readonly epoch: number;
  /** Expectation of the owner's next append. */
  readonly position: Position;
  /** The last seq in the log; 0 = no packet yet. */
  readonly lastSeq: number;
  /**
   * The turn's last entry before the claim. Nothing was claimed if it is terminal or erased (the turn has ended), nor after
   * a first claim that found one (the turn is somebody else's).
   */
  readonly lastEntry: LoggedEntry | undefined;
}

/**
 * Makes this process the turn's one writer: appends a claim entry behind whatever is there, as often as it takes. Whoever
 * wrote before is refused from then on. A turn whose last entry is terminal (or a tombstone), or that has any at its first
 * claim, is left as it is: look at `lastEntry` first. Throws the reason of `signal`, OVERLOADED when the store is full,
 * LOG_TRUNCATED when it lost what it had shown.
 */
export async function claimTurn(log: ReplayLog, turn: TurnLogKey, options: ClaimOptions): Promise<Claim> {
  const { minEpoch, incarnation, signal } = options;
  const first = options.firstClaim ?? false;
  let last = first ? undefined : await headSurely(log, turn, options);
  for (;;) {
    signal.throwIfAborted();
    const lastSeq = last?.lastSeq ?? 0;
    if (last && (first || last.terminal || last.erased))
      return { epoch: last.epoch, position: last.position, lastSeq, lastEntry: last };
    const epoch = first ? minEpoch : Math.max(minEpoch, last?.epoch ?? 0) + 1;
    const claim: Entry = {
      epoch,
      incarnation,
      firstSeq: lastSeq + 1,
      lastSeq,
      terminal: false,
      batch: new Uint8Array(0),
    };
    const outcome = await appendSurely(log, turn, last?.position ?? NOTHING, claim, signal, options);
    switch (outcome.kind) {
      case "appended":
        return { epoch, position: outcome.position, lastSeq, lastEntry: last };
      case "fenced":
        last = outcome.last;
        break;
      case "truncated":
        throw new TurnError(ErrorCode.LOG_TRUNCATED);
      case "full":
        throw new TurnError(ErrorCode.OVERLOADED, { message: "the log is full" });
      default:
        assertNever(outcome);
    }
  }
}

async function headSurely(
  log: ReplayLog,
  turn: TurnLogKey,
  options: ClaimOptions,
): Promise<LoggedEntry | undefined> {
  const clock = options.clock ?? systemClock;
  for (let pause = RETRY_FIRST_MS; ; pause = Math.min(pause * 2, RETRY_MOST_MS)) {
    try {
      return await log.head(turn, options.signal);
    } catch (error) {
      options.signal.throwIfAborted();
      if (!(error instanceof TurnError) || error.code !== ErrorCode.UNAVAILABLE) throw error;
    }
    await clock.sleep(pause, options.signal);
  }
}
