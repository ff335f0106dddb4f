/**
 * The data directory of one embedded Turnwire: who may use it, and its lasting identity.
 *
 * Owns: the directory's creation (0700), its `id` file and its `lock` file. Not: what servers keep below it.
 *
 * D1 At most one living process holds the lock, however many start at once. Who holds it knows its predecessor dead.
 * D2 A lock names one life of a process (pid, boot, start time): a recycled pid does not keep it.
 * D3 A stale lock is replaced only by whoever holds the right to replace *that* lock (its nonce), so two starters that both
 *    saw it stale cannot both win, and nobody removes a fresh lock by mistake.
 */
import { randomBytes, randomUUID } from "node:crypto";
import { chmod, link, mkdir, open, readFile, realpath, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../lib/errors.js";
import { identifyProcess, isAlive } from "./process-info.js";

export interface DataDir {
  /** Absolute, links resolved. */
  readonly path: string;
  /** Random, made once with the directory. */
  readonly id: string;
  /** Gives the lock back. Idempotent. */
  release(): Promise<void>;
}

interface Lock {
  readonly pid: number;
  readonly startedAt: string;
  /** Names this one lock among all that were ever written. */
  readonly nonce: string;
}

/** Rounds of the lock before a starter gives up; each lost round means that another starter got ahead. */
const MAX_ROUNDS = 50;

/**
 * Creates the data directory if need be and takes its lock for this process.
 * @throws TurnError UNAVAILABLE: it is in use (names the pid), cannot be made, or cannot be written.
 */
export async function openDataDir(path: string): Promise<DataDir> {
  try {
    await makePrivateDir(path);
    const root = await realpath(path);
    const lock = newLock();
    await acquire(join(root, "lock"), root, lock);
    const id = await ensureDataDirId(root);
    return { path: root, id, release: () => releaseLock(join(root, "lock"), lock) };
  } catch (error) {
    throw explain(path, error);
  }
}

/** The directory's id, made if it has none. Safe when several call it at once. */
export async function ensureDataDirId(root: string): Promise<string> {
  const file = join(root, "id");
  const known = await readOptional(file);
  if (known?.trim()) return known.trim();
  await linkNew(file, randomUUID());
  return (await readFile(file, "utf8")).trim();
}

async function makePrivateDir(path: string): Promise<void> {
  const made = await mkdir(path, { recursive: true, mode: 0o700 });
  if (made !== undefined) await chmod(path, 0o700);
}

function newLock(): Lock {
  const self = identifyProcess(process.pid) ?? { pid: process.pid, startedAt: "" };
  return { pid: self.pid, startedAt: self.startedAt, nonce: randomBytes(9).toString("hex") };
}

/** Takes the lock at `file`, or throws. A stale lock is replaced under a lock of the same kind, named by its nonce (D3). */
async function acquire(file: string, root: string, mine: Lock): Promise<void> {
  for (let round = 0; round < MAX_ROUNDS; round++) {
    if (await linkNew(file, JSON.stringify(mine))) return;
    const held = await readLock(file);
    if (held === undefined) continue; // released between the two looks
    if (isAlive(held)) throw inUse(root, held.pid);
    const right = `${file}.${held.nonce}`;
    await acquire(right, root, mine);
    try {
      if ((await readLock(file))?.nonce !== held.nonce) continue; // another starter replaced it before we had the right to
      await replaceFile(file, JSON.stringify(mine));
      return;
    } finally {
      await rm(right, { force: true });
    }
  }
  throw new TurnError(ErrorCode.UNAVAILABLE, {
    message: `the lock of the data directory ${root} changes all the time`,
  });
}

async function releaseLock(file: string, mine: Lock): Promise<void> {
  if ((await readLock(file))?.nonce === mine.nonce) await rm(file, { force: true });
}

async function readLock(file: string): Promise<Lock | undefined> {
  const text = await readOptional(file);
  if (text === undefined) return undefined;
  try {
    const { pid, startedAt, nonce } = JSON.parse(text) as Partial<Lock>;
    if (typeof pid === "number" && typeof startedAt === "string" && /^[0-9a-f]+$/.test(nonce ?? "")) {
      return { pid, startedAt, nonce: nonce! };
    }
  } catch {
    // Not JSON: below.
  }
  // Locks appear whole (link, rename); only a disk fault or a hand leaves something else. Nobody alive wrote it.
  return { pid: 0, startedAt: "", nonce: "0" };
}

/** Creates `file` with its content in one step; false when it is already there. */
async function linkNew(file: string, content: string): Promise<boolean> {
  const draft = await writeDraft(file, content);
  try {
    await link(draft, file);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  } finally {
    await rm(draft, { force: true });
  }
}

async function replaceFile(file: string, content: string): Promise<void> {
  await rename(await writeDraft(file, content), file);
}

async function writeDraft(file: string, content: string): Promise<string> {
  const draft = `${file}.draft-${randomBytes(6).toString("hex")}`;
  const handle = await open(draft, "wx", 0o600);
  try {
    await handle.writeFile(`${content}\n`);
    await handle.sync();
  } finally {
    await handle.close();
  }
  return draft;
}

async function readOptional(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

function inUse(root: string, pid: number): TurnError {
  return new TurnError(ErrorCode.UNAVAILABLE, {
    message: `the data directory ${root} is in use by process ${pid}; stop it, or set TURNWIRE_DATA_DIR to another directory`,
  });
}

const REASONS: Readonly<Record<string, string>> = {
  EACCES: "no permission",
  EPERM: "no permission",
  EROFS: "the file system is read-only",
  ENOSPC: "no space left on the device",
  EDQUOT: "the disk quota is used up",
  ENOTDIR: "a part of the path is not a directory",
  EEXIST: "the path is not a directory",
};

function explain(path: string, error: unknown): TurnError {
  const reason = REASONS[(error as NodeJS.ErrnoException).code ?? ""];
  if (error instanceof TurnError || reason === undefined) return TurnError.from(error);
  return new TurnError(ErrorCode.UNAVAILABLE, {
    message: `the data directory ${path} cannot be used: ${reason}; set TURNWIRE_DATA_DIR to another directory`,
    cause: error,
  });
}
