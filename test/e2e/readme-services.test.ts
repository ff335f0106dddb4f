/** README.md: the ways to start it, as a person does: from a fresh copy, with a real provider, as three services, with tokens. */
import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { freePorts } from "../support/free-ports.js";
import {
  readmeExample,
  runExample,
  serveCommand,
  withPorts,
  type StartedService,
} from "../support/readme.js";
import { plainAnswer } from "../support/e2e-fixture.js";
import { startScriptedUpstream } from "../support/scripted-upstream.js";
import { makeDataDir, removeDataDir } from "../support/turnwire-process.js";

const root = path.resolve(import.meta.dirname, "../..");

describe("README.md: services", () => {
  const cleanUps: (() => Promise<void> | void)[] = [];
  afterEach(async () => {
    for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
  });

  function dataDir(): string {
    const folder = makeDataDir();
    cleanUps.push(() => removeDataDir(folder));
    return folder;
  }

  async function serve(line: string, env: Record<string, string>, cwd?: string): Promise<StartedService> {
    const service = await serveCommand(line, { NATS_URL: "none", ...env }, cwd);
    cleanUps.push(() => service.stop());
    return service;
  }

  /** A directory of its own and free ports for whatever serves clients. */
  function chatEnv(): Record<string, string> {
    return { TURNWIRE_HTTP_PORT: "0", TURNWIRE_GRPC_PORT: "0", TURNWIRE_DATA_DIR: dataDir() };
  }

  async function ask(service: StartedService): Promise<string> {
    const reply = await runExample("ask", { ports: portsOf(service) });
    return (JSON.parse(reply) as { text: string }).text;
  }

  it("starts from a fresh copy with its two commands, without install scripts too, and again after kill -9", async () => {
    const [install, start] = readmeExample("start").code.trim().split(" && ");
    expect([install, start]).toEqual(["npm ci", "npm start"]);
    const copy = copyRepository();
    cleanUps.push(() => rmSync(copy, { recursive: true, force: true }));
    // Scripts off is the harder case: everything that they do has to work without them.
    execFileSync("npm", ["ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund"], {
      cwd: copy,
      stdio: ["ignore", "ignore", "pipe"],
      timeout: 240_000,
    });
    const env = chatEnv();
    const first = await serve(start!, env, copy);
    expect(await ask(first)).toContain("demo");
    await first.kill9();
    const second = await serve(start!, env, copy);
    expect(await ask(second)).toContain("demo");
  }, 300_000);

  it("asks a server of OpenAI's dialect that only its address is known of", async () => {
    const upstream = await startScriptedUpstream();
    cleanUps.push(() => upstream.close());
    upstream.replyWith(() => plainAnswer("Forty-two."));
    const line = withPorts(readmeExample("real-model").code, { 11434: new URL(upstream.url).port });
    expect(line).toContain(upstream.url);
    const service = await serve(line, chatEnv());
    expect(await ask(service)).toBe("Forty-two.");
    expect(upstream.requests[0]!.json!.messages!.at(-1)).toMatchObject({ role: "user", content: "hello" });
  }, 90_000);

  it("runs as three services", async () => {
    const [llmPort, toolPort] = (await freePorts(2)) as [number, number];
    const code = withPorts(readmeExample("services").code, { 9091: llmPort, 9092: toolPort });
    const [llm, tool, chat] = code.trim().split("\n");
    await Promise.all([
      serve(llm!, { TURNWIRE_LLM_PORT: String(llmPort) }),
      serve(tool!, { TURNWIRE_TOOL_PORT: String(toolPort) }),
    ]);
    const service = await serve(chat!, chatEnv());
    expect(await ask(service)).toContain("The tool `clock` answered");
  }, 90_000);

  it("demands a token once there are tokens, and keeps users apart", async () => {
    const service = await serve(readmeExample("tokens").code, chatEnv());
    const ports = portsOf(service);
    const reply = JSON.parse(await runExample("with-token", { ports })) as Record<string, string>;
    expect(reply["text"]).toContain("demo");
    const call = (token: string, method: string, body: object): string =>
      spawnSync(
        "curl",
        [
          ...["-s", "-H", `authorization: Bearer ${token}`, "-H", "content-type: application/json"],
          ...[
            "-d",
            JSON.stringify(body),
            `http://127.0.0.1:${ports[8080]}/turnwire.chat.v1.ChatService/${method}`,
          ],
        ],
        { encoding: "utf8" },
      ).stdout;
    const { sessionId, turnId } = reply;
    expect(call("ann-secret", "GetSession", { sessionId })).toContain(`"sessionId":"${sessionId}"`);
    expect(call("nobody", "GetSession", { sessionId })).toContain('"code":"unauthenticated"');
    const foreign = call("bob-secret", "GetTurn", { turnId });
    expect(foreign).toContain('"code":"not_found"');
    expect(call("bob-secret", "GetTurn", { turnId: "nothing" })).toBe(foreign.replaceAll(turnId!, "nothing"));
  }, 90_000);
});

function portsOf(service: StartedService): { 8080: number; 9090: number } {
  return { 8080: Number(service.facts["httpPort"]), 9090: Number(service.facts["grpcPort"]) };
}

/** The files of this repository as they are now, without what was installed or built. */
function copyRepository(): string {
  const target = mkdtempSync(path.join(os.tmpdir(), "turnwire-fresh-"));
  const list = execFileSync("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], {
    cwd: root,
    encoding: "utf8",
  });
  for (const file of list.split("\0").filter((name) => name !== "" && existsSync(path.join(root, name)))) {
    mkdirSync(path.dirname(path.join(target, file)), { recursive: true });
    cpSync(path.join(root, file), path.join(target, file));
  }
  return target;
}
