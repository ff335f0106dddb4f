/**
 * All checks, in the order in which they fail fastest: `npm run all`. Stops at the first that fails and names it.
 * `--list` prints their names.
 */
import { spawnSync } from "node:child_process";

const CHECKS = ["check:generated", "lint:proto", "format:check", "typecheck", "lint", "build", "test"];
const skip = new Set((process.env.TURNWIRE_ALL_SKIP ?? "").split(",").filter(Boolean));

if (process.argv.includes("--list")) {
  console.log(CHECKS.join("\n"));
  process.exit(0);
}
for (const name of CHECKS) {
  if (skip.has(name)) continue;
  const startMs = performance.now();
  const run = spawnSync("npm", ["run", "--silent", name], { stdio: "inherit" });
  const seconds = ((performance.now() - startMs) / 1000).toFixed(1);
  console.log(`${run.status === 0 ? "ok  " : "FAIL"} ${name} (${seconds} s)`);
  if (run.status !== 0) process.exit(run.status ?? 1);
}
