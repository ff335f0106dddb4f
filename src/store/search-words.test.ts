import fc from "fast-check";
import { expect, test } from "vitest";
import { searchParams, searchQuery, wordsOf } from "./search-words.js";

const ALICE = { tenantId: "acme", userId: "alice" };

test.each<[string, string[]]>([
  ["Don't PANIC: it's 42!", ["don", "t", "panic", "it", "s", "42"]],
  ["src/chat/run-turn.ts a_b", ["src", "chat", "run", "turn", "ts", "a", "b"]],
  ["ﬁne Ｗｉｄｅ Ünïcödé", ["fine", "wide", "ünïcödé"]],
  ["हिन्दी में", ["हिन्दी", "में"]],
  ["東京で2回", ["東", "京", "で", "2", "回"]],
  [" \0 ,. \u202e", []],
])("the words of %j", (text, words) => {
  expect(wordsOf(text)).toEqual(words);
});

test("words hold nothing that has a meaning in a tsvector or a tsquery, and are bounded", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 400 }), (text) => {
      for (const word of wordsOf(text)) expect(word).toMatch(/^[\p{L}\p{N}\p{M}]{1,256}$/u);
    }),
  );
  expect(wordsOf("x".repeat(257))).toEqual([]);
  expect(wordsOf("ﷺ ".repeat(100_000)).join(" ").length).toBeLessThanOrEqual(100_000);
});

test("a query without words finds nothing; two owners never share a lexeme", () => {
  expect(searchQuery(ALICE, " ,.; ")).toBeUndefined();
  const owners = [ALICE, { tenantId: "acme", userId: "bob" }, { tenantId: "alice", userId: "acme" }];
  expect(new Set(owners.map((owner) => searchQuery(owner, "word"))).size).toBe(3);
  expect(searchParams(ALICE, "...")).toEqual(["...", null]);
  expect(searchParams(ALICE, "a\0b")[0]).toBe("a\uFFFDb");
});
