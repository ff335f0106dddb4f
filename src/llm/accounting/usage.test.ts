import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import {
  CompletionInputSchema,
  Role,
  ToolDefinitionSchema,
} from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { UsageSchema } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { countWithTokenizer } from "./tokenizer.js";
import { estimateInputTokens, TokenEstimate, withCost } from "./usage.js";

const price = { currency: "EUR", input: 1_250_000, output: 10_000_000, cacheRead: 125_000, cacheWrite: 0 };
const signal = new AbortController().signal;

test("cost - each kind of token at its own price, rounded to the micro unit", () => {
  const usage = create(UsageSchema, {
    inputTokens: 1_000,
    outputTokens: 33,
    cacheReadTokens: 400,
    cacheWriteTokens: 100,
  });
  // 500 x 1.25 + 400 x 0.125 + 100 x 0 + 33 x 10
  expect(withCost(usage, price)).toMatchObject({ costMicros: "1005", currency: "EUR" });
});

test("cost - the largest counts do not overflow; a told cost stays; no price, no cost", () => {
  const huge = create(UsageSchema, { inputTokens: 0xffffffff, outputTokens: 0xffffffff });
  expect(withCost(huge, { ...price, input: 1e12, output: 1e12 }).costMicros).toBe("8589934590000000");
  expect(withCost(create(UsageSchema, { costMicros: "7", currency: "USD" }), price).costMicros).toBe("7");
  expect(withCost(create(UsageSchema, { inputTokens: 5 }), undefined).costMicros).toBe("0");
});

test("cost - reasoning, a price per answer and per picture, and the tier of a long prompt for all of it", () => {
  const full = {
    ...price,
    ...{ reasoning: 20_000_000, request: 5_000, image: 40_000 },
    tiers: [
      { ...price, aboveInputTokens: 500_000, input: 5_000_000 },
      { ...price, aboveInputTokens: 200_000, input: 2_500_000, output: 15_000_000 },
    ],
  };
  const usage = (inputTokens: number) =>
    create(UsageSchema, { inputTokens, outputTokens: 30, reasoningTokens: 10 });
  const micros = (inputTokens: number, images = 0) => withCost(usage(inputTokens), full, images).costMicros;
  expect(micros(1_000)).toBe(String(1_250 + 20 * 10 + 10 * 20 + 5_000));
  expect(micros(1_000, 2)).toBe(String(1_250 + 20 * 10 + 10 * 20 + 5_000 + 80_000));
  expect(micros(200_000)).toBe(String(250_000 + 20 * 10 + 10 * 20 + 5_000));
  expect(micros(200_001)).toBe(String(500_003 + 30 * 15 + 5_000)); // half a micro is rounded up
  expect(micros(500_001)).toBe(String(2_500_005 + 30 * 10 + 5_000));
});

const ask = (text: string) =>
  create(CompletionInputSchema, {
    modelId: "m",
    messages: [{ role: Role.USER, parts: [{ part: { case: "text", value: text } }] }],
  });

test.each([
  [
    "English",
    "The quick brown fox jumps over the lazy dog, and nobody knows why it does so every single day. ".repeat(
      20,
    ),
  ],
  ["code", "export function add(a: number, b: number): number {\n  return a + b;\n}\n".repeat(20)],
  [
    "German",
    "Die Würde des Menschen ist unantastbar. Sie zu achten ist Verpflichtung aller staatlichen Gewalt. ".repeat(
      20,
    ),
  ],
  [
    "Chinese",
    "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。".repeat(20),
  ],
])("%s - the rough count is within a factor of 1.6 of a tokenizer's", async (_, text) => {
  const estimate = new TokenEstimate();
  estimate.add(text);
  const ratio = estimate.tokens / (await countWithTokenizer(ask(text), signal));
  expect(ratio).toBeGreaterThan(1 / 1.6);
  expect(ratio).toBeLessThan(1.6);
});

test("the tokenizer counts everything that the model reads, cut into slices or not", async () => {
  const sentence = "The quick brown fox jumps over the lazy dog. ";
  const count = (times: number) => countWithTokenizer(ask(sentence.repeat(times)), signal);
  const each = (await count(2)) - (await count(1));
  expect(Math.abs((await count(500)) - each * 500)).toBeLessThan(each * 500 * 0.02);
  const withTool = ask("hi");
  withTool.tools.push(create(ToolDefinitionSchema, { name: "clock", description: "tells the time" }));
  expect(await countWithTokenizer(withTool, signal)).toBeGreaterThan(
    await countWithTokenizer(ask("hi"), signal),
  );
  expect(estimateInputTokens(withTool)).toBeGreaterThan(estimateInputTokens(ask("hi")));
});

test("a long text without blanks is counted without holding others up for long", async () => {
  let longest = 0;
  let last = performance.now();
  const ticker = setInterval(() => {
    longest = Math.max(longest, performance.now() - last);
    last = performance.now();
  }, 1);
  await countWithTokenizer(ask("x".repeat(200_000)), signal);
  clearInterval(ticker);
  expect(longest).toBeLessThan(1_000);
});
