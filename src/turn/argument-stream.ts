/**
 * Reads the JSON text of a call's arguments while it arrives, and gives out what each fragment appends to top-level string
 * values. It never throws: on text that is not JSON it falls silent. What it gives out does not depend on where the text
 * was cut, and never holds half of a surrogate pair.
 */
import { isHighSurrogate, isLowSurrogate } from "./packets.js";

type Mode =
  | "start"
  | "key"
  | "in_key"
  | "colon"
  | "value"
  | "in_value"
  | "scalar"
  | "nested"
  | "after_value"
  /** The object is closed, or the text is no JSON object: nothing more comes. */
  | "over";

/** The reader's state; owned by one call. */
export interface ArgumentStream {
  mode: Mode;
  key: string;
  /** An escape that has begun: "\\", "\\u", "\\u0", ... */
  escape: string;
  /** First half of a pair, written as an escape, that waits for its second half. */
  high: string;
  depth: number;
  inNestedString: boolean;
}

/** Values of longer keys are not given out: the key is repeated with each delta. */
const MAX_KEY_CHARS = 256;

const SIMPLE_ESCAPES: Readonly<Record<string, string>> = {
  n: "\n",
  t: "\t",
  r: "\r",
  b: "\b",
  f: "\f",
  '"': '"',
  "\\": "\\",
  "/": "/",
};

/** A reader at the beginning of the arguments. */
export function argumentStream(): ArgumentStream {
  return { mode: "start", key: "", escape: "", high: "", depth: 0, inNestedString: false };
}

/** Reads one fragment: what it appends, by key; a value that begins is named even while it is empty. */
export function readArguments(stream: ArgumentStream, fragment: string): Record<string, string> {
  const appended = new Map<string, string>();
  const append = (text: string): void => {
    if (stream.key.length <= MAX_KEY_CHARS) appended.set(stream.key, (appended.get(stream.key) ?? "") + text);
  };
  let at = 0;
  while (at < fragment.length && stream.mode !== "over") {
    const unit = fragment[at]!;
    if (stream.mode === "in_value") {
      at = readString(stream, fragment, at, append, "after_value");
    } else if (stream.mode === "in_key") {
      at = readString(stream, fragment, at, (text) => (stream.key += text), "colon");
    } else {
      at++;
      step(stream, unit, append);
    }
  }
  return Object.fromEntries(appended);
}

/** One character outside the strings of keys and values. */
function step(stream: ArgumentStream, unit: string, append: (text: string) => void): void {
  const isSpace = unit === " " || unit === "\n" || unit === "\r" || unit === "\t";
  switch (stream.mode) {
    case "start":
      if (!isSpace) stream.mode = unit === "{" ? "key" : "over";
      return;
    case "key":
      if (unit === '"') {
        stream.key = "";
        stream.mode = "in_key";
      } else if (!isSpace) stream.mode = "over";
      return;
    case "colon":
      if (!isSpace) stream.mode = unit === ":" ? "value" : "over";
      return;
    case "value":
      if (isSpace) return;
      if (unit === '"') {
        stream.mode = "in_value";
        append("");
      } else if (unit === "{" || unit === "[") {
        stream.mode = "nested";
        stream.depth = 1;
      } else stream.mode = "scalar";
      return;
    case "nested":
      return stepNested(stream, unit);
    case "scalar":
    case "after_value":
      if (unit === ",") stream.mode = "key";
      else if (unit === "}" || (stream.mode === "after_value" && !isSpace)) stream.mode = "over";
      return;
    case "in_key":
    case "in_value":
    case "over":
      return; // read elsewhere, or not at all
  }
}

function stepNested(stream: ArgumentStream, unit: string): void {
  if (stream.inNestedString) {
    if (stream.escape) stream.escape = "";
    else if (unit === "\\") stream.escape = unit;
    else if (unit === '"') stream.inNestedString = false;
  } else if (unit === '"') stream.inNestedString = true;
  else if (unit === "{" || unit === "[") stream.depth++;
  else if ((unit === "}" || unit === "]") && --stream.depth === 0) stream.mode = "after_value";
}

/** Reads inside a string up to its end or the fragment's; returns where it stopped. */
function readString(
  stream: ArgumentStream,
  fragment: string,
  start: number,
  append: (text: string) => void,
  after: Mode,
): number {
  let at = start;
  if (stream.escape) {
    readEscape(stream, fragment[at]!, append);
    return at + 1;
  }
  while (at < fragment.length && fragment[at] !== '"' && fragment[at] !== "\\") at++;
  if (at > start) appendPlain(stream, fragment.slice(start, at), append);
  const stop = fragment[at];
  if (stop === undefined) return at;
  if (stop === "\\") stream.escape = "\\";
  else {
    dropHigh(stream, append);
    stream.mode = after;
  }
  return at + 1;
}

function readEscape(stream: ArgumentStream, unit: string, append: (text: string) => void): void {
  if (stream.escape === "\\") {
    if (unit === "u") {
      stream.escape = "\\u";
      return;
    }
    const plain = SIMPLE_ESCAPES[unit];
    if (plain === undefined) stream.mode = "over";
    else appendPlain(stream, plain, append);
    stream.escape = "";
    return;
  }
  if (!/^[0-9a-fA-F]$/.test(unit)) {
    stream.mode = "over";
    return;
  }
  stream.escape += unit;
  if (stream.escape.length < 6) return;
  const code = Number.parseInt(stream.escape.slice(2), 16);
  stream.escape = "";
  const decoded = String.fromCharCode(code);
  if (isLowSurrogate(code) && stream.high) {
    append(stream.high + decoded);
    stream.high = "";
  } else if (isHighSurrogate(code)) {
    dropHigh(stream, append);
    stream.high = decoded;
  } else appendPlain(stream, isLowSurrogate(code) ? "\ufffd" : decoded, append);
}

function appendPlain(stream: ArgumentStream, text: string, append: (text: string) => void): void {
  dropHigh(stream, append);
  append(text);
}

/** A first half whose second half did not come. */
function dropHigh(stream: ArgumentStream, append: (text: string) => void): void {
  if (!stream.high) return;
  stream.high = "";
  append("\ufffd");
}

/** What a call's argument text comes to. */
export interface NormalArguments {
  readonly json: string;
  /** True when `json` is the text of a JSON object. */
  readonly valid: boolean;
}

/**
 * The text that a call is run with: nothing and `null` are no arguments (`{}`), a JSON string that holds an object's text
 * is that object. Everything else stays as it is, valid only when it is an object.
 */
export function normalizeArguments(text: string): NormalArguments {
  const trimmed = text.trim();
  if (trimmed === "" || trimmed === "null") return { json: "{}", valid: true };
  const value = parseJson(trimmed);
  if (isObject(value)) return { json: text, valid: true };
  if (typeof value === "string" && isObject(parseJson(value))) return { json: value, valid: true };
  return { json: text, valid: false };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined; // not JSON: the caller asks for nothing more
  }
}

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
