/** Bundles the harness and serves it on a free port of 127.0.0.1. */
import http from "node:http";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const folder = path.dirname(fileURLToPath(import.meta.url));
const PAGE = `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Turn</title>
<link rel="icon" href="data:,"><link rel="stylesheet" href="/harness.css"></head>
<body><main id="root"></main><script type="module" src="/harness.js"></script></body></html>`;
const TYPES = { ".js": "text/javascript", ".css": "text/css" };

/** Returns { origin, close }. */
export async function serveHarness() {
  const { outputFiles } = await build({
    entryPoints: [path.join(folder, "harness.tsx")],
    bundle: true,
    write: false,
    outdir: "/",
    format: "esm",
    target: "es2022",
    jsx: "automatic",
    minify: true,
    define: { "process.env.NODE_ENV": '"production"' },
  });
  const files = new Map(outputFiles.map(({ path: name, contents }) => [`/${path.basename(name)}`, contents]));
  const server = http.createServer((request, response) => {
    const file = files.get(request.url);
    response.setHeader(
      "content-type",
      `${file ? TYPES[path.extname(request.url)] : "text/html"}; charset=utf-8`,
    );
    response.end(file ?? PAGE);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    origin: `http://127.0.0.1:${server.address().port}`,
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}
