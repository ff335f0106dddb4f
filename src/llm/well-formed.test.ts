import { expect, test } from "vitest";
import { splitText, SurrogateJoiner } from "./well-formed.js";

test("surrogates - halves in two pieces are joined, lone ones replaced", () => {
  const joiner = new SurrogateJoiner();
  const pieces = ["a\ud83c", "\udf0db", "\udf0d", "\ud83c", "x", "\ud83c"].map((piece) => joiner.push(piece));
  expect(pieces).toEqual(["a", "\u{1f30d}b", "\ufffd", "", "\ufffdx", ""]);
  expect(joiner.flush()).toBe("\ufffd");
  expect(joiner.flush()).toBe("");
});

test("split text - only between code points, nothing lost", () => {
  const text = "ab\u{1f30d}\u{1f30d}c";
  expect(splitText(text, 3)).toEqual(["ab", "\u{1f30d}", "\u{1f30d}c"]);
  expect(splitText("", 3)).toEqual([""]);
});
