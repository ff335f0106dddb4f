/** Where the extraction process's code is: beside this module when built, compiled on first use when run from source. */
import { createHash } from "node:crypto";
import { mkdir, rename, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

/**
 * The file to start the process from. In a build, which makes one file of each source, that is `extract-child.js` in this
 * module's own directory. Run from TypeScript source (tests), it is bundled by esbuild into `.cache`, named by its
 * content, with packages left outside.
 */
export async function extractChildFile(): Promise<string> {
  if (!import.meta.url.endsWith(".ts")) return fileURLToPath(new URL("./extract-child.js", import.meta.url));
  const { build } = await import("esbuild");
  const result = await build({
    entryPoints: [fileURLToPath(new URL("./extract-child.ts", import.meta.url))],
    bundle: true,
    write: false,
    platform: "node",
    format: "esm",
    target: "node20",
    packages: "external",
    logLevel: "silent",
  });
  const code = result.outputFiles[0]!.contents;
  const name = createHash("sha256").update(code).digest("hex").slice(0, 16);
  const directory = new URL("../../.cache/extract-child/", import.meta.url);
  const file = new URL(`${name}.mjs`, directory);
  const draft = new URL(`${name}.${process.pid}.${Date.now()}.tmp`, directory);
  await mkdir(directory, { recursive: true });
  await writeFile(draft, code);
  await rename(draft, file); // whole or not at all, also when several processes do this at once
  return fileURLToPath(file);
}
