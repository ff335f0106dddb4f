import fc from "fast-check";
import { Lexer, type Token } from "marked";
import { describe, expect, it } from "vitest";
import { completeTail } from "./complete-tail.js";
import { MarkdownReader, type MarkdownBlock } from "./markdown-reader.js";

const SAMPLE = `# A title

Some *words*, **strong ones** and \`code\`, with a [link](https://example.com/a) and [[1]](https://example.com/b).
Second line\twith a tab & an entity &amp; more.

- one
- two
  - nested \`a\`

- loose after all

  with a paragraph

1. first

2. second
10. tenth

\`\`\`ts
const a = "**not strong**";

// - not a list
\`\`\`

| A | B |
|---|:-:|
| 1 | **2** |
| 3 | [4] |

> quoted
> - list in it
>
> more

Setext
---

Text
- list right after it

<div onclick="alert(1)">html</div>

***

Last line [ref][r] and ![image](https://example.com/i.png)

    indented code

~~~
open fence
`;

/** What a block looks like, without where its memory is. */
const shown = (blocks: readonly MarkdownBlock[]): unknown =>
  blocks.map(({ start, token }) => ({ start, token }));

function whole(text: string): unknown {
  let start = 0;
  const blocks: { start: number; token: Token }[] = [];
  for (const token of new Lexer({ gfm: true }).lex(text)) {
    if (token.type !== "space" && token.type !== "def") blocks.push({ start, token });
    start += token.raw.length;
  }
  return blocks;
}

function grow(text: string, cuts: readonly number[]): MarkdownReader {
  const reader = new MarkdownReader();
  for (const cut of cuts) reader.read(text.slice(0, cut), true);
  return reader;
}

describe("MarkdownReader", () => {
  it("ends with what reading all at once gives, character by character", () => {
    const reader = grow(
      SAMPLE,
      Array.from(SAMPLE, (_, i) => i),
    );
    expect(shown(reader.read(SAMPLE, false))).toEqual(whole(SAMPLE));
    expect(shown(reader.readWhole(SAMPLE))).toEqual(whole(SAMPLE));
  });

  it("ends with what reading all at once gives, however texts are built and cut", () => {
    const piece = fc.constantFrom(
      ...[
        "word ",
        "**",
        "*",
        "`",
        "```\n",
        "\n",
        "\n\n",
        "- ",
        "1. ",
        "2",
        "> ",
        "# ",
        "| a | b |\n",
        "|---|---|\n",
      ],
      ...[
        "[1]",
        "[[2]](https://x.example/)",
        "[t](",
        ")",
        "---\n",
        "===\n",
        "    ",
        "<b>",
        "</b>",
        "~~",
        "_",
        "\\",
        "&amp;",
      ],
      ...["[r]: https://x.example/\n", "[r]", "é😀", "  ", "\t", "* ", "+ ", "10) "],
    );
    const text = fc.array(piece, { maxLength: 40 }).map((pieces) => pieces.join(""));
    fc.assert(
      fc.property(text, fc.array(fc.nat(120), { maxLength: 12 }), (source, cuts) => {
        const reader = grow(
          source,
          cuts.map((cut) => Math.min(cut, source.length)).sort((a, b) => a - b),
        );
        expect(shown(reader.readWhole(source))).toEqual(whole(source));
      }),
      { numRuns: 1_000 },
    );
  });

  it("keeps closed blocks as the same objects", () => {
    const reader = new MarkdownReader();
    const before = reader.read("one\n\ntwo\n\nthr", true);
    const after = reader.read("one\n\ntwo\n\nthree\n", true);
    expect(after[0]).toBe(before[0]);
    expect(after).toHaveLength(3);
    expect(reader.read("one\n\ntwo\n\nthree\n", false)[0]).toBe(before[0]);
    expect(reader.readWhole("one\n\ntwo\n\nthree\n")[0]).toBe(before[0]);
  });

  it("finds the definition of a link that stands below it", () => {
    const text = "see [the docs][d]\n\nmore\n\n[d]: https://example.com/\n";
    const reader = grow(text, [20, 30, text.length]);
    expect(shown(reader.readWhole(text))).toEqual(whole(text));
    expect(JSON.stringify(reader.readWhole(text)[0]!.token)).toContain("https://example.com/");
  });

  it("reads a text anew that does not go on from the one before", () => {
    const reader = new MarkdownReader();
    reader.read("one\n\ntwo\n\nthree\n", true);
    expect(shown(reader.read("# other", false))).toEqual(whole("# other"));
  });

  it("shows what is nested too deep as it is", () => {
    const text = `first\n\n${"> ".repeat(20_000)}`;
    const reader = grow(text, [10, 1_000]);
    expect(JSON.stringify(reader.read(text, false).at(-1)!.token)).toContain("> > > >");
  });

  it("shows an end that takes too long as it is, until the text has ended", () => {
    let nowMs = 0;
    const reader = new MarkdownReader(() => (nowMs += 300));
    const text = "one\n\ntwo\n\n- **three**\n- **four**";
    const typesOf = (open: boolean): string[] => reader.read(text, open).map(({ token }) => token.type);
    expect(typesOf(true)).toEqual(["paragraph", "paragraph", "list"]);
    expect(typesOf(true)).toEqual(["paragraph", "paragraph", "list"]);
    expect(typesOf(true)).toEqual(["paragraph", "paragraph", "paragraph"]);
    expect(typesOf(false)).toEqual(["paragraph", "paragraph", "list"]);
  });

  it.each(["[", "![", "[a](", "*a ", "**a ", "_a ", "`a``", "~~a ", "|", "- ", "<a ", "\\", "```\n", "a@"])(
    "completes an open end of many %j quickly",
    (sign) => {
      const text = sign.repeat(20_000 / sign.length);
      expect(cpuMs(() => completeTail(text))).toBeLessThan(500);
    },
  );

  it.each(["a.", "[", "![", "[a](", "*a", "_a", "`a``", "~~a", "<a", "a@"])(
    "reads a text of many %j quickly, and shows all of it",
    (sign) => {
      const text = `${sign.repeat(60_000 / sign.length)} **end**`;
      let blocks: ReturnType<MarkdownReader["read"]> = [];
      expect(cpuMs(() => (blocks = new MarkdownReader().read(text, false)))).toBeLessThan(1_000);
      expect(JSON.stringify(blocks.map(({ token }) => token))).toContain(sign.repeat(1_000));
    },
  );

  it("reads only the open end again", () => {
    const paragraph = "words and **more** words, as they come in an answer\n\n";
    const cost = (paragraphs: number): number => {
      const reader = new MarkdownReader();
      let text = paragraph.repeat(paragraphs);
      reader.read(text, true);
      return cpuMs(() => {
        for (let i = 0; i < 300; i++) reader.read((text += "word "), true);
      });
    };
    const leastCost = (paragraphs: number): number => Math.min(...[1, 2, 3].map(() => cost(paragraphs)));
    // Fifty times the text before it: reading it again would take fifty times as long.
    expect(leastCost(1_000) / leastCost(20)).toBeLessThan(25);
  });
});

/** CPU time of this process, which others on the machine do not make longer. */
function cpuMs(work: () => unknown): number {
  const before = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(before); // their sum is exact; how it is split is sampled
  return (user + system) / 1_000;
}
