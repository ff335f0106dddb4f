#!/usr/bin/env node
/**
 * Fetches the stock tools that the examples and their tests use: grpcurl, ghz and the generators of Go code (`go install`
 * into .cache/bin), and a Python with grpcio and the stubs' generator (.cache/python). By hand:
 *   node scripts/get-tools.mjs [grpcurl|ghz|protoc-gen-go|protoc-gen-go-grpc|python|all]
 * A tool that is on PATH already is taken from there. Exit code 1 when something that was asked for could not be had.
 */
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const cache = path.join(path.dirname(fileURLToPath(import.meta.url)), "..", ".cache");
const bin = path.join(cache, "bin");
const venv = path.join(cache, "python");

const GO_TOOLS = {
  grpcurl: "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4",
  ghz: "github.com/bojand/ghz/cmd/ghz@v0.93.0",
  "protoc-gen-go": "google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12",
  "protoc-gen-go-grpc": "google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.0",
};
const PYTHON_PACKAGES = ["grpcio==1.85.3", "grpcio-tools==1.85.1"];

/** Path of the program, from PATH or the cache; undefined = it is not here. */
export function findTool(name) {
  if (name === "python") {
    const python = path.join(venv, "bin", "python");
    return fs.existsSync(path.join(venv, "complete")) && fs.existsSync(python) ? python : undefined;
  }
  const folders = [...(process.env.PATH ?? "").split(path.delimiter).filter(Boolean), bin];
  return folders.map((folder) => path.join(folder, name)).find(isProgram);
}

/** Whether this machine has what the tool is made with: Go, or Python. */
export function canMake(name) {
  const maker = name === "python" ? "python3" : "go";
  return (process.env.PATH ?? "").split(path.delimiter).some((folder) => isProgram(path.join(folder, maker)));
}

/** Fetches the tool if it is not here. Returns its path, or a sentence that says why it cannot be had. */
export function getTool(name, print = console.log) {
  const found = findTool(name);
  if (found) return { path: found };
  try {
    if (name === "python") makePython(print);
    else installGo(name, print);
    return { path: findTool(name) };
  } catch (error) {
    const reason = String(error.stderr || error.message)
      .trim()
      .split("\n")
      .at(-1);
    return { missing: `${name} could not be had (${reason})` };
  }
}

function installGo(name, print) {
  print(`building ${name} with go install (about a minute) ...`);
  run("go", ["install", GO_TOOLS[name]], { GOBIN: bin });
  print(`${name}: ${path.join(bin, name)}`);
}

function makePython(print) {
  print("making a Python environment with grpcio ...");
  fs.rmSync(venv, { recursive: true, force: true });
  run("python3", ["-m", "venv", venv]);
  const python = path.join(venv, "bin", "python");
  run(python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", ...PYTHON_PACKAGES]);
  fs.writeFileSync(path.join(venv, "complete"), `${PYTHON_PACKAGES.join("\n")}\n`);
  print(`python: ${python}`);
}

function run(command, args, env = {}) {
  fs.mkdirSync(bin, { recursive: true });
  execFileSync(command, args, {
    stdio: ["ignore", "ignore", "pipe"],
    encoding: "utf8",
    timeout: 480_000,
    env: { ...process.env, ...env },
  });
}

function isProgram(file) {
  try {
    fs.accessSync(file, fs.constants.X_OK);
    return fs.statSync(file).isFile();
  } catch {
    return false; // not there
  }
}

if (process.argv[1] && import.meta.url === pathToFileURL(fs.realpathSync(process.argv[1])).href) {
  const asked = process.argv[2] ?? "all";
  const names = asked === "all" ? [...Object.keys(GO_TOOLS), "python"] : [asked];
  if (!names.every((name) => name === "python" || name in GO_TOOLS)) {
    console.error(`unknown tool "${asked}": ${Object.keys(GO_TOOLS).join(", ")}, python or all`);
    process.exit(2);
  }
  for (const name of names) {
    const tool = getTool(name);
    if (tool.missing) console.error(tool.missing);
    else console.log(`have ${name}: ${tool.path}`);
    if (tool.missing) process.exitCode = 1;
  }
}
