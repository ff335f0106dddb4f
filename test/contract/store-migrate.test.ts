import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { describe, expect, it } from "vitest";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { silentLogger } from "../../src/lib/log.js";
import { migrate, readMigrations, type Migration } from "../../src/store/migrate.js";
import { connectPgStore } from "../../src/store/pg-store.js";
import { runSql, usePostgres } from "../support/postgres.js";
import { accept } from "../support/store-fixtures.js";

const postgres = usePostgres();

async function migrateWith(url: string, migrations: readonly Migration[]): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await migrate(client, silentLogger, [...migrations]);
  } finally {
    await client.end();
  }
}

function extra(version: number, sql: string): Migration {
  return { version, name: `${String(version).padStart(4, "0")}-extra.sql`, checksum: `sum-${sql}`, sql };
}

const appliedVersions = async (url: string): Promise<unknown[]> =>
  (await runSql(url, "select version from turnwire.migrations order by version")).map((row) => row.version);

describe("migrate", () => {
  it("finds every file beside it, numbered without a gap", () => {
    const directory = fileURLToPath(new URL("../../src/store/migrations/", import.meta.url));
    expect(readMigrations().map((migration) => migration.name)).toEqual(readdirSync(directory).toSorted());
    expect(readMigrations(directory)[0]).toMatchObject({ version: 1, name: "0001-initial.sql" });
  });

  it("by twelve starters at once - each file is applied once, all of them get a store that works", async () => {
    const url = await postgres.createDatabase();
    const stores = await Promise.all(
      Array.from({ length: 12 }, () => connectPgStore({ connectionString: url, logger: silentLogger })),
    );
    try {
      expect(await appliedVersions(url)).toEqual(readMigrations().map((migration) => migration.version));
      for (const store of stores) await accept(store);
    } finally {
      await Promise.all(stores.map((store) => store.close()));
    }
  });

  it("again - changes nothing; with one file more - applies that one and keeps the rows", async () => {
    const url = await postgres.createDatabase();
    const ours = readMigrations();
    await migrateWith(url, ours);
    const before = await runSql(url, "select * from turnwire.migrations");
    await migrateWith(url, ours);
    expect(await runSql(url, "select * from turnwire.migrations")).toEqual(before);
    await migrateWith(url, [...ours, extra(ours.length + 1, "create table turnwire.extra (n integer)")]);
    expect(await appliedVersions(url)).toEqual([
      ...ours.map((migration) => migration.version),
      ours.length + 1,
    ]);
    expect(await runSql(url, "select * from turnwire.extra")).toEqual([]);
  });

  it("a file that fails in the middle leaves nothing of itself", async () => {
    const url = await postgres.createDatabase();
    const ours = readMigrations();
    await migrateWith(url, ours);
    await expect(
      migrateWith(url, [
        ...ours,
        extra(ours.length + 1, "create table turnwire.half (n integer); select 1 / 0"),
      ]),
    ).rejects.toThrow(/division by zero/);
    expect(await appliedVersions(url)).toEqual(ours.map((migration) => migration.version));
    expect(await runSql(url, "select to_regclass('turnwire.half')::text as there")).toEqual([
      { there: null },
    ]);
  });

  it("a database of a newer version is refused, naming both versions, and left as it is", async () => {
    const url = await postgres.createDatabase();
    const ours = readMigrations();
    await migrateWith(url, [...ours, extra(ours.length + 1, "create table turnwire.future (n integer)")]);
    const connected = connectPgStore({ connectionString: url, logger: silentLogger });
    await expect(connected).rejects.toMatchObject({ code: ErrorCode.UNAVAILABLE });
    await expect(connected).rejects.toThrow(
      `the database is of version ${ours.length + 1}, this Turnwire knows versions up to ${ours.length}`,
    );
    expect(await appliedVersions(url)).toHaveLength(ours.length + 1);
  });

  it("a recorded file that is not ours is refused, naming it", async () => {
    const url = await postgres.createDatabase();
    const [first] = readMigrations();
    await migrateWith(url, [{ ...first!, checksum: "another" }]);
    await expect(connectPgStore({ connectionString: url, logger: silentLogger })).rejects.toThrow(
      /0001-initial\.sql is not ours/,
    );
  });

  it("a database that is not there - UNAVAILABLE, and no password in the message", async () => {
    const connected = connectPgStore({
      connectionString: "postgres://user:geheim@127.0.0.1:1/none",
      logger: silentLogger,
    });
    await expect(connected).rejects.toMatchObject({
      code: ErrorCode.UNAVAILABLE,
      message: expect.not.stringContaining("geheim") as string,
    });
    const missing = connectPgStore({
      connectionString: postgres.url.replace(/[^/]*$/, "nowhere"),
      logger: silentLogger,
    });
    await expect(missing).rejects.toMatchObject({ code: ErrorCode.UNAVAILABLE });
  });
});
