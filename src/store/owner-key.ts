import { createHash } from "node:crypto";
import type { Owner } from "../lib/rpc/service-binding.js";
import type { Queryable } from "./db.js";

/** A short name of an owner, of letters and digits. */
export function ownerKey({ tenantId, userId }: Owner): string {
  return createHash("md5")
    .update(JSON.stringify([tenantId, userId]))
    .digest("hex");
}

/** Until the transaction ends nobody else counts, or adds to, what the owner has of these things: limits are kept exactly. */
export async function lockOwner(tx: Queryable, things: "documents" | "uploads", owner: Owner): Promise<void> {
  await tx.query("select pg_advisory_xact_lock(hashtextextended($1, 0))", [`${things} ${ownerKey(owner)}`]);
}
