/**
 * The examples of README.md as the tests run them. Each shell block stands under a comment that says what it is:
 * `<!-- runs: name -->` is run to its end, `<!-- serves: name -->` starts services that are then called.
 */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));

export interface Example {
  readonly kind: "runs" | "serves" | "file";
  readonly name: string;
  readonly language: string;
  readonly code: string;
}

/** All fenced blocks in order; a block without a comment has the name "". */
export function readmeExamples(): Example[] {
  const text = readFileSync(path.join(root, "README.md"), "utf8");
  const blocks = text.matchAll(/(?:<!-- (runs|serves|file): (\S+) -->\n+)?^```(\w*)[^\n]*\n([^]*?)^```$/gm);
  return [...blocks].map(([, kind, name = "", language = "", code = ""]) => ({
    kind: kind as Example["kind"],
    name,
    language,
    code,
  }));
}

export function readmeExample(name: string): Example {
  const found = readmeExamples().find((example) => example.name === name);
  if (!found) throw new Error(`README.md has no example called ${name}`);
  return found;
}

/** Where the examples' fixed ports really are. */
export type Ports = Readonly<Record<number, number | string>>;

/** The example with its ports replaced by those of the test. */
export function withPorts(code: string, ports: Ports): string {
  return code.replace(/\b\d{4,5}\b/g, (port) => String(ports[Number(port)] ?? port));
}

export interface RunOptions {
  readonly ports?: Ports;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly timeoutMs?: number;
}

/** What tools of the cache and nothing of the caller's configuration the examples see. */
export function exampleEnv(env: Readonly<Record<string, string>> = {}): NodeJS.ProcessEnv {
  const folders = [path.join(root, ".cache", "bin"), path.dirname(process.execPath)];
  const home = process.env["HOME"] ?? "/";
  return { PATH: [...folders, process.env["PATH"] ?? ""].join(path.delimiter), HOME: home, ...env };
}

/** Runs an example in bash, in the repository, and gives its standard output. Rejects with all it wrote when it fails. */
export function runExample(name: string, options: RunOptions = {}): Promise<string> {
  const code = withPorts(readmeExample(name).code, options.ports ?? {});
  return new Promise((resolve, reject) => {
    execFile(
      "bash",
      ["-eu", "-c", code],
      {
        cwd: options.cwd ?? root,
        env: exampleEnv(options.env),
        timeout: options.timeoutMs ?? 60_000,
        maxBuffer: 64 * 1024 * 1024,
      },
      (error, stdout, stderr) => {
        if (error) reject(new Error(`${name}: ${error.message}\n${stdout}\n${stderr}`));
        else resolve(stdout);
      },
    );
  });
}

/** A service that was started as a person starts it, through npm. */
export interface StartedService {
  /** Its ready line. */
  readonly facts: Readonly<Record<string, unknown>>;
  output(): string;
  kill9(): Promise<void>;
  /** SIGTERM to the service itself, then waits for the whole command to end. */
  stop(): Promise<void>;
}

/** Runs a command line that starts one service, and waits for its ready line. */
export async function serveCommand(
  line: string,
  env: Readonly<Record<string, string>>,
  cwd = root,
): Promise<StartedService> {
  const child = spawn("bash", ["-eu", "-c", line], {
    cwd,
    env: exampleEnv(env),
    stdio: ["ignore", "pipe", "pipe"],
  });
  const exited = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  let output = "";
  const facts = await waitForReady(child, exited, (text) => (output += text));
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    try {
      process.kill(Number(facts["pid"]), signal); // npm and its shell end with it
    } catch {
      // It has ended.
    }
    await exited;
  };
  return {
    facts,
    output: () => output,
    kill9: () => end("SIGKILL"),
    stop: () => end("SIGTERM"),
  };
}

const READY_MS = 60_000;

function waitForReady(
  child: ChildProcess,
  exited: Promise<void>,
  keep: (text: string) => string,
): Promise<Record<string, unknown>> {
  return new Promise((resolve, reject) => {
    let output = "";
    const fail = (what: string): void => {
      child.kill("SIGKILL");
      reject(new Error(`${what}:\n${output}`));
    };
    const timer = setTimeout(() => fail("the service was not ready in time"), READY_MS);
    void exited.then(() => fail("the service ended before it was ready"));
    const take = (chunk: Buffer): void => {
      output = keep(chunk.toString());
      const line = output.split("\n").find((each) => each.includes('"msg":"ready"') && each.endsWith("}"));
      if (line === undefined) return;
      clearTimeout(timer);
      resolve(JSON.parse(line) as Record<string, unknown>);
    };
    child.stdout!.on("data", take);
    child.stderr!.on("data", take);
  });
}
