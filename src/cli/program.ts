/** The commands and options of `turnwire`; what they do stands in commands/. */
import { Command, InvalidArgumentError } from "commander";
import {
  deleteSession,
  listModels,
  listSessions,
  listTools,
  showSession,
  stop,
  type StopOptions,
} from "./commands/catalogue.js";
import { chat, type ChatOptions } from "./commands/chat.js";
import {
  addDocuments,
  cancelDocument,
  deleteDocument,
  getDocument,
  listDocuments,
  type AddOptions,
} from "./commands/documents.js";
import { replay, tail, type TailOptions } from "./commands/tail.js";
import type { CliContext } from "./context.js";
import type { ExitCode } from "./exit-codes.js";

/** Options that every command takes. */
export interface GlobalOptions {
  readonly url: string;
  readonly token?: string;
  readonly json?: boolean;
}

/** Runs a command against the server that the options name. */
export type RunCommand = (command: (context: CliContext) => Promise<ExitCode>) => Promise<void>;

const EXIT_CODES = `
Exit codes:
  0    done; chat and tail: the turn completed; documents add: all are ready
  1    the turn did not complete (error, interrupted, deadline, stopped by somebody else), or a document failed
  2    the command line makes no sense
  3    no such session, turn, model or document
  4    no Turnwire server can be reached
  5    the token is missing or wrong
  6    the server refused the request
  69   comes with a later version
  70   a fault in the server or in this program
  130  interrupted with Ctrl-C

With --json each line of standard output is one JSON object (proto3 JSON): a packet for chat, tail and replay, a session,
message, model, tool or document for the lists. Everything else goes to standard error.`;

/** Builds the command line. `run` is told what to do once arguments are parsed. */
export function createProgram(
  run: RunCommand,
  env: Readonly<Record<string, string | undefined>>,
  version: string,
): Command {
  const program = new Command("turnwire")
    .description("Talks to a Turnwire server: chat, follow turns, read them again, stop them.")
    .version(version)
    .option("--url <address>", "the server (or TURNWIRE_URL)", env.TURNWIRE_URL || "http://127.0.0.1:8080")
    .option("--token <token>", "bearer token (or TURNWIRE_TOKEN)")
    .option("--json", "print one JSON object per line")
    .addHelpText("after", EXIT_CODES)
    .showHelpAfterError("(turnwire --help lists commands and options)")
    .exitOverride();

  program
    .command("chat")
    .description("send a message and show the answer; at a terminal without a text: a conversation")
    .argument("[text]", "the message; - or nothing reads it from standard input")
    .option("--session <id>", "go on with this session")
    .option("--model <id>", "a model to answer; repeat it to compare several", collect, [] as string[])
    .option("-i, --interactive", "a conversation, one message per line, also when the input is piped")
    .action((text: string | undefined, options: ChatOptions) =>
      run((context) => chat(text, options, context)),
    );

  program
    .command("tail")
    .description("print a turn's packets and follow it to its end")
    .argument("<turn>", "turn id")
    .option("--from <seq>", "first packet to print", seq)
    .option("--after <seq>", "print what follows this packet (the cursor you have)", seq)
    .action((turn: string, options: TailOptions) => run((context) => tail(turn, options, context)));

  program
    .command("replay")
    .description("print the packets that a turn has now, and end")
    .argument("<turn>", "turn id")
    .option("--from <seq>", "first packet to print", seq)
    .option("--after <seq>", "print what follows this packet", seq)
    .option("--to <seq>", "last packet to print", seq)
    .action((turn: string, options: TailOptions) => run((context) => replay(turn, options, context)));

  const sessions = program.command("sessions").description("list, show or delete sessions");
  sessions
    .command("list", { isDefault: true })
    .description("the sessions, newest first")
    .option("--limit <count>", "at most so many", count, 50)
    .action((options: { readonly limit: number }) => run((context) => listSessions(options, context)));
  sessions
    .command("show")
    .description("a session and its messages")
    .argument("<id>")
    .action((id: string) => run((context) => showSession(id, context)));
  sessions
    .command("delete")
    .description("delete a session with all its messages")
    .argument("<id>")
    .action((id: string) => run((context) => deleteSession(id, context)));

  program
    .command("models")
    .description("the models that can answer")
    .action(() => run(listModels));

  program
    .command("tools")
    .description("the tools that models can call")
    .action(() => run(listTools));

  program
    .command("stop")
    .description("stop a turn; what it has said so far is kept")
    .argument("[turn]", "turn id")
    .option("--session <id>", "stop what this session runs")
    .option("--request <id>", "stop the send with this request id, also before it arrives")
    .option("--lane <index>", "stop one model's answer only", seq)
    .action((turn: string | undefined, options: StopOptions) =>
      run((context) => stop(turn, options, context)),
    );

  addDocumentCommands(program, run);
  return program;
}

function addDocumentCommands(program: Command, run: RunCommand): void {
  const documents = program.command("documents").description("documents that answers can be found in");
  documents
    .command("add")
    .description("add files, folders, addresses or standard input (-), and wait until they can be found")
    .argument("<source...>", "file, folder, http or https address, or -")
    .option("--title <title>", "title for people")
    .option("--tag <tag>", "tag; may be repeated", collect, [])
    .option("--type <mime>", "MIME type; default: found out")
    .option("--no-wait", "do not wait until it is indexed")
    .action((sources: string[], options: AddOptions) =>
      run((context) => addDocuments(sources, options, context)),
    );
  documents
    .command("list")
    .description("your documents, newest first")
    .option("--limit <count>", "at most so many", count, 50)
    .option("--query <words>", "words of the title")
    .action((options: { readonly limit: number; readonly query?: string }) =>
      run((context) => listDocuments(options, context)),
    );
  documents
    .command("get")
    .description("a document's text")
    .argument("<id>")
    .option("--from <position>", "first character wanted, as citations name it", seq, 0)
    .action((id: string, options: { readonly from: number }) =>
      run((context) => getDocument(id, options, context)),
    );
  documents
    .command("cancel")
    .description("stop indexing a document")
    .argument("<id>")
    .action((id: string) => run((context) => cancelDocument(id, context)));
  documents
    .command("delete")
    .description("delete a document and its passages")
    .argument("<id>")
    .action((id: string) => run((context) => deleteDocument(id, context)));
}

function collect(value: string, previous: readonly string[]): string[] {
  return [...previous, value];
}

function seq(value: string): number {
  const number = Number(value);
  if (!/^\d+$/.test(value) || number > 0xffff_ffff)
    throw new InvalidArgumentError("a number from 0 on is needed");
  return number;
}

function count(value: string): number {
  const number = seq(value);
  if (number === 0) throw new InvalidArgumentError("at least 1 is needed");
  return number;
}
