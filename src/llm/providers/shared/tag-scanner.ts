/** Finds out whether a tag stands at a place of a text that may not be whole yet. */

/** Characters of the longest tag; also of the longest run of blanks that is waited for. */
export const MAX_TAG_CHARS = 512;

/** A tag with where it ends; `partial` = the text ends before that can be said; undefined = no tag. */
export type TagMatch = { readonly name: string; readonly end: number } | "partial" | undefined;

/**
 * A start tag of one of the names (lower case), with attributes: name=value in double or single quotes, anything else makes it
 * no tag. White space may hold line breaks.
 */
export function matchStartTag(text: string, at: number, names: readonly string[]): TagMatch {
  return bounded(text, at, scanStartTag(text, at, names));
}

/** An end tag of one of the names, blanks before its bracket allowed. */
export function matchEndTag(text: string, at: number, names: readonly string[]): TagMatch {
  return bounded(text, at, scanEndTag(text, at, names));
}

function bounded(text: string, at: number, match: TagMatch): TagMatch {
  if (match === undefined) return undefined;
  const end = match === "partial" ? text.length : match.end;
  return end - at <= MAX_TAG_CHARS ? match : undefined;
}

function scanStartTag(text: string, at: number, names: readonly string[]): TagMatch {
  const name = matchName(text, at + 1, names);
  if (typeof name !== "object") return name;
  let { end } = name;
  for (;;) {
    const next = skip(text, end, isSpace);
    if (next === text.length) return "partial";
    if (text[next] === ">") return { name: name.name, end: next + 1 };
    if (next === end) return undefined; // attributes stand apart
    const value = skip(text, next, isNameChar);
    if (value === text.length) return "partial";
    if (value === next || text[value] !== "=") return undefined;
    const quote = text[value + 1];
    if (quote === undefined) return "partial";
    if (quote !== '"' && quote !== "'") return undefined;
    const close = text.indexOf(quote, value + 2);
    if (close === -1) return "partial";
    end = close + 1;
  }
}

function scanEndTag(text: string, at: number, names: readonly string[]): TagMatch {
  if (at + 1 === text.length) return "partial";
  if (text[at + 1] !== "/") return undefined;
  const name = matchName(text, at + 2, names);
  if (typeof name !== "object") return name;
  const next = skip(text, name.end, isBlank);
  if (next === text.length) return "partial";
  return text[next] === ">" ? { name: name.name, end: next + 1 } : undefined;
}

/** The whole name at this place, if it is one of the names in any case. */
function matchName(text: string, at: number, names: readonly string[]): TagMatch {
  const end = skip(text, at, isNameChar);
  if (end - at > MAX_TAG_CHARS) return undefined;
  const found = text.slice(at, end).toLowerCase();
  if (end < text.length) return names.includes(found) ? { name: found, end } : undefined;
  return names.some((name) => name.startsWith(found)) ? "partial" : undefined;
}

function skip(text: string, from: number, accept: (unit: number) => boolean): number {
  let at = from;
  while (at < text.length && accept(text.charCodeAt(at))) at++;
  return at;
}

/** Space or tab. */
export function isBlank(unit: number): boolean {
  return unit === 0x20 || unit === 0x09;
}

/** A blank or a line break. */
export function isSpace(unit: number): boolean {
  return isBlank(unit) || isLineBreak(unit);
}

export function isLineBreak(unit: number): boolean {
  return unit === 0x0a || unit === 0x0d;
}

function isNameChar(unit: number): boolean {
  return (
    (unit >= 0x61 && unit <= 0x7a) ||
    (unit >= 0x41 && unit <= 0x5a) ||
    (unit >= 0x30 && unit <= 0x39) ||
    unit === 0x2d ||
    unit === 0x5f ||
    unit === 0x3a
  );
}
