/**
 * What Turnwire costs on top of the model's stream. One upstream, one llm peer; the reading client takes the same deltas
 *   direct   from the llm peer's gRPC stream
 *   proxy    from a grpc-js proxy that decodes and encodes each delta, without a log (a message for each delta)
 *   batching the same proxy when it keeps the llm peer's batches
 *   native   from Turnwire's native gRPC port, with the log named in the table
 *   connect  from Turnwire's shared port (Connect, HTTP/2)
 * in interleaved runs of separate processes. Unit: deltas per second arriving at the client; CPU of the process in the
 * middle per delta; age of a delta at the client when paced. Options: --runs 5 --turns 10 --deltas 4000 --json FILE
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { findNatsServer, startNatsServer } from "../../dist/src/main/embedded/nats-server.js";
import { silentLogger } from "../../dist/src/lib/log.js";
import { cpuMicros, median, runProcess, startProcess } from "./processes.mjs";

/** Deltas of each paced turn: eight seconds at 50 per second, so that the starts of the turns do not weigh much. */
const PACED_DELTAS = 400;

function option(options, name, fallback) {
  const at = options.indexOf(`--${name}`);
  return at < 0 ? fallback : options[at + 1];
}

export async function run(options) {
  const runs = Number(option(options, "runs", "5"));
  const turns = Number(option(options, "turns", "10"));
  const deltas = Number(option(options, "deltas", "4000"));
  const folder = mkdtempSync(path.join(os.tmpdir(), "turnwire-bench-"));
  const ends = [];
  try {
    const binary = findNatsServer();
    const nats =
      binary &&
      (await startNatsServer({
        binary,
        dataDir: path.join(folder, "nats"),
        syncAlways: false,
        logger: silentLogger,
      }));
    if (nats) ends.push(() => nats.stop());
    const upstream = await startProcess("test/load/upstream.mjs");
    ends.push(upstream.end);
    const common = {
      TURNWIRE_LOG: "info",
      TURNWIRE_DATA_DIR: path.join(folder, "data"),
      OPENAI_BASE_URL: `http://127.0.0.1:${upstream.facts.port}/v1`,
      OPENAI_API_KEY: "none",
    };
    const llm = await startProcess("dist/src/main/llm.js", [], { ...common, TURNWIRE_LLM_PORT: "0" });
    ends.push(llm.end);
    const tool = await startProcess("dist/src/main/tool.js", [], { ...common, TURNWIRE_TOOL_PORT: "0" });
    ends.push(tool.end);
    const chat = await startProcess("--max-semi-space-size=32", ["dist/src/main/chat.js"], {
      ...common,
      NATS_URL: nats?.url ?? "none",
      TURNWIRE_HTTP_PORT: "0",
      TURNWIRE_GRPC_PORT: "0",
      TURNWIRE_LLM_ADDR: `127.0.0.1:${llm.facts.port}`,
      TURNWIRE_TOOL_ADDR: `127.0.0.1:${tool.facts.port}`,
    });
    ends.push(chat.end);
    const proxy = await startProcess("test/load/proxy.mjs", [`127.0.0.1:${llm.facts.port}`, "deltas"]);
    ends.push(proxy.end);
    const batching = await startProcess("test/load/proxy.mjs", [`127.0.0.1:${llm.facts.port}`, "batches"]);
    ends.push(batching.end);
    const ways = [
      { name: "direct", kind: "direct", address: `127.0.0.1:${llm.facts.port}`, middle: undefined },
      { name: "proxy", kind: "direct", address: `127.0.0.1:${proxy.facts.port}`, middle: proxy.pid },
      { name: "batching", kind: "direct", address: `127.0.0.1:${batching.facts.port}`, middle: batching.pid },
      { name: "native", kind: "native", address: `127.0.0.1:${chat.facts.grpcPort}`, middle: chat.pid },
      { name: "connect", kind: "connect", address: `127.0.0.1:${chat.facts.httpPort}`, middle: chat.pid },
    ];
    const load = async (way, count, each, rate) => {
      const before = way.middle ? cpuMicros(way.middle) : 0;
      const result = await runProcess("test/load/client.mjs", [
        way.kind,
        way.address,
        String(count),
        String(each),
        String(rate),
      ]);
      return {
        ...result,
        cpuMicrosPerDelta: way.middle ? (cpuMicros(way.middle) - before) / result.deltas : 0,
      };
    };
    for (const way of ways) await load(way, turns, Math.ceil(deltas / 4), 0); // warm up
    const saturated = Object.fromEntries(ways.map((way) => [way.name, []]));
    const paced = Object.fromEntries(ways.map((way) => [way.name, []]));
    for (let round = 0; round < runs; round++) {
      for (const way of ways) saturated[way.name].push(await load(way, turns, deltas, 0));
      for (const way of ways) paced[way.name].push(await load(way, 100, PACED_DELTAS, 50));
      console.error(`round ${round + 1} of ${runs}`);
    }
    const figures = {
      log: String(chat.facts.log),
      turns,
      deltas,
      runs,
      node: process.version,
      saturated,
      paced,
    };
    print(ways, figures);
    const file = option(options, "json", undefined);
    if (file) writeFileSync(file, JSON.stringify(figures, undefined, 2));
  } finally {
    for (const end of ends.reverse()) await end();
    rmSync(folder, { recursive: true, force: true });
  }
}

function print(ways, { saturated, paced, log, turns, deltas, runs }) {
  const mid = (list, field) => median(list.map((entry) => entry[field]));
  const range = (list, field, digits) =>
    `${mid(list, field).toFixed(digits)} (${Math.min(...list.map((e) => e[field])).toFixed(digits)}-${Math.max(...list.map((e) => e[field])).toFixed(digits)})`;
  // Ratios are taken within each round, then their median: the machine is noisy, rounds are close in time.
  const ratio = (name, other, field) =>
    median(saturated[name].map((entry, round) => entry[field] / saturated[other][round][field]));
  console.log(
    `\nlog ${log}; saturated: ${turns} turns x ${deltas} deltas; paced: 100 turns x 50/s; median (min-max) of ${runs} interleaved runs\n`,
  );
  console.log(
    "| way | deltas/s saturated | of direct | CPU us/delta | of proxy | of batching | paced p50 ms | paced p99 ms | paced CPU us/delta |\n|---|---|---|---|---|---|---|---|---|",
  );
  for (const { name } of ways) {
    const cpu = name === "direct" ? "-" : range(saturated[name], "cpuMicrosPerDelta", 1);
    const ofProxy = name === "direct" ? "-" : `${ratio(name, "proxy", "cpuMicrosPerDelta").toFixed(2)}x`;
    const ofBatching =
      name === "direct" ? "-" : `${ratio(name, "batching", "cpuMicrosPerDelta").toFixed(2)}x`;
    const pacedCpu = name === "direct" ? "-" : range(paced[name], "cpuMicrosPerDelta", 0);
    console.log(
      `| ${name} | ${range(saturated[name], "perSecond", 0)} | ${(ratio(name, "direct", "perSecond") * 100).toFixed(0)} % | ${cpu} | ${ofProxy} | ${ofBatching} | ${range(paced[name], "p50Ms", 2)} | ${range(paced[name], "p99Ms", 1)} | ${pacedCpu} |`,
    );
  }
}
