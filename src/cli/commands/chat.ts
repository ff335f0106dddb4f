import { createInterface } from "node:readline";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { SendMessageRequestSchema } from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import { ErrorCode, TurnOutcome } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnwireClientError, type TurnStream } from "../../client/index.js";
import type { CliContext } from "../context.js";
import { CliError, ExitCode } from "../exit-codes.js";
import { similarNames } from "../similar.js";
import { printTurn, reportOutcome } from "./read-turn.js";

export interface ChatOptions {
  readonly session?: string;
  readonly model: readonly string[];
  readonly interactive?: boolean;
}

/** Sends one message (from the arguments, or piped in) or, at a terminal, asks for one after the other. */
export async function chat(
  text: string | undefined,
  options: ChatOptions,
  context: CliContext,
): Promise<ExitCode> {
  if (options.interactive || (text === undefined && context.stdin.isTTY))
    return converse(text, options, context);
  const message = text === undefined || text === "-" ? await readAll(context.stdin, context.signal) : text;
  if (message.trim() === "") throw new CliError(ExitCode.USAGE, "nothing to send: the message is empty");
  return (await ask(message, options.session, options.model, context)).exitCode;
}

const HELP = "Type a message and press Enter. /exit (or Ctrl-D) leaves, Ctrl-C stops an answer.";

async function converse(
  first: string | undefined,
  options: ChatOptions,
  context: CliContext,
): Promise<ExitCode> {
  const { terminal, stdin } = context;
  const lines = stdin.isTTY ? promptedLines(context) : pipedLines(context);
  let session = options.session;
  let exitCode: ExitCode = ExitCode.OK;
  let line = first;
  try {
    if (stdin.isTTY) await terminal.aside(HELP);
    for (;;) {
      line ??= await lines.next();
      if (line === undefined) break;
      const text = line.trim();
      line = undefined;
      if (text === "/exit" || text === "/quit") break;
      if (text === "/help") await terminal.aside(HELP);
      else if (text !== "") {
        const answered = await ask(text, session, options.model, context);
        session = answered.sessionId || session;
        exitCode = answered.exitCode;
        if (answered.left) break;
      }
    }
  } finally {
    lines.close();
    if (session && session !== options.session) {
      await terminal.aside(`go on with this conversation: turnwire chat --session ${session}`);
    }
  }
  return exitCode;
}

interface Answered {
  readonly exitCode: ExitCode;
  readonly sessionId: string;
  /** The person left while the turn goes on. */
  readonly left: boolean;
}

/** One message and its answer. The first Ctrl-C stops the turn, the second leaves it running. */
async function ask(
  text: string,
  sessionId: string | undefined,
  modelIds: readonly string[],
  context: CliContext,
): Promise<Answered> {
  const { client, terminal } = context;
  const request: MessageInitShape<typeof SendMessageRequestSchema> = {
    text,
    sessionId,
    models: modelIds.map((modelId) => ({ modelId })),
  };
  const leave = new AbortController();
  const stream = client.send(request, { signal: AbortSignal.any([context.signal, leave.signal]) });
  let pressed = 0;
  const release = context.interrupts.take(() => {
    pressed += 1;
    if (pressed > 1) leave.abort();
    else void stopTurn(stream, context);
  });
  try {
    const state = await printTurn(stream, context);
    const exitCode = await reportOutcome(state, context);
    const stopped = pressed > 0 && state.stop?.outcome === TurnOutcome.STOPPED;
    return {
      exitCode: stopped ? ExitCode.INTERRUPTED : exitCode,
      sessionId: state.started?.sessionId ?? "",
      left: false,
    };
  } catch (thrown) {
    await terminal.freshLine();
    if (stream.turnId && leave.signal.aborted) {
      await terminal.aside(`the turn goes on: turnwire tail ${stream.turnId} --after ${stream.lastSeq}`);
    }
    if (leave.signal.aborted) {
      return { exitCode: ExitCode.INTERRUPTED, sessionId: stream.state.started?.sessionId ?? "", left: true };
    }
    throw await withSuggestions(thrown, modelIds, context);
  } finally {
    release();
  }
}

async function stopTurn(stream: TurnStream, { terminal }: CliContext): Promise<void> {
  await terminal.aside("stopping (Ctrl-C again leaves the turn running)");
  try {
    await stream.stop();
  } catch (thrown) {
    await terminal.aside(
      `the stop failed: ${thrown instanceof Error ? thrown.message : String(thrown)}`,
      "red",
    );
  }
}

/** An unknown model's error, with the names that may have been meant. */
async function withSuggestions(
  thrown: unknown,
  wanted: readonly string[],
  { client, signal }: CliContext,
): Promise<unknown> {
  if (!(thrown instanceof TurnwireClientError) || thrown.code !== ErrorCode.MODEL_NOT_FOUND) return thrown;
  try {
    const { models } = await client.api.listModels({}, { signal });
    const names = models.flatMap(({ modelId, aliases }) => [modelId, ...aliases]);
    const near = [
      ...new Set(wanted.filter((name) => !names.includes(name)).flatMap((name) => similarNames(name, names))),
    ];
    const help = near.length > 0 ? `; did you mean ${near.join(" or ")}?` : "";
    return new CliError(ExitCode.NOT_FOUND, `${thrown.message}${help} (\`turnwire models\` lists them)`);
  } catch {
    return thrown; // without the list there is nothing to suggest
  }
}

const MAX_MESSAGE_BYTES = 4 * 1024 * 1024;

async function readAll(stdin: CliContext["stdin"], signal: AbortSignal): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  const onAbort = (): void => void stdin.destroy(signal.reason as Error);
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    for await (const chunk of stdin as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes > MAX_MESSAGE_BYTES)
        throw new CliError(ExitCode.USAGE, "the message is too long: attach a file instead");
    }
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
  const text = new TextDecoder("utf-8", { fatal: true });
  try {
    return text.decode(Buffer.concat(chunks));
  } catch {
    throw new CliError(ExitCode.USAGE, "the message is not UTF-8 text");
  }
}

interface Lines {
  /** The next line; undefined when there is none. */
  next(): Promise<string | undefined>;
  close(): void;
}

/** Lines that a person types. The prompt is there only while it is needed, so that Ctrl-C reaches a running turn. */
function promptedLines({ stdin, terminal, interrupts, signal }: CliContext): Lines {
  let history: string[] = [];
  return {
    next: () =>
      new Promise((resolve) => {
        const prompt = createInterface({
          input: stdin,
          output: terminal.promptStream,
          prompt: "> ",
          history,
        });
        const done = (line: string | undefined): void => {
          signal.removeEventListener("abort", onAbort);
          prompt.close();
          resolve(line);
        };
        const endOfInput = (): void => {
          terminal.promptStream.write("\n"); // the prompt's line has no end yet
          done(undefined);
        };
        const onAbort = (): void => done(undefined);
        signal.addEventListener("abort", onAbort, { once: true });
        prompt.on("history", (lines: string[]) => (history = lines));
        prompt.once("line", (line) => {
          prompt.off("close", endOfInput);
          done(line);
        });
        prompt.once("close", endOfInput);
        prompt.once("SIGINT", () => {
          prompt.close();
          interrupts.raise();
        });
        prompt.prompt();
      }),
    close: () => undefined,
  };
}

function pipedLines({ stdin, signal }: CliContext): Lines {
  const reader = createInterface({ input: stdin, crlfDelay: Number.POSITIVE_INFINITY });
  const lines = reader[Symbol.asyncIterator]();
  const onAbort = (): void => reader.close();
  signal.addEventListener("abort", onAbort, { once: true });
  return {
    next: async () => {
      const step = await lines.next();
      return step.done ? undefined : step.value;
    },
    close: () => {
      signal.removeEventListener("abort", onAbort);
      reader.close();
    },
  };
}
