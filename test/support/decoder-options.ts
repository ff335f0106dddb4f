/** Options of a decoder in a test: generous limits, ids that are counted. */
import type { DecoderOptions } from "../../src/llm/providers/dialect.js";

/** The given ones, else the usual ones. */
export function decoderOptions(options: Partial<DecoderOptions> = {}): DecoderOptions {
  let calls = 0;
  return {
    attempt: 1,
    newCallId: () => `call_${++calls}`,
    secrets: [],
    reasoningTags: [],
    reasoningOpen: false,
    maxEventBytes: 8 * 1024 * 1024,
    maxResponseBytes: 64 * 1024 * 1024,
    contentType: "",
    ...options,
  };
}
