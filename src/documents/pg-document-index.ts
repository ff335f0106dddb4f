/**
 * Full-text search over the passages of one owner, in Postgres.
 *
 * A passage's `terms` (pg-document-store.ts) hold its words as the text search configuration of its document's language
 * writes them, the mark of its owner, and for each word that it is about (several times in it, or in a heading) a mark of
 * that word. Ranking reads whole rows, so how many candidates are ranked decides how long a search takes; the common words
 * of a language stand in nearly every passage. Therefore:
 *
 * S1 no search ranks more than MAX_CANDIDATES passages.
 * S2 candidates are taken where the words are together first; if those are too many, where they are marked; if they are too
 *    few, by the rarest word, then the next.
 * S3 the owner's mark is part of every query of the index, and tenant and user are compared in every row that is shown.
 * S4 no search counts more than MAX_COUNTED words, however long its query is and however many languages it is read in.
 * S5 what one document may have in a result is cut before anything else is: no document hides another by its length.
 */
import type { Owner } from "../lib/rpc/service-binding.js";
import type { Channel, Queryable } from "../store/db.js";
import { DocumentStatus } from "../../gen/turnwire/chat/v1/types_pb.js";
import type { DocumentSource } from "./document-store.js";
import { ABOUT_MARK, ownerTerm, quoteTerm, spaceOut } from "./terms.js";

/** What narrows a search; all that is set must hold. */
export interface SearchScope {
  readonly sources?: readonly string[];
  readonly projectIds?: readonly string[];
  readonly tags?: readonly string[];
  readonly documentIds?: readonly string[];
  readonly after?: Date;
  readonly before?: Date;
}

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

const MAX_CANDIDATES = 1_500;
/** Fewer passages with all words than this, and passages with some of them are looked at too. */
const ENOUGH_TOGETHER = 60;
/** Words of a query, stop words left out; of a longer one the first count. */
const MAX_WORDS = 16;
const MAX_COUNTED = 48;
/** Words that are looked for and ranked by: the rarest. */
const MAX_TERMS = 12;
const QUERY_CHARS = 1_000;
/** Ranked passages of one probe. */
const MAX_RANKED = 200;
/** Passages of one document in one result. */
const MAX_PER_DOCUMENT = 4;
const MAX_SCOPE_DOCUMENTS = 10_000;
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
    await tx.query("select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)");
    const within = await documentsIn(tx, owner, scope);
    if (within?.length === 0) return [];
    const unready = await indexing(tx, owner);
    const readings = await read(tx, owner, query);
    const terms = await frequencies(tx, owner, firstTerms(readings));
    const ranked = await rank(tx, { owner, within, unready, readings, terms });
    return show(tx, owner, ranked, limit);
  });
}

interface Term {
  readonly term: string;
  /** Passages that have it, counted up to MAX_CANDIDATES. */
  readonly count: number;
}

interface Ranked {
  readonly document_id: string;
  readonly chunk_index: number;
  readonly score: number;
}

interface Question {
  readonly owner: Owner;
  /** Documents to look into; undefined = all. */
  readonly within: readonly string[] | undefined;
  /** Documents that have passages and cannot be found yet. */
  readonly unready: readonly string[];
  /** The query's words as each language of the owner's documents writes them. */
  readonly readings: readonly (readonly string[])[];
  /** Those words that stand somewhere, the rarest first. */
  readonly terms: readonly Term[];
}

/** The documents that a scope leaves; undefined = it leaves all. */
async function documentsIn(
  tx: Queryable,
  { tenantId, userId }: Owner,
  scope: SearchScope,
): Promise<readonly string[] | undefined> {
  const { sources = [], projectIds = [], tags = [], documentIds = [], after, before } = scope;
  const narrows = [sources, projectIds, tags, documentIds].some((list) => list.length > 0);
  if (!narrows && !after && !before) return undefined;
  const rows = await tx.query<{ document_id: string }>(
    `select document_id from turnwire.source_documents
     where tenant_id = $1 and user_id = $2 and status = ${DocumentStatus.READY}
       and ($3::text[] = '{}' or source = any ($3)) and ($4::text[] = '{}' or project_id = any ($4))
       and tags @> $5::text[] and ($6::text[] = '{}' or document_id = any ($6))
       and ($7::timestamptz is null or create_time >= $7) and ($8::timestamptz is null or create_time <= $8)
     order by create_time desc limit ${MAX_SCOPE_DOCUMENTS}`,
    [tenantId, userId, sources, projectIds, tags, documentIds, after ?? null, before ?? null],
  );
  return rows.map((row) => row.document_id);
}

/** Documents whose passages must take no place among the candidates: as many as there are workers, at most. */
async function indexing(tx: Queryable, { tenantId, userId }: Owner): Promise<readonly string[]> {
  const rows = await tx.query<{ document_id: string }>(
    `select document_id from turnwire.source_documents
     where tenant_id = $1 and user_id = $2 and status = ${DocumentStatus.INDEXING} and chunks > 0`,
    [tenantId, userId],
  );
  return rows.map((row) => row.document_id);
}

/** Different readings of the query, each its first words; stop words are left out by their language. */
async function read(tx: Queryable, { tenantId, userId }: Owner, query: string): Promise<string[][]> {
  const rows = await tx.query<{ terms: string[] }>(
    `select distinct array(select lexeme from unnest(to_tsvector(language::regconfig, $3)) as word (lexeme, positions, weights)
                           order by positions[1] limit ${MAX_WORDS}) as terms
     from (select distinct language from turnwire.source_documents
           where tenant_id = $1 and user_id = $2 and status = ${DocumentStatus.READY}) languages`,
    [tenantId, userId, spaceOut(query.slice(0, QUERY_CHARS)).replaceAll("\0", " ")],
  );
  return rows.map(({ terms }) => terms).filter((terms) => terms.length > 0);
}

/** The first word of each reading, then the second of each, up to MAX_COUNTED (S4). */
function firstTerms(readings: readonly (readonly string[])[]): string[] {
  const terms = new Set<string>();
  for (let at = 0; at < MAX_WORDS; at++)
    for (const reading of readings) for (const term of reading.slice(at, at + 1)) terms.add(term);
  return [...terms].slice(0, MAX_COUNTED);
}

async function frequencies(tx: Queryable, owner: Owner, terms: readonly string[]): Promise<Term[]> {
  const rows = await tx.query<{ term: string; count: string }>(
    `select term, (select count(*) from (select from turnwire.passages where terms @@ query::tsquery limit ${MAX_CANDIDATES}) hits) as count
     from unnest($1::text[], $2::text[]) as wanted (term, query)`,
    [terms, terms.map((term) => allOf([ownerTerm(owner), term]))],
  );
  return rows
    .map((row) => ({ term: row.term, count: Number(row.count) }))
    .filter(({ count }) => count > 0)
    .sort((a, b) => a.count - b.count)
    .slice(0, MAX_TERMS);
}

/** Collects candidates probe by probe, the most promising first (S1, S2). */
async function rank(tx: Queryable, question: Question): Promise<Ranked[]> {
  const found = new Map<string, Ranked>();
  let room = MAX_CANDIDATES;
  for (const probe of probes(question)) {
    if (room <= 0 || (probe.kind === "some" && found.size >= ENOUGH_TOGETHER)) break;
    const { rows, seen } = await ask(tx, question, probe.query, room);
    room -= seen;
    for (const row of rows) found.set(`${row.document_id} ${row.chunk_index}`, row);
  }
  return [...found.values()].sort((a, b) => b.score - a.score || a.chunk_index - b.chunk_index);
}

interface Probe {
  /** "all": every word of a reading is there. */
  readonly kind: "all" | "some";
  /** Text form of a tsquery. */
  readonly query: string;
}

function probes({ owner, readings, terms }: Question): Probe[] {
  const counts = new Map(terms.map(({ term, count }) => [term, count]));
  const isCommon = (term: string): boolean => counts.get(term) === MAX_CANDIDATES;
  const mine = ownerTerm(owner);
  const list: Probe[] = [];
  const add = (kind: Probe["kind"], alternatives: readonly string[]): void => {
    if (alternatives.length > 0)
      list.push({ kind, query: `${quoteTerm(mine)} & (${[...new Set(alternatives)].join(" | ")})` });
  };
  // A word that stands nowhere says nothing against the others of its reading.
  const known = readings.map((reading) => reading.filter((term) => counts.has(term)));
  const sizes = [...new Set(known.map((reading) => reading.length))].sort((a, b) => b - a);
  for (const size of sizes.filter((each) => each > 0)) {
    const together = known.filter((reading) => reading.length === size);
    const common = together.filter((reading) => reading.every(isCommon));
    add(
      "all",
      common.map((reading) => allOf(reading.map((term) => term + ABOUT_MARK))),
    );
    add("all", together.map(allOf));
  }
  for (const { term } of terms) {
    if (isCommon(term)) add("some", [quoteTerm(term + ABOUT_MARK)]);
    else add("some", [quoteTerm(term)]);
  }
  return list;
}

/** The best of at most `cap` passages that a query matches, not too many of one document, and how many it looked at. */
async function ask(
  tx: Queryable,
  { within, unready, terms }: Question,
  query: string,
  cap: number,
): Promise<{ readonly rows: readonly Ranked[]; readonly seen: number }> {
  // A word that stands in half as many passages says more.
  const scores = terms.map(
    (_, index) => `$${2 * index + 5}::real * ts_rank('${WEIGHTS}', terms, $${2 * index + 6}::tsquery, 1)`,
  );
  const params = terms.flatMap(({ term, count }) => [
    Math.log(1 + (2 * MAX_CANDIDATES) / count),
    quoteTerm(term),
  ]);
  const rows = await tx.query<Ranked & { readonly seen: string }>(
    `with candidates as (
       select document_id, chunk_index, terms from turnwire.passages
       where terms @@ $1::tsquery and ($2::text[] is null or document_id = any ($2)) and document_id <> all ($3::text[])
       limit $4),
     scored as (select document_id, chunk_index, ${scores.join(" + ")} as score from candidates),
     placed as (
       select *, count(*) over () as seen, row_number() over (partition by document_id order by score desc) as place from scored)
     select document_id, chunk_index, score, seen from placed where place <= ${MAX_PER_DOCUMENT}
     order by score desc limit ${MAX_RANKED}`,
    [query, within ?? null, unready, cap, ...params],
  );
  return { rows, seen: Number(rows[0]?.seen ?? 0) };
}

/** The first of the ranked passages, with all that is known of them. */
async function show(
  tx: Queryable,
  { tenantId, userId }: Owner,
  ranked: readonly Ranked[],
  limit: number,
): Promise<FoundPassage[]> {
  const perDocument = new Map<string, number>();
  const first = ranked
    .filter(({ document_id }) => {
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

function allOf(terms: readonly string[]): string {
  return terms.length === 1 ? quoteTerm(terms[0]!) : `(${terms.map(quoteTerm).join(" & ")})`;
}
