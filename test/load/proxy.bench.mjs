/**
 * What the llm peer costs against calling the provider directly, beside LiteLLM's proxy in the same interleaved run. One
 * scripted provider; the same chat completions are read
 *   direct    from the provider (HTTP, server-sent events)
 *   turnwire  from Turnwire's llm peer (gRPC, normalised deltas)
 *   litellm   from LiteLLM's proxy (HTTP, server-sent events), installed into .cache by pip when it is not there
 * The client of a way is what its users use: node:http and JSON.parse for HTTP, grpc-js and protobuf for gRPC. Its own work is
 * in every time, so "added" holds what both sides of the extra hop cost. CPU is of the process in the middle alone.
 * First text: calls one after the other. Per delta: age at the client of paced streams. CPU: of the process in the middle,
 * streams at once as fast as they go. Options: --runs 5 --json FILE
 */
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { cpuMicros, median, root, runProcess, startProcess } from "./processes.mjs";

const LITELLM = "litellm[proxy]==1.108.7";
const VENV = path.join(root, ".cache", "bench", "litellm");
const MODES = {
  first: ["first", 100, 3, 0],
  paced: ["paced", 5, 200, 50],
  saturated: ["saturated", 10, 1_000, 0],
};

export async function run(options) {
  const value = (name) =>
    options.includes(`--${name}`) ? options[options.indexOf(`--${name}`) + 1] : undefined;
  const runs = Number(value("runs") ?? 5);
  const folder = mkdtempSync(path.join(os.tmpdir(), "turnwire-bench-"));
  const ends = [];
  try {
    const upstream = await startProcess("test/load/upstream.mjs");
    ends.push(upstream.end);
    const llm = await startProcess("dist/src/main/llm.js", [], {
      TURNWIRE_LOG: "info",
      TURNWIRE_LLM_PORT: "0",
      TURNWIRE_DATA_DIR: path.join(folder, "data"),
      OPENAI_BASE_URL: `http://127.0.0.1:${upstream.facts.port}/v1`,
      OPENAI_API_KEY: "none",
    });
    ends.push(llm.end);
    const litellm = await startLiteLlm(folder, upstream.facts.port);
    if (litellm) ends.push(litellm.end);
    const ways = [
      { name: "direct", kind: "http", address: `127.0.0.1:${upstream.facts.port}` },
      { name: "turnwire", kind: "grpc", address: `127.0.0.1:${llm.facts.port}`, middle: llm.pid },
      ...(litellm ? [{ name: "litellm", kind: "http", address: litellm.address, middle: litellm.pid }] : []),
    ];
    const measure = async (way, mode) => {
      const before = way.middle ? cpuMicros(way.middle) : 0;
      const args = [way.kind, way.address, ...MODES[mode].map(String)];
      const result = await runProcess("test/load/proxy-client.mjs", args);
      const cpu = way.middle ? (cpuMicros(way.middle) - before) / result.deltas : undefined;
      return { ...result, cpuMicrosPerDelta: cpu };
    };
    for (const way of ways) await measure(way, "saturated"); // warm up
    const rounds = [];
    for (let round = 0; round < runs; round++) {
      const figures = {};
      for (const mode of Object.keys(MODES))
        for (const way of ways) (figures[way.name] ??= {})[mode] = await measure(way, mode);
      rounds.push(figures);
      console.error(`round ${round + 1} of ${runs}`);
    }
    print(ways, rounds);
    const file = value("json");
    if (file)
      writeFileSync(
        file,
        JSON.stringify({ node: process.version, runs, modes: MODES, rounds }, undefined, 2),
      );
  } finally {
    for (const end of ends.reverse()) await end();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The peer, or undefined (said so) where it cannot be had. */
async function startLiteLlm(folder, upstreamPort) {
  const program = path.join(VENV, "bin", "litellm");
  if (!existsSync(program)) {
    console.error(`installing ${LITELLM} to compare with ...`);
    mkdirSync(path.dirname(VENV), { recursive: true });
    const isInstalled =
      spawnSync("python3", ["-m", "venv", VENV], { stdio: "inherit" }).status === 0 &&
      spawnSync(path.join(VENV, "bin", "pip"), ["install", "--quiet", LITELLM], { stdio: "inherit" })
        .status === 0;
    if (!isInstalled) {
      console.error("LiteLLM is left out: it needs python3 with venv, and pip's registry");
      return undefined;
    }
  }
  const config = path.join(folder, "litellm.yaml");
  const base = `http://127.0.0.1:${upstreamPort}/v1`;
  writeFileSync(
    config,
    `model_list:\n  - model_name: bench\n    litellm_params: {model: openai/bench, api_base: "${base}", api_key: none}\n`,
  );
  const port = await freePort();
  const child = spawn(program, ["--config", config, "--port", String(port), "--host", "127.0.0.1"], {
    cwd: folder,
    stdio: "ignore",
    env: {
      PATH: process.env.PATH,
      HOME: folder,
      LITELLM_LOCAL_MODEL_COST_MAP: "True",
      LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY: "true",
    },
  });
  const exited = new Promise((resolve) => child.once("exit", resolve));
  const end = async () => {
    child.kill("SIGTERM");
    await Promise.race([exited, new Promise((done) => setTimeout(done, 5_000).unref())]);
    child.kill("SIGKILL");
  };
  const deadline = performance.now() + 120_000;
  while (!(await answers(port))) {
    if (child.exitCode !== null || performance.now() > deadline) {
      await end();
      throw new Error("LiteLLM did not start");
    }
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
  return { pid: child.pid, address: `127.0.0.1:${port}`, end };
}

function answers(port) {
  return new Promise((resolve) => {
    http
      .get({ host: "127.0.0.1", port, path: "/health/liveliness" }, (response) => {
        response.resume();
        resolve(response.statusCode === 200);
      })
      .on("error", () => resolve(false));
  });
}

function freePort() {
  return new Promise((resolve) => {
    const server = net.createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

function print(ways, rounds) {
  const each = (way, mode, field) => rounds.map((round) => round[way][mode][field]);
  const range = (values, digits) =>
    `${median(values).toFixed(digits)} (${Math.min(...values).toFixed(digits)}-${Math.max(...values).toFixed(digits)})`;
  const added = (way, mode, field) =>
    rounds.map((round) => round[way][mode][field] - round.direct[mode][field]);
  console.log(
    `\nmedian (min-max) of ${rounds.length} interleaved rounds; "added" is against direct, within a round\n`,
  );
  console.log(
    "| way | first text p50 ms | added | age of a delta p50 ms | added | p99 ms | deltas/s | CPU us/delta | of litellm |\n|---|---|---|---|---|---|---|---|---|",
  );
  for (const { name, middle } of ways) {
    const cpu = each(name, "saturated", "cpuMicrosPerDelta");
    const hasPeer = middle && rounds[0].litellm;
    const share = hasPeer
      ? median(
          rounds.map(
            (round) => round[name].saturated.cpuMicrosPerDelta / round.litellm.saturated.cpuMicrosPerDelta,
          ),
        )
      : undefined;
    const cells = [
      name,
      range(each(name, "first", "firstP50Ms"), 2),
      middle ? range(added(name, "first", "firstP50Ms"), 2) : "-",
      range(each(name, "paced", "ageP50Ms"), 2),
      middle ? range(added(name, "paced", "ageP50Ms"), 2) : "-",
      range(each(name, "paced", "ageP99Ms"), 1),
      range(each(name, "saturated", "perSecond"), 0),
      middle ? range(cpu, 1) : "-",
      share === undefined ? "-" : `${share.toFixed(3)}x`,
    ];
    console.log(`| ${cells.join(" | ")} |`);
  }
}
