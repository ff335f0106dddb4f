/** What is put into the full-text index beside the words themselves. Pure. */
import { createHash } from "node:crypto";
import type { Owner } from "../lib/rpc/service-binding.js";
import { UNSPACED } from "../lib/unspaced.js";

const UNSPACED_RUN = new RegExp(`${UNSPACED}+`, "gu");

/** Suffix of the terms that say: the passage is about this word, it stands there several times or in a heading. */
export const ABOUT_MARK = "\ue000";
const OWNER_MARK = "\ue001";

/** A query as the index has its words: 東京都 -> 東京 京都. */
export function spaceOut(text: string): string {
  return text.normalize("NFC").replace(UNSPACED_RUN, (run) => ` ${pairsOf([...run]).join(" ")} `);
}

/**
 * A text as it is indexed: accents composed, runs of unspaced script cut into overlapping pairs, so that an index of words
 * finds parts of them, and a run's last character alone: with it each character begins a term.
 */
export function indexable(text: string): string {
  return text.normalize("NFC").replace(UNSPACED_RUN, (run) => {
    const characters = [...run];
    const last = characters.length > 1 ? ` ${characters.at(-1)!}` : "";
    return ` ${pairsOf(characters).join(" ")}${last} `;
  });
}

/** True for a term that is one character of an unspaced script: more stand in the index as the beginning of a pair. */
export function isLoneCharacter(term: string): boolean {
  return [...term].length === 1 && term.search(UNSPACED_RUN) === 0;
}

function pairsOf(characters: readonly string[]): readonly string[] {
  if (characters.length < 2) return characters;
  return characters.slice(1).map((character, index) => characters[index]! + character);
}

const REPEATED = 3;

/** The words that stand in a text several times: what it is about, as far as that can be seen for little. */
export function repeatedWords(text: string): string {
  const counts = new Map<string, number>();
  for (const word of spaceOut(text.toLowerCase()).match(/[\p{L}\p{N}]{2,}/gu) ?? [])
    counts.set(word, (counts.get(word) ?? 0) + 1);
  return [...counts].flatMap(([word, count]) => (count >= REPEATED ? [word] : [])).join(" ");
}

/** The term that stands on every passage of an owner: a search intersects with it inside the index. */
export function ownerTerm({ tenantId, userId }: Owner): string {
  const hash = createHash("sha256")
    .update(JSON.stringify([tenantId, userId]))
    .digest("base64url");
  return OWNER_MARK + hash.slice(0, 16);
}

/** A term as it stands in the text form of a tsquery. */
export function quoteTerm(term: string): string {
  return `'${term.replace(/\\/g, "\\\\").replace(/'/g, "''")}'`;
}

/** The same for all terms that begin so. */
export function beginning(term: string): string {
  return `${quoteTerm(term)}:*`;
}
