/**
 * Everything the page knows, made once. Owns the client, the link to the hub, the outbox, the list of sessions and the
 * open conversations; components read its observables and call its methods.
 */
import { create } from "@bufbuild/protobuf";
import { createClient, type Client } from "@connectrpc/connect";
import {
  DocumentService,
  StartTurnRequestSchema,
  type StartTurnRequest,
} from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import { AttachmentSchema } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { Model } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { Tool } from "../../../gen/turnwire/tool/v1/tool_service_pb.js";
import { mapErrors } from "../../client/error-transport.js";
import { createTurnwireClient, newRequestId, type TurnwireClient } from "../../client/index.js";
import { Conversation } from "../../client/live/conversation.js";
import { Documents } from "../../client/live/documents.js";
import type { HubLink } from "../../client/live/hub-link.js";
import { Observable } from "../../client/live/observable.js";
import { isNewConversation, Outbox, type OutboxEntry } from "../../client/live/outbox.js";
import { SessionList } from "../../client/live/session-list.js";
import { systemClock } from "../../lib/clock.js";
import { followAccount, readAccount, type Account } from "./account.js";
import { outboxPrefix, outboxStorage } from "./outbox-storage.js";
import { connectHub } from "./connect-hub.js";
import { MadeSessions } from "./made-sessions.js";
import { readPageConfig, type PageConfig } from "./page-config.js";
import { toSessionSettings, type ChatSettings } from "./settings.js";
import { createPageTransport } from "./transport.js";

/** What may be chosen in a conversation. */
export interface Catalogue {
  readonly models: readonly Model[];
  readonly tools: readonly Tool[];
}

/** Conversations that stay open in the background, so that going back shows them at once. */
const MAX_OPEN = 8;

export class PageData {
  readonly config: PageConfig = readPageConfig();
  readonly client: TurnwireClient;
  readonly documentApi: Client<typeof DocumentService>;
  readonly documents: Documents;
  readonly outbox: Outbox;
  readonly sessions: SessionList;
  readonly catalogue = new Observable<Catalogue>({ models: [], tools: [] });
  /** Whose page it is; another account gets another page. */
  readonly account: Account;
  readonly made: MadeSessions;
  readonly link: HubLink;
  readonly #open = new Map<string, Conversation>();

  private constructor(link: HubLink, account: Account) {
    this.link = link;
    this.account = account;
    this.made = new MadeSessions(account);
    const transport = createPageTransport(() => account.token);
    this.client = createTurnwireClient({ transport });
    this.documentApi = createClient(DocumentService, mapErrors(transport));
    this.documents = new Documents({ documents: this.documentApi, files: this.client.files, link });
    link.watchWith(() => this.#watched());
    this.sessions = new SessionList(this.client.api, link);
    this.outbox = new Outbox({
      storage: outboxStorage(account),
      clock: systemClock,
      send: (entry, signal) => this.client.api.startTurn(this.#toRequest(entry), { signal }),
      onAccepted: (entry, response) => {
        const sessionId = response.started?.sessionId;
        if (!sessionId) return;
        this.open(sessionId).accepted(entry, response);
        if (isNewConversation(entry.conversation))
          this.made.add({ conversation: entry.conversation, sessionId });
      },
      exclusively: navigator.locks
        ? (name, task) => Promise.resolve(navigator.locks.request(name, task))
        : undefined,
    });
    window.addEventListener("storage", ({ key }) => {
      if (!key || key.startsWith(outboxPrefix(account))) this.outbox.reload();
    });
    followAccount(account);
    window.addEventListener("online", () => this.outbox.flush());
    link.status.subscribe(() => {
      if (link.status.get().kind !== "online") return;
      this.outbox.flush();
      if (this.catalogue.get().models.length === 0) void this.#readCatalogue();
    });
    void this.#readCatalogue();
  }

  static async start(): Promise<PageData> {
    const account = readAccount();
    return new PageData(await connectHub(account), account);
  }

  /** The conversation of a session; the same one as long as it is open. */
  open(sessionId: string): Conversation {
    let conversation = this.#open.get(sessionId);
    if (conversation) {
      this.#open.delete(sessionId);
      this.#open.set(sessionId, conversation);
      return conversation;
    }
    conversation = new Conversation(sessionId, {
      api: this.client.api,
      link: this.link,
      onTurnEnded: () => this.outbox.flush(),
    });
    this.#open.set(sessionId, conversation);
    for (const [id, oldest] of this.#open) {
      if (this.#open.size <= MAX_OPEN) break;
      oldest.close();
      this.#open.delete(id);
    }
    this.link.watch(false);
    return conversation;
  }

  /** Forgets a conversation: its session is deleted. */
  forget(sessionId: string): void {
    this.#open.get(sessionId)?.close();
    this.#open.delete(sessionId);
    this.link.watch(false);
  }

  newConversation(): string {
    return `new-${newRequestId()}`;
  }

  #watched() {
    const open = [...this.#open.values()];
    return {
      sessionIds: open.map(({ sessionId }) => sessionId),
      turns: open.flatMap(({ positions }) => positions),
    };
  }

  async #readCatalogue(): Promise<void> {
    try {
      const [{ models }, { tools }] = await Promise.all([
        this.client.api.listModels({ pageSize: 200 }),
        this.client.api.listTools({ pageSize: 200 }),
      ]);
      this.catalogue.set({ models, tools });
    } catch {
      // asked again when the link is online
    }
  }

  #toRequest(entry: OutboxEntry): StartTurnRequest {
    const isNew = isNewConversation(entry.conversation);
    return create(StartTurnRequestSchema, {
      requestId: entry.requestId,
      sessionId: isNew ? "" : entry.conversation,
      text: entry.text,
      attachments: entry.attachments.map((attachment) => create(AttachmentSchema, attachment)),
      position: toPosition(entry),
      newSession: isNew ? toSessionSettings(entry.settings as ChatSettings) : undefined,
    });
  }
}

function toPosition({ position }: OutboxEntry): StartTurnRequest["position"] {
  switch (position.case) {
    case "end":
      return { case: undefined };
    case "after":
      return { case: "parentMessageId", value: position.messageId };
    case "regenerate":
      return { case: "regenerateMessageId", value: position.messageId };
    case "edit":
      return { case: "editMessageId", value: position.messageId };
  }
}
