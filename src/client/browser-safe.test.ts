import { readFile } from "node:fs/promises";
import path from "node:path";
import { build } from "esbuild";
import { describe, expect, it } from "vitest";

const ROOT = path.resolve(import.meta.dirname, "../..");

describe("client", () => {
  it("bundles for a browser: no module or global of Node, none of the page", async () => {
    const { metafile } = await build({
      absWorkingDir: ROOT,
      entryPoints: ["src/client/index.ts"],
      bundle: true,
      platform: "browser",
      format: "esm",
      write: false,
      metafile: true,
      logLevel: "silent", // an import of a Node module rejects the build
    });
    const ours = Object.keys(metafile.inputs).filter((file) => file.startsWith("src/"));
    expect(ours).toContain("src/turn/fold.ts");
    expect(ours.filter((file) => !/^src\/(client|turn|lib)\//.test(file))).toEqual([]);
    for (const file of ours) {
      const globals = (await readFile(path.join(ROOT, file), "utf8")).match(
        /\b(Buffer|process|document|window|localStorage)\./g,
      );
      expect([file, globals]).toEqual([file, null]);
    }
  });
});
