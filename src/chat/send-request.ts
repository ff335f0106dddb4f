/** The three send RPCs take the same fields in three messages (a test compares the descriptors); inside they are one. */
import { createHash } from "node:crypto";
import { create, toJson } from "@bufbuild/protobuf";
import {
  SendMessageRequestSchema,
  type SendMessageAndWaitRequest,
  type SendMessageRequest,
  type StartTurnRequest,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";

export type SendRequest = SendMessageRequest | SendMessageAndWaitRequest | StartTurnRequest;

/**
 * A hash over what the request asks for: the validated fields in canonical order, not the wire's bytes. What a retry may
 * change is left out: who asks (client_id), what to do when busy, and credentials, which are never stored.
 */
export function hashSendRequest(request: SendRequest): string {
  const fields = {
    ...request,
    $typeName: undefined,
    $unknown: undefined,
    clientId: "",
    mcpCredentials: [],
    ifBusy: 0,
  };
  delete (fields as Record<string, unknown>).$typeName;
  delete (fields as Record<string, unknown>).$unknown;
  const message = create(SendMessageRequestSchema, fields as never);
  return createHash("sha256")
    .update(canonicalJson(toJson(SendMessageRequestSchema, message)))
    .digest("hex");
}

function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${entries.map(([key, field]) => `${JSON.stringify(key)}:${canonicalJson(field)}`).join(",")}}`;
  }
  return JSON.stringify(value);
}
