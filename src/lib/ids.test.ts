import fc from "fast-check";
import { expect, test } from "vitest";
import { newId } from "./ids.js";

test("an id is a UUID of version 7 whose first 48 bits are its time", () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 2 ** 48 - 1 }), (now) => {
      const id = newId(now);
      expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
      expect(Number.parseInt(id.replaceAll("-", "").slice(0, 12), 16)).toBe(now);
    }),
  );
});

test("ids sort by their time and are all different", () => {
  const times = Array.from({ length: 2_000 }, (_, index) => 1_700_000_000_000 + index);
  const ids = times.map((now) => newId(now));
  expect([...ids].sort()).toEqual(ids);
  expect(new Set(Array.from({ length: 2_000 }, () => newId(7))).size).toBe(2_000);
});

test("without a time an id takes the present one", () => {
  const before = Date.now();
  const stamp = Number.parseInt(newId().replaceAll("-", "").slice(0, 12), 16);
  expect(stamp).toBeGreaterThanOrEqual(before);
  expect(stamp).toBeLessThanOrEqual(Date.now());
});
