import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { silentLogger } from "../../src/lib/log.js";
import { startPostgres } from "../../src/main/embedded/postgres.js";
import { connectPostgresReplayLog } from "../../src/replay/postgres-replay-log.js";
import { loadWhile, ROUNDS } from "./replay-load.js";

describe("chaos: Postgres log", () => {
  test(
    `${ROUNDS} kills of the server under load lose, double and skip nothing`,
    { timeout: 90_000 },
    async ({ onTestFinished }) => {
      const dataDir = fs.mkdtempSync(path.join(os.tmpdir(), "turnwire-pg-"));
      const server = await startPostgres({ dataDir, logger: silentLogger });
      onTestFinished(async () => {
        await server.stop();
        fs.rmSync(dataDir, { recursive: true, force: true });
      });
      const open = () => connectPostgresReplayLog({ connectionString: server.url, logger: silentLogger });
      const [writing, reading] = [await open(), await open()];
      onTestFinished(async () => {
        await Promise.all([writing.close(), reading.close()]);
      });
      const report = await loadWhile(writing, reading, async (flowing) => {
        await flowing();
        for (let round = 0; round < ROUNDS; round += 1) {
          const pid = server.pid;
          process.kill(pid, "SIGKILL"); // its launcher starts it again at once
          await expect.poll(() => server.pid, { timeout: 20_000 }).not.toBe(pid);
          await flowing();
        }
      });
      console.info(`Postgres, ${ROUNDS} kills:`, report);
      expect(report.worstPauseMs).toBeLessThanOrEqual(5_000);
      expect(reading.counts).toMatchObject({ feeds: 0, followers: 0, watched: 0 });
      expect(writing.counts).toMatchObject({ followers: 0, watched: 0 });
    },
  );
});
