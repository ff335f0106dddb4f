/** Every rule that stands on a request, also one that is added later: it fires, names its field, and none is missing. */
import type { DescField, DescMessage, DescService } from "@bufbuild/protobuf";
import { getOption, hasOption, ScalarType } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  field as fieldOption,
  message as messageOption,
  oneof as oneofOption,
} from "../../gen/buf/validate/validate_pb.js";
import {
  AdminService,
  ChatService,
  DocumentService,
  FileService,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { LlmProxyService } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { PacketSchema } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { ToolService } from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { breaches, has, violations } from "./proto-rules.js";

const services: readonly DescService[] = [
  ChatService,
  FileService,
  DocumentService,
  AdminService,
  LlmProxyService,
  ToolService,
];
const requests = services.flatMap((service) => service.methods.map((method) => method.input));
const everyBreach = requests.flatMap((schema) => [...breaches(schema)]);

describe("request rules - every one fires and names its field", () => {
  test("there are hundreds of them", () => {
    expect(everyBreach.length).toBeGreaterThan(300);
  });

  test.each(everyBreach.map((breach) => [breach.title, breach] as const))(
    "%s",
    (_title, { schema, message, path, rule }) => {
      const found = violations(schema, message);
      const fired = found.some((violation) => {
        const match = /^(.*) \[([^\]]*)\]$/.exec(violation);
        return match !== null && match[1] === path && rule.test(match[2]!);
      });
      expect(fired, `${path}: ${found.join("; ")}`).toBe(true);
    },
  );
});

describe("request rules - where there are none", () => {
  test("every text, list and map that a request can carry is bounded", () => {
    const open = new Set<string>();
    for (const schema of requests) {
      for (const field of reachableFields(schema))
        if (!isBounded(field)) open.add(`${field.parent.typeName}.${field.name}`);
    }
    expect([...open].sort()).toEqual([...SERVER_FILLED].sort());
  });

  test("nothing is required of a packet, so that an old reader takes a new payload", () => {
    const withRules = new Set<string>();
    for (const field of reachableFields(PacketSchema))
      if (hasOption(field, fieldOption)) withRules.add(field.parent.name);
    // Attachments are the one thing that packets and requests share.
    expect([...withRules]).toEqual(["Attachment"]);
    expect(PacketSchema.oneofs.some((oneof) => hasOption(oneof, oneofOption))).toBe(false);
    expect(hasOption(PacketSchema, messageOption)).toBe(false);
  });
});

/** Fields of Session that the service fills: ignored in requests, bounded by the size of a request. */
const SERVER_FILLED = ["turnwire.chat.v1.Session.current_message_id"];
const SERVER_FILLED_MESSAGES = new Set(["turnwire.chat.v1.TurnSummary", "turnwire.chat.v1.QueuedSend"]);

function* reachableFields(root: DescMessage, seen = new Set<DescMessage>()): Generator<DescField> {
  if (seen.has(root) || SERVER_FILLED_MESSAGES.has(root.typeName)) return;
  seen.add(root);
  for (const field of root.fields) {
    yield field;
    if (field.message?.typeName.startsWith("turnwire.")) yield* reachableFields(field.message, seen);
  }
}

function isBounded(field: DescField): boolean {
  if (field.message && SERVER_FILLED_MESSAGES.has(field.message.typeName)) return true;
  const isText =
    field.fieldKind === "scalar" && (field.scalar === ScalarType.STRING || field.scalar === ScalarType.BYTES);
  const needsBound = isText || field.fieldKind === "list" || field.fieldKind === "map";
  if (!needsBound) return true;
  if (!hasOption(field, fieldOption)) return false;
  const { type } = getOption(field, fieldOption);
  switch (type.case) {
    case "string":
      return has(type.value, "maxBytes") || /\{\d+,\d+\}\$$/.test(type.value.pattern);
    case "bytes":
      return has(type.value, "maxLen");
    case "repeated":
      return has(type.value, "maxItems");
    case "map":
      return has(type.value, "maxPairs");
    default:
      return false;
  }
}
