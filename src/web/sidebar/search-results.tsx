import { useEffect, useState } from "react";
import type { SearchMessagesResponse } from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import { explainError, type Explanation } from "../../client/explain-error.js";
import { usePage } from "../app/page-context.js";
import { sessionHash } from "../app/router.js";
import { ErrorNotice } from "../ui/notice.js";

type Search =
  | { readonly kind: "searching" }
  | { readonly kind: "found"; readonly reply: SearchMessagesResponse }
  | { readonly kind: "failed"; readonly error: Explanation };

const WAIT_MS = 150;
const PAGE_SIZE = 30;

/** Messages that hold the words, each with the text around them. */
export function SearchResults({
  query,
  onChosen,
}: {
  readonly query: string;
  readonly onChosen: () => void;
}) {
  const { client } = usePage();
  const [search, setSearch] = useState<Search>({ kind: "searching" });
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(() => {
      client.api.searchMessages({ query, pageSize: PAGE_SIZE }, { signal: abort.signal }).then(
        (reply) => setSearch({ kind: "found", reply }),
        (error: unknown) => {
          if (!abort.signal.aborted) setSearch({ kind: "failed", error: explainError(error) });
        },
      );
    }, WAIT_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [client, query]);

  if (search.kind === "failed") return <ErrorNotice error={search.error} />;
  if (search.kind === "searching") return <p className="list-note">Searching</p>;
  const { messages, matches } = search.reply;
  return (
    <>
      <p className="list-note" role="status">
        {messages.length === 0 ? "Nothing found. Try fewer or other words." : `${messages.length} found`}
      </p>
      <ul className="plain">
        {messages.map(({ messageId, sessionId }, i) => (
          <li key={messageId} className="hit">
            <a href={sessionHash(sessionId || matches[i]?.sessionId || "", messageId)} onClick={onChosen}>
              <span className="hit-title">{matches[i]?.sessionTitle || "New conversation"}</span>
              <span className="hit-text">
                <Marked text={matches[i]?.snippet ?? ""} query={query} />
              </span>
            </a>
          </li>
        ))}
      </ul>
    </>
  );
}

/** A text with the words of the query marked. */
function Marked({ text, query }: { readonly text: string; readonly query: string }) {
  const words = query
    .split(/\s+/)
    .filter(Boolean)
    .map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (words.length === 0) return text;
  const parts = text.split(new RegExp(`(${words.join("|")})`, "giu"));
  return parts.map((part, i) => (i % 2 === 1 ? <mark key={i}>{part}</mark> : part));
}
