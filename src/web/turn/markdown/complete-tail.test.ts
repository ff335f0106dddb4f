import { describe, expect, it } from "vitest";
import { completeTail } from "./complete-tail.js";

describe("completeTail", () => {
  it.each([
    // emphasis
    ["some **bold tex", "some **bold tex**"],
    ["some **bold ", "some **bold**"],
    ["some **bold*", "some **bold**"],
    ["some **bold**", "some **bold**"],
    ["some **", "some"],
    ["an *em", "an *em*"],
    ["**bold and *em", "**bold and *em***"],
    ["~~gone", "~~gone~~"],
    ["snake_case_na", "snake_case_na"],
    ["2 * 3 = 6", "2 * 3 = 6"],
    ["say \\*not", "say \\*not"],
    ["- item **b", "- item **b**"],
    ["open **in one\n\nnot in the next", "open **in one\n\nnot in the next"],
    // code
    ["run `npm st", "run `npm st`"],
    ["run `", "run "],
    ["run ``a ` b", "run ``a ` b``"],
    ["run ``a ` b`", "run ``a ` b``"],
    ["`**not bold", "`**not bold`"],
    // links and citations
    ["see [the docs](https://exa", "see the docs"],
    ["see [the docs](https://example.com/)", "see [the docs](https://example.com/)"],
    ["an ![image](https://exa", "an image"],
    ["so it is [", "so it is "],
    ["so it is [[1", "so it is "],
    ["so it is [[1]](https://exa", "so it is "],
    ["so it is [[1]](https://example.com/).", "so it is [[1]](https://example.com/)."],
    ["so **it** is [1].", "so **it** is [1]."],
    ["**bold [link](https://exa", "**bold link**"],
    // undecided lines
    ["Text\n-", "Text\n"],
    ["Text\n---", "Text\n"],
    ["Text\n- a", "Text\n- a"],
    ["Text\n\n#", "Text\n\n"],
    ["1. a\n\n2", "1. a\n\n"],
    ["Text\n``", "Text\n"],
    // fences
    ["```js\nconst a = **b", "```js\nconst a = **b"],
    ["```js\nconst a\n``", "```js\nconst a\n"],
    ["```js\na\n```\nthen **b", "```js\na\n```\nthen **b**"],
    // tables
    ["Text\n\n| A", "Text\n\n"],
    ["| A | B |", "| A | B |\n| --- | --- |"],
    ["| A | B |\n|--", "| A | B |\n| --- | --- |"],
    ["| A | B |\n|---|---|\n| **x", "| A | B |\n|---|---|\n| **x**"],
    ["words | not a table", "words | not a table"],
  ])("%j looks like %j", (tail, shown) => {
    expect(completeTail(tail)).toBe(shown);
  });

  it("leaves a text alone in which nothing is open", () => {
    const text = "# Title\n\nSome *words*, `code` and [a link](https://example.com/).\n\n- one\n- two\n";
    expect(completeTail(text)).toBe(text);
  });
});
