import fc from "fast-check";
import { expect, test } from "vitest";
import { snippetOf } from "./snippet.js";

const long = `${"before ".repeat(50)}the Needle is here ${"after ".repeat(80)}`;

test.each<[string, string, string]>([
  ["a short text", "short", "a short text"],
  ["two\n\n  lines\tof it", "lines", "two lines of it"],
  ["nothing of it stands here", "else", "nothing of it stands here"],
])("%j, searched for %j: %j", (text, query, snippet) => {
  expect(snippetOf(text, query)).toBe(snippet);
});

test("of a long text the part around the first word found, whole words before it", () => {
  const snippet = snippetOf(long, "zzz needle");
  expect(snippet).toMatch(/^…before before .*the Needle is here after .*…$/);
  expect(Array.from(snippet).length).toBe(240);
});

test("never longer than 240 characters, never half a character, never two lines", () => {
  const text = fc.string({ unit: fc.constantFrom("a", " ", "\n", "🕰️", "é", "needle"), maxLength: 600 });
  fc.assert(
    fc.property(text, fc.constantFrom("needle", "é", "x"), (source, query) => {
      const snippet = snippetOf(source, query);
      expect(Array.from(snippet).length).toBeLessThanOrEqual(240);
      expect(snippet).not.toMatch(
        /\n|[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/,
      );
    }),
  );
});
