/** What is put into the full-text index beside the words themselves. Pure. */
import { createHash } from "node:crypto";
import type { Owner } from "../lib/rpc/service-binding.js";
import { UNSPACED } from "../lib/unspaced.js";

const UNSPACED_RUN = new RegExp(`${UNSPACED}+`, "gu");

/** Suffix of the terms that say: the passage is about this word, it stands there several times or in a heading. */
export const ABOUT_MARK = "\ue000";
const OWNER_MARK = "\ue001";

/** True for texts that `spaceOut` changes. */
export function hasUnspaced(text: string): boolean {
  return text.search(UNSPACED_RUN) >= 0;
}

/** Cuts runs of unspaced script into overlapping pairs, so that an index of words finds parts of them: 東京都 -> 東京 京都. */
export function spaceOut(text: string): string {
  return text.replace(UNSPACED_RUN, (run) => {
    const characters = [...run];
    if (characters.length < 2) return ` ${run} `;
    const pairs = characters.slice(1).map((character, index) => characters[index]! + character);
    return ` ${pairs.join(" ")} `;
  });
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
