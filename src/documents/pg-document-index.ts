/**
 * Full-text search over the passages of one owner, in Postgres.
 *
 * A passage's `terms` (pg-document-store.ts) hold its words as the text search configuration of its document's language
 * writes them, the mark of its owner, and for each word that it is about (several times in it, or in a heading) a mark of
 * that word. Ranking reads whole rows, so how many candidates are ranked decides how long a search takes; the common words
 * of a language stand in nearly every passage. Therefore:
 *
 * S1 no search ranks more than MAX_CANDIDATES passages, and MAX_BEHIND of documents that longer ones had left no room.
 * S2 candidates are taken where the words are together first; if those are too many, where they are marked; if they are too
 *    few, by the rarest word, then the next.
 * S3 the owner's mark is part of every query of the index, and tenant and user are compared in every row that is shown.
 * S4 no search counts more than MAX_COUNTED words, however long its query is and however many languages it is read in.
 * S5 what one document may have in a result is cut before anything else is: no document hides another by its length.
 * S6 a word that stands nowhere is looked for as the beginning of words. A query of words that a language leaves out is looked
 *    for as it stands, in at most MAX_READ passages.
 */
import type { Owner } from "../lib/rpc/service-binding.js";
import type { Channel, Queryable } from "../store/db.js";
import { DocumentStatus } from "../../gen/turnwire/chat/v1/types_pb.js";
import type { DocumentSource } from "./document-store.js";
import { probesOf, type Probe } from "./search-probes.js";
import { MAX_CANDIDATES, readQuestion, type Question, type SearchScope } from "./search-question.js";

/** A passage that was found, with what is known of its document. */
export interface FoundPassage {
  readonly documentId: string;
  readonly title: string;
  readonly source: DocumentSource;
  readonly mediaType: string;
  readonly tags: readonly string[];
  /** "" = it was added without an address. */
  readonly url: string;
  readonly fileId: string;
  readonly createTime: Date;
  readonly chunkIndex: number;
  readonly page: number;
  readonly heading: string;
  readonly text: string;
  /** Positions of `text` in the document, in code points. */
  readonly startChar: number;
  readonly endChar: number;
  /** Greater is better; comparable within one search. */
  readonly score: number;
}

/** Fewer documents than this among full candidates, and others are looked for behind them: so many passages at a time. */
const ENOUGH_DOCUMENTS = 10;
const MAX_BEHIND = 500;
const BEHIND_STEP = 125;
/** Fewer passages with all words than this, and passages with some of them are looked at too. */
const ENOUGH_TOGETHER = 60;
/** Passages that are read for words which the index leaves out, and the longest such query. */
const MAX_READ = 10_000;
const MAX_LITERAL_CHARS = 100;
/** What a quoted phrase adds to a passage's score: more than any words beside it. */
const PHRASE_BONUS = 100;
/** Ranked passages of one probe. */
const MAX_RANKED = 200;
/** Passages of one document in one result. */
const MAX_PER_DOCUMENT = 4;
/** Weights of ts_rank for words of the text (twice), of the title and of headings. */
const WEIGHTS = "{0.4,0.4,0.7,1.0}";

/** Whether the owner has anything that could be found. */
export async function hasDocuments(channel: Channel, { tenantId, userId }: Owner): Promise<boolean> {
  const rows = await channel.query(
    `select 1 from turnwire.source_documents where tenant_id = $1 and user_id = $2 and status = ${DocumentStatus.READY} limit 1`,
    [tenantId, userId],
  );
  return rows.length > 0;
}

/** The best passages for a query, best first. Words that stand nowhere cost nothing. */
export async function searchPassages(
  channel: Channel,
  owner: Owner,
  query: string,
  scope: SearchScope,
  limit: number,
): Promise<readonly FoundPassage[]> {
  return channel.transaction(async (tx) => {
    // The planner would read the table where it expects many hits, and compile what runs for milliseconds.
    await tx.query(
      "select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true), set_config('max_parallel_workers_per_gather', '0', true)",
    );
    const question = await readQuestion(tx, owner, query, scope);
    if (!question) return [];
    const ranked = await rank(tx, question);
    const literal = question.mute.length > 0 ? await readFor(tx, question, query) : [];
    return show(tx, owner, [...literal, ...ranked], limit);
  });
}

interface Ranked {
  readonly document_id: string;
  readonly chunk_index: number;
  readonly score: number;
}

/** Collects candidates probe by probe, the most promising first (S1, S2). */
async function rank(tx: Queryable, question: Question): Promise<Ranked[]> {
  const found = new Map<string, Ranked>();
  const keep = (rows: readonly Ranked[], bonus: number): void => {
    for (const row of rows) {
      const key = `${row.document_id} ${row.chunk_index}`;
      if (!found.has(key)) found.set(key, { ...row, score: row.score + bonus });
    }
  };
  let room = MAX_CANDIDATES;
  let behind = MAX_BEHIND;
  const documents = new Set<string>();
  for (const probe of probesOf(question)) {
    if (probe.kind === "some" && found.size >= ENOUGH_TOGETHER) break;
    for (let full = true; full && (room > 0 || (behind > 0 && documents.size < ENOUGH_DOCUMENTS));) {
      const isBehind = room === 0;
      const cap = isBehind ? BEHIND_STEP : room;
      const without = isBehind ? [...question.unready, ...documents] : question.unready;
      const { rows, seen } = await ask(tx, question, probe, cap, without);
      if (isBehind) behind -= cap;
      else room -= seen;
      keep(rows, probe.kind === "phrase" ? PHRASE_BONUS : 0);
      for (const row of rows) documents.add(row.document_id);
      full = seen === cap;
    }
  }
  return [...found.values()].sort((a, b) => b.score - a.score || a.chunk_index - b.chunk_index);
}

/** The best of at most `cap` passages that a query matches, not too many of one document, and how many it looked at. */
async function ask(
  tx: Queryable,
  { within, terms }: Question,
  { query, phrase }: Probe,
  cap: number,
  without: readonly string[],
): Promise<{ readonly rows: readonly Ranked[]; readonly seen: number }> {
  // A word that stands in half as many passages says more.
  const scores = terms.map(
    (_, index) => `$${2 * index + 6}::real * ts_rank('${WEIGHTS}', terms, $${2 * index + 7}::tsquery, 1)`,
  );
  const params = terms.flatMap((term) => [Math.log(1 + (2 * MAX_CANDIDATES) / term.count), term.query]);
  const rows = await tx.query<Ranked & { readonly seen: string }>(
    `with candidates as (
       select document_id, chunk_index, terms from turnwire.passages
       where terms @@ $1::tsquery and ($2::text[] is null or document_id = any ($2)) and document_id <> all ($3::text[])
       limit $4),
     scored as (select document_id, chunk_index, ${["0", ...scores].join(" + ")} as score from candidates
       where $5::tsquery is null or terms @@ $5::tsquery),
     placed as (
       select *, count(*) over () as seen, row_number() over (partition by document_id order by score desc) as place from scored)
     select document_id, chunk_index, score, seen from placed where place <= ${MAX_PER_DOCUMENT}
     order by score desc limit ${MAX_RANKED}`,
    [query, within ?? null, without, cap, phrase ?? null, ...params],
  );
  return { rows, seen: Number(rows[0]?.seen ?? 0) };
}

/**
 * Passages of documents in languages that leave out all the query's words ("to be or not to be") where it stands word for
 * word: titles and headings first, then what was added last.
 */
async function readFor(
  tx: Queryable,
  { owner: { tenantId, userId }, within, unready, mute }: Question,
  query: string,
): Promise<Ranked[]> {
  const words = query.slice(0, MAX_LITERAL_CHARS).match(/[\p{L}\p{N}]+/gu) ?? [];
  if (words.length === 0) return [];
  return tx.query<Ranked>(
    `with searched as (
       select p.document_id, p.chunk_index, p.heading, p.text, d.title from turnwire.source_documents d
       join turnwire.passages p using (document_id)
       where d.tenant_id = $1 and d.user_id = $2 and d.status = ${DocumentStatus.READY} and d.language = any ($3)
         and ($4::text[] is null or d.document_id = any ($4)) and d.document_id <> all ($5::text[])
       order by d.create_time desc, p.chunk_index limit ${MAX_READ}),
     scored as (
       select document_id, chunk_index,
         (title ~* $6)::int * 4 + (heading ~* $6)::int * 2 + (text ~* $6)::int as score from searched)
     select document_id, chunk_index, score::real as score from scored where score > 0
     order by score desc, chunk_index limit ${MAX_RANKED}`,
    [tenantId, userId, mute, within ?? null, unready, `\\m${words.join("\\W+")}\\M`],
  );
}

/** The first of the ranked passages, with all that is known of them. */
async function show(
  tx: Queryable,
  { tenantId, userId }: Owner,
  ranked: readonly Ranked[],
  limit: number,
): Promise<FoundPassage[]> {
  const perDocument = new Map<string, number>();
  const places = new Set<string>();
  const first = ranked
    .filter(({ document_id, chunk_index }) => {
      const place = `${document_id} ${chunk_index}`;
      if (places.has(place)) return false;
      places.add(place);
      const count = (perDocument.get(document_id) ?? 0) + 1;
      perDocument.set(document_id, count);
      return count <= MAX_PER_DOCUMENT;
    })
    .slice(0, limit);
  const rows = await tx.query<RawPassage>(
    `select d.document_id, d.title, d.source, d.media_type, d.tags, d.url, d.file_id, d.create_time, p.chunk_index, p.page,
       p.heading, p.text, p.start_char, p.end_char
     from unnest($1::text[], $2::int[]) as wanted (document_id, chunk_index)
     join turnwire.source_documents d on d.document_id = wanted.document_id
     join turnwire.passages p on p.document_id = wanted.document_id and p.chunk_index = wanted.chunk_index
     where d.tenant_id = $3 and d.user_id = $4 and p.tenant_id = $3 and p.user_id = $4 and d.status = ${DocumentStatus.READY}`,
    [first.map((row) => row.document_id), first.map((row) => row.chunk_index), tenantId, userId],
  );
  const byPlace = new Map(rows.map((row) => [`${row.document_id} ${row.chunk_index}`, row]));
  return first.flatMap(({ document_id, chunk_index, score }) => {
    const row = byPlace.get(`${document_id} ${chunk_index}`); // none: it was deleted meanwhile
    return row ? [toPassage(row, score)] : [];
  });
}

interface RawPassage {
  readonly document_id: string;
  readonly title: string;
  readonly source: DocumentSource;
  readonly media_type: string;
  readonly tags: string[];
  readonly url: string;
  readonly file_id: string;
  readonly create_time: Date;
  readonly chunk_index: number;
  readonly page: number;
  readonly heading: string;
  readonly text: string;
  readonly start_char: number;
  readonly end_char: number;
}

function toPassage(row: RawPassage, score: number): FoundPassage {
  return {
    documentId: row.document_id,
    title: row.title,
    source: row.source,
    mediaType: row.media_type,
    tags: row.tags,
    url: row.url,
    fileId: row.file_id,
    createTime: row.create_time,
    chunkIndex: row.chunk_index,
    page: row.page,
    heading: row.heading,
    text: row.text,
    startChar: row.start_char,
    endChar: row.end_char,
    score,
  };
}
