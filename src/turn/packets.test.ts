import { create } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ErrorCode, UsageSchema } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import {
  addUsage,
  byteLength,
  cutText,
  errorMessage,
  hasLoneSurrogate,
  replaceLoneSurrogates,
  splitText,
  sumUsage,
  zeroUsage,
} from "./packets.js";

const wellFormed = fc.string({ unit: "grapheme" });

describe("splitText", () => {
  test("pieces join to the text, fit, and end at code points", () => {
    fc.assert(
      fc.property(wellFormed, fc.integer({ min: 4, max: 12 }), (text, maxBytes) => {
        const pieces = splitText(text, maxBytes);
        expect(pieces.join("")).toBe(text);
        for (const piece of pieces) {
          expect(Buffer.byteLength(piece)).toBeLessThanOrEqual(maxBytes);
          expect(hasLoneSurrogate(piece)).toBe(false);
          expect(piece).not.toBe("");
        }
      }),
      { numRuns: 500 },
    );
  });

  test("a long text fills its pieces", () => {
    expect(splitText("a".repeat(10), 4)).toEqual(["aaaa", "aaaa", "aa"]);
    expect(splitText("😀😀😀", 9)).toEqual(["😀😀", "😀"]);
    expect(splitText("", 4)).toEqual([]);
  });
});

describe("cutText", () => {
  test("is the longest prefix that fits", () => {
    fc.assert(
      fc.property(wellFormed, fc.nat(20), (text, maxBytes) => {
        const cut = cutText(text, maxBytes);
        expect(text.startsWith(cut)).toBe(true);
        expect(Buffer.byteLength(cut)).toBeLessThanOrEqual(maxBytes);
        const next = [...text.slice(cut.length)][0];
        if (next !== undefined) expect(Buffer.byteLength(cut + next)).toBeGreaterThan(maxBytes);
      }),
      { numRuns: 500 },
    );
  });
});

test("byteLength is the UTF-8 length", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (text) => {
      expect(byteLength(text)).toBe(Buffer.byteLength(text));
    }),
  );
});

test("lone surrogates are replaced, pairs stay", () => {
  expect(replaceLoneSurrogates("a\ud83db😀\ude00")).toBe("a\ufffdb😀\ufffd");
  expect(replaceLoneSurrogates("a\ud83d", "")).toBe("a");
});

describe("usage", () => {
  const usage = (init: Parameters<typeof create<typeof UsageSchema>>[1]) => create(UsageSchema, init);

  test("adds up field by field and leaves its arguments alone", () => {
    const a = usage({
      inputTokens: 1,
      outputTokens: 2,
      reasoningTokens: 3,
      costMicros: "9007199254740993",
      currency: "USD",
      attempts: 1,
    });
    const b = usage({
      inputTokens: 10,
      cacheReadTokens: 4,
      cacheWriteTokens: 5,
      costMicros: "7",
      currency: "USD",
      estimated: true,
      attempts: 2,
    });
    expect(addUsage(a, b)).toMatchObject({
      inputTokens: 11,
      outputTokens: 2,
      reasoningTokens: 3,
      cacheReadTokens: 4,
      cacheWriteTokens: 5,
      costMicros: "9007199254741000",
      currency: "USD",
      estimated: true,
      attempts: 3,
    });
    expect(a.inputTokens).toBe(1);
  });

  test("saturates, takes undefined as nothing, does not add two currencies", () => {
    expect(addUsage(usage({ inputTokens: 0xffff_ffff }), usage({ inputTokens: 5 })).inputTokens).toBe(
      0xffff_ffff,
    );
    expect(sumUsage([undefined, undefined])).toEqual(zeroUsage());
    expect(
      addUsage(usage({ costMicros: "5", currency: "USD" }), usage({ costMicros: "7", currency: "EUR" })),
    ).toMatchObject({
      costMicros: "5",
      currency: "USD",
      estimated: true,
    });
  });
});

test("an error's message says what the table says, and nothing of its cause", () => {
  const error = errorMessage(
    new TurnError(ErrorCode.RATE_LIMIT, { retryAfterMs: 50, cause: new Error("key sk-1") }),
    "m",
  );
  expect(error).toMatchObject({
    code: ErrorCode.RATE_LIMIT,
    retryable: true,
    retryAfterMs: 50,
    modelId: "m",
  });
  expect(JSON.stringify(error)).not.toContain("sk-1");
});
