/** README.md: every example with curl, the command line and TypeScript, run against the real server; and its lists. */
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { fromJsonString } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ChatService } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { PacketSchema, type Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { createChatService } from "../../src/chat/service.js";
import type { ActiveTurns } from "../../src/chat/active-turns.js";
import type { ChatDeps } from "../../src/chat/ports.js";
import { chatClient, expectGrammar } from "../support/e2e-fixture.js";
import { readmeExample, readmeExamples, runExample, type RunOptions } from "../support/readme.js";
import {
  makeDataDir,
  removeDataDir,
  startTurnwire,
  type TurnwireProcess,
} from "../support/turnwire-process.js";

const root = path.resolve(import.meta.dirname, "../..");
const page = readFileSync(path.join(root, "README.md"), "utf8");

/** Where each example is run. A new one has to be put here, with a test that checks what it does. */
const CHECKED = {
  "readme.test.ts": [
    "ask",
    "terminal",
    "documents",
    "resume",
    "stop",
    "examples/typescript/resume.ts",
    "typescript",
  ],
  "readme-tools.test.ts": ["grpcurl", "python", "ghz"],
  "readme-services.test.ts": ["start", "real-model", "services", "tokens", "with-token"],
};

describe("README.md", () => {
  const dataDir = makeDataDir();
  let server: TurnwireProcess;
  let options: RunOptions;

  beforeAll(async () => {
    const config = path.join(dataDir, "models.yaml");
    await writeFile(config, "providers:\n  - { name: demo, api: demo, deltaDelayMs: 8 }\n");
    server = await startTurnwire({ dataDir, env: { TURNWIRE_CONFIG: config } });
    options = {
      ports: { 8080: Number(server.facts["httpPort"]), 9090: Number(server.facts["grpcPort"]) },
      env: { TURNWIRE_URL: server.httpUrl },
    };
  });
  afterAll(async () => {
    await server?.stop();
    removeDataDir(dataDir);
  });

  it("has a test for each of its examples", () => {
    const code = readmeExamples().filter(({ language }) => language !== "text");
    expect(code.map(({ name }) => name).sort()).toEqual(Object.values(CHECKED).flat().sort());
    for (const [file, names] of Object.entries(CHECKED)) {
      const text = readFileSync(path.join(import.meta.dirname, file), "utf8");
      for (const name of names)
        expect(text, `${file} runs ${name}`).toMatch(new RegExp(`Example\\("${name}"|= "${name}"`));
    }
  });

  it("asks with curl and gets the answer", async () => {
    const reply = JSON.parse(await runExample("ask", options)) as Record<string, unknown>;
    expect(reply).toMatchObject({ status: "TURN_STATUS_ENDED" });
    expect(reply["text"]).toMatch(/demo[^]*The tool `clock` answered/);
  });

  it("adds a document and cites it", async () => {
    const output = await runExample("documents", options);
    expect(output).toMatch(/ready, \d+ passages? {2}architecture\.md/);
    expect(output).toMatch(
      /This is what your documents say:[^]*checkpoint[^]*\[\[\d+\]\]\(\/#\/documents\/\S+\?at=\d+\)/,
    );
  });

  it("chats at a terminal", async () => {
    const output = await runExample("terminal", options);
    expect(output).toMatch(/The tool `clock` answered:\n\n> .* in Asia\/Tokyo \(UTC\+09:00\)/);
    expect(output).toMatch(/demo +Demo \(no language model\)/);
    expect(output).toMatch(/What time is it in Asia\/Tokyo\?/);
  });

  it("comes back with the last seq and misses nothing", async () => {
    const packets = jsonPackets(await runExample("resume", options));
    const count = packets.length / 2;
    const [seen, again] = [packets.slice(0, count), packets.slice(count)];
    expect(seen.map(({ seq }) => seq)).toEqual(again.map((_, index) => index + 1));
    expect(seen).toEqual(again);
    expect(count).toBeGreaterThan(40);
    expectGrammar(seen);
  });

  it("stops a turn by its request id", async () => {
    const output = await runExample("stop", options);
    const [started, stopped] = output
      .replace("}{", "}\n{")
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(stopped).toMatchObject({ turnId: started.receipt.turnId, status: "TURN_STATUS_RUNNING" });
    const packets: Packet[] = [];
    for await (const response of chatClient(server).resumeTurn({ turnId: stopped.turnId }))
      packets.push(...response.packets);
    expect(packets.at(-1)?.payload.case).toBe("overallStop");
    const late = packets.filter(({ seq }) => seq > stopped.stopSeq).map(({ payload }) => payload.case);
    expect(late.filter((name) => name?.endsWith("Delta"))).toEqual([]);
    expectGrammar(packets);
  });

  it("shows the TypeScript example as it is in its file, and it reads the whole answer", async () => {
    const file = "examples/typescript/resume.ts";
    expect(readmeExample(file).code).toBe(readFileSync(path.join(root, file), "utf8"));
    const output = await runExample("typescript", options);
    const [, before, cut, after, turnId, end] =
      /^([^]*)⟨gone after (\d+)⟩([^]*)\nturn (\S+) ended at (\d+)\n$/.exec(output) ?? [];
    expect(Number(cut)).toBeGreaterThanOrEqual(50);
    expect(Number(end)).toBeGreaterThan(Number(cut));
    const { state } = await chatClient(server).getTurn({ turnId });
    const answer = state!.lanes[0]!.blocks.map(({ block }) =>
      block.case === "answer" ? block.value.text : "",
    );
    expect(before! + after!).toBe(answer.join(""));
  });

  it("lists every RPC of ChatService that is not built", () => {
    // Only the table of functions is looked at; none is called.
    const built = createChatService({} as ChatDeps, {} as ActiveTurns).methods;
    const missing = ChatService.methods.filter(({ localName }) => !built.has(localName));
    const section = page.slice(page.indexOf("## Not built yet"), page.indexOf("## Further"));
    const named = ChatService.methods.filter(({ name }) => new RegExp(`\\b${name}\\b`).test(section));
    expect(named.map(({ name }) => name)).toEqual(missing.map(({ name }) => name));
  });

  it("lists every variable that the services read", () => {
    const sources = [
      "src/main/config.ts",
      "src/llm/load-config.ts",
      "src/llm/config-environment.ts",
      "src/main/embedded/nats-server.ts",
    ];
    const text = sources.map((file) => readFileSync(path.join(root, file), "utf8")).join("\n");
    const cli = readFileSync(path.join(root, "src/cli/program.ts"), "utf8");
    const read = new Set([
      ...[...text.matchAll(/(?:env, |env\[|keyName: |baseUrlName: )"([A-Z][A-Z_]+)"/g)].map(
        ([, name]) => name!,
      ),
      ...[...cli.matchAll(/\(or (TURNWIRE_[A-Z]+)\)/g)].map(([, name]) => name!),
    ]);
    read.delete("PATH");
    const table = page.slice(page.indexOf("## Configuration"), page.indexOf("## Not built yet"));
    const rows = table.split("\n").filter((line) => line.startsWith("| `"));
    const listed = rows.flatMap((row) =>
      [...row.split("|")[1]!.matchAll(/`([A-Z_]+)`/g)].map(([, name]) => name!),
    );
    expect(listed.sort()).toEqual([...read].sort());
  });
});

function jsonPackets(output: string): Packet[] {
  const lines = output.split("\n").filter((line) => line !== "");
  return lines.map((line) => fromJsonString(PacketSchema, line));
}
