/** Turns as clients, owners and janitors read them. */
import type { Principal } from "../lib/rpc/service-binding.js";
import type { Channel, Db, Param } from "./db.js";
import { pageSize, startAfter, toPage } from "./page-token.js";
import type { Store, TurnRow } from "./store.js";
import { phaseNumber, selectTurns, toTurnRow, type RawTurn } from "./turn-rows.js";

export type TurnMethods = Pick<
  Store,
  | "getTurn"
  | "getTurns"
  | "listRunningTurns"
  | "getTurnByRequest"
  | "listTurns"
  | "loadTurn"
  | "listErasable"
  | "markErased"
  | "listOwnedTurns"
  | "listLostTurns"
>;

export function turnMethods(db: Db): TurnMethods {
  return {
    getTurn: ({ tenantId, userId }, turnId) =>
      one(db.readers, "get_turn", "t.turn_id = $1 and t.tenant_id = $2 and t.user_id = $3", [
        turnId,
        tenantId,
        userId,
      ]),
    getTurns: ({ tenantId, userId }, turnIds) =>
      many(db.readers, "t.turn_id = any ($1) and t.tenant_id = $2 and t.user_id = $3", [
        turnIds,
        tenantId,
        userId,
      ]),
    listRunningTurns: ({ tenantId, userId }, sessionIds) =>
      many(
        db.readers,
        "t.session_id = any ($1) and t.phase = 1 and t.tenant_id = $2 and t.user_id = $3 order by t.start_time",
        [sessionIds, tenantId, userId],
      ),
    getTurnByRequest: ({ tenantId, userId }, requestId) =>
      one(
        db.readers,
        "get_turn_by_request",
        `t.tenant_id = $2 and t.user_id = $3 and t.turn_id =
           (select r.turn_id from turnwire.turn_requests r where r.request_id = $1 and r.tenant_id = $2 and r.user_id = $3)`,
        [requestId, tenantId, userId],
      ),
    listTurns: (principal, page, filter) => listTurns(db, principal, page, filter),
    loadTurn: (turnId) => one(db.writers, "load_turn", "t.turn_id = $1", [turnId]),
    listErasable: (olderThanMs, limit) =>
      many(
        db.writers,
        "t.phase = 3 and not t.erased and t.close_time < clock_timestamp() - $1 * interval '1 ms' order by t.close_time limit $2",
        [olderThanMs, limit],
      ),
    markErased: async (turnIds) => {
      await db.writers.query(
        "update turnwire.turns set erased = true where turn_id = any ($1) and phase = 3",
        [turnIds],
      );
    },
    async listLostTurns(owner, turnIds) {
      const lost = await db.writers.query<{ turn_id: string }>(
        {
          name: "list_lost_turns",
          text: `select id as turn_id from unnest($1::text[]) as id
            where not exists (select 1 from turnwire.turns t where t.turn_id = id and t.owner = $2)`,
        },
        [turnIds, owner],
      );
      return lost.map((row) => row.turn_id);
    },
    listOwnedTurns: (owners, limit) =>
      many(db.writers, "t.owner = any ($1) and t.phase < 3 order by t.start_time, t.turn_id limit $2", [
        owners,
        limit,
      ]),
  };
}

async function one(
  channel: Channel,
  name: string,
  condition: string,
  params: readonly Param[],
): Promise<TurnRow | undefined> {
  const rows = await channel.query<RawTurn>({ name, text: selectTurns(condition) }, params);
  return rows[0] && toTurnRow(rows[0]);
}

async function many(channel: Channel, condition: string, params: readonly Param[]): Promise<TurnRow[]> {
  return (await channel.query<RawTurn>(selectTurns(condition), params)).map(toTurnRow);
}

/** Newest first. */
async function listTurns(
  db: Db,
  { tenantId, userId }: Principal,
  page: Parameters<Store["listTurns"]>[1],
  filter: Parameters<Store["listTurns"]>[2],
): ReturnType<Store["listTurns"]> {
  const phases = filter.phases.map(phaseNumber);
  const scope = ["turns", tenantId, userId, filter.sessionId, ...phases];
  const [startedMs, turnId] = startAfter(page, scope) ?? [null, null];
  const size = pageSize(page);
  const rows = await db.readers.query<RawTurn>(
    selectTurns(`t.tenant_id = $1 and t.user_id = $2 and ($3 = '' or t.session_id = $3)
      and ($4::integer[] = '{}' or t.phase = any ($4))
      and ($5::timestamptz is null or (t.start_time, t.turn_id) < ($5::timestamptz, $6))
      order by t.start_time desc, t.turn_id desc limit $7`),
    [
      tenantId,
      userId,
      filter.sessionId,
      phases,
      startedMs === null ? null : new Date(startedMs as number),
      turnId as string,
      size + 1,
    ],
  );
  return toPage(rows, size, scope, (row) => [row.start_time.getTime(), row.turn_id], toTurnRow);
}
