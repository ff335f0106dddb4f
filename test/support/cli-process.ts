/** Runs the command line as a process of its own, built as it stands. */
import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { mkdir, rm } from "node:fs/promises";
import path from "node:path";
import { build } from "esbuild";

const ROOT = path.resolve(import.meta.dirname, "../..");

/** The built command line; `remove` deletes it. */
export interface BuiltCli {
  readonly file: string;
  remove(): Promise<void>;
}

/** Bundles src/cli into one file below the repository, where it finds its packages. */
export async function buildCli(): Promise<BuiltCli> {
  const folder = path.join(ROOT, ".cache", `cli-${process.pid}-${Date.now()}`);
  await mkdir(folder, { recursive: true });
  const file = path.join(folder, "turnwire.mjs");
  await build({
    entryPoints: [path.join(ROOT, "src/cli/main.ts")],
    outfile: file,
    bundle: true,
    packages: "external",
    platform: "node",
    format: "esm",
    target: "node20",
    logLevel: "warning",
  });
  return { file, remove: () => rm(folder, { recursive: true, force: true }) };
}

export interface CliResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A command that runs. */
export class CliProcess {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #waiters: {
    readonly stream: "stdout" | "stderr";
    readonly text: string;
    readonly resolve: () => void;
  }[] = [];
  readonly ended: Promise<CliResult>;
  stdout = "";
  stderr = "";

  constructor(cli: BuiltCli, args: readonly string[], env: Readonly<Record<string, string>> = {}) {
    const clean = { ...process.env, TURNWIRE_URL: "", TURNWIRE_TOKEN: "", NO_COLOR: "", ...env };
    this.#child = spawn(process.execPath, [cli.file, ...args], { env: clean, stdio: "pipe" });
    for (const stream of ["stdout", "stderr"] as const) {
      this.#child[stream].setEncoding("utf8").on("data", (chunk: string) => {
        this[stream] += chunk;
        for (const waiter of this.#waiters) if (this[waiter.stream].includes(waiter.text)) waiter.resolve();
      });
    }
    this.#child.stdin.on("error", () => undefined); // it may end before it has read its input
    this.ended = new Promise((resolve) =>
      this.#child.on("close", (code) => resolve({ code, stdout: this.stdout, stderr: this.stderr })),
    );
  }

  /** Resolves when the text has been written; rejects when the process ends without it. */
  async shows(stream: "stdout" | "stderr", text: string): Promise<void> {
    if (this[stream].includes(text)) return;
    const seen = new Promise<void>((resolve) => this.#waiters.push({ stream, text, resolve }));
    await Promise.race([
      seen,
      this.ended.then((result) => {
        if (!result[stream].includes(text))
          throw new Error(`ended without "${text}": ${JSON.stringify(result)}`);
      }),
    ]);
  }

  write(text: string): void {
    this.#child.stdin.write(text);
  }

  endInput(text = ""): void {
    this.#child.stdin.end(text);
  }

  /** Stops reading its standard output, as `head` does. */
  closeOutput(): void {
    this.#child.stdout.destroy();
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }
}
