/** What a provider says may be shown only without what must not leave: keys, authorization, addresses, prompts. */
import { base64Cores, plainForms } from "./secret-forms.js";

const MAX_PUBLIC_CHARS = 200;
/** So much is looked at, of which spaces and what cannot be seen may be most. */
const MAX_READ_CHARS = 65_536;

/** Shorter values are no secrets. */
const MIN_SECRET_CHARS = 4;
/** A value this long is known by its beginning alone. */
const LONG_SECRET_CHARS = 16;
const HEAD_CHARS = 8;

/** Shows as nothing, and may stand between the characters of a key: soft hyphens, joiners, marks of direction. */
const INVISIBLE = /[\p{Cf}\p{Default_Ignorable_Code_Point}]/gu;
const SPACE = /[\s\p{Cc}]+/gu;

/** What looks like a key wherever it stands. */
const KEYS: readonly (readonly [RegExp, string])[] = [
  [/\b(?:sk|pk|rk|gsk|xai|hf|key|AIza|ghp|glpat|nvapi|r8|eyJ)[-_.]?[A-Za-z0-9*_\-.]{12,}/g, "[key]"],
  [/(?<![A-Za-z0-9])(?=[A-Za-z_\-.]*[0-9])(?=[0-9_\-.]*[A-Za-z])[A-Za-z0-9_-]{32,}(?![A-Za-z0-9])/g, "[key]"],
];

/** Patterns of things that never leave, with what stands for them. Order matters: the specific ones come first. */
const MASKS: readonly (readonly [RegExp, string])[] = [
  [/\b[a-z][a-z0-9+.-]*:\/\/[^\s"'<>)\]]+/gi, "[address]"],
  [/\b(bearer|basic)\s+[^\s"',;]+/gi, "$1 [key]"],
  [
    /\b((?:x-)?api[-_ ]?key|authorization|token|secret|password)(["']?\s*[:=]\s*["']?)(?!\[)[^\s"',;]+/gi,
    "$1$2[key]",
  ],
  ...KEYS,
  [/\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b/g, "[address]"],
  [/\b(?:localhost|[a-z0-9-]+(?:\.[a-z0-9-]+)+):\d{2,5}\b/gi, "[address]"],
  [/[\w.+-]+@[\w-]+(?:\.[\w-]+)+/g, "[address]"],
  [/"[^"]{80,}"?|'[^']{80,}'?/g, '"..."'],
];

/**
 * One line of at most 200 characters with secrets, addresses and long quotations masked. `secrets` are the exact values
 * in use (the configured keys and headers), masked wherever they stand, also encoded, cut short,
 * in other letter case or with spaces in between.
 */
export function publicText(text: string, secrets: readonly string[] = []): string {
  let shown = text.slice(0, MAX_READ_CHARS).replace(INVISIBLE, "").replace(SPACE, " ").trim().slice(0, 4096);
  for (const secret of secrets) {
    if (compact(secret).length >= MIN_SECRET_CHARS) shown = maskForms(shown, secret);
  }
  for (const [pattern, mask] of MASKS) shown = shown.replace(pattern, mask);
  shown = shown.replace(/\p{Surrogate}/gu, "\ufffd");
  return shown.length <= MAX_PUBLIC_CHARS
    ? shown
    : `${[...shown].slice(0, MAX_PUBLIC_CHARS - 3).join("")}...`;
}

/** The text without what looks like a key: somebody may have written one where its name belongs. */
export function withoutKeys(text: string): string {
  return KEYS.reduce((masked, [pattern, mask]) => masked.replace(pattern, mask), text);
}

/** Headers that hold credentials by their name, wherever their value came from. */
const CREDENTIAL_NAME = /auth|key|token|secret|password|cookie/i;

/** What a provider is called with. */
interface Credentials {
  readonly keys: readonly string[];
  readonly headers?: Readonly<Record<string, string>>;
  readonly secretHeaders?: readonly string[];
}

/**
 * What a provider is called with and nobody may see: all of its keys, since whoever was asked with one may know the others,
 * and the headers that hold a secret, each with its parts.
 */
export function secretsOf({ keys, headers = {}, secretHeaders = [] }: Credentials): string[] {
  const values = Object.entries(headers)
    .filter(([name]) => secretHeaders.includes(name) || CREDENTIAL_NAME.test(name))
    .map(([, value]) => value);
  return [...new Set([...keys.flatMap(partsOfKey), ...values.flatMap(partsOfHeader)])];
}

/** Keys that sign requests are an id, a secret and perhaps a token. */
function partsOfKey(key: string): string[] {
  return key.includes(":") ? [key, ...key.split(":")] : [key];
}

/** "Bearer TOKEN" is shown as no more than its token, too. */
function partsOfHeader(value: string): string[] {
  const token = value.slice(value.lastIndexOf(" ") + 1);
  return token === value ? [value] : [value, token];
}

/** The secret in each of its forms, in base64 of any alignment, and what begins or ends like it. */
function maskForms(text: string, secret: string): string {
  let shown = plainForms(secret).reduce((masked, form) => maskFound(masked, form), text);
  if (secret.length < HEAD_CHARS) return shown;
  for (const core of base64Cores(secret)) {
    const around = new RegExp(`[A-Za-z0-9+/_=-]*${escapeRegExp(core)}[A-Za-z0-9+/_=-]*`, "g");
    if (shown.includes(core)) shown = shown.replace(around, "[key]");
  }
  const plain = compact(secret);
  if (plain.length < LONG_SECRET_CHARS) return shown;
  shown = maskFound(shown, plain.slice(0, HEAD_CHARS), { after: /^[^\s"'<>,;)]*/ });
  return maskFound(shown, plain.slice(Math.floor(plain.length / 3)), { before: /[^\s"'<>,;(]*$/ });
}

/** Masks the text in any letter case, a long one with spaces in it too, and what belongs to it before and after. */
function maskFound(text: string, found: string, { before = /$/, after = /^/ } = {}): string {
  const hasSpaces = found.length >= HEAD_CHARS;
  const wanted = lower(hasSpaces ? compact(found) : found);
  const places = Array.from({ length: text.length }, (_, at) => at).filter(
    (at) => !hasSpaces || text[at] !== " ",
  );
  const letters = lower(places.map((at) => text[at]).join(""));
  let out = "";
  let done = 0;
  for (let at = letters.indexOf(wanted); at !== -1; at = letters.indexOf(wanted, at + wanted.length)) {
    const end = places[at + wanted.length - 1]! + 1;
    if (end <= done) continue;
    out += text.slice(done, Math.max(done, places[at]!)).replace(before, "") + "[key]";
    done = end + after.exec(text.slice(end))![0].length;
  }
  return out + text.slice(done);
}

/** In small letters where that keeps the length. */
function lower(text: string): string {
  return text.replace(/\p{Lu}/gu, (letter) => {
    const small = letter.toLowerCase();
    return small.length === letter.length ? small : letter;
  });
}

function compact(text: string): string {
  return text.replace(INVISIBLE, "").replace(SPACE, "");
}

function escapeRegExp(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
