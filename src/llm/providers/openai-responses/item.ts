/** What output items have in common. */
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { Json } from "../../json.js";

/** The name under which items travel in ProviderState. */
export const PROVIDER_STATE = "openai-responses";

/** One item while it is open. */
export interface OutputItem {
  /** An event of it; unknown ones are ignored. */
  event(type: string, value: Json, out: CompletionDelta[]): void;
  /** It is whole: `item` says all of it again. */
  done(item: Json, out: CompletionDelta[]): void;
}
