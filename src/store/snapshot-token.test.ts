import fc from "fast-check";
import { expect, test } from "vitest";
import { packSnapshot, unpackSnapshot } from "./snapshot-token.js";

const snapshots = fc
  .tuple(fc.bigInt(3n, 2n ** 63n), fc.array(fc.integer({ min: 1, max: 50_000 }), { maxLength: 60 }))
  .map(([xmin, distances]) => {
    const running = [...new Set(distances)].sort((a, b) => a - b).map((distance) => xmin + BigInt(distance));
    return `${xmin}:${(running.at(-1) ?? xmin) + 1n}:${running.join(",")}`;
  });

test("a snapshot is read back as it was", () => {
  fc.assert(fc.property(snapshots, (snapshot) => unpackSnapshot(packSnapshot(snapshot)) === snapshot));
});

test("a snapshot of too many open transactions is widened, and stays short", () => {
  const running = Array.from({ length: 5_000 }, (_, at) => 1_000_000 + 7 * at);
  const packed = packSnapshot(`1000000:1040000:${running.join(",")}`);
  expect(unpackSnapshot(packed)).toBe("1000000:1000000:");
});
