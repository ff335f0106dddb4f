/**
 * Runs a benchmark: `npm run bench -- <name> [--json FILE] [options]`. Prints a table; with --json also machine-readable
 * figures. Benchmarks start their own processes on free ports and compare ratios of runs that were interleaved.
 */
import { existsSync, readdirSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { buildIfStale } from "./build.mjs";

const folder = path.join(path.dirname(fileURLToPath(import.meta.url)), "..", "test", "load");
const names = readdirSync(folder)
  .filter((file) => file.endsWith(".bench.mjs"))
  .map((file) => file.slice(0, -".bench.mjs".length));
const [name, ...options] = process.argv.slice(2);
if (!name || !existsSync(path.join(folder, `${name}.bench.mjs`))) {
  console.error(`usage: npm run bench -- <name> [--json FILE] [--runs N]\nnames: ${names.join(", ")}`);
  process.exit(2);
}
await buildIfStale();
const { run } = await import(path.join(folder, `${name}.bench.mjs`));
await run(options);
