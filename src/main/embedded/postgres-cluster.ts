/**
 * Where an embedded Postgres keeps its files, and how a new cluster is made. Beside the data directory's other content
 * when the user who runs the server can get there; else in a directory of the system, found again by the data
 * directory's id.
 */
import { spawn } from "node:child_process";
import {
  chownSync,
  existsSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  chmodSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../lib/errors.js";
import { ensureDataDirId } from "./data-dir.js";
import type { PostgresBinaries } from "./postgres-binaries.js";
import { blockedAt, letThrough, type RunAs } from "./run-as.js";

export interface Cluster {
  /** PGDATA: absolute, links resolved. */
  readonly pgdata: string;
  /** undefined = the server runs as ourselves. */
  readonly user: RunAs | undefined;
  /** Standard error of the server. */
  readonly logFile: string;
  /** True when this start made it. */
  readonly created: boolean;
}

/** The major version of the binaries; a cluster of another one cannot be opened. */
const MAJOR_VERSION = "18";
const SYSTEM_DIRS = ["/var/lib/turnwire-postgres", "/var/tmp/turnwire-postgres"];
const INITDB_TIMEOUT_MS = 60_000;

/**
 * The cluster of a data directory, made if it has none.
 * @throws TurnError UNAVAILABLE: no space, not writable, of another version, out of the server's reach.
 */
export async function openCluster(
  dataDir: string,
  binaries: PostgresBinaries,
  user: RunAs | undefined,
): Promise<Cluster> {
  try {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    const pgdata = user
      ? await placeFor(realpathSync(dataDir), user)
      : join(realpathSync(dataDir), "postgres");
    const created = !existsSync(join(pgdata, "PG_VERSION"));
    if (created) await makeCluster(pgdata, binaries, user);
    else checkVersion(pgdata);
    const logFile = join(dirname(pgdata), `${pgdata.split("/").pop()}.log`);
    return { pgdata, user: user && ownerOf(pgdata, user), logFile, created };
  } catch (error) {
    throw explainFileError(dataDir, error);
  }
}

/** Environment of every Postgres program: nothing of ours, no locale or time zone search. */
export function postgresEnv(): NodeJS.ProcessEnv {
  return {
    PATH: "/usr/bin:/bin",
    LC_ALL: "C",
    TZ: "UTC",
    ...(process.env["SystemRoot"] ? { SystemRoot: process.env["SystemRoot"] } : {}),
  };
}

/** What a new cluster's files need to survive a power cut; runs beside the server, and is not waited for at start. */
export async function syncCluster(cluster: Cluster, binaries: PostgresBinaries): Promise<void> {
  await runInitdb(binaries, cluster.user, ["-D", cluster.pgdata, "--sync-only"], dirname(cluster.pgdata));
}

/** A TurnError that says what is wrong with the disk, for errors of the file system; others become INTERNAL. */
export function explainFileError(dataDir: string, error: unknown): TurnError {
  const reason = fileErrorReason((error as NodeJS.ErrnoException).code ?? "");
  if (error instanceof TurnError || reason === undefined) return TurnError.from(error);
  return unavailable(`the database below ${dataDir} cannot be used: ${reason}`, error);
}

/** The reason in words when text of a Postgres program tells of a fault of the disk. */
export function diskReason(text: string): string | undefined {
  if (/No space left on device|Disk quota exceeded/.test(text)) return "no space left on the device";
  if (/Read-only file system/.test(text)) return "the file system is read-only";
  if (/Permission denied/.test(text)) return "no permission";
  return undefined;
}

function fileErrorReason(code: string): string | undefined {
  switch (code) {
    case "ENOSPC":
    case "EDQUOT":
      return "no space left on the device";
    case "EROFS":
      return "the file system is read-only";
    case "EACCES":
    case "EPERM":
      return "no permission to write there";
    case "ENOTDIR":
    case "EEXIST":
      return "a part of the path is not a directory";
    default:
      return undefined;
  }
}

async function placeFor(dataDir: string, user: RunAs): Promise<string> {
  const beside = join(dataDir, "postgres");
  // Only our own directory in the way: let the server pass, it need not list it.
  if (blockedAt(dataDir, user) === dataDir) letThrough(dataDir, user);
  const blocked = blockedAt(dataDir, user);
  const hasBeside = existsSync(join(beside, "PG_VERSION"));
  if (hasBeside && blocked !== undefined) {
    throw unavailable(
      `the database in ${beside} is out of reach for the user ${user.name} that runs it: ${blocked} is closed to it`,
    );
  }
  const id = await ensureDataDirId(dataDir);
  const elsewhere = SYSTEM_DIRS.map((directory) => join(directory, id));
  const existing = hasBeside ? beside : elsewhere.find((place) => existsSync(join(place, "PG_VERSION")));
  if (existing !== undefined) return existing;
  return blocked === undefined ? beside : firstReachable(elsewhere, user);
}

function firstReachable(places: readonly string[], user: RunAs): string {
  let failure: unknown;
  for (const place of places) {
    try {
      const made = mkdirSync(dirname(place), { recursive: true, mode: 0o755 });
      if (made !== undefined) chmodSync(dirname(place), 0o755);
      if (
        statSync(dirname(place)).uid === process.getuid?.() &&
        blockedAt(dirname(place), user) === undefined
      )
        return place;
    } catch (error) {
      failure = error;
    }
  }
  throw unavailable(
    `there is no place for a database that the user ${user.name} can reach: tried ${places.join(", ")}`,
    failure,
  );
}

/** Made under another name and renamed: a cluster that is there is whole, whenever its making was cut off. */
async function makeCluster(
  pgdata: string,
  binaries: PostgresBinaries,
  user: RunAs | undefined,
): Promise<void> {
  const unfinished = `${pgdata}.new`;
  rmSync(unfinished, { recursive: true, force: true });
  mkdirSync(unfinished, { mode: 0o700 });
  if (user) chownSync(unfinished, user.uid, user.gid);
  const args = ["-D", unfinished, "-U", "turnwire", "-A", "trust", "-E", "UTF8", "--locale=C"];
  args.push("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-sync", "--no-instructions");
  try {
    await runInitdb(binaries, user, args, dirname(pgdata));
    rmSync(pgdata, { recursive: true, force: true }); // without PG_VERSION: nothing of worth
    renameSync(unfinished, pgdata);
  } catch (error) {
    rmSync(unfinished, { recursive: true, force: true });
    throw error;
  }
}

function runInitdb(
  binaries: PostgresBinaries,
  user: RunAs | undefined,
  args: readonly string[],
  cwd: string,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(binaries.initdb, args, {
      ...(user ? { uid: user.uid, gid: user.gid } : {}),
      cwd,
      env: postgresEnv(),
      stdio: ["ignore", "ignore", "pipe"],
      timeout: INITDB_TIMEOUT_MS,
    });
    let stderr = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr = (stderr + text).slice(-4096)));
    child.once("error", reject);
    child.once("close", (status, signal) => {
      if (status === 0) return resolve();
      const reason =
        diskReason(stderr) ?? (stderr.trim().split("\n").pop() || `ended by ${signal ?? `status ${status}`}`);
      reject(unavailable(`a database could not be made in ${cwd}: ${reason}`, new Error(stderr)));
    });
  });
}

function checkVersion(pgdata: string): void {
  const version = readFileSync(join(pgdata, "PG_VERSION"), "utf8").trim();
  if (version === MAJOR_VERSION) return;
  throw unavailable(
    `the database in ${pgdata} is of Postgres ${version}, this Turnwire brings Postgres ${MAJOR_VERSION}`,
  );
}

/** Postgres runs as the owner of its files and as nobody else. */
function ownerOf(pgdata: string, chosen: RunAs): RunAs {
  const { uid, gid } = statSync(pgdata);
  return uid === chosen.uid || uid === 0 ? chosen : { name: String(uid), uid, gid };
}

function unavailable(message: string, cause?: unknown): TurnError {
  return new TurnError(ErrorCode.UNAVAILABLE, { message, cause });
}
