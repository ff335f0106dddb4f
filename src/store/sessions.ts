/** Sessions: made once per request_id, listed newest change first, deleted with everything below them. */
import type { Principal } from "../lib/rpc/service-binding.js";
import { bytes, type Db } from "./db.js";
import { pageSize, startAfter, toPage } from "./page-token.js";
import type { SessionChanges, SessionRow, Store } from "./store.js";
import { EVENT, type EventWakes } from "./session-events.js";
import { selectTurns, toTurnRow, type RawTurn } from "./turn-rows.js";

export const SESSION_COLUMNS =
  "session_id, title, tags, settings, current_message_id, create_time, update_time, revision, archived";

export interface RawSession {
  readonly session_id: string;
  readonly title: string;
  readonly tags: string[];
  readonly settings: Buffer;
  readonly current_message_id: string;
  readonly create_time: Date;
  readonly update_time: Date;
  readonly revision: string;
  readonly archived: boolean;
}

export function toSessionRow(raw: RawSession): SessionRow {
  return {
    sessionId: raw.session_id,
    title: raw.title,
    tags: raw.tags,
    settings: bytes(raw.settings),
    currentMessageId: raw.current_message_id,
    createTime: raw.create_time,
    updateTime: raw.update_time,
    revision: BigInt(raw.revision),
    archived: raw.archived,
  };
}

export type SessionMethods = Pick<
  Store,
  "createSession" | "getSession" | "getSessions" | "listSessions" | "updateSession" | "deleteSession"
>;

export function sessionMethods(db: Db, wakes: EventWakes): SessionMethods {
  return {
    createSession: (principal, input) => createSession(db, wakes, principal, input),
    getSession: (principal, sessionId) => getSession(db, principal, sessionId),
    getSessions: (principal, sessionIds) => getSessions(db, principal, sessionIds),
    listSessions: (principal, page, filter) => listSessions(db, principal, page, filter),
    updateSession: (principal, sessionId, changes) => updateSession(db, wakes, principal, sessionId, changes),
    deleteSession: (principal, sessionId) => deleteSession(db, wakes, principal, sessionId),
  };
}

/** An insert of the event that the session in the CTE `changed` was made or changed. */
export const TELL_UPDATED = `
  insert into turnwire.session_events (tenant_id, user_id, kind, session_id)
  select tenant_id, user_id, ${EVENT.updated}, session_id from changed`;

async function createSession(
  db: Db,
  wakes: EventWakes,
  principal: Principal,
  input: Parameters<Store["createSession"]>[1],
): Promise<SessionRow> {
  const { tenantId, userId } = principal;
  const requestId = input.requestId === "" ? null : input.requestId;
  const made = await db.readers.query<RawSession>(
    `with changed as (
       insert into turnwire.sessions (session_id, tenant_id, user_id, request_id, settings, title, tags)
       values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing returning *), event as (${TELL_UPDATED})
     select ${SESSION_COLUMNS} from changed`,
    [input.sessionId, tenantId, userId, requestId, input.settings, input.title, input.tags],
  );
  if (made[0]) {
    wakes.wake(principal);
    return toSessionRow(made[0]);
  }
  // Made before: by the same request, or by this very call before its connection broke.
  const known = await db.readers.query<RawSession>(
    `select ${SESSION_COLUMNS} from turnwire.sessions
     where tenant_id = $1 and user_id = $2 and (session_id = $3 or request_id = $4)`,
    [tenantId, userId, input.sessionId, requestId],
  );
  if (known[0]) return toSessionRow(known[0]);
  throw new Error(`session id ${input.sessionId} is taken`);
}

async function getSession(db: Db, principal: Principal, sessionId: string): Promise<SessionRow | undefined> {
  const rows = await db.readers.query<RawSession>(
    {
      name: "get_session",
      text: `select ${SESSION_COLUMNS} from turnwire.sessions where session_id = $1 and tenant_id = $2 and user_id = $3`,
    },
    [sessionId, principal.tenantId, principal.userId],
  );
  return rows[0] && toSessionRow(rows[0]);
}

async function getSessions(
  db: Db,
  { tenantId, userId }: Principal,
  sessionIds: readonly string[],
): Promise<SessionRow[]> {
  const rows = await db.readers.query<RawSession>(
    {
      name: "get_sessions",
      text: `select ${SESSION_COLUMNS} from turnwire.sessions where session_id = any ($1) and tenant_id = $2 and user_id = $3`,
    },
    [sessionIds, tenantId, userId],
  );
  return rows.map(toSessionRow);
}

async function updateSession(
  db: Db,
  wakes: EventWakes,
  principal: Principal,
  sessionId: string,
  changes: SessionChanges,
): Promise<SessionRow | undefined> {
  const { title = null, tags = null, settings = null, archived = null } = changes;
  const rows = await db.readers.query<RawSession>(
    `with changed as (
       update turnwire.sessions set title = coalesce($4, title), tags = coalesce($5::text[], tags),
         settings = coalesce($6::bytea, settings), archived = coalesce($7::boolean, archived),
         update_time = clock_timestamp(), revision = revision + 1
       where session_id = $1 and tenant_id = $2 and user_id = $3 returning *), event as (${TELL_UPDATED})
     select ${SESSION_COLUMNS} from changed`,
    [sessionId, principal.tenantId, principal.userId, title, tags, settings, archived],
  );
  if (!rows[0]) return undefined;
  wakes.wake(principal);
  return toSessionRow(rows[0]);
}

const listSessions = async (
  db: Db,
  { tenantId, userId }: Principal,
  page: Parameters<Store["listSessions"]>[1],
  filter: Parameters<Store["listSessions"]>[2],
): ReturnType<Store["listSessions"]> => {
  const scope = ["sessions", tenantId, userId, filter.query, String(filter.onlyActive)];
  const [updatedMs, sessionId] = startAfter(page, scope) ?? [null, null];
  const size = pageSize(page);
  const rows = await db.readers.query<RawSession>(
    `select ${SESSION_COLUMNS} from turnwire.sessions s
     where tenant_id = $1 and user_id = $2
       and ($3::text[] = '{}' or title ilike all ($3::text[]))
       and (not $4::boolean or exists (select from turnwire.turns t where t.session_id = s.session_id and t.phase = 1))
       and ($5::timestamptz is null or (update_time, session_id) < ($5::timestamptz, $6))
     order by update_time desc, session_id desc limit $7`,
    [
      tenantId,
      userId,
      wordPatterns(filter.query),
      filter.onlyActive,
      updatedMs === null ? null : new Date(updatedMs as number),
      sessionId as string,
      size + 1,
    ],
  );
  return toPage(rows, size, scope, (row) => [row.update_time.getTime(), row.session_id], toSessionRow);
};

/** Each word of the query, wherever it stands in the title. */
function wordPatterns(query: string): string[] {
  return query
    .split(/\s+/)
    .filter((word) => word !== "")
    .map((word) => `%${word.replace(/[\\%_]/g, "\\$&")}%`);
}

async function deleteSession(
  db: Db,
  wakes: EventWakes,
  principal: Principal,
  sessionId: string,
): ReturnType<Store["deleteSession"]> {
  const owned = [sessionId, principal.tenantId, principal.userId];
  // Turns before the session, in the order in which a commit locks them.
  const deleted = await db.readers.transaction(
    async (tx) => {
      await tx.query(
        "select 1 from turnwire.turns where session_id = $1 and tenant_id = $2 and user_id = $3 order by turn_id for update",
        owned,
      );
      const session = await tx.query(
        "select 1 from turnwire.sessions where session_id = $1 and tenant_id = $2 and user_id = $3 for update",
        owned,
      );
      if (session.length === 0) return undefined;
      const turns = await tx.query<RawTurn>(selectTurns("t.session_id = $1 order by t.start_time"), [
        sessionId,
      ]);
      await tx.query("delete from turnwire.sessions where session_id = $1", [sessionId]);
      await tx.query(
        "delete from turnwire.session_events where session_id = $1 and tenant_id = $2 and user_id = $3",
        owned,
      );
      await tx.query(
        `insert into turnwire.session_events (session_id, tenant_id, user_id, kind) values ($1, $2, $3, ${EVENT.deleted})`,
        owned,
      );
      return { turns: turns.map(toTurnRow) };
    },
    { repeat: false },
  );
  if (deleted) wakes.wake(principal);
  return deleted;
}
