import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { connect } from "nats";
import { describe, expect, onTestFinished, test } from "vitest";
import { silentLogger } from "../../src/lib/log.js";
import {
  findNatsServer,
  startNatsServer,
  type NatsServerBinary,
} from "../../src/main/embedded/nats-server.js";
import { identifyProcess } from "../../src/main/embedded/process-info.js";
import { describeWithNats } from "../support/nats.js";

function scratchDir(): string {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "turnwire-nats-"));
  onTestFinished(() => fs.rmSync(dir, { recursive: true, force: true }));
  return dir;
}

async function start(binary: NatsServerBinary, dataDir: string) {
  const server = await startNatsServer({ binary, dataDir, logger: silentLogger });
  onTestFinished(() => server.stop());
  return server;
}

/** Connects with the server's own address and asks JetStream for its account. */
async function storesStreams(url: string): Promise<boolean> {
  const { host, username, password } = new URL(url);
  const connection = await connect({ servers: host, user: username, pass: password });
  try {
    const manager = await connection.jetstreamManager();
    return (await manager.getAccountInfo()).limits !== undefined;
  } finally {
    await connection.close();
  }
}

describeWithNats("private nats-server", (binary) => {
  test("runs on loopback behind a password, and is gone after stop", async () => {
    const dataDir = scratchDir();
    const server = await startNatsServer({ binary, dataDir, logger: silentLogger });
    onTestFinished(() => server.stop());
    const { pid } = server;
    expect(new URL(server.url).hostname).toBe("127.0.0.1");
    expect(await storesStreams(server.url)).toBe(true);
    await expect(connect({ servers: `127.0.0.1:${server.port}` })).rejects.toThrow(/authorization/i);
    for (const file of ["nats.conf", "nats.secret", "nats.json"]) {
      expect(fs.statSync(path.join(dataDir, file)).mode & 0o077, file).toBe(0);
    }
    await server.stop();
    expect(identifyProcess(pid)).toBeUndefined();
  });

  test("comes back on the same port when it is killed", async () => {
    const server = await start(binary, scratchDir());
    const { pid, port } = server;
    process.kill(pid, "SIGKILL");
    await expect.poll(() => server.pid, { timeout: 10_000 }).not.toBe(pid);
    await expect.poll(() => storesStreams(server.url).catch(() => false), { timeout: 10_000 }).toBe(true);
    expect(server.port).toBe(port);
  });

  test("the server of a killed predecessor is adopted, and started again when it dies", async () => {
    const dataDir = scratchDir();
    const left = await startAndBeKilled(binary, dataDir);
    const server = await start(binary, dataDir);
    expect(server).toMatchObject({ adopted: true, pid: left.pid, url: left.url });
    expect(await storesStreams(server.url)).toBe(true);
    process.kill(left.pid, "SIGKILL");
    await expect.poll(() => server.pid, { timeout: 10_000 }).not.toBe(left.pid);
    await expect.poll(() => storesStreams(server.url).catch(() => false), { timeout: 10_000 }).toBe(true);
  });

  test.runIf(process.platform === "linux")(
    "a predecessor that does not answer is ended before a new one starts",
    async () => {
      const dataDir = scratchDir();
      const left = await startAndBeKilled(binary, dataDir);
      process.kill(left.pid, "SIGSTOP");
      // The signal takes effect when one of its threads next runs.
      await expect.poll(() => stateOf(left.pid), { timeout: 10_000 }).toBe("T");
      const server = await start(binary, dataDir);
      expect(server.adopted).toBe(false);
      expect(identifyProcess(left.pid)).toBeUndefined();
      expect(await storesStreams(server.url)).toBe(true);
    },
  );

  test("a record that names another process by now ends nobody", async () => {
    const dataDir = scratchDir();
    const stranger = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], { stdio: "ignore" });
    onTestFinished(() => void stranger.kill("SIGKILL"));
    const record = { pid: stranger.pid, startedAt: "another-boot/1", port: 4222, version: binary.version };
    fs.writeFileSync(path.join(dataDir, "nats.json"), JSON.stringify(record));
    const server = await start(binary, dataDir);
    expect(server).toMatchObject({ adopted: false });
    expect(identifyProcess(stranger.pid!)).toBeDefined();
    expect(stranger.exitCode ?? stranger.signalCode).toBeNull();
  });

  test("says why it did not start", async () => {
    const server = await start(binary, scratchDir());
    const again = startNatsServer({ binary, dataDir: scratchDir(), port: server.port, logger: silentLogger });
    await expect(again).rejects.toThrow(/nats-server did not start: .*address already in use/);
  });
});

describe("findNatsServer", () => {
  test("a NATS_SERVER that is no nats-server is an error, not a fall-back", () => {
    expect(() => findNatsServer({ env: { NATS_SERVER: process.execPath } })).toThrow(/NATS_SERVER/);
  });

  test("without any it is undefined", () => {
    expect(findNatsServer({ env: { PATH: "/nowhere" }, cacheDir: "/nowhere" })).toBeUndefined();
  });
});

/** The letter that the kernel gives for what a process does: "T" = stopped. */
function stateOf(pid: number): string | undefined {
  const stat = fs.readFileSync(`/proc/${pid}/stat`, "utf8");
  return stat.slice(stat.lastIndexOf(")") + 2)[0];
}

/** A process of its own starts a server and is killed (-9) once it runs. */
async function startAndBeKilled(
  binary: NatsServerBinary,
  dataDir: string,
): Promise<{ pid: number; url: string }> {
  const module = path.resolve("src/main/embedded/nats-server.ts");
  const script = `
    import { startNatsServer } from ${JSON.stringify(module)};
    import { silentLogger } from ${JSON.stringify(path.resolve("src/lib/log.ts"))};
    const options = { binary: ${JSON.stringify(binary)}, dataDir: ${JSON.stringify(dataDir)}, logger: silentLogger };
    const server = await startNatsServer(options);
    console.log(JSON.stringify({ pid: server.pid, url: server.url }));
    setInterval(() => undefined, 1000);`;
  const args = ["--import", "tsx", "--input-type=module", "-e", script];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  const line = await new Promise<string>((resolve, reject) => {
    child.stdout.once("data", (chunk: Buffer) => resolve(chunk.toString()));
    child.once("exit", (code) => reject(new Error(`ended with ${code}`)));
  });
  const started = JSON.parse(line) as { pid: number; url: string };
  const gone = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGKILL");
  await gone;
  return started;
}
