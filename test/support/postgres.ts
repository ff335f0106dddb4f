/**
 * A real Postgres for tests: one cluster per test file's process, in a directory of its own below the system's temporary
 * one, and a fresh database per suite. Nothing is left behind: not the processes, not the files, also when the process
 * ends in the middle.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll } from "vitest";
import { silentLogger } from "../../src/lib/log.js";
import { runSql } from "./sql.js";
import { startPostgres, type EmbeddedPostgres } from "../../src/main/embedded/postgres.js";

export { runSql };

export interface TestPostgres {
  /** Connection string of this suite's database. */
  readonly url: string;
  /** The server itself: its pid, its port, its directory. It starts again by itself when killed. */
  readonly server: EmbeddedPostgres;
  /** Another empty database on the same server. */
  createDatabase(): Promise<string>;
}

interface Cluster {
  readonly server: EmbeddedPostgres;
  readonly directory: string;
  readonly killAtExit: () => void;
}

let cluster: Promise<Cluster> | undefined;
let users = 0;
let databases = 0;

/** Call it in a `describe` or at the top of a test file; the fields are there once its hooks have run. */
export function usePostgres(): TestPostgres {
  let server: EmbeddedPostgres | undefined;
  let url = "";
  const createDatabase = async (): Promise<string> => {
    const name = `test_${++databases}`;
    await runSql(server!.url, `create database ${name}`);
    return server!.url.replace(/\/[^/]*$/, `/${name}`);
  };
  beforeAll(async () => {
    users++;
    server = (await (cluster ??= startCluster())).server;
    url = await createDatabase();
  });
  afterAll(async () => {
    if (--users > 0 || !cluster) return;
    const ending = cluster;
    cluster = undefined;
    await stopCluster(await ending);
  });
  return {
    get url() {
      return url;
    },
    get server() {
      return server!;
    },
    createDatabase,
  };
}

async function startCluster(): Promise<Cluster> {
  const directory = await mkdtemp(join(tmpdir(), "turnwire-pg-"));
  try {
    const server = await startPostgres({ dataDir: directory, logger: silentLogger });
    const killAtExit = (): void => {
      try {
        process.kill(server.pid, "SIGKILL");
      } catch {
        // It has ended.
      }
      rmSync(directory, { recursive: true, force: true });
    };
    process.once("exit", killAtExit);
    return { server, directory, killAtExit };
  } catch (error) {
    await rm(directory, { recursive: true, force: true });
    throw error;
  }
}

async function stopCluster({ server, directory, killAtExit }: Cluster): Promise<void> {
  process.off("exit", killAtExit);
  await server.stop();
  await rm(directory, { recursive: true, force: true });
}
