/**
 * In which order the models behind a route are asked. Pure. The chance of a weighted route and of an arena hangs on the turn
 * and the lane: all cycles of a lane get the same model, on every replica and after a restart.
 */
import { createHash, randomUUID } from "node:crypto";
import type { Caller } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { RouteConfig } from "../config.js";

/** The candidates' model ids, best first. Those after the first are asked when it fails. */
export function orderCandidates(route: RouteConfig, caller: Caller | undefined): string[] {
  const { kind, candidates } = route;
  if (kind === "failover") return candidates.map(({ modelId }) => modelId);
  const seed = seedOf(route.id, caller);
  // Sorting by -ln(u)/weight draws without putting back, each in proportion to its weight.
  const drawn = candidates.map(({ modelId, weight }, at) => ({
    modelId,
    rank: -Math.log(chance(seed, at)) / (kind === "arena" ? 1 : weight),
  }));
  return drawn.sort((a, b) => a.rank - b.rank).map(({ modelId }) => modelId);
}

function seedOf(routeId: string, caller: Caller | undefined): string {
  if (!caller || caller.turnId === "") return randomUUID();
  return `${routeId}\n${caller.turnId}\n${caller.modelIndex}`;
}

/** In (0, 1]. */
function chance(seed: string, at: number): number {
  const bytes = createHash("sha256").update(`${seed}\n${at}`).digest();
  return (bytes.readUInt32BE(0) + 1) / 2 ** 32;
}
