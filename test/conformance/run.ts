/**
 * `npm run conformance`: the Connect conformance runner against connect-node's stock servers and against the edge.
 * Compares the failures with the kept lists, and fails when the edge fails what stock passes. `-- --update` rewrites the
 * lists. Needs Go (for the runner and its protos, which are not part of this repository).
 */
import { build } from "esbuild";
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const VERSION = "v1.0.7";
const MODULE = "connectrpc.com/conformance";
const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.join(here, "../..");
const cache = path.join(root, ".cache/conformance");
const update = process.argv.includes("--update");
const extra = process.argv.slice(2).filter((argument) => argument !== "--update");

mkdirSync(cache, { recursive: true });
const runner = getRunner();
const image = path.join(cache, "conformance.binpb");
const server = path.join(cache, "server.mjs");
buildImage();
await bundleServer();

let failed = false;
const failures = { stock: run("stock"), ours: run("ours") };
const onlyOurs = failures.ours.filter((name) => !failures.stock.includes(name));
if (onlyOurs.length > 0) {
  failed = true;
  console.error(
    `\nThe edge fails what connect-node passes:\n${onlyOurs.map((name) => `  ${name}`).join("\n")}`,
  );
}
process.exitCode = failed ? 1 : 0;

/** Runs every case against one server; the names of those that failed. */
function run(kind: "stock" | "ours"): string[] {
  const list = path.join(here, `known-failing-${kind}.txt`);
  const known = readList(list);
  const startedAt = Date.now();
  const result = spawnSync(
    runner,
    [
      "--mode",
      "server",
      "--conf",
      path.join(here, `config-${kind}.yaml`),
      "--max-servers",
      "2",
      ...extra,
      "-v",
      "--",
      process.execPath,
      server,
      kind,
      image,
    ],
    { encoding: "utf8", maxBuffer: 256 * 1024 * 1024 },
  );
  const output = result.stdout + result.stderr;
  writeFileSync(path.join(cache, `${kind}.log`), output);
  const names = [
    ...new Set([...output.matchAll(/^FAILED: (.+?):?$/gm)].map((match) => match[1]!.trim())),
  ].sort();
  const total = /(\d+) passed, (\d+) failed/.exec(output);
  if (!total)
    throw new Error(`the runner said nothing about its cases, see ${path.join(cache, `${kind}.log`)}`);
  console.log(
    `${kind}: ${total[1]} passed, ${total[2]} failed (${Math.round((Date.now() - startedAt) / 1000)} s)`,
  );
  if (update) {
    const head = `# Cases of the Connect conformance suite ${VERSION} that ${kind === "ours" ? "the edge" : "connect-node on Node's own servers"} fails. Written by: npm run conformance -- --update\n`;
    writeFileSync(list, head + names.map((name) => `${name}\n`).join(""));
  } else if (extra.length === 0 && names.join("\n") !== known.join("\n")) {
    failed = true;
    console.error(`${kind}: the failures are not those of ${path.relative(root, list)}`);
    for (const name of names) if (!known.includes(name)) console.error(`  new: ${name}`);
    for (const name of known) if (!names.includes(name)) console.error(`  passes now: ${name}`);
  }
  return names;
}

function readList(file: string): string[] {
  if (!existsSync(file)) return [];
  return readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"));
}

function getRunner(): string {
  const binary = path.join(root, ".cache/bin/connectconformance");
  if (existsSync(binary)) return binary;
  go(["install", `${MODULE}/cmd/connectconformance@${VERSION}`], { GOBIN: path.dirname(binary) });
  return binary;
}

/** The runner's own protos, from the same module version, as one image. */
function buildImage(): void {
  if (existsSync(image)) return;
  const { Dir } = JSON.parse(go(["mod", "download", "-json", `${MODULE}@${VERSION}`])) as { Dir: string };
  execFileSync("npx", ["buf", "build", path.join(Dir, "proto"), "-o", image], {
    cwd: root,
    stdio: "inherit",
  });
}

async function bundleServer(): Promise<void> {
  await build({
    entryPoints: [path.join(here, "server.ts")],
    outfile: server,
    bundle: true,
    packages: "external",
    platform: "node",
    format: "esm",
    target: "node20",
    logLevel: "error",
  });
}

function go(args: string[], env: Record<string, string> = {}): string {
  try {
    return execFileSync("go", args, {
      encoding: "utf8",
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "inherit"],
    });
  } catch (cause) {
    throw new Error(
      `"go ${args.join(" ")}" failed: the conformance runner needs Go 1.25 or newer and its module proxy`,
      { cause },
    );
  }
}
