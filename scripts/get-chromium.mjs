#!/usr/bin/env node
/**
 * Finds the browser that the page's tests drive: CHROMIUM, else chromium or chrome on PATH, else (as root, on a system with
 * apt) the distribution's package. By hand: node scripts/get-chromium.mjs
 */
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
export const CHROMIUM_HELP =
  "install it (Debian: apt-get install chromium), put it on PATH or name it in CHROMIUM";

/** Path of the browser; undefined = it is not here. */
export function findChromium() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  return onPath(NAMES);
}

/** Fetches the browser if it is not here. Returns its path, or undefined when it cannot be had. */
export function getChromium(print = console.log) {
  const found = findChromium();
  const apt = onPath(["apt-get"]);
  if (found || !apt || process.getuid?.() !== 0) return found;
  print("Chromium is not here: installing the distribution's package");
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const install = () =>
    spawnSync(apt, ["install", "-y", "--no-install-recommends", "chromium"], { env, stdio: "ignore" });
  if (install().status !== 0) {
    spawnSync(apt, ["update"], { env, stdio: "ignore" });
    install();
  }
  return findChromium();
}

function onPath(names) {
  const folders = (process.env.PATH ?? "").split(path.delimiter).filter(Boolean);
  return names.flatMap((name) => folders.map((folder) => path.join(folder, name))).find(isProgram);
}

function isProgram(file) {
  try {
    fs.accessSync(file, fs.constants.X_OK);
    return fs.statSync(file).isFile();
  } catch {
    return false; // not there, or not ours to run
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const found = getChromium();
  console.log(found ?? `Chromium cannot be had: ${CHROMIUM_HELP}`);
  process.exitCode = found ? 0 : 1;
}
