/**
 * Makes the open end of a text that is still being written look like what it is about to be: markers that may become
 * anything are held back, open emphasis and code are closed, a link shows its words until its address is there, a table
 * is a table from its first line on. Pure, and only for display.
 */

/** Characters at the end that are looked at: marks opened before them are left as they are. */
const MAX_INLINE_CHARS = 4_096;
/** Characters of a link that is looked at. */
const MAX_LINK_CHARS = 1_024;
/** Marks open at once; more is no emphasis but a row of signs. */
const MAX_OPEN_MARKS = 8;

/** A last line that is nothing but the beginning of a marker: a rule, a list item, a heading, a fence. */
const UNDECIDED_LINE = /(^|\n)[ \t]*(?:[-=*+_~#>]+|\d{1,9}[.)]?|`{1,2}|~{1,2})[ \t]*$/;
/** A citation of which a part has come: `[[1`, `[[1]](https://exa`. */
const OPEN_CITATION = /^\[{1,2}\d{0,4}\]{0,2}(?:\]\([^)\s]*)?$/;
const OPEN_FENCE = /^(?:[ \t]*(?:[-*+>]|\d{1,9}[.)]))*[ \t]*(`{3,}|~{3,})/;
/** What begins a line of its own kind: only what stands after it belongs to the same text. */
const LINE_START = /^[ \t]*(?:(?:[-*+>]|\d{1,9}[.)]|#{1,6})[ \t]+)*/;

/** The tail with its open end completed. */
export function completeTail(tail: string): string {
  if (isInFence(tail)) return tail.replace(/\n[ \t]*(?:`{1,}|~{1,})$/, "\n");
  const text = tail.replace(UNDECIDED_LINE, "$1");
  const table = completeTable(text);
  if (table !== undefined) return table;
  const start = Math.max(inlineStart(text), text.length - MAX_INLINE_CHARS);
  return text.slice(0, start) + completeInline(text.slice(start));
}

function isInFence(text: string): boolean {
  let fence: string | undefined;
  for (const line of text.split("\n")) {
    const marker = OPEN_FENCE.exec(line)?.[1];
    if (!marker) continue;
    if (fence === undefined) fence = marker;
    else if (marker[0] === fence[0] && marker.length >= fence.length && line.trim() === marker)
      fence = undefined;
  }
  return fence !== undefined;
}

/** Where the text begins that the end belongs to: after the last empty line, list marker, heading or cell. */
function inlineStart(text: string): number {
  const blank = text.lastIndexOf("\n\n") + 1;
  const lineStart = text.lastIndexOf("\n") + 1;
  const line = text.slice(lineStart);
  const marker = LINE_START.exec(line)![0].length;
  if (line.startsWith("|")) return lineStart + line.lastIndexOf("|") + 1;
  if (marker > 0 && line.slice(0, marker).trim() !== "") return lineStart + marker;
  return Math.max(blank, 0);
}

/**
 * A header row, alone or over a delimiter row that has begun, gets a whole delimiter row; one that is not whole is held
 * back. undefined = no such table.
 */
function completeTable(text: string): string | undefined {
  const head = text.slice(text.lastIndexOf("\n\n") + 1).replace(/^\n/, "");
  const lines = head.split("\n");
  const header = lines[0] ?? "";
  if (!/^ {0,3}\|/.test(header) || lines.length > 2) return undefined;
  if (lines.length === 1 && !/\|\s*$/.test(header.slice(1))) return text.slice(0, text.length - head.length);
  const delimiter = lines[1];
  if (delimiter !== undefined && !/^[ |:-]*$/.test(delimiter)) return undefined;
  const cells = header
    .trim()
    .replace(/^\||\|$/g, "")
    .split("|").length;
  const begin = text.slice(0, text.length - head.length);
  return `${begin}${header.trimEnd().replace(/\|?$/, "|")}\n|${" --- |".repeat(cells)}`;
}

interface OpenMark {
  readonly char: string;
  readonly at: number;
  length: number;
}

/** Closes what is open at the end of a piece of inline text. */
function completeInline(text: string): string {
  const open: OpenMark[] = [];
  let i = 0;
  while (i < text.length) {
    const char = text[i]!;
    if (char === "\\") {
      i += 2;
    } else if (char === "`") {
      const run = runLength(text, i);
      const end = endOfCode(text, i + run, run);
      if (end < 0) return closeCode(text, i, run, open);
      i = end;
    } else if (char === "[") {
      const end = endOfLink(text, i);
      if (typeof end === "string") return close(end, open);
      i = end;
    } else if (char === "*" || char === "_" || char === "~") {
      const run = runLength(text, i);
      if (char !== "~" || run === 2) takeMark(open, text, i, run);
      if (open.length > MAX_OPEN_MARKS) return text;
      i += run;
    } else {
      i++;
    }
  }
  return close(text, open);
}

function runLength(text: string, at: number): number {
  let end = at + 1;
  while (text[end] === text[at]) end++;
  return end - at;
}

/** Where the code that ends with `run` backticks ends; -1 = not yet. */
function endOfCode(text: string, from: number, run: number): number {
  for (let at = text.indexOf("`", from); at >= 0;) {
    const length = runLength(text, at);
    if (length === run) return at + length;
    at = text.indexOf("`", at + length);
  }
  return -1;
}

function closeCode(text: string, at: number, run: number, open: OpenMark[]): string {
  const code = text.slice(at + run);
  const isEmpty = code.replace(/`+$/, "").trim() === "";
  const closed = isEmpty ? text.slice(0, at) : text.replace(/`+$/, "") + "`".repeat(run);
  return close(closed, open);
}

/** Where to go on after a bracket: past a whole link, past the bracket, or the text to show while the link is not whole. */
function endOfLink(text: string, at: number): number | string {
  const rest = text.slice(at, at + MAX_LINK_CHARS);
  const before = text.slice(0, text[at - 1] === "!" ? at - 1 : at);
  if (at + rest.length === text.length && OPEN_CITATION.test(rest)) return before;
  const link = /^\[((?:\[[^\]\n]*\]|[^[\]\n])*)\]\(/.exec(rest);
  if (!link) return at + 1;
  const end = text.indexOf(")", at + link[0].length);
  return end >= 0 ? end + 1 : before + link[1]!;
}

function takeMark(open: OpenMark[], text: string, at: number, run: number): void {
  const [before, after] = [text[at - 1] ?? " ", text[at + run] ?? " "];
  const inWord = text[at] === "_" && /\w/.test(before) && /\w/.test(after);
  if (inWord) return;
  let left = run;
  if (/\S/.test(before)) {
    while (left > 0 && open.at(-1)?.char === text[at]) {
      const last = open.at(-1)!;
      const taken = Math.min(left, last.length);
      last.length -= taken;
      left -= taken;
      if (last.length === 0) open.pop();
    }
  }
  const isOpening = at + run === text.length ? /\s/.test(before) : /\S/.test(after);
  if (left > 3) return;
  if (left > 0 && isOpening) open.push({ char: text[at]!, at, length: left });
}

/** Closes the marks, the last one first; a mark with nothing after it is held back. */
function close(text: string, open: OpenMark[]): string {
  let closed = text.trimEnd();
  for (const { char, at, length } of open.reverse()) {
    const isBare = closed.length <= at + length;
    closed = isBare ? closed.slice(0, at).trimEnd() : closed + char.repeat(length);
  }
  return closed === text.trimEnd() ? text : closed;
}
