/** Search over all that a user and the models said to each other. */
import type { Principal } from "../lib/rpc/service-binding.js";
import type { Db } from "./db.js";
import { MESSAGE_COLUMNS, toMessageRow, type RawMessage } from "./messages.js";
import { pageSize, startAfter, toPage } from "./page-token.js";
import { searchQuery } from "./search-words.js";
import type { FoundMessage, Store } from "./store.js";

/** Of common words the newest messages are ranked: a search takes as long as there are hits. */
const MAX_RANKED = 1_000;
/** Characters of a message's text that a snippet is taken from. */
const SNIPPET_SOURCE_CHARS = 20_000;

type RawFound = RawMessage & {
  readonly session_title: string;
  readonly text: string;
  readonly place: string;
  readonly newest: string;
};

/** Ranks the newest hits up to the first page's newest message, so that pages stay what they were while turns go on. */
const SEARCH = {
  name: "search_messages",
  text: `
    with hit as materialized (
      select message_id, session_id, ordinal, search from turnwire.messages
      where search @@ $1::tsquery and tenant_id = $2 and user_id = $3 and ($4::bigint is null or ordinal <= $4)
      order by ordinal desc limit ${MAX_RANKED}),
    ranked as (
      select message_id, row_number() over (order by ts_rank(search, $1::tsquery, 1) desc, ordinal desc) as place,
        max(ordinal) over () as newest
      from hit)
    select ${MESSAGE_COLUMNS}, s.title as session_title, left(m.search_text, ${SNIPPET_SOURCE_CHARS}) as text,
      ranked.place, ranked.newest
    from ranked join turnwire.messages m using (message_id) join turnwire.sessions s on s.session_id = m.session_id
    where ranked.place > $5 order by ranked.place limit $6`,
};

export async function searchMessages(
  db: Db,
  principal: Principal,
  query: string,
  page: Parameters<Store["searchMessages"]>[2],
): ReturnType<Store["searchMessages"]> {
  const { tenantId, userId } = principal;
  const scope = ["search", tenantId, userId, query];
  const [newest, place] = startAfter(page, scope) ?? [null, 0];
  const condition = searchQuery(principal, query);
  if (condition === undefined) return { rows: [], nextToken: "" };
  const size = pageSize(page);
  const rows = await db.readers.query<RawFound>(SEARCH, [
    condition,
    tenantId,
    userId,
    newest ?? null,
    place!,
    size + 1,
  ]);
  return toPage(rows, size, scope, (row) => [newest ?? row.newest, row.place], toFound);
}

function toFound(raw: RawFound): FoundMessage {
  return { message: toMessageRow(raw), sessionTitle: raw.session_title, text: raw.text };
}
