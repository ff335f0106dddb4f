import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface, type Interface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { openDataDir } from "../../src/main/embedded/data-dir.js";
import { identifyProcess } from "../../src/main/embedded/process-info.js";

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "turnwire-dir-"));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

/** The pid of a process that has ended. */
async function deadPid(): Promise<number> {
  const child = spawn(process.execPath, ["-e", ""]);
  const { pid } = child;
  await new Promise((resolve) => child.once("exit", resolve));
  return pid!;
}

function writeLock(file: string, pid: number, startedAt: string, nonce: string): void {
  writeFileSync(file, JSON.stringify({ pid, startedAt, nonce }));
}

describe("openDataDir", () => {
  it("makes a private directory with a lasting id, and leaves nothing but the id when released", async () => {
    const path = join(root, "a", "b");
    const first = await openDataDir(path);
    expect(statSync(path).mode & 0o777).toBe(0o700);
    await first.release();
    await first.release();
    const second = await openDataDir(path);
    expect(second.id).toBe(first.id);
    expect(second.id).toMatch(/^[0-9a-f-]{36}$/);
    await second.release();
    expect(readdirSync(path)).toEqual(["id"]);
    const other = await openDataDir(join(root, "other"));
    expect(other.id).not.toBe(first.id);
    await other.release();
  });

  it("while it is open - refused, naming the process and the path; released it can be had", async () => {
    const held = await openDataDir(root);
    const refused = openDataDir(root);
    await expect(refused).rejects.toMatchObject({ code: ErrorCode.UNAVAILABLE });
    await expect(refused).rejects.toThrow(
      `the data directory ${held.path} is in use by process ${process.pid}`,
    );
    await held.release();
    await (await openDataDir(root)).release();
  });

  it("a lock of a dead process, of a recycled pid, or one that cannot be read is taken over", async () => {
    const lock = join(root, "lock");
    const mine = identifyProcess(process.pid)!;
    for (const prepare of [
      async () => writeLock(lock, await deadPid(), mine.startedAt, "aa"),
      async () => writeLock(lock, process.pid, "another-boot/1", "bb"),
      async () => writeFileSync(lock, "{ not json"),
      async () => writeFileSync(lock, ""),
      // The one who was taking it over died in the middle.
      async () => {
        writeLock(lock, await deadPid(), "x/1", "cc");
        writeLock(`${lock}.cc`, await deadPid(), "x/2", "dd");
      },
    ]) {
      await prepare();
      const held = await openDataDir(root);
      expect(JSON.parse(readFileSync(lock, "utf8"))).toMatchObject({
        pid: process.pid,
        startedAt: mine.startedAt,
      });
      expect(readdirSync(root).toSorted()).toEqual(["id", "lock"]);
      await held.release();
    }
  });

  it("releasing takes nobody else's lock away", async () => {
    const held = await openDataDir(root);
    writeLock(join(root, "lock"), process.pid, identifyProcess(process.pid)!.startedAt, "ee");
    await held.release();
    await expect(openDataDir(root)).rejects.toMatchObject({ code: ErrorCode.UNAVAILABLE });
  });

  it("a zombie holds nothing", async () => {
    // The shell's child ends when the shell has become `sleep`, which waits for no child.
    const untilSleep = "until grep -q sleep /proc/$PPID/comm; do :; done";
    const parent = spawn("sh", ["-c", `sh -c '${untilSleep}' & echo $!; exec sleep 60`], {
      stdio: ["ignore", "pipe", "ignore"],
    });
    try {
      const pid = Number(
        await new Promise((resolve) =>
          parent.stdout.once("data", (data: Buffer) => resolve(data.toString())),
        ),
      );
      await expect.poll(() => readFileSync(`/proc/${pid}/stat`, "utf8")).toMatch(/\) Z /);
      expect(identifyProcess(pid)).toBeUndefined();
      writeLock(join(root, "lock"), pid, "", "ff");
      await (await openDataDir(root)).release();
    } finally {
      parent.kill("SIGKILL");
    }
  });

  it("a path that is no directory, or cannot be written - UNAVAILABLE, saying why and what to do", async () => {
    const file = join(root, "file");
    writeFileSync(file, "");
    for (const path of [file, join(file, "below"), "/sys/turnwire-test"]) {
      const opened = openDataDir(path);
      await expect(opened, path).rejects.toMatchObject({ code: ErrorCode.UNAVAILABLE });
      await expect(opened, path).rejects.toThrow(/cannot be used: .*TURNWIRE_DATA_DIR/);
    }
  });

  it("20 starters at once in one process - one wins", async () => {
    const outcomes = await Promise.allSettled(Array.from({ length: 20 }, () => openDataDir(root)));
    const won = outcomes.filter((outcome) => outcome.status === "fulfilled");
    expect(won.length).toBe(1);
    await won[0]!.value.release();
  });

  it("4 processes at once over a stale lock, 15 times - exactly one wins each time", async () => {
    const starters = Array.from({ length: 4 }, () => new Starter());
    try {
      for (let round = 0; round < 15; round++) {
        const directory = mkdtempSync(join(root, "round-"));
        writeLock(join(directory, "lock"), await deadPid(), "x/1", "abc");
        const answers = await Promise.all(starters.map((starter) => starter.ask(`open ${directory}`)));
        const winners = answers.filter((answer) => answer === "won");
        expect(winners.length, answers.join("; ")).toBe(1);
        const winner = starters[answers.indexOf("won")]!;
        for (const answer of answers) if (answer !== "won") expect(answer).toContain(`in use by process`);
        expect(JSON.parse(readFileSync(join(directory, "lock"), "utf8"))).toMatchObject({ pid: winner.pid });
      }
    } finally {
      await Promise.all(starters.map((starter) => starter.kill()));
    }
    // All of them died with their locks: they are free.
    for (const name of readdirSync(root)) await (await openDataDir(join(root, name))).release();
  }, 60_000);
});

/** A process that opens data directories when told to, and keeps them. */
class Starter {
  readonly #child: ChildProcess;
  readonly #lines: Interface;

  constructor() {
    const module = fileURLToPath(new URL("../../src/main/embedded/data-dir.ts", import.meta.url));
    const program = `
      import { createInterface } from "node:readline";
      import { openDataDir } from ${JSON.stringify(module)};
      for await (const line of createInterface({ input: process.stdin })) {
        await openDataDir(line.slice(5)).then(() => console.log("won"), (error) => console.log(error.message));
      }`;
    this.#child = spawn(process.execPath, ["--import", "tsx", "--input-type=module", "-e", program], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    this.#lines = createInterface({ input: this.#child.stdout! });
  }

  get pid(): number {
    return this.#child.pid!;
  }

  ask(line: string): Promise<string> {
    const answer = new Promise<string>((resolve) => this.#lines.once("line", resolve));
    this.#child.stdin!.write(`${line}\n`);
    return answer;
  }

  async kill(): Promise<void> {
    const ended = new Promise((resolve) => this.#child.once("exit", resolve));
    this.#child.kill("SIGKILL");
    await ended;
  }
}
