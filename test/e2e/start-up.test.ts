/** What keeps a server from starting is one line that says what to do; the exit code is 1, and nothing is left behind. */
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import net from "node:net";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openDataDir } from "../../src/main/embedded/data-dir.js";
import { MODEL, chatClient, plainAnswer, startWith } from "../support/e2e-fixture.js";
import { freePorts } from "../support/free-ports.js";
import { natsServers } from "../support/nats.js";
import { runSql, usePostgres } from "../support/postgres.js";
import { runToExit, type Refused } from "../support/run-to-exit.js";
import { startScriptedUpstream } from "../support/scripted-upstream.js";
import type { ServiceName } from "../support/service-processes.js";
import { makeDataDir, removeDataDir } from "../support/turnwire-process.js";

const postgres = usePostgres();
const SECRET = "start-secret-5d21";
const NON_LOOPBACK = { TURNWIRE_HOST: "0.0.0.0" };
const folder = makeDataDir();
let dataDirs = 0;
/** A port that somebody listens on. */
let taken: net.Server;
let takenPort: string;
/** A port that nobody listens on. */
let deadPort: number;

beforeAll(async () => {
  taken = net.createServer();
  await new Promise<void>((resolve) => taken.listen(0, "127.0.0.1", resolve));
  takenPort = String((taken.address() as net.AddressInfo).port);
  [deadPort] = (await freePorts(1)) as [number];
});
afterAll(async () => {
  await new Promise((resolve) => taken.close(resolve));
  removeDataDir(folder);
});

/** A start with a database and free ports that works but for `env`. */
function refused(name: ServiceName, env: Record<string, string>): Promise<Refused> {
  return runToExit(
    name,
    {
      TURNWIRE_HTTP_PORT: "0",
      TURNWIRE_GRPC_PORT: "0",
      TURNWIRE_DATA_DIR: path.join(folder, `data-${++dataDirs}`),
      DATABASE_URL: postgres.url,
      NATS_URL: "none",
      ...env,
    },
    { cwd: folder },
  );
}

/** One line for people, which matches; nothing of a stack or a secret anywhere. */
function expectRefused(result: Refused, ...patterns: RegExp[]): void {
  expect(result.code, result.output).toBe(1);
  expect(result.said.length, result.said.join("\n")).toBe(1);
  for (const pattern of [/^turnwire: /, ...patterns]) expect(result.said[0]).toMatch(pattern);
  expect(result.output).not.toMatch(/^\s+at |node:internal/m);
  expect(result.output).not.toContain(SECRET);
}

describe("the environment", () => {
  // What the environment may hold is settled in src/main/config.test.ts; here is how a process says it.
  test.each<[ServiceName, string, string, RegExp]>([
    ["all-in-one", "TURNWIRE_HTTP_PORT", "http", /whole number from 0 to 65535/],
    ["chat", "TURNWIRE_TOKENS", `${SECRET}=acme/ada,${SECRET}=acme/bob`, /entry 2/],
    ["chat", "TURNWIRE_CORS_ORIGINS", "https://app.example,somewhere", /"somewhere" is not an origin/],
    ["chat", "DATABASE_URL", `mysql://me:${SECRET}@127.0.0.1/x`, /postgres:\/\//],
    ["llm", "OPENAI_BASE_URL", "not a url", /OPENAI_BASE_URL/],
    ["llm", "TURNWIRE_CONFIG", "/nowhere/config.yaml", /config\.yaml cannot be read/],
    ["tool", "TURNWIRE_CONFIG", "/nowhere/config.yaml", /config\.yaml cannot be read/],
  ])("%s with %s=%s", async (name, variable, value, pattern) => {
    const result = await refused(name, { [variable]: value });
    expectRefused(result, new RegExp(variable), pattern);
  });

  test.each<[ServiceName, Record<string, string>, RegExp]>([
    ["all-in-one", NON_LOOPBACK, /TURNWIRE_(TOKENS|PEER_TOKEN)/],
    ["all-in-one", { ...NON_LOOPBACK, TURNWIRE_PEER_TOKEN: SECRET }, /TURNWIRE_TOKENS/],
    ["chat", NON_LOOPBACK, /TURNWIRE_TOKENS/],
    ["llm", NON_LOOPBACK, /TURNWIRE_PEER_TOKEN/],
    ["tool", NON_LOOPBACK, /TURNWIRE_PEER_TOKEN/],
    ["llm", { ...NON_LOOPBACK, TURNWIRE_TOKENS: `${SECRET}=a/b` }, /TURNWIRE_PEER_TOKEN/],
  ])("%s off loopback without its tokens: %j", async (name, env, pattern) => {
    expectRefused(await refused(name, env), pattern);
  });

  test("a host that is none", async () => {
    const env = {
      TURNWIRE_HOST: "no-such-host.invalid",
      TURNWIRE_TOKENS: `${SECRET}=a/b`,
      TURNWIRE_PEER_TOKEN: SECRET,
    };
    expectRefused(await refused("chat", env), /cannot listen on/, /TURNWIRE_HOST/);
  });

  test("a configuration file with a mistake", async () => {
    const file = path.join(folder, "config.yaml");
    writeFileSync(
      file,
      "providers:\n  - {name: mine, api: openai-chat, baseUrl: 'http://127.0.0.1:1', nmae: x}\n",
    );
    expectRefused(await refused("all-in-one", { TURNWIRE_CONFIG: file }), /config\.yaml:2: .*nmae/);
  });

  test("TLS files that are none", async () => {
    const cert = path.join(folder, "cert.pem");
    writeFileSync(cert, "this is no certificate");
    const missing = { TURNWIRE_TLS_CERT: cert, TURNWIRE_TLS_KEY: path.join(folder, "nowhere.pem") };
    expectRefused(await refused("all-in-one", missing), /TURNWIRE_TLS_KEY.*ENOENT/);
    const broken = { TURNWIRE_TLS_CERT: cert, TURNWIRE_TLS_KEY: cert };
    expectRefused(await refused("all-in-one", broken), /TURNWIRE_TLS_CERT/);
  });
});

describe("what it needs", () => {
  test.each<[ServiceName, string]>([
    ["all-in-one", "TURNWIRE_HTTP_PORT"],
    ["all-in-one", "TURNWIRE_GRPC_PORT"],
    ["all-in-one", "TURNWIRE_LLM_PORT"],
    ["llm", "TURNWIRE_LLM_PORT"],
    ["tool", "TURNWIRE_TOOL_PORT"],
  ])("%s: the port of %s is taken", async (name, variable) => {
    const result = await refused(name, { [variable]: takenPort });
    expectRefused(result, new RegExp(takenPort), /taken/, new RegExp(variable));
  });

  test("the data directory is in use", async () => {
    const dataDir = path.join(folder, "in-use");
    const held = await openDataDir(dataDir);
    expectRefused(
      await refused("all-in-one", { TURNWIRE_DATA_DIR: dataDir }),
      new RegExp(`in use by process ${process.pid}`),
      /TURNWIRE_DATA_DIR/,
    );
    await held.release();
  });

  test("the data directory cannot be made", async () => {
    const file = path.join(folder, "a-file");
    writeFileSync(file, "");
    for (const dataDir of [file, path.join(file, "below")])
      expectRefused(
        await refused("all-in-one", { TURNWIRE_DATA_DIR: dataDir }),
        /not a directory/,
        /TURNWIRE_DATA_DIR/,
      );
  });

  // These wait for what may still come: they wait together.
  test.concurrent.each(["all-in-one", "chat"] as const)(
    "%s: nobody listens at DATABASE_URL",
    async (name) => {
      const result = await refused(name, {
        DATABASE_URL: `postgres://me:${SECRET}@127.0.0.1:${deadPort}/turnwire`,
      });
      expectRefused(result, /DATABASE_URL/, new RegExp(`127\\.0\\.0\\.1:${deadPort}`));
    },
  );

  test("the database of DATABASE_URL is not there", async () => {
    const url = postgres.url.replace(/\/[^/]*$/, "/nowhere");
    expectRefused(
      await refused("all-in-one", { DATABASE_URL: url }),
      /DATABASE_URL/,
      /"nowhere" does not exist/,
    );
  });

  test("the database is of a newer version, or of another build", async () => {
    const newer = await postgres.createDatabase();
    const upstream = await startScriptedUpstream();
    const dataDir = path.join(folder, "newer");
    mkdirSync(dataDir);
    upstream.replyWith(() => plainAnswer("before"));
    const server = await startWith(upstream, { dataDir, databaseUrl: newer });
    await chatClient(server).sendMessageAndWait({ text: "hello", models: [{ modelId: MODEL }] });
    await server.stop();
    const count = "select count(*)::int as count from turnwire.turns";
    await runSql(
      newer,
      "insert into turnwire.migrations (version, name, checksum) values (99, '0099-future.sql', 'x')",
    );
    expectRefused(await refused("all-in-one", { DATABASE_URL: newer }), /of version 99/, /newer Turnwire/);
    expect(await runSql(newer, count)).toEqual([{ count: 1 }]);
    await runSql(newer, "delete from turnwire.migrations where version = 99");
    await runSql(newer, "update turnwire.migrations set checksum = 'another'");
    expectRefused(await refused("all-in-one", { DATABASE_URL: newer }), /another build/);
    expect(await runSql(newer, count)).toEqual([{ count: 1 }]);
    await upstream.close();
  });

  test.concurrent("nobody listens at NATS_URL", async () => {
    const result = await refused("all-in-one", { NATS_URL: `nats://me:${SECRET}@127.0.0.1:${deadPort}` });
    expectRefused(result, /NATS_URL/, new RegExp(`127\\.0\\.0\\.1:${deadPort}`));
  });

  test("NATS_SERVER is no nats-server", async () => {
    const env = { NATS_URL: "", NATS_SERVER: "/bin/true" };
    expectRefused(await refused("all-in-one", env), /NATS_SERVER/);
  });

  const newest = natsServers().at(-1);
  test.skipIf(!newest)("the nats-server has no JetStream", async () => {
    const [port] = await freePorts(1);
    const nats = spawn(newest!.path, ["-a", "127.0.0.1", "-p", String(port)], { stdio: "ignore" });
    try {
      await expect.poll(() => canConnect(port!), { timeout: 10_000 }).toBe(true);
      const result = await refused("all-in-one", { NATS_URL: `nats://127.0.0.1:${port}` });
      expectRefused(result, /NATS_URL/, /JetStream/);
    } finally {
      nats.kill("SIGKILL");
    }
  });
});

function canConnect(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = net.connect(port, "127.0.0.1");
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });
}

describe("the build that a start makes", () => {
  const root = path.resolve(import.meta.dirname, "../..");

  test("makes the same page whatever NODE_ENV says, and leaves it so", () => {
    const pages = [undefined, "development", "production"].map((nodeEnv) => {
      const out = path.join(folder, `page-${nodeEnv}`);
      const code = `import { buildPage } from "./scripts/build-page.mjs";
      await buildPage(process.cwd(), ${JSON.stringify(out)});
      console.log(process.env.NODE_ENV);`;
      const env: NodeJS.ProcessEnv = { ...process.env, NODE_ENV: nodeEnv };
      if (nodeEnv === undefined) delete env["NODE_ENV"];
      const args = ["--input-type=module", "--eval", code];
      // What starts after a build in this process (an installation, a service) has to find what its user set.
      const printed = execFileSync(process.execPath, args, { cwd: root, env, encoding: "utf8" });
      expect(printed.trim()).toBe(String(nodeEnv));
      return readdirSync(path.join(out, "assets")).sort(); // their names tell their content
    });
    expect(pages[0]!.length).toBeGreaterThan(0);
    expect(pages[1]).toEqual(pages[0]);
    expect(pages[2]).toEqual(pages[0]);
  });

  test("says what to do when its tools were left out of the installation", () => {
    const bare = path.join(folder, "bare");
    cpSync(path.join(root, "scripts"), path.join(bare, "scripts"), { recursive: true });
    const run = spawnSync(process.execPath, ["scripts/start.mjs"], { cwd: bare, encoding: "utf8" });
    expect([run.status, run.stdout, run.stderr]).toEqual([
      1,
      "",
      "turnwire: a package that the build needs is not installed; run: npm ci --include=dev\n",
    ]);
  });
});
