/**
 * Light colours for code: comments, strings, numbers, words of the language. One pattern per family of languages and no
 * grammar: it may be wrong in odd places, never slow, and never changes the text.
 */

/** A part of code. `kind` undefined = plain. */
export interface CodePart {
  readonly kind: "comment" | "string" | "number" | "keyword" | undefined;
  readonly text: string;
}

interface Family {
  /** Names, between spaces. */
  readonly languages: string;
  /** Pattern of a comment. */
  readonly comment: string;
  /** Words, between spaces. */
  readonly keywords: string;
}

const FAMILIES: readonly Family[] = [
  {
    languages:
      "js jsx ts tsx javascript typescript java kotlin swift c cpp c++ cs csharp go rust rs php scala dart proto protobuf json jsonc css scss",
    comment: "//[^\\n]*|/\\*[^]*?(?:\\*/|$)",
    keywords:
      "abstract as async await break case catch class const continue default defer do else enum export extends false final finally fn for from func function go if impl implements import in instanceof interface is let match message mod mut namespace new nil null of package private protected public readonly return select self static struct super switch this throw throws trait true try type typeof undefined use var void while yield",
  },
  {
    languages: "py python rb ruby sh bash shell zsh yaml yml toml r perl dockerfile make",
    comment: "#[^\\n]*",
    keywords:
      "and as assert async await begin break case class continue def del do done elif else end esac except export false False fi finally for from function global if import in is lambda local match module nil None nonlocal not null or pass raise rescue return self then true True try unless until when while with yield",
  },
  {
    languages: "sql postgres postgresql mysql sqlite lua haskell hs",
    comment: "--[^\\n]*|/\\*[^]*?(?:\\*/|$)",
    keywords:
      "add all alter and any as asc begin between by case commit constraint create cross default delete desc distinct drop else end exists foreign from full function group having if in index inner insert into is join key left like limit local not null offset on or order outer primary references returning right rollback select set table then transaction union unique update using values view when where with",
  },
];

const STRING = `"(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'?|\`(?:\\\\.|[^\`\\\\])*\`?`;
const NUMBER = "\\b(?:0[xX][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\b";

const patterns = new Map<string, RegExp>(
  FAMILIES.flatMap(({ languages, comment, keywords }) => {
    const words = `\\b(?:${keywords.replaceAll(" ", "|")})\\b`;
    // SQL is written in either case.
    const flags = comment.startsWith("--") ? "gi" : "g";
    const pattern = new RegExp(`(${comment})|(${STRING})|(${NUMBER})|(${words})`, flags);
    return languages.split(" ").map((language): [string, RegExp] => [language, pattern]);
  }),
);

const KINDS = ["comment", "string", "number", "keyword"] as const;

/** The code in parts that make it up again when joined. A language that is not known is one plain part. */
export function highlight(code: string, language: string): readonly CodePart[] {
  const pattern = patterns.get(language.toLowerCase());
  if (!pattern) return [{ kind: undefined, text: code }];
  const parts: CodePart[] = [];
  let end = 0;
  for (const match of code.matchAll(pattern)) {
    if (match.index > end) parts.push({ kind: undefined, text: code.slice(end, match.index) });
    const group = match.slice(1).findIndex((part) => part !== undefined);
    parts.push({ kind: KINDS[group], text: match[0] });
    end = match.index + match[0].length;
  }
  if (end < code.length) parts.push({ kind: undefined, text: code.slice(end) });
  return parts;
}
