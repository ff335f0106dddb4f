/** The page's frame: conversations at the left, what is open in the middle, a source at the right. On a phone: drawers. */
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { flushSync } from "react-dom";
import type { Document } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { ChatPage } from "../chat/chat-page.js";
import { DocumentPage } from "../documents/document-page.js";
import { DocumentsPage } from "../documents/documents-page.js";
import { SourcePanel, type OpenedSource } from "../documents/source-panel.js";
import { Sidebar } from "../sidebar/sidebar.js";
import { IconButton } from "../ui/icon-button.js";
import { useObservable } from "../ui/use-observable.js";
import { ConversationBar } from "./conversation-bar.js";
import { ConnectionNotice } from "./connection-notice.js";
import { usePage } from "./page-context.js";
import { go, replaceRoute, sessionHash, useRoute, type Route } from "./router.js";
import { useDocumentTitle } from "./use-document-title.js";
import { ShortcutsDialog, useShortcuts } from "./shortcuts.js";

export function Shell() {
  const page = usePage();
  const route = useRoute();
  const conversation = useConversationName(route);
  const [isSidebarOpen, setSidebarOpen] = useState(() => window.matchMedia("(min-width: 60rem)").matches);
  const [source, setSource] = useState<OpenedSource>();
  const [areShortcutsShown, setShortcutsShown] = useState(false);
  const searchField = useRef<HTMLInputElement>(null);
  const main = useRef<HTMLElement>(null);
  const returnTo = useRef<Element | null>(null);

  const closeDrawer = useCallback(() => {
    if (!window.matchMedia("(min-width: 60rem)").matches) setSidebarOpen(false);
  }, []);
  const openDocument = useCallback((document: Document, number?: number) => {
    returnTo.current = window.document.activeElement;
    setSource({ document, number });
  }, []);
  const closeSource = useCallback(() => {
    setSource(undefined);
    if (returnTo.current instanceof HTMLElement) returnTo.current.focus();
  }, []);
  const { startNew } = conversation;
  const shortcuts = useMemo(
    () => ({
      onNew: startNew,
      onSearch: () => {
        flushSync(() => setSidebarOpen(true)); // what is typed next belongs into the field already
        searchField.current?.focus();
      },
      onCompose: () => document.getElementById("composer-text")?.focus(),
      onToggleSidebar: () => setSidebarOpen((isOpen) => !isOpen),
      onShowList: () => setShortcutsShown(true),
      onEscape: () => {
        if (source) closeSource();
        else document.querySelector<HTMLButtonElement>(".composer .stop")?.click();
      },
    }),
    [startNew, source, closeSource],
  );
  useShortcuts(shortcuts);
  useEffect(() => setSource(undefined), [conversation.name, route.page]);

  const sessionId = conversation.name.startsWith("new-") ? "" : conversation.name;
  const session = useMemo(() => (sessionId ? page.open(sessionId) : undefined), [page, sessionId]);
  const item = useObservable(page.sessions.view).items.find((each) => each.sessionId === sessionId);
  const isInDocuments = route.page === "documents" || route.page === "document";
  useDocumentTitle(isInDocuments ? "Documents" : item?.title, item?.isRunning === true);

  return (
    <div className={`shell ${isSidebarOpen ? "has-sidebar" : ""} ${source ? "has-panel" : ""}`}>
      <a className="skip" href="#main" onClick={(event) => skipTo(event, main.current)}>
        Skip to the conversation
      </a>
      <div className="sidebar-place" inert={!isSidebarOpen}>
        <Sidebar
          route={route}
          searchField={searchField}
          onNew={() => {
            startNew();
            closeDrawer();
          }}
          onShowShortcuts={() => setShortcutsShown(true)}
          onChosen={closeDrawer}
        />
      </div>
      <button
        type="button"
        className="scrim"
        aria-label="Close the list of conversations"
        tabIndex={-1}
        onClick={() => setSidebarOpen(false)}
      />
      <main id="main" ref={main} tabIndex={-1}>
        <header className="topbar">
          <IconButton
            icon="menu"
            label={isSidebarOpen ? "Hide the conversations" : "Show the conversations"}
            aria-expanded={isSidebarOpen}
            onClick={() => setSidebarOpen(!isSidebarOpen)}
          />
          {session && !isInDocuments && item?.title && (
            <ConversationBar session={session} title={item.title} />
          )}
        </header>
        <ConnectionNotice />
        {route.page === "documents" && <DocumentsPage />}
        {route.page === "document" && <DocumentPage documentId={route.documentId} at={route.at} />}
        {(route.page === "new" || route.page === "session") && (
          <ChatPage
            conversation={conversation.name}
            session={session}
            messageId={route.page === "session" ? route.messageId : ""}
            onOpenDocument={openDocument}
          />
        )}
      </main>
      {source && <SourcePanel source={source} onClose={closeSource} />}
      {areShortcutsShown && <ShortcutsDialog onClose={() => setShortcutsShown(false)} />}
    </div>
  );
}

/** The conversation that is shown: a session, or a new one until its first message has made a session of it. */
function useConversationName(route: Route): { readonly name: string; readonly startNew: () => void } {
  const page = usePage();
  const became = useObservable(page.made.all);
  const [fresh, setFresh] = useState(() => unsentConversation(page) ?? page.newConversation());
  const made = became.get(fresh);
  useEffect(() => {
    if (!made) return;
    if (route.page === "new") replaceRoute(sessionHash(made));
    setFresh(page.newConversation());
  }, [made, route.page, page]);
  const startNew = useCallback(() => {
    setFresh(page.newConversation());
    go("#/");
    document.getElementById("composer-text")?.focus();
  }, [page]);
  const name = route.page === "session" ? route.sessionId : (made ?? fresh);
  return { name, startNew };
}

/** A conversation whose first message still waits to be sent, from before a reload. */
function unsentConversation(page: ReturnType<typeof usePage>): string | undefined {
  return page.outbox.entries.get().findLast(({ conversation }) => conversation.startsWith("new-"))
    ?.conversation;
}

function skipTo(event: { preventDefault(): void }, main: HTMLElement | null): void {
  event.preventDefault();
  (document.getElementById("composer-text") ?? main)?.focus();
}
