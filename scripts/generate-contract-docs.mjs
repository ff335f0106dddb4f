/**
 * Makes docs/contract.md: the prose of scripts/contract-page.md, filled with what a buf image, the error table and an
 * encoded example turn say.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createFileRegistry, fromBinary, ScalarType, toBinary, toJsonString } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema, MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import { getComments } from "@bufbuild/protoplugin";
import { tsImport } from "tsx/esm/api";

const OURS = /^turnwire\/(\w+)\/v1\//;

/** Writes the page. `imagePath`: output of `buf build` with source info; gen/ must be fresh. */
export async function writeContractPage({ root, imagePath, outPath }) {
  const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(imagePath)));
  const files = [...registry.files].filter((file) => OURS.test(`${file.name}.proto`));
  files.sort((a, b) => compare(a.name, b.name));
  const packet = registry.getMessage("turnwire.packet.v1.Packet");
  const ranges = payloadRanges(packet);
  const example = await exampleRows();
  const page = fill(readFileSync(join(root, "scripts", "contract-page.md"), "utf8"), {
    header: packet.fields
      .filter((field) => !field.oneof)
      .map(fieldRow)
      .join("\n"),
    ranges: ranges.map((range) => `${range.from} to ${range.to} ${range.title}`).join("; "),
    placement: registry.getMessage("turnwire.packet.v1.Placement").fields.map(fieldRow).join("\n"),
    packets: ranges.map((range) => packetSection(packet, range)).join("\n\n"),
    exampleIntro: example.intro,
    example: example.rows.join("\n"),
    services: files.flatMap((file) => file.services.map(serviceSection)).join("\n\n"),
    messages: messageSections(files, packet),
    errors: await errorRows(registry),
  });
  writeFileSync(outPath, page);
}

function fill(template, values) {
  const filled = template.replace(/\{\{(\w+)\}\}/g, (_, name) => {
    if (values[name] === undefined) throw new Error(`nothing to put in place of {{${name}}}`);
    return values[name];
  });
  return filled.endsWith("\n") ? filled : `${filled}\n`;
}

function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** The comment of an element as one line that fits into a table cell. */
function comment(desc) {
  const text = (getComments(desc).leading ?? "").trim().replace(/\s*\n\s*/g, " ");
  if (text === "") throw new Error(`${desc.toString()} has no comment`);
  return text.replaceAll("|", "\\|").replaceAll("<", "&lt;");
}

/** Where the payloads stand: the headings of the number ranges are the detached comments inside the oneof. */
function payloadRanges(packet) {
  const payloads = packet.fields.filter((field) => field.oneof);
  // The one before the first member counts as trailing the oneof's brace.
  const headings = [
    getComments(payloads[0].oneof).trailing ?? "",
    ...payloads.flatMap((field) => getComments(field).leadingDetached),
  ];
  const ranges = headings.flatMap((heading) => {
    const match = /^(\d+) to (\d+): (.*?)\.(?: .*)?$/s.exec(heading.trim());
    return match ? [{ from: Number(match[1]), to: Number(match[2]), title: match[3] }] : [];
  });
  for (const field of payloads) {
    const inRange = ranges.filter((range) => field.number >= range.from && field.number <= range.to);
    if (inRange.length !== 1) throw new Error(`payload ${field.name} = ${field.number} stands in no range`);
  }
  return ranges;
}

function packetSection(packet, range) {
  const fields = packet.fields.filter(
    (field) => field.oneof && field.number >= range.from && field.number <= range.to,
  );
  const heading = `### ${range.from} to ${range.to}: ${range.title}`;
  return [heading, ...fields.map(packetEntry)].join("\n\n");
}

function packetEntry(field) {
  const head = `**${field.number} \`${field.name}\`** (${field.message.name}) - ${comment(field.message)}`;
  const rows = field.message.fields.map(fieldRow);
  return rows.length === 0
    ? `${head}\n\nNo fields.`
    : `${head}\n\n| Field | Meaning |\n| --- | --- |\n${rows.join("\n")}`;
}

function fieldRow(field) {
  const oneof = field.oneof ? ` *(one of \`${field.oneof.name}\`)*` : "";
  return `| \`${field.name}\` = ${field.number}, ${typeName(field)}${oneof} | ${comment(field)} |`;
}

function typeName(field) {
  const single = (kind) => (kind.message ?? kind.enum)?.name ?? ScalarType[kind.scalar].toLowerCase();
  switch (field.fieldKind) {
    case "list":
      return `repeated ${single(field)}`;
    case "map":
      return `map of ${ScalarType[field.mapKey].toLowerCase()} to ${single(field)}`;
    default:
      return field.proto.proto3Optional ? `optional ${single(field)}` : single(field);
  }
}

function serviceSection(service) {
  const rows = service.methods.map((method) => {
    const kind = {
      unary: "",
      server_streaming: "stream out",
      client_streaming: "stream in",
      bidi_streaming: "stream in and out",
    };
    const level = method.idempotency;
    const safe =
      level === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS
        ? "read"
        : level === MethodOptions_IdempotencyLevel.IDEMPOTENT
          ? "idempotent"
          : "";
    const marks = [kind[method.methodKind], safe].filter((mark) => mark !== "").join(", ");
    return `| \`${method.name}\` | ${marks} | ${comment(method)} |`;
  });
  return [
    `### ${service.typeName}`,
    comment(service),
    `| RPC | Kind | What it does |\n| --- | --- | --- |\n${rows.join("\n")}`,
  ].join("\n\n");
}

/** Every message and enum of ours that the packet sections have not shown. */
function messageSections(files, packet) {
  const shown = new Set(
    [packet, ...packet.fields.filter((field) => field.oneof).map((field) => field.message)].map(
      (m) => m.typeName,
    ),
  );
  shown.add("turnwire.packet.v1.Placement").add("turnwire.packet.v1.ErrorCode");
  const packages = new Map();
  for (const file of files) {
    const entries = packages.get(file.proto.package) ?? [];
    entries.push(...file.messages.filter((message) => !shown.has(message.typeName)).map(messageEntry));
    entries.push(...file.enums.filter((each) => !shown.has(each.typeName)).map(enumEntry));
    packages.set(file.proto.package, entries);
  }
  return [...packages].map(([name, entries]) => [`### ${name}`, ...entries].join("\n\n")).join("\n\n");
}

function messageEntry(message) {
  const head = `**${message.name}** - ${comment(message)}`;
  const rows = message.fields.map(fieldRow);
  return rows.length === 0 ? head : `${head}\n\n| Field | Meaning |\n| --- | --- |\n${rows.join("\n")}`;
}

function enumEntry(each) {
  const rows = each.values.map((value) => `| \`${value.name}\` = ${value.number} | ${comment(value)} |`);
  return `**${each.name}** - ${comment(each)}\n\n| Value | Meaning |\n| --- | --- |\n${rows.join("\n")}`;
}

async function errorRows(registry) {
  const { ERROR_TABLE, errorCodeName } = await tsImport("../src/lib/errors.ts", import.meta.url);
  const { Code } = await import("@connectrpc/connect");
  const values = registry
    .getEnum("turnwire.packet.v1.ErrorCode")
    .values.filter((value) => value.number !== 0);
  return values
    .map((value) => {
      const row = ERROR_TABLE[value.number];
      if (!row) throw new Error(`the error table has no row for ${value.name}`);
      const status = Code[row.status]
        .replace(/(?<=[a-z])(?=[A-Z])/g, "_")
        .toUpperCase()
        .replace("CANCELED", "CANCELLED");
      const cells = [
        `\`${errorCodeName(value.number)}\``,
        value.number,
        `\`${status}\``,
        row.retryable ? "yes" : "no",
        row.message,
        comment(value),
      ];
      return `| ${cells.join(" | ")} |`;
    })
    .join("\n");
}

/** The example turn, encoded and decoded again, one JSON line per packet. */
async function exampleRows() {
  const { exampleTurn } = await tsImport("./example-turn.ts", import.meta.url);
  const { PacketSchema } = await tsImport("../gen/turnwire/packet/v1/packet_pb.ts", import.meta.url);
  let total = 0;
  const rows = exampleTurn().map((packet) => {
    const bytes = toBinary(PacketSchema, packet);
    total += bytes.length;
    const { seq, ...rest } = JSON.parse(
      toJsonString(PacketSchema, fromBinary(PacketSchema, bytes), { useProtoFieldName: true }),
    );
    return `| ${seq} | ${bytes.length} | \`${JSON.stringify(rest).replaceAll("|", "\\|")}\` |`;
  });
  const intro =
    `"What time is it in Tokyo?", answered by one model that thinks, says what it is about to do, calls the tool \`clock\`, and answers: ` +
    `${rows.length} packets, ${total} bytes. Each row is a packet as JSON, without its seq and its zero values.`;
  return { intro, rows };
}
