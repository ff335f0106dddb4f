import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  DEFAULT_REASONING_TAGS,
  ReasoningTagSplitter,
  type ReasoningTagOptions,
  type TaggedPiece,
} from "./reasoning-tags.js";

interface Split {
  readonly text: string;
  readonly reasoning: string;
  readonly open: boolean;
}

type Options = Partial<ReasoningTagOptions>;

function split(pieces: readonly string[], options: Options = {}): Split {
  const splitter = new ReasoningTagSplitter({ names: DEFAULT_REASONING_TAGS, ...options });
  const out = [...pieces.flatMap((piece) => splitter.push(piece)), ...splitter.end()];
  return { text: joined(out, "text"), reasoning: joined(out, "reasoning"), open: splitter.open };
}

function joined(pieces: readonly TaggedPiece[], kind: TaggedPiece["kind"]): string {
  return pieces
    .filter((piece) => piece.kind === kind)
    .map(({ text }) => text)
    .join("");
}

const TABLE: readonly {
  readonly name: string;
  readonly input: string;
  readonly want: Partial<Split>;
  readonly options?: Options;
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
  { name: "indented tag", input: "x\n  <think>a</think>y", want: { text: "x\n  y", reasoning: "a" } },
  { name: "tag inside a line", input: "say <think> now", want: { text: "say <think> now", reasoning: "" } },
  { name: "other names, any case", input: "<Thinking>a</THINKING>b", want: { text: "b", reasoning: "a" } },
  {
    name: "own name",
    input: "<plan>a</plan>b",
    options: { names: ["plan"] },
    want: { text: "b", reasoning: "a" },
  },
  {
    name: "name that is not listed",
    input: "<think>a</think>b",
    options: { names: ["plan"] },
    want: { text: "<think>a</think>b" },
  },
  {
    name: "another end tag",
    input: "<think>a</thinking>b</think>c",
    want: { text: "c", reasoning: "a</thinking>b" },
  },
  {
    name: "another pair inside",
    input: "<think>a<reasoning>b</reasoning>c</think>d",
    want: { text: "d", reasoning: "a<reasoning>b</reasoning>c" },
  },
  { name: "blanks in an end tag", input: "<think>a</think \t>b", want: { text: "b", reasoning: "a" } },
  { name: "never closed", input: "<think>a b ", want: { text: "", reasoning: "a b", open: true } },
  { name: "longer name", input: "<thinker>a", want: { text: "<thinker>a", reasoning: "" } },
  { name: "ends in the middle of a tag", input: "<thi", want: { text: "<thi", reasoning: "" } },
  {
    name: "ends in the middle of an end tag",
    input: "<think>a</thi",
    want: { reasoning: "a</thi", open: true },
  },
  { name: "empty pair", input: "<think>\n\n</think>\n\nHi", want: { text: "Hi", reasoning: "" } },
  { name: "two in a row", input: "<think>a</think><think>b</think>c", want: { text: "c", reasoning: "ab" } },
  {
    name: "attributes",
    input: `<think a="1>" b='2"'\nc="">x</think>y`,
    want: { text: "y", reasoning: "x" },
  },
  { name: "attribute without quotes", input: "<think a=1>x", want: { text: "<think a=1>x" } },
  { name: "attribute without value", input: "<think a>x", want: { text: "<think a>x" } },
  { name: "empty element", input: "<think/>x", want: { text: "<think/>x" } },
  { name: "a tag that is too long", input: `<think a="${"x".repeat(520)}">y`, want: { reasoning: "" } },
  { name: "no tag", input: "  a < b\n> c\n\n", want: { text: "  a < b\n> c\n\n", reasoning: "" } },
  {
    name: "inline code",
    input: "`<think>` and ``</think>`` `</think>\n",
    want: { text: "`<think>` and ``</think>`` `</think>\n", reasoning: "" },
  },
  {
    name: "in a fence",
    input: "```xml\n<think>a</think>\n</think>\n```\n<think>b</think>c",
    want: { text: "```xml\n<think>a</think>\n</think>\n```\nc", reasoning: "b" },
  },
  {
    name: "in a longer, indented fence of tildes",
    input: "  ~~~~\n~~~\n<think>a\n~~~~~\n<think>b</think>c",
    want: { text: "  ~~~~\n~~~\n<think>a\n~~~~~\nc", reasoning: "b" },
  },
  {
    name: "backticks that open no fence",
    input: "```a```\n<think>b</think>c",
    want: { text: "```a```\nc", reasoning: "b" },
  },
  {
    name: "a fence inside reasoning",
    input: "<think>a\n```\n</think>\n<think>b</think>c",
    want: { text: "c", reasoning: "a\n```b" },
  },
  { name: "end tag without a start", input: "a</think> \t\nb</think>", want: { text: "a \t\nb" } },
  { name: "end tag in prose", input: "a </think> b", want: { text: "a </think> b" } },
  {
    name: "first end tag after open reasoning",
    input: " \n</think>\n\nb </think> c",
    options: { reasoningOpen: true },
    want: { text: "b </think> c", reasoning: "", open: false },
  },
  {
    name: "answer after open reasoning",
    input: "the answer",
    options: { reasoningOpen: true },
    want: { text: "the answer", reasoning: "", open: false },
  },
  { name: "nothing after open reasoning", input: "", options: { reasoningOpen: true }, want: { open: true } },
  {
    name: "the prompt opened the tag",
    input: "\na</think>\n\nb",
    options: { startsInReasoning: true },
    want: { text: "b", reasoning: "a" },
  },
  { name: "many blanks", input: `${" ".repeat(600)}<think>a`, want: { text: `${" ".repeat(600)}<think>a` } },
  { name: "many blank lines", input: `${"\n".repeat(600)}a`, want: { text: `${"\n".repeat(600)}a` } },
  {
    name: "many blanks in reasoning",
    input: `<think>a${" ".repeat(600)}</think>b`,
    want: { text: "b", reasoning: `a${" ".repeat(600)}` },
  },
];

describe("reasoning tags", () => {
  for (const { name, input, want, options } of TABLE) {
    test(`${name} - whole, cut in two anywhere, one by one`, () => {
      const whole = split([input], options);
      expect(whole).toMatchObject(want);
      for (let at = 1; at < input.length; at++)
        expect(split([input.slice(0, at), input.slice(at)], options)).toEqual(whole);
      expect(split([...input], options)).toEqual(whole);
    });
  }

  test("any text, any cut - the same split, and without tags the same text (K4)", () => {
    const piece = fc.constantFrom(
      ...[
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
      ],
      ...[
        "```\n",
        "`",
        "~~~",
        " ".repeat(300),
        "\n".repeat(300),
        `<think a="`,
        `">`,
        "x".repeat(200),
        "\r\n",
      ],
    );
    const options = fc.record({ reasoningOpen: fc.boolean(), startsInReasoning: fc.boolean() });
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 25 }), options, (pieces, chosen) => {
        const text = pieces.join("");
        const whole = split([text], chosen);
        expect(split([...text], chosen)).toEqual(whole);
        expect(split(pieces, chosen)).toEqual(whole);
        if (!text.includes("<") && !chosen.startsInReasoning) expect(whole.text).toBe(text);
      }),
      { numRuns: 500 },
    );
  });

  test.each([
    ["lines", "some words in a line\n", ""],
    ["start tags", "<think>\n", ""],
    ["start tags that are none", `<think a="\n`, ""],
    ["end tags", "</think>x", ""],
    ["reasoning", "a < b\n", "<think>"],
    ["pairs", "<think>a</think>\n", ""],
    ["blanks", " ", ""],
    ["fences", "```\n", ""],
  ])("a whole answer of %s - in linear time", (_, piece, before) => {
    const input = before + piece.repeat(200_000);
    const { text, reasoning } = split([input]);
    expect(text.length + reasoning.length).toBeLessThanOrEqual(input.length);
  });

  test("what cannot become a tag is not held back (K2)", () => {
    const splitter = new ReasoningTagSplitter({ names: ["think"] });
    expect(splitter.push("a <")).toEqual([{ kind: "text", text: "a " }]);
    expect(splitter.push(" b")).toEqual([{ kind: "text", text: "< b" }]);
    const held = splitter.push(`\n<think a="${"x".repeat(600)}`);
    expect(joined(held, "text")).toHaveLength(611);
  });

  test("reasoning in a field - tags are text, an empty pair is dropped (K6)", () => {
    const table: readonly (readonly [input: string, text: string])[] = [
      ["<think>a</think>b", "<think>a</think>b"],
      ["<think>a</think>", "<think>a</think>"],
      ["<think>\n</think>\n\nb", "b"],
      ["\n<think></think>b", "b"],
      ["a</think>\nb", "a\nb"],
      ["<think>", "<think>"],
    ];
    for (const [input, text] of table) {
      for (const pieces of [[input], [...input]]) {
        const splitter = new ReasoningTagSplitter({ names: ["think"] });
        const out = [...splitter.structured(), ...pieces.flatMap((piece) => splitter.push(piece))];
        expect([joined([...out, ...splitter.end()], "text"), joined(out, "reasoning")]).toEqual([text, ""]);
      }
    }
  });

  test("reasoning in a field after a tag - what is open ends, its end tag is dropped", () => {
    const splitter = new ReasoningTagSplitter({ names: ["think"] });
    const out = [...splitter.push("<think>a"), ...splitter.structured(), ...splitter.push("</think>\nb")];
    expect([joined(out, "reasoning"), joined(out, "text")]).toEqual(["a", "b"]);
    expect(splitter.open).toBe(false);
  });
});
