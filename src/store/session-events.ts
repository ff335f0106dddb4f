/**
 * The events of sessions: rows that every change leaves in its own transaction, and wake-ups for whoever watches.
 *
 * E1 A reader gets each event once and misses none: its token is the snapshot of its last read, and new to it is what is
 *    visible now and was not then. No order of commits, and no number that grows, has to be trusted.
 * E2 A wake-up is a hint: watchers here are called at once, other processes by NOTIFY, in a statement of its own, because
 *    transactions that notify commit one after the other. Lost ones are made up for by readers that look by themselves.
 * E3 What is too old or too much to be told one by one is `missed`, never a silent gap.
 */
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import type { Owner, Principal } from "../lib/rpc/service-binding.js";
import { newId } from "../lib/ids.js";
import { bytes, type Db, type Queryable } from "./db.js";
import type { Listener } from "./listener.js";
import { ownerKey } from "./owner-key.js";
import { openToken, sealToken, type SortKey } from "./page-token.js";
import { packSnapshot, unpackSnapshot } from "./snapshot-token.js";
import type { MessageEvent, SessionEventRow, SessionEvents, Store } from "./store.js";

const KINDS = [
  "updated",
  "deleted",
  "turn_started",
  "turn_ended",
  "document",
  "title",
  "tags",
  "follow_ups",
  "document_deleted",
] as const satisfies readonly SessionEventRow["kind"][];

/** The number of an event's kind in the rows. */
export const EVENT = {
  updated: 1,
  deleted: 2,
  turnStarted: 3,
  turnEnded: 4,
} as const;

/** Most events of one read; a reader that missed more reads its sessions anew. */
const MAX_EVENTS = 500;
/** Events are told for this long. They are removed a little later, so that no read finds a gap. */
const TOLD_MS = 60 * 60 * 1000;
const REMOVED_AFTER = "interval '70 minutes'";

export type SessionEventMethods = Pick<
  Store,
  "publishSessionEvent" | "wakeWatchers" | "readSessionEvents" | "onSessionEvent" | "forgetSessionEvents"
>;

export function sessionEventMethods(db: Db, wakes: EventWakes): SessionEventMethods {
  return {
    publishSessionEvent: (principal, event) => publish(db, wakes, principal, event),
    wakeWatchers: (owner) => wakes.wake(owner),
    readSessionEvents: (principal, token) => readEvents(db, principal, token),
    onSessionEvent: (principal, wake) => wakes.subscribe(principal, wake),
    forgetSessionEvents: (limit) => forget(db, limit),
  };
}

/** Tells watchers, here and in other processes, that an owner has new events. Call it after the commit. */
export class EventWakes {
  readonly #db: Db;
  readonly #listener: Listener;
  readonly #logger: Logger;
  /** Marks this process's own notifications, which its watchers have no need of. */
  readonly #self = newId();
  readonly #watchers = new Map<string, Set<() => void>>();
  readonly #pending = new Set<string>();
  #sending = false;
  #unlisten: (() => void) | undefined;

  constructor(db: Db, listener: Listener, logger: Logger) {
    this.#db = db;
    this.#listener = listener;
    this.#logger = logger;
  }

  /** New events of the owner are committed. */
  wake(owner: Owner): void {
    const key = ownerKey(owner);
    this.#call(key);
    this.#pending.add(key);
    if (!this.#sending) void this.#send();
  }

  subscribe(owner: Owner, wake: () => void): () => void {
    const key = ownerKey(owner);
    const watchers = this.#watchers.get(key) ?? new Set();
    this.#watchers.set(key, watchers.add(wake));
    this.#unlisten ??= this.#listener.subscribe("turnwire_session_event", (payload) => this.#heard(payload));
    return () => {
      watchers.delete(wake);
      if (watchers.size === 0 && this.#watchers.get(key) === watchers) this.#watchers.delete(key);
    };
  }

  #heard(payload: string | undefined): void {
    if (payload === undefined) {
      for (const key of this.#watchers.keys()) this.#call(key); // the connection is new: anything may have been missed
      return;
    }
    const [from, key] = payload.split(" ");
    if (from !== this.#self) this.#call(key!);
  }

  #call(key: string): void {
    for (const wake of this.#watchers.get(key) ?? []) wake();
  }

  /** One statement at a time; what comes meanwhile goes with the next. */
  async #send(): Promise<void> {
    this.#sending = true;
    try {
      while (this.#pending.size > 0) {
        const keys = [...this.#pending].map((key) => `${this.#self} ${key}`);
        this.#pending.clear();
        await this.#db.readers.query(NOTIFY, [keys]);
      }
    } catch (error) {
      this.#logger.debug({ err: error }, "watchers in other processes were not woken");
    } finally {
      this.#sending = false;
    }
  }
}

const NOTIFY = {
  name: "notify_session_events",
  text: "select pg_notify('turnwire_session_event', key) from unnest($1::text[]) as key",
};

async function publish(db: Db, wakes: EventWakes, principal: Principal, event: MessageEvent): Promise<void> {
  await insertEvent(db.readers, principal, event);
  wakes.wake(principal);
}

/** Leaves an event in the transaction of its change. Wake the watchers after the commit. */
export async function insertEvent(
  tx: Queryable,
  { tenantId, userId }: Owner,
  event: MessageEvent,
): Promise<void> {
  await tx.query(
    `insert into turnwire.session_events (tenant_id, user_id, kind, session_id, data) values ($1, $2, $3, $4, $5)`,
    [tenantId, userId, KINDS.indexOf(event.kind) + 1, event.sessionId, event.data],
  );
}

interface RawRead {
  readonly snapshot: string;
  readonly at_ms: string;
  readonly born_ms: string;
  readonly kind: number | null;
  readonly session_id: string;
  readonly turn_id: string;
  readonly data: Buffer | null;
}

const MS = (time: string): string => `floor(extract(epoch from ${time}) * 1000)::bigint`;

/** Where a reader stands: the statement's own snapshot, the time, and which database this is (by when it was made). */
const NOW = `
  select pg_current_snapshot() as snapshot, ${MS("clock_timestamp()")} as at_ms,
    (select ${MS("min(apply_time)")} from turnwire.migrations) as born_ms`;

/** The snapshot of this very statement, and what it shows that the given one did not. */
const READ_EVENTS = {
  name: "read_session_events",
  text: `
    with now as materialized (${NOW})
    select now.snapshot::text, now.at_ms, now.born_ms, e.kind, e.session_id, e.turn_id, e.data
    from now left join lateral (
      select * from turnwire.session_events
      where tenant_id = $1 and user_id = $2
        and xact_id >= pg_snapshot_xmin($3::pg_snapshot) and xact_id < pg_snapshot_xmax(now.snapshot)
        and not pg_visible_in_snapshot(xact_id, $3::pg_snapshot)
      order by ordinal limit ${MAX_EVENTS + 1}) e on true
    order by e.ordinal`,
};

const WHERE_NOW = {
  name: "where_session_events_are",
  text: `select now.snapshot::text, now.at_ms, now.born_ms, null as kind from (${NOW}) now`,
};

async function readEvents(db: Db, principal: Principal, token: string): Promise<SessionEvents> {
  const scope = ["session_events", principal.tenantId, principal.userId];
  const since = token === "" ? undefined : readToken(token, scope);
  const raw = since
    ? await db.readers.query<RawRead>(READ_EVENTS, [principal.tenantId, principal.userId, since.snapshot])
    : await db.readers.query<RawRead>(WHERE_NOW);
  const { snapshot, at_ms: atMs, born_ms: bornMs } = raw[0]!;
  const next = sealToken([Number(atMs), packSnapshot(snapshot), Number(bornMs)], scope);
  const found = raw.filter((row) => row.kind !== null);
  const missed =
    since !== undefined &&
    (found.length > MAX_EVENTS ||
      Number(atMs) - since.atMs > TOLD_MS ||
      since.bornMs !== Number(bornMs) ||
      isAhead(since.snapshot, snapshot));
  return { rows: missed ? [] : found.map(toEventRow), token: next, missed };
}

interface Place {
  readonly atMs: number;
  readonly snapshot: string;
  readonly bornMs: number;
}

function readToken(token: string, scope: SortKey): Place {
  const [atMs, packed, bornMs] = openToken(token, scope) ?? [];
  if (typeof atMs === "number" && typeof packed === "string" && typeof bornMs === "number")
    return { atMs, snapshot: unpackSnapshot(packed), bornMs };
  throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
    message: "after_event_token is not one of this caller's: leave it empty",
    details: { field: "after_event_token" },
  });
}

/** A token of a database that was since put back to an earlier state. */
function isAhead(token: string, now: string): boolean {
  const xmax = (snapshot: string): bigint => BigInt(snapshot.split(":")[1]!);
  return xmax(token) > xmax(now);
}

function toEventRow(raw: RawRead): SessionEventRow {
  const kind = KINDS[raw.kind! - 1]!;
  const sessionId = raw.session_id;
  switch (kind) {
    case "updated":
    case "deleted":
      return { kind, sessionId };
    case "turn_started":
    case "turn_ended":
      return { kind, sessionId, turnId: raw.turn_id };
    default:
      return { kind, sessionId, data: raw.data ? bytes(raw.data) : new Uint8Array() };
  }
}

/** The oldest first; what another process is at is left to it. */
async function forget(db: Db, limit: number): Promise<number> {
  const gone = await db.writers.query(
    `with oldest as (
       select ordinal from turnwire.session_events order by ordinal limit $1 for update skip locked)
     delete from turnwire.session_events e using oldest
     where e.ordinal = oldest.ordinal and e.create_time < clock_timestamp() - ${REMOVED_AFTER} returning 1`,
    [limit],
  );
  return gone.length;
}
