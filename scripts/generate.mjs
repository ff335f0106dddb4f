/**
 * Makes everything that is made from the proto files: TypeScript under gen/ and the page docs/contract.md.
 *
 *   node scripts/generate.mjs           writes them
 *   node scripts/generate.mjs --check   writes nothing; fails and names the files that are stale
 *
 * buf writes into a temporary folder first. Only files that differ are then replaced, so a program that reads gen/
 * meanwhile never finds it empty.
 */
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { writeContractPage } from "./generate-contract-docs.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const check = process.argv.includes("--check");

/** Paths of the files below a folder, relative to it. */
function filesBelow(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)));
}

function sameContent(a, b) {
  return existsSync(a) && existsSync(b) && readFileSync(a).equals(readFileSync(b));
}

function buf(...args) {
  execFileSync("npx", ["buf", ...args], { cwd: root, stdio: ["ignore", "inherit", "inherit"] });
}

let written = 0;
function writeChanged(paths) {
  for (const path of paths.filter((each) => !sameContent(join(scratch, each), join(root, each)))) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    cpSync(join(scratch, path), join(root, path));
    written++;
  }
}

const scratch = mkdtempSync(join(tmpdir(), "turnwire-generate-"));
try {
  buf("generate", "-o", scratch);
  if (!check) writeChanged(filesBelow(join(scratch, "gen")).map((path) => join("gen", path)));
  // The page is made with the types of gen/, which are fresh by now, or reported as stale below.
  const imagePath = join(scratch, "contract.binpb");
  buf("build", "-o", imagePath);
  mkdirSync(join(scratch, "docs"));
  await writeContractPage({ root, imagePath, outPath: join(scratch, "docs", "contract.md") });

  const made = [
    ...filesBelow(join(scratch, "gen")).map((path) => join("gen", path)),
    join("docs", "contract.md"),
  ];
  const changed = made.filter((path) => !sameContent(join(scratch, path), join(root, path)));
  const extra = filesBelow(join(root, "gen"))
    .map((path) => join("gen", path))
    .filter((path) => !made.includes(path));

  if (!check) {
    writeChanged(changed);
    for (const path of extra) rmSync(join(root, path));
    console.log(`generated: ${made.length} files, ${written} changed, ${extra.length} removed`);
  } else if (changed.length + extra.length > 0) {
    for (const path of changed) console.error(`stale: ${path}`);
    for (const path of extra) console.error(`made from nothing: ${path}`);
    console.error(
      "\nThe proto files, the error table and what is made from them differ. Run `npm run generate` and commit the result.",
    );
    process.exitCode = 1;
  } else {
    console.log(`generated files are up to date: ${made.length} files`);
  }
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
