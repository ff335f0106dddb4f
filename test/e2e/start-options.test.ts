/** The all-in-one server with TLS, and on addresses other than 127.0.0.1. */
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { networkInterfaces } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { afterEach, describe, expect, it } from "vitest";
import { makeTestCertificate } from "../support/test-certificate.js";
import {
  makeDataDir,
  removeDataDir,
  startTurnwire,
  type TurnwireProcess,
} from "../support/turnwire-process.js";

/** Loopback addresses beside 127.0.0.1; a container may have no IPv6. */
const LOOPBACKS = [
  "127.0.0.2",
  ...(networkInterfaces()["lo"]?.some(({ address }) => address === "::1") ? ["::1"] : []),
];

describe("all-in-one", () => {
  const dataDirs: string[] = [];
  const servers: TurnwireProcess[] = [];
  afterEach(async () => {
    await Promise.all(servers.splice(0).map((server) => server.stop()));
    for (const dataDir of dataDirs.splice(0)) removeDataDir(dataDir);
  });

  async function start(env: Record<string, string>, dataDir = newDataDir()): Promise<TurnwireProcess> {
    const server = await startTurnwire({ dataDir, env });
    servers.push(server);
    return server;
  }

  function newDataDir(): string {
    const dataDir = makeDataDir();
    dataDirs.push(dataDir);
    return dataDir;
  }

  async function ask(url: string, ...options: string[]): Promise<Record<string, unknown>> {
    const method = `${url}/turnwire.chat.v1.ChatService/SendMessageAndWait`;
    const type = "content-type: application/json";
    const args = ["-sS", ...options, "-H", type, "-d", '{"text":"hello"}', method];
    return JSON.parse((await promisify(execFile)("curl", args)).stdout) as Record<string, unknown>;
  }

  it.each(LOOPBACKS)("answers on %s, and its services find each other there", async (host) => {
    const server = await start({ TURNWIRE_HOST: host });
    const address = host.includes(":") ? `[${host}]` : host;
    const url = `http://${address}:${String(server.facts["httpPort"])}`;
    expect(await ask(url)).toMatchObject({ status: "TURN_STATUS_ENDED" });
  });

  it.each(["--http1.1", "--http2"])("speaks TLS to its clients over %s", async (version) => {
    const dataDir = newDataDir();
    const { cert, key } = makeTestCertificate();
    const files = { cert: path.join(dataDir, "cert.pem"), key: path.join(dataDir, "key.pem") };
    await writeFile(files.cert, cert);
    await writeFile(files.key, key);
    const server = await start({ TURNWIRE_TLS_CERT: files.cert, TURNWIRE_TLS_KEY: files.key }, dataDir);
    const url = server.httpUrl.replace("http:", "https:");
    const reply = await ask(url, version, "--cacert", files.cert);
    expect(reply).toMatchObject({ status: "TURN_STATUS_ENDED" });
  });
});
