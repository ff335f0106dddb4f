/**
 * Builds the page (src/web) into a folder, and beside each file its brotli and gzip form, so that serving compresses nothing.
 * Names of assets carry a hash of their content.
 */
import { build } from "vite";
import { readdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import zlib from "node:zlib";
import { sharedWorker, withoutValidationRules } from "./page-plugins.mjs";

const brotli = promisify(zlib.brotliCompress);
const gzip = promisify(zlib.gzip);
const COMPRESSIBLE = /\.(js|css|svg|json)$/;

/** @param root the repository; @param outDir where the page goes, emptied first. */
export async function buildPage(root, outDir) {
  const { version } = JSON.parse(await readFile(path.join(root, "package.json"), "utf8"));
  await forProduction(() => bundle(root, outDir, version));
  const files = await readdir(outDir, { recursive: true });
  await Promise.all(
    files.filter((name) => COMPRESSIBLE.test(name)).map((name) => compress(path.join(outDir, name))),
  );
}

function bundle(root, outDir, version) {
  return build({
    root: path.join(root, "src/web"),
    define: { __TURNWIRE_VERSION__: JSON.stringify(version) },
    configFile: false,
    logLevel: "warn",
    // Modules, chunks and workers of one origin; nothing inline, so that the content security policy can forbid it.
    build: {
      outDir,
      emptyOutDir: true,
      assetsDir: "assets",
      assetsInlineLimit: 0,
      target: "es2022",
      modulePreload: { polyfill: false },
      reportCompressedSize: false,
      rolldownOptions: { checks: { pluginTimings: false } },
    },
    oxc: { jsx: { runtime: "automatic" } },
    plugins: [withoutValidationRules(), sharedWorker(path.join(root, "src/web/data/hub-worker.ts"))],
  });
}

/**
 * The page is built for production, whatever the shell says. NODE_ENV is the whole process's: what is started later
 * (`npm ci` of a test, say) must not inherit it.
 */
async function forProduction(action) {
  const before = process.env.NODE_ENV;
  process.env.NODE_ENV = "production";
  try {
    await action();
  } finally {
    if (before === undefined) delete process.env.NODE_ENV;
    else process.env.NODE_ENV = before;
  }
}

async function compress(file) {
  const content = await readFile(file);
  const params = {
    [zlib.constants.BROTLI_PARAM_QUALITY]: 9,
    [zlib.constants.BROTLI_PARAM_SIZE_HINT]: content.length,
  };
  const [br, gz] = await Promise.all([brotli(content, { params }), gzip(content, { level: 9 })]);
  await Promise.all([writeFile(`${file}.br`, br), writeFile(`${file}.gz`, gz)]);
}
