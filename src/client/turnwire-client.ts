/**
 * The client of a Turnwire server: sends messages, reads turns to their end over whatever the network does, stops them.
 * Browser-safe: it needs a Connect `Transport`, `crypto.getRandomValues`, `AbortController` and timers, nothing else.
 */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { createClient, type Client, type Transport } from "@connectrpc/connect";
import {
  ChatService,
  DocumentService,
  FileService,
  SendMessageRequestSchema,
  StopTurnRequestSchema,
  type StopTurnResponse,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import type { TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { systemClock, type Clock } from "../lib/clock.js";
import { cancellableStream } from "./cancellable-stream.js";
import { mapErrors } from "./error-transport.js";
import { toClientError } from "./errors.js";
import { newRequestId as randomRequestId } from "./request-id.js";
import { backoffMs, type RetryLimits } from "./resume-policy.js";
import { TurnStream, type StopTarget, type TurnStreamDeps } from "./turn-stream.js";

export interface TurnwireClientOptions {
  /** From @connectrpc/connect-web or connect-node; auth belongs into its interceptors. */
  readonly transport: Transport;
  /** Time, for back-off and watchdog. Default: the system's. */
  readonly clock?: Clock;
  /** How long a stream may be silent before it is opened anew, milliseconds. Default 45,000: three heartbeats. */
  readonly heartbeatTimeoutMs?: number;
  /** Longest wait between two attempts, milliseconds. Default 10,000. */
  readonly maxBackoffMs?: number;
  /** Attempts in a row that bring nothing before a stream is given up. Default: no limit. */
  readonly maxAttempts?: number;
  /** Attempts before a stream is given up if the server has never answered on it. Default 8 (about 10 s). */
  readonly maxFirstAttempts?: number;
  /** Makes request ids. Default: a random UUID. */
  readonly newRequestId?: () => string;
  /** Chance for the back-off, 0..1. Default Math.random. */
  readonly random?: () => number;
  /** Told of each change of a stream's connection, for logs and metrics. Must not throw. */
  readonly onEvent?: TurnStreamDeps["onEvent"];
}

export interface AttachOptions {
  /** Show the packets after this seq. Default: that of `state`, else 0. A state is complete only from 0. */
  readonly afterSeq?: number;
  /** A state to go on from, for example of GetTurn; copied. */
  readonly state?: TurnState;
  /** The log that the cursor belongs to (`stream.logId`); lets the server refuse a cursor of a log that was replaced. */
  readonly logId?: string;
  /** False: read what is there, then end, also if the turn still runs. Default true. */
  readonly follow?: boolean;
  readonly signal?: AbortSignal;
}

export interface TurnwireClient {
  /**
   * Sends a message and reads the turn it starts. Always carries a request_id, so that repeats join the same turn. Nothing
   * is sent before the stream is iterated or its `result()` asked for.
   */
  send(
    request: MessageInitShape<typeof SendMessageRequestSchema>,
    options?: { readonly signal?: AbortSignal },
  ): TurnStream;
  /** Reads a turn that exists, running or ended. */
  attach(turnId: string, options?: AttachOptions): TurnStream;
  /** Stops a turn or one of its lanes; answers once no more content can be appended. Repeats itself when not answered. */
  stop(
    target: StopTarget,
    options?: { readonly modelIndex?: number; readonly signal?: AbortSignal },
  ): Promise<StopTurnResponse>;
  /** A file's bytes, in pieces; leaving the loop cancels the download. */
  downloadFile(
    fileId: string,
    options?: { readonly offset?: bigint; readonly signal?: AbortSignal },
  ): AsyncIterable<Uint8Array>;
  /** Every other RPC of ChatService (sessions, messages, turns, models, tools). Errors are TurnwireClientError. */
  readonly api: Client<typeof ChatService>;
  /** Every RPC of FileService. Errors are TurnwireClientError. */
  readonly files: Client<typeof FileService>;
  /** Every RPC of DocumentService. Errors are TurnwireClientError. */
  readonly documents: Client<typeof DocumentService>;
}

const STOP_ATTEMPTS = 6;

/** Makes a client. It holds no connection of its own and needs no closing: the transport does. */
export function createTurnwireClient(options: TurnwireClientOptions): TurnwireClient {
  const transport = mapErrors(options.transport);
  const api = createClient(ChatService, transport);
  const files = createClient(FileService, transport);
  const clock = options.clock ?? systemClock;
  const random = options.random ?? Math.random;
  const newRequestId = options.newRequestId ?? randomRequestId;
  const limits: RetryLimits = {
    maxBackoffMs: options.maxBackoffMs ?? 10_000,
    maxAttempts: options.maxAttempts ?? Number.POSITIVE_INFINITY,
    maxFirstAttempts: options.maxFirstAttempts ?? 8,
  };

  const stop: TurnwireClient["stop"] = async (target, { modelIndex, signal } = {}) => {
    const request = create(StopTurnRequestSchema, { target: stopTarget(target), modelIndex });
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await api.stopTurn(request, { signal });
      } catch (thrown) {
        const error = toClientError(thrown);
        if (signal?.aborted || !error.retryable || attempt >= STOP_ATTEMPTS) throw error;
        const waitMs = Math.max(error.retryAfterMs, backoffMs(attempt, random(), limits.maxBackoffMs));
        await clock.sleep(waitMs, signal);
      }
    }
  };
  const deps: TurnStreamDeps = {
    api,
    clock,
    random,
    limits,
    stop,
    heartbeatTimeoutMs: options.heartbeatTimeoutMs ?? 45_000,
    onEvent: options.onEvent,
  };

  return {
    api,
    files,
    documents: createClient(DocumentService, transport),
    stop,
    send(request, { signal } = {}) {
      const message = create(SendMessageRequestSchema, request);
      if (!message.requestId) message.requestId = newRequestId();
      return new TurnStream(deps, { kind: "send", request: message }, signal);
    },
    attach(turnId, { afterSeq, state, logId = "", follow = true, signal } = {}) {
      if (state && afterSeq !== undefined && afterSeq !== state.seq) {
        throw new RangeError(`the state stands at seq ${state.seq}, not at ${afterSeq}`);
      }
      const from = afterSeq ?? state?.seq ?? 0;
      return new TurnStream(deps, { kind: "attach", turnId, afterSeq: from, logId, follow, state }, signal);
    },
    downloadFile(fileId, { offset = 0n, signal } = {}) {
      const parts = cancellableStream(
        (abort) => files.downloadFile({ fileId, offset: String(offset) }, { signal: abort }),
        signal,
      );
      return dataOf(parts);
    },
  };
}

async function* dataOf(
  parts: AsyncIterable<{ readonly data: Uint8Array }>,
): AsyncGenerator<Uint8Array, void> {
  for await (const part of parts) yield part.data;
}

function stopTarget(target: StopTarget): MessageInitShape<typeof StopTurnRequestSchema>["target"] {
  if ("turnId" in target) return { case: "turnId", value: target.turnId };
  if ("requestId" in target) return { case: "requestId", value: target.requestId };
  return { case: "sessionId", value: target.sessionId };
}
