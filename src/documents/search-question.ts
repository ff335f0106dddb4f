/**
 * What a query asks for among the documents of one owner: its words as each language of the documents writes them, how
 * common each is, and where it may look. Numbered rules: pg-document-index.ts.
 */
import { DocumentStatus } from "../../gen/turnwire/chat/v1/types_pb.js";
import type { Owner } from "../lib/rpc/service-binding.js";
import type { Queryable } from "../store/db.js";
import { beginning, isLoneCharacter, ownerTerm, quoteTerm, spaceOut } from "./terms.js";
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

/** Passages that a search ranks (S1), and up to which it counts. */
export const MAX_CANDIDATES = 1_500;
/** Words of a query, stop words left out; of a longer one the first count. */
const MAX_WORDS = 16;
const MAX_COUNTED = 48;
/** Words that are looked for and ranked by: the rarest. */
const MAX_TERMS = 12;
const QUERY_CHARS = 1_000;
/** Shorter words are not taken for the beginning of others. */
const MIN_BEGINNING = 3;
const MAX_PHRASES = 3;
const MAX_SCOPE_DOCUMENTS = 10_000;

/** A word of the query that stands somewhere. */
export interface Term {
  readonly term: string;
  /** Text form of a tsquery: the term, or what begins so. */
  readonly query: string;
  readonly isBeginning: boolean;
  /** Passages that have it, counted or known up to MAX_CANDIDATES. */
  readonly count: number;
}

/** A query, read. */
export interface Question {
  readonly owner: Owner;
  /** Documents to look into; undefined = all. */
  readonly within: readonly string[] | undefined;
  /** Documents that have passages and cannot be found yet. */
  readonly unready: readonly string[];
  /** The query's words as each language of the owner's documents writes them. */
  readonly readings: readonly (readonly string[])[];
  /** Text forms of tsqueries: what the query has between quotes. */
  readonly phrases: readonly string[];
  /** The languages that leave out all of the query's words. */
  readonly mute: readonly string[];
  /** Those words that stand somewhere, the rarest first. */
  readonly terms: readonly Term[];
}

/** Reads a query; undefined = the scope leaves no document. */
export async function readQuestion(
  tx: Queryable,
  owner: Owner,
  query: string,
  scope: SearchScope,
): Promise<Question | undefined> {
  const within = await documentsIn(tx, owner, scope);
  if (within?.length === 0) return undefined;
  const unready = await indexing(tx, owner);
  const { readings, phrases, mute } = await read(tx, owner, query);
  const terms = await frequencies(tx, owner, firstTerms(readings));
  return { owner, within, unready, readings, phrases, mute, terms };
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
