import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { CallerSchema } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { RouteConfig } from "../config.js";
import { mayUse } from "./access.js";
import { orderCandidates } from "./order-candidates.js";

const route = (kind: RouteConfig["kind"], weights: readonly number[]): RouteConfig => ({
  ...{ id: "r", kind, aliases: [], displayName: "r", access: undefined },
  candidates: weights.map((weight, at) => ({ modelId: `m${at}`, weight })),
});
const lane = (turnId: string, modelIndex = 0) => create(CallerSchema, { turnId, modelIndex });

/** How often each candidate comes first in 4,000 turns. */
function firsts(of: RouteConfig): number[] {
  const counts = of.candidates.map(() => 0);
  for (let turn = 0; turn < 4_000; turn++)
    counts[Number(orderCandidates(of, lane(`turn-${turn}`))[0]!.slice(1))]!++;
  return counts;
}

test("failover - in order", () => {
  expect(orderCandidates(route("failover", [1, 9, 1]), lane("t"))).toEqual(["m0", "m1", "m2"]);
});

test("weighted - in proportion; an arena - all alike, whatever the weights", () => {
  const [light, heavy] = firsts(route("weighted", [1, 3]));
  expect(light! / 4_000).toBeCloseTo(0.25, 1);
  expect(heavy! / 4_000).toBeCloseTo(0.75, 1);
  for (const count of firsts(route("arena", [1, 50, 1]))) expect(count / 4_000).toBeCloseTo(1 / 3, 1);
});

test("every cycle of a lane gets the same order, lanes and turns get their own", () => {
  const arena = route("arena", [1, 1, 1, 1, 1, 1]);
  const order = (turnId: string, modelIndex = 0) => orderCandidates(arena, lane(turnId, modelIndex)).join();
  expect(order("t1")).toBe(order("t1"));
  expect(
    new Set([order("t1"), order("t2"), order("t3"), order("t1", 1), order("t1", 2)]).size,
  ).toBeGreaterThan(1);
  expect(orderCandidates(arena, lane("t1")).sort()).toEqual(["m0", "m1", "m2", "m3", "m4", "m5"]);
});

test("access - by group, tenant or user; no list is everybody, an empty one nobody; the service itself may", () => {
  const caller = create(CallerSchema, { tenantId: "acme", userId: "ann", groups: ["staff"] });
  for (const entry of ["staff", "tenant:acme", "user:acme/ann"])
    expect(mayUse(["x", entry], caller)).toBe(true);
  for (const entry of ["acme", "tenant:other", "user:other/ann", "user:acme/bob"])
    expect(mayUse([entry], caller)).toBe(false);
  expect(mayUse(undefined, caller)).toBe(true);
  expect(mayUse([], caller)).toBe(false);
  expect(mayUse(["staff"], undefined)).toBe(true);
});
