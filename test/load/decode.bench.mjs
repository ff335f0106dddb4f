/**
 * How fast a provider's stream is decoded: events per second of CPU time, on long recordings of the test data folder, read
 * in pieces of 4 KiB, one core, no network. Beside it in the same process, in interleaved rounds:
 *   ai        the AI SDK's provider for that server (`doStream`, the layer below streamText)
 *   official  the provider's own SDK, its raw iterator of events
 *   floor     the text split into lines and each event parsed, nothing else
 * What each makes of a recording (text, reasoning, calls) is compared first: a fast decoder that is wrong does not count.
 * The peers are no dependencies of Turnwire: they are installed into .cache when this runs.
 * Options: --runs 5 --batch-ms 300 --json FILE
 */
import { existsSync, mkdirSync, copyFileSync, writeFileSync } from "node:fs";
import { spawnSync } from "node:child_process";
import path from "node:path";
import { root, runProcess, median } from "./processes.mjs";

const PEERS = path.join(root, ".cache", "bench", "decode-peers");

export async function run(options) {
  const value = (name, fallback) =>
    options.includes(`--${name}`) ? options[options.indexOf(`--${name}`) + 1] : fallback;
  const testData = process.env.TURNWIRE_TESTDATA ?? path.resolve(root, "../shared");
  if (!existsSync(path.join(testData, "corpus", "index.json"))) {
    console.error("this benchmark needs the recordings of the test data folder: set TURNWIRE_TESTDATA");
    process.exit(2);
  }
  installPeers();
  const program = "test/load/decode-run.mjs";
  const args = [PEERS, testData, value("runs", "5"), value("batch-ms", "300")];
  const figures = await runProcess(program, args, {}, 600_000);
  print(figures);
  const file = value("json", undefined);
  if (file) writeFileSync(file, JSON.stringify(figures, undefined, 2));
}

function installPeers() {
  const manifest = path.join(root, "test", "load", "decode-peers");
  mkdirSync(PEERS, { recursive: true });
  for (const name of ["package.json", "package-lock.json"])
    copyFileSync(path.join(manifest, name), path.join(PEERS, name));
  if (existsSync(path.join(PEERS, "node_modules", "ai"))) return;
  console.error("installing the peers to compare with ...");
  const { status } = spawnSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], {
    cwd: PEERS,
    stdio: "inherit",
  });
  if (status !== 0) throw new Error("npm could not install the peers");
}

function print({ node, versions, recordings }) {
  console.log(`\nnode ${node}; ${versions}; median of interleaved rounds, CPU time\n`);
  console.log(
    "| recording | events | Turnwire ev/s | AI SDK | official SDK | of AI SDK | of official | us/event | of the floor | same result |",
  );
  console.log("|---|---|---|---|---|---|---|---|---|---|");
  const thousands = (number) => `${Math.round(number / 1000)} k`;
  for (const { name, events, rounds, same } of recordings) {
    const rate = (way) => events / median(rounds.map((round) => round[way]));
    const ratio = (slow, fast) => median(rounds.map((round) => round[slow] / round[fast]));
    const cells = [
      name,
      events,
      thousands(rate("turnwire") * 1e6),
      thousands(rate("ai") * 1e6),
      rounds[0].official ? thousands(rate("official") * 1e6) : "-",
      `${ratio("ai", "turnwire").toFixed(1)}x`,
      rounds[0].official ? `${ratio("official", "turnwire").toFixed(1)}x` : "-",
      (1 / rate("turnwire")).toFixed(2),
      `${ratio("turnwire", "floor").toFixed(2)}x`,
      same,
    ];
    console.log(`| ${cells.join(" | ")} |`);
  }
}
