/** The queries of the index that a question is answered with, the most promising first (S2). Pure. */
import { MAX_CANDIDATES, type Question, type Term } from "./search-question.js";
import { ABOUT_MARK, ownerTerm, quoteTerm } from "./terms.js";

/** One look into the index. */
export interface Probe {
  /** "phrase": what is quoted stands there; "all": every word of a reading is there. */
  readonly kind: "phrase" | "all" | "some";
  /** Text form of a tsquery. */
  readonly query: string;
  /** What must hold of the candidates besides: the index cannot tell it, and to look for it must not cost more than they do. */
  readonly phrase?: string;
}

/** What is looked for, in order. */
export function probesOf({ owner, readings, phrases, terms }: Question): Probe[] {
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

function allOf(queries: readonly string[]): string {
  return queries.length === 1 ? queries[0]! : `(${queries.join(" & ")})`;
}
