import { spawn, spawnSync } from "node:child_process";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { silentLogger } from "../../src/lib/log.js";
import { locateNativePackage, preparePostgresBinaries } from "../../src/main/embedded/postgres-binaries.js";
import {
  startPostgres,
  type EmbeddedPostgres,
  type StartPostgresOptions,
} from "../../src/main/embedded/postgres.js";
import { identifyProcess, workingDirectory } from "../../src/main/embedded/process-info.js";
import { chooseRunAs, parsePasswd } from "../../src/main/embedded/run-as.js";
import { freePorts } from "../support/free-ports.js";
import { runSql } from "../support/postgres.js";

const AS_ROOT = process.getuid?.() === 0;

let root: string;
let running: EmbeddedPostgres[] = [];
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "turnwire-embedded-"));
  chmodSync(root, 0o755);
});
afterEach(async () => {
  await Promise.all(running.map((server) => server.stop()));
  running = [];
  rmSync(root, { recursive: true, force: true });
});

async function start(
  dataDir = join(root, "data"),
  options: Partial<StartPostgresOptions> = {},
): Promise<EmbeddedPostgres> {
  const server = await startPostgres({ dataDir, logger: silentLogger, ...options });
  running.push(server);
  return server;
}

describe("startPostgres", () => {
  it("a new data directory - a server with our settings, as a user that is not root, on loopback only", async () => {
    const server = await start();
    const settings = await runSql(
      server.url,
      `select name, setting from pg_settings where name in
       ('fsync', 'synchronous_commit', 'listen_addresses', 'unix_socket_directories', 'max_connections', 'server_encoding', 'data_directory')`,
    );
    expect(Object.fromEntries(settings.map((row) => [row.name, row.setting]))).toEqual({
      fsync: "on",
      synchronous_commit: "on",
      listen_addresses: "127.0.0.1",
      unix_socket_directories: "",
      max_connections: "100",
      server_encoding: "UTF8",
      data_directory: server.pgdata,
    });
    expect(
      await runSql(
        server.url,
        "select datcollate, datctype, datlocale from pg_database where datname = 'postgres'",
      ),
    ).toEqual([{ datcollate: "C", datctype: "C", datlocale: "C.UTF-8" }]);
    expect(statSync(`/proc/${server.pid}`).uid).not.toBe(0);
    expect(statSync(server.pgdata).mode & 0o077).toBe(0);
  });

  it("is out of reach for the terminal's Ctrl-C: a session of its own", async () => {
    const { pid } = await start();
    // After the command: state, parent, process group, session.
    const [, , group, session] = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]!.split(" ");
    expect(group).toBe(String(pid));
    expect(session).toBe(String(pid));
  });

  it("stopped and started again - the rows are there; stop leaves no process", async () => {
    const first = await start();
    await runSql(first.url, "create table t as select 42 as n");
    await first.stop();
    await first.stop();
    expect(identifyProcess(first.pid)).toBeUndefined();
    const second = await start();
    expect(await runSql(second.url, "select n from t")).toEqual([{ n: 42 }]);
  });

  it("killed (-9) - starts again by itself on the same port, and loses no committed row", async () => {
    const server = await start();
    const { pid, url } = server;
    await runSql(url, "create table t as select 42 as n");
    process.kill(pid, "SIGKILL");
    await expect.poll(() => server.pid, { timeout: 20_000 }).not.toBe(pid);
    expect(server.url).toBe(url);
    expect(await runSql(url, "select n from t")).toEqual([{ n: 42 }]);
  });

  it("with restart off a killed server stays down", async () => {
    const server = await start(join(root, "data"), { restart: false });
    process.kill(server.pid, "SIGKILL");
    await expect.poll(() => identifyProcess(server.pid)).toBeUndefined();
    await server.stop();
    await expect(runSql(server.url, "select 1")).rejects.toThrow(/ECONNREFUSED/);
  });

  it("the server of a process that was killed (-9) is adopted, not doubled", async () => {
    const dataDir = join(root, "data");
    const pid = await startInKilledProcess(dataDir);
    const server = await start(dataDir);
    expect(server.pid).toBe(pid);
    expect(await runSql(server.url, "select n from t")).toEqual([{ n: 7 }]);
    await server.stop();
    expect(identifyProcess(pid)).toBeUndefined();
  });

  it("an adopted server on another port than the one wanted is moved there", async () => {
    const dataDir = join(root, "data");
    await startInKilledProcess(dataDir);
    const [port] = await freePorts(1);
    const server = await start(dataDir, { port });
    expect(server.port).toBe(port);
    expect(await runSql(server.url, "select n from t")).toEqual([{ n: 7 }]);
  });

  it("a pid file that was left behind - of a dead process, of a stranger, of a zombie - is in nobody's way", async () => {
    const dataDir = join(root, "data");
    const first = await start(dataDir);
    const pidFile = join(first.pgdata, "postmaster.pid");
    const text = readFileSync(pidFile, "utf8");
    await first.stop();
    const stranger = spawn("sh", ["-c", "sh -c 'exit 0' & echo $!; exec sleep 60"], {
      cwd: "/",
      stdio: ["ignore", "pipe", "ignore"],
    });
    try {
      const zombie = Number(
        await new Promise((resolve) =>
          stranger.stdout.once("data", (data: Buffer) => resolve(data.toString())),
        ),
      );
      for (const pid of [first.pid, stranger.pid!, zombie]) {
        writeFileSync(pidFile, text.replace(/^\d+/, String(pid)));
        const server = await start(dataDir);
        expect(server.pid).not.toBe(pid);
        expect(await runSql(server.url, "select 1 as n")).toEqual([{ n: 1 }]);
        await server.stop();
      }
      expect(identifyProcess(stranger.pid!)).toBeDefined();
    } finally {
      stranger.kill("SIGKILL");
    }
  });

  it("a start that was cut off in initdb leaves nothing in the way", async () => {
    const dataDir = join(root, "data");
    mkdirSync(join(dataDir, "postgres.new", "base"), { recursive: true });
    writeFileSync(join(dataDir, "postgres.new", "PG_VERSION"), "18\n");
    const server = await start(dataDir);
    expect(await runSql(server.url, "select 1 as n")).toEqual([{ n: 1 }]);
    expect(existsSync(join(dataDir, "postgres.new"))).toBe(false);
  });

  it("a port that is taken - UNAVAILABLE, naming it", async () => {
    const holder = createServer();
    const [port] = await freePorts(1);
    await new Promise<void>((resolve) => holder.listen(port, "127.0.0.1", resolve));
    try {
      const started = start(join(root, "data"), { port });
      await expect(started).rejects.toMatchObject({ code: ErrorCode.UNAVAILABLE });
      await expect(started).rejects.toThrow(`127.0.0.1:${port}: the port is taken`);
    } finally {
      await new Promise((resolve) => holder.close(resolve));
    }
  });

  it("a cluster of another Postgres version - refused, naming both", async () => {
    const dataDir = join(root, "data");
    const first = await start(dataDir);
    await first.stop();
    writeFileSync(join(first.pgdata, "PG_VERSION"), "17\n");
    await expect(start(dataDir)).rejects.toThrow(/is of Postgres 17, this Turnwire brings Postgres 18/);
  });

  it("a data directory that cannot be written - UNAVAILABLE, saying why", async () => {
    writeFileSync(join(root, "file"), "");
    await expect(start(join(root, "file", "below"))).rejects.toMatchObject({ code: ErrorCode.UNAVAILABLE });
    await expect(start("/sys/turnwire-test")).rejects.toThrow(/no permission/);
  });

  it("no space for a database - UNAVAILABLE, saying so, and nothing half-made stays", async (context) => {
    const small = join(root, "small");
    mkdirSync(small);
    const mounted = spawnSync("mount", ["-t", "tmpfs", "-o", "size=8m", "tmpfs", small]);
    context.skip(
      mounted.status !== 0,
      "a small file system cannot be mounted here (needs root and the right to mount)",
    );
    try {
      const started = start(small);
      await expect(started).rejects.toMatchObject({ code: ErrorCode.UNAVAILABLE });
      await expect(started).rejects.toThrow(/no space left on the device/);
      expect(readdirSync(small).filter((name) => name.startsWith("postgres"))).toEqual([]);
    } finally {
      spawnSync("umount", [small]);
    }
  });
});

describe.skipIf(!AS_ROOT)("as root", () => {
  it("a data directory that is root's alone - the database lies in it, and its user may pass, not look", async () => {
    const dataDir = join(root, "data");
    mkdirSync(dataDir, { mode: 0o700 });
    const server = await start(dataDir);
    expect(dirname(server.pgdata)).toBe(dataDir);
    expect(statSync(dataDir).mode & 0o777).toBe(0o710);
    expect(statSync(dataDir).uid).toBe(0);
  });

  it("below a folder that is root's alone - the database lies where its user can reach it, the same one each time", async () => {
    const closed = join(root, "closed");
    mkdirSync(closed, { mode: 0o700 });
    const dataDir = join(closed, "data");
    const first = await start(dataDir);
    try {
      expect(first.pgdata.startsWith(root)).toBe(false);
      expect(statSync(closed).mode & 0o777).toBe(0o700);
      await runSql(first.url, "create table t as select 42 as n");
      await first.stop();
      const second = await start(dataDir);
      expect(second.pgdata).toBe(first.pgdata);
      expect(await runSql(second.url, "select n from t")).toEqual([{ n: 42 }]);
      await second.stop();
    } finally {
      rmSync(first.pgdata, { recursive: true, force: true });
      rmSync(`${first.pgdata}.log`, { force: true });
    }
  });

  it("binaries in a folder that is root's alone, without their links, installed under a tight umask - are copied once", () => {
    const user = chooseRunAs()!;
    const closed = join(root, "closed");
    mkdirSync(closed, { mode: 0o700 });
    const installed = { ...locateNativePackage(), directory: join(closed, "native") };
    const links = JSON.parse(
      readFileSync(join(locateNativePackage().directory, "pg-symlinks.json"), "utf8"),
    ) as { target: string }[];
    const isLink = (path: string): boolean =>
      links.some((link) => path === join(locateNativePackage().directory, "..", link.target));
    cpSync(locateNativePackage().directory, installed.directory, {
      recursive: true,
      filter: (source) => !isLink(source),
    });
    spawnSync("chmod", ["-R", "go-rwx", installed.directory]);
    const cacheDirs = [join(root, "file", "impossible"), join(root, "cache")];
    writeFileSync(join(root, "file"), "");
    const binaries = preparePostgresBinaries(user, { installed, cacheDirs });
    expect(binaries.postgres.startsWith(join(root, "cache"))).toBe(true);
    const ran = spawnSync(binaries.postgres, ["--version"], {
      uid: user.uid,
      gid: user.gid,
      cwd: "/",
      encoding: "utf8",
    });
    expect(ran.stdout).toMatch(/^postgres \(PostgreSQL\) 18/);
    const made = statSync(binaries.postgres).ino;
    expect(preparePostgresBinaries(user, { installed, cacheDirs })).toEqual(binaries);
    expect(statSync(binaries.postgres).ino).toBe(made);
    expect(readdirSync(join(root, "cache")).length).toBe(1);
    const nowhere = [join(root, "file", "a")];
    expect(() => preparePostgresBinaries(user, { installed, cacheDirs: nowhere })).toThrow(
      /could not be copied to/,
    );
  });
});

describe("parsePasswd", () => {
  it("reads users by name and skips what is no user", () => {
    const users = parsePasswd(
      "root:x:0:0:root:/root:/bin/sh\n\n# nothing\n+::::::\nnobody:x:65534:65533::/:/bin/false\nbad:x:a:b::\n",
    );
    expect([...users.keys()]).toEqual(["root", "nobody"]);
    expect(users.get("nobody")).toEqual({ name: "nobody", uid: 65534, gid: 65533 });
  });
});

/** Starts a server from another process, puts a row into it and kills that process. Returns the server's pid. */
async function startInKilledProcess(dataDir: string): Promise<number> {
  const file = (path: string): string => JSON.stringify(fileURLToPath(new URL(path, import.meta.url)));
  const program = `
    import { startPostgres } from ${file("../../src/main/embedded/postgres.ts")};
    import { silentLogger } from ${file("../../src/lib/log.ts")};
    import { runSql } from ${file("../support/sql.ts")};
    const server = await startPostgres({ dataDir: ${JSON.stringify(dataDir)}, logger: silentLogger });
    await runSql(server.url, "create table t as select 7 as n");
    console.log(server.pid);
    setInterval(() => undefined, 1000);`;
  const child = spawn(process.execPath, ["--import", "tsx", "--input-type=module", "-e", program], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const pid = Number(
    await new Promise((resolve) => child.stdout.once("data", (data: Buffer) => resolve(data.toString()))),
  );
  child.kill("SIGKILL");
  await ended;
  expect(workingDirectory(pid)).toBeDefined();
  return pid;
}
