/**
 * The rules of the house bite: the import rules find what they forbid, committed files hold no registry address, and links
 * of the documentation lead somewhere.
 */
import { execFileSync, spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import { afterAll, describe, expect, it } from "vitest";

const root = path.resolve(import.meta.dirname, "../..");

/** The files that are committed, or will be: ignored ones and those just deleted are left out. */
function projectFiles(): string[] {
  const args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
  return execFileSync("git", args, { cwd: root, encoding: "utf8" })
    .split("\0")
    .filter((file) => file !== "" && existsSync(path.join(root, file)));
}

describe("import rules", () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), "turnwire-rules-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  /** One offence per rule: [rule, file, what it imports]. */
  const OFFENCES: readonly (readonly [rule: string, from: string, to: string])[] = [
    ["no-circular", "src/tool/egg.ts", "src/tool/hen.ts"],
    ["lib-is-the-bottom", "src/lib/clever.ts", "src/turn/fold.ts"],
    ["turn-is-pure", "src/turn/impure.ts", "src/chat/service.ts"],
    ["chat-sees-ports", "src/chat/short-cut.ts", "src/store/pg-store.ts"],
    ["llm-stands-alone", "src/llm/nosy.ts", "src/chat/service.ts"],
    ["tool-reads-the-web", "src/tool/nosy.ts", "src/llm/service.ts"],
    ["egress-stands-alone", "src/egress/nosy.ts", "src/tool/tool.ts"],
    ["extract-sees-egress", "src/extract/nosy.ts", "src/tool/tool.ts"],
    ["documents-see-ports", "src/documents/nosy.ts", "src/store/pg-store.ts"],
    ["files-see-the-store-port", "src/files/nosy.ts", "src/store/pg-store.ts"],
    ["replay-stands-alone", "src/replay/nosy.ts", "src/store/store.ts"],
    ["store-stands-alone", "src/store/nosy.ts", "src/turn/fold.ts"],
    ["client-folds", "src/client/heavy.ts", "src/edge/auth.ts"],
    ["edge-adapts", "src/edge/deep.ts", "src/replay/nats-replay-log.ts"],
    ["cli-uses-the-client", "src/cli/deep.ts", "src/turn/fold.ts"],
    ["web-uses-the-client", "src/web/deep.ts", "src/turn/fold.ts"],
    ["turn-and-client-run-in-browsers", "src/client/disk.ts", "node:fs"],
    ["memory-log-is-for-tests", "src/main/cheap.ts", "src/replay/memory-replay-log.ts"],
  ];

  /** What must stay allowed beside it. */
  const ALLOWED: readonly (readonly [from: string, to: string])[] = [
    ["src/turn/good.ts", "src/lib/clever.ts"],
    ["src/chat/good.ts", "src/turn/fold.ts"],
    ["src/chat/good-too.ts", "src/store/store.ts"],
    ["src/edge/good.ts", "src/chat/service.ts"],
    ["src/client/good.ts", "src/turn/fold.ts"],
    ["src/main/good.ts", "src/store/pg-store.ts"],
    ["src/llm/good.test.ts", "src/chat/service.ts"],
  ];

  it("has an offence here for each of its rules", () => {
    const config = createRequire(import.meta.url)(path.join(root, ".dependency-cruiser.cjs")) as {
      forbidden: readonly { readonly name: string }[];
    };
    expect(config.forbidden.map(({ name }) => name).sort()).toEqual(OFFENCES.map(([rule]) => rule).sort());
  });

  it("finds each offence under its rule, and nothing else", () => {
    const edges = [...OFFENCES.map(([, from, to]) => [from, to] as const), ...ALLOWED];
    edges.push(["src/tool/hen.ts", "src/tool/egg.ts"]);
    for (const [from, to] of edges) writeModule(from, [to]);
    for (const to of edges.map(([, target]) => target).filter((target) => target.startsWith("src/")))
      if (!existsSync(path.join(folder, to))) writeModule(to, []);
    for (const file of [".dependency-cruiser.cjs", "tsconfig.json", "package.json"])
      cpSync(path.join(root, file), path.join(folder, file));
    symlinkSync(path.join(root, "node_modules"), path.join(folder, "node_modules"));

    const cruise = path.join(root, "node_modules/dependency-cruiser/bin/dependency-cruise.mjs");
    const args = [cruise, "--config", ".dependency-cruiser.cjs", "--output-type", "json", "src"];
    const run = spawnSync(process.execPath, args, {
      cwd: folder,
      encoding: "utf8",
      maxBuffer: 64 * 1024 * 1024,
    });
    const { summary } = JSON.parse(run.stdout) as {
      summary: { violations: readonly { from: string; to: string; rule: { name: string } }[] };
    };
    const found = summary.violations.map(({ rule, from, to }) => `${rule.name}: ${from} -> ${to}`);
    // A circle is reported once.
    const expected = OFFENCES.map(([rule, from, to]) => `${rule}: ${from} -> ${to.replace(/^node:/, "")}`);
    expect(found.sort()).toEqual(expected.sort());
  }, 60_000);

  function writeModule(file: string, imports: readonly string[]): void {
    const lines = imports.map((target) => {
      const relative = path.relative(path.dirname(file), target).replace(/\.ts$/, ".js");
      const name = target.startsWith("node:")
        ? target
        : relative.startsWith(".")
          ? relative
          : `./${relative}`;
      return `import "${name}";\n`;
    });
    mkdirSync(path.dirname(path.join(folder, file)), { recursive: true });
    writeFileSync(path.join(folder, file), `${lines.join("")}export const here = "${file}";\n`);
  }
});

describe("committed files", () => {
  it("hold no address of a package registry or mirror", () => {
    const hosts = [
      "registry.npmjs" + ".org",
      "registry.yarnpkg" + ".com",
      "proxy.golang" + ".org",
      "pypi" + ".org",
    ];
    hosts.push("files.pythonhosted" + ".org", "static.crates" + ".io", "deb.debian" + ".org");
    const settings = /\b(index-url|GOPROXY|npm_config_registry)\s*=|^registry\s*=/m;
    const text = projectFiles().filter((file) => !/\.(binpb|png|pdf)$/.test(file));
    const offenders = text.filter((file) => {
      const content = readFileSync(path.join(root, file), "utf8");
      const isThisTest = path.join(root, file) === import.meta.filename;
      return hosts.some((host) => content.includes(host)) || (!isThisTest && settings.test(content));
    });
    expect(offenders).toEqual([]);
  });

  it("lock packages without saying where they came from", () => {
    const lock = JSON.parse(readFileSync(path.join(root, "package-lock.json"), "utf8")) as {
      packages: Record<string, { resolved?: string; integrity?: string }>;
    };
    const names = Object.keys(lock.packages).filter((name) => name !== "");
    expect(names.length).toBeGreaterThan(100);
    expect(names.filter((name) => lock.packages[name]!.resolved !== undefined)).toEqual([]);
    expect(names.filter((name) => lock.packages[name]!.integrity === undefined)).toEqual([]);
  });

  it("depend on exact versions", () => {
    const manifest = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8")) as {
      dependencies: Record<string, string>;
      devDependencies: Record<string, string>;
    };
    const versions = Object.entries({ ...manifest.dependencies, ...manifest.devDependencies });
    expect(versions.filter(([, version]) => !/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(version))).toEqual([]);
  });
});

describe("documentation", () => {
  const pages = projectFiles().filter(
    (file) => file.endsWith(".md") && !file.startsWith("proto/third_party/"),
  );

  it.each(pages)("%s links to files and headings that exist", (page) => {
    const text = readFileSync(path.join(root, page), "utf8").replace(/^```[^]*?^```$|`[^`\n]+`/gm, "");
    const targets = [...text.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target]) => target!);
    const broken = targets
      .filter((target) => !/^(https?|mailto):/.test(target))
      .filter((target) => {
        const [file = "", anchor] = target.split("#");
        const linked = path.resolve(root, path.dirname(page), file === "" ? path.basename(page) : file);
        if (!existsSync(linked)) return true;
        return anchor !== undefined && !headingAnchors(readFileSync(linked, "utf8")).has(anchor);
      });
    expect(broken).toEqual([]);
  });
});

/** The anchors that a page's headings get on the usual forges. */
function headingAnchors(markdown: string): Set<string> {
  const headings = [...markdown.replace(/^```[^]*?^```$/gm, "").matchAll(/^#{1,6} (.+)$/gm)];
  return new Set(
    headings.map(([, title]) =>
      title!
        .replace(/[`*]/g, "")
        .replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")
        .trim()
        .toLowerCase()
        .replace(/[^\p{L}\p{N} _-]/gu, "")
        .replaceAll(" ", "-"),
    ),
  );
}
