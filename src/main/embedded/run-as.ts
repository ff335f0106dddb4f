/** Which user a server is started as: Postgres refuses to run as root, so root hands it to a user that exists. */
import { chmodSync, chownSync, readFileSync, realpathSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../lib/errors.js";

export interface RunAs {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
}

const CANDIDATES = ["postgres", "nobody"];

/** undefined = run as ourselves (a normal user, or a system without users). Throws UNAVAILABLE when root finds nobody. */
export function chooseRunAs(passwdFile = "/etc/passwd"): RunAs | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const users = parsePasswd(readFileSync(passwdFile, "utf8"));
  for (const name of CANDIDATES) {
    const user = users.get(name);
    if (user && user.uid !== 0) return user;
  }
  throw new TurnError(ErrorCode.UNAVAILABLE, {
    message: `Postgres does not run as root, and ${passwdFile} has none of the users ${CANDIDATES.join(", ")} to run it as`,
  });
}

/** Users by name; lines that cannot be read are skipped. */
export function parsePasswd(text: string): Map<string, RunAs> {
  const users = new Map<string, RunAs>();
  for (const line of text.split("\n")) {
    const [name, , uid, gid] = line.split(":");
    if (!name || !uid || !gid || !/^\d+$/.test(uid) || !/^\d+$/.test(gid)) continue;
    users.set(name, { name, uid: Number(uid), gid: Number(gid) });
  }
  return users;
}

/** The first directory on the way to `path` (itself included) that `user` may not enter; undefined = it can get there. */
export function blockedAt(path: string, user: RunAs): string | undefined {
  const chain: string[] = [];
  for (let at = realpathSync(path); ; at = dirname(at)) {
    chain.unshift(at);
    if (dirname(at) === at) break;
  }
  return chain.find((directory) => !mayEnter(directory, user));
}

/** Lets `user` pass through a directory of ours without seeing what is in it: its group may enter, not list. */
export function letThrough(directory: string, user: RunAs): void {
  const { uid, mode } = statSync(directory);
  chownSync(directory, uid, user.gid);
  chmodSync(directory, (mode & 0o707) | 0o010);
}

function mayEnter(directory: string, user: RunAs): boolean {
  const { uid, gid, mode } = statSync(directory);
  if (uid === user.uid) return (mode & 0o100) !== 0;
  if (gid === user.gid) return (mode & 0o010) !== 0;
  return (mode & 0o001) !== 0;
}
