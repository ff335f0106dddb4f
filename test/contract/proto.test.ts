/** The shape of the contract: what the proto files must keep true, whatever else changes in them. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { AnyDesc, DescFile, DescMessage, DescMethod, FileRegistry } from "@bufbuild/protobuf";
import {
  create,
  createFileRegistry,
  fromBinary,
  getOption,
  hasOption,
  toBinary,
  toJson,
} from "@bufbuild/protobuf";
import { FileDescriptorSetSchema, MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import { getComments, getPackageComments } from "@bufbuild/protoplugin";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { FieldRulesSchema, field as fieldOption } from "../../gen/buf/validate/validate_pb.js";
import {
  AdminService,
  ChatService,
  DocumentService,
  FileService,
  ResumeTurnResponseSchema,
  SendMessageAndWaitRequestSchema,
  SendMessageRequestSchema,
  SendMessageResponseSchema,
  StartTurnRequestSchema,
  WatchResponseSchema,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { FilterService } from "../../gen/turnwire/filter/v1/filter_service_pb.js";
import { LlmProxyService } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { PacketBatchSchema } from "../../gen/turnwire/log/v1/log_pb.js";
import { type ErrorCode, ErrorCodeSchema } from "../../gen/turnwire/packet/v1/common_pb.js";
import { PacketSchema } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { ToolOutcome, ToolService } from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { exampleTurn } from "../../scripts/example-turn.js";
import { ERROR_TABLE, errorCodeName } from "../../src/lib/errors.js";
import { fold } from "../../src/turn/fold.js";
import { GrammarChecker } from "../../src/turn/grammar.js";

const root = resolve(import.meta.dirname, "../..");
const services = [
  ChatService,
  FileService,
  DocumentService,
  AdminService,
  LlmProxyService,
  ToolService,
  FilterService,
];

describe("contract - sends", () => {
  const fields = (schema: DescMessage) =>
    schema.fields.map((field) => ({
      name: field.name,
      number: field.number,
      kind: field.fieldKind,
      type: (field.message ?? field.enum)?.typeName ?? field.scalar,
      oneof: field.oneof?.name,
      rules: hasOption(field, fieldOption)
        ? toJson(FieldRulesSchema, getOption(field, fieldOption))
        : undefined,
    }));

  test.each([SendMessageAndWaitRequestSchema, StartTurnRequestSchema])(
    "$name has the fields and rules of SendMessageRequest",
    (schema) => {
      expect(fields(schema)).toEqual(fields(SendMessageRequestSchema));
    },
  );
});

describe("contract - batches", () => {
  test.each([SendMessageResponseSchema, ResumeTurnResponseSchema, WatchResponseSchema, PacketBatchSchema])(
    "field 1 of $name is the packets",
    (schema) => {
      const first = schema.fields.find((field) => field.number === 1);
      expect([first?.name, first?.fieldKind, first?.message?.typeName]).toEqual([
        "packets",
        "list",
        PacketSchema.typeName,
      ]);
    },
  );

  test("a log entry holds nothing but packets", () => {
    expect(PacketBatchSchema.fields.map((field) => field.name)).toEqual(["packets"]);
  });

  test("the bytes of a log entry are a response, and a response may go on after them", () => {
    const packets = exampleTurn();
    const entry = toBinary(PacketBatchSchema, create(PacketBatchSchema, { packets }));
    for (const schema of [SendMessageResponseSchema, ResumeTurnResponseSchema, WatchResponseSchema]) {
      const response = fromBinary(schema, entry);
      expect(Buffer.from(toBinary(schema, response)).equals(entry)).toBe(true);
      expect(response.$unknown).toBeUndefined();
    }
    const receipt = toBinary(SendMessageResponseSchema, create(SendMessageResponseSchema, { headSeq: 7 }));
    const both = fromBinary(SendMessageResponseSchema, Buffer.concat([entry, receipt]));
    expect([both.packets.length, both.headSeq]).toEqual([packets.length, 7]);
  });
});

describe("contract - RPCs", () => {
  const levels = (level: MethodOptions_IdempotencyLevel, of = services) =>
    of.flatMap((service) =>
      service.methods.filter((method: DescMethod) => method.idempotency === level).map((m) => m.name),
    );

  test("reads have no side effects, and nothing else claims so", () => {
    const reads = services
      .flatMap((service) => service.methods.map((method: DescMethod) => method.name))
      .filter((name) => /^(Get|List|Search|Inspect|Count|Download|Prepare)/.test(name));
    expect(levels(MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS).sort()).toEqual(reads.sort());
  });

  test("what stops, deletes or selects may be repeated", () => {
    const idempotent = levels(MethodOptions_IdempotencyLevel.IDEMPOTENT);
    for (const service of services) {
      for (const { name } of service.methods) {
        if (/^(Stop|Delete|Select|Cancel|Unshare)/.test(name)) expect(idempotent).toContain(name);
        if (/^(Create|Send|Start|Fork|Execute|Stream|Embed)/.test(name))
          expect(idempotent).not.toContain(name);
      }
    }
  });

  test("ChatService has every RPC that the page of services promises", () => {
    expect(ChatService.methods.map((method) => method.name).sort()).toEqual(
      (
        "CancelQueuedSend ClaimClientCall CreateSession DeleteSession ForkTurn GetSession GetTurn GetUsage ListMessages " +
        "ListModels ListSessions ListTools ListTurns ResumeTurn SearchMessages SelectMessage SendMessage " +
        "SendMessageAndWait SetFeedback ShareSession StartTurn StopTurn SubmitClientResult UnshareSession UpdateSession Watch"
      ).split(" "),
    );
  });
});

describe("contract - enums that must agree", () => {
  test("a tool's outcome and the status of its call have the same names and numbers", () => {
    const named = (all: object) => Object.entries(all).filter(([key]) => !/^\d/.test(key));
    expect(named(ToolOutcome)).toEqual(named(ToolCallStatus));
  });
});

describe("contract - the error table", () => {
  const codes = ErrorCodeSchema.values.map((value) => value.number).filter((code) => code !== 0);

  test("has a row for every code and no other", () => {
    expect(Object.keys(ERROR_TABLE).map(Number)).toEqual(codes);
  });

  test("is the table of docs/contract.md", () => {
    const page = readFileSync(join(root, "docs", "contract.md"), "utf8");
    const section = page.slice(page.indexOf("\n## Errors\n"), page.indexOf("\n## Evolution\n"));
    const rows = [...section.matchAll(/^\| `(\w+)` \| (\d+) \| `(\w+)` \| (yes|no) \| (.*?) \|/gm)].map(
      (match) => match.slice(1),
    );
    expect(rows).toEqual(
      codes.map((code) => {
        const { status, retryable, message } = ERROR_TABLE[code as keyof typeof ERROR_TABLE];
        return [
          errorCodeName(code as ErrorCode),
          String(code),
          statusName(status),
          retryable ? "yes" : "no",
          message,
        ];
      }),
    );
  });
});

/** A Connect code as gRPC writes it. */
function statusName(code: Code): string {
  const name = Code[code].replace(/([a-z])([A-Z])/g, "$1_$2").toUpperCase();
  return name === "CANCELED" ? "CANCELLED" : name;
}

describe("contract - the example turn", () => {
  test("keeps the order rules", () => {
    const checker = new GrammarChecker();
    const found = exampleTurn().flatMap((packet) => checker.push(packet));
    expect([...found, ...checker.finish()]).toEqual([]);
  });

  test("folds to the answer that it shows", () => {
    const state = fold(exampleTurn());
    expect(state.lanes.map((lane) => lane.text)).toEqual([
      "It is half past six in the evening in Tokyo, on Monday.",
    ]);
    expect([
      state.unknownPackets,
      state.stop?.usage?.inputTokens,
      state.lanes[0]?.usage?.inputTokens,
    ]).toEqual([0, 503, 503]);
  });

  test("stands on the page as it is encoded", () => {
    const page = readFileSync(join(root, "docs", "contract.md"), "utf8");
    for (const packet of exampleTurn()) {
      expect(page).toContain(`| ${packet.seq} | ${toBinary(PacketSchema, packet).length} | \`{`);
    }
  });
});

describe("contract - sources", () => {
  let scratch: string;
  let registry: FileRegistry;
  let ours: DescFile[];

  beforeAll(() => {
    scratch = mkdtempSync(join(tmpdir(), "turnwire-proto-test-"));
    const image = join(scratch, "image.binpb");
    execFileSync(join(root, "node_modules", ".bin", "buf"), ["build", "-o", image], { cwd: root });
    registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(image)));
    ours = [...registry.files].filter((file) => file.name.startsWith("turnwire/"));
  });
  afterAll(() => rmSync(scratch, { recursive: true, force: true }));

  test("every element has a comment", () => {
    const silent: string[] = [];
    const check = (desc: Exclude<AnyDesc, DescFile>): void => {
      const { leading, trailing } = getComments(
        desc as never,
      ); /* the plugin library brings a runtime, and types, of its own */
      if (((leading ?? "") + (desc.kind === "oneof" ? "" : (trailing ?? ""))).trim().length < 5)
        silent.push(desc.toString());
    };
    const visit = (message: DescMessage): void => {
      check(message);
      message.fields.forEach(check);
      message.oneofs.forEach(check);
      message.nestedMessages.forEach(visit);
    };
    let elements = 0;
    for (const file of ours) {
      if ((getPackageComments(file as never).leading ?? "").trim() === "") silent.push(file.name);
      file.messages.forEach(visit);
      for (const each of file.enums) [each, ...each.values].forEach(check);
      for (const each of file.services) [each, ...each.methods].forEach(check);
      elements += file.messages.length + file.enums.length + file.services.length;
    }
    expect(silent).toEqual([]);
    expect(elements).toBeGreaterThan(200);
  });

  test("packages import one another in one direction", () => {
    const packageOf = (file: DescFile): string => file.proto.package;
    const imports = new Map<string, Set<string>>();
    for (const file of ours) {
      const into = imports.get(packageOf(file)) ?? new Set();
      for (const dependency of file.dependencies)
        if (ours.includes(dependency)) into.add(packageOf(dependency));
      into.delete(packageOf(file));
      imports.set(packageOf(file), into);
    }
    expect([...imports.get("turnwire.packet.v1")!]).toEqual([]);
    const cycles: string[] = [];
    const walk = (name: string, path: readonly string[]): void => {
      if (path.includes(name)) cycles.push([...path, name].join(" -> "));
      else for (const next of imports.get(name) ?? []) walk(next, [...path, name]);
    };
    for (const name of imports.keys()) walk(name, []);
    expect(cycles).toEqual([]);
  });

  test("payload numbers stand in the range of their group", () => {
    const ranges = {
      control: [16, 39],
      answer: [40, 59],
      side: [200, 999],
      client_calls: [170, 199],
      agents: [140, 169],
      tools: [60, 139],
    };
    const packet = registry.getMessage(PacketSchema.typeName)!;
    for (const field of packet.fields) {
      if (!field.oneof) expect(field.number).toBeLessThan(5);
      if (!field.message || !field.oneof || field.number < 16) continue;
      const group = /(\w+)$/.exec(field.message.file.name)![1]!;
      if (group === "common") continue; // TurnError is a packet and a value
      const [from, to] = ranges[group as keyof typeof ranges];
      expect(field.number, field.name).toBeGreaterThanOrEqual(from!);
      expect(field.number, field.name).toBeLessThanOrEqual(to!);
    }
    for (const field of packet.fields.filter((each) => each.number >= 5 && each.number <= 15)) {
      expect(field.name, "the short numbers are for what is sent often").toMatch(/_(delta|info)$/);
    }
  });

  test("64-bit numbers are strings in TypeScript and no field of a packet's hot path is one", () => {
    const wide: string[] = [];
    for (const file of ours) {
      for (const message of file.messages) {
        for (const field of message.fields) {
          const is64 = field.fieldKind === "scalar" && [3, 4, 6, 16, 18].includes(field.scalar);
          if (is64 && !(field.fieldKind === "scalar" && field.longAsString)) wide.push(field.toString());
        }
      }
    }
    expect(wide).toEqual([]);
  });

  test("the files of others are those that their README names", () => {
    const folder = join(root, "proto", "third_party");
    const sums = new Map(
      [...readFileSync(join(folder, "README.md"), "utf8").matchAll(/^([0-9a-f]{64}) {2}(\S+)$/gm)].map(
        (match) => [match[2]!, match[1]!],
      ),
    );
    const protos = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((path) =>
      path.endsWith(".proto"),
    );
    expect([...sums.keys()].sort()).toEqual(protos.sort());
    for (const path of protos) {
      const sum = createHash("sha256")
        .update(readFileSync(join(folder, path)))
        .digest("hex");
      expect(sum, path).toBe(sums.get(path));
    }
  });
});
