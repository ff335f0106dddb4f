import { expect, test } from "vitest";
import { systemClock } from "../../src/lib/clock.js";
import { silentLogger } from "../../src/lib/log.js";
import { connectNatsReplayLog } from "../../src/replay/nats-replay-log.js";
import { describeWithNats, startTestNats } from "../support/nats.js";
import { loadWhile, ROUNDS } from "./replay-load.js";

describeWithNats("chaos: JetStream log", (binary) => {
  test(
    `${ROUNDS} kills of the server under load lose, double and skip nothing`,
    { timeout: 90_000 },
    async ({ onTestFinished }) => {
      const { server, end } = await startTestNats(binary);
      onTestFinished(end);
      const open = () => connectNatsReplayLog({ url: server.url, logger: silentLogger });
      const [writing, reading] = [await open(), await open()];
      onTestFinished(async () => {
        await Promise.all([writing.close(), reading.close()]);
      });
      const report = await loadWhile(writing, reading, async (flowing) => {
        await flowing();
        for (let round = 0; round < ROUNDS; round += 1) {
          const pid = server.pid;
          process.kill(pid, "SIGKILL"); // its launcher starts it again at once
          await expect.poll(() => server.pid, { timeout: 10_000 }).not.toBe(pid);
          await flowing();
        }
      });
      console.info(`nats-server ${binary.version}, ${ROUNDS} kills:`, report);
      expect(report.worstPauseMs).toBeLessThanOrEqual(3_000);
      expect(writing.counts).toMatchObject({ followers: 0, watched: 0, waiting: 0 });
      expect(reading.counts).toMatchObject({ feeds: 0, followers: 0, watched: 0, waiting: 0 });
    },
  );

  test("a server that freezes for 3 s is a pause", { timeout: 60_000 }, async ({ onTestFinished }) => {
    const { server, end } = await startTestNats(binary);
    onTestFinished(end);
    const open = () => connectNatsReplayLog({ url: server.url, logger: silentLogger });
    const [writing, reading] = [await open(), await open()];
    onTestFinished(async () => {
      await Promise.all([writing.close(), reading.close()]);
    });
    const { pid } = server;
    const report = await loadWhile(writing, reading, async (flowing) => {
      await flowing();
      process.kill(pid, "SIGSTOP");
      try {
        await systemClock.sleep(3_000); // the fault's own length
      } finally {
        process.kill(pid, "SIGCONT");
      }
      await flowing();
    });
    expect(report.repeats).toBeGreaterThan(0);
    expect(report.worstPauseMs).toBeLessThanOrEqual(3_000 + 3_000);
  });
});
