/** What a person at a terminal sees: styles, lanes, the prompt, and what is kept from the terminal. */
import { PassThrough, Writable } from "node:stream";
import { create } from "@bufbuild/protobuf";
import { createConnectTransport } from "@connectrpc/connect-node";
import { afterEach, describe, expect, it } from "vitest";
import { AnswerKind } from "../../gen/turnwire/packet/v1/answer_pb.js";
import { TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { ResetReason, SectionStatus } from "../../gen/turnwire/packet/v1/control_pb.js";
import { PacketSchema, type Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { chat } from "../../src/cli/commands/chat.js";
import { Interrupts, type CliContext } from "../../src/cli/context.js";
import { similarNames } from "../../src/cli/similar.js";
import { Terminal } from "../../src/cli/terminal.js";
import { TurnPrinter } from "../../src/cli/turn-printer.js";
import { createTurnwireClient } from "../../src/client/index.js";
import { fold } from "../../src/turn/fold.js";
import { numberPackets, sampleTurn } from "../support/sample-turn.js";
import { ScriptedChatServer, ScriptedTurn } from "../support/scripted-chat-server.js";

class Screen extends Writable {
  readonly isTTY: boolean;
  readonly columns = 80;
  text = "";
  #waiters: { readonly text: string | RegExp; readonly resolve: () => void }[] = [];

  constructor(isTTY = true) {
    super();
    this.isTTY = isTTY;
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.text += chunk.toString();
    for (const waiter of this.#waiters) if (this.#has(waiter.text)) waiter.resolve();
    done();
  }

  #has(text: string | RegExp): boolean {
    return typeof text === "string" ? this.text.includes(text) : text.test(this.text);
  }

  shows(text: string | RegExp): Promise<void> {
    return this.#has(text)
      ? Promise.resolve()
      : new Promise((resolve) => this.#waiters.push({ text, resolve }));
  }
}

async function print(
  packets: readonly Packet[],
  screen = new Screen(),
  env: Record<string, string> = {},
): Promise<string> {
  const printer = new TurnPrinter(new Terminal(screen, screen, env));
  for (const packet of packets) await printer.packets([packet]);
  await printer.end();
  return screen.text;
}

const DIM = "\u001b[2m";
const PLAIN = "\u001b[22m";

const withoutStyles = (text: string): string =>
  text.replace(/\u001b\[\d+m/g, "").replace(/[^\n]*\r\u001b\[2K/g, "");

describe("turn on a terminal", () => {
  it("dims reasoning, shows a call while it runs and one line when it is over", async () => {
    const text = await print(sampleTurn());
    expect(text).toContain(`${DIM}They want ${PLAIN}${DIM}the time.${PLAIN}\n`);
    expect(text).toContain(`${DIM}clock {"zone":"Europe/Berlin"} ...${PLAIN}\r\u001b[2K`);
    expect(withoutStyles(text)).toBe(
      'They want the time.\n[clock {"zone":"Europe/Berlin"} ok, 30 ms]\n\nThe time in Berlin is 12:30 and all is well. \n',
    );
  });

  it("uses no styles and no passing lines with NO_COLOR", async () => {
    expect(await print(sampleTurn(), new Screen(), { NO_COLOR: "1" })).not.toMatch(/[\u001b\r]/);
  });

  it("keeps control characters of the model from the terminal, but not tabs and newlines", async () => {
    const text = await print(sampleTurn({ answer: ["a\u001b]0;owned\u0007", "\tb\r\n", "c\u009b31md"] }));
    expect(withoutStyles(text)).toContain("a]0;owned\tb\nc31md");
    expect(text).not.toContain("\u001b]");
  });

  it("says that an answer begins again, that one was replaced, and how a call failed", async () => {
    const at = { turnIndex: 0, modelIndex: 0 };
    const text = await print(
      numberPackets([
        [{ case: "agentResponseStart", value: {} }, at],
        [{ case: "agentResponseDelta", value: { content: "wrong" } }, at],
        [
          { case: "cycleReset", value: { cycle: 0, discardFromSeq: 1, reason: ResetReason.TAKEOVER } },
          { modelIndex: 0 },
        ],
        [{ case: "toolCallStart", value: { callId: "c", toolName: "open_url" } }, at],
        [{ case: "sectionEnd", value: { status: SectionStatus.TIMEOUT, message: "no answer" } }, at],
        [{ case: "agentResponseDelta", value: { content: "right" } }, at],
        [{ case: "agentResponseDone", value: { kind: AnswerKind.ANSWER } }, at],
        [{ case: "agentResponseReplaced", value: { content: "filtered" } }, at],
      ]),
      new Screen(),
      { NO_COLOR: "1" },
    );
    expect(text).toBe(
      "wrong\nthe answer begins again (takeover)\n[open_url timeout: no answer]\n\nright\nthe answer was replaced\n\nfiltered\n",
    );
  });

  it("shows lanes one after the other, whatever the order of their packets", async () => {
    const lane = (modelIndex: number) => ({ turnIndex: 0, modelIndex });
    const delta = (modelIndex: number, content: string) =>
      [{ case: "agentResponseDelta", value: { content } }, lane(modelIndex)] as const;
    const end = (modelIndex: number) =>
      [{ case: "laneEnd", value: { outcome: TurnOutcome.COMPLETED } }, lane(modelIndex)] as const;
    const lanes = [
      { modelIndex: 0, modelId: "one", displayName: "One" },
      { modelIndex: 1, modelId: "two" },
      { modelIndex: 2, modelId: "three" },
    ];
    const text = await print(
      numberPackets([
        [{ case: "turnStarted", value: { turnId: "t", lanes } }],
        delta(1, "b1 "),
        delta(0, "a1 "),
        delta(2, "c1 "),
        end(2),
        delta(1, "b2"),
        delta(0, "a2"),
        end(0),
        delta(1, " b3"),
        end(1),
      ]),
    );
    expect(withoutStyles(text)).toBe("-- One --\na1 a2\n-- two --\nb1 b2 b3\n-- three --\nc1 \n");
  });

  it("shows the state that takes the place of packets that are gone", async () => {
    const screen = new Screen();
    const printer = new TurnPrinter(new Terminal(screen, screen, { NO_COLOR: "1" }));
    const packets = sampleTurn();
    await printer.snapshot(fold(packets.slice(0, 20)));
    await printer.packets(packets.slice(20));
    await printer.end();
    expect(screen.text).toBe(
      'the turn so far:\nThey want the time.\n[clock {"zone":"Europe/Berlin"} ok, 30 ms]\n\n' +
        "The time in Berlin is 12:30 and all is well. \n",
    );
  });

  it("ignores packets of kinds it does not know", async () => {
    expect(await print([create(PacketSchema, { seq: 1, placement: { modelIndex: 0 } })])).toBe("");
  });
});

describe("conversation at a terminal", () => {
  const servers: ScriptedChatServer[] = [];
  afterEach(async () => {
    await Promise.all(servers.splice(0).map((server) => server.close()));
  });

  async function converse(head?: number) {
    const server = await ScriptedChatServer.start({ http: "2" });
    servers.push(server);
    server.nextTurn = new ScriptedTurn("turn-1", sampleTurn(), head);
    const out = new Screen();
    const err = new Screen();
    const stdin = Object.assign(new PassThrough(), { isTTY: true });
    const end = new AbortController();
    const interrupts = new Interrupts(() => end.abort());
    const context: CliContext = {
      client: createTurnwireClient({
        transport: createConnectTransport({ baseUrl: server.url, httpVersion: "2" }),
      }),
      terminal: new Terminal(out, err, { NO_COLOR: "1" }),
      stdin,
      json: false,
      signal: end.signal,
      interrupts,
    };
    return { server, out, err, stdin, interrupts, exitCode: chat(undefined, { model: [] }, context) };
  }

  it("asks, answers, asks again in the same session, and ends with the input", async () => {
    const { server, out, err, stdin, exitCode } = await converse();
    await err.shows("> ");
    stdin.write("first\n");
    await out.shows("all is well. \n");
    server.nextTurn = new ScriptedTurn("turn-2", sampleTurn({ turnId: "turn-2", answer: ["Second."] }));
    stdin.write("second\n");
    await out.shows("Second.\n");
    stdin.end();
    expect(await exitCode).toBe(0);
    expect(server.calls.map(({ send }) => [send?.text, send?.sessionId])).toEqual([
      ["first", ""],
      ["second", "session-1"],
    ]);
    expect(err.text).toContain("turnwire chat --session session-1");
  });

  it("Ctrl-C stops an answer and the conversation goes on; at the prompt it ends it", async () => {
    const { server, out, err, stdin, interrupts, exitCode } = await converse(18);
    await err.shows("> ");
    stdin.write("first\n");
    await out.shows("The time ");
    interrupts.raise();
    await err.shows(/the turn was stopped \(user cancelled\)\n[^]*> /);
    expect(server.stops).toHaveLength(1);
    stdin.write("\u0003");
    expect(await exitCode).toBe(130);
  });
});

describe("similar names", () => {
  const names = ["gpt-4.1-mini", "demo", "llama-3.1-8b", "claude-sonnet"];
  it.each([
    ["dmeo", ["demo"]],
    ["Demo", ["demo"]],
    ["llama", ["llama-3.1-8b"]],
    ["gpt-4.1-mni", ["gpt-4.1-mini"]],
    ["xyz", []],
  ])("%s -> %j", (wanted, near) => {
    expect(similarNames(wanted, names)).toEqual(near);
  });
});
