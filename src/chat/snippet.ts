/** A line of a message's text around what was searched for. */

const MAX_CHARS = 240;
const BEFORE_CHARS = 60;

/** The first of the query's words that stands in the text, with what is around it, on one line. Pure. */
export function snippetOf(text: string, query: string): string {
  const line = text.replace(/[\s\p{Cc}]+/gu, " ").trim();
  const at = firstWord(line.toLowerCase(), query.toLowerCase());
  const from = at <= BEFORE_CHARS ? 0 : line.indexOf(" ", at - BEFORE_CHARS) + 1 || at;
  const start = Math.min(from, at);
  const room = MAX_CHARS - (start > 0 ? 1 : 0);
  const rest = Array.from(line.slice(start, start + 2 * MAX_CHARS));
  const cut = rest.length <= room ? rest.join("") : `${rest.slice(0, room - 1).join("")}…`;
  return start > 0 ? `…${cut}` : cut;
}

function firstWord(text: string, query: string): number {
  const places = (query.match(/[\p{L}\p{N}\p{M}]+/gu) ?? []).map((word) => text.indexOf(word));
  const found = places.filter((place) => place >= 0);
  return found.length === 0 ? 0 : Math.min(...found);
}
