import { describe, expect, test } from "vitest";
import { noneMatchFails, rangeApplies } from "./conditional.js";

const TAG = '"abc"';

describe("If-None-Match", () => {
  test.each(['"abc"', 'W/"abc"', "*", " * ", '"x", "abc"', 'W/"x",W/"abc" , "y"', '"a,b", "abc"'])(
    "%s names the content",
    (header) => expect(noneMatchFails(header, TAG)).toBe(true),
  );
  test.each([undefined, "", "abc", '"x"', '"abcd", W/"x"', '"x", *'])("%s does not", (header) =>
    expect(noneMatchFails(header, TAG)).toBe(false),
  );
});

describe("If-Range", () => {
  test.each([undefined, '"abc"', ' "abc" '])("%s: the range counts", (header) =>
    expect(rangeApplies(header, TAG)).toBe(true),
  );
  test.each(['"x"', 'W/"abc"', "Sat, 29 Oct 1994 19:43:31 GMT", "", "*"])(
    "%s: the whole is given",
    (header) => expect(rangeApplies(header, TAG)).toBe(false),
  );
});
