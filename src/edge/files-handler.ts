/**
 * Files over plain HTTP: `PUT /files/{upload_id}` stores the body as a file, `GET /files/{file_id}` gives one back.
 *
 * H1 who calls is settled before the body is read; another user's file and none are the same answer.
 * H2 a file is data, never a page of this origin: it leaves as an attachment, sandboxed, and with the type it came with.
 * H3 the body goes through in parts of one MiB. A PUT that broke off can be sent again, whole: what is stored is compared.
 * H4 who neither sends nor takes anything for STALL_MS is cut off.
 */
import { toJsonString } from "@bufbuild/protobuf";
import { codeToHttpStatus } from "@connectrpc/connect/protocol-connect";
import type { ServerResponse } from "node:http";
import { FileSchema } from "../../gen/turnwire/chat/v1/types_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { viewFile } from "../files/file-service.js";
import type { FileReads, Uploads } from "../files/uploads.js";
import { errorCodeName, TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import { Admission } from "../lib/rpc/admission.js";
import type { Authenticate, Principal } from "../lib/rpc/service-binding.js";
import type { FileRow } from "../store/store.js";
import { parseRange, type ByteRange } from "./byte-range.js";
import { noneMatchFails, rangeApplies } from "./conditional.js";
import type { EdgeHandler, EdgeRequest, EdgeResponse } from "./listener.js";
import { reset, takeRest } from "./response-writer.js";

export interface FilesHandlerOptions {
  readonly uploads: Uploads;
  readonly reads: FileReads;
  readonly authenticate: Authenticate;
  readonly logger: Logger;
}

const ID = /^[A-Za-z0-9_.:-]{1,128}$/;
const PART_BYTES = 1024 * 1024;
const STALL_MS = 30_000;
const REST_GRACE_MS = 2_000;
/** Transfers at once, in all and of one user. */
const LIMITS = { maxCalls: 64, maxCallsPerPrincipal: 16 };

/** Handles every path below /files/. */
export function createFilesHandler(options: FilesHandlerOptions): EdgeHandler {
  const admission = new Admission(LIMITS);
  return (request, response) => {
    void serve(options, admission, request, response).catch((thrown: unknown) => {
      const error = TurnError.from(thrown);
      if (error.code === ErrorCode.INTERNAL)
        options.logger.error({ err: error.cause ?? error }, "a file transfer failed");
      else if (error.code === ErrorCode.CANCELLED) options.logger.debug("an upload broke off");
      if (response.headersSent || response.destroyed) reset(response);
      else void writeError(response, error);
    });
  };
}

async function serve(
  { uploads, reads, authenticate }: FilesHandlerOptions,
  admission: Admission,
  request: EdgeRequest,
  response: EdgeResponse,
): Promise<void> {
  const principal = await authenticate({
    get: (name) => {
      const value = request.headers[name];
      return Array.isArray(value) ? value[0] : value;
    },
  });
  const target = request.url ?? "";
  const url = new URL(target, "http://localhost");
  // The path as it was sent: one with dot segments names no file.
  const id = decodePath(target.split("?", 1)[0]!.slice("/files/".length));
  const leave = admission.enter(principal);
  response.setTimeout(STALL_MS, () => reset(response));
  try {
    if (request.method === "PUT") return await put(uploads, principal, id, url, request, response);
    if (request.method === "GET" || request.method === "HEAD")
      return await get(reads, principal, id, request, response);
    response.setHeader("allow", "GET, HEAD, PUT");
    writeText(response, 405, "text/plain; charset=utf-8", "GET, HEAD or PUT is needed\n");
  } finally {
    leave();
  }
}

async function put(
  uploads: Uploads,
  principal: Principal,
  uploadId: string,
  url: URL,
  request: EdgeRequest,
  response: EdgeResponse,
): Promise<void> {
  const length = request.headers["content-length"];
  if (length !== undefined && Number(length) > uploads.maxFileBytes)
    throw new TurnError(ErrorCode.SIZE_LIMIT, {
      message: `a file may have at most ${Math.floor(uploads.maxFileBytes / PART_BYTES)} MiB`,
    });
  const encoding = request.headers["content-encoding"] ?? "identity";
  if (encoding !== "identity")
    throw new TurnError(ErrorCode.INVALID_ARGUMENT, { message: "send the file without a Content-Encoding" });
  const about = {
    uploadId,
    name: readName(url.searchParams.get("name") ?? ""),
    mediaType: (request.headers["content-type"] ?? "").slice(0, 255),
    sessionId: url.searchParams.get("session_id") ?? "",
  };
  let offset = 0;
  let file: FileRow | undefined;
  for await (const { data, last } of partsOf(request)) {
    ({ file } = await uploads.append(principal, { ...about, offset, data, last }));
    offset += data.length;
  }
  writeText(response, 200, "application/json", toJsonString(FileSchema, viewFile(file!)));
}

/** The body in parts of PART_BYTES; the last one, which may be empty, is marked. A body cut short throws. */
async function* partsOf(request: EdgeRequest): AsyncGenerator<{ data: Uint8Array; last: boolean }> {
  let held: Buffer[] = [];
  let size = 0;
  for await (const chunk of bodyOf(request)) {
    held.push(chunk);
    size += chunk.length;
    while (size > PART_BYTES) {
      const all = Buffer.concat(held);
      yield { data: all.subarray(0, PART_BYTES), last: false };
      held = [all.subarray(PART_BYTES)];
      size -= PART_BYTES;
    }
  }
  yield { data: Buffer.concat(held), last: true };
}

/** The body as it comes. One that the client breaks off is CANCELLED. */
async function* bodyOf(request: EdgeRequest): AsyncGenerator<Buffer> {
  const brokeOff = (cause?: unknown): TurnError =>
    new TurnError(ErrorCode.CANCELLED, { message: "the upload broke off", cause });
  try {
    yield* request as AsyncIterable<Buffer>;
  } catch (error) {
    throw brokeOff(error);
  }
  if (!request.complete) throw brokeOff();
}

async function get(
  reads: FileReads,
  principal: Principal,
  fileId: string,
  request: EdgeRequest,
  response: EdgeResponse,
): Promise<void> {
  const file = await reads.getFile(principal, fileId);
  if (!file) throw new TurnError(ErrorCode.NOT_FOUND, { message: "no such file" });
  const size = Number(file.sizeBytes);
  const etag = `"${file.sha256}"`;
  setFileHeaders(response, file, etag);
  if (noneMatchFails(request.headers["if-none-match"], etag)) return writeText(response, 304, undefined, "");
  const ifRange = request.headers["if-range"] as string | undefined; // Node keeps one or joins them
  const range = rangeApplies(ifRange, etag) ? parseRange(request.headers.range, size) : undefined;
  if (range === "unsatisfiable") {
    response.setHeader("content-range", `bytes */${size}`);
    return writeText(response, 416, "text/plain; charset=utf-8", "the file has no such bytes\n");
  }
  const { start, end } = range ?? { start: 0, end: size };
  if (range) response.setHeader("content-range", `bytes ${start}-${end - 1}/${size}`);
  response.setHeader("content-length", end - start);
  response.writeHead(range ? 206 : 200);
  if (request.method !== "HEAD") await writeBytes(reads, principal, fileId, { start, end }, response);
  (response as ServerResponse).end();
}

/** H2. */
function setFileHeaders(response: EdgeResponse, file: FileRow, etag: string): void {
  const plain = file.name.replace(/[^A-Za-z0-9._ -]/g, "_");
  const headers: Record<string, string> = {
    "content-type": /^[\x20-\x7e]+$/.test(file.mediaType) ? file.mediaType : "application/octet-stream",
    "content-disposition": `attachment; filename="${plain}"; filename*=UTF-8''${encodeName(file.name)}`,
    "content-security-policy": "sandbox; default-src 'none'",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "private, no-cache",
    "accept-ranges": "bytes",
    etag,
  };
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
}

async function writeBytes(
  reads: FileReads,
  principal: Principal,
  fileId: string,
  { start, end }: ByteRange,
  response: EdgeResponse,
): Promise<void> {
  let left = end - start;
  for await (const part of reads.readFile(principal, fileId, BigInt(start))) {
    if (left <= 0 || isGone(response)) return;
    const data = part.subarray(0, left);
    left -= data.length;
    if (!(response as ServerResponse).write(data)) await taken(response);
  }
}

/** Resolves when there is room again, or nobody takes anything any more. */
function taken(response: EdgeResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      response.off("drain", done).off("close", done);
      resolve();
    };
    response.on("drain", done).on("close", done);
    if (isGone(response)) done();
  });
}

function isGone(response: EdgeResponse): boolean {
  return "stream" in response ? !response.stream || response.stream.destroyed : response.destroyed;
}

function decodePath(path: string): string {
  let id = "";
  try {
    id = decodeURIComponent(path);
  } catch {
    // not percent-encoded: no id either
  }
  if (ID.test(id)) return id;
  throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
    message: "the path is /files/ and an id of at most 128 of A-Z, a-z, 0-9, _ . : -",
  });
}

function readName(name: string): string {
  if (Buffer.byteLength(name) <= 255 && !/[\u0000-\u001f\u007f]/.test(name)) return name;
  throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
    message: "name: at most 255 bytes without control characters",
  });
}

function encodeName(name: string): string {
  return encodeURIComponent(name).replace(
    /['()*!]/g,
    (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

async function writeError(response: EdgeResponse, error: TurnError): Promise<void> {
  const status = error.code === ErrorCode.SIZE_LIMIT ? 413 : codeToHttpStatus(error.status);
  if (status === 401) response.setHeader("www-authenticate", "Bearer");
  const body = JSON.stringify({ code: errorCodeName(error.code), message: error.message, ...error.details });
  if (!("stream" in response) && !response.req.complete) response.setHeader("connection", "close");
  response.setHeader("content-type", "application/json");
  response.writeHead(status);
  (response as ServerResponse).write(`${body}\n`);
  await takeRest(response, REST_GRACE_MS);
  (response as ServerResponse).end();
}

function writeText(
  response: EdgeResponse,
  status: number,
  contentType: string | undefined,
  text: string,
): void {
  if (contentType) response.setHeader("content-type", contentType);
  if (status !== 304) response.setHeader("content-length", Buffer.byteLength(text));
  response.writeHead(status);
  (response as ServerResponse).end(text);
}
