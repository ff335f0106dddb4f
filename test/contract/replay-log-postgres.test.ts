import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { silentLogger } from "../../src/lib/log.js";
import { startPostgres, type EmbeddedPostgres } from "../../src/main/embedded/postgres.js";
import { connectPostgresReplayLog, type PostgresReplayLog } from "../../src/replay/postgres-replay-log.js";
import { startTcpProxy } from "../support/tcp-proxy.js";
import { replayLogContract, type LogHarness } from "./replay-log.js";

let dataDir: string;
let server: EmbeddedPostgres;
let admin: pg.Client;

beforeAll(async () => {
  dataDir = fs.mkdtempSync(path.join(os.tmpdir(), "turnwire-pg-"));
  server = await startPostgres({ dataDir, logger: silentLogger });
  admin = new pg.Client({ connectionString: server.url });
  await admin.connect();
});
afterAll(async () => {
  await admin?.end();
  await server?.stop();
  fs.rmSync(dataDir, { recursive: true, force: true });
});

function open(port?: number): Promise<PostgresReplayLog> {
  const url = new URL(server.url);
  if (port) url.port = String(port);
  return connectPostgresReplayLog({ connectionString: url.href, logger: silentLogger });
}

function postgresHarness(): LogHarness {
  return {
    another: () => open(),
    replace: async () => void (await admin.query("drop table tw_log_entries, tw_log_meta")),
    expire: async (turnId, position) => {
      await admin.query("delete from tw_log_entries where turn_id = $1 and entry_no <= $2", [
        turnId,
        position,
      ]);
    },
    lossy: async () => {
      const proxy = await startTcpProxy(server.port);
      const log = await open(proxy.port);
      return {
        log,
        lose: () => proxy.holdAnswers(),
        restore: () => proxy.cut(),
        close: async () => {
          await log.close();
          await proxy.close();
        },
      };
    },
    close: () => Promise.resolve(),
  };
}

describe("ReplayLog on Postgres", () => {
  describe("contract", () => replayLogContract(() => Promise.resolve(postgresHarness()), { shared: true }));

  test("tables of a newer version are refused and left alone", async () => {
    await admin.query("update tw_log_meta set version = 99");
    try {
      await expect(open()).rejects.toMatchObject({
        cause: { message: expect.stringContaining("version 99") as string },
      });
    } finally {
      await admin.query("update tw_log_meta set version = 1");
    }
  });

  test("leaves no connection behind", async () => {
    const log = await open();
    await log.close();
    const count =
      "select count(*)::int as open from pg_stat_activity where application_name like 'turnwire-log%'";
    await expect.poll(async () => (await admin.query<{ open: number }>(count)).rows[0]!.open).toBe(0);
  });
});
