/** A conversation: what was said, what is being said, and where to say more. */
import { useCallback, useEffect, useMemo, useState, type ReactNode } from "react";
import type { Document } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { explainError } from "../../client/explain-error.js";
import type { Conversation, ConversationView, ExchangeView } from "../../client/live/conversation.js";
import { Observable } from "../../client/live/observable.js";
import type { OutboxEntry, SendPosition } from "../../client/live/outbox.js";
import { usePage } from "../app/page-context.js";
import { replaceRoute, sessionHash } from "../app/router.js";
import { ClockStopsContext } from "../turn/duration.js";
import type { TurnActions } from "../turn/turn-actions.js";
import { Icon } from "../ui/icon.js";
import { IconButton } from "../ui/icon-button.js";
import { ErrorNotice } from "../ui/notice.js";
import { saveFile } from "../ui/save-file.js";
import { Skeleton } from "../ui/skeleton.js";
import { useObservable } from "../ui/use-observable.js";
import { useToast } from "../ui/toast.js";
import { Composer } from "./composer.js";
import { EmptyState } from "./empty-state.js";
import { ExchangeSlot } from "./exchange-slot.js";
import { ModelButton } from "./model-button.js";
import { SettingsDialog } from "./settings-dialog.js";
import { useStickToBottom } from "./stick-to-bottom.js";
import { useChatSettings } from "./use-chat-settings.js";
import { ToEnd } from "./to-end.js";
import { useDrawn } from "./use-drawn.js";
import { useOlder } from "./use-older.js";
import { PendingMessage } from "./user-message.js";

export interface ChatPageProps {
  /** The session's id, or the name of a conversation that is new. */
  readonly conversation: string;
  /** Undefined = it has no session yet. */
  readonly session: Conversation | undefined;
  /** A message to be shown first. */
  readonly messageId: string;
  readonly onOpenDocument: (document: Document, number?: number) => void;
}

const NOTHING = new Observable<ConversationView>({
  state: "ready",
  error: undefined,
  session: undefined,
  exchanges: [],
  runningTurnId: "",
  hasMore: false,
});

export function ChatPage({ conversation, session, messageId, onOpenDocument }: ChatPageProps) {
  const page = usePage();
  const toast = useToast();
  const view = useObservable(session?.view ?? NOTHING);
  const catalogue = useObservable(page.catalogue);
  const link = useObservable(page.link.status);
  const pending = useObservable(page.outbox.entries).filter((entry) => entry.conversation === conversation);
  const [settings, saveSettings] = useChatSettings(session, view.session);
  const [areSettingsOpen, setSettingsOpen] = useState(false);
  const { scroller, content, isAtEnd, toEnd, show } = useStickToBottom(conversation);

  const send = useCallback(
    (text: string, position: SendPosition): void => {
      try {
        page.outbox.add({ conversation, text, attachments: [], position, settings });
        toEnd();
      } catch (error) {
        toast(explainError(error));
      }
    },
    [page, conversation, settings, toEnd, toast],
  );
  const attempt = useCallback(
    (work: Promise<unknown> | undefined): void =>
      void work?.catch((error: unknown) => toast(explainError(error))),
    [toast],
  );
  const select = useCallback((id: string) => attempt(session?.select(id)), [attempt, session]);
  const rate = useCallback(
    (id: string, rating: number) => attempt(session?.rate(id, rating)),
    [attempt, session],
  );
  const regenerate = useCallback((id: string) => send("", { case: "regenerate", messageId: id }), [send]);
  const stop = useCallback(
    () =>
      attempt(
        page.client.stop(view.runningTurnId ? { turnId: view.runningTurnId } : { sessionId: conversation }),
      ),
    [attempt, page, view.runningTurnId, conversation],
  );
  const actions = useTurnActionsOf({ send, select, regenerate, onOpenDocument });

  const isBusy = view.runningTurnId !== "";
  const { exchanges, waiting } = placePending(view.exchanges, pending);
  const shownKey = useShownMessage({ messageId, session, view, conversation, attempt, show });
  const drawn = useDrawn(exchanges, scroller, shownKey);
  const beginning = useOlder(session, scroller, exchanges.length, attempt);
  const isEmpty = view.state === "ready" && exchanges.length === 0 && waiting.length === 0;

  return (
    <div className="chat">
      <div className="chat-scroll" ref={scroller} tabIndex={-1}>
        <div className="chat-column" ref={content}>
          {view.state === "loading" && <Skeleton lines={6} label="Loading the conversation" />}
          {view.state === "missing" && <MissingSession />}
          {view.state === "failed" && view.error && (
            <ErrorNotice error={explainError(view.error)}>
              <button type="button" className="button" onClick={() => attempt(session?.reload())}>
                Try again
              </button>
            </ErrorNotice>
          )}
          {view.hasMore && (
            <button
              ref={beginning}
              type="button"
              className="button quiet older"
              onClick={() => attempt(session?.loadOlder())}
            >
              Show older messages
            </button>
          )}
          {isEmpty && (
            <EmptyState
              catalogue={catalogue}
              modelIds={settings.modelIds}
              onAsk={(text) => send(text, { case: "end" })}
            />
          )}
          <ClockStopsContext value={link.kind !== "online"}>
            {exchanges.map((exchange) => (
              <ExchangeSlot
                key={exchange.key}
                exchange={exchange}
                isDrawn={drawn.has(exchange.key)}
                actions={actions}
                isBusy={isBusy}
                onSelect={select}
                onRegenerate={regenerate}
                onRate={rate}
                onSend={send}
              />
            ))}
          </ClockStopsContext>
          {waiting.map((entry) => (
            <section key={entry.requestId} className="exchange" aria-label="Message on its way">
              <PendingMessage
                entry={entry}
                isOffline={link.kind === "offline"}
                onRetry={() => page.outbox.retry(entry.requestId)}
                onDiscard={() => page.outbox.discard(entry.requestId)}
              />
            </section>
          ))}
        </div>
      </div>
      <div className="chat-foot">
        {!isAtEnd && <ToEnd isWriting={isBusy} onClick={toEnd} />}
        <Composer
          conversation={conversation}
          blocked={blockedReason(view, link.kind)}
          isRunning={isBusy}
          onSend={(text) => send(text, { case: "end" })}
          onStop={stop}
        >
          <ModelButton
            settings={settings}
            catalogue={catalogue}
            onSave={(next) => attempt(saveSettings(next))}
          />
          <IconButton icon="sliders" label="Conversation settings" onClick={() => setSettingsOpen(true)} />
        </Composer>
      </div>
      {areSettingsOpen && (
        <SettingsDialog
          settings={settings}
          catalogue={catalogue}
          onSave={(next) => attempt(saveSettings(next))}
          onClose={() => setSettingsOpen(false)}
        />
      )}
    </div>
  );
}

function blockedReason(view: ConversationView, link: string): string | undefined {
  if (view.state === "missing") return "This conversation is gone: start a new one.";
  if (link === "refused") return "The server refuses: sign in again.";
  return undefined;
}

/** Sends that are on their way stand where they will stand: after the end, or in place of what they ask anew. */
function placePending(
  exchanges: readonly ExchangeView[],
  pending: readonly OutboxEntry[],
): { readonly exchanges: readonly ExchangeView[]; readonly waiting: readonly OutboxEntry[] } {
  let shown = exchanges;
  for (const { position } of pending) {
    if (position.case !== "edit") continue;
    const at = shown.findIndex(({ user }) => user.messageId === position.messageId);
    if (at >= 0) shown = shown.slice(0, at);
  }
  return { exchanges: shown, waiting: pending };
}

function useTurnActionsOf(deps: {
  readonly send: (text: string, position: SendPosition) => void;
  readonly select: (messageId: string) => void;
  readonly regenerate: (messageId: string) => void;
  readonly onOpenDocument: (document: Document, number?: number) => void;
}): TurnActions {
  const { send, select, regenerate, onOpenDocument } = deps;
  const { client } = usePage();
  return useMemo(
    () => ({
      onOpenCitation: onOpenDocument,
      onOpenDocument,
      onOpenFile: (fileId, name) => void downloadFile(client.downloadFile(fileId), name),
      onPickLane: ({ messageId }) => select(messageId),
      onRetry: (lane) => lane && regenerate(lane.messageId),
      onChooseModel: () => document.getElementById("choose-model")?.click(),
      onFollowUp: (text) => send(text, { case: "end" }),
    }),
    [send, select, regenerate, onOpenDocument, client],
  );
}

async function downloadFile(parts: AsyncIterable<Uint8Array>, name: string): Promise<void> {
  const pieces: BlobPart[] = [];
  for await (const part of parts) pieces.push(part as Uint8Array<ArrayBuffer>);
  saveFile(pieces, name || "file");
}

/**
 * Brings a message into view once, when an address names it: one far up, or of another branch, as well. The key of its
 * exchange, until the reader goes elsewhere.
 */
function useShownMessage(deps: {
  readonly messageId: string;
  readonly session: Conversation | undefined;
  readonly view: ConversationView;
  readonly conversation: string;
  readonly attempt: (work: Promise<unknown>) => void;
  readonly show: (element: Element) => void;
}): string {
  const { messageId, session, view, conversation, attempt, show } = deps;
  const [shownId, setShownId] = useState("");
  const isReady = view.session !== undefined;
  useEffect(() => {
    if (!messageId || !isReady || !session) return;
    replaceRoute(sessionHash(conversation));
    attempt(session.reveal(messageId).then((isThere) => setShownId(isThere ? messageId : "")));
  }, [messageId, isReady, session, conversation, attempt]);

  const key = shownId && view.exchanges.find((exchange) => isOf(exchange, shownId))?.key;
  useEffect(() => {
    if (!key) return undefined;
    const element = document.getElementById(`m-${shownId}`) ?? document.getElementById(`m-${key}`);
    if (element) show(element);
    const timer = setTimeout(() => setShownId(""), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [key, shownId, show]);
  return key ?? "";
}

/** How long the neighbours of a message that was asked for are drawn first, milliseconds. */
const SHOWN_MS = 2_000;

function isOf({ user, turn, selectedId }: ExchangeView, messageId: string): boolean {
  const lanes = turn?.lanes.map((lane) => lane.messageId) ?? [];
  return [user.messageId, selectedId, ...lanes].includes(messageId);
}

function MissingSession(): ReactNode {
  return (
    <div className="empty">
      <Icon name="info" />
      <h1>This conversation is not here</h1>
      <p>It was deleted, or belongs to somebody else.</p>
      <a className="button primary" href="#/">
        Start a new one
      </a>
    </div>
  );
}
