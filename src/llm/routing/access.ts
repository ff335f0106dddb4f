/** Who may use a model. */
import type { Caller } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";

/**
 * Whether the caller is on the list: by a group, by "tenant:NAME" or by "user:TENANT/NAME". No list is everybody's,
 * an empty one nobody's. No caller = the service itself asks: it may use everything.
 */
export function mayUse(access: readonly string[] | undefined, caller: Caller | undefined): boolean {
  if (access === undefined || caller === undefined) return true;
  return access.some((entry) =>
    /^(?:tenant|user):/.test(entry)
      ? entry === `tenant:${caller.tenantId}` || entry === `user:${caller.tenantId}/${caller.userId}`
      : caller.groups.includes(entry),
  );
}
