import fc from "fast-check";
import { expect, test } from "vitest";
import { wellFormed } from "../lib/text.js";
import { Chunker, codePoints, MAX_CHARS, type Passage } from "./chunker.js";

function chunk(pieces: readonly string[], pages = false): Passage[] {
  const chunker = new Chunker({ pages });
  return [...pieces.flatMap((piece) => [...chunker.push(piece)]), ...chunker.end()];
}

const sentence = (words: number): string => `${"word ".repeat(words).trim()}.`;

/** Markdown with everything that passages are cut at, and with nothing at all. */
const markdown = fc
  .array(
    fc.oneof(
      fc.constantFrom(
        "# One\n",
        "## Two\n",
        "###### Six\n",
        "```\n",
        "\n",
        "\n\n",
        "- item\n",
        "[page 2 of 9]\n",
      ),
      fc.integer({ min: 1, max: 500 }).map((words) => `${sentence(words)}\n\n`),
      fc.integer({ min: 1, max: 3_000 }).map((length) => "x".repeat(length)),
      fc.integer({ min: 1, max: 1_500 }).map((length) => "漢".repeat(length) + "。"),
      fc.integer({ min: 1, max: 1_500 }).map((length) => "🕰️".repeat(length)),
      fc.string({ unit: "binary", maxLength: 200 }),
    ),
    { maxLength: 40 },
  )
  .map((parts) => wellFormed(parts.join("")));

test("chunker - the passages are the text, dense and bounded (C1, C3)", () => {
  fc.assert(
    fc.property(markdown, (text) => {
      const passages = chunk([text], true);
      expect(passages.map((passage) => passage.text).join("")).toBe(text);
      let at = 0;
      for (const [index, passage] of passages.entries()) {
        expect(passage).toMatchObject({ index, start: at, end: at + codePoints(passage.text) });
        expect(passage.text.length).toBeLessThanOrEqual(MAX_CHARS);
        expect(wellFormed(passage.text)).toBe(passage.text);
        at = passage.end;
      }
    }),
  );
});

test("chunker - it does not matter how the text arrives (C2)", () => {
  fc.assert(
    fc.property(markdown, fc.array(fc.integer({ min: 1, max: 2_500 }), { minLength: 1 }), (text, sizes) => {
      const pieces: string[] = [];
      for (let at = 0, n = 0; at < text.length; n++) {
        const size = sizes[n % sizes.length]!;
        pieces.push(text.slice(at, at + size));
        at += size;
      }
      expect(chunk(pieces, true)).toEqual(chunk([text], true));
    }),
  );
});

test("chunker - a section of some size begins a passage, and knows what it stands under", () => {
  const text = `# Guide\n\n${sentence(120)}\n\n## Install\n\n${sentence(120)}\n\n### Linux\n\n${sentence(120)}\n\n## Use\n\n${sentence(10)}\n`;
  expect(chunk([text]).map(({ heading, text: body }) => [heading, body.slice(0, 9)])).toEqual([
    ["Guide", "# Guide\n\n"],
    ["Guide > Install", "## Instal"],
    ["Guide > Install > Linux", "### Linux"],
    ["Guide > Use", "## Use\n\nw"],
  ]);
});

test("chunker - what looks like a heading in a code block is none", () => {
  const text = `# Real\n\n${sentence(100)}\n\n\`\`\`sh\n${"# a comment\n".repeat(20)}\`\`\`\n`;
  expect(chunk([text]).map(({ heading }) => heading)).toEqual(["Real"]);
});

test("chunker - pages of a PDF", () => {
  const page = (number: number): string => `[page ${number} of 3]\n${sentence(500)}\n\n`;
  const passages = chunk([page(1) + page(2) + page(3)], true);
  expect(passages.map((passage) => passage.page)).toEqual([1, 1, 2, 2, 3, 3]);
  expect(chunk([page(1)], false)[0]!.page).toBe(0);
});
