/**
 * Builds dist/ from src/ and gen/: each TypeScript file becomes one JavaScript file beside its siblings (no bundle, so that
 * workers, migrations and stack traces stay where they are). Other files of src (SQL) are copied. The page (src/web) is
 * bundled into dist/page.
 *
 *   node scripts/build.mjs          build
 *   buildIfStale()                  build when a source is newer than the last build, else do nothing
 */
import { build } from "esbuild";
import { copyFile, mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const dist = path.join(root, "dist");
const stamp = path.join(dist, "build.json");

async function filesBelow(folder) {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath ?? entry.path, entry.name));
}

const isCode = (file) => file.endsWith(".ts") && !file.endsWith(".test.ts") && !file.endsWith(".d.ts");
const isAsset = (file) => !file.endsWith(".ts") && !file.endsWith(".md");
const isPage = (file) => file.startsWith(path.join(root, "src", "web") + path.sep);

/** What decides whether a build is needed: the names, sizes and times of all sources, and the lock file. */
async function fingerprint(files) {
  const watched = [...files, path.join(root, "package-lock.json")].sort();
  const stats = await Promise.all(watched.map((file) => stat(file)));
  return stats
    .map((info, index) => `${path.relative(root, watched[index])} ${info.size} ${info.mtimeMs}`)
    .join("\n");
}

async function sources() {
  return (await Promise.all(["src", "gen"].map((name) => filesBelow(path.join(root, name))))).flat();
}

export async function buildAll() {
  const all = await sources();
  const print = await fingerprint(all);
  const files = all.filter((file) => !isPage(file));
  // Built beside the old one and swapped in whole: whoever runs from dist/ meanwhile never finds half of it.
  const fresh = `${dist}.${process.pid}`;
  // Loaded only to build: a start from an up-to-date dist/ does not wait for Vite.
  const { buildPage } = await import("./build-page.mjs");
  await Promise.all([buildServer(files, fresh), buildPage(root, path.join(fresh, "page"))]);
  await writeFile(path.join(fresh, "build.json"), JSON.stringify({ fingerprint: print }));
  const old = `${dist}.old.${process.pid}`;
  await rename(dist, old).catch(() => undefined); // there was none
  await rename(fresh, dist);
  await rm(old, { recursive: true, force: true });
}

async function buildServer(files, outdir) {
  await build({
    entryPoints: files.filter(isCode),
    outdir,
    outbase: root,
    format: "esm",
    platform: "node",
    target: "node20",
    sourcemap: "linked",
    logLevel: "warning",
  });
  for (const file of files.filter(isAsset)) {
    const target = path.join(outdir, path.relative(root, file));
    await mkdir(path.dirname(target), { recursive: true });
    await copyFile(file, target);
  }
}

/** True when it built. A container image without sources runs what it has. */
export async function buildIfStale() {
  const files = await sources().catch(() => undefined);
  if (!files) return false;
  const built = await readFile(stamp, "utf8").then(JSON.parse, () => undefined);
  if (built?.fingerprint === (await fingerprint(files))) return false;
  await buildAll();
  return true;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await buildAll();
