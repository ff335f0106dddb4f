/**
 * Pipes in other languages, as the examples have them: started as a person starts them, behind a real llm peer. Without
 * Python or Go theirs are skipped with a loud word; with them, in CI, that is a failure.
 */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { create } from "@bufbuild/protobuf";
import { afterEach, describe, expect, it } from "vitest";
import { canMake, getTool } from "../../scripts/get-tools.mjs";
import { ListModelsRequestSchema } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { foldDeltas } from "../support/completion-result.js";
import {
  collectDeltas,
  completionRequest,
  llmConfig,
  startLlmPeer,
  type LlmPeer,
} from "../support/llm-peer.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const TOKEN = "pipe-token-0123456789";
const START_MS = 120_000;

interface Pipe {
  readonly port: number;
  /** Resolves when it prints this. */
  printed(text: string): Promise<void>;
}

const children: ChildProcess[] = [];
const peers: LlmPeer[] = [];
afterEach(async () => {
  for (const peer of peers.splice(0)) await peer.close();
  for (const child of children.splice(0)) {
    if (child.exitCode !== null) continue;
    const gone = once(child, "exit");
    child.kill("SIGKILL");
    await gone;
  }
});

/** Starts a pipe that prints its port. */
async function startPipe(command: string, args: readonly string[]): Promise<Pipe> {
  const env = { ...process.env, PIPE_TOKEN: TOKEN, PYTHONUNBUFFERED: "1" };
  const child = spawn(command, args, { cwd: root, env, stdio: ["ignore", "pipe", "inherit"] });
  children.push(child);
  const lines: string[] = [];
  const waiters = new Set<() => void>();
  createInterface({ input: child.stdout! }).on("line", (line) => {
    lines.push(line);
    for (const wake of waiters) wake();
  });
  child.once("exit", () => waiters.forEach((wake) => wake()));
  const find = async (pattern: RegExp): Promise<string> => {
    for (;;) {
      const found = lines.map((line) => pattern.exec(line)?.[0]).find((match) => match !== undefined);
      if (found !== undefined) return found;
      if (child.exitCode !== null) throw new Error(`the pipe ended: ${lines.join("\n")}`);
      await new Promise<void>((resolve) => waiters.add(resolve));
    }
  };
  const port = Number((await find(/pipe on port \d+/)).split(" ").at(-1));
  return { port, printed: async (text) => void (await find(new RegExp(text))) };
}

async function startPeer(port: number): Promise<LlmPeer> {
  const yaml = `
providers: [{ name: own, api: pipe, address: "127.0.0.1:${port}", apiKeyEnv: TOKEN, prefix: "mine." }]
limits: { llm: { maxRetries: 0, connectTimeoutMs: 2000 } }`;
  const peer = await startLlmPeer(llmConfig(yaml, { TOKEN }));
  peers.push(peer);
  return peer;
}

function ask(model: string, text: string) {
  const request = completionRequest(model);
  request.input!.messages[0]!.parts[0]!.part = { case: "text", value: text };
  return request;
}

/** What a pipe must do, whatever it is written in. */
async function checkPipe(
  pipe: Pipe,
  models: readonly string[],
  question: string,
  answer: string,
): Promise<void> {
  const peer = await startPeer(pipe.port);
  const signal = new AbortController().signal;
  const listed = await peer.client.unary("listModels", create(ListModelsRequestSchema), { signal });
  expect(listed.models.map(({ modelId }) => modelId)).toEqual([...models, "demo"]);
  const result = foldDeltas(await collectDeltas(peer, ask(models[0]!, question)));
  expect(result).toMatchObject({ text: answer, finish: "stop", usage: { input: 2, output: 2 } });
  const missing = foldDeltas(await collectDeltas(peer, ask("mine.nobody", question)).catch(() => []));
  expect(missing.text).toBe("");

  const leaving = new AbortController();
  const call = collectDeltas(peer, ask(models[0]!, "wait for me"), leaving.signal);
  const quick = collectDeltas(peer, ask(models[0]!, question)); // others are served meanwhile
  expect(foldDeltas(await quick).text).toBe(answer);
  leaving.abort(new Error("gone"));
  await expect(call).rejects.toThrow("gone");
  await pipe.printed("cancelled");
}

/** `it` for an example that needs tools. */
function itWith(
  tools: readonly Parameters<typeof getTool>[0][],
  name: string,
  run: () => Promise<void>,
): void {
  const missing = tools
    .map((tool) => getTool(tool, console.error).missing)
    .find((text) => text !== undefined);
  if (missing === undefined) it(name, run, START_MS);
  else if (process.env["CI"] && tools.every(canMake))
    it(name, () => {
      throw new Error(missing);
    });
  else {
    console.error(`SKIPPED: ${name}: ${missing}; it needs Go, or Python, and their package registries`);
    it.skip(`${name} (${missing})`, run);
  }
}

describe("pipes", () => {
  itWith(
    ["python"],
    "a pipe in Python lists its models, streams, checks its token and hears of a cancel",
    async () => {
      const pipe = await startPipe("sh", ["examples/pipe-python/run.sh", "127.0.0.1:0"]);
      await checkPipe(pipe, ["mine.shout", "mine.whisper"], "hello Pipe", "HELLO PIPE ");
    },
  );

  itWith(["protoc-gen-go", "protoc-gen-go-grpc"], "a pipe in Go does the same", async () => {
    await promisify(execFile)("sh", ["examples/pipe-go/build.sh"], { cwd: root, timeout: START_MS });
    const pipe = await startPipe(path.join(root, "examples/pipe-go/pipe"), ["127.0.0.1:0"]);
    await checkPipe(pipe, ["mine.reverse"], "hello Pipe", "olleh epiP ");
  });

  itWith(["python"], "without its token a pipe refuses, and that is a typed end", async () => {
    const pipe = await startPipe("sh", ["examples/pipe-python/run.sh", "127.0.0.1:0"]);
    const yaml = `providers: [{ name: own, api: pipe, address: "127.0.0.1:${pipe.port}", models: [own/shout] }]`;
    const peer = await startLlmPeer(llmConfig(yaml));
    peers.push(peer);
    expect(foldDeltas(await collectDeltas(peer, ask("own/shout", "hi"))).error).toMatchObject({
      code: "UPSTREAM_AUTH",
    });
  });
});
