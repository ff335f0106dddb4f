/** The command line as people and scripts run it: a process, against a server that follows a script. */
import { fromJson, type JsonValue } from "@bufbuild/protobuf";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { ErrorCode, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { PacketSchema, type Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { buildCli, CliProcess, type BuiltCli, type CliResult } from "../support/cli-process.js";
import { sampleTurn } from "../support/sample-turn.js";
import {
  cutAfter,
  endAfter,
  fail,
  ScriptedChatServer,
  ScriptedTurn,
  sessionBusy,
  statusError,
  type ScriptedChatServerOptions,
} from "../support/scripted-chat-server.js";

const ANSWER = "The time in Berlin is 12:30 and all is well. ";

let cli: BuiltCli;
beforeAll(async () => {
  cli = await buildCli();
});
afterAll(() => cli.remove());

const servers: ScriptedChatServer[] = [];
const processes: CliProcess[] = [];
afterEach(async () => {
  for (const process of processes) process.kill("SIGKILL");
  await Promise.all(processes.splice(0).map((process) => process.ended));
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

async function serve(
  packets: Packet[] = sampleTurn(),
  head?: number,
  options: ScriptedChatServerOptions = {},
) {
  const server = await ScriptedChatServer.start({ http: "2", ...options });
  servers.push(server);
  const turn = new ScriptedTurn("turn-1", packets, head);
  server.nextTurn = turn;
  server.turns.set(turn.turnId, turn);
  return { server, turn };
}

function start(
  server: { readonly url: string },
  args: readonly string[],
  env: Record<string, string> = {},
): CliProcess {
  const process = new CliProcess(cli, args, { TURNWIRE_URL: server.url, ...env });
  processes.push(process);
  return process;
}

function run(server: { readonly url: string }, args: readonly string[], input = ""): Promise<CliResult> {
  const process = start(server, args);
  process.endInput(input);
  return process.ended;
}

const jsonLines = (text: string): JsonValue[] =>
  text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as JsonValue);

describe("turnwire chat", () => {
  it("prints the answer alone on standard output, what the tools do on standard error", async () => {
    const { server } = await serve();
    const { code, stdout, stderr } = await run(server, [
      "chat",
      "what time is it?",
      "--session",
      "session-1",
      "--model",
      "demo",
    ]);
    expect(stdout).toBe(`${ANSWER}\n`);
    expect(stderr).toBe('[clock {"zone":"Europe/Berlin"} ok, 30 ms]\n');
    expect(code).toBe(0);
    expect(server.calls[0]!.send).toMatchObject({
      text: "what time is it?",
      sessionId: "session-1",
      models: [{ modelId: "demo" }],
    });
    expect(server.calls[0]!.httpVersion).toBe("2.0");
  });

  it("falls back to HTTP/1.1 where the server speaks nothing newer", async () => {
    const { server } = await serve(sampleTurn(), undefined, { http: "1.1" });
    expect(await run(server, ["chat", "hello"])).toMatchObject({ code: 0, stdout: `${ANSWER}\n` });
    expect(server.calls[0]!.httpVersion).toBe("1.1");
  });

  it("reads the message from a pipe, whole", async () => {
    const { server } = await serve();
    expect((await run(server, ["chat"], "first line\nsecond line\n")).code).toBe(0);
    expect(server.calls[0]!.send?.text).toBe("first line\nsecond line\n");
  });

  it("refuses to send nothing", async () => {
    const { server } = await serve();
    expect(await run(server, ["chat"], " \n")).toMatchObject({ code: 2, stdout: "" });
    expect(server.calls).toHaveLength(0);
  });

  it("--json prints every packet as proto3 JSON, one in a line", async () => {
    const { server, turn } = await serve();
    const { code, stdout } = await run(server, ["chat", "hello", "--json"]);
    expect(jsonLines(stdout).map((line) => fromJson(PacketSchema, line))).toEqual(turn.packets);
    expect(code).toBe(0);
  });

  it("goes on over lost connections, says so, and prints no word twice", async () => {
    const { server } = await serve();
    server.script.push(endAfter(19), cutAfter(2, "socket"), cutAfter(2, "stream"));
    const { code, stdout, stderr } = await run(server, ["chat", "hello"]);
    expect(stdout).toBe(`${ANSWER}\n`);
    expect(stderr).toContain("connection lost (the stream ended without a terminal packet): trying again");
    expect(stderr).toContain("connected again");
    expect(code).toBe(0);
  });

  it("Ctrl-C stops the turn and keeps what was said", async () => {
    const { server } = await serve(sampleTurn(), 18);
    const process = start(server, ["chat", "hello"]);
    await process.shows("stdout", "The time ");
    process.kill("SIGINT");
    const { code, stdout, stderr } = await process.ended;
    expect(server.stops.map(({ target }) => target)).toEqual([{ case: "turnId", value: "turn-1" }]);
    expect(stdout).toBe("The time \n");
    expect(stderr).toContain("the turn was stopped (user cancelled)");
    expect(code).toBe(130);
  });

  it("a second Ctrl-C leaves the turn running and says how to come back", async () => {
    const { server } = await serve(sampleTurn(), 18);
    server.honourStops = false;
    const process = start(server, ["chat", "hello"]);
    await process.shows("stdout", "The time ");
    process.kill("SIGINT");
    await process.shows("stderr", "stopping (Ctrl-C again leaves the turn running)");
    process.kill("SIGINT");
    const { code, stderr } = await process.ended;
    expect(stderr).toContain("the turn goes on: turnwire tail turn-1 --after 18");
    expect(code).toBe(130);
  });

  it("SIGTERM ends it at once, without a stop", async () => {
    const { server } = await serve(sampleTurn(), 18);
    const process = start(server, ["chat", "hello"]);
    await process.shows("stdout", "The time ");
    process.kill("SIGTERM");
    expect((await process.ended).code).toBe(143);
    expect(server.stops).toEqual([]);
  });

  it("a turn that ends in an error is exit code 1, with the reason", async () => {
    const { server } = await serve(sampleTurn({ outcome: TurnOutcome.ERROR }));
    const { code, stdout, stderr } = await run(server, ["chat", "hello"]);
    expect(stdout).toBe(`${ANSWER}\n`);
    expect(stderr).toContain("the turn ended in an error: the model is away");
    expect(code).toBe(1);
  });

  it("a turn that somebody else stopped is exit code 1", async () => {
    const { server, turn } = await serve(sampleTurn(), 18);
    const process = start(server, ["chat", "hello"]);
    await process.shows("stdout", "The time ");
    turn.stop();
    expect((await process.ended).code).toBe(1);
  });

  it("keeps a conversation: later messages name the session that the first one made", async () => {
    const { server } = await serve();
    const process = start(server, ["chat", "--interactive"]);
    process.write("first\n");
    await process.shows("stdout", "well. ");
    server.nextTurn = new ScriptedTurn("turn-2", sampleTurn({ turnId: "turn-2" }));
    process.write("second\n\n/exit\n");
    const { code, stdout, stderr } = await process.ended;
    expect(server.calls.map(({ send }) => [send?.text, send?.sessionId])).toEqual([
      ["first", ""],
      ["second", "session-1"],
    ]);
    expect(stdout).toBe(`${ANSWER}\n${ANSWER}\n`);
    expect(stderr).toContain("turnwire chat --session session-1");
    expect(code).toBe(0);
  });

  it("suggests names for a model that does not exist", async () => {
    const { server } = await serve();
    server.models = [{ modelId: "gpt-4.1-mini" }, { modelId: "demo" }, { modelId: "llama-3" }];
    const { code, stderr } = await run(server, ["chat", "hello", "--model", "dmeo"]);
    expect(stderr).toBe("turnwire: no such model: dmeo; did you mean demo? (`turnwire models` lists them)\n");
    expect(code).toBe(3);
  });

  it("a busy session names the turn that runs", async () => {
    const { server } = await serve();
    server.script.push(fail(sessionBusy("turn-0")));
    const { code, stderr } = await run(server, ["chat", "hello"]);
    expect(stderr).toContain("`turnwire tail turn-0`");
    expect(code).toBe(6);
  });

  it("takes control characters out of what a terminal shows, and leaves a pipe's bytes alone", async () => {
    const evil = "a\u001b]0;title\u0007b";
    const { server } = await serve(sampleTurn({ answer: [evil] }));
    expect((await run(server, ["chat", "hello"])).stdout).toBe(`${evil}\n`);
  });
});

describe("turnwire tail and replay", () => {
  it("tail prints the packets and follows the turn to its end", async () => {
    const { server, turn } = await serve(sampleTurn(), 12);
    const process = start(server, ["tail", "turn-1", "--json"]);
    await process.shows("stdout", '"seq":12');
    turn.release();
    const { code, stdout } = await process.ended;
    expect(jsonLines(stdout).map((line) => fromJson(PacketSchema, line))).toEqual(turn.packets);
    expect(code).toBe(0);
  });

  it("--from names the first packet, --after the last one that is known", async () => {
    const { server } = await serve();
    const from = await run(server, ["tail", "turn-1", "--from", "28"]);
    const after = await run(server, ["tail", "turn-1", "--after", "27"]);
    expect(from.stdout.split("\n").map((line) => line.trim().split(/\s+/)[0])).toEqual([
      "28",
      "29",
      "30",
      "",
    ]);
    expect(after).toEqual(from);
    expect((await run(server, ["tail", "turn-1", "--from", "28", "--after", "3"])).code).toBe(2);
  });

  it("shows seq, time, place, kind and content to people", async () => {
    const { server } = await serve();
    const { stdout } = await run(server, ["replay", "turn-1", "--from", "17", "--to", "17"]);
    expect(stdout).toBe('   17     +170ms  0.2.0    agentResponseDelta  {"content":"The "}\n');
  });

  it("replay prints what is there and ends, also when the turn runs", async () => {
    const { server, turn } = await serve(sampleTurn(), 12);
    const { code, stdout } = await run(server, ["replay", "turn-1", "--from", "3", "--json"]);
    expect(jsonLines(stdout).map((line) => fromJson(PacketSchema, line))).toEqual(turn.packets.slice(2, 12));
    expect(code).toBe(0);
    const part = await run(server, ["replay", "turn-1", "--from", "3", "--to", "5", "--json"]);
    expect(jsonLines(part.stdout)).toHaveLength(3);
  });

  it("the end of an ended turn is nothing more to print, and exit code 0", async () => {
    const { server } = await serve();
    expect(await run(server, ["tail", "turn-1", "--after", "30"])).toMatchObject({ code: 0, stdout: "" });
  });

  it("a cursor beyond the head is refused with the head", async () => {
    const { server } = await serve();
    const { code, stderr } = await run(server, ["tail", "turn-1", "--after", "99"]);
    expect(stderr).toContain("(the head is 30)");
    expect(code).toBe(6);
  });

  it("Ctrl-C leaves a tail without stopping the turn", async () => {
    const { server } = await serve(sampleTurn(), 12);
    const process = start(server, ["tail", "turn-1"]);
    await process.shows("stdout", "cycleEnd");
    process.kill("SIGINT");
    expect((await process.ended).code).toBe(130);
    expect(server.stops).toEqual([]);
  });

  it("an unknown turn is exit code 3", async () => {
    const { server } = await serve();
    expect(await run(server, ["tail", "turn-9"])).toMatchObject({
      code: 3,
      stderr: "turnwire: no such turn\n",
    });
  });

  it("a reader that closes its end is no fault", async () => {
    const { server } = await serve(
      sampleTurn({ answer: Array.from({ length: 3_000 }, () => "x".repeat(1_000)) }),
    );
    const process = start(server, ["tail", "turn-1"]);
    await process.shows("stdout", "turnStarted");
    process.closeOutput();
    expect(await process.ended).toMatchObject({ code: 0, stderr: "" });
  });
});

describe("turnwire lists and stop", () => {
  it("lists sessions, models and tools as tables and as JSON", async () => {
    const { server } = await serve();
    server.sessions = [
      {
        sessionId: "s-1",
        title: "Clocks",
        updateTime: { seconds: 1_764_500_000n },
        activeTurns: [{ turnId: "turn-1" }],
      },
      { sessionId: "s-22" },
    ];
    server.models = [
      { modelId: "demo", displayName: "Demo", isDefault: true, tools: true, demo: true },
      { modelId: "other" },
      {
        ...{ modelId: "wise", contextTokens: 200_000, modalities: ["image"], reasoning: true },
        ...{ aliases: ["acme/wise", "sage"], access: { restricted: true, groups: ["staff"] } },
        price: { currency: "EUR", inputMicrosPerMtok: "150000", outputMicrosPerMtok: "2500000" },
      },
    ];
    server.tools = [{ toolId: "clock", name: "clock", description: "Tells\nthe time" }];
    expect((await run(server, ["sessions"])).stdout).toBe(
      "s-1   2025-11-30 10:53  running  Clocks\ns-22                             (no title)\n",
    );
    expect((await run(server, ["models"])).stdout).toBe(
      "*  demo   Demo  tools, demo\n   other\n" +
        "   wise         200000 tokens, image, reasoning, 0.15 in, 2.5 out EUR per million tokens, restricted, also sage\n",
    );
    expect((await run(server, ["tools"])).stdout).toBe("clock  Tells the time\n");
    expect(jsonLines((await run(server, ["models", "--json"])).stdout)).toMatchObject([
      { modelId: "demo" },
      { modelId: "other" },
      { modelId: "wise", price: { currency: "EUR" } },
    ]);
    expect(
      jsonLines((await run(server, ["--json", "sessions", "list", "--limit", "1"])).stdout),
    ).toMatchObject([{ sessionId: "s-1" }]);
  });

  it("shows and deletes a session; one that is not there is exit code 3", async () => {
    const { server } = await serve();
    server.sessions = [{ sessionId: "s-1", title: "Clocks" }];
    expect(await run(server, ["sessions", "show", "s-1"])).toMatchObject({
      code: 0,
      stdout: "s-1  Clocks\n",
    });
    expect(await run(server, ["sessions", "delete", "s-1"])).toMatchObject({
      code: 0,
      stdout: "deleted s-1\n",
    });
    expect(await run(server, ["sessions", "show", "s-1"])).toMatchObject({
      code: 3,
      stderr: "turnwire: no such session\n",
    });
  });

  it("stops by turn, session or request, and exactly one of them", async () => {
    const { server } = await serve(sampleTurn(), 18);
    expect(await run(server, ["stop", "turn-1"])).toMatchObject({
      code: 0,
      stdout: "turn turn-1: no content after seq 18 (ended)\n",
    });
    await run(server, ["stop", "--session", "s-1"]);
    await run(server, ["stop", "--request", "r-1", "--lane", "1"]);
    expect(server.stops.map(({ target }) => target.case)).toEqual(["turnId", "sessionId", "requestId"]);
    expect(server.stops[2]!.modelIndex).toBe(1);
    expect((await run(server, ["stop"])).code).toBe(2);
    expect((await run(server, ["stop", "turn-1", "--session", "s-1"])).code).toBe(2);
    expect((await run(server, ["stop", "turn-9"])).code).toBe(3);
  });
});

describe("turnwire helps", () => {
  it("when no server runs: says how to start one", async () => {
    const { server } = await serve();
    await server.close();
    const { code, stdout, stderr } = await run(server, ["chat", "hello"]);
    expect(stderr).toBe(
      `turnwire: cannot reach Turnwire at ${server.url}: connect ECONNREFUSED ${server.url.slice(7)}\n` +
        "Start the server with `npm start` in its folder, or name another with --url or TURNWIRE_URL.\n",
    );
    expect([code, stdout]).toEqual([4, ""]);
    expect((await run(server, ["models"])).code).toBe(4);
  });

  it("when what answers is something else", async () => {
    const other = createServer((_request, response) => response.writeHead(404).end("nothing here"));
    await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${(other.address() as AddressInfo).port}`;
    const { code, stderr } = await run({ url }, ["models"]);
    other.closeAllConnections();
    other.close();
    expect(stderr).toContain("is not a Turnwire server");
    expect(code).toBe(4);
  });

  it("when the token is missing or wrong; sends the right one, and never shows it", async () => {
    const { server } = await serve(sampleTurn(), undefined, { token: "s3cret" });
    const refused = await run(server, ["chat", "hello", "--token", "wr0ng"]);
    expect(refused).toMatchObject({ code: 5, stdout: "" });
    expect(refused.stderr).toContain("--token or TURNWIRE_TOKEN");
    expect(refused.stderr).not.toContain("wr0ng");
    expect((await run(server, ["chat", "hello", "--token", "s3cret"])).code).toBe(0);
    const byEnvironment = start(server, ["models"], { TURNWIRE_TOKEN: "s3cret" });
    expect((await byEnvironment.ended).code).toBe(0);
  });

  it.each([
    [["frobnicate"]],
    [["tail"]],
    [["tail", "turn-1", "--from", "-3"]],
    [["tail", "turn-1", "--from", "99999999999"]],
    [["chat", "hello", "--url", "ftp://example"]],
    [["chat", "hello", "--colour"]],
  ])("with a command line that makes no sense: %j is exit code 2", async (args) => {
    const { server } = await serve();
    const { code, stdout, stderr } = await run(server, args);
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).not.toBe("");
    expect(server.calls).toHaveLength(0);
  });

  it("--help lists commands and exit codes; --version the version", async () => {
    const { server } = await serve();
    const help = await run(server, ["--help"]);
    expect(help.code).toBe(0);
    for (const name of [
      "chat",
      "tail",
      "replay",
      "sessions",
      "documents",
      "models",
      "tools",
      "stop",
      "Exit codes",
    ]) {
      expect(help.stdout).toContain(name);
    }
    expect(await run(server, ["--version"])).toMatchObject({ code: 0, stdout: "0.1.0\n" });
  });

  it("when the server has a fault of its own: exit code 70", async () => {
    const { server } = await serve();
    server.script.push(fail(statusError(ErrorCode.INTERNAL)));
    expect(await run(server, ["chat", "hello"])).toMatchObject({ code: 70 });
  });
});
