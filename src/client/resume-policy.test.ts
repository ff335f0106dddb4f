import { create } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { describe, expect, it } from "vitest";
import { SnapshotPolicy } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { CursorExpiredSchema, LogReplacedSchema } from "../../gen/turnwire/chat/v1/errors_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { ERROR_TABLE, type KnownErrorCode } from "../lib/errors.js";
import { TurnwireClientError, type ErrorDetails } from "./errors.js";
import { backoffMs, decide, RESUME_EXACT, type Approach, type Situation } from "./resume-policy.js";

const SEND: Approach = { via: "send" };
const IF_EXPIRED: Approach = { via: "resume", snapshot: SnapshotPolicy.IF_EXPIRED };
const ALWAYS: Approach = { via: "resume", snapshot: SnapshotPolicy.ALWAYS };

function served(
  code: KnownErrorCode,
  more: { retryAfterMs?: number; details?: Partial<ErrorDetails> } = {},
): TurnwireClientError {
  const { status, retryable, message } = ERROR_TABLE[code];
  const details = { facts: {}, violations: [], ...more.details };
  return new TurnwireClientError({
    code,
    message,
    status,
    retryable,
    typed: true,
    retryAfterMs: more.retryAfterMs,
    details,
  });
}

function situation(part: Partial<Situation> & Pick<Situation, "ending">): Situation {
  return {
    approach: RESUME_EXACT,
    turnKnown: true,
    contacted: true,
    attempt: 1,
    follow: true,
    cursorSet: true,
    random: 1,
    limits: { maxBackoffMs: 1_000, maxAttempts: 5, maxFirstAttempts: 3 },
    ...part,
  };
}

const failed = (error: TurnwireClientError): Situation["ending"] => ({ kind: "failed", error });
const lost = failed(
  new TurnwireClientError({
    code: ErrorCode.UNAVAILABLE,
    message: "gone",
    status: Code.Unavailable,
    retryable: true,
    typed: false,
  }),
);
const expired = (snapshotAvailable: boolean): TurnwireClientError =>
  served(ErrorCode.CURSOR_EXPIRED, {
    details: { cursorExpired: create(CursorExpiredSchema, { oldestSeq: 9, headSeq: 12, snapshotAvailable }) },
  });
const replaced = served(ErrorCode.LOG_REPLACED, {
  details: { logReplaced: create(LogReplacedSchema, { logId: "log-2", headSeq: 7 }) },
});

const retries: [string, Partial<Situation> & Pick<Situation, "ending">, number, Approach][] = [
  [
    "lost before the receipt: the same send again",
    { ending: lost, turnKnown: false, approach: SEND },
    100,
    SEND,
  ],
  [
    "ended before the receipt: the same send again",
    { ending: { kind: "ended", nothingNew: true }, turnKnown: false, cursorSet: false, approach: SEND },
    100,
    SEND,
  ],
  ["lost after the receipt: the turn is read", { ending: lost, approach: SEND }, 100, RESUME_EXACT],
  ["lost while reading", { ending: lost }, 100, RESUME_EXACT],
  ["ended after packets came", { ending: { kind: "ended", nothingNew: false } }, 100, RESUME_EXACT],
  [
    "ended before any packet, from 0",
    { ending: { kind: "ended", nothingNew: true }, cursorSet: false },
    100,
    RESUME_EXACT,
  ],
  ["silence", { ending: { kind: "silent", waitedMs: 45_000 } }, 100, RESUME_EXACT],
  ["a gap is asked for at once", { ending: { kind: "gap", expectedSeq: 4, gotSeq: 6 } }, 0, RESUME_EXACT],
  [
    "a gap again waits",
    { ending: { kind: "gap", expectedSeq: 4, gotSeq: 6 }, attempt: 2 },
    200,
    RESUME_EXACT,
  ],
  [
    "a steered message reads the running turn",
    { ending: { kind: "steered" }, approach: SEND },
    0,
    RESUME_EXACT,
  ],
  [
    "a stalled reader comes back at once",
    { ending: failed(served(ErrorCode.READER_STALLED)) },
    0,
    RESUME_EXACT,
  ],
  [
    "the server's wait is kept",
    { ending: failed(served(ErrorCode.OVERLOADED, { retryAfterMs: 2_500 })) },
    2_500,
    RESUME_EXACT,
  ],
  ["a lost owner", { ending: failed(served(ErrorCode.OWNER_LOST)) }, 100, RESUME_EXACT],
  ["an expired cursor takes the snapshot", { ending: failed(expired(true)) }, 0, IF_EXPIRED],
  ["a broken snapshot is asked for again", { ending: lost, approach: IF_EXPIRED }, 100, IF_EXPIRED],
  [
    "a replaced log is read from its start",
    { ending: failed(replaced) },
    0,
    { ...IF_EXPIRED, fromStart: { logId: "log-2" } } as Approach,
  ],
  ["an unknown packet takes a snapshot", { ending: { kind: "misunderstood", seq: 5 } }, 0, ALWAYS],
  [
    "no snapshot to be had: on without",
    { ending: failed(served(ErrorCode.NOT_BUILT)), approach: ALWAYS },
    0,
    RESUME_EXACT,
  ],
];

const refusals: [string, TurnwireClientError, Partial<Situation>?][] = [
  ["not found", served(ErrorCode.NOT_FOUND)],
  ["cursor ahead", served(ErrorCode.CURSOR_AHEAD)],
  ["expired without a snapshot", expired(false)],
  ["expired although a snapshot was asked for", expired(true), { approach: IF_EXPIRED }],
  [
    "replaced again while it is read anew",
    replaced,
    { approach: { ...IF_EXPIRED, fromStart: { logId: "log-1" } } as Approach },
  ],
  ["request conflict", served(ErrorCode.REQUEST_CONFLICT), { turnKnown: false, approach: SEND }],
  [
    "busy session: waiting is the caller's choice",
    served(ErrorCode.SESSION_BUSY),
    { turnKnown: false, approach: SEND },
  ],
  ["unauthenticated", served(ErrorCode.UNAUTHENTICATED)],
  ["internal", served(ErrorCode.INTERNAL)],
];

describe("resume policy", () => {
  it.each(retries)("%s", (_name, part, delayMs, approach) => {
    expect(decide(situation(part))).toEqual({ kind: "retry", delayMs, approach });
  });

  it.each(refusals)("gives up: %s", (_name, error, part = {}) => {
    expect(decide(situation({ ...part, ending: failed(error) }))).toEqual({ kind: "give-up", error });
  });

  it("asks whether the turn is over when nothing came after the cursor", () => {
    expect(decide(situation({ ending: { kind: "ended", nothingNew: true } }))).toEqual({
      kind: "check-ended",
      otherwise: { kind: "retry", delayMs: 100, approach: RESUME_EXACT },
    });
  });

  it("takes an orderly end for the end when it was not to follow", () => {
    expect(decide(situation({ ending: { kind: "ended", nothingNew: true }, follow: false }))).toEqual({
      kind: "finish",
    });
    expect(decide(situation({ ending: lost, follow: false })).kind).toBe("retry");
  });

  it("gives up after the attempts that were allowed, fewer if the server was never heard", () => {
    expect(decide(situation({ ending: lost, attempt: 4 })).kind).toBe("retry");
    expect(decide(situation({ ending: lost, attempt: 5 }))).toMatchObject({
      kind: "give-up",
      error: { message: "gone" },
    });
    expect(decide(situation({ ending: lost, attempt: 2, contacted: false })).kind).toBe("retry");
    expect(decide(situation({ ending: lost, attempt: 3, contacted: false })).kind).toBe("give-up");
  });

  it("doubles the wait up to its limit and leaves half of it to chance", () => {
    expect([1, 2, 3, 4, 5, 60].map((attempt) => backoffMs(attempt, 1, 1_000))).toEqual([
      100, 200, 400, 800, 1_000, 1_000,
    ]);
    expect([1, 2, 3].map((attempt) => backoffMs(attempt, 0, 1_000))).toEqual([50, 100, 200]);
  });
});
