/**
 * Writes connect's response to Node's, with the guards that Node and connect-node lack: a blocked writer learns that its
 * client left, a stalled reader is cut, and a response that was ended cannot hang behind data that nobody takes.
 */
import type { UniversalServerResponse } from "@connectrpc/connect/protocol";
import type { ServerResponse } from "node:http";
import type { Http2ServerResponse } from "node:http2";
import { constants } from "node:http2";
import type { CallScope } from "../lib/rpc/call-scope.js";
import { FrameWriter } from "../lib/rpc/frame-writer.js";
import type { ServerLimits } from "../lib/rpc/limits.js";
import { recodeGrpcMessage } from "./grpc-message.js";
import type { EdgeRequest, EdgeResponse } from "./listener.js";

/** Resolves when the response is closed. Never rejects: a failure resets the stream. */
export async function writeResponse(
  answer: UniversalServerResponse,
  response: EdgeResponse,
  scope: CallScope,
  limits: Pick<ServerLimits, "maxBufferedBytes" | "stallMs" | "cutGraceMs">,
): Promise<void> {
  const writer = new FrameWriter({
    ...limits,
    signal: scope.signal,
    write: (bytes, taken) => {
      (response as ServerResponse).write(bytes, (error) => (error ? scope.clientLeft() : taken()));
    },
    onStall: (facts) => scope.readerStalled(facts),
  });
  const stopGuard = resetWhenStuck(response, scope, limits.cutGraceMs);
  try {
    await writeBody(answer, response, writer, scope);
    if (!scope.signal.aborted) await writer.drained();
    if (answer.trailer) addTrailers(answer.trailer, response);
    await takeRest(response, limits.cutGraceMs);
    await ended(response);
  } catch {
    reset(response); // the client left, or the response can no longer be written: nobody can be told
  } finally {
    stopGuard();
    writer.close();
  }
}

/** Ends a response without a status: RST_STREAM, or the end of the HTTP/1.1 connection. */
export function reset(response: EdgeResponse): void {
  if ("stream" in response) response.stream?.close(constants.NGHTTP2_CANCEL);
  else response.destroy();
}

/**
 * Ends an HTTP/2 stream whose answer is complete and whose request is not: the rest of it is not wanted (RFC 9113, 8.1).
 * Node does so itself when nothing of the request was read. Not at once, or the reset would overtake the answer.
 */
export function refuseRest(request: EdgeRequest, response: EdgeResponse): void {
  if (!("stream" in response) || request.complete || !request.readableDidRead) return;
  const { stream } = response;
  const timer = setTimeout(() => stream.close(constants.NGHTTP2_NO_ERROR), REST_GRACE_MS);
  stream.once("close", () => clearTimeout(timer));
}

const REST_GRACE_MS = 500;

/**
 * Takes and drops what an HTTP/1.1 client is still sending, for a while, before its response ends: a connection that is
 * closed on unread data is reset, and the answer may be lost with it.
 */
export async function takeRest(response: EdgeResponse, graceMs: number): Promise<void> {
  if ("stream" in response || response.req.complete || response.destroyed) return;
  const request = response.req;
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, graceMs);
    const done = (): void => {
      clearTimeout(timer);
      resolve();
    };
    request.once("end", done).once("close", done);
    request.resume();
  });
}

async function writeBody(
  answer: UniversalServerResponse,
  response: EdgeResponse,
  writer: FrameWriter,
  scope: CallScope,
): Promise<void> {
  if (!answer.body) {
    writeHead(answer, response);
    return;
  }
  const chunks = answer.body[Symbol.asyncIterator]();
  try {
    // Headers leave with the first chunk: until then the implementation may set them.
    let next = await chunks.next();
    writeHead(answer, response);
    for (; next.done !== true; next = await chunks.next()) {
      if (isGone(response)) {
        scope.clientLeft();
        return;
      }
      const room = writer.write(next.value);
      if (room) await room;
    }
  } finally {
    void Promise.resolve(chunks.return?.()).catch(() => undefined); // it is over either way
  }
}

function writeHead(answer: UniversalServerResponse, response: EdgeResponse): void {
  if (isGone(response)) throw new Error("the client left");
  answer.header?.forEach((value, name) => response.setHeader(name, value));
  if (!("stream" in response) && !response.req.complete) response.setHeader("connection", "close");
  response.writeHead(answer.status);
}

/** Sets what follows the body; a gRPC message in the specification's own encoding. */
export function addTrailers(trailer: Headers, response: EdgeResponse): void {
  const fields: Record<string, string> = {};
  trailer.forEach(
    (value, name) => (fields[name] = name === "grpc-message" ? recodeGrpcMessage(value) : value),
  );
  response.addTrailers(fields);
}

function ended(response: EdgeResponse): Promise<void> {
  if (isGone(response)) return Promise.resolve();
  return new Promise((resolve) => {
    response.once("close", resolve);
    (response as ServerResponse).end(resolve); // 'finish' of an HTTP/2 response waits for the request too, this does not
  });
}

function isGone(response: EdgeResponse): boolean {
  return "stream" in response ? isStreamGone(response) : response.destroyed;
}

function isStreamGone(response: Http2ServerResponse): boolean {
  return !response.stream || response.stream.destroyed || response.stream.closed;
}

/** Once the call is aborted its status may take `graceMs` to leave; behind data that nobody takes it never would. */
function resetWhenStuck(response: EdgeResponse, scope: CallScope, graceMs: number): () => void {
  let timer: NodeJS.Timeout | undefined;
  const onAbort = (): void => {
    timer ??= setTimeout(() => reset(response), graceMs);
  };
  scope.signal.addEventListener("abort", onAbort, { once: true });
  if (scope.signal.aborted) onAbort();
  return () => {
    clearTimeout(timer);
    scope.signal.removeEventListener("abort", onAbort);
  };
}
