/**
 * Owns a private nats-server: its process, its configuration and its store under the data directory. It listens on
 * loopback only and asks for a password that only this data directory knows.
 *
 * Invariants: one server per data directory - one that a killed predecessor left running is adopted, or ended before a new
 * one starts, and only after its process id *and* start time were found to be the recorded ones. A server that dies while
 * it is needed is started again on the same port. It outlives this process when that is killed.
 */
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import type { Logger } from "../../lib/log.js";
import { systemClock } from "../../lib/clock.js";
import { freePort, isFree } from "./loopback-port.js";
import { identifyProcess, isAlive, type ProcessIdentity } from "./process-info.js";

/** A nats-server program. */
export interface NatsServerBinary {
  readonly path: string;
  /** For example "2.9.10". */
  readonly version: string;
}

export interface FindNatsServerOptions {
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Folder with `<version>/nats-server` below it. Default `.cache/nats` in the working directory. */
  readonly cacheDir?: string;
}

/** The nats-server to use: `NATS_SERVER`, else PATH, else the newest in the cache; undefined = none. */
export function findNatsServer(options: FindNatsServerOptions = {}): NatsServerBinary | undefined {
  const env = options.env ?? process.env;
  if (env["NATS_SERVER"]) {
    const chosen = describe(env["NATS_SERVER"]);
    if (!chosen) throw new Error("NATS_SERVER does not name a nats-server program that runs");
    return chosen;
  }
  for (const folder of (env["PATH"] ?? "").split(path.delimiter)) {
    const found = folder && describe(path.join(folder, "nats-server"));
    if (found) return found;
  }
  return cachedNatsServers(options.cacheDir).at(-1);
}

/** The servers in the cache folder, oldest first. */
export function cachedNatsServers(cacheDir = path.join(process.cwd(), ".cache", "nats")): NatsServerBinary[] {
  if (!fs.existsSync(cacheDir)) return [];
  return fs
    .readdirSync(cacheDir)
    .map((version) => describe(path.join(cacheDir, version, "nats-server")))
    .filter((server) => server !== undefined)
    .sort((a, b) => compareVersions(a.version, b.version));
}

function describe(file: string): NatsServerBinary | undefined {
  try {
    fs.accessSync(file, fs.constants.X_OK);
    const said = execFileSync(file, ["--version"], { encoding: "utf8", timeout: 5_000 });
    const version = /nats-server:? v(\d+\.\d+\.\d+)/.exec(said)?.[1];
    return version === undefined ? undefined : { path: file, version };
  } catch {
    return undefined; // not there, or not a program for this machine
  }
}

function compareVersions(a: string, b: string): number {
  const left = a.split(".").map(Number);
  const right = b.split(".").map(Number);
  const at = left.findIndex((part, index) => part !== right[index]);
  return at < 0 ? 0 : left[at]! - (right[at] ?? 0);
}

export interface StartNatsServerOptions {
  readonly binary: NatsServerBinary;
  /** Everything the server keeps is below it: `nats.conf`, `nats.json`, `jetstream/`. */
  readonly dataDir: string;
  /** Default: the port it had before if that is free, else any. */
  readonly port?: number;
  /** fsync each write (servers from 2.10 on; an older one ignores this). Default true. */
  readonly syncAlways?: boolean;
  /** HTTP monitoring on this port of the loopback. Default: off. */
  readonly monitorPort?: number;
  readonly logger: Logger;
}

export interface RunningNatsServer {
  /** With the user and the password in it: a secret. */
  readonly url: string;
  readonly port: number;
  /** Of the process that runs now; changes when the server had to be started again. */
  readonly pid: number;
  readonly version: string;
  /** True when a predecessor's live server was taken over. */
  readonly adopted: boolean;
  /** Ends the server (gently, then firmly) and waits until it is gone. */
  stop(): Promise<void>;
}

/** What is remembered of the server process, so that the next run knows it again. */
interface ServerRecord extends ProcessIdentity {
  readonly port: number;
  readonly version: string;
}

const READY_WITHIN_MS = 10_000;
const STOP_WITHIN_MS = 5_000;
const QUICK_RESTARTS_PER_MINUTE = 20;
const SLOW_RESTART_MS = 2_000;

/** Starts a server, or adopts the live one of a killed predecessor. Resolves when it takes connections. */
export async function startNatsServer(options: StartNatsServerOptions): Promise<RunningNatsServer> {
  fs.mkdirSync(options.dataDir, { recursive: true, mode: 0o700 });
  const server = new NatsServerProcess(options);
  await server.start();
  return server;
}

class NatsServerProcess implements RunningNatsServer {
  readonly #options: StartNatsServerOptions;
  readonly #recordFile: string;
  readonly #password: string;
  /** The server greets with it: so a port that answers is known to be ours. */
  readonly #name: string;
  #record: ServerRecord | undefined;
  #stopping = false;
  #restartsAtMs: number[] = [];
  #watcher: NodeJS.Timeout | undefined;
  adopted = false;

  constructor(options: StartNatsServerOptions) {
    this.#options = options;
    this.#recordFile = path.join(options.dataDir, "nats.json");
    this.#password = readOrMakeSecret(path.join(options.dataDir, "nats.secret"));
    this.#name = `turnwire-${createHash("sha256").update(this.#password).digest("hex").slice(0, 16)}`;
  }

  get #current(): ServerRecord {
    if (!this.#record) throw new Error("the nats-server is not running");
    return this.#record;
  }
  get port(): number {
    return this.#current.port;
  }
  get pid(): number {
    return this.#current.pid;
  }
  get version(): string {
    return this.#current.version;
  }
  get url(): string {
    return `nats://turnwire:${this.#password}@127.0.0.1:${this.port}`;
  }

  async start(): Promise<void> {
    const left = readRecord(this.#recordFile);
    if (left && isAlive(left)) {
      const wanted = this.#options.port ?? left.port;
      const responsive = await greets(left.port, this.#name);
      if (responsive && left.version === this.#options.binary.version && left.port === wanted) {
        this.#adopt(left);
        return;
      }
      await endProcess(left, responsive ? ["SIGTERM", "SIGKILL"] : ["SIGKILL"]);
    }
    const lastPort = left && (await isFree(left.port)) ? left.port : undefined;
    await this.#launch(this.#options.port ?? lastPort ?? (await freePort()));
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    clearInterval(this.#watcher);
    if (this.#record) await endProcess(this.#record);
    fs.rmSync(this.#recordFile, { force: true });
  }

  #adopt(record: ServerRecord): void {
    this.adopted = true;
    this.#record = record;
    this.#options.logger.info({ natsPid: record.pid, port: record.port }, "adopted the running nats-server");
    // It is nobody's child here: look whether it lives, as `exit` will not tell.
    this.#watcher = setInterval(() => {
      if (isAlive(record)) return;
      clearInterval(this.#watcher);
      this.#onExit(record);
    }, 100);
    this.#watcher.unref();
  }

  async #launch(port: number): Promise<void> {
    const { binary, dataDir, logger } = this.#options;
    const config = path.join(dataDir, "nats.conf");
    fs.writeFileSync(config, this.#config(port), { mode: 0o600 });
    // Not a pipe: the server outlives this process and must be able to write then. Its own session, so that Ctrl-C in a
    // terminal reaches it only through `stop`, after what still needs it.
    const errors = path.join(dataDir, "nats.stderr");
    const stderr = fs.openSync(errors, "w", 0o600);
    const child = spawn(binary.path, ["-c", config], { stdio: ["ignore", "ignore", stderr], detached: true });
    fs.closeSync(stderr);
    const exited = new Promise<string>((resolve) => {
      child.once("error", (error) => resolve(error.message));
      child.once("exit", (code, signal) =>
        resolve(`ended (${signal ?? code}): ${lastLines(errors, path.join(dataDir, "nats.log"))}`),
      );
    });
    const { pid } = child;
    if (pid === undefined) throw new Error(`nats-server did not start: ${await exited}`);
    const record = { ...(identifyProcess(pid) ?? { pid, startedAt: "" }), port, version: binary.version };
    writeAtomically(this.#recordFile, JSON.stringify(record));
    this.#record = record;
    child.unref();
    const why = await Promise.race([exited, ready(port, this.#name, child)]);
    if (why !== undefined) {
      await endProcess(record);
      throw new Error(`nats-server did not start: ${why}`);
    }
    logger.info({ natsPid: pid, port, version: binary.version }, "nats-server is ready");
    void exited.then(() => this.#onExit(record));
  }

  #onExit(record: ServerRecord): void {
    if (this.#stopping || this.#record !== record) return;
    this.#options.logger.error({ natsPid: record.pid }, "nats-server ended unexpectedly; starting it again");
    void this.#restart(record.port);
  }

  async #restart(port: number): Promise<void> {
    while (!this.#stopping) {
      // At once, as a rule; one that keeps dying must not take the machine with it.
      const minuteAgo = performance.now() - 60_000;
      this.#restartsAtMs = this.#restartsAtMs.filter((atMs) => atMs > minuteAgo);
      if (this.#restartsAtMs.length >= QUICK_RESTARTS_PER_MINUTE) await systemClock.sleep(SLOW_RESTART_MS);
      this.#restartsAtMs.push(performance.now());
      try {
        await this.#launch(port);
        if (this.#stopping && this.#record) await endProcess(this.#record);
        return;
      } catch (error) {
        this.#options.logger.error({ err: error }, "nats-server could not be started again");
      }
    }
  }

  #config(port: number): string {
    const { binary, dataDir, monitorPort } = this.#options;
    const sync = (this.#options.syncAlways ?? true) && compareVersions(binary.version, "2.10.0") >= 0;
    return [
      "# Written by Turnwire at each start.",
      "host: 127.0.0.1",
      `port: ${port}`,
      ...(monitorPort === undefined ? [] : [`http: "127.0.0.1:${monitorPort}"`]),
      `server_name: ${this.#name}`,
      "max_payload: 1MB",
      `log_file: ${JSON.stringify(path.join(dataDir, "nats.log"))}`,
      "logfile_size_limit: 10MB",
      `authorization { user: turnwire, password: "${this.#password}" }`,
      "jetstream {",
      `  store_dir: ${JSON.stringify(path.join(dataDir, "jetstream"))}`,
      ...(sync ? ["  sync_interval: always"] : []),
      "}",
      "",
    ].join("\n");
  }
}

function readOrMakeSecret(file: string): string {
  try {
    fs.writeFileSync(file, randomBytes(24).toString("hex"), { mode: 0o600, flag: "wx" });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
  return fs.readFileSync(file, "utf8");
}

function readRecord(file: string): ServerRecord | undefined {
  try {
    const record = JSON.parse(fs.readFileSync(file, "utf8")) as ServerRecord;
    return Number.isInteger(record.pid) && record.pid > 1 && record.startedAt ? record : undefined;
  } catch {
    return undefined; // none, or cut short by a crash: the start time could not be checked anyway
  }
}

function writeAtomically(file: string, text: string): void {
  fs.writeFileSync(`${file}.new`, text, { mode: 0o600 });
  fs.renameSync(`${file}.new`, file);
}

async function endProcess(
  record: ServerRecord,
  signals: readonly NodeJS.Signals[] = ["SIGTERM", "SIGKILL"],
): Promise<void> {
  for (const signal of signals) {
    if (!isAlive(record)) return;
    try {
      process.kill(record.pid, signal);
    } catch {
      return; // it went in between
    }
    const deadline = performance.now() + STOP_WITHIN_MS;
    while (isAlive(record) && performance.now() < deadline) await systemClock.sleep(20);
  }
  if (isAlive(record)) throw new Error(`nats-server ${record.pid} does not end`);
}

/** Resolves undefined when the server takes connections, or says why not. */
async function ready(port: number, name: string, child: ChildProcess): Promise<string | undefined> {
  const deadline = performance.now() + READY_WITHIN_MS;
  while (performance.now() < deadline) {
    if (child.exitCode !== null || child.signalCode !== null) return new Promise(() => undefined); // `exited` says why
    if (await greets(port, name)) return undefined;
    await systemClock.sleep(10);
  }
  return `it did not answer within ${READY_WITHIN_MS} ms`;
}

/** Whether the NATS server of that name greets on the port within a second. */
function greets(port: number, name: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = net.connect({ host: "127.0.0.1", port });
    const done = (yes: boolean): void => {
      socket.destroy();
      resolve(yes);
    };
    socket.setTimeout(1_000, () => done(false));
    let greeting = "";
    socket.setEncoding("utf8").on("data", (text: string) => {
      greeting += text;
      if (greeting.includes("\r\n"))
        done(greeting.startsWith("INFO ") && greeting.includes(`"server_name":"${name}"`));
    });
    socket.once("error", () => done(false));
    socket.once("end", () => done(false));
  });
}

/** The last lines of these files; those that are not there are left out. */
function lastLines(...files: readonly string[]): string {
  const lines = files.flatMap((file) => {
    try {
      return fs.readFileSync(file, "utf8").trim().split("\n").slice(-3);
    } catch {
      return []; // the folder was removed meanwhile, or nothing was written yet
    }
  });
  return lines.filter((line) => line !== "").join(" | ");
}
