/**
 * What documents cost: indexing 1,000 of 100 KB (Markdown of synthetic words with a Zipf distribution, as text of a language
 * has), then searching them. The Postgres is the embedded one, the code that of the service. Each run has its own database.
 *   index    MB of text per second, from the first document added to the last one ready; the CPU that this took, of Postgres and
 *            of the service; delays of the service's event loop
 *   mid      100 queries of 1-4 words of middle frequency, taken from the documents: each has hits
 *   common   100 queries of 1-4 of the 50 commonest words
 *   long     100 queries of 120 words: text of a document with words that stand nowhere between
 * Options: --runs 5 --documents 1000 --kilobytes 100 --json FILE
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import pg from "pg";
import { Ingest } from "../../dist/src/documents/ingest.js";
import { searchPassages } from "../../dist/src/documents/pg-document-index.js";
import { pgDocumentStore } from "../../dist/src/documents/pg-document-store.js";
import { DEFAULT_QUOTAS } from "../../dist/src/documents/document-service.js";
import { systemClock } from "../../dist/src/lib/clock.js";
import { newId } from "../../dist/src/lib/ids.js";
import { silentLogger } from "../../dist/src/lib/log.js";
import { startPostgres } from "../../dist/src/main/embedded/postgres.js";
import { Channel } from "../../dist/src/store/db.js";
import { connectPgStore } from "../../dist/src/store/pg-store.js";
import { median } from "./processes.mjs";

const OWNER = { tenantId: "bench", userId: "bench" };
const VOCABULARY = 50_000;

function option(options, name, fallback) {
  const at = options.indexOf(`--${name}`);
  return at < 0 ? fallback : options[at + 1];
}

/** mulberry32: the same corpus each time. */
function randomFrom(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Words by rank, and a table to draw from with the probability 1 / rank. */
function makeLanguage(random) {
  const consonants = "bdfgklmnprstvz";
  const vowels = "aeiou";
  const words = [];
  const seen = new Set();
  while (words.length < VOCABULARY) {
    let word = "";
    const syllables = 1 + Math.floor(Math.min(3, Math.log10(1 + words.length / 20)) + random() * 2);
    for (let n = 0; n < syllables; n++)
      word +=
        consonants[Math.floor(random() * 14)] +
        vowels[Math.floor(random() * 5)] +
        (random() < 0.3 ? "n" : "");
    if (!seen.has(word)) words.push(word);
    seen.add(word);
  }
  const total = words.reduce((sum, _, rank) => sum + 1 / (rank + 1), 0);
  const table = new Uint16Array(1 << 20);
  let at = 0;
  let sum = 0;
  for (let rank = 0; rank < VOCABULARY; rank++) {
    sum += 1 / (rank + 1) / total;
    while (at < table.length && at / table.length < sum) table[at++] = rank;
  }
  return { words, draw: () => words[table[Math.floor(random() * table.length)]] };
}

function makeDocument(language, random, bytes, number) {
  const parts = [`# Document ${number} ${language.draw()} ${language.draw()}\n`];
  let length = 0;
  while (length < bytes) {
    let paragraph =
      random() < 0.15 ? `\n## ${language.draw()} ${language.draw()} ${language.draw()}\n\n` : "\n";
    const sentences = 2 + Math.floor(random() * 5);
    for (let s = 0; s < sentences; s++) {
      const count = 6 + Math.floor(random() * 16);
      const words = Array.from({ length: count }, () => language.draw());
      paragraph += `${words.join(" ")}. `;
    }
    paragraph += "\n";
    parts.push(paragraph);
    length += paragraph.length;
  }
  return parts.join("");
}

/** CPU that this process and those of Postgres have used, seconds. Backends that have ended are the postmaster's. */
function cpuSeconds(postmaster) {
  let ticks = 0;
  for (const entry of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    const stat = readStat(entry);
    if (Number(entry) === postmaster) ticks += stat[11] + stat[12] + stat[13] + stat[14];
    else if (stat[1] === postmaster) ticks += stat[11] + stat[12];
  }
  const own = process.cpuUsage();
  return ticks / 100 + (own.user + own.system) / 1e6;
}

/** The numbers of /proc/PID/stat behind the name; NaN for letters. Empty when the process is gone. */
function readStat(pid) {
  try {
    return readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1).split(" ").map(Number);
  } catch {
    return [];
  }
}

function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)];
}

async function once({ server, documents, kilobytes, seed }) {
  const database = `bench_${seed}`;
  const admin = new pg.Client({ connectionString: server.url });
  await admin.connect();
  await admin.query(`create database ${database}`);
  await admin.end();
  const url = server.url.replace(/\/[^/]*$/, `/${database}`);
  const files = await connectPgStore({ connectionString: url, logger: silentLogger });
  const channel = new Channel(url, 6, silentLogger);
  let ready = 0;
  let allReady;
  const done = new Promise((resolve) => (allReady = resolve));
  const store = pgDocumentStore(channel, (document) => {
    if (document.error) throw new Error(document.error);
    if (document.processedBytes > 0 && ++ready === documents) allReady();
  });
  const random = randomFrom(seed);
  const language = makeLanguage(random);
  const texts = Array.from({ length: documents }, (_, n) =>
    makeDocument(language, random, kilobytes * 1000, n),
  );
  const bytes = texts.reduce((sum, text) => sum + text.length, 0);

  const ingest = new Ingest({
    store,
    files,
    fetch: undefined,
    extractor: undefined,
    clock: systemClock,
    logger: silentLogger,
    worker: newId(),
  });
  const delay = monitorEventLoopDelay({ resolution: 5 });
  delay.enable();
  const started = performance.now();
  const cpuBefore = cpuSeconds(server.pid);
  ingest.start();
  for (const [n, text] of texts.entries()) {
    const input = {
      documentId: newId(),
      requestId: "",
      requestHash: "",
      title: "",
      mediaType: "text/markdown",
      tags: [],
    };
    await store.add(
      OWNER,
      { ...input, projectId: "", source: "text", url: "", fileId: "", sizeBytes: text.length, text },
      DEFAULT_QUOTAS,
    );
    if (n % 50 === 0) ingest.wake();
  }
  ingest.wake();
  await done;
  const seconds = (performance.now() - started) / 1000;
  const cpu = cpuSeconds(server.pid) - cpuBefore;
  delay.disable();
  await ingest.close();
  await store.settleIndex();

  const search = async (query) => {
    const from = performance.now();
    const found = await searchPassages(channel, OWNER, query, {}, 10);
    if (found.length === 0) throw new Error(`nothing found for "${query}"`);
    return performance.now() - from;
  };
  const pick = (low, high) => language.words[low + Math.floor(random() * (high - low))];
  /** Words that stand together in a document. */
  const midQuery = (count) => {
    const wanted = new Set(language.words.slice(300, 5_000));
    const text = texts[Math.floor(random() * texts.length)];
    const from = Math.floor(random() * (text.length / 2));
    const words = text
      .slice(from)
      .match(/[a-z]+/g)
      .filter((word) => wanted.has(word));
    return [...new Set(words)].slice(0, count).join(" ");
  };
  for (let n = 0; n < 10; n++) await search(midQuery(2)); // connections, plans, caches
  const mid = [];
  for (let n = 0; n < 100; n++) mid.push(await search(midQuery(1 + (n % 4))));
  const common = [];
  for (let n = 0; n < 100; n++)
    common.push(await search(Array.from({ length: 1 + (n % 4) }, () => pick(0, 50)).join(" ")));
  const long = [];
  for (let n = 0; n < 100; n++) {
    const words = texts[Math.floor(random() * texts.length)].match(/[a-z]+/g).slice(5, 105);
    long.push(await search(words.map((word, at) => (at % 5 === 0 ? `${word} qx${at}` : word)).join(" ")));
  }
  const size = await channel.query(
    `select pg_total_relation_size('turnwire.passages') as bytes, (select count(*) from turnwire.passages) as passages`,
  );
  await channel.close();
  await files.close();
  return {
    megabytes: bytes / 1e6,
    passages: Number(size[0].passages),
    storedMegabytes: Number(size[0].bytes) / 1e6,
    indexMegabytesPerSecond: bytes / 1e6 / seconds,
    indexCpuSeconds: cpu,
    loopDelayP99Ms: delay.percentile(99) / 1e6,
    loopDelayMaxMs: delay.max / 1e6,
    midP50Ms: quantile(mid, 0.5),
    midP99Ms: quantile(mid, 0.99),
    commonP50Ms: quantile(common, 0.5),
    commonP99Ms: quantile(common, 0.99),
    longP50Ms: quantile(long, 0.5),
    longP99Ms: quantile(long, 0.99),
  };
}

export async function run(options) {
  const runs = Number(option(options, "runs", "5"));
  const documents = Number(option(options, "documents", "1000"));
  const kilobytes = Number(option(options, "kilobytes", "100"));
  const folder = mkdtempSync(path.join(os.tmpdir(), "turnwire-bench-"));
  const server = await startPostgres({ dataDir: folder, logger: silentLogger });
  const results = [];
  try {
    for (let n = 0; n < runs; n++) {
      results.push(await once({ server, documents, kilobytes, seed: n + 1 }));
      console.log(`run ${n + 1}: ${format(results.at(-1))}`);
    }
  } finally {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
  const middle = Object.fromEntries(
    Object.keys(results[0]).map((name) => [name, median(results.map((result) => result[name]))]),
  );
  console.log(`median: ${format(middle)}`);
  const file = option(options, "json", undefined);
  if (file)
    writeFileSync(
      file,
      `${JSON.stringify({ documents, kilobytes, runs: results, median: middle }, null, 2)}\n`,
    );
}

function format(result) {
  return Object.entries(result)
    .map(([name, value]) => `${name} ${value >= 100 ? Math.round(value) : value.toFixed(1)}`)
    .join(", ");
}
