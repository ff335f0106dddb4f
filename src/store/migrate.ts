/**
 * Brings the database to this program's version: forward-only SQL files, each in a transaction of its own, one starter
 * at a time (advisory lock), every applied file recorded with its checksum. Tables live in the schema `turnwire`: a
 * database that is shared with others stays tidy, rights are given in one place, and dropping it is one statement.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { join } from "node:path";
import type pg from "pg";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";

export interface Migration {
  /** The number that the file's name begins with: 1, 2, 3 ... */
  readonly version: number;
  readonly name: string;
  readonly checksum: string;
  readonly sql: string;
}

interface AppliedRow {
  readonly version: number;
  readonly name: string;
  readonly checksum: string;
}

/** Key of the advisory lock: "turnwire" as a number. */
const LOCK_KEY = "8391727366931345";

/** The migrations beside this file, in order. */
export function readMigrations(
  directory = fileURLToPath(new URL("./migrations/", import.meta.url)),
): Migration[] {
  const names = readdirSync(directory).filter((name) => /^\d{4}-.+\.sql$/.test(name));
  return names.sort().map((name, index) => {
    const version = Number(name.slice(0, 4));
    if (version !== index + 1) throw new Error(`migration ${name} should have the number ${index + 1}`);
    const sql = readFileSync(join(directory, name), "utf8");
    return { version, name, sql, checksum: createHash("sha256").update(sql).digest("hex") };
  });
}

/**
 * Applies what is missing. Safe to call from many processes at once.
 * @throws TurnError UNAVAILABLE when the database is of a newer version, or a recorded file differs from ours.
 */
export async function migrate(
  client: pg.ClientBase,
  logger: Logger,
  migrations = readMigrations(),
): Promise<void> {
  if (await isCurrent(client, migrations)) return;
  await client.query("select pg_advisory_lock($1::bigint)", [LOCK_KEY]);
  try {
    await client.query("create schema if not exists turnwire");
    await client.query(
      `create table if not exists turnwire.migrations (
         version integer primary key, name text not null, checksum text not null,
         apply_time timestamptz(3) not null default clock_timestamp())`,
    );
    const applied = await readApplied(client);
    check(applied, migrations);
    for (const migration of migrations.slice(applied.length)) {
      await apply(client, migration);
      logger.info({ migration: migration.name }, "the database was migrated");
    }
  } finally {
    await client.query("select pg_advisory_unlock($1::bigint)", [LOCK_KEY]);
  }
}

/** The usual start: one look, no lock. */
async function isCurrent(client: pg.ClientBase, migrations: readonly Migration[]): Promise<boolean> {
  const there = await client.query<{ there: boolean }>(
    "select to_regclass('turnwire.migrations') is not null as there",
  );
  if (!there.rows[0]?.there) return false;
  const applied = await readApplied(client);
  check(applied, migrations);
  return applied.length === migrations.length;
}

async function readApplied(client: pg.ClientBase): Promise<AppliedRow[]> {
  return (
    await client.query<AppliedRow>("select version, name, checksum from turnwire.migrations order by version")
  ).rows;
}

function check(applied: readonly AppliedRow[], migrations: readonly Migration[]): void {
  const newest = applied.at(-1)?.version ?? 0;
  if (newest > migrations.length) {
    throw new TurnError(ErrorCode.UNAVAILABLE, {
      message:
        `the database is of version ${newest}, this Turnwire knows versions up to ${migrations.length}: ` +
        "start a newer Turnwire, or give it another database",
    });
  }
  for (const [index, row] of applied.entries()) {
    const ours = migrations[index];
    if (ours?.version === row.version && ours.checksum === row.checksum) continue;
    throw new TurnError(ErrorCode.UNAVAILABLE, {
      message: `the database was made by another build of Turnwire: its migration ${row.name} is not ours`,
    });
  }
}

async function apply(client: pg.ClientBase, migration: Migration): Promise<void> {
  await client.query("begin");
  try {
    await client.query(migration.sql);
    await client.query("insert into turnwire.migrations (version, name, checksum) values ($1, $2, $3)", [
      migration.version,
      migration.name,
      migration.checksum,
    ]);
    await client.query("commit");
  } catch (error) {
    await client.query("rollback");
    throw error;
  }
}
