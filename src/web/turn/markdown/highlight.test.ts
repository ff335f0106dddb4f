import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { highlight } from "./highlight.js";

const marked = (code: string, language: string): string =>
  highlight(code, language)
    .map(({ kind, text }) => (kind ? `<${kind}:${text}>` : text))
    .join("");

describe("highlight", () => {
  it.each([
    ["ts", "const a = 12; // twelve", "<keyword:const> a = <number:12>; <comment:// twelve>"],
    ["js", 'let s = "const // x";', '<keyword:let> s = <string:"const // x">;'],
    ["python", "def f(): # words", "<keyword:def> f(): <comment:# words>"],
    ["sql", "SELECT 1 -- all", "<keyword:SELECT> <number:1> <comment:-- all>"],
    ["go", "/* open", "<comment:/* open>"],
    ["constructor", "const a = 1", "const a = 1"],
    ["", "const a = 1", "const a = 1"],
  ])("colours %s: %s", (language, code, expected) => {
    expect(marked(code, language)).toBe(expected);
  });

  it("never changes the code", () => {
    const code = fc.array(fc.constantFrom(...`"'\`/*#-\\ \n1ax=`, "const ", "//", "*/"), { maxLength: 60 });
    fc.assert(
      fc.property(code, fc.constantFrom("ts", "python", "sql", "?"), (parts, language) => {
        const text = parts.join("");
        expect(
          highlight(text, language)
            .map((part) => part.text)
            .join(""),
        ).toBe(text);
      }),
    );
  });
});
