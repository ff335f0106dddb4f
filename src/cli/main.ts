/** The entry of `turnwire`: parses the arguments, runs one command, says what went wrong, sets the exit code. */
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { CommanderError } from "commander";
import { createTurnwireClient } from "../client/index.js";
import { openConnection } from "./connection.js";
import { Interrupts, type CliContext } from "./context.js";
import { ExitCode } from "./exit-codes.js";
import { explainError } from "./explain-error.js";
import { createProgram, type GlobalOptions, type RunCommand } from "./program.js";
import { Terminal } from "./terminal.js";

/** Runs the command line and returns its exit code. Writes to the process's standard streams. */
export async function runCli(argv: readonly string[]): Promise<ExitCode> {
  const terminal = new Terminal(process.stdout, process.stderr, process.env);
  const end = new AbortController();
  let signalled: ExitCode | undefined;
  const endWith = (code: ExitCode): void => {
    signalled ??= code;
    end.abort();
  };
  const interrupts = new Interrupts(() => endWith(ExitCode.INTERRUPTED));
  process.on("SIGINT", interrupts.raise);
  process.on("SIGTERM", () => endWith(ExitCode.TERMINATED));

  let exitCode: ExitCode = ExitCode.OK;
  let url = "";
  const run: RunCommand = async (command) => {
    const options = program.opts<GlobalOptions>();
    url = options.url;
    const connection = await openConnection(url, options.token ?? process.env.TURNWIRE_TOKEN);
    try {
      const context: CliContext = {
        client: createTurnwireClient({
          transport: connection.transport,
          maxFirstAttempts: 3,
          maxAttempts: 60,
        }),
        terminal,
        stdin: process.stdin,
        json: options.json ?? false,
        signal: end.signal,
        interrupts,
      };
      exitCode = await command(context);
    } finally {
      connection.close();
    }
  };
  const program = createProgram(run, process.env, packageVersion());

  try {
    await program.parseAsync([...argv], { from: "user" });
  } catch (thrown) {
    if (signalled !== undefined) return signalled;
    if (thrown instanceof CommanderError) return thrown.exitCode === 0 ? ExitCode.OK : ExitCode.USAGE;
    const { message, exitCode: code } = explainError(thrown, url);
    await terminal.freshLine();
    await terminal.aside(`turnwire: ${message}`, "red");
    return code;
  } finally {
    await terminal.flush();
  }
  return signalled ?? exitCode;
}

/** The version of the package that this file belongs to, wherever the build put it. */
function packageVersion(): string {
  for (let folder = import.meta.dirname; folder !== path.dirname(folder); folder = path.dirname(folder)) {
    const file = path.join(folder, "package.json");
    if (existsSync(file))
      return (JSON.parse(readFileSync(file, "utf8")) as { version?: string }).version ?? "unknown";
  }
  return "unknown";
}

// A reader that went away (`| head`) is no fault: there is nobody left to tell.
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    process.exit(error.code === "EPIPE" ? ExitCode.OK : ExitCode.INTERNAL);
  });
}
process.exit(await runCli(process.argv.slice(2)));
