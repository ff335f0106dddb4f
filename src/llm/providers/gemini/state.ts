/** What Gemini wants back with the next call: the signatures of its thoughts, and the tools that it ran itself. */
import type { ProviderState } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { readState } from "../shared/provider-state.js";
import { objectOf, stringOf, type Json } from "../../json.js";

/** The name under which it travels in ProviderState. */
export const GEMINI_STATE = "gemini";

export type GeminiState =
  /** The signature of a call, found by its id; `wireId`: the id is Gemini's own. */
  | { readonly kind: "call"; readonly callId: string; readonly signature: string; readonly wireId: boolean }
  /** The signature of the text before it, or of nothing. */
  | { readonly kind: "text"; readonly signature: string }
  /** A part that goes back as it came. */
  | { readonly kind: "part"; readonly part: Json };

/** undefined = it is another provider's. */
export function geminiState(given: ProviderState): GeminiState | undefined {
  const state = objectOf(readState(given, GEMINI_STATE));
  const signature = stringOf(state["signature"]);
  switch (state["kind"]) {
    case "call":
      return {
        kind: "call",
        callId: stringOf(state["callId"]),
        signature,
        wireId: state["wireId"] === true,
      };
    case "text":
      return { kind: "text", signature };
    case "part":
      return { kind: "part", part: objectOf(state["part"]) };
    default:
      return undefined;
  }
}
