/**
 * A ChatService over a real connect-node listener (HTTP/1.1 or cleartext HTTP/2) that serves turns made by hand, and
 * misbehaves on command: each streaming call takes the next behaviour of the script, or is served honestly.
 */
import { createServer, type IncomingMessage } from "node:http";
import {
  createServer as createHttp2Server,
  type Http2ServerRequest,
  type ServerHttp2Session,
} from "node:http2";
import type { AddressInfo, Socket } from "node:net";
import { create, toBinary, type MessageInitShape } from "@bufbuild/protobuf";
import type { Code } from "@connectrpc/connect";
import { ConnectError, createContextKey, createContextValues, type ServiceImpl } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import {
  ChatService,
  ResumeTurnResponseSchema,
  SendDisposition,
  SendMessageResponseSchema,
  SnapshotPolicy,
  type ResumeTurnRequest,
  type ResumeTurnResponse,
  type SendMessageRequest,
  type SendMessageResponse,
  type StopTurnRequest,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import {
  CursorAheadSchema,
  CursorExpiredSchema,
  ErrorDetailSchema,
  LogReplacedSchema,
  SessionBusySchema,
} from "../../gen/turnwire/chat/v1/errors_pb.js";
import { TurnStateSchema, type TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { TurnStatus, type SessionSchema } from "../../gen/turnwire/chat/v1/types_pb.js";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import type { ModelSchema } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { ToolSchema } from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { ERROR_TABLE, errorCodeName, type KnownErrorCode } from "../../src/lib/errors.js";
import { fold } from "../../src/turn/fold.js";
import { stoppedEnd } from "./sample-turn.js";

/** How a connection is broken: the stream alone (HTTP/2: RST_STREAM), or the whole socket. */
export type CutKind = "stream" | "socket";

/** One streaming call that arrived. */
export interface ScriptedCall {
  readonly method: "send" | "resume";
  /** 1, 2, 3 ... over all streaming calls. */
  readonly number: number;
  readonly send?: SendMessageRequest;
  readonly resume?: ResumeTurnRequest;
  readonly headers: Headers;
  readonly httpVersion: string;
  /** Aborts when the client leaves; also after the call has ended. */
  readonly signal: AbortSignal;
  cut(how: CutKind): void;
}

export type StreamResponseMessage = SendMessageResponse | ResumeTurnResponse;
/** What a call answers: gets the honest answer and may pass on as much of it as it likes. */
export type Behaviour = (
  call: ScriptedCall,
  honest: AsyncIterable<StreamResponseMessage>,
) => AsyncIterable<StreamResponseMessage>;

/** A turn whose packets become readable as the test releases them. */
export class ScriptedTurn {
  packets: Packet[];
  #head: number;
  #wake: (() => void)[] = [];

  constructor(
    readonly turnId: string,
    packets: Packet[],
    head = packets.length,
  ) {
    this.packets = packets;
    this.#head = head;
  }

  get head(): number {
    return this.#head;
  }

  get ended(): boolean {
    return this.packets[this.#head - 1]?.payload.case === "overallStop";
  }

  release(toSeq = this.packets.length): void {
    this.#head = Math.max(this.#head, Math.min(toSeq, this.packets.length));
    for (const wake of this.#wake.splice(0)) wake();
  }

  /** Ends the turn after its head, as a stop does. */
  stop(): void {
    if (this.ended) return;
    this.packets = [...this.packets.slice(0, this.#head), ...stoppedEnd(this.#head)];
    this.release();
  }

  /** Resolves when more is readable, or the signal aborts. */
  changed(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        signal.removeEventListener("abort", done);
        resolve();
      };
      this.#wake.push(done);
      if (signal.aborted) done();
      else signal.addEventListener("abort", done);
    });
  }
}

const rawRequest = createContextKey<IncomingMessage | Http2ServerRequest | undefined>(undefined);

export interface ScriptedChatServerOptions {
  readonly http?: "1.1" | "2";
  readonly port?: number;
  /** Demand this bearer token. */
  readonly token?: string;
}

export class ScriptedChatServer {
  readonly logId = "log-1";
  readonly turns = new Map<string, ScriptedTurn>();
  /** Streaming calls as they arrived. */
  readonly calls: ScriptedCall[] = [];
  readonly stops: StopTurnRequest[] = [];
  readonly getTurns: string[] = [];
  /** The behaviours of the next streaming calls, first to last. */
  readonly script: Behaviour[] = [];
  /** The turn that the next SendMessage starts; a request_id seen before gets its turn again. */
  nextTurn: ScriptedTurn | undefined;
  /** False: stops are answered but end nothing. */
  honourStops = true;
  models: MessageInitShape<typeof ModelSchema>[] = [];
  tools: MessageInitShape<typeof ToolSchema>[] = [];
  sessions: MessageInitShape<typeof SessionSchema>[] = [];
  readonly #byRequest = new Map<string, ScriptedTurn>();
  readonly #sockets = new Set<Socket>();
  readonly #arrivals: { readonly number: number; readonly resolve: (call: ScriptedCall) => void }[] = [];
  #close: () => Promise<void> = () => Promise.resolve();
  #url = "";

  get url(): string {
    return this.#url;
  }

  static async start(options: ScriptedChatServerOptions = {}): Promise<ScriptedChatServer> {
    const server = new ScriptedChatServer();
    await server.#listen(options);
    return server;
  }

  async close(): Promise<void> {
    await this.#close();
  }

  /** The n-th streaming call, as soon as it has arrived. */
  call(number: number): Promise<ScriptedCall> {
    const arrived = this.calls[number - 1];
    return arrived
      ? Promise.resolve(arrived)
      : new Promise((resolve) => this.#arrivals.push({ number, resolve }));
  }

  async #listen(options: ScriptedChatServerOptions): Promise<void> {
    const handler = connectNodeAdapter({
      routes: (router) => router.service(ChatService, this.#service(options.token)),
      contextValues: (request) => createContextValues().set(rawRequest, request as IncomingMessage),
    });
    const server = options.http === "2" ? createHttp2Server(handler) : createServer(handler);
    const sessions = new Set<ServerHttp2Session>();
    server.on("connection", (socket: Socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
    });
    server.on("session", (session: ServerHttp2Session) => {
      sessions.add(session);
      session.on("close", () => sessions.delete(session));
    });
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(options.port ?? 0, "127.0.0.1", resolve);
    });
    this.#url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    this.#close = () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        for (const session of sessions) session.destroy();
        for (const socket of this.#sockets) socket.destroy();
      });
  }

  #service(token: string | undefined): Partial<ServiceImpl<typeof ChatService>> {
    type Context = Parameters<ServiceImpl<typeof ChatService>["sendMessage"]>[1];
    const admit = (headers: Headers): void => {
      if (token !== undefined && headers.get("authorization") !== `Bearer ${token}`) {
        throw statusError(ErrorCode.UNAUTHENTICATED);
      }
    };
    const arrive = (
      part: Pick<ScriptedCall, "method" | "send" | "resume">,
      context: Context,
    ): ScriptedCall => {
      admit(context.requestHeader);
      const request = context.values.get(rawRequest)!;
      const call: ScriptedCall = {
        ...part,
        number: this.calls.length + 1,
        headers: context.requestHeader,
        httpVersion: request.httpVersion,
        signal: context.signal,
        cut: (how) => cutRequest(request, how),
      };
      this.calls.push(call);
      for (const waiter of this.#arrivals) if (waiter.number === call.number) waiter.resolve(call);
      return call;
    };
    const answer = (call: ScriptedCall, honest: AsyncIterable<StreamResponseMessage>) => {
      const behaviour = this.script.shift();
      return behaviour ? behaviour(call, honest) : honest;
    };
    const turnOf = (turnId: string): ScriptedTurn => {
      const turn = this.turns.get(turnId);
      if (!turn) throw statusError(ErrorCode.NOT_FOUND, { message: "no such turn" });
      return turn;
    };
    return {
      sendMessage: (request, context) => {
        const call = arrive({ method: "send", send: request }, context);
        return answer(call, this.#honestSend(request, call.signal)) as AsyncIterable<SendMessageResponse>;
      },
      resumeTurn: (request, context) => {
        const call = arrive({ method: "resume", resume: request }, context);
        return answer(call, this.#honestResume(request, call.signal)) as AsyncIterable<ResumeTurnResponse>;
      },
      stopTurn: (request, context) => {
        admit(context.requestHeader);
        this.stops.push(request);
        const { target } = request;
        const turn =
          target.case === "turnId"
            ? turnOf(target.value)
            : target.case === "requestId"
              ? this.#byRequest.get(target.value)
              : [...this.turns.values()].find((candidate) => !candidate.ended);
        const stopSeq = turn?.head ?? 0;
        if (this.honourStops) turn?.stop();
        return { stopSeq, status: TurnStatus.ENDED, turnId: turn?.turnId ?? "" };
      },
      getTurn: (request, context) => {
        admit(context.requestHeader);
        this.getTurns.push(request.turnId);
        const turn = turnOf(request.turnId);
        return {
          turn: {
            turnId: turn.turnId,
            headSeq: turn.head,
            status: turn.ended ? TurnStatus.ENDED : TurnStatus.RUNNING,
          },
          state: fold(turn.packets.slice(0, turn.head)),
        };
      },
      listModels: (_request, context) => (admit(context.requestHeader), { models: this.models }),
      listTools: (_request, context) => (admit(context.requestHeader), { tools: this.tools }),
      listSessions: (_request, context) => (admit(context.requestHeader), { sessions: this.sessions }),
      getSession: (request, context) => {
        admit(context.requestHeader);
        const session = this.sessions.find((candidate) => candidate.sessionId === request.sessionId);
        if (!session) throw statusError(ErrorCode.NOT_FOUND, { message: "no such session" });
        return { session };
      },
      deleteSession: (request, context) => {
        admit(context.requestHeader);
        const index = this.sessions.findIndex((candidate) => candidate.sessionId === request.sessionId);
        if (index < 0) throw statusError(ErrorCode.NOT_FOUND, { message: "no such session" });
        this.sessions.splice(index, 1);
        return {};
      },
    };
  }

  async *#honestSend(request: SendMessageRequest, signal: AbortSignal): AsyncGenerator<SendMessageResponse> {
    const wanted = request.models.find(
      ({ modelId }) => !this.models.some((model) => model.modelId === modelId),
    );
    if (wanted && this.models.length > 0) {
      throw statusError(ErrorCode.MODEL_NOT_FOUND, { message: `no such model: ${wanted.modelId}` });
    }
    const known = this.#byRequest.get(request.requestId);
    const turn = known ?? this.nextTurn;
    if (!turn) throw statusError(ErrorCode.UNAVAILABLE, { message: "no turn was scripted" });
    this.turns.set(turn.turnId, turn);
    this.#byRequest.set(request.requestId, turn);
    const receipt = {
      requestId: request.requestId,
      disposition: known ? SendDisposition.REPLAYED : SendDisposition.STARTED,
      turnId: turn.turnId,
    };
    yield create(SendMessageResponseSchema, { receipt, headSeq: turn.head, logId: this.logId });
    for await (const packet of follow(turn, 0, true, signal))
      yield create(SendMessageResponseSchema, { packets: [packet] });
  }

  async *#honestResume(request: ResumeTurnRequest, signal: AbortSignal): AsyncGenerator<ResumeTurnResponse> {
    const turn = this.turns.get(request.turnId);
    if (!turn) throw statusError(ErrorCode.NOT_FOUND, { message: "no such turn" });
    if (request.afterSeq > turn.head) throw cursorAhead(turn.head);
    yield create(ResumeTurnResponseSchema, { headSeq: turn.head, logId: this.logId });
    if (request.snapshot === SnapshotPolicy.ALWAYS) {
      yield* snapshotParts(fold(turn.packets.slice(0, turn.head)));
      for await (const packet of follow(turn, turn.head, !request.noFollow, signal)) {
        yield create(ResumeTurnResponseSchema, { packets: [packet] });
      }
      return;
    }
    for await (const packet of follow(turn, request.afterSeq, !request.noFollow, signal)) {
      yield create(ResumeTurnResponseSchema, { packets: [packet] });
    }
  }
}

async function* follow(
  turn: ScriptedTurn,
  afterSeq: number,
  wait: boolean,
  signal: AbortSignal,
): AsyncGenerator<Packet, void> {
  for (let seq = afterSeq + 1; ; seq += 1) {
    while (seq > turn.head) {
      if (turn.ended || !wait || signal.aborted) return;
      await turn.changed(signal);
    }
    yield turn.packets[seq - 1]!;
  }
}

function cutRequest(request: IncomingMessage | Http2ServerRequest, how: CutKind): void {
  if (!("stream" in request)) request.socket.destroy();
  else if (how === "stream") request.stream.close(2 /* INTERNAL_ERROR */);
  else request.stream.session?.destroy();
}

/** A state as the parts of a snapshot, of at most `maxBytes` each. */
export function* snapshotParts(state: TurnState, maxBytes = 64): Generator<ResumeTurnResponse> {
  const bytes = toBinary(TurnStateSchema, state);
  for (let offset = 0; offset < bytes.length; offset += maxBytes) {
    const last = offset + maxBytes >= bytes.length;
    yield create(ResumeTurnResponseSchema, {
      snapshot: { seq: state.seq, data: bytes.slice(offset, offset + maxBytes), last },
    });
  }
}

type Detail = ConstructorParameters<typeof ConnectError>[3] extends (infer D)[] | undefined ? D : never;

/** A status as the service makes it: from the error table, with ErrorInfo, ErrorDetail and the typed messages given. */
export function statusError(
  code: KnownErrorCode,
  more: { readonly message?: string; readonly retryAfterMs?: number; readonly details?: Detail[] } = {},
): ConnectError {
  const row = ERROR_TABLE[code];
  return new ConnectError(more.message ?? row.message, row.status, undefined, [
    { desc: ErrorInfoSchema, value: { reason: errorCodeName(code), domain: "turnwire" } },
    {
      desc: ErrorDetailSchema,
      value: { code, retryable: row.retryable, retryAfterMs: more.retryAfterMs ?? 0 },
    },
    ...(more.details ?? []),
  ]);
}

export const cursorAhead = (headSeq: number): ConnectError =>
  statusError(ErrorCode.CURSOR_AHEAD, { details: [{ desc: CursorAheadSchema, value: { headSeq } }] });

export const cursorExpired = (headSeq: number, snapshotAvailable: boolean): ConnectError =>
  statusError(ErrorCode.CURSOR_EXPIRED, {
    details: [{ desc: CursorExpiredSchema, value: { oldestSeq: headSeq, headSeq, snapshotAvailable } }],
  });

export const logReplaced = (logId: string, headSeq: number): ConnectError =>
  statusError(ErrorCode.LOG_REPLACED, { details: [{ desc: LogReplacedSchema, value: { logId, headSeq } }] });

export const sessionBusy = (turnId: string): ConnectError =>
  statusError(ErrorCode.SESSION_BUSY, { details: [{ desc: SessionBusySchema, value: { turnId } }] });

/** A failure that carries no details: what a proxy or a socket makes. */
export const bareError = (code: Code, message: string): ConnectError => new ConnectError(message, code);

/** Passes on what holds the first `count` packets (and everything before the first). */
export async function* firstPackets(
  honest: AsyncIterable<StreamResponseMessage>,
  count: number,
): AsyncGenerator<StreamResponseMessage, void> {
  let sent = 0;
  for await (const message of honest) {
    if (message.packets.length > 0 && sent >= count) return;
    sent += message.packets.length;
    yield message;
    if (sent >= count && count > 0) return;
  }
}

/** Behaviour: the first packets, then the connection is broken: at once (what is on its way is lost), or at `when`. */
export const cutAfter = (count: number, how: CutKind = "socket", when?: Promise<void>): Behaviour =>
  async function* (call, honest) {
    yield* firstPackets(honest, count);
    await when;
    call.cut(how);
    await aborted(call.signal);
  };

/** Behaviour: the first packets, then the stream is closed in good order, without a terminal packet. */
export const endAfter =
  (count: number): Behaviour =>
  (_call, honest) =>
    firstPackets(honest, count);

/** Behaviour: the first packets, then nothing at all for as long as the client stays. */
export const silentAfter = (count: number): Behaviour =>
  async function* (call, honest) {
    yield* firstPackets(honest, count);
    await aborted(call.signal);
  };

/** Behaviour: the first packets, then a status. */
export const failAfter = (count: number, error: ConnectError): Behaviour =>
  async function* (_call, honest) {
    if (count > 0) yield* firstPackets(honest, count);
    throw error;
  };

/** Behaviour: refuses at once. */
export const fail = (error: ConnectError): Behaviour => failAfter(0, error);

/** Behaviour: every packet twice, in messages of their own. */
export const duplicated: Behaviour = async function* (_call, honest) {
  for await (const message of honest) {
    yield message;
    if (message.packets.length > 0) yield message;
  }
};

/** Behaviour: leaves one packet out. */
export const skipping = (seq: number): Behaviour =>
  async function* (_call, honest) {
    for await (const message of honest) if (message.packets[0]?.seq !== seq) yield message;
  };

function aborted(signal: AbortSignal): Promise<void> {
  return signal.aborted
    ? Promise.resolve()
    : new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}
