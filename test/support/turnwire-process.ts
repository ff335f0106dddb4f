/**
 * The server as users run it, for tests: a process of its own on free ports, with a data directory of its own. Owns the
 * process; `end` stops it and removes the directory.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
const READY_MS = 30_000;

export interface TurnwireProcess {
  readonly pid: number;
  /** http://127.0.0.1:port of Connect, gRPC and gRPC-Web. */
  readonly httpUrl: string;
  /** 127.0.0.1:port of native gRPC. */
  readonly grpcAddress: string;
  /** What the ready line said. */
  readonly facts: Readonly<Record<string, unknown>>;
  /** performance.now() when the ready line arrived. */
  readonly readyAtMs: number;
  /** Everything it wrote so far. */
  output(): string;
  /** Resolves with the exit code or signal. */
  readonly exited: Promise<number | NodeJS.Signals>;
  kill9(): Promise<void>;
  /** SIGTERM, then waits. */
  stop(): Promise<void>;
}

export interface StartOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** Kept over restarts when given; else made and removed by the caller of `makeDataDir`. */
  readonly dataDir: string;
  /** Program to run with node instead of the all-in-one of the build. */
  readonly program?: readonly string[];
  readonly execPath?: string;
  /** Sees what it writes, as it comes, also before it is ready. */
  readonly onOutput?: (text: string, child: ChildProcess) => void;
}

export function makeDataDir(): string {
  return mkdtempSync(path.join(os.tmpdir(), "turnwire-data-"));
}

export function removeDataDir(dataDir: string): void {
  rmSync(dataDir, { recursive: true, force: true });
}

/** Starts it and waits for its ready line. Rejects with its output when it exits first or takes too long. */
export async function startTurnwire(options: StartOptions): Promise<TurnwireProcess> {
  const program = options.program ?? [path.join(root, "dist/src/main/all-in-one.js")];
  const child = spawn(options.execPath ?? process.execPath, program, {
    cwd: options.dataDir,
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      PATH: process.env["PATH"] ?? "",
      HOME: process.env["HOME"] ?? "/",
      TURNWIRE_HTTP_PORT: "0",
      TURNWIRE_GRPC_PORT: "0",
      TURNWIRE_DATA_DIR: options.dataDir,
      NATS_URL: "none",
      ...options.env,
    },
  });
  let output = "";
  const exited = new Promise<number | NodeJS.Signals>((resolve) =>
    child.once("exit", (code, signal) => resolve(signal ?? code ?? 0)),
  );
  const facts = await readyFacts(
    child,
    exited,
    (text) => {
      output += text;
      options.onOutput?.(text, child);
    },
    () => output,
  );
  return {
    pid: child.pid!,
    httpUrl: `http://127.0.0.1:${String(facts["httpPort"])}`,
    grpcAddress: `127.0.0.1:${String(facts["grpcPort"])}`,
    facts,
    readyAtMs: performance.now(),
    output: () => output,
    exited,
    async kill9() {
      child.kill("SIGKILL");
      await exited;
    },
    async stop() {
      child.kill("SIGTERM");
      await exited;
    },
  };
}

function readyFacts(
  child: ChildProcess,
  exited: Promise<unknown>,
  keep: (text: string) => void,
  output: () => string,
): Promise<Record<string, unknown>> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      child.kill("SIGKILL");
      reject(new Error(`the server was not ready in ${READY_MS} ms:\n${output()}`));
    }, READY_MS);
    child.once("error", reject);
    void exited.then((code) =>
      reject(new Error(`the server ended with ${String(code)} before it was ready:\n${output()}`)),
    );
    let line = "";
    const take = (chunk: Buffer): void => {
      keep(chunk.toString());
      line += chunk.toString();
      for (let end = line.indexOf("\n"); end >= 0; end = line.indexOf("\n")) {
        const facts = parseReady(line.slice(0, end));
        line = line.slice(end + 1);
        if (!facts) continue;
        clearTimeout(timer);
        resolve(facts);
      }
    };
    child.stderr!.on("data", take);
    child.stdout!.on("data", (chunk: Buffer) => keep(chunk.toString()));
  });
}

function parseReady(line: string): Record<string, unknown> | undefined {
  if (!line.includes('"msg":"ready"')) return undefined;
  try {
    return JSON.parse(line) as Record<string, unknown>;
  } catch {
    return undefined; // a line of somebody else's that looks like ours
  }
}
