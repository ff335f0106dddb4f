/**
 * The server process of a cluster, seen from outside: found by its pid file, waited for, ended. Nothing here starts one.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../lib/errors.js";
import { identifyProcess, isAlive, workingDirectory, type ProcessIdentity } from "./process-info.js";

/** A server that accepts connections. */
export interface Postmaster extends ProcessIdentity {
  readonly port: number;
}

/** Crash recovery replays up to max_wal_size; longer than this is a fault. */
const READY_TIMEOUT_MS = 60_000;
const FAST_STOP_MS = 15_000;
const IMMEDIATE_STOP_MS = 5_000;
const POLL_MS = 5;

interface PidFile {
  readonly pid: number;
  readonly port: number;
  readonly status: string;
  readonly text: string;
}

function readPidFile(pgdata: string): PidFile | undefined {
  try {
    const text = readFileSync(join(pgdata, "postmaster.pid"), "utf8");
    const lines = text.split("\n");
    return { pid: Number(lines[0]), port: Number(lines[3]), status: (lines[7] ?? "").trim(), text };
  } catch {
    return undefined; // no server, or it is just now writing it
  }
}

/** The process that runs this cluster, if one does: alive, no zombie, and working in this very directory. */
export async function findPostmaster(pgdata: string): Promise<ProcessIdentity | undefined> {
  const file = readPidFile(pgdata);
  const running = file && identifyProcess(file.pid);
  if (!running) return undefined;
  const directory = workingDirectory(running.pid);
  if (directory !== undefined) return directory === pgdata ? running : undefined;
  return (await servesDirectory(file.port, pgdata)) ? running : undefined;
}

/** Where the system does not tell what a process works on, the server itself is asked. */
async function servesDirectory(port: number, pgdata: string): Promise<boolean> {
  const client = new pg.Client({
    host: "127.0.0.1",
    port,
    user: "turnwire",
    database: "postgres",
    connectionTimeoutMillis: 2_000,
  });
  client.on("error", () => undefined); // reported by the query
  try {
    await client.connect();
    const answer = await client.query<{ data_directory: string }>("show data_directory");
    return answer.rows[0]?.data_directory === pgdata;
  } catch {
    return false;
  } finally {
    await client.end().catch(() => undefined);
  }
}

/**
 * Postgres itself clears the pid file of a dead server, after a look at the shared memory named in it (E2). A file whose
 * pid now belongs to a stranger would stop it; with our own pid in the first line it takes the file for stale and looks.
 */
export function neutralisePidFile(pgdata: string): void {
  const file = readPidFile(pgdata);
  if (!file || !identifyProcess(file.pid) || workingDirectory(file.pid) === pgdata) return;
  writeFileSync(join(pgdata, "postmaster.pid"), file.text.replace(/^\d*/, String(process.pid)));
}

/** Waits until the server says that it accepts connections; undefined when the process ended instead. */
export async function waitReady(pgdata: string, process: ProcessIdentity): Promise<Postmaster | undefined> {
  const giveUpAt = performance.now() + READY_TIMEOUT_MS;
  while (isAlive(process)) {
    const file = readPidFile(pgdata);
    if (file?.pid === process.pid && file.status === "ready") return { ...process, port: file.port };
    if (performance.now() > giveUpAt) {
      await endProcess(process);
      throw new TurnError(ErrorCode.UNAVAILABLE, {
        message: `Postgres in ${pgdata} was not ready after ${READY_TIMEOUT_MS / 1000} s`,
      });
    }
    await delay(POLL_MS);
  }
  return undefined;
}

/** Fast shutdown, and harder ones when it takes too long. Resolves when the process is gone. */
export async function endProcess(process: ProcessIdentity): Promise<void> {
  for (const [signal, patienceMs] of [
    ["SIGINT", FAST_STOP_MS],
    ["SIGQUIT", IMMEDIATE_STOP_MS],
    ["SIGKILL", IMMEDIATE_STOP_MS],
  ] as const) {
    if (!isAlive(process)) return;
    sendSignal(process.pid, signal);
    const giveUpAt = performance.now() + patienceMs;
    while (isAlive(process) && performance.now() < giveUpAt) await delay(POLL_MS);
  }
}

function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It ended in between.
  }
}
