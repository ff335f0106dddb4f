import { describe, expect, it } from "vitest";
import { formatCost, formatTokens } from "./format.js";

describe("numbers for people", () => {
  it.each([
    [512, "512"],
    [8_192, "8k"],
    [128_000, "128k"],
    [1_048_576, "1M"],
    [1_500_000, "1.5M"],
  ])("shortens %d tokens to %s", (tokens, text) => expect(formatTokens(tokens)).toBe(text));

  it.each([
    ["2500000", "2.50"],
    ["15000000", "15.00"],
    ["150000", "0.15"],
    ["1234", "0.0012"],
  ])("tells %s millionths with the digits that they need", (micros, digits) =>
    expect(formatCost(micros, "USD").replace(",", ".")).toContain(digits),
  );

  it("tells an amount in a currency that nobody knows", () => expect(formatCost("2500000", "")).toBe("2.5"));
});
