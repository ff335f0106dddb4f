/** No space left under the data directory: sends are refused by type, nothing that was accepted is lost, and it recovers by itself. */
import { execFileSync } from "node:child_process";
import {
  closeSync,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
  rmdirSync,
  writeSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import { Code, ConnectError } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { TurnStatus } from "../../gen/turnwire/chat/v1/types_pb.js";
import {
  chatClient,
  expectGrammar,
  MODEL,
  plainAnswer,
  readWhole,
  startWith,
  type ChatClient,
} from "../support/e2e-fixture.js";
import {
  finishChunks,
  gate,
  startScriptedUpstream,
  textChunks,
  type ScriptedUpstream,
} from "../support/scripted-upstream.js";
import { askDoors, READY } from "../support/service-processes.js";
import type { TurnwireProcess } from "../support/turnwire-process.js";

const models = [{ modelId: MODEL }];
const PATIENT = { timeout: 30_000, interval: 100 };
const DISK_MIB = 160;
const canMount = process.platform === "linux" && process.getuid?.() === 0;
if (!canMount)
  console.error("SKIPPED: a full disk can only be tried as root on Linux (it mounts a small tmpfs)");

describe.skipIf(!canMount)("no space left under the data directory", () => {
  let disk: string;
  let upstream: ScriptedUpstream;
  let server: TurnwireProcess;
  let client: ChatClient;

  beforeAll(async () => {
    disk = mkdtempSync(path.join(os.tmpdir(), "turnwire-disk-"));
    execFileSync("mount", ["-t", "tmpfs", "-o", `size=${DISK_MIB}m,mode=755`, "tmpfs", disk]);
    upstream = await startScriptedUpstream();
    const dataDir = path.join(disk, "data");
    mkdirSync(dataDir);
    server = await startWith(upstream, { dataDir });
    client = chatClient(server);
  });
  afterAll(async () => {
    await server?.stop();
    await upstream?.close();
    execFileSync("umount", ["-l", disk]);
    rmdirSync(disk);
  });

  test.each([
    { left: 0, when: "from one moment to the next" },
    { left: 16, when: "while turns run" },
  ])(
    "$when: sends are refused by type, accepted turns end, and it recovers by itself",
    async ({ left }) => {
      upstream.replyWith((request) =>
        request.body.includes("HOLD")
          ? [
              ...textChunks("begun"),
              gate(`full-${left}`),
              ...textChunks(" and done"),
              ...finishChunks("stop"),
            ]
          : plainAnswer("an answer"),
      );
      const held = await client.startTurn({ text: "HOLD", models });
      await upstream.reached(`full-${left}`);
      const filler = path.join(disk, "filler");
      fill(filler, left);

      const accepted: string[] = [];
      let failure: ConnectError | undefined;
      for (let i = 0; i < 200 && !failure; i++) {
        try {
          const { receipt } = await client.startTurn(
            { text: `${i} ${"x".repeat(400_000)}`, models },
            { timeoutMs: 20_000 },
          );
          accepted.push(receipt!.turnId);
        } catch (error) {
          failure = ConnectError.from(error);
        }
      }
      expect(failure, "the disk never filled up").toBeDefined();
      if (left > 0) expect(accepted.length).toBeGreaterThan(0);
      console.log(`a full disk: ${accepted.length} sends accepted, then ${failure!.message}`);
      expect([Code.Unavailable, Code.ResourceExhausted]).toContain(failure!.code);
      expect(failure!.rawMessage).toMatch(/space|database|log/);
      upstream.open(`full-${left}`);

      rmSync(filler);
      await expect.poll(() => askDoors(server).catch(() => undefined), PATIENT).toEqual(READY);
      const reply = await eventually(() =>
        client.sendMessageAndWait({ text: "after", models }, { timeoutMs: 20_000 }),
      );
      expect(reply.text).toBe("an answer");
      for (const turnId of [held.receipt!.turnId, ...accepted]) {
        const packets = await readWhole(client, turnId);
        expectGrammar(packets);
        expect((await client.getTurn({ turnId })).turn!.status).toBe(TurnStatus.ENDED);
      }
      expect((await client.getTurn({ turnId: held.receipt!.turnId })).state!.lanes[0]!.text).toBe(
        "begun and done",
      );
    },
    120_000,
  );
});

/** Writes until nothing more fits, then gives `leftMib` back. */
function fill(file: string, leftMib: number): void {
  const fd = openSync(file, "w");
  try {
    for (const size of [1024 * 1024, 4096]) {
      const block = Buffer.alloc(size, 1);
      try {
        for (;;) writeSync(fd, block);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
      }
    }
    ftruncateSync(fd, fstatSync(fd).size - leftMib * 1024 * 1024);
  } finally {
    closeSync(fd);
  }
}

async function eventually<T>(attempt: () => Promise<T>): Promise<T> {
  let result: T | undefined;
  await expect.poll(async () => (result = await attempt().catch(() => undefined)), PATIENT).toBeDefined();
  return result!;
}
