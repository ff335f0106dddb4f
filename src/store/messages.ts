/** The message tree of a session: read by page, by branch, by children. */
import type { Principal } from "../lib/rpc/service-binding.js";
import { optionalBytes, type Db } from "./db.js";
import { pageSize, startAfter, toPage } from "./page-token.js";
import type { MessageRow, Store } from "./store.js";

interface RawMessage {
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
}

const SELECT_MESSAGES = `
  select m.message_id, m.session_id, m.parent_message_id, m.turn_id, m.model_index, m.role, m.input, m.answer, m.ordinal, m.create_time,
    array(select c.message_id from turnwire.messages c
          where c.session_id = m.session_id and c.parent_message_id = m.message_id order by c.ordinal) as child_ids
  from turnwire.messages m`;

export type MessageMethods = Pick<Store, "listMessages" | "branch">;

export function messageMethods(db: Db): MessageMethods {
  return {
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
  const scope = ["messages", tenantId, userId, sessionId, filter.ancestorsOf, filter.childrenOf];
  const [after] = startAfter(page, scope) ?? ["0"];
  const named = filter.ancestorsOf || filter.childrenOf || null;
  // The session, and the message that the filter names, must be there and be the caller's.
  const there = await db.readers.query(
    `select 1 from turnwire.sessions s where s.session_id = $1 and s.tenant_id = $2 and s.user_id = $3
       and ($4::text is null or exists (select from turnwire.messages m where m.message_id = $4 and m.session_id = s.session_id))`,
    [sessionId, tenantId, userId, named],
  );
  if (there.length === 0) return undefined;
  const size = pageSize(page);
  const rows = await db.readers.query<RawMessage>(
    `${filter.ancestorsOf ? ANCESTORS : ""} ${SELECT_MESSAGES}
     where m.session_id = $1 and m.ordinal > $2 and ${filterCondition(filter)} order by m.ordinal limit $4`,
    [sessionId, after!, named ?? "", size + 1],
  );
  return toPage(rows, size, scope, (row) => [row.ordinal], toMessageRow);
}

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

function toMessageRow(raw: RawMessage): MessageRow {
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
  };
}
