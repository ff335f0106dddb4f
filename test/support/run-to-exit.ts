/** A server that is expected to refuse its start: what it said and how it ended. */
import { spawn } from "node:child_process";
import { programOf, type ServiceName } from "./service-processes.js";

export interface Refused {
  readonly code: number | NodeJS.Signals;
  /** What people are told: the lines of standard error that are no log lines. */
  readonly said: readonly string[];
  /** Everything, standard output and log lines included. */
  readonly output: string;
}

/** Rejects when it has not ended in time; it is killed then. */
export async function runToExit(
  name: ServiceName,
  env: Readonly<Record<string, string>>,
  options: { readonly cwd: string; readonly timeoutMs?: number },
): Promise<Refused> {
  const child = spawn(process.execPath, [programOf(name)], {
    cwd: options.cwd,
    stdio: ["ignore", "pipe", "pipe"],
    env: { PATH: process.env["PATH"] ?? "", HOME: process.env["HOME"] ?? "/", ...env },
  });
  let stderr = "";
  let stdout = "";
  child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
  child.stdout.on("data", (chunk: Buffer) => (stdout += chunk.toString()));
  const timer = setTimeout(() => child.kill("SIGKILL"), options.timeoutMs ?? 30_000);
  const code = await new Promise<number | NodeJS.Signals>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (exit, signal) => resolve(signal ?? exit ?? 0));
  });
  clearTimeout(timer);
  if (code === "SIGKILL") throw new Error(`${name} did not end by itself:\n${stderr}${stdout}`);
  return {
    code,
    said: stderr.split("\n").filter((line) => line !== "" && !line.startsWith("{")),
    output: `${stderr}${stdout}`,
  };
}
