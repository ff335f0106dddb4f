import { expect, test } from "vitest";
import { parseRange } from "./byte-range.js";

test.each([
  [undefined, undefined],
  ["bytes=0-0", { start: 0, end: 1 }],
  ["bytes=2-4", { start: 2, end: 5 }],
  ["bytes=7-", { start: 7, end: 10 }],
  ["bytes=7-99", { start: 7, end: 10 }],
  ["bytes=-3", { start: 7, end: 10 }],
  ["bytes=-99", { start: 0, end: 10 }],
  ["bytes=-0", "unsatisfiable"],
  ["bytes=10-", "unsatisfiable"],
  ["bytes=4-2", undefined],
  ["bytes=-", undefined],
  ["bytes=0-1,3-4", undefined],
  ["lines=0-1", undefined],
])("byte range - %s of ten bytes", (header, range) => {
  expect(parseRange(header, 10)).toEqual(range);
});
