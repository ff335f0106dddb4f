import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { argumentStream, normalizeArguments, readArguments } from "./argument-stream.js";
import { hasLoneSurrogate } from "./packets.js";

/** What each fragment appends. */
function read(fragments: readonly string[]): Record<string, string>[] {
  const stream = argumentStream();
  return fragments.map((fragment) => readArguments(stream, fragment));
}

function joined(fragments: readonly string[]): Record<string, string> {
  const all = new Map<string, string>();
  for (const part of read(fragments)) {
    for (const [key, text] of Object.entries(part)) all.set(key, (all.get(key) ?? "") + text);
  }
  return Object.fromEntries(all);
}

describe("readArguments", () => {
  test.each<[string, string[], Record<string, string>[]]>([
    [
      "a value over fragments",
      ['{"co', 'de": "pri', "nt(1)", '"}'],
      [{}, { code: "pri" }, { code: "nt(1)" }, {}],
    ],
    ["a value that begins is named", ['{"a":"'], [{ a: "" }]],
    ["escapes, also split", ['{"a":"x\\', "n\\u00", '41"}'], [{ a: "x" }, { a: "\n" }, { a: "A" }]],
    ["a pair of escapes, split", ['{"a":"\\ud83d', '\\ude00"}'], [{ a: "" }, { a: "😀" }]],
    ["half a pair", ['{"a":"\\ud83dx\\ude00\\ud83d"}'], [{ a: "\ufffdx\ufffd\ufffd" }]],
    [
      "values that are no strings are passed over",
      ['{"n":1,"l":["}",{"a":"\\"]"}],"b":true,"s":"v"}'],
      [{ s: "v" }],
    ],
    ["a second object is not read", ['{"a":"1"}{"b":"2"}'], [{ a: "1" }]],
    ["no object", ['["a"]'], [{}]],
    ["other quotes", ["{'a':'b'}"], [{}]],
    ["a raw newline in a string", ['{"a":"x\ny"}'], [{ a: "x\ny" }]],
    ["a bad escape ends it", ['{"a":"x\\qy"}'], [{ a: "x" }]],
    ["a key like any other", ['{"__proto__":"x"}'], [Object.fromEntries([["__proto__", "x"]])]],
  ])("%s", (_, fragments, expected) => {
    expect(read(fragments)).toEqual(expected);
  });

  test("gives the top-level strings of any object, however it was cut", () => {
    const anyObject = fc.dictionary(fc.string({ maxLength: 6 }), fc.jsonValue({ maxDepth: 2 }));
    fc.assert(
      fc.property(anyObject, fc.array(fc.nat(200), { maxLength: 5 }), fc.boolean(), (value, cuts, indent) => {
        const text = JSON.stringify(value, undefined, indent ? 2 : undefined);
        const ends = [...cuts.map((cut) => cut % (text.length + 1)).sort((a, b) => a - b), text.length];
        const fragments = ends.map((end, i) => text.slice(i === 0 ? 0 : ends[i - 1], end));
        const strings = Object.entries(value).filter(
          (entry): entry is [string, string] => typeof entry[1] === "string",
        );
        const expected = Object.fromEntries(
          strings.map(([key, string]) => [key, string.replace(/\p{Surrogate}/gu, "\ufffd")]),
        );
        expect(joined(fragments)).toEqual(expected);
        expect(joined([...text])).toEqual(expected);
      }),
      { numRuns: 1000 },
    );
  });

  test("never throws and never gives half a pair, whatever comes", () => {
    const anyPart = fc.oneof(
      fc.string({ unit: "binary" }),
      fc.constantFrom('{"a":"', "\\u", "\\ud83d", '"', ",", "}", "\\"),
    );
    fc.assert(
      fc.property(fc.array(anyPart), (fragments) => {
        for (const part of read(fragments))
          for (const text of Object.values(part)) expect(hasLoneSurrogate(text)).toBe(false);
      }),
      { numRuns: 1000 },
    );
  });
});

describe("normalizeArguments", () => {
  test.each([
    ["", "{}", true],
    ["  ", "{}", true],
    ["null", "{}", true],
    ['{"a":1}', '{"a":1}', true],
    ['"{\\"a\\":1}"', '{"a":1}', true],
    ["[1]", "[1]", false],
    ['"text"', '"text"', false],
    ["7", "7", false],
    ['{"a":', '{"a":', false],
    ["not json", "not json", false],
  ])("%j is %j, valid: %s", (text, json, valid) => {
    expect(normalizeArguments(text)).toEqual({ json, valid });
  });
});
