/** What content blocks have in common. */
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { Json } from "../../json.js";

/** The name under which content blocks travel in ProviderState. */
export const PROVIDER_STATE = "anthropic-messages";

/** One block while it is open. */
export interface ContentBlock {
  /** A delta of it; unknown types are ignored. */
  delta(delta: Json, out: CompletionDelta[]): void;
  stop(out: CompletionDelta[]): void;
}
