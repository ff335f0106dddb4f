/** The store's events as the contract shows them: each with what its subject is like now. */
import { create, fromBinary } from "@bufbuild/protobuf";
import { SessionEventSchema, type SessionEvent } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { SourceDocumentSchema } from "../../gen/turnwire/chat/v1/types_pb.js";
import {
  FollowUpsSchema,
  SessionTagsSchema,
  SessionTitleSchema,
} from "../../gen/turnwire/packet/v1/side_pb.js";
import type { Principal } from "../lib/rpc/service-binding.js";
import type { SessionEventRow } from "../store/store.js";
import type { ChatDeps } from "./ports.js";
import type { SessionViews } from "./session-views.js";

/** In the order of the rows. What is gone by now is left out (its `deleted` follows); of several changes the last is told. */
export async function viewSessionEvents(
  { store }: Pick<ChatDeps, "store">,
  views: SessionViews,
  principal: Principal,
  rows: readonly SessionEventRow[],
  signal: AbortSignal,
): Promise<SessionEvent[]> {
  const lastUpdate = new Map<string, SessionEventRow>();
  for (const row of rows) if (row.kind === "updated") lastUpdate.set(row.sessionId, row);
  const turnIds = rows.flatMap((row) => ("turnId" in row ? [row.turnId] : []));
  const [turnRows, sessionRows] = await Promise.all([
    turnIds.length === 0 ? [] : store.getTurns(principal, [...new Set(turnIds)]),
    lastUpdate.size === 0 ? [] : store.getSessions(principal, [...lastUpdate.keys()]),
  ]);
  const [turnList, sessionList] = await Promise.all([
    views.turnsAsFarAsKnown(turnRows, signal),
    views.sessions(principal, sessionRows, signal),
  ]);
  const turns = new Map(turnList.map((turn) => [turn.turnId, turn]));
  const sessions = new Map(sessionList.map((session) => [session.sessionId, session]));

  const viewOne = (row: SessionEventRow): SessionEvent["event"] => {
    switch (row.kind) {
      case "updated":
        return lastUpdate.get(row.sessionId) === row ? told("updated", sessions.get(row.sessionId)) : NOTHING;
      case "deleted":
        return { case: "deleted", value: true };
      case "turn_started":
        return told("turnStarted", turns.get(row.turnId));
      case "turn_ended":
        return told("turnEnded", turns.get(row.turnId));
      case "document":
        return { case: "document", value: fromBinary(SourceDocumentSchema, row.data) };
      case "document_deleted":
        return { case: "documentDeleted", value: fromBinary(SourceDocumentSchema, row.data).documentId };
      case "title":
        return { case: "title", value: fromBinary(SessionTitleSchema, row.data) };
      case "tags":
        return { case: "tags", value: fromBinary(SessionTagsSchema, row.data) };
      case "follow_ups":
        return { case: "followUps", value: fromBinary(FollowUpsSchema, row.data) };
    }
  };
  return rows
    .map((row) => create(SessionEventSchema, { sessionId: row.sessionId, event: viewOne(row) }))
    .filter((event) => event.event.case !== undefined);
}

const NOTHING = { case: undefined } as const;

function told<C extends "updated" | "turnStarted" | "turnEnded">(
  kind: C,
  value: Extract<SessionEvent["event"], { case: C }>["value"] | undefined,
): SessionEvent["event"] {
  return value ? ({ case: kind, value } as SessionEvent["event"]) : NOTHING;
}
