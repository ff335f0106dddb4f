/**
 * From a send to an accepted turn: what it asks for is resolved (models, tools, options, position) before anything is
 * stored, then one transaction stores all of it (store.acceptTurn). What the turn needs to run is a TurnPlan.
 */
import { toBinary } from "@bufbuild/protobuf";
import { SessionBusySchema } from "../../gen/turnwire/chat/v1/errors_pb.js";
import { SessionSettingsSchema } from "../../gen/turnwire/chat/v1/types_pb.js";
import { ErrorCode, UserInputSchema, type UserInput } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnStartedSchema } from "../../gen/turnwire/packet/v1/control_pb.js";
import { TurnError } from "../lib/errors.js";
import type { Principal } from "../lib/rpc/service-binding.js";
import type { SessionRow, TurnRow } from "../store/store.js";
import type { ChatDeps } from "./ports.js";
import { resolvePlan, type TurnPlan } from "./resolve-plan.js";
import { resolvePosition, type Position } from "./resolve-position.js";
import { hashSendRequest, type SendRequest } from "./send-request.js";
import { refuseUnbuiltSend } from "./unbuilt.js";

/** Logs are spread over this many subject partitions. */
const PARTITIONS = 16;
const TITLE_CHARS = 80;

export type Accepted =
  | {
      readonly kind: "accepted";
      readonly turn: TurnRow;
      readonly plan: TurnPlan;
      readonly stopRequested: boolean;
    }
  | { readonly kind: "replayed"; readonly turn: TurnRow };

/** What an accept asks of the process it happens in (active-turns.ts). */
export interface AcceptGate {
  /** Throws when no further turn may start here. */
  admit(): void;
  /** The accept failed after it may have been stored: the turn may be there and run nowhere. */
  suspectOrphans(): void;
}

/**
 * Validates, resolves and stores a send. Throws TurnErrors; nothing is stored then. What was accepted once is found again,
 * whatever has gone away or filled up since.
 */
export async function acceptTurn(
  deps: ChatDeps,
  principal: Principal,
  request: SendRequest,
  gate: AcceptGate,
  signal: AbortSignal,
): Promise<Accepted> {
  refuseUnbuiltSend(request);
  requireText(request);
  const requestHash = hashSendRequest(request);
  let plan: TurnPlan;
  let position: Position;
  try {
    gate.admit();
    const session = await findSession(deps, principal, request);
    position = await resolvePosition(deps, principal, request);
    requireContent(position.input);
    plan = await resolvePlan(deps, principal, request, session, position, signal);
    await refuseWhenFull(deps, signal);
  } catch (error) {
    const known =
      request.requestId === ""
        ? undefined
        : await deps.store.findAccepted(principal, request.requestId, requestHash);
    if (known?.kind === "replayed") return known;
    throw known ? requestConflict() : error;
  }
  const storing = deps.store.acceptTurn({
    principal,
    requestId: plan.started.requestId,
    requestHash,
    sessionId: request.sessionId,
    newSession: {
      sessionId: plan.started.sessionId,
      settings: request.newSession ? toBinary(SessionSettingsSchema, request.newSession) : new Uint8Array(),
      title: titleFrom(request.text),
    },
    parentMessageId: position.parentMessageId,
    turnId: plan.started.turnId,
    userMessageId: plan.started.userMessageId,
    userInput: position.answeredMessageId ? undefined : toBinary(UserInputSchema, plan.input),
    searchText: plan.input.text,
    lanes: plan.lanes.map((lane) => ({
      modelIndex: lane.modelIndex,
      modelId: lane.model.modelId,
      messageId: lane.messageId,
    })),
    partition: partitionOf(plan.started.turnId),
    logId: deps.log.logId,
    owner: deps.incarnation,
    plan: toBinary(TurnStartedSchema, plan.started),
  });
  const outcome = await storing.catch((error: unknown) => {
    gate.suspectOrphans();
    throw error;
  });
  switch (outcome.kind) {
    case "accepted":
      return { kind: "accepted", turn: outcome.turn, plan, stopRequested: outcome.stopRequested };
    case "replayed":
      return outcome;
    case "conflict":
      throw requestConflict();
    case "busy":
      throw new TurnError(ErrorCode.SESSION_BUSY, {
        message: `the session already runs turn ${outcome.turnId}: wait for it, or stop it`,
        details: { turn_id: outcome.turnId },
        typed: [{ desc: SessionBusySchema, value: { turnId: outcome.turnId } }],
      });
    case "session_not_found":
      throw sessionNotFound(request.sessionId);
    case "parent_not_found":
      throw new TurnError(ErrorCode.NOT_FOUND, {
        message: `${positionField(request)} names no answer of this session`,
        details: { field: positionField(request) },
      });
  }
}

/** The session that the send names; undefined = it makes one. */
async function findSession(
  deps: ChatDeps,
  principal: Principal,
  request: SendRequest,
): Promise<SessionRow | undefined> {
  if (request.sessionId === "") return undefined;
  const session = await deps.store.getSession(principal, request.sessionId);
  if (!session) throw sessionNotFound(request.sessionId);
  if (request.newSession) {
    throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
      message: "new_session is only for a send without session_id",
      details: { field: "new_session" },
    });
  }
  return session;
}

async function refuseWhenFull(deps: ChatDeps, signal: AbortSignal): Promise<void> {
  if ((await deps.log.fullness(signal)) < deps.limits.refuseTurnsAtFullness) return;
  throw new TurnError(ErrorCode.OVERLOADED, {
    message: "the log is nearly full: no new turns until older ones expire",
    retryAfterMs: 60_000,
  });
}

/** What can be said of the text without a look at the message that the send names. */
function requireText({ text, attachments, position }: SendRequest): void {
  if (position.case !== "regenerateMessageId" && position.case !== "continueMessageId") return;
  if (text === "" && attachments.length === 0) return;
  throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
    message: `with ${positionField({ position })} the text must be empty: nothing new is said`,
    details: { field: text === "" ? "attachments" : "text" },
  });
}

function requireContent({ text, attachments }: UserInput): void {
  if (text.trim() !== "" || attachments.length > 0) return;
  throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
    message: "text is empty: write something or attach a file",
    details: { field: "text" },
  });
}

/** As it is spelt in the proto. */
function positionField({ position }: Pick<SendRequest, "position">): string {
  return (position.case ?? "parentMessageId").replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function requestConflict(): TurnError {
  return new TurnError(ErrorCode.REQUEST_CONFLICT, { details: { field: "request_id" } });
}

function sessionNotFound(sessionId: string): TurnError {
  return new TurnError(ErrorCode.NOT_FOUND, {
    message: `no session ${sessionId.slice(0, 128)}`,
    details: { field: "session_id" },
  });
}

/** The first line of the first message, cut at a word. */
function titleFrom(text: string): string {
  const line = text
    .trim()
    .split("\n", 1)[0]!
    .replace(/[\s\p{Cc}]+/gu, " ")
    .trim();
  const points = Array.from(line);
  if (points.length <= TITLE_CHARS) return line;
  const cut = points.slice(0, TITLE_CHARS);
  return `${cut.slice(0, Math.max(cut.lastIndexOf(" "), TITLE_CHARS / 2)).join("")}…`;
}

function partitionOf(turnId: string): number {
  return Number.parseInt(turnId.slice(-4), 16) % PARTITIONS;
}
