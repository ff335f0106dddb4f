/** The message tree of a session: read by page, by branch, by children. */
import type { Principal } from "../lib/rpc/service-binding.js";
import { optionalBytes, type Db } from "./db.js";
import { pageSize, startAfter, toPage } from "./page-token.js";
import type { EventWakes } from "./session-events.js";
import { SESSION_COLUMNS, TELL_UPDATED, toSessionRow, type RawSession } from "./sessions.js";
import type { MessageRow, Store } from "./store.js";

export interface RawMessage {
  readonly message_id: string;
  readonly session_id: string;
  readonly parent_message_id: string;
  readonly turn_id: string;
  readonly model_index: number | null;
  readonly role: number;
  readonly input: Buffer | null;
  readonly answer: Buffer | null;
  readonly ordinal: string;
  readonly create_time: Date;
  readonly child_ids: string[];
  readonly sibling_ids: string[];
  readonly rating: number;
}

const childrenOf = (parent: string): string => `
    array(select c.message_id from turnwire.messages c
          where c.session_id = m.session_id and c.parent_message_id = ${parent} order by c.ordinal)`;

/** What a message is read with; the message is `m`. */
export const MESSAGE_COLUMNS = `
    m.message_id, m.session_id, m.parent_message_id, m.turn_id, m.model_index, m.role, m.input, m.answer, m.ordinal, m.create_time,
    m.rating, ${childrenOf("m.message_id")} as child_ids, ${childrenOf("m.parent_message_id")} as sibling_ids`;

const SELECT_MESSAGES = `select ${MESSAGE_COLUMNS} from turnwire.messages m`;

export type MessageMethods = Pick<Store, "listMessages" | "branch" | "selectMessage" | "setFeedback">;

export function messageMethods(db: Db, wakes: EventWakes): MessageMethods {
  return {
    selectMessage: (principal, sessionId, messageId) =>
      selectMessage(db, wakes, principal, sessionId, messageId),
    setFeedback: (principal, messageId, feedback) => setFeedback(db, wakes, principal, messageId, feedback),
    listMessages: (principal, sessionId, page, filter) =>
      listMessages(db, principal, sessionId, page, filter),
    branch: (principal, messageId, limit) => branch(db, principal, messageId, limit),
  };
}

type ListMessages = Store["listMessages"];

async function listMessages(
  db: Db,
  { tenantId, userId }: Principal,
  sessionId: string,
  page: Parameters<ListMessages>[2],
  filter: Parameters<ListMessages>[3],
): ReturnType<ListMessages> {
  const { ancestorsOf, childrenOf, newestFirst = false } = filter;
  const scope = [
    "messages",
    tenantId,
    userId,
    sessionId,
    ancestorsOf,
    childrenOf,
    ...(newestFirst ? [1] : []),
  ];
  const [after] = startAfter(page, scope) ?? [undefined];
  const named = ancestorsOf || childrenOf || null;
  // The session, and the message that the filter names, must be there and be the caller's.
  const there = await db.readers.query(
    `select 1 from turnwire.sessions s where s.session_id = $1 and s.tenant_id = $2 and s.user_id = $3
       and ($4::text is null or exists (select from turnwire.messages m where m.message_id = $4 and m.session_id = s.session_id))`,
    [sessionId, tenantId, userId, named],
  );
  if (there.length === 0) return undefined;
  const size = pageSize(page);
  if (ancestorsOf && newestFirst) {
    const up = await db.readers.query<RawMessage>(BRANCH_UPWARDS, [
      sessionId,
      after ?? ancestorsOf,
      size + 1,
    ]);
    return toPage(up, size, scope, (row) => [row.parent_message_id], toMessageRow);
  }
  const rows = await db.readers.query<RawMessage>(
    `${ancestorsOf ? ANCESTORS : ""} ${SELECT_MESSAGES}
     where m.session_id = $1 and m.ordinal ${newestFirst ? "<" : ">"} $2 and ${filterCondition(filter)}
     order by m.ordinal ${newestFirst ? "desc" : ""} limit $4`,
    [sessionId, after ?? (newestFirst ? MAX_ORDINAL : "0"), named ?? "", size + 1],
  );
  return toPage(rows, size, scope, (row) => [row.ordinal], toMessageRow);
}

const MAX_ORDINAL = "9223372036854775807";

/** A message and what is above it, at most $3 messages: one look-up by key for each, whatever the length of the branch. */
const BRANCH_UPWARDS = `
  with recursive up as (
    select message_id, parent_message_id, 1 as depth from turnwire.messages where message_id = $2 and session_id = $1
    union all
    select m.message_id, m.parent_message_id, up.depth + 1
    from turnwire.messages m join up on m.message_id = up.parent_message_id
    where m.session_id = $1 and up.depth < $3)
  ${SELECT_MESSAGES} join up on up.message_id = m.message_id order by up.depth`;

const ANCESTORS = `
  with recursive up as (
    select message_id, parent_message_id from turnwire.messages where message_id = $3 and session_id = $1
    union all
    select m.message_id, m.parent_message_id from turnwire.messages m join up on m.message_id = up.parent_message_id
    where m.session_id = $1)`;

function filterCondition(filter: { readonly ancestorsOf: string; readonly childrenOf: string }): string {
  if (filter.ancestorsOf) return "m.message_id in (select message_id from up)";
  return filter.childrenOf ? "m.parent_message_id = $3" : "$3 = ''";
}

async function branch(
  db: Db,
  { tenantId, userId }: Principal,
  messageId: string,
  limit: number,
): Promise<readonly MessageRow[]> {
  const rows = await db.readers.query<RawMessage>(
    {
      name: "branch",
      text: `
        with recursive up as (
          select message_id, parent_message_id, session_id, 1 as depth from turnwire.messages
          where message_id = $1 and tenant_id = $2 and user_id = $3 and $4 > 0
          union all
          select m.message_id, m.parent_message_id, m.session_id, up.depth + 1
          from turnwire.messages m join up on m.message_id = up.parent_message_id and m.session_id = up.session_id
          where up.depth < $4)
        ${SELECT_MESSAGES} join up on up.message_id = m.message_id order by up.depth desc`,
    },
    [messageId, tenantId, userId, limit],
  );
  return rows.map(toMessageRow);
}

type SelectMessage = Store["selectMessage"];

async function selectMessage(
  db: Db,
  wakes: EventWakes,
  principal: Principal,
  sessionId: string,
  messageId: string,
): ReturnType<SelectMessage> {
  const owned = [sessionId, principal.tenantId, principal.userId];
  const outcome = await db.readers.transaction<Selected>(async (tx) => {
    const session = await tx.query<RawSession>(
      `select ${SESSION_COLUMNS} from turnwire.sessions where session_id = $1 and tenant_id = $2 and user_id = $3 for no key update`,
      owned,
    );
    if (!session[0]) return { kind: "session_not_found" };
    const leaf = await tx.query<{ message_id: string }>(NEWEST_BELOW, [sessionId, messageId]);
    if (!leaf[0]) return { kind: "message_not_found" };
    const onBranch = await tx.query(ON_BRANCH, [sessionId, session[0].current_message_id, messageId]);
    if (onBranch.length > 0) return { kind: "unchanged", session: session[0] };
    const changed = await tx.query<RawSession>(
      `with changed as (
         update turnwire.sessions set current_message_id = $2, revision = revision + 1 where session_id = $1 returning *),
         event as (${TELL_UPDATED})
       select ${SESSION_COLUMNS} from changed`,
      [sessionId, leaf[0].message_id],
    );
    return { kind: "changed", session: changed[0]! };
  });
  if (!("session" in outcome)) return outcome.kind;
  if (outcome.kind === "changed") wakes.wake(principal);
  return toSessionRow(outcome.session);
}

type Selected =
  | { readonly kind: "session_not_found" | "message_not_found" }
  | { readonly kind: "unchanged" | "changed"; readonly session: RawSession };

/** Of what hangs below a message (or it itself), the end that the newest turn wrote; of its lanes the first. */
const NEWEST_BELOW = `
  with recursive down as (
    select message_id, turn_id, model_index from turnwire.messages where session_id = $1 and message_id = $2
    union all
    select m.message_id, m.turn_id, m.model_index from turnwire.messages m join down on m.parent_message_id = down.message_id
    where m.session_id = $1)
  select down.message_id from down join turnwire.turns t on t.turn_id = down.turn_id
  where not exists (select from turnwire.messages c where c.session_id = $1 and c.parent_message_id = down.message_id)
  order by t.start_time desc, t.turn_id desc, down.model_index limit 1`;

const ON_BRANCH = `
  with recursive up as (
    select message_id, parent_message_id from turnwire.messages where session_id = $1 and message_id = $2
    union all
    select m.message_id, m.parent_message_id from turnwire.messages m join up on m.message_id = up.parent_message_id
    where m.session_id = $1)
  select 1 from up where message_id = $3`;

async function setFeedback(
  db: Db,
  wakes: EventWakes,
  principal: Principal,
  messageId: string,
  { rating, comment, reasons }: Parameters<Store["setFeedback"]>[2],
): ReturnType<Store["setFeedback"]> {
  const rows = await db.readers.query<{ role: number }>(
    `with message as (
       select message_id, session_id, role from turnwire.messages where message_id = $1 and tenant_id = $2 and user_id = $3),
     changed as (
       update turnwire.messages m set rating = $4, comment = $5, reasons = $6
       from message where m.message_id = message.message_id and message.role = 2
       returning m.tenant_id, m.user_id, m.session_id), event as (${TELL_UPDATED})
     select role from message`,
    [messageId, principal.tenantId, principal.userId, rating, comment, reasons],
  );
  if (!rows[0]) return "not_found";
  if (rows[0].role !== 2) return "not_an_answer";
  wakes.wake(principal);
  return "stored";
}

export function toMessageRow(raw: RawMessage): MessageRow {
  return {
    messageId: raw.message_id,
    sessionId: raw.session_id,
    parentMessageId: raw.parent_message_id,
    turnId: raw.turn_id,
    modelIndex: raw.model_index ?? undefined,
    role: raw.role === 1 ? "user" : "assistant",
    input: optionalBytes(raw.input),
    answer: optionalBytes(raw.answer),
    createTime: raw.create_time,
    childMessageIds: raw.child_ids,
    siblingMessageIds: raw.sibling_ids,
    rating: raw.rating,
  };
}
