import path from "node:path";
import { build, type BuildOptions } from "esbuild";
import { describe, expect, it } from "vitest";

const FORBIDDEN = ["Buffer", "process", "document", "window", "localStorage", "XMLHttpRequest"];

const options = {
  absWorkingDir: path.resolve(import.meta.dirname, "../.."),
  entryPoints: ["src/client/index.ts", "src/client/view.ts", "src/client/frames.ts"],
  outdir: "/",
  bundle: true,
  platform: "browser",
  format: "esm",
  write: false,
  metafile: true,
  logLevel: "silent", // an import of a Node module rejects the build
} as const satisfies BuildOptions;

describe("client", () => {
  it("bundles for a browser, with nothing of ours but client, turn and lib", async () => {
    const { metafile } = await build(options);
    const ours = Object.keys(metafile.inputs).filter((file) => file.startsWith("src/"));
    expect(ours).toContain("src/turn/fold.ts");
    expect(ours.filter((file) => !/^src\/(client|turn|lib)\//.test(file))).toEqual([]);
  });

  it("touches no global of Node and none of the page", async () => {
    const define = Object.fromEntries(FORBIDDEN.map((name) => [name, `forbidden_${name}`]));
    const { outputFiles } = await build({ ...options, packages: "external", define });
    for (const { text } of outputFiles) expect(text.match(/forbidden_\w+/g)).toBeNull();
  });
});
