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
import { ABOUT_MARK, beginning, isLoneCharacter, ownerTerm, quoteTerm, spaceOut } from "./terms.js";
import { variantsOf } from "./word-forms.js";

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
/** Fewer documents than this among full candidates, and others are looked for behind them: so many passages at a time. */
const ENOUGH_DOCUMENTS = 10;
const MAX_BEHIND = 500;
const BEHIND_STEP = 125;
/** Fewer passages with all words than this, and passages with some of them are looked at too. */
const ENOUGH_TOGETHER = 60;
/** Words of a query, stop words left out; of a longer one the first count. */
const MAX_WORDS = 16;
const MAX_COUNTED = 48;
/** Words that are looked for and ranked by: the rarest. */
const MAX_TERMS = 12;
const QUERY_CHARS = 1_000;
/** Shorter words are not taken for the beginning of others. */
const MIN_BEGINNING = 3;
/** Passages that are read for words which the index leaves out, and the longest such query. */
const MAX_READ = 10_000;
const MAX_LITERAL_CHARS = 100;
const MAX_PHRASES = 3;
/** What a quoted phrase adds to a passage's score: more than any words beside it. */
const PHRASE_BONUS = 100;
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
    await tx.query(
      "select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true), set_config('max_parallel_workers_per_gather', '0', true)",
    );
    const within = await documentsIn(tx, owner, scope);
    if (within?.length === 0) return [];
    const unready = await indexing(tx, owner);
    const { readings, phrases, mute } = await read(tx, owner, query);
    const terms = await frequencies(tx, owner, firstTerms(readings));
    const question = { owner, within, unready, readings, phrases, terms };
    const ranked = await rank(tx, question);
    const literal = mute.length > 0 ? await readFor(tx, question, query, mute) : [];
    return show(tx, owner, [...literal, ...ranked], limit);
  });
}

interface Term {
  readonly term: string;
  /** Text form of a tsquery: the term, or what begins so. */
  readonly query: string;
  readonly isBeginning: boolean;
  /** Passages that have it, counted or known up to MAX_CANDIDATES. */
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
  /** Text forms of tsqueries: what the query has between quotes. */
  readonly phrases: readonly string[];
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

interface Read {
  readonly readings: string[][];
  readonly phrases: string[];
  /** The languages that leave out all of the query's words. */
  readonly mute: string[];
}

/** Different readings of the query, each its first words; stop words are left out by their language. */
async function read(tx: Queryable, { tenantId, userId }: Owner, query: string): Promise<Read> {
  const asked = query.slice(0, QUERY_CHARS).replaceAll("\0", " ");
  const quoted = [...asked.matchAll(/["“„«]([^"“”„«»]{3,200})["”“»]/g)].slice(0, MAX_PHRASES);
  const rows = await tx.query<{ language: string; terms: string[]; phrases: string[] }>(
    `select language, array(select lexeme from unnest(to_tsvector(language::regconfig, variant)) as word (lexeme, positions, weights)
                            order by positions[1] limit ${MAX_WORDS}) as terms,
       array(select phraseto_tsquery(language::regconfig, phrase)::text from unnest($4::text[]) as phrases (phrase)) as phrases
     from (select distinct language from turnwire.source_documents
           where tenant_id = $1 and user_id = $2 and status = ${DocumentStatus.READY}) languages,
       unnest($3::text[]) as variants (variant)`,
    [tenantId, userId, variantsOf(asked).map(spaceOut), quoted.map(([, phrase]) => spaceOut(phrase!))],
  );
  const different = new Map(rows.map(({ terms }) => [JSON.stringify(terms), terms]));
  return {
    readings: [...different.values()].filter((terms) => terms.length > 0),
    phrases: [...new Set(rows.flatMap((row) => row.phrases))].filter((phrase) => phrase !== ""),
    mute: [...new Set(rows.flatMap(({ language, terms }) => (terms.length === 0 ? [language] : [])))],
  };
}

/** The first word of each reading, then the second of each, up to MAX_COUNTED (S4). */
function firstTerms(readings: readonly (readonly string[])[]): string[] {
  const terms = new Set<string>();
  for (let at = 0; at < MAX_WORDS; at++)
    for (const reading of readings) for (const term of reading.slice(at, at + 1)) terms.add(term);
  return [...terms].slice(0, MAX_COUNTED);
}

async function frequencies(tx: Queryable, owner: Owner, terms: readonly string[]): Promise<Term[]> {
  const exact = terms.filter((term) => !isLoneCharacter(term));
  const known = await counted(tx, owner, exact, false);
  const found = new Set(known.map(({ term }) => term));
  // Half of a word that is still typed, a stem that is longer than the word's, the first part of a compound.
  const unknown = terms.filter(
    (term) => !found.has(term) && (term.length >= MIN_BEGINNING || isLoneCharacter(term)),
  );
  const begun = await counted(tx, owner, unknown.slice(0, MAX_TERMS), true);
  return [...known, ...begun].sort((a, b) => a.count - b.count).slice(0, MAX_TERMS);
}

/** Those of the terms that stand somewhere. Where the planner knows that they are many, they are not counted. */
async function counted(
  tx: Queryable,
  owner: Owner,
  terms: readonly string[],
  isBeginning: boolean,
): Promise<Term[]> {
  if (terms.length === 0) return [];
  const queryOf = isBeginning ? beginning : quoteTerm;
  const mine = quoteTerm(ownerTerm(owner));
  const queries = terms.map((term) => `${mine} & ${queryOf(term)}`);
  const estimates = isBeginning ? [] : await estimatedRows(tx, queries);
  const rows = await tx.query<{ count: string }>(
    `select coalesce(nullif(estimate, 0),
       (select count(*) from (select from turnwire.passages where terms @@ query::tsquery limit ${MAX_CANDIDATES}) hits)) as count
     from unnest($1::text[], $2::int[]) with ordinality as wanted (query, estimate, place) order by place`,
    [queries, queries.map((_, at) => manyOf(estimates[at] ?? 0))],
  );
  return rows
    .map(({ count }, at) => ({
      term: terms[at]!,
      query: queryOf(terms[at]!),
      isBeginning,
      count: Number(count),
    }))
    .filter(({ count }) => count > 0);
}

/** From so many expected passages on, the planner's statistics are taken for the count. */
const MANY = 1_000;

function manyOf(estimate: number): number {
  return estimate < MANY ? 0 : Math.min(Math.round(estimate), MAX_CANDIDATES);
}

/** What the planner expects each query to find, without running it; little where it has no statistics. */
async function estimatedRows(tx: Queryable, queries: readonly string[]): Promise<number[]> {
  const each = queries.map((_, at) => `select 1 from turnwire.passages where terms @@ $${at + 1}::tsquery`);
  const [explained] = await tx.query<{ "QUERY PLAN": readonly [{ Plan: PlanNode }] }>(
    `explain (format json) ${each.join(" union all ")}`,
    queries,
  );
  const { Plan: plan } = explained!["QUERY PLAN"][0];
  const nodes = queries.length === 1 ? [plan] : (plan.Plans ?? []);
  return nodes.length === queries.length ? nodes.map((node) => node["Plan Rows"]) : [];
}

interface PlanNode {
  readonly "Plan Rows": number;
  readonly Plans?: readonly PlanNode[];
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
  for (const probe of probes(question)) {
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

interface Probe {
  /** "phrase": what is quoted stands there; "all": every word of a reading is there. */
  readonly kind: "phrase" | "all" | "some";
  /** Text form of a tsquery. */
  readonly query: string;
  /** What must hold of the candidates besides: the index cannot tell it, and to look for it must not cost more than they do. */
  readonly phrase?: string;
}

function probes({ owner, readings, phrases, terms }: Question): Probe[] {
  const known = new Map(terms.map((term) => [term.term, term]));
  const isCommon = ({ count, isBeginning }: Term): boolean => count === MAX_CANDIDATES && !isBeginning;
  const about = ({ term }: Term): string => quoteTerm(term + ABOUT_MARK);
  const mine = quoteTerm(ownerTerm(owner));
  const list: Probe[] = [];
  const add = (kind: Probe["kind"], alternatives: readonly string[]): void => {
    if (alternatives.length > 0)
      list.push({ kind, query: `${mine} & (${[...new Set(alternatives)].join(" | ")})` });
  };
  for (const phrase of phrases)
    list.push({ kind: "phrase", query: `${mine} & ${phrase.replace(/ <(?:-|\d+)> /g, " & ")}`, phrase });
  // A word that stands nowhere says nothing against the others of its reading.
  const standing = readings.map((reading) => reading.flatMap((term) => known.get(term) ?? []));
  const sizes = [...new Set(standing.map((reading) => reading.length))].sort((a, b) => b - a);
  for (const size of sizes.filter((each) => each > 0)) {
    const together = standing.filter((reading) => reading.length === size);
    const common = together.filter((reading) => reading.every(isCommon));
    add(
      "all",
      common.map((reading) => allOf(reading.map(about))),
    );
    add(
      "all",
      together.map((reading) => allOf(reading.map(({ query }) => query))),
    );
  }
  for (const term of terms) {
    if (isCommon(term)) add("some", [about(term)]);
    add("some", [term.query]);
  }
  return list;
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
  { owner: { tenantId, userId }, within, unready }: Question,
  query: string,
  languages: readonly string[],
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
    [tenantId, userId, languages, within ?? null, unready, `\\m${words.join("\\W+")}\\M`],
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

function allOf(queries: readonly string[]): string {
  return queries.length === 1 ? queries[0]! : `(${queries.join(" & ")})`;
}
