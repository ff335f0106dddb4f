/** The conversations, the search over them, and the way to everything else. */
import { type RefObject, useCallback, useEffect, useId, useRef, useState } from "react";
import { explainError } from "../../client/explain-error.js";
import { usePage } from "../app/page-context.js";
import { useTheme } from "../app/theme.js";
import type { Route } from "../app/router.js";
import { Icon } from "../ui/icon.js";
import { IconButton } from "../ui/icon-button.js";
import { ErrorNotice } from "../ui/notice.js";
import { Skeleton } from "../ui/skeleton.js";
import { useObservable } from "../ui/use-observable.js";
import { signIn } from "../data/account.js";
import { groupByDay } from "./group-by-day.js";
import { SearchResults } from "./search-results.js";
import { SessionRow } from "./session-row.js";

export interface SidebarProps {
  readonly route: Route;
  readonly searchField: RefObject<HTMLInputElement | null>;
  readonly onNew: () => void;
  readonly onShowShortcuts: () => void;
  /** Something was chosen: a drawer closes. */
  readonly onChosen: () => void;
}

export function Sidebar({ route, searchField, onNew, onShowShortcuts, onChosen }: SidebarProps) {
  const page = usePage();
  const [query, setQuery] = useState("");
  const searchId = useId();
  const sessionId = route.page === "session" ? route.sessionId : "";
  const onDocuments = route.page === "documents" || route.page === "document";
  return (
    <div className="sidebar">
      <header className="sidebar-head">
        <a className="brand" href="#/" onClick={onChosen}>
          <img src="/icon.svg" alt="" width={26} height={26} />
          <span>Turnwire</span>
        </a>
      </header>
      <button type="button" className="new-chat" onClick={onNew}>
        <Icon name="plus" />
        <span>New conversation</span>
      </button>
      <div className="search-field" role="search">
        <Icon name="search" />
        <label className="hidden-text" htmlFor={searchId}>
          Search in all messages
        </label>
        <input
          ref={searchField}
          id={searchId}
          type="search"
          placeholder="Search messages"
          value={query}
          onChange={(event) => setQuery(event.target.value)}
          onKeyDown={(event) => event.key === "Escape" && setQuery("")}
        />
      </div>
      <nav className="sidebar-list" aria-label="Conversations">
        {query.trim() ? (
          <SearchResults query={query.trim()} onChosen={onChosen} />
        ) : (
          <Sessions current={sessionId} onChosen={onChosen} />
        )}
      </nav>
      <footer className="sidebar-foot">
        <a
          className={onDocuments ? "foot-link is-current" : "foot-link"}
          href="#/documents"
          aria-current={onDocuments ? "page" : undefined}
          onClick={onChosen}
        >
          <Icon name="book" />
          <span>Documents</span>
        </a>
        <div className="foot-row">
          <LogInUse log={page.config.log} />
          <ThemeButton />
          <IconButton small icon="keyboard" label="Keyboard shortcuts" onClick={onShowShortcuts} />
          {page.config.auth === "token" && (
            <IconButton small icon="signOut" label="Sign out" onClick={() => signIn("")} />
          )}
        </div>
      </footer>
    </div>
  );
}

function Sessions({ current, onChosen }: { readonly current: string; readonly onChosen: () => void }) {
  const { sessions } = usePage();
  const view = useObservable(sessions.view);
  const more = useMore(() => void sessions.loadMore(), view.items.length);
  const chosen = useLatest(onChosen);
  if (view.state === "loading") return <Skeleton lines={5} label="Loading the conversations" />;
  if (view.state === "failed" && view.error) {
    return (
      <ErrorNotice error={explainError(view.error)}>
        <button type="button" className="button" onClick={() => void sessions.reload()}>
          Try again
        </button>
      </ErrorNotice>
    );
  }
  if (view.items.length === 0) return <p className="list-note">Your conversations will appear here.</p>;
  return (
    <div>
      {groupByDay(view.items, new Date()).map(({ label, items }) => (
        <section key={label} aria-label={label}>
          <h2 className="list-head">{label}</h2>
          <ul className="plain">
            {items.map((item) => (
              <SessionRow
                key={item.sessionId}
                item={item}
                isCurrent={item.sessionId === current}
                onChosen={chosen}
              />
            ))}
          </ul>
        </section>
      ))}
      {view.hasMore && (
        <button
          ref={more}
          type="button"
          className="button quiet more"
          onClick={() => void sessions.loadMore()}
        >
          Show more
        </button>
      )}
    </div>
  );
}

/** Calls for more when the reader comes to the end. The ref belongs on what stands there. */
function useMore(onMore: () => void, count: number): RefObject<HTMLButtonElement | null> {
  const end = useRef<HTMLButtonElement>(null);
  const call = useLatest(onMore);
  useEffect(() => {
    if (!end.current) return undefined;
    const seen = new IntersectionObserver(([entry]) => entry?.isIntersecting && call());
    seen.observe(end.current);
    return () => seen.disconnect();
  }, [count, call]); // with more there it is looked at anew
  return end;
}

/** A function that stays the same and calls the newest. */
function useLatest(run: () => void): () => void {
  const latest = useRef(run);
  useEffect(() => {
    latest.current = run;
  });
  return useCallback(() => latest.current(), []);
}

/** Which log the service uses: what a running answer survives depends on it. */
function LogInUse({ log }: { readonly log: string }) {
  return (
    <p className="log-in-use" title={`Running answers are kept in: ${log}`}>
      <span className="log-dot" aria-hidden="true" />
      <span>Log: {log}</span>
    </p>
  );
}

function ThemeButton() {
  const [theme, toggle] = useTheme();
  return (
    <IconButton
      small
      icon={theme === "dark" ? "sun" : "moon"}
      label={theme === "dark" ? "Light colours" : "Dark colours"}
      onClick={toggle}
    />
  );
}
