/**
 * The page's files over HTTP: read once, kept in memory with their compressed forms, served with the headers that let a
 * browser keep what cannot change and run nothing that is not ours.
 */
import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import path from "node:path";
import { brotliCompressSync, gzipSync } from "node:zlib";
import type { EdgeHandler, EdgeRequest, EdgeResponse } from "./listener.js";

/** What the page is told about the service that serves it; public. */
export interface PageConfig {
  /** Which log carries the running turns, for people. */
  readonly log: string;
  /** Which database keeps the rest, for people. */
  readonly store: string;
  /** "token": callers present a bearer token. "none": everybody on this machine is the local user. */
  readonly auth: "token" | "none";
}

export interface PageOptions {
  /** The built page: index.html and what it loads. */
  readonly folder: string;
  readonly config: PageConfig;
}

interface StoredFile {
  readonly type: string;
  readonly cacheControl: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly etag: string;
  /** By content-encoding; "" is the plain form. */
  readonly forms: ReadonlyMap<string, Buffer>;
}

const INDEX = "index.html";
const CONFIG_SLOT = "%TURNWIRE_CONFIG%";
/** Compressed forms beside a file: suffix and the encoding's name, best first. */
const ENCODINGS = [
  { name: "br", suffix: ".br" },
  { name: "gzip", suffix: ".gz" },
] as const;

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".json": "application/json",
  ".woff2": "font/woff2",
  ".webmanifest": "application/manifest+json",
};

/** Nothing from elsewhere, nothing inline, no frames: what a model or a document says can never become code. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "worker-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "font-src 'self'",
  "connect-src 'self'",
  "manifest-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const DOCUMENT_HEADERS = {
  "content-security-policy": CONTENT_SECURITY_POLICY,
  "cross-origin-opener-policy": "same-origin",
  "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
};

/** Reads the page. A folder that is not there gives a handler that says how to build it. */
export async function loadPage(options: PageOptions): Promise<EdgeHandler> {
  const files = await readFiles(options);
  return (request, response) => {
    const name = fileName(request.url ?? "");
    const file = name === undefined ? undefined : files.get(name);
    if (request.method !== "GET" && request.method !== "HEAD") {
      response.setHeader("allow", "GET, HEAD");
      writeLine(request, response, 405, "only GET and HEAD");
    } else if (file) {
      writeFile(request, response, file);
    } else {
      const built = files.size > 0;
      writeLine(request, response, 404, built ? "not found" : "the page is not built: npm run build");
    }
  };
}

async function readFiles(options: PageOptions): Promise<ReadonlyMap<string, StoredFile>> {
  const names = await readdir(options.folder, { recursive: true }).catch(() => []);
  const files = new Map<string, StoredFile>();
  for (const raw of names) {
    const name = raw.split(path.sep).join("/");
    const type = TYPES[path.extname(name)];
    if (!type) continue; // a folder, or a compressed form, read with its file
    const content = await readFile(path.join(options.folder, name));
    files.set(
      name,
      name === INDEX
        ? storeIndex(content, type, options.config)
        : storeFile(name, content, type, await readForms(path.join(options.folder, name))),
    );
  }
  return files;
}

function storeIndex(content: Buffer, type: string, config: PageConfig): StoredFile {
  const text = content.toString("utf8").replace(CONFIG_SLOT, () => escapeAttribute(JSON.stringify(config)));
  const bytes = Buffer.from(text, "utf8");
  const forms = new Map([
    ["", bytes],
    ["br", brotliCompressSync(bytes)],
    ["gzip", gzipSync(bytes)],
  ]);
  return { type, cacheControl: "no-cache", headers: DOCUMENT_HEADERS, etag: etagOf(bytes), forms };
}

function storeFile(
  name: string,
  content: Buffer,
  type: string,
  compressed: ReadonlyMap<string, Buffer>,
): StoredFile {
  return {
    type,
    // names below assets/ carry a hash of the content
    cacheControl: name.startsWith("assets/") ? "public, max-age=31536000, immutable" : "no-cache",
    // a worker obeys the policy of its own response, not that of the page
    headers: { "content-security-policy": CONTENT_SECURITY_POLICY },
    etag: etagOf(content),
    forms: new Map([["", content], ...compressed]),
  };
}

async function readForms(file: string): Promise<ReadonlyMap<string, Buffer>> {
  const forms = new Map<string, Buffer>();
  for (const { name, suffix } of ENCODINGS) {
    const content = await readFile(file + suffix).catch(() => undefined); // small or incompressible files have none
    if (content) forms.set(name, content);
  }
  return forms;
}

/** The file that a path names; undefined for paths that cannot be decoded. */
function fileName(url: string): string | undefined {
  const pathname = url.split(/[?#]/, 1)[0]!;
  if (pathname === "/") return INDEX;
  try {
    return decodeURIComponent(pathname.slice(1));
  } catch {
    return undefined; // a broken escape
  }
}

function writeFile(request: EdgeRequest, response: EdgeResponse, file: StoredFile): void {
  const accepted = acceptedEncodings(request.headers["accept-encoding"]);
  const encoding = ENCODINGS.map(({ name }) => name).find(
    (name) => accepted.has(name) && file.forms.has(name),
  );
  const etag = encoding ? `"${file.etag}-${encoding}"` : `"${file.etag}"`;
  for (const [name, value] of Object.entries(file.headers)) response.setHeader(name, value);
  response.setHeader("cache-control", file.cacheControl);
  response.setHeader("etag", etag);
  response.setHeader("vary", "Origin, Accept-Encoding");
  if (matches(request.headers["if-none-match"], etag)) {
    response.writeHead(304);
    response.end();
    return;
  }
  const body = file.forms.get(encoding ?? "")!;
  response.setHeader("content-type", file.type);
  response.setHeader("content-length", body.length);
  if (encoding) response.setHeader("content-encoding", encoding);
  response.writeHead(200);
  finish(request, response, body);
}

function acceptedEncodings(header: string | string[] | undefined): ReadonlySet<string> {
  const parts = String(header ?? "").split(",");
  return new Set(
    parts
      .map((part) => part.trim().toLowerCase())
      .filter((part) => !/;\s*q=0(\.0*)?$/.test(part))
      .map((part) => part.split(";", 1)[0]!),
  );
}

function matches(header: string | undefined, etag: string): boolean {
  return (header ?? "").split(",").some((part) => part.trim().replace(/^W\//, "") === etag);
}

function writeLine(request: EdgeRequest, response: EdgeResponse, status: number, text: string): void {
  const body = Buffer.from(`${text}\n`);
  if (request.httpVersionMajor === 1 && !request.complete) response.setHeader("connection", "close");
  response.setHeader("cache-control", "no-store");
  response.setHeader("content-type", "text/plain; charset=utf-8");
  response.setHeader("content-length", body.length);
  response.writeHead(status);
  finish(request, response, body);
}

function finish(request: EdgeRequest, response: EdgeResponse, body: Buffer): void {
  // both kinds of response take an optional last chunk
  (response as { end(chunk?: Buffer): unknown }).end(request.method === "HEAD" ? undefined : body);
}

function etagOf(content: Buffer): string {
  return createHash("sha256").update(content).digest("base64url").slice(0, 22);
}

function escapeAttribute(text: string): string {
  return text.replace(/[&"<>]/g, (char) => `&#${char.charCodeAt(0)};`);
}
