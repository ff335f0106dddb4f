/** The RPCs of ChatService on sessions and their messages: what there is, how it is changed, where the current branch goes. */
import { create, toBinary } from "@bufbuild/protobuf";
import {
  CreateSessionResponseSchema,
  DeleteSessionResponseSchema,
  GetSessionResponseSchema,
  ListMessagesResponseSchema,
  ListSessionsResponseSchema,
  SearchMessagesResponseSchema,
  SelectMessageResponseSchema,
  SetFeedbackResponseSchema,
  UpdateSessionResponseSchema,
  type ChatService,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { SessionSettingsSchema } from "../../gen/turnwire/chat/v1/types_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import { whileUnavailable } from "../lib/retry.js";
import type { Principal, ServiceImpl } from "../lib/rpc/service-binding.js";
import type { Page, SessionRow, Store } from "../store/store.js";
import type { ActiveTurns } from "./active-turns.js";
import type { ChatDeps } from "./ports.js";
import type { SessionViews } from "./session-views.js";
import { snippetOf } from "./snippet.js";
import { notBuilt, refuseUnbuiltSession } from "./unbuilt.js";
import { sessionChanges } from "./update-session.js";
import { viewMessages, viewSession } from "./views.js";

const MAINLINE_MESSAGES = 50;

export type SessionRpcs = Pick<
  ServiceImpl<typeof ChatService>,
  | "createSession"
  | "getSession"
  | "listSessions"
  | "updateSession"
  | "deleteSession"
  | "listMessages"
  | "searchMessages"
  | "selectMessage"
  | "setFeedback"
>;

export function sessionRpcs(deps: ChatDeps, turns: ActiveTurns, views: SessionViews): SessionRpcs {
  const { store } = deps;
  return {
    async createSession(request, { principal }) {
      if (request.session) refuseUnbuiltSession(request.session);
      const settings = request.session?.settings ?? create(SessionSettingsSchema);
      const session = await store.createSession(principal, {
        sessionId: deps.newId(),
        requestId: request.requestId,
        settings: toBinary(SessionSettingsSchema, settings),
        title: request.session?.title ?? "",
        tags: request.session?.tags ?? [],
      });
      return create(CreateSessionResponseSchema, { session: viewSession(session) });
    },

    async getSession(request, { principal, signal }) {
      if (request.shareToken) throw notBuilt("share_token");
      const session = await ownSession(store, principal, request.sessionId);
      const mainline = session.currentMessageId
        ? await store.branch(principal, session.currentMessageId, MAINLINE_MESSAGES)
        : [];
      const hasMore = mainline.length > 0 && mainline[0]!.parentMessageId !== "";
      return create(GetSessionResponseSchema, {
        session: await views.session(principal, session, signal),
        // what there is room for goes to the newest
        mainline: viewMessages(mainline.toReversed()).reverse(),
        hasMore,
      });
    },

    async listSessions(request, { principal, signal }) {
      const page = await store.listSessions(principal, pageOf(request), {
        query: request.query,
        onlyActive: request.onlyActive,
      });
      return create(ListSessionsResponseSchema, {
        sessions: await views.sessions(principal, page.rows, signal),
        nextPageToken: page.nextToken,
      });
    },

    async deleteSession(request, { principal }) {
      const deleted = await store.deleteSession(principal, request.sessionId);
      if (!deleted) throw notFound("session", request.sessionId);
      // The client may leave now: what is deleted goes from the log as well.
      await Promise.all(
        deleted.turns.map((turn) => {
          turns.get(turn.turnId)?.fenced();
          const erase = () => deps.log.erase({ turnId: turn.turnId, partition: turn.partition }, turns.life);
          return whileUnavailable(erase, deps.clock, turns.life).catch((error: unknown) =>
            deps.logger.error({ err: error, turnId: turn.turnId }, "a deleted turn is still in the log"),
          );
        }),
      );
      return create(DeleteSessionResponseSchema);
    },

    async listMessages(request, { principal }) {
      const page = await store.listMessages(principal, request.sessionId, pageOf(request), {
        ancestorsOf: request.ancestorsOf,
        childrenOf: request.childrenOf,
        newestFirst: request.newestFirst,
      });
      if (!page) throw notFound("session", request.sessionId);
      return create(ListMessagesResponseSchema, {
        messages: viewMessages(page.rows),
        nextPageToken: page.nextToken,
      });
    },

    async updateSession(request, { principal, signal }) {
      const { sessionId } = request.session!;
      const session = await store.updateSession(principal, sessionId, sessionChanges(request));
      if (!session) throw notFound("session", sessionId);
      return create(UpdateSessionResponseSchema, {
        session: await views.session(principal, session, signal),
      });
    },

    async selectMessage({ sessionId, messageId }, { principal, signal }) {
      const selected = await store.selectMessage(principal, sessionId, messageId);
      if (selected === "session_not_found") throw notFound("session", sessionId);
      if (selected === "message_not_found") throw notFound("message", messageId);
      return create(SelectMessageResponseSchema, {
        session: await views.session(principal, selected, signal),
      });
    },

    async setFeedback({ messageId, rating, comment, reasons }, { principal }) {
      const stored = await store.setFeedback(principal, messageId, { rating, comment, reasons });
      if (stored === "not_found") throw notFound("message", messageId);
      if (stored === "not_an_answer")
        throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
          message: "message_id names a message of the user: feedback is for answers",
          details: { field: "message_id" },
        });
      return create(SetFeedbackResponseSchema);
    },

    async searchMessages(request, { principal }) {
      const page = await store.searchMessages(principal, request.query, pageOf(request));
      return create(SearchMessagesResponseSchema, {
        messages: viewMessages(page.rows.map((found) => found.message)),
        matches: page.rows.map((found) => ({
          sessionId: found.message.sessionId,
          sessionTitle: found.sessionTitle,
          snippet: snippetOf(found.text, request.query),
        })),
        nextPageToken: page.nextToken,
      });
    },
  };
}

/** The caller's session. Throws NOT_FOUND. */
export async function ownSession(
  store: Pick<Store, "getSession">,
  principal: Principal,
  sessionId: string,
): Promise<SessionRow> {
  const session = await store.getSession(principal, sessionId);
  if (!session) throw notFound("session", sessionId);
  return session;
}

function notFound(what: "session" | "message", id: string): TurnError {
  return new TurnError(ErrorCode.NOT_FOUND, {
    message: `no ${what} ${id}`,
    details: { field: `${what}_id` },
  });
}

/** The page that a list is asked for. */
export function pageOf(request: { readonly pageSize: number; readonly pageToken: string }): Page {
  return { size: request.pageSize || 50, token: request.pageToken };
}
