/**
 * What to do when a turn's stream has ended: try again (how, from where, after how long), ask whether the turn is over,
 * or give up. Pure: chance comes in as a number, time goes out as one.
 *
 * 1. A stream that ended is never the end of a turn; only a terminal packet is.
 * 2. Until the receipt has arrived the send is repeated with its request_id; after it the turn is resumed by its id.
 * 3. What the service refuses for good is given up at once; what it offers a snapshot for is asked for one, once.
 * 4. The wait grows with the attempts since something new arrived, and is never shorter than the server asked for.
 */
import { SnapshotPolicy } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { assertNever } from "../lib/assert-never.js";
import { clientError, type TurnwireClientError } from "./errors.js";

/** How one attempt asks for the turn. */
export type Approach =
  /** Sends the message (again), always with the same request_id. */
  | { readonly via: "send" }
  /**
   * Reads the turn's log after the last seq. `snapshot` offers to take a state for packets that are gone; `fromStart`
   * forgets what is held and reads from 0, in the log named `logId`.
   */
  | {
      readonly via: "resume";
      readonly snapshot: SnapshotPolicy;
      readonly fromStart?: { readonly logId: string };
    };

/** The usual resume: exactly the packets after the last seq. */
export const RESUME_EXACT: Approach = { via: "resume", snapshot: SnapshotPolicy.NEVER };

/** Why an attempt is over although no terminal packet has come. */
export type Ending =
  /** The stream was closed in good order. `nothingNew`: this attempt brought no packet and no snapshot. */
  | { readonly kind: "ended"; readonly nothingNew: boolean }
  | { readonly kind: "failed"; readonly error: TurnwireClientError }
  /** Neither a packet nor a heartbeat for so long. */
  | { readonly kind: "silent"; readonly waitedMs: number }
  /** Packets are missing between the last seq and what came next (or what a heartbeat says is there). */
  | { readonly kind: "gap"; readonly expectedSeq: number; readonly gotSeq: number }
  /** A packet that must be understood is not known to this client: the server's fold has to help. */
  | { readonly kind: "misunderstood"; readonly seq: number }
  /** The message joined a running turn, whose earlier packets this stream will not bring. */
  | { readonly kind: "steered" };

/** The limits of trying again. */
export interface RetryLimits {
  /** Longest wait between two attempts, milliseconds. */
  readonly maxBackoffMs: number;
  /** Attempts in a row that may bring nothing, once the server has been heard. */
  readonly maxAttempts: number;
  /** Attempts that may fail before the server has been heard at all. */
  readonly maxFirstAttempts: number;
}

export interface Situation {
  readonly ending: Ending;
  readonly approach: Approach;
  /** The turn's id is known: a receipt or a packet has arrived, or the stream was attached. */
  readonly turnKnown: boolean;
  /** The server has been heard at least once. */
  readonly contacted: boolean;
  /** Attempts since something new arrived, this one included: 1, 2, ... */
  readonly attempt: number;
  /** The caller asked for what is there now and not for what comes. */
  readonly follow: boolean;
  /** At least one packet is held or skipped: the cursor is beyond 0. */
  readonly cursorSet: boolean;
  /** Between 0 and 1, from chance. */
  readonly random: number;
  readonly limits: RetryLimits;
}

export type Decision =
  | { readonly kind: "retry"; readonly delayMs: number; readonly approach: Approach }
  /** Nothing came after the cursor: ask the server whether the turn had ended there; if not, do `otherwise`. */
  | { readonly kind: "check-ended"; readonly otherwise: Decision & { readonly kind: "retry" | "give-up" } }
  | { readonly kind: "finish" }
  | { readonly kind: "give-up"; readonly error: TurnwireClientError };

const FIRST_BACKOFF_MS = 100;

/** Codes that are never retried although the table calls them retryable: waiting is the caller's choice. */
const CALLERS_CHOICE: ReadonlySet<ErrorCode> = new Set([ErrorCode.SESSION_BUSY]);

/** The decision after an attempt ended without a terminal packet. */
export function decide(situation: Situation): Decision {
  const { ending } = situation;
  switch (ending.kind) {
    case "ended":
      return afterEnd(situation, ending.nothingNew);
    case "failed":
      return afterFailure(situation, ending.error);
    case "silent":
      return retry(situation, nextApproach(situation));
    case "gap":
    case "steered":
      return retryAtOnce(situation, nextApproach(situation));
    case "misunderstood":
      return retryAtOnce(situation, { via: "resume", snapshot: SnapshotPolicy.ALWAYS });
    default:
      return assertNever(ending, "ending");
  }
}

/** The error that tells a person or a log why an attempt was over. */
export function endingError(ending: Ending): TurnwireClientError {
  switch (ending.kind) {
    case "ended":
      return clientError(ErrorCode.UNAVAILABLE, "the stream ended without a terminal packet");
    case "failed":
      return ending.error;
    case "silent":
      return clientError(
        ErrorCode.UNAVAILABLE,
        `nothing was heard from the server for ${ending.waitedMs} ms`,
      );
    case "gap":
      return clientError(
        ErrorCode.UNAVAILABLE,
        `packets are missing: expected seq ${ending.expectedSeq}, found ${ending.gotSeq}`,
      );
    case "misunderstood":
      return clientError(
        ErrorCode.UNAVAILABLE,
        `packet ${ending.seq} is of a newer version: taking a snapshot`,
      );
    case "steered":
      return clientError(
        ErrorCode.UNAVAILABLE,
        "the message joined a running turn: reading it from its start",
      );
    default:
      return assertNever(ending, "ending");
  }
}

/** The wait before the attempt after `attempt` failures in a row: doubles, with half of it left to chance. */
export function backoffMs(attempt: number, random: number, maxBackoffMs: number): number {
  const full = Math.min(maxBackoffMs, FIRST_BACKOFF_MS * 2 ** Math.min(attempt - 1, 30));
  return full / 2 + (random * full) / 2;
}

function afterEnd(situation: Situation, nothingNew: boolean): Decision {
  if (!situation.follow && situation.turnKnown) return { kind: "finish" };
  const decision = retry(situation, nextApproach(situation));
  return nothingNew && situation.turnKnown && situation.cursorSet
    ? { kind: "check-ended", otherwise: decision }
    : decision;
}

function afterFailure(situation: Situation, error: TurnwireClientError): Decision {
  const { approach, turnKnown } = situation;
  const asked = approach.via === "resume" && approach.snapshot !== SnapshotPolicy.NEVER;
  if (turnKnown && !asked) {
    if (error.code === ErrorCode.CURSOR_EXPIRED && error.details.cursorExpired?.snapshotAvailable) {
      return retryAtOnce(situation, { via: "resume", snapshot: SnapshotPolicy.IF_EXPIRED });
    }
    if (error.code === ErrorCode.LOG_REPLACED && error.details.logReplaced) {
      const fromStart = { logId: error.details.logReplaced.logId };
      return retryAtOnce(situation, { via: "resume", snapshot: SnapshotPolicy.IF_EXPIRED, fromStart });
    }
  }
  if (approach.via === "resume" && approach.snapshot === SnapshotPolicy.ALWAYS && !error.retryable) {
    return retryAtOnce(situation, RESUME_EXACT); // no snapshot to be had: go on with what is understood
  }
  if (!error.retryable || CALLERS_CHOICE.has(error.code)) return { kind: "give-up", error };
  return error.code === ErrorCode.READER_STALLED
    ? retryAtOnce(situation, nextApproach(situation))
    : retry(situation, nextApproach(situation), error.retryAfterMs);
}

/** The same question again, unless the send has been answered meanwhile: then the turn is read. */
function nextApproach({ approach, turnKnown }: Situation): Approach {
  if (!turnKnown) return { via: "send" };
  return approach.via === "send" ? RESUME_EXACT : approach;
}

/** Without a wait the first time; a fault that repeats itself waits like any other. */
function retryAtOnce(
  situation: Situation,
  approach: Approach,
): Decision & { readonly kind: "retry" | "give-up" } {
  return situation.attempt <= 1 ? { kind: "retry", delayMs: 0, approach } : retry(situation, approach);
}

function retry(
  situation: Situation,
  approach: Approach,
  atLeastMs = 0,
): Decision & { readonly kind: "retry" | "give-up" } {
  const { attempt, contacted, limits, random, ending } = situation;
  if (attempt >= (contacted ? limits.maxAttempts : limits.maxFirstAttempts)) {
    return { kind: "give-up", error: endingError(ending) };
  }
  return {
    kind: "retry",
    delayMs: Math.max(atLeastMs, backoffMs(attempt, random, limits.maxBackoffMs)),
    approach,
  };
}
