/** The tables of the Postgres log: made by the log itself, in steps that are only ever added to. */
import type { ClientBase } from "pg";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import { newId } from "../lib/ids.js";

/** Step n brings version n to n + 1. Never change one that was released; add the next. */
const STEPS: readonly string[] = [
  `create table tw_log_meta (
     one boolean primary key default true check (one),
     log_id text not null,
     version integer not null
   );
   create table tw_log_entries (
     turn_id text not null,
     entry_no bigint not null check (entry_no > 0),
     epoch bigint not null,
     incarnation text not null,
     first_seq bigint not null,
     last_seq bigint not null,
     terminal boolean not null,
     erased boolean not null,
     created_at timestamptz not null default now(),
     batch bytea not null,
     primary key (turn_id, entry_no)
   );
   -- Packets are small and compress badly one by one.
   alter table tw_log_entries alter column batch set storage external;
   create index tw_log_tombstones on tw_log_entries (created_at) where erased;`,
];

/** Any constant will do, as long as every version takes the same one. */
const ADVISORY_LOCK = 7_406_195_288;

/**
 * Brings the tables up to date and returns the log's id. Throws INTERNAL with a clear cause when a newer version
 * wrote them.
 */
export async function ensureSchema(client: ClientBase): Promise<string> {
  await client.query("begin");
  try {
    await client.query("select pg_advisory_xact_lock($1)", [ADVISORY_LOCK]);
    const meta = (await readMeta(client)) ?? { logId: newId(), version: 0 };
    if (meta.version > STEPS.length) {
      throw new TurnError(ErrorCode.INTERNAL, {
        cause: new Error(
          `the log's tables are of version ${meta.version}, this program knows ${STEPS.length}`,
        ),
      });
    }
    for (const step of STEPS.slice(meta.version)) await client.query(step);
    if (meta.version < STEPS.length) {
      const upsert = `insert into tw_log_meta (log_id, version) values ($1, $2)
        on conflict (one) do update set version = excluded.version`;
      await client.query(upsert, [meta.logId, STEPS.length]);
    }
    await client.query("commit");
    return meta.logId;
  } catch (error) {
    await client.query("rollback").catch(() => undefined); // the connection may be gone; the first error counts
    throw error;
  }
}

/** What is there; undefined = nothing. Tables without their one row were emptied: they are made anew, as another log. */
async function readMeta(
  client: ClientBase,
): Promise<{ readonly logId: string; readonly version: number } | undefined> {
  const made = await client.query<{ there: boolean }>(
    "select to_regclass('tw_log_meta') is not null as there",
  );
  if (!made.rows[0]!.there) return undefined;
  const { rows } = await client.query<{ log_id: string; version: number }>(
    "select log_id, version from tw_log_meta",
  );
  if (rows[0]) return { logId: rows[0].log_id, version: rows[0].version };
  await client.query("drop table if exists tw_log_entries, tw_log_meta");
  return undefined;
}
