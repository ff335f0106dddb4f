/**
 * Reads the one request message of a unary or server-streaming RPC before connect does, in bounded time, and refuses what
 * cannot be decoded or breaks a rule with a typed error that names the field. Connect alone would answer broken bytes
 * INTERNAL, replace broken UTF-8 silently and wait for a slow body for ever. Whatever is not a whole message of a known
 * encoding is handed on as it came: connect's own checks answer it.
 */
import type { DescMethod, JsonReadOptions } from "@bufbuild/protobuf";
import { fromJsonString } from "@bufbuild/protobuf";
import type { Compression } from "@connectrpc/connect/protocol";
import type { Readable } from "node:stream";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import { decodeRequest, invalidFields, validateRequest } from "../lib/rpc/validation.js";
import type { EdgeRequest } from "./listener.js";
import { dialectOf } from "./rpc-error-response.js";

export interface GateOptions {
  readonly maxReceiveBytes: number;
  /** Time for the whole request message to arrive, ms. */
  readonly bodyTimeoutMs: number;
  readonly compressions: readonly Compression[];
  readonly jsonOptions?: Partial<JsonReadOptions>;
  readonly signal: AbortSignal;
}

/** The body for connect: what was read, then what was not. Throws INVALID_ARGUMENT, or DEADLINE_EXCEEDED for a slow body. */
export async function passGate(
  request: EdgeRequest,
  method: DescMethod,
  options: GateOptions,
): Promise<AsyncIterable<Uint8Array>> {
  const body = await readBody(request, options);
  const message = body.whole ? await messageOf(request, body.bytes, options) : undefined;
  if (message)
    validateRequest(
      method.input,
      message.json ? decodeJson(method, message.bytes, options) : decodeRequest(method.input, message.bytes),
    );
  return replay(body.bytes, body.whole ? undefined : chunksOf(request));
}

/** The same checks for the message in a Connect GET's query. */
export async function checkQuery(url: string, method: DescMethod, options: GateOptions): Promise<void> {
  const query = new URL(url, "http://host").searchParams;
  const raw = query.get("message") ?? "";
  const bytes = query.get("base64") === "1" ? Buffer.from(raw, "base64url") : Buffer.from(raw);
  const plain = await decompress(bytes, query.get("compression"), options);
  if (!plain) return;
  const encoding = query.get("encoding");
  if (encoding === "proto") validateRequest(method.input, decodeRequest(method.input, plain));
  if (encoding === "json") validateRequest(method.input, decodeJson(method, plain, options));
}

interface Body {
  readonly bytes: Buffer;
  /** False when reading stopped at the limit. */
  readonly whole: boolean;
}

async function readBody(request: EdgeRequest, options: GateOptions): Promise<Body> {
  const chunks: Buffer[] = [];
  let size = 0;
  let failure: unknown;
  const timer = setTimeout(() => {
    failure = new TurnError(ErrorCode.DEADLINE_EXCEEDED, { message: "the request took too long to arrive" });
    onAbort();
  }, options.bodyTimeoutMs);
  let abandon: ((reason: unknown) => void) | undefined;
  const abandoned = new Promise<never>((_, reject) => (abandon = reject));
  abandoned.catch(() => undefined);
  const onAbort = (): void => abandon?.(failure ?? options.signal.reason);
  options.signal.addEventListener("abort", onAbort);
  const iterator = chunksOf(request);
  try {
    while (size <= options.maxReceiveBytes + 5) {
      const next = await Promise.race([iterator.next(), abandoned]);
      if (next.done) return { bytes: Buffer.concat(chunks), whole: true };
      chunks.push(next.value);
      size += next.value.length;
      if (declaredLength(chunks[0]!, request) > options.maxReceiveBytes) break; // connect refuses it unread
    }
    await iterator.return?.();
    return { bytes: Buffer.concat(chunks), whole: false };
  } catch (thrown) {
    throw (
      failure ??
      (options.signal.aborted ? options.signal.reason : new TurnError(ErrorCode.CANCELLED, { cause: thrown }))
    );
  } finally {
    clearTimeout(timer);
    options.signal.removeEventListener("abort", onAbort);
  }
}

/** What is left of a body. Leaving the loop leaves the request alone: destroying it would take the response along. */
export function chunksOf(request: EdgeRequest): AsyncIterableIterator<Buffer> {
  return (request as Readable).iterator({ destroyOnReturn: false }) as AsyncIterableIterator<Buffer>;
}

function declaredLength(first: Buffer, request: EdgeRequest): number {
  return dialectOf(request) === "connect-unary" || first.length < 5 ? 0 : first.readUInt32BE(1);
}

interface EncodedMessage {
  readonly bytes: Uint8Array;
  readonly json: boolean;
}

/** The one message of a body, decompressed; undefined when connect shall judge. */
async function messageOf(
  request: EdgeRequest,
  body: Buffer,
  options: GateOptions,
): Promise<EncodedMessage | undefined> {
  const dialect = dialectOf(request);
  const type = (request.headers["content-type"] ?? "").toLowerCase();
  const json = /[/+]json(;|$)/.test(type.trim());
  if (!json && !/[/+]proto(;|$)|^application\/grpc(-web)?(;|$)/.test(type.trim())) return undefined;
  if (dialect === "connect-unary") {
    const bytes = await decompress(body, headerOf(request, "content-encoding"), options);
    return bytes && { bytes, json };
  }
  if (body.length < 5 || body.readUInt32BE(1) !== body.length - 5) return undefined;
  const flags = body[0]!;
  if (flags > 1) return undefined;
  const encoding = headerOf(
    request,
    dialect === "connect-stream" ? "connect-content-encoding" : "grpc-encoding",
  );
  const known =
    !encoding || encoding === "identity" || options.compressions.some(({ name }) => name === encoding);
  if (!known || (flags === 1 && (encoding ?? "identity") === "identity")) return undefined;
  const bytes = flags === 1 ? await decompress(body.subarray(5), encoding, options) : body.subarray(5);
  return bytes && { bytes, json };
}

async function decompress(
  bytes: Uint8Array,
  encoding: string | null | undefined,
  options: GateOptions,
): Promise<Uint8Array | undefined> {
  if (!encoding || encoding === "identity") return bytes;
  const compression = options.compressions.find((candidate) => candidate.name === encoding);
  if (!compression) return undefined;
  try {
    return await compression.decompress(bytes, options.maxReceiveBytes);
  } catch {
    return undefined; // connect meets the same failure and says it
  }
}

const strictUtf8 = new TextDecoder("utf-8", { fatal: true });

function decodeJson(
  method: DescMethod,
  bytes: Uint8Array,
  options: GateOptions,
): ReturnType<typeof decodeRequest> {
  let text: string;
  try {
    text = strictUtf8.decode(bytes);
  } catch (cause) {
    throw new TurnError(ErrorCode.INVALID_ARGUMENT, { message: "the request is not UTF-8", cause });
  }
  try {
    return fromJsonString(method.input, text, { ignoreUnknownFields: false, ...options.jsonOptions });
  } catch (cause) {
    throw jsonProblem(cause instanceof Error ? cause.message : "", method);
  }
}

/** The library's message names types and fields, and quotes short values of the request: only its field is passed on. */
function jsonProblem(message: string, method: DescMethod): TurnError {
  const unknown = /key "([^"]{1,128})" is unknown/.exec(message);
  if (unknown)
    return invalidFields([{ field: unknown[1]!, description: `no such field in ${method.input.typeName}` }]);
  const field = /cannot decode (?:field|oneof) (\S+) from JSON/.exec(message)?.[1];
  const name = field?.slice(field.lastIndexOf(".") + 1);
  if (name) return invalidFields([{ field: name, description: "its JSON value is not of the field's type" }]);
  return new TurnError(ErrorCode.INVALID_ARGUMENT, {
    message: `the request is not valid JSON for ${method.input.typeName}`,
  });
}

async function* replay(
  head: Buffer,
  rest: AsyncIterable<Uint8Array> | undefined,
): AsyncGenerator<Uint8Array> {
  if (head.length > 0) yield head;
  if (rest) yield* rest;
}

function headerOf(request: EdgeRequest, name: string): string | undefined {
  const value = request.headers[name];
  return Array.isArray(value) ? value[0] : value;
}
