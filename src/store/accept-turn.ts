/**
 * The accept: one transaction that makes a send a turn, or says why not.
 *
 * I7 The row of the request_id decides: whoever inserts it runs the turn, all others wait for that transaction and read it.
 *    The same row is the tombstone of a stop that came first, so stop and send cannot miss each other.
 * - A session is locked while its branch is extended: of two sends at once one finds the other's turn running.
 * - A turn that answers a message anew has no user message of its own: its answers become siblings of those that are there.
 */
import type pg from "pg";
import type { Principal } from "../lib/rpc/service-binding.js";
import { Undo, type Db, type Param, type Queryable } from "./db.js";
import { searchParams } from "./search-words.js";
import { EVENT, type EventWakes } from "./session-events.js";
import { SESSION_COLUMNS, toSessionRow, type RawSession } from "./sessions.js";
import type { AcceptInput, AcceptOutcome, RepeatOutcome, TurnRow } from "./store.js";
import { selectTurns, toTurnRow, type RawTurn } from "./turn-rows.js";

/** A stop that came before its send is obeyed for this long. */
export const TOMBSTONE_LIFE = "interval '10 minutes'";

export async function acceptTurn(db: Db, wakes: EventWakes, input: AcceptInput): Promise<AcceptOutcome> {
  const outcome = await db.readers.transaction((tx) => accept(tx, input));
  if (outcome.kind === "accepted") wakes.wake(input.principal);
  return outcome;
}

async function accept(tx: Queryable, input: AcceptInput): Promise<AcceptOutcome> {
  const { tenantId, userId } = input.principal;
  const claim = await tx.query<{ stop_requested: boolean }>(CLAIM_REQUEST, [
    tenantId,
    userId,
    input.requestId,
    input.turnId,
    input.requestHash,
  ]);
  if (!claim[0]) return readAccepted(tx, input);
  const sessionId = await openSession(tx, input);
  if (sessionId === undefined) throw decline({ kind: "session_not_found" });
  const made = (await tx.query<MadeTurn>(MAKE_TURN, makeTurnParams(input, sessionId)))[0]!;
  if (made.running_turn_id !== null) throw decline({ kind: "busy", turnId: made.running_turn_id });
  if (made.start_time === null) throw decline({ kind: "parent_not_found" });
  return {
    kind: "accepted",
    turn: acceptedRow(input, sessionId, made.start_time),
    session: toSessionRow(made),
    stopRequested: claim[0].stop_requested,
  };
}

/** Ends the transaction without a trace, and answers. */
function decline(outcome: AcceptOutcome): Undo {
  return new Undo(outcome);
}

const CLAIM_REQUEST = {
  name: "claim_request",
  text: `
    insert into turnwire.turn_requests as r (tenant_id, user_id, request_id, turn_id, request_hash)
    values ($1, $2, $3, $4, $5)
    on conflict (tenant_id, user_id, request_id) do update set turn_id = excluded.turn_id, request_hash = excluded.request_hash
      where r.turn_id is null
    returning coalesce(r.stop_time > clock_timestamp() - ${TOMBSTONE_LIFE}, false) as stop_requested`,
};

/** The request was accepted before: by another send, or by this very call before its connection broke. */
async function readAccepted(tx: Queryable, input: AcceptInput): Promise<AcceptOutcome> {
  // The claim locked the row, so it is there; its turn goes only together with it.
  const row = (await readRequest(tx, input.principal, input.requestId))!;
  // Taken over since, by whoever found it without its owner: it is theirs to end, and here a turn like any other's.
  if (row.turn_id !== input.turnId || row.epoch > 0) return repeatOf(row, input.requestHash);
  const session = await tx.query<RawSession>(
    `select ${SESSION_COLUMNS} from turnwire.sessions where session_id = $1`,
    [row.session_id],
  );
  return {
    kind: "accepted",
    turn: toTurnRow(row),
    session: toSessionRow(session[0]!),
    stopRequested: row.stop_requested,
  };
}

export async function findAccepted(
  db: Db,
  principal: Principal,
  requestId: string,
  requestHash: string,
): Promise<RepeatOutcome | undefined> {
  const row = await readRequest(db.readers, principal, requestId);
  return row && repeatOf(row, requestHash);
}

type RawRequest = RawTurn & { readonly request_hash: string; readonly stop_requested: boolean };

/** The request with its turn; undefined also for a stop that came first. */
async function readRequest(
  tx: Queryable,
  { tenantId, userId }: Principal,
  requestId: string,
): Promise<RawRequest | undefined> {
  const rows = await tx.query<RawRequest>(
    `select r.request_hash, coalesce(r.stop_time > clock_timestamp() - ${TOMBSTONE_LIFE}, false) as stop_requested, turn.*
     from turnwire.turn_requests r cross join lateral (${selectTurns("t.turn_id = r.turn_id")}) turn
     where r.tenant_id = $1 and r.user_id = $2 and r.request_id = $3`,
    [tenantId, userId, requestId],
  );
  return rows[0];
}

function repeatOf(row: RawRequest, requestHash: string): RepeatOutcome {
  return row.request_hash === requestHash ? { kind: "replayed", turn: toTurnRow(row) } : { kind: "conflict" };
}

/** Locks the session, or makes it; undefined = not there, or not the caller's. */
async function openSession(tx: Queryable, input: AcceptInput): Promise<string | undefined> {
  const { tenantId, userId } = input.principal;
  if (input.sessionId !== "") {
    const rows = await tx.query(LOCK_SESSION, [input.sessionId, tenantId, userId]);
    return rows.length === 0 ? undefined : input.sessionId;
  }
  const { sessionId, settings, title } = input.newSession;
  await tx.query(
    {
      name: "make_session",
      text: `insert into turnwire.sessions (session_id, tenant_id, user_id, settings, title, tags, revision) values ($1, $2, $3, $4, $5, '{}', 0)`,
    },
    [sessionId, tenantId, userId, settings, title],
  );
  return sessionId;
}

const LOCK_SESSION = {
  name: "lock_session",
  text: "select 1 from turnwire.sessions where session_id = $1 and tenant_id = $2 and user_id = $3 for no key update",
};

type MadeTurn = RawSession &
  pg.QueryResultRow & { readonly running_turn_id: string | null; readonly start_time: Date | null };

/**
 * Everything that a new turn is made of, if the session is idle and the parent fits. It begins after the session's lock
 * is held, so it sees what others committed before.
 */
const MAKE_TURN = {
  name: "make_turn",
  text: `
    with running as (
      select turn_id from turnwire.turns where session_id = $1 and phase = 1
    ), parent as (
      select coalesce($4, s.current_message_id) as id from turnwire.sessions s
      where s.session_id = $1 and not exists (select from running)
    ), fit as (
      select id from parent
      where case
        when $13::bytea is null
          then exists (select from turnwire.messages m where m.message_id = $10 and m.session_id = $1 and m.role = 1)
        else id = '' or exists (select from turnwire.messages m where m.message_id = id and m.session_id = $1 and m.role = 2)
      end
    ), turn as (
      insert into turnwire.turns (turn_id, session_id, tenant_id, user_id, request_id, partition, log_id, owner,
        user_message_id, plan, session_created)
      select $5, $1, $2, $3, $6, $7, $8, $9, $10, $11, $12 from fit
      returning start_time
    ), message as (
      insert into turnwire.messages (message_id, session_id, tenant_id, user_id, parent_message_id, turn_id, model_index, role,
        input, search_text, search)
      select m.id, $1, $2, $3, case when m.at = 1 then fit.id else $10 end, $5, m.model_index,
        case when m.at = 1 then 1 else 2 end, case when m.at = 1 then $13::bytea end,
        case when m.at = 1 then $21 else '' end, case when m.at = 1 then $22::tsvector end
      from fit, unnest($14::text[], $15::integer[]) with ordinality as m (id, model_index, at)
      where m.at > 1 or $13::bytea is not null
      order by m.at
    ), lane as (
      insert into turnwire.lanes (turn_id, model_index, tenant_id, user_id, model_id, message_id)
      select $5, l.model_index, $2, $3, l.model_id, l.message_id
      from fit, unnest($16::integer[], $17::text[], $18::text[]) as l (model_index, model_id, message_id)
    ), session as (
      update turnwire.sessions s set current_message_id = $19, update_time = clock_timestamp(), revision = revision + 1,
        title = case when s.title = '' then $20 else s.title end
      from fit where s.session_id = $1
      returning s.session_id, s.title, s.tags, s.settings, s.current_message_id, s.create_time, s.update_time, s.revision, s.archived
    ), event as (
      insert into turnwire.session_events (tenant_id, user_id, kind, session_id, turn_id)
      select $2, $3, e.kind, $1, e.turn_id
      from fit, (values (1, ${EVENT.updated}, ''), (2, ${EVENT.turnStarted}, $5)) as e (at, kind, turn_id)
      order by e.at
    )
    select (select turn_id from running limit 1) as running_turn_id, turn.start_time, session.*
    from (values (1)) one left join turn on true left join session on true`,
};

function makeTurnParams(input: AcceptInput, sessionId: string): Param[] {
  const { tenantId, userId } = input.principal;
  const lanes = [...input.lanes].sort((a, b) => a.modelIndex - b.modelIndex);
  const messageIds = lanes.map((lane) => lane.messageId);
  const indexes = lanes.map((lane) => lane.modelIndex);
  return [
    sessionId,
    tenantId,
    userId,
    input.parentMessageId ?? null,
    input.turnId,
    input.requestId,
    input.partition,
    input.logId,
    input.owner,
    input.userMessageId,
    input.plan,
    input.sessionId === "",
    input.userInput ?? null,
    [input.userMessageId, ...messageIds],
    [null, ...indexes],
    indexes,
    lanes.map((lane) => lane.modelId),
    messageIds,
    messageIds[0] ?? "",
    input.newSession.title,
    ...searchParams(input.principal, input.searchText),
  ];
}

function acceptedRow(input: AcceptInput, sessionId: string, startTime: Date): TurnRow {
  return {
    turnId: input.turnId,
    sessionId,
    tenantId: input.principal.tenantId,
    userId: input.principal.userId,
    requestId: input.requestId,
    partition: input.partition,
    logId: input.logId,
    phase: "running",
    epoch: 0,
    owner: input.owner,
    userMessageId: input.userMessageId,
    plan: input.plan,
    sessionCreated: input.sessionId === "",
    startTime,
    endTime: undefined,
    outcome: 0,
    stopReason: 0,
    usage: undefined,
    terminalSeq: 0,
    terminalBatch: undefined,
    archivedSeq: 0,
    lanes: [...input.lanes]
      .sort((a, b) => a.modelIndex - b.modelIndex)
      .map((lane) => ({ ...lane, outcome: 0, usage: undefined })),
  };
}
