/**
 * Real nats-servers for tests: the oldest the log supports and the newest to be had. Without any, the suites that need one
 * are skipped with a loud word - in CI that is a failure.
 */
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { describe, test } from "vitest";
import { getNatsServers } from "../../scripts/get-nats-server.mjs";
import {
  cachedNatsServers,
  findNatsServer,
  startNatsServer,
  type NatsServerBinary,
  type RunningNatsServer,
} from "../../src/main/embedded/nats-server.js";
import { silentLogger } from "../../src/lib/log.js";

const HELP =
  "get one with: node scripts/get-nats-server.mjs (or set NATS_SERVER, or put nats-server on PATH)";

/** The servers to test with, oldest first; fetches what the cache lacks. */
export function natsServers(): NatsServerBinary[] {
  if (process.env["NATS_SERVER"]) return [findNatsServer()!];
  for (const failure of getNatsServers("all", console.error)) console.error(failure);
  const cached = cachedNatsServers();
  if (cached.length > 0) return cached.length > 2 ? [cached[0]!, cached.at(-1)!] : cached;
  const onPath = findNatsServer();
  return onPath ? [onPath] : [];
}

/** Runs `suite` once per server version. */
export function describeWithNats(name: string, suite: (binary: NatsServerBinary) => void): void {
  const servers = natsServers();
  for (const binary of servers) describe(`${name} on nats-server ${binary.version}`, () => suite(binary));
  if (servers.length > 0) return;
  console.error(`SKIPPED: ${name} needs a nats-server; ${HELP}`);
  if (process.env["CI"]) {
    test(`${name} has a nats-server`, () => {
      throw new Error(`no nats-server; ${HELP}`);
    });
  } else {
    describe.skip(`${name} (no nats-server; ${HELP})`, () => test("needs a nats-server", () => undefined));
  }
}

/** A server of its own in a folder of its own. */
export interface TestNats {
  readonly server: RunningNatsServer;
  /** Stops the server and removes its folder. */
  end(): Promise<void>;
}

export async function startTestNats(
  binary: NatsServerBinary,
  options: { readonly syncAlways?: boolean; readonly monitorPort?: number } = {},
): Promise<TestNats> {
  const dataDir = fs.mkdtempSync(path.join(os.tmpdir(), "turnwire-nats-"));
  const server = await startNatsServer({
    binary,
    dataDir,
    logger: silentLogger,
    syncAlways: false,
    ...options,
  });
  const end = async (): Promise<void> => {
    await server.stop();
    fs.rmSync(dataDir, { recursive: true, force: true });
  };
  return { server, end };
}
