/** How an entry stands in the stream: subjects, headers, and back. The wire form is public: proto/turnwire/log/v1. */
import type { MsgHdrs } from "nats";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import type { Entry, LoggedEntry, Position, TurnLogKey } from "./replay-log.js";

export const LOG_SUBJECTS = "tw.log.>";
export const LIVE_SUBJECTS = "tw.live.>";

const EPOCH = "Turnwire-Epoch";
const INCARNATION = "Turnwire-Incarnation";
const FIRST_SEQ = "Turnwire-First-Seq";
const LAST_SEQ = "Turnwire-Last-Seq";
const TERMINAL = "Turnwire-Terminal";
const ERASED = "Turnwire-Erased";
const EXPECTED = "Nats-Expected-Last-Subject-Sequence";

/** Where the turn's entries are stored. */
export function logSubject(turn: TurnLogKey): string {
  return `tw.log.${turn.partition}.${subjectToken(turn.turnId)}`;
}

/** Where the stream repeats the turn's entries once they are stored. */
export function liveSubject(turn: TurnLogKey): string {
  return `tw.live.${turn.partition}.${subjectToken(turn.turnId)}`;
}

/** A turn id must be one token: a dot or a wildcard would name other turns' subjects. */
function subjectToken(turnId: string): string {
  if (!/^[A-Za-z0-9_-]{1,128}$/.test(turnId)) {
    throw new TurnError(ErrorCode.INTERNAL, { cause: new Error("a turn id that cannot be a subject token") });
  }
  return turnId;
}

/**
 * The headers of an append. The client's own header object costs more than the rest of a publish; all that a publish asks
 * of one is its bytes.
 */
export function encodeEntryHeaders(
  entry: Entry & { readonly erased?: boolean },
  expected: Position,
): MsgHdrs {
  if (!/^[\x21-\x7e]{1,128}$/.test(entry.incarnation)) {
    throw new TurnError(ErrorCode.INTERNAL, { cause: new Error("an incarnation that cannot be a header") });
  }
  const block =
    `NATS/1.0\r\n${EXPECTED}: ${expected}\r\n${EPOCH}: ${entry.epoch}\r\n${INCARNATION}: ${entry.incarnation}\r\n` +
    `${FIRST_SEQ}: ${entry.firstSeq}\r\n${LAST_SEQ}: ${entry.lastSeq}\r\n` +
    `${entry.terminal ? `${TERMINAL}: 1\r\n` : ""}${entry.erased ? `${ERASED}: 1\r\n` : ""}\r\n`;
  const bytes = Buffer.from(block, "latin1"); // all of it is ASCII
  return { encode: () => bytes } as unknown as MsgHdrs;
}

/** Where header values come from: the client's header object, or a parsed block. */
export interface HeaderSource {
  get(name: string): string | undefined;
}

/** The headers of a stored message as the leader hands them out. */
export function parseHeaderBlock(block: string): HeaderSource {
  const values = new Map<string, string>();
  for (const line of block.split("\r\n").slice(1)) {
    const colon = line.indexOf(":");
    if (colon > 0) values.set(line.slice(0, colon), line.slice(colon + 1).trim());
  }
  return values;
}

/** A stored message as an entry. Throws INTERNAL when it is not one (somebody else wrote on our subjects). */
export function decodeEntry(
  position: number,
  headers: HeaderSource | undefined,
  batch: Uint8Array,
): LoggedEntry {
  const entry = {
    position: position as Position,
    epoch: numberOf(headers, EPOCH),
    incarnation: headers?.get(INCARNATION) ?? "",
    firstSeq: numberOf(headers, FIRST_SEQ),
    lastSeq: numberOf(headers, LAST_SEQ),
    terminal: headers?.get(TERMINAL) === "1",
    batch,
  };
  return headers?.get(ERASED) === "1" ? { ...entry, erased: true } : entry;
}

function numberOf(headers: HeaderSource | undefined, name: string): number {
  const value = headers?.get(name);
  const number = Number(value);
  if (!value || !Number.isSafeInteger(number) || number < 0) {
    throw new TurnError(ErrorCode.INTERNAL, { cause: new Error(`a log entry without a valid ${name}`) });
  }
  return number;
}
