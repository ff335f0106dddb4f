import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ThinkTagSplitter } from "./think-tags.js";

interface Split {
  readonly text: string;
  readonly reasoning: string;
  readonly open: boolean;
}

function split(pieces: readonly string[], reasoningOpen = false): Split {
  const splitter = new ThinkTagSplitter(reasoningOpen);
  const out = [...pieces.flatMap((piece) => splitter.push(piece)), ...splitter.end()];
  const of = (kind: string): string =>
    out
      .filter((piece) => piece.kind === kind)
      .map(({ text }) => text)
      .join("");
  return { text: of("text"), reasoning: of("reasoning"), open: splitter.open };
}

const TABLE: readonly {
  readonly name: string;
  readonly input: string;
  readonly want: Partial<Split>;
  readonly open?: boolean;
}[] = [
  {
    name: "tag at the start",
    input: "<think>a b</think>c",
    want: { text: "c", reasoning: "a b", open: false },
  },
  {
    name: "white space around",
    input: "\n <think>\n a \n</think>\n\n c \n",
    want: { text: " c \n", reasoning: "a" },
  },
  { name: "tag on a later line", input: "x\n<think>a</think>\ny", want: { text: "x\ny", reasoning: "a" } },
  { name: "tag inside a line", input: "say <think> now", want: { text: "say <think> now", reasoning: "" } },
  { name: "other names, any case", input: "<Thinking>a</THINKING>b", want: { text: "b", reasoning: "a" } },
  {
    name: "another end tag",
    input: "<think>a</thinking>b</think>c",
    want: { text: "c", reasoning: "a</thinking>b" },
  },
  { name: "never closed", input: "<think>a b ", want: { text: "", reasoning: "a b", open: true } },
  { name: "looks like a tag", input: "<thinker>a", want: { text: "<thinker>a", reasoning: "" } },
  { name: "ends in the middle of a tag", input: "<thi", want: { text: "<thi", reasoning: "" } },
  {
    name: "ends in the middle of an end tag",
    input: "<think>a</thi",
    want: { reasoning: "a</thi", open: true },
  },
  { name: "two in a row", input: "<think>a</think><think>b</think>c", want: { text: "c", reasoning: "ab" } },
  { name: "goes on inside", input: "a</think>b", want: { text: "b", reasoning: "a" }, open: true },
  { name: "no tag", input: "  a < b\n> c\n\n", want: { text: "  a < b\n> c\n\n", reasoning: "" } },
];

describe("think tags", () => {
  for (const { name, input, want, open } of TABLE) {
    test(`${name} - whole, cut in two anywhere, one by one`, () => {
      const whole = split([input], open);
      expect(whole).toMatchObject(want);
      for (let at = 1; at < input.length; at++)
        expect(split([input.slice(0, at), input.slice(at)], open)).toEqual(whole);
      expect(split([...input], open)).toEqual(whole);
    });
  }

  test("any text, any cut - the same split, and without tags the same text (K4)", () => {
    const piece = fc.constantFrom(
      "<think>",
      "</think>",
      "<",
      "th",
      "ink>",
      "</",
      " ",
      "\n",
      "a",
      "bc",
      "<Reasoning >",
      "</reasoning>",
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 25 }), (pieces) => {
        const text = pieces.join("");
        expect(split([...text])).toEqual(split([text]));
        expect(split(pieces)).toEqual(split([text]));
        if (!text.includes("<")) expect(split(pieces).text).toBe(text);
      }),
      { numRuns: 500 },
    );
  });
});
