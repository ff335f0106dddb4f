import { execFile } from "node:child_process";
import { mkdir, readFile, rm } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import { build } from "esbuild";
import { expect, it } from "vitest";
import { ExitCode } from "../../src/cli/exit-codes.js";
import { sampleTurn } from "../support/sample-turn.js";
import { ScriptedChatServer, ScriptedTurn } from "../support/scripted-chat-server.js";

const ROOT = path.resolve(import.meta.dirname, "../..");

it("docs/client.md: the example runs as it stands", async () => {
  const page = await readFile(path.join(ROOT, "docs/client.md"), "utf8");
  const contents = /```ts\n([^]*?)```/.exec(page)![1]!;
  const folder = path.join(ROOT, ".cache", `client-docs-${process.pid}`);
  const outfile = path.join(folder, "example.mjs");
  await mkdir(folder, { recursive: true });
  const server = await ScriptedChatServer.start({ http: "2" });
  server.nextTurn = new ScriptedTurn("turn-1", sampleTurn());
  try {
    const stdin = { contents, resolveDir: path.join(ROOT, "docs"), loader: "ts" } as const;
    await build({ stdin, outfile, bundle: true, packages: "external", platform: "node", format: "esm" });
    // the example holds its HTTP/2 connection open, as a program would: it is ended once it has said everything
    const child = promisify(execFile)(process.execPath, [outfile], {
      env: { ...process.env, TURNWIRE_URL: server.url },
    });
    let stdout = "";
    const said = new Promise<void>((resolve) => {
      child.child.stdout!.on("data", (chunk: string) => {
        stdout += chunk;
        if (stdout.includes("answer")) resolve();
      });
    });
    await Promise.race([said, child]);
    child.child.kill();
    await child.catch(() => undefined);
    expect(stdout).toBe(
      "The time in Berlin is 12:30 and all is well. \nturn turn-1 ended at seq 30 with 1 answer\n",
    );
  } finally {
    await server.close();
    await rm(folder, { recursive: true, force: true });
  }
});

it("docs/client.md lists every exit code", async () => {
  const page = await readFile(path.join(ROOT, "docs/client.md"), "utf8");
  const table = page.slice(page.indexOf("| exit code"));
  const listed = [...table.matchAll(/^\| (\d+)(?: \/ (\d+))? *\|/gm)].flatMap(([, first, second]) =>
    [first, second].filter((code) => code !== undefined).map(Number),
  );
  expect(listed).toEqual(Object.values(ExitCode));
});
