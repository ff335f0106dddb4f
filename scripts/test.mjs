/**
 * Runs every test suite and closes with one line of counts: `npm test [-- <vitest arguments>]`.
 * Fetches what the suites need first (nats-server, stock tools, a browser), builds once (suites that start the server run what users run), and says
 * loudly what it had to leave out. In CI a suite that is left out is a failure.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { buildAll } from "./build.mjs";

const testData = path.resolve(process.env.TURNWIRE_TESTDATA ?? "../shared");
const hasTestData = existsSync(path.join(testData, "corpus", "index.json"));
if (!hasTestData) {
  const text = `The test data folder was not found (TURNWIRE_TESTDATA, default ../shared): the suites that replay recorded provider streams are skipped.`;
  console.error(`\n${process.env.CI ? "ERROR" : "NOTE"}: ${text}\n`);
  if (process.env.CI) process.exit(1);
}
// What cannot be had is said here, and again by the suites that miss it.
for (const script of ["scripts/get-nats-server.mjs", "scripts/get-tools.mjs", "scripts/get-chromium.mjs"])
  spawnSync(process.execPath, [script], { stdio: "inherit" });
await buildAll();

const folder = mkdtempSync(path.join(os.tmpdir(), "turnwire-test-"));
const report = path.join(folder, "report.json");
const args = [
  "node_modules/vitest/vitest.mjs",
  "run",
  "--reporter=default",
  "--reporter=json",
  `--outputFile.json=${report}`,
  ...process.argv.slice(2),
];
const env = { ...process.env, ...(hasTestData ? { TURNWIRE_TESTDATA: testData } : {}) };
const run = spawnSync(process.execPath, args, { stdio: "inherit", env });
const counts = existsSync(report) ? JSON.parse(readFileSync(report, "utf8")) : undefined;
rmSync(folder, { recursive: true, force: true });
const passed = counts?.numPassedTests ?? 0;
const failed = (counts?.numFailedTests ?? 0) || (run.status === 0 ? 0 : 1);
const skipped = counts?.numPendingTests ?? 0;
console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`);
process.exit(run.status === 0 && passed > 0 ? 0 : 1);
