/** What a provider gives and wants back with the next call: JSON values, one per delta, each small enough for a message. */
import { create } from "@bufbuild/protobuf";
import {
  ProviderStateSchema,
  type CompletionDelta,
  type ProviderState,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { providerStateDelta } from "../../deltas.js";
import { parseJson } from "../../json.js";

/** Of one value, as JSON: a message of the stream holds it whole. */
export const MAX_STATE_BYTES = 192 * 1024;

/** Hands out `value` for the block. False = it is too large and was left out. */
export function pushState(
  provider: string,
  value: unknown,
  blockIndex: number,
  out: CompletionDelta[],
): boolean {
  return pushStateText(provider, JSON.stringify(value), blockIndex, out);
}

/** The same for a value that is JSON text already: large ones are not written again. */
export function pushStateText(
  provider: string,
  json: string,
  blockIndex: number,
  out: CompletionDelta[],
): boolean {
  const data = Buffer.from(json);
  if (data.length > MAX_STATE_BYTES) return false;
  out.push(providerStateDelta(create(ProviderStateSchema, { provider, data, blockIndex })));
  return true;
}

/** The value that came back; undefined = it is another provider's, or unreadable. */
export function readState(state: ProviderState, provider: string): unknown {
  return state.provider === provider ? parseJson(Buffer.from(state.data).toString("utf8")) : undefined;
}
