/** ChatService: each RPC in a few lines over the modules that do the work. RPCs left out answer UNIMPLEMENTED. */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  ChatService,
  GetTurnResponseSchema,
  ListModelsResponseSchema,
  ListToolsResponseSchema,
  ListTurnsResponseSchema,
  SendDisposition,
  SendMessageAndWaitResponseSchema,
  SendMessageResponseSchema,
  SendReceiptSchema,
  StartTurnResponseSchema,
  StopTurnResponseSchema,
  type GetTurnRequest,
  type GetTurnResponse,
  type SendMessageAndWaitResponse,
  type SendReceipt,
  type StopTurnRequest,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { CursorAheadSchema } from "../../gen/turnwire/chat/v1/errors_pb.js";
import { TurnStateSchema, type TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { TurnStatus } from "../../gen/turnwire/chat/v1/types_pb.js";
import type { Model } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnStartedSchema } from "../../gen/turnwire/packet/v1/control_pb.js";
import { TurnError } from "../lib/errors.js";
import {
  bindService,
  messageFrame,
  type CallContext,
  type Principal,
  type ServiceBinding,
} from "../lib/rpc/service-binding.js";
import type { StopTarget, TurnPhase, TurnRow } from "../store/store.js";
import { emptyTurnState } from "../turn/fold.js";
import { cutText } from "../turn/packets.js";
import { acceptTurn } from "./accept-turn.js";
import type { ActiveTurns } from "./active-turns.js";
import { assembleHistory } from "./assemble-history.js";
import type { ChatDeps } from "./ports.js";
import { TurnReader } from "./read-turn.js";
import type { SendRequest } from "./send-request.js";
import { ownSession, pageOf, sessionRpcs } from "./session-rpcs.js";
import { SessionViews } from "./session-views.js";
import { snapshotParts } from "./snapshot.js";
import { stopTurn } from "./stop-turn.js";
import { FROM_THE_START, foldBatch, foldTurn, packetFrames, resumeTurn } from "./turn-streams.js";
import { notBuilt } from "./unbuilt.js";
import { viewTurn, viewTurnStatus } from "./views.js";
import { watch } from "./watch.js";

/** Bounds of SendMessageAndWait's and GetTurn's replies, bytes (contract.md 2). */
const WAIT_TEXT_BYTES = 1024 * 1024;
const WAIT_STATE_BYTES = 2 * 1024 * 1024;
const WHOLE_STATE_BYTES = 1024 * 1024;

export function createChatService(deps: ChatDeps, turns: ActiveTurns): ServiceBinding {
  const { store } = deps;
  const reader = new TurnReader(deps, turns);
  const views = new SessionViews(deps, reader);

  async function ownTurn(principal: Principal, turnId: string): Promise<TurnRow> {
    const turn = await store.getTurn(principal, turnId);
    if (!turn)
      throw new TurnError(ErrorCode.NOT_FOUND, {
        message: `no turn ${turnId}`,
        details: { field: "turn_id" },
      });
    return turn;
  }

  /** Accepts a send and sets its turn going; a repeat finds the turn that is there. */
  async function startTurn(
    request: SendRequest,
    context: CallContext,
  ): Promise<{ turn: TurnRow; receipt: SendReceipt }> {
    const { principal } = context;
    const accepted = await turns.accepting(() => acceptTurn(deps, principal, request, turns, context.signal));
    const { turn } = accepted;
    if (accepted.kind === "accepted") {
      turns.start(
        turn,
        accepted.plan,
        () => assembleHistory(deps, principal, accepted.plan, turns.life),
        accepted.stopRequested,
      );
    }
    const disposition = accepted.kind === "accepted" ? SendDisposition.STARTED : SendDisposition.REPLAYED;
    return {
      turn,
      receipt: create(SendReceiptSchema, { requestId: turn.requestId, disposition, turnId: turn.turnId }),
    };
  }

  return bindService(ChatService, {
    ...sessionRpcs(deps, turns, views),

    async *sendMessage(request, context) {
      const { turn, receipt } = await startTurn(request, context);
      yield messageFrame(create(SendMessageResponseSchema, { receipt, logId: turn.logId }));
      yield* packetFrames(deps, reader, turn, FROM_THE_START, true, context.signal);
    },

    async sendMessageAndWait(request, context) {
      const { turn } = await startTurn(request, context);
      const state = emptyTurnState();
      for await (const frame of packetFrames(deps, reader, turn, FROM_THE_START, true, context.signal))
        foldBatch(state, frame.bytes);
      return waitReply(turn, state);
    },

    async startTurn(request, context) {
      const { turn, receipt } = await startTurn(request, context);
      return create(StartTurnResponseSchema, { receipt, started: fromBinary(TurnStartedSchema, turn.plan) });
    },

    async *resumeTurn(request, { principal, signal }) {
      if (request.shareToken) throw notBuilt("share_token");
      yield* resumeTurn(deps, reader, await ownTurn(principal, request.turnId), request, signal);
    },

    watch(request, { principal, signal }) {
      return watch({ deps, reader, views, draining: turns.draining }, principal, request, signal);
    },

    async stopTurn(request, { principal, signal }) {
      const stopped = await stopTurn(deps, turns, principal, stopTarget(request), request.modelIndex, signal);
      const status =
        stopped.turnId === ""
          ? TurnStatus.UNSPECIFIED
          : stopped.wasRunning
            ? TurnStatus.RUNNING
            : TurnStatus.ENDED;
      return create(StopTurnResponseSchema, { stopSeq: stopped.stopSeq, turnId: stopped.turnId, status });
    },

    async getTurn(request, { principal, signal }) {
      return getTurnPart(reader, await ownTurn(principal, request.turnId), request, signal);
    },

    async listTurns(request, { principal, signal }) {
      if (request.sessionId) await ownSession(store, principal, request.sessionId);
      const phases = phasesOf(request.statuses);
      if (phases?.length === 0) return create(ListTurnsResponseSchema); // no turn is in line or waits yet
      const page = await store.listTurns(principal, pageOf(request), {
        sessionId: request.sessionId,
        phases: phases ?? [],
      });
      const summaries = await views.turns(page.rows, signal);
      return create(ListTurnsResponseSchema, { turns: summaries, nextPageToken: page.nextToken });
    },

    async listModels(request, { principal, signal }) {
      const page = pageList(await deps.models.listModels(principal, signal), request);
      const models = page.rows.map((model) => withOwnAccess(model, principal));
      return create(ListModelsResponseSchema, { models, nextPageToken: page.nextToken });
    },

    async listTools(request, { principal, signal }) {
      if (request.sessionId) await ownSession(store, principal, request.sessionId);
      const page = pageList(await deps.tools.listTools(principal, signal), request);
      return create(ListToolsResponseSchema, { tools: page.rows, nextPageToken: page.nextToken });
    },
  });
}

/** Who else may use a model is nobody's business (I12): of its groups, those of the caller. */
function withOwnAccess(model: Model, { groups = [] }: Principal): Model {
  const { access } = model;
  if (!access) return model;
  return { ...model, access: { ...access, groups: access.groups.filter((group) => groups.includes(group)) } };
}

/** Pages of a list that is in memory; the token is the next index. */
function pageList<T>(
  all: readonly T[],
  request: { readonly pageSize: number; readonly pageToken: string },
): { rows: T[]; nextToken: string } {
  const { size, token } = pageOf(request);
  if (!/^\d{0,6}$/.test(token))
    throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
      message: "page_token is not one of this list's",
      details: { field: "page_token" },
    });
  const start = Number(token);
  const end = start + Math.min(size, 200);
  return { rows: all.slice(start, end), nextToken: end < all.length ? String(end) : "" };
}

/** The phases of the turns wanted; undefined = any. */
function phasesOf(statuses: readonly TurnStatus[]): TurnPhase[] | undefined {
  if (statuses.length === 0) return undefined;
  return [
    ...(statuses.includes(TurnStatus.RUNNING) ? (["running"] as const) : []),
    ...(statuses.includes(TurnStatus.ENDED) ? (["committed", "closed"] as const) : []),
  ];
}

function stopTarget({ target }: StopTurnRequest): StopTarget {
  switch (target.case) {
    case "turnId":
      return { kind: "turn", turnId: target.value };
    case "requestId":
      return { kind: "request", requestId: target.value };
    case "sessionId":
      return { kind: "session", sessionId: target.value };
    case undefined:
      throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
        message: "name a turn, a request or a session to stop",
        details: { field: "target" },
      });
  }
}

/** The plain text of the first lane, the state when it fits (contract.md 2). */
function waitReply(turn: TurnRow, state: TurnState): SendMessageAndWaitResponse {
  const whole = state.lanes[0]?.text ?? "";
  const text = cutText(whole, WAIT_TEXT_BYTES);
  const fits = toBinary(TurnStateSchema, state).length <= WAIT_STATE_BYTES;
  return create(SendMessageAndWaitResponseSchema, {
    state: fits ? state : undefined,
    text,
    status: state.stop ? TurnStatus.ENDED : viewTurnStatus(turn),
    turnId: turn.turnId,
    sessionId: turn.sessionId,
    textTruncated: text.length < whole.length,
    stateOmitted: !fits,
  });
}

/** The whole state when it is small, else one part of its encoding; the token is "atSeq.index". */
async function getTurnPart(
  reader: TurnReader,
  turn: TurnRow,
  request: GetTurnRequest,
  signal: AbortSignal,
): Promise<GetTurnResponse> {
  const head = await reader.headSeq(turn, signal);
  const token = readPartToken(request.partToken, head);
  if (request.atSeq > head)
    throw new TurnError(ErrorCode.CURSOR_AHEAD, {
      message: `at_seq ${request.atSeq} is beyond the head ${head} of the turn`,
      typed: [{ desc: CursorAheadSchema, value: { headSeq: head } }],
    });
  const atSeq = token?.atSeq ?? (request.atSeq || head);
  const state = await foldTurn(reader, turn, atSeq, signal);
  const summary = viewTurn(turn, head);
  if (!token && toBinary(TurnStateSchema, state).length <= WHOLE_STATE_BYTES)
    return create(GetTurnResponseSchema, { turn: summary, state });
  const index = token?.index ?? 0;
  const part = snapshotParts(state)[index];
  if (!part) throw noPartToken();
  return create(GetTurnResponseSchema, {
    turn: summary,
    part,
    nextPartToken: part.last ? "" : `${atSeq}.${index + 1}`,
  });
}

/** Which part of the state as of which seq; undefined = the first, as of what the request says. */
function readPartToken(
  token: string,
  head: number,
): { readonly atSeq: number; readonly index: number } | undefined {
  if (token === "") return undefined;
  const [, atSeq, index] = (/^([1-9]\d{0,9})\.([1-9]\d{0,4})$/.exec(token) ?? []).map(Number);
  if (!atSeq || !index || atSeq > head) throw noPartToken();
  return { atSeq, index };
}

function noPartToken(): TurnError {
  return new TurnError(ErrorCode.INVALID_ARGUMENT, {
    message: "part_token is not one of ours",
    details: { field: "part_token" },
  });
}
