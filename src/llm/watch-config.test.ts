import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ManualClock } from "../../test/support/manual-clock.js";
import { silentLogger } from "../lib/log.js";
import type { LlmConfig } from "./config.js";
import { loadLlmConfig } from "./load-config.js";
import { watchConfig, type ConfigWatch } from "./watch-config.js";

const INTERVAL_MS = 1_000;
let dir: string;
let file: string;
let clock: ManualClock;
let watch: ConfigWatch;
let applied: LlmConfig[];
let said: boolean[];

beforeEach(() => {
  dir = mkdtempSync(path.join(os.tmpdir(), "turnwire-config-"));
  file = path.join(dir, "models.yaml");
  writeFileSync(path.join(dir, "key"), "first-key-0123\n");
  write("a");
  clock = new ManualClock();
  [applied, said] = [[], []];
  const load = (): LlmConfig => loadLlmConfig({ TURNWIRE_CONFIG: file });
  watch = watchConfig({
    ...{ load, clock, logger: silentLogger, files: load().files, intervalMs: INTERVAL_MS },
    apply: (config) => applied.push(config),
    said: (inUse) => said.push(inUse),
  });
});
afterEach(() => {
  watch.close();
  rmSync(dir, { recursive: true });
});

/** A configuration with one model, written as editors do: beside, then renamed. */
function write(model: string, key = "key"): void {
  const yaml = `providers: [{ name: p, api: openai-chat, baseUrl: "http://127.0.0.1:1", apiKeyFile: ${key}, models: [${model}] }]`;
  writeFileSync(`${file}.new`, yaml);
  renameSync(`${file}.new`, file);
}

/** Lets the watch look once. */
async function look(): Promise<void> {
  const next = clock.sleepBegins(INTERVAL_MS);
  clock.advance(INTERVAL_MS);
  await next;
}

const models = () => applied.map((config) => config.models.map(({ id }) => id).join());

test("a changed file is read once, an unchanged one is not", async () => {
  await look();
  write("b");
  await look();
  await look();
  expect(models()).toEqual(["b"]);
  expect(said).toEqual([true]);
});

test("W1 a file with a mistake changes nothing and is said; the next good one is taken", async () => {
  write("b: c");
  await look();
  await look();
  expect([applied.length, said]).toEqual([0, [false]]);
  write("c");
  await look();
  expect([models(), said]).toEqual([["c"], [false, true]]);
});

test("W2 a key in a file of its own that changes, and a file that is gone and comes back", async () => {
  writeFileSync(path.join(dir, "key"), "second-key-0123\n");
  await look();
  expect(applied[0]?.providers[0]).toMatchObject({ keys: ["second-key-0123"] });
  rmSync(file);
  await look();
  expect(said).toEqual([true, false]);
  write("d");
  await look();
  expect(models().at(-1)).toBe("d");
});

test("W2 a file that cannot be looked at is a state like any other: said once, and taken when it is back", async () => {
  rmSync(file);
  symlinkSync(file, file); // ELOOP, whoever looks
  await look();
  await look();
  expect([applied.length, said]).toEqual([0, [false]]);
  rmSync(file);
  write("e");
  await look();
  expect([models(), said]).toEqual([["e"], [false, true]]);
});

test("W2 a mounted ConfigMap: the file is a link through ..data, which is swapped for another folder", async () => {
  const mount = mkdtempSync(path.join(os.tmpdir(), "turnwire-mount-"));
  const yaml = (model: string): string =>
    `providers: [{ name: p, api: openai-chat, baseUrl: "http://127.0.0.1:1", models: [${model}] }]`;
  /** As the kubelet does it: a new folder, a new link beside, and the link renamed over the old one. */
  const publish = (version: string, model: string): void => {
    mkdirSync(path.join(mount, version));
    writeFileSync(path.join(mount, version, "models.yaml"), yaml(model));
    symlinkSync(version, path.join(mount, "..data_tmp"));
    renameSync(path.join(mount, "..data_tmp"), path.join(mount, "..data"));
  };
  publish("..v1", "one");
  const mounted = path.join(mount, "models.yaml");
  symlinkSync(path.join("..data", "models.yaml"), mounted);
  const load = (): LlmConfig => loadLlmConfig({ TURNWIRE_CONFIG: mounted });
  watch.close();
  watch = watchConfig({
    ...{ load, clock, logger: silentLogger, files: load().files, intervalMs: INTERVAL_MS },
    apply: (config) => applied.push(config),
    said: (inUse) => said.push(inUse),
  });
  await look();
  publish("..v2", "two");
  rmSync(path.join(mount, "..v1"), { recursive: true });
  await look();
  await look();
  expect([models(), said]).toEqual([["two"], [true]]);
  rmSync(mount, { recursive: true });
});

test("W1 a file that is half written when it is read - the old one stays until it is whole", async () => {
  writeFileSync(file, "providers: [{ name: p, api: openai-chat, base");
  await look();
  expect([models(), said]).toEqual([[], [false]]);
  write("whole");
  await look();
  expect([models(), said]).toEqual([["whole"], [false, true]]);
});

test("reload reads at once, changed or not; a closed watch looks no more", async () => {
  watch.reload();
  expect(models()).toEqual(["a"]);
  watch.close();
  await Promise.resolve();
  expect(clock.sleeping).toBe(0);
});
