/** Tools that a provider ran itself, as deltas: one when the call shows, one with its arguments, one with its result. */
import { create } from "@bufbuild/protobuf";
import {
  ServerToolCallSchema,
  type CompletionDelta,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { serverToolCallDelta } from "../../deltas.js";

const MAX_JSON_CHARS = 60_000;

export interface ServerToolStep {
  readonly callId: string;
  readonly name: string;
  /** JSON text. */
  readonly argumentsJson?: string;
  /** Any value; absent = none yet. */
  readonly result?: unknown;
  readonly done?: boolean;
}

export function serverToolDelta(step: ServerToolStep): CompletionDelta {
  const { callId, name, argumentsJson = "", result, done = false } = step;
  return serverToolCallDelta(
    create(ServerToolCallSchema, {
      callId: wellFormed(callId),
      name: wellFormed(name),
      argumentsJson: bounded(wellFormed(argumentsJson)),
      resultJson: result === undefined ? "" : bounded(JSON.stringify(readable(result))),
      done,
    }),
  );
}

/** What is sealed for the provider's own eyes is left out: of the result, or of each of its parts. */
function readable(result: unknown): unknown {
  return Array.isArray(result) ? (result as unknown[]).map(withoutSealed) : withoutSealed(result);
}

function withoutSealed(value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).filter(([name]) => !name.startsWith("encrypted_")));
}

/** A longer text becomes a JSON string of its beginning. JSON.stringify writes half a character as an escape. */
function bounded(json: string): string {
  return json.length <= MAX_JSON_CHARS ? json : JSON.stringify(json.slice(0, MAX_JSON_CHARS));
}

function wellFormed(text: string): string {
  return text.replace(/\p{Surrogate}/gu, "\ufffd");
}
