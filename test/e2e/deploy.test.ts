/**
 * deploy/: what the image is built from works, and the three services run as compose.yaml starts them, on a nats-server and
 * a Postgres with the settings of deploy/. Everything but the containers themselves: images cannot be fetched by a test.
 */
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { silentLogger } from "../../src/lib/log.js";
import { preparePostgresBinaries } from "../../src/main/embedded/postgres-binaries.js";
import { startPostgres } from "../../src/main/embedded/postgres.js";
import { chooseRunAs } from "../../src/main/embedded/run-as.js";
import { chatClient } from "../support/e2e-fixture.js";
import { freePorts } from "../support/free-ports.js";
import { natsServers } from "../support/nats.js";
import { runSql } from "../support/postgres.js";
import { serveCommand, type StartedService } from "../support/readme.js";
import { makeDataDir, removeDataDir } from "../support/turnwire-process.js";

const root = path.resolve(import.meta.dirname, "../..");
const deploy = path.join(root, "deploy");

interface ComposeService {
  readonly image: string;
  readonly command: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly depends_on?: Readonly<Record<string, unknown>>;
  readonly volumes?: readonly string[];
}

interface Compose {
  readonly services: Readonly<Record<string, ComposeService>>;
  readonly volumes: Readonly<Record<string, unknown>>;
}

const compose = parse(readFileSync(path.join(deploy, "compose.yaml"), "utf8"), { merge: true }) as Compose;

/** What the head of compose.yaml tells to set. Digits alone: the hardest password for nats.conf. */
const SECRETS: Readonly<Record<string, string>> = {
  TURNWIRE_PEER_TOKEN: "peers-only",
  TURNWIRE_DB_PASSWORD: "0123456789",
  TURNWIRE_NATS_PASSWORD: "9876543210",
  TURNWIRE_TOKENS: "secret=local/me/admin",
};

/** A service's environment with `${NAME}`, `${NAME:?why}` and `${NAME:-default}` filled in. */
function environmentOf(name: string): Record<string, string> {
  const entries = Object.entries(compose.services[name]!.environment ?? {});
  return Object.fromEntries(
    entries.map(([key, value]) => [
      key,
      value.replace(/\$\{(\w+)(?::([?-])([^}]*))?\}/g, (_, variable: string, kind?: string, rest = "") => {
        const filled = SECRETS[variable] ?? (kind === "-" ? (rest as string) : undefined);
        if (filled === undefined) throw new Error(`compose.yaml: nothing says what ${variable} is`);
        return filled;
      }),
    ]),
  );
}

describe("deploy/compose.yaml", () => {
  it("names only services and volumes that it has, and images of a version", () => {
    for (const [name, service] of Object.entries(compose.services)) {
      for (const other of Object.keys(service.depends_on ?? {}))
        expect(compose.services).toHaveProperty(other);
      const named = (service.volumes ?? []).map((volume) => volume.split(":")[0]!);
      for (const volume of named.filter((each) => !each.startsWith(".")))
        expect(compose.volumes).toHaveProperty(volume);
      expect(service.image, name).toMatch(/^\S+:(local|\d\S*)$/);
    }
  });

  it("sets only variables that the services read", () => {
    const page = readFileSync(path.join(root, "README.md"), "utf8");
    for (const name of ["chat", "llm", "tool"])
      for (const variable of Object.keys(environmentOf(name))) expect(page).toContain(`\`${variable}\``);
  });
});

describe("deploy/, run without containers", () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), "turnwire-deploy-"));
  const dataDir = makeDataDir();
  const processes: { child: ChildProcess; exited: Promise<void> }[] = [];
  const services: StartedService[] = [];
  let ports: Record<"nats" | "postgres" | "llm" | "tool", number>;

  beforeAll(async () => {
    const [nats, postgres, llm, tool] = (await freePorts(4)) as [number, number, number, number];
    ports = { nats, postgres, llm, tool };
    buildImage(folder);
    runNats(nats);
    await runPostgres();
    await Promise.all([listens(nats), listens(postgres)]);
    await until(makeDatabase); // it takes connections before it takes work
  }, 300_000);

  afterAll(async () => {
    for (const service of services.reverse()) await service.stop();
    for (const { child } of processes) child.kill("SIGINT"); // for Postgres: a fast shutdown
    await Promise.all(processes.map(({ exited }) => exited));
    removeDataDir(dataDir);
    rmSync(folder, { recursive: true, force: true });
  });

  function run(command: string, args: readonly string[], options: { uid?: number; gid?: number } = {}): void {
    const env = { ...process.env, ...environmentOf("nats") };
    const child = spawn(command, args, { cwd: "/", stdio: "ignore", env, ...options });
    processes.push({ child, exited: new Promise((resolve) => child.once("exit", () => resolve())) });
  }

  async function makeDatabase(): Promise<void> {
    const admin = databaseUrl("postgres");
    const there = "select 1 from pg_database where datname = 'turnwire'";
    if ((await runSql(admin, there)).length === 0) await runSql(admin, "create database turnwire");
  }

  function databaseUrl(database: string): string {
    return `postgres://turnwire@127.0.0.1:${ports.postgres}/${database}`;
  }

  /** With nats.conf, but for the place of its files, which is a volume in compose. */
  function runNats(port: number): void {
    const settings = readFileSync(path.join(deploy, "nats.conf"), "utf8");
    const here = settings.replace("store_dir: /data", `store_dir: "${folder}/nats"`);
    expect(here).not.toBe(settings);
    const config = path.join(folder, "nats.conf");
    writeFileSync(config, here);
    run(natsServers().at(-1)!.path, ["--config", config, "--addr", "127.0.0.1", "--port", String(port)]);
  }

  /** As compose runs it: a cluster that initdb made, and the configuration file of deploy/ in place of its own. */
  async function runPostgres(): Promise<void> {
    const made = await startPostgres({ dataDir, logger: silentLogger });
    await made.stop();
    const user = chooseRunAs();
    const config = path.join(made.pgdata, "deploy.conf");
    copyFileSync(path.join(deploy, "postgresql.conf"), config);
    const settings = {
      config_file: config,
      listen_addresses: "127.0.0.1",
      port: String(ports.postgres),
      unix_socket_directories: "",
    };
    const args = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
    run(
      preparePostgresBinaries(user).postgres,
      ["-D", made.pgdata, ...args],
      user ? { uid: user.uid, gid: user.gid } : {},
    );
  }

  async function serve(name: "chat" | "llm" | "tool", env: Record<string, string>): Promise<StartedService> {
    const local = { TURNWIRE_HOST: "127.0.0.1", TURNWIRE_DATA_DIR: path.join(folder, name) };
    const [program, ...args] = compose.services[name]!.command;
    expect(program).toBe("node");
    const line = `exec node ${args.join(" ")}`;
    const here = Object.entries({ ...environmentOf(name), ...local, ...env }).map(([key, value]) => [
      key,
      value
        .replace("dns:///llm:9091", `dns:///127.0.0.1:${ports.llm}`)
        .replace("dns:///tool:9092", `dns:///127.0.0.1:${ports.tool}`)
        .replace("@postgres:5432", `@127.0.0.1:${ports.postgres}`)
        .replace("@nats:4222", `@127.0.0.1:${ports.nats}`),
    ]);
    const service = await serveCommand(line, Object.fromEntries(here), path.join(folder, "app"));
    services.push(service);
    return service;
  }

  it("answers, with its log in JetStream and its rows in Postgres", async () => {
    await Promise.all([
      serve("llm", { TURNWIRE_LLM_PORT: String(ports.llm) }),
      serve("tool", { TURNWIRE_TOOL_PORT: String(ports.tool) }),
    ]);
    const chat = await serve("chat", { TURNWIRE_HTTP_PORT: "0", TURNWIRE_GRPC_PORT: "0" });
    expect(chat.facts).toMatchObject({ log: "NATS JetStream (NATS_URL)", store: "DATABASE_URL" });
    const httpUrl = `http://127.0.0.1:${String(chat.facts["httpPort"])}`;
    expect((await fetch(`${httpUrl}/readyz`)).status).toBe(200);
    const client = chatClient({ httpUrl }, { authorization: "Bearer secret" });
    const reply = await client.sendMessageAndWait({ text: "hello" });
    expect(reply.text).toContain("The tool `clock` answered");
    const rows = await runSql(databaseUrl("turnwire"), "select tenant_id, user_id from turnwire.turns");
    expect(rows).toEqual([{ tenant_id: "local", user_id: "me" }]);
  }, 60_000);

  it("runs Postgres with commits on disk", async () => {
    const settings = [
      "synchronous_commit",
      "fsync",
      "full_page_writes",
      "max_connections",
      "statement_timeout",
    ];
    const sql = "select name, setting from pg_settings where name = any($1)";
    const rows = await runSql(databaseUrl("turnwire"), sql, [settings]);
    expect(Object.fromEntries(rows.map(({ name, setting }) => [name, setting]))).toEqual({
      synchronous_commit: "on",
      fsync: "on",
      full_page_writes: "on",
      max_connections: "200",
      statement_timeout: "30000",
    });
  });
});

/** Follows the Dockerfile: its first stage in `build`, what the second one takes of it in `app`. */
function buildImage(folder: string): void {
  const build = path.join(folder, "build");
  const app = path.join(folder, "app");
  for (const stage of [build, app]) mkdirSync(stage);
  const [first, second] = readFileSync(path.join(deploy, "Dockerfile"), "utf8")
    .split(/^FROM .*$/m)
    .slice(1);
  for (const [, step, rest] of first!.matchAll(/^(COPY|RUN) (.*)$/gm)) {
    if (step === "RUN") {
      execFileSync("sh", ["-ec", rest!.replace("npm ci", "npm ci --prefer-offline")], {
        cwd: build,
        stdio: ["ignore", "ignore", "pipe"],
        timeout: 240_000,
      });
    } else copy(root, rest!, build);
  }
  for (const [, rest] of second!.matchAll(/^COPY --from=build (.*)$/gm))
    copy(build, rest!.replaceAll("/app/", ""), app);
}

/** One COPY line: sources, then where they go. */
function copy(from: string, words: string, to: string): void {
  const names = words.split(" ");
  const target = path.join(to, names.at(-1)!);
  for (const name of names.slice(0, -1)) {
    const isFolder = words.endsWith("/");
    cpSync(path.join(from, name), isFolder ? path.join(target, name) : target, {
      recursive: true,
      verbatimSymlinks: true,
      filter: (file) => !file.endsWith(".test.ts"), // as the .dockerignore does
    });
  }
}

/** Resolves once something takes connections there. */
function listens(port: number): Promise<void> {
  return until(
    () =>
      new Promise<void>((resolve, reject) => {
        const socket = net.connect({ host: "127.0.0.1", port });
        socket.once("error", reject).once("connect", () => {
          socket.destroy();
          resolve();
        });
      }),
  );
}

/** Repeats what fails until it succeeds, for 20 s. */
async function until(action: () => Promise<void>): Promise<void> {
  const deadline = performance.now() + 20_000;
  for (;;) {
    try {
      return await action();
    } catch (error) {
      if (performance.now() > deadline) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}
