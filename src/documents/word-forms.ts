/**
 * Other ways to write the words of a text, put into the index beside them and asked for beside those of a query: the parts of
 * names and addresses (fetchUserName, max_retry_count, os.path.join, a@b.org), hyphenated words in one, letters without
 * their accents, wide and compatible characters as plain ones. Pure.
 */

// Each begins where a word does, so that a run of letters is looked at once and not from each of its letters on.
/** Words held together by what stands in names, paths, addresses, versions and dates. */
const COMPOUND = /(?<![\p{L}\p{N}])[\p{L}\p{N}]+(?:[-._@:/\\'’‐‑]{1,3}[\p{L}\p{N}]+)+/gu;
/** Words with capitals inside. */
const HUMPED = /(?<![\p{L}\p{N}])[\p{L}\p{N}]*(?:\p{Ll}\p{Lu}|\p{Lu}\p{Lu}\p{Ll})[\p{L}\p{N}]*/gu;
/** Words that are not ASCII throughout. */
const WIDE_WORD = /(?<![\p{L}\p{M}\p{N}])[\p{L}\p{M}\p{N}]*[^\u0000-\u007f\s\p{P}\p{S}][\p{L}\p{M}\p{N}]*/gu;
/** Only of these scripts are marks left out: in others they make the word. */
const ACCENTED = /[\p{Script=Latin}\p{Script=Greek}\p{Script=Cyrillic}]/u;
const JOINT = /[-._@:/\\'’‐‑]+/g;
const HYPHENS = /[-‐‑_]/g;
/** Other forms of one passage, characters. */
const MAX_FORMS_CHARS = 4_000;

/** Each other form once, with spaces between; empty for plain words. */
export function otherForms(text: string): string {
  const forms = new Set<string>();
  for (const [word] of text.matchAll(COMPOUND)) {
    for (const part of partsOf(word)) forms.add(part);
    if (isHyphenated(word)) forms.add(word.replace(HYPHENS, ""));
  }
  for (const [word] of text.matchAll(HUMPED)) for (const part of partsOf(word)) forms.add(part);
  for (const [word] of text.matchAll(WIDE_WORD)) {
    const plain = withoutAccents(word);
    if (plain !== word) forms.add(plain);
  }
  return joinWithin([...forms], MAX_FORMS_CHARS);
}

/** A query as its author may have meant it: as it stands, in parts, with hyphenated words in one. Each once. */
export function variantsOf(query: string): string[] {
  const plain = withoutAccents(query);
  const parts = plain
    .replace(COMPOUND, (word) => partsOf(word).join(" "))
    .replace(HUMPED, (word) => partsOf(word).join(" "));
  const joined = plain.replace(COMPOUND, (word) => (isHyphenated(word) ? word.replace(HYPHENS, "") : word));
  return [...new Set([query.normalize("NFC"), plain, parts, joined])];
}

/** "HTTPServer.maxRetries" -> HTTP Server max Retries. */
function partsOf(word: string): string[] {
  return word
    .replace(JOINT, " ")
    .replace(/(\p{Ll}|\p{N})(\p{Lu})/gu, "$1 $2")
    .replace(/(\p{Lu})(\p{Lu}\p{Ll})/gu, "$1 $2")
    .split(" ")
    .filter((part) => part !== "");
}

function isHyphenated(word: string): boolean {
  return /^[\p{L}\p{N}]+(?:[-‐‑_][\p{L}\p{N}]+){1,3}$/u.test(word);
}

/** Compatible characters as plain ones; no marks on Latin, Greek and Cyrillic letters. */
function withoutAccents(text: string): string {
  const plain = text.normalize("NFKC");
  if (!ACCENTED.test(plain)) return plain;
  return plain
    .normalize("NFD")
    .replace(/([\p{Script=Latin}\p{Script=Greek}\p{Script=Cyrillic}])\p{M}+/gu, "$1")
    .normalize("NFC")
    .replace(/[ßøæœłđ]/gi, (letter) => LETTERS[letter.toLowerCase()]!);
}

/** Letters that are no letter with a mark. */
const LETTERS: Readonly<Record<string, string>> = { ß: "ss", ø: "o", æ: "ae", œ: "oe", ł: "l", đ: "d" };

function joinWithin(words: readonly string[], maxChars: number): string {
  let text = "";
  for (const word of words) {
    if (text.length + word.length >= maxChars) break;
    text += text === "" ? word : ` ${word}`;
  }
  return text;
}
