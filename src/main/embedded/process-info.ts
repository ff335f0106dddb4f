/** Facts about processes of this machine, read without running anything. */
import { readFileSync, readlinkSync } from "node:fs";

/** What names one life of a process: a pid comes back, a pid with its start time does not. */
export interface ProcessIdentity {
  readonly pid: number;
  /** Boot id and start time in clock ticks on Linux; "" where the system does not say. */
  readonly startedAt: string;
}

/** The identity of a running process; undefined when there is none, or only a zombie is left of it. */
export function identifyProcess(pid: number): ProcessIdentity | undefined {
  if (!Number.isSafeInteger(pid) || pid <= 0) return undefined;
  if (process.platform !== "linux") return signalReaches(pid) ? { pid, startedAt: "" } : undefined;
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The second field is the command in parentheses and may hold anything; what follows it is regular.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const state = fields[0];
    if (state === "Z" || state === "X") return undefined;
    return { pid, startedAt: `${bootId()}/${fields[19]}` };
  } catch {
    return undefined; // no such process
  }
}

/** True while that very process runs (a recycled pid is another process). */
export function isAlive(identity: ProcessIdentity): boolean {
  const now = identifyProcess(identity.pid);
  return now !== undefined && (identity.startedAt === "" || now.startedAt === identity.startedAt);
}

/** The directory a process works in; undefined where the system does not say. */
export function workingDirectory(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/cwd`);
  } catch {
    return undefined; // not Linux, not ours to see, or gone
  }
}

function signalReaches(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

function bootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim();
  } catch {
    return "";
  }
}
