import { readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { testDataDir } from "../../test/support/test-data.js";
import { CitationWriter, type CitableDocument, type CitationStyle, type CitedPiece } from "./citations.js";

const DOCUMENTS: Readonly<Record<number, CitableDocument>> = {
  1: { documentId: "d1", url: "https://ex.test/1" },
  2: { documentId: "d2", url: "https://ex.test/2" },
  3: { documentId: "d3", url: "" },
  4: { documentId: "d4", url: "https://ex.test/a_(b) <c>" },
};
const L1 = "[[1]](https://ex.test/1)";
const L2 = "[[2]](https://ex.test/2)";

function write(tokens: readonly string[], style: CitationStyle = "hyperlink", documents = DOCUMENTS) {
  const writer = new CitationWriter(style, (number) => documents[number]);
  const pieces: CitedPiece[] = tokens.flatMap((token) => writer.push(token));
  pieces.push(...writer.end());
  const text = pieces.flatMap((piece) => (piece.kind === "text" ? [piece.text] : [])).join("");
  const cited = pieces.flatMap((piece) => (piece.kind === "citation" ? [piece] : []));
  return { pieces, text, cited };
}

interface Row {
  readonly name: string;
  readonly input: string;
  readonly want: string;
  readonly numbers?: readonly number[];
  readonly style?: CitationStyle;
}

const ROWS: readonly Row[] = [
  { name: "one", input: "Text [1] here.", want: `Text ${L1} here.`, numbers: [1] },
  { name: "a list", input: "A [1, 2,3] b", want: `A ${L1} ${L2} [3] b`, numbers: [1, 2, 3] },
  { name: "a list keeps what is mapped", input: "A [9, 2] b", want: `A ${L2} b`, numbers: [2] },
  { name: "nothing of a list is mapped", input: "A [8, 9] b", want: "A [8, 9] b" },
  { name: "an unmapped number", input: "arr[99] and [0]", want: "arr[99] and [0]" },
  { name: "double brackets", input: "A [[1]] b", want: `A ${L1} b`, numbers: [1] },
  { name: "a list in double brackets", input: "A [[1, 2]] b", want: `A ${L1} ${L2} b`, numbers: [1, 2] },
  { name: "one bracket too many", input: "A [[1] b", want: `A [${L1} b`, numbers: [1] },
  { name: "wide brackets", input: "【1】 ［2］ [1】", want: `${L1} ${L2} ${L1}`, numbers: [1, 2] },
  {
    name: "a space is put before",
    input: "word[1]. “Quote”[2]",
    want: `word ${L1}. “Quote” ${L2}`,
    numbers: [1, 2],
  },
  {
    name: "no space after a bracket or emphasis",
    input: "([1]) **[2]**",
    want: `(${L1}) **${L2}**`,
    numbers: [1, 2],
  },
  { name: "side by side", input: "A [1][2][3]", want: `A ${L1}${L2}[3]`, numbers: [1, 2, 3] },
  {
    name: "parentheses in an address",
    input: "[4]",
    want: "[[4]](https://ex.test/a_%28b%29%20%3Cc%3E)",
    numbers: [4],
  },
  {
    name: "inline code",
    input: "`a[1]` ``b ` [1]`` [1]",
    want: `\`a[1]\` \`\`b \` [1]\`\` ${L1}`,
    numbers: [1],
  },
  {
    name: "inline code ends with its line",
    input: "a ` b [1]\n[1]",
    want: `a \` b [1]\n${L1}`,
    numbers: [1],
  },
  { name: "a fence", input: "```ts\na[1]\n```\n[1]", want: `\`\`\`ts\na[1]\n\`\`\`\n${L1}`, numbers: [1] },
  {
    name: "a fence of tildes, indented",
    input: "- x:\n    ~~~\n    [1]\n```\n    ~~~ \n[2]",
    want: `- x:\n    ~~~\n    [1]\n\`\`\`\n    ~~~ \n${L2}`,
    numbers: [2],
  },
  {
    name: "a longer fence holds a shorter one",
    input: "````\n```\n[1]\n````\n[1]",
    want: `\`\`\`\`\n\`\`\`\n[1]\n\`\`\`\`\n${L1}`,
    numbers: [1],
  },
  { name: "a fence that never closes", input: "```\n[1]\n", want: "```\n[1]\n" },
  {
    name: "code in a line that begins like a fence",
    input: "```x[1]``` [1]",
    want: `\`\`\`x[1]\`\`\` ${L1}`,
    numbers: [1],
  },
  { name: "code in a line", input: "a ```x[1]``` b", want: "a ```x[1]``` b" },
  {
    name: "a link that is there",
    input: "see [1](https://o.test/[2]) [1]",
    want: `see [1](https://o.test/[2]) ${L1}`,
    numbers: [1],
  },
  { name: "a link written by the model", input: `so ${L1}.`, want: `so ${L1}.` },
  {
    name: "a marker in a link's text",
    input: "[see [1] there](https://o.test) [2]",
    want: `[see [1] there](https://o.test) ${L2}`,
    numbers: [2],
  },
  { name: "a marker in brackets", input: "[note: [1]]", want: `[note: ${L1}]`, numbers: [1] },
  {
    name: "an address",
    input: "<https://o.test/[1]> <b>[1]",
    want: `<https://o.test/[1]> <b>${L1}`,
    numbers: [1],
  },
  {
    name: "a definition",
    input: "[1]: https://o.test\n[2] x",
    want: `[1]: https://o.test\n${L2} x`,
    numbers: [2],
  },
  { name: "escaped", input: "\\[1\\] \\\\[1]", want: `\\[1\\] \\\\${L1}`, numbers: [1] },
  {
    name: "no markers",
    input: "[a] [^1] [-1] [1.5] [1 , 2] [1,  2] [] [ ] - [x] y",
    want: "[a] [^1] [-1] [1.5] [1 , 2] [1,  2] [] [ ] - [x] y",
  },
  { name: "cut off", input: "Tail [1", want: "Tail [1" },
  { name: "an end that is open", input: "a `` [", want: "a `` [" },
  { name: "more digits than a number has", input: "[1234567890123]", want: "[1234567890123]" },
  { name: "removed", input: "Text [1]. A [2], b", want: "Text. A, b", style: "remove" },
  {
    name: "removed between words",
    input: "First. [1] Second [1][2] x",
    want: "First. Second x",
    style: "remove",
  },
  { name: "removed at the end", input: "ends here [1]", want: "ends here ", style: "remove" },
  { name: "removed, but not what is unmapped", input: "a [9] `[1]` ", want: "a [9] `[1]` ", style: "remove" },
];

describe("citations", () => {
  test.each(ROWS)("$name", ({ input, want, numbers = [], style = "hyperlink" }) => {
    for (const tokens of [[input], [...input], ...twoParts(input)]) {
      const result = write(tokens, style);
      expect(result.text).toBe(want);
      expect(result.cited.map(({ number }) => number)).toEqual(numbers);
    }
  });

  test("the news of a citation stands right before the text that holds its marker, with its place", () => {
    const { pieces } = write(["😀 word[1, 3] [1]."]);
    expect(pieces).toEqual([
      { kind: "text", text: "😀 word " },
      { kind: "citation", number: 1, documentId: "d1", startChar: 7, endChar: 7 + L1.length },
      { kind: "text", text: `${L1} ` },
      { kind: "citation", number: 3, documentId: "d3", startChar: 8 + L1.length, endChar: 11 + L1.length },
      { kind: "text", text: `[3] ${L1}.` },
    ]);
  });

  test("text that can be no marker is not held back", () => {
    const writer = new CitationWriter("hyperlink", () => undefined);
    expect(writer.push("plain words")).toEqual([{ kind: "text", text: "plain words" }]);
    expect(writer.push(" [a")).toEqual([{ kind: "text", text: " " }]);
    expect(writer.push("x".repeat(300))).toEqual([{ kind: "text", text: `[a${"x".repeat(300)}` }]);
  });

  test("any text, cut anywhere - the same; without mapped numbers it stays as it is", () => {
    const alphabet = [
      "[",
      "]",
      "1",
      "2",
      "9",
      ",",
      " ",
      "`",
      "```",
      "~~~",
      "\n",
      "(",
      ")",
      "\\",
      "<https://",
      ">",
      ":",
      "a",
      "é",
      "【",
      "】",
    ];
    const parts = fc.array(fc.constantFrom(...alphabet), { maxLength: 60 });
    fc.assert(
      fc.property(parts, fc.constantFrom<CitationStyle>("hyperlink", "remove"), (tokens, style) => {
        const text = tokens.join("");
        const whole = write([text], style);
        expect(write(tokens, style)).toMatchObject({ text: whole.text, cited: whole.cited });
        expect(write([...text], style)).toMatchObject({ text: whole.text, cited: whole.cited });
        expect(write([text], style, {}).text).toBe(text);
      }),
      { numRuns: 2_000 },
    );
  });

  test("hostile text takes linear time", () => {
    /** CPU time, the best of three: others may use the machine. */
    const costOf = (text: string): number =>
      Math.min(
        ...[1, 2, 3].map(() => {
          const before = process.cpuUsage();
          expect(write([text], "hyperlink", {}).text.length).toBe(text.length);
          const { user, system } = process.cpuUsage(before);
          return user + system;
        }),
      );
    for (const unit of ["[", "[1", "[1,", "`a", "``", "~", " ", "<", "\\", "[1]", "[x]", "\n>", "[1]("]) {
      const [once, often] = [costOf(unit.repeat(10_000)), costOf(unit.repeat(80_000))];
      // 8 times the text: linear 8, quadratic 64.
      expect(often / Math.max(once, 1_000), unit).toBeLessThan(32);
    }
  });
});

interface Case {
  readonly id: string;
  readonly mode: "hyperlink" | "keep" | "remove";
  readonly docs: Readonly<Record<string, { readonly id: string; readonly link: string | null }>>;
  readonly tokens: readonly string[];
  readonly expected_text: string;
  readonly expected_citations: readonly { readonly citation_number: number; readonly document_id: string }[];
  readonly quirk: boolean;
}

const dir = testDataDir();

describe.skipIf(!dir)("citations of the test data folder", () => {
  const all = dir
    ? (JSON.parse(readFileSync(join(dir, "cases", "citations.json"), "utf8")) as readonly Case[])
    : [];
  const demanded = all.filter(({ quirk, mode }) => !quirk && mode !== "keep");

  test("there are some", () => {
    expect(demanded.length).toBeGreaterThan(20);
  });

  test.each(demanded)("$id", (row) => {
    const documents = Object.fromEntries(
      Object.entries(row.docs).map(([number, { id, link }]) => [number, { documentId: id, url: link ?? "" }]),
    );
    const joined = row.tokens.join("");
    for (const tokens of [row.tokens, [joined], [...joined], ...twoParts(joined)]) {
      const result = write(tokens, row.mode as CitationStyle, documents);
      expect(result.text).toBe(row.expected_text);
      const cited = result.cited.map(({ number, documentId }) => ({
        citation_number: number,
        document_id: documentId,
      }));
      expect(cited).toEqual(row.expected_citations);
    }
  });
});

function twoParts(text: string): string[][] {
  return Array.from({ length: Math.max(0, text.length - 1) }, (_, at) => [
    text.slice(0, at + 1),
    text.slice(at + 1),
  ]);
}
