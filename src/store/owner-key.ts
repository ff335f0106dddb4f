import { createHash } from "node:crypto";
import type { Principal } from "../lib/rpc/service-binding.js";

/** Whose something is: a user of a tenant. */
export type Owner = Pick<Principal, "tenantId" | "userId">;

/** A short name of an owner, of letters and digits. */
export function ownerKey({ tenantId, userId }: Owner): string {
  return createHash("md5")
    .update(JSON.stringify([tenantId, userId]))
    .digest("hex");
}
