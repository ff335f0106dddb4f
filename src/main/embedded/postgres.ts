/**
 * The embedded Postgres: the binaries of the npm package, run as a server of our own on loopback.
 *
 * Owns: the server process (start, adoption, restart after a crash, stop). Not: the data directory's lock (data-dir.ts;
 * take it first), schemas, connections.
 *
 * E1 At most one server per cluster: a live one that a killed run left behind is adopted, never doubled.
 * E2 The server's files are never touched while any process of it may still write (Postgres's own check of its shared
 *    memory is kept, whatever became of the pid file).
 * E3 The server does not die with our terminal or process; `stop` ends it in order.
 */
import { spawn } from "node:child_process";
import { closeSync, existsSync, fstatSync, openSync, readSync, renameSync, statSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../lib/errors.js";
import type { Logger } from "../../lib/log.js";
import { freePort } from "./loopback-port.js";
import { preparePostgresBinaries, type PostgresBinaries } from "./postgres-binaries.js";
import {
  diskReason,
  explainFileError,
  openCluster,
  postgresEnv,
  syncCluster,
  type Cluster,
} from "./postgres-cluster.js";
import { endProcess, findPostmaster, neutralisePidFile, waitReady, type Postmaster } from "./postmaster.js";
import { identifyProcess, isAlive } from "./process-info.js";
import { chooseRunAs } from "./run-as.js";

export interface StartPostgresOptions {
  /** The data directory; the cluster lies below it, or where the server's user can reach (see postgres-cluster.ts). */
  readonly dataDir: string;
  readonly logger: Logger;
  /** Port on 127.0.0.1. Default: a free one, or that of the server adopted. */
  readonly port?: number;
  /** Start the server again on the same port when it dies by itself. Default true. */
  readonly restart?: boolean;
}

export interface EmbeddedPostgres {
  readonly url: string;
  /** Of the postmaster; another one after a restart. */
  readonly pid: number;
  readonly port: number;
  /** PGDATA. */
  readonly pgdata: string;
  /** Fast shutdown, then waits until the process is gone. Idempotent. */
  stop(): Promise<void>;
}

const SETTINGS: Readonly<Record<string, string>> = {
  listen_addresses: "127.0.0.1",
  unix_socket_directories: "",
  max_connections: "100",
  // Taken as it is used: a search ranks thousands of rows, and reads them twice as fast from here as from the system's cache.
  shared_buffers: "256MB",
  huge_pages: "off",
  fsync: "on",
  synchronous_commit: "on",
  wal_level: "minimal",
  max_wal_senders: "0",
  io_method: "sync",
  // After kill -9: one syncfs instead of an fsync of each file (Linux only).
  ...(process.platform === "linux" ? { recovery_init_sync_method: "syncfs" } : {}),
  jit: "off",
  // The log stays small, and holds no statement (a statement holds what people wrote).
  logging_collector: "off",
  log_checkpoints: "off",
  log_autovacuum_min_duration: "-1",
  log_min_messages: "fatal",
  log_min_error_statement: "panic",
  log_parameter_max_length_on_error: "0",
};

const MAX_LOG_BYTES = 1 << 20;
/** How long processes of a killed server may keep its shared memory before a start gives up. */
const LEFTOVER_TIMEOUT_MS = 15_000;
const WATCH_MS = 100;
const MAX_RESTARTS_PER_MINUTE = 20;

/**
 * Starts the embedded Postgres of a data directory, or adopts the one that runs; ready when it resolves.
 * @throws TurnError UNAVAILABLE saying what is wrong (binaries, disk, permissions, port).
 */
export async function startPostgres(options: StartPostgresOptions): Promise<EmbeddedPostgres> {
  const user = chooseRunAs();
  const binaries = preparePostgresBinaries(user);
  const cluster = await openCluster(options.dataDir, binaries, user);
  const server = new Server(cluster, binaries, options);
  await server.start();
  return server;
}

class Server implements EmbeddedPostgres {
  readonly #cluster: Cluster;
  readonly #binaries: PostgresBinaries;
  readonly #logger: Logger;
  readonly #wantedPort: number | undefined;
  readonly #restart: boolean;
  #postmaster: Postmaster | undefined;
  #watch: NodeJS.Timeout | undefined;
  #recovery: Promise<void> | undefined;
  #sync: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;
  #restarts: number[] = [];

  constructor(cluster: Cluster, binaries: PostgresBinaries, options: StartPostgresOptions) {
    this.#cluster = cluster;
    this.#binaries = binaries;
    this.#logger = options.logger.child({ part: "postgres" });
    this.#wantedPort = options.port;
    this.#restart = options.restart ?? true;
  }

  get pid(): number {
    return this.#postmaster!.pid;
  }

  get port(): number {
    return this.#postmaster!.port;
  }

  get url(): string {
    return `postgres://turnwire@127.0.0.1:${this.port}/postgres`;
  }

  get pgdata(): string {
    return this.#cluster.pgdata;
  }

  async start(): Promise<void> {
    this.#postmaster = await this.#obtain(this.#wantedPort);
    if (this.#cluster.created) {
      this.#sync = syncCluster(this.#cluster, this.#binaries).catch((error: unknown) => {
        this.#logger.warn({ err: error }, "the new database's files could not be flushed to the disk");
      });
    }
    this.#watch = setInterval(() => this.#look(), WATCH_MS).unref();
  }

  stop(): Promise<void> {
    return (this.#stopping ??= this.#stop());
  }

  async #stop(): Promise<void> {
    clearInterval(this.#watch);
    await this.#recovery;
    await this.#sync;
    if (this.#postmaster) await endProcess(this.#postmaster);
  }

  /** The live server of a run that was killed (E1); undefined when there is none. */
  async #adopt(wantedPort: number | undefined): Promise<Postmaster | undefined> {
    const found = await findPostmaster(this.#cluster.pgdata);
    if (found === undefined) return undefined;
    const ready = await waitReady(this.#cluster.pgdata, found);
    if (ready === undefined) return undefined; // it was on its way down
    if (wantedPort === undefined || ready.port === wantedPort) {
      this.#logger.info({ pid: ready.pid, port: ready.port }, "adopted the running Postgres");
      return ready;
    }
    await endProcess(ready);
    return undefined;
  }

  async #obtain(wantedPort: number | undefined): Promise<Postmaster> {
    const giveUpAt = performance.now() + LEFTOVER_TIMEOUT_MS;
    for (;;) {
      const running = await this.#adopt(wantedPort);
      if (running) return running;
      const port = wantedPort ?? (await freePort());
      neutralisePidFile(this.#cluster.pgdata);
      const outcome = await this.#spawn(port);
      if (outcome.kind === "ready") return outcome.postmaster;
      const patient = performance.now() < giveUpAt;
      if (outcome.kind === "port_taken" && wantedPort === undefined && patient) continue;
      if (outcome.kind === "leftovers" && patient) {
        await delay(50);
        continue;
      }
      throw new TurnError(ErrorCode.UNAVAILABLE, {
        message:
          outcome.kind === "port_taken"
            ? `Postgres cannot listen on 127.0.0.1:${port}: the port is taken`
            : `Postgres did not start in ${this.#cluster.pgdata}: ${outcome.reason}`,
        cause: new Error(outcome.reason),
      });
    }
  }

  async #spawn(port: number): Promise<SpawnOutcome> {
    const log = openLog(this.#cluster.logFile);
    const { pgdata, user } = this.#cluster;
    const settings = Object.entries({ ...SETTINGS, port: String(port) }).flatMap(([name, value]) => [
      "-c",
      `${name}=${value}`,
    ]);
    const child = spawn(this.#binaries.postgres, ["-D", pgdata, ...settings], {
      ...(user ? { uid: user.uid, gid: user.gid } : {}),
      cwd: pgdata,
      env: postgresEnv(),
      detached: true, // a session of its own: no Ctrl-C of our terminal reaches it (E3)
      stdio: ["ignore", "ignore", log.fd],
    });
    child.unref();
    const failed = new Promise<Error>((resolve) => child.once("error", resolve));
    try {
      if (child.pid === undefined) return { kind: "failed", reason: (await failed).message };
      const self = identifyProcess(child.pid) ?? { pid: child.pid, startedAt: "" };
      const ready = await waitReady(pgdata, self);
      return ready ? { kind: "ready", postmaster: ready } : explainExit(log.textSince());
    } finally {
      closeSync(log.fd);
    }
  }

  #look(): void {
    if (this.#stopping || this.#recovery || !this.#postmaster || isAlive(this.#postmaster)) return;
    this.#logger.error({ pid: this.#postmaster.pid }, "Postgres died");
    if (!this.#restart) {
      clearInterval(this.#watch);
      return;
    }
    this.#recovery = this.#revive(this.#postmaster.port).finally(() => (this.#recovery = undefined));
  }

  async #revive(port: number): Promise<void> {
    const now = performance.now();
    this.#restarts = [...this.#restarts.filter((at) => now - at < 60_000), now];
    try {
      if (this.#restarts.length > MAX_RESTARTS_PER_MINUTE) await delay(5_000);
      this.#postmaster = await this.#obtain(port);
      this.#logger.info({ pid: this.#postmaster.pid, port }, "Postgres runs again");
    } catch (error) {
      // The next look tries again.
      this.#logger.error({ err: error }, "Postgres could not be started again");
      await delay(500);
    }
  }
}

type SpawnOutcome =
  | { readonly kind: "ready"; readonly postmaster: Postmaster }
  | { readonly kind: "port_taken"; readonly reason: string }
  /** Processes of a killed server still hold its shared memory. */
  | { readonly kind: "leftovers"; readonly reason: string }
  | { readonly kind: "failed"; readonly reason: string };

function explainExit(log: string): SpawnOutcome {
  const lastLine =
    log
      .trim()
      .split("\n")
      .findLast((line) => /FATAL|PANIC|error/.test(line)) ?? log.trim().slice(-500);
  const reason =
    diskReason(log) ?? (lastLine.replace(/^.*?(FATAL|PANIC):\s*/, "") || "it ended without a word");
  if (/Address already in use|could not create any TCP\/IP sockets/.test(log))
    return { kind: "port_taken", reason };
  if (/pre-existing shared memory block|lock file .* already exists/.test(log))
    return { kind: "leftovers", reason };
  return { kind: "failed", reason };
}

/** Opens the log for appending; one that has grown too long is put aside first. */
function openLog(file: string): { readonly fd: number; textSince(): string } {
  try {
    if (existsSync(file) && statSync(file).size > MAX_LOG_BYTES) renameSync(file, `${file}.old`);
    const fd = openSync(file, "a+", 0o600);
    const start = fstatSync(fd).size;
    return {
      fd,
      textSince() {
        const bytes = Buffer.alloc(Math.min(64 * 1024, Math.max(0, fstatSync(fd).size - start)));
        readSync(fd, bytes, 0, bytes.length, start);
        return bytes.toString("utf8");
      },
    };
  } catch (error) {
    throw explainFileError(file, error);
  }
}
