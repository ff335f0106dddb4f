/**
 * How long a new user waits: `npm start` in a fresh copy of the project with nothing built and no data, as root in a folder
 * that only root can enter, and as a user without rights; and again after node was killed.
 */
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { chmodSync, chownSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { parsePasswd } from "../../src/main/embedded/run-as.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const READY_MS = 5_000;
const AS_ROOT = process.getuid?.() === 0;
const nobody = parsePasswd(readFileSync("/etc/passwd", "utf8")).get("nobody");
/** What a clone and `npm ci` leave behind. */
const PARTS = ["package.json", "package-lock.json", "node_modules", "scripts", "src", "gen"];

interface Started {
  /** From the start of npm to the line that says ready. */
  readonly readyMs: number;
  readonly httpPort: number;
  /** Of the server, not of npm. */
  readonly pid: number;
  readonly npm: ChildProcess;
  readonly exited: Promise<unknown>;
}

describe.each([
  {
    who: AS_ROOT ? "root, in a folder of root's own" : "this user",
    user: undefined,
    possible: true,
    starts: 5,
  },
  { who: "a user without rights", user: nobody, possible: AS_ROOT && nobody !== undefined, starts: 2 },
])("npm start as $who", ({ who, user, possible, starts }) => {
  let folder: string;
  let running: Started | undefined;
  if (!possible) console.error(`SKIPPED: npm start as ${who} needs root and a user called nobody`);

  beforeAll(() => {
    folder = mkdtempSync(path.join(os.tmpdir(), "turnwire-clone-"));
    // Hard links: as fast as a clone need not be, and the same files.
    for (const part of PARTS) execFileSync("cp", ["-al", path.join(root, part), folder]);
    mkdirSync(path.join(folder, "home"));
    chmodSync(folder, 0o700);
    for (const own of ["", "home"]) if (user) chownSync(path.join(folder, own), user.uid, user.gid);
  });
  afterEach(async () => {
    if (running) await stop(running);
    running = undefined;
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  async function start(): Promise<Started> {
    const startedAt = performance.now();
    const npm = spawn("npm", ["start"], {
      cwd: folder,
      ...(user ? { uid: user.uid, gid: user.gid } : {}),
      stdio: ["ignore", "ignore", "pipe"],
      env: {
        PATH: `${path.dirname(process.execPath)}:/usr/bin:/bin`,
        HOME: path.join(folder, "home"),
        TURNWIRE_HTTP_PORT: "0",
        TURNWIRE_GRPC_PORT: "0",
        // As root the default is a place of the system's; tests leave that alone.
        ...(AS_ROOT && !user ? { TURNWIRE_DATA_DIR: path.join(folder, ".data") } : {}),
      },
    });
    const exited = new Promise((resolve) => npm.once("close", resolve));
    const facts = await readyLine(npm, exited);
    running = {
      readyMs: performance.now() - startedAt,
      httpPort: Number(facts["httpPort"]),
      pid: Number(facts["pid"]),
      npm,
      exited,
    };
    return running;
  }

  async function stop(started: Started, signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    try {
      process.kill(started.pid, signal);
    } catch {
      // It has ended.
    }
    await started.exited;
    running = undefined;
  }

  function expectInTime(what: string, times: readonly number[]): void {
    const shown = times.map((ms) => Math.round(ms)).join(", ");
    const busy = os.loadavg()[0]! > os.availableParallelism();
    console.log(
      `npm start as ${who}, ${what}: ready after ${shown} ms; worst ${Math.round(Math.max(...times))} ms${busy ? " (the machine is busy)" : ""}`,
    );
    if (!busy) expect(Math.max(...times)).toBeLessThanOrEqual(READY_MS);
  }

  test.skipIf(!possible)(
    `with nothing built and no data, ${starts} times`,
    async () => {
      const times: number[] = [];
      for (let i = 0; i < starts; i++) {
        for (const made of ["dist", ".data"])
          rmSync(path.join(folder, made), { recursive: true, force: true });
        const started = await start();
        times.push(started.readyMs);
        await expectAnswer(started);
        await stop(started);
      }
      expectInTime("for the first time", times);
    },
    120_000,
  );

  test.skipIf(!possible)(
    `after kill -9 of node, ${starts} times`,
    async () => {
      const times: number[] = [];
      await expectAnswer(await start());
      for (let i = 0; i < starts; i++) {
        await stop(running!, "SIGKILL");
        const started = await start();
        times.push(started.readyMs);
        await expectAnswer(started);
      }
      await stop(running!);
      expectInTime("after kill -9", times);
      expect(existsSync(path.join(folder, ".data", "lock"))).toBe(false);
    },
    120_000,
  );
});

function readyLine(npm: ChildProcess, exited: Promise<unknown>): Promise<Record<string, unknown>> {
  return new Promise((resolve, reject) => {
    let text = "";
    void exited.then((code) => reject(new Error(`npm start ended with ${String(code)}:\n${text}`)));
    npm.stderr!.on("data", (chunk: Buffer) => {
      text += chunk.toString();
      const line = text.split("\n").find((each) => each.startsWith("{") && each.includes('"msg":"ready"'));
      if (line?.endsWith("}")) resolve(JSON.parse(line) as Record<string, unknown>);
    });
  });
}

async function expectAnswer({ httpPort }: Started): Promise<void> {
  const response = await fetch(
    `http://127.0.0.1:${httpPort}/turnwire.chat.v1.ChatService/SendMessageAndWait`,
    {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: '{"text":"hello"}',
    },
  );
  expect(response.status).toBe(200);
  const reply = (await response.json()) as { text?: string; status?: string };
  expect(reply.status).toBe("TURN_STATUS_ENDED");
  expect(reply.text).toMatch(/demo/i);
}
