/**
 * What a tool may send: every packet and result is cut to what the contract allows, whatever the tool produced. What
 * cannot be cut is left out, and the cut is marked where the message has a field for it.
 */
import { create, toBinary } from "@bufbuild/protobuf";
import { type Document, DocumentSchema } from "../../gen/turnwire/packet/v1/common_pb.js";
import { type Packet, PacketSchema, PlacementSchema } from "../../gen/turnwire/packet/v1/packet_pb.js";
import {
  ToolOutcome,
  type ToolResult,
  ToolResultSchema,
} from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import type { ToolPayload } from "./tool.js";
import { cutBytes, cutChars } from "../lib/text.js";

/** Largest encoded packet, bytes. */
const MAX_PACKET_BYTES = 128 * 1024;
/** Largest part of a packet that cannot be split (documents, data), bytes. */
const MAX_UNSPLIT_BYTES = 64 * 1024;
/** Documents' share of a result: beside 64 KiB of inline text they fit one packet. */
const MAX_RESULT_DOCUMENTS_BYTES = 48 * 1024;
const MAX_DOCUMENTS = 100;
const MAX_SNIPPET_CHARS = 2_000;
const MAX_TITLE_CHARS = 1_000;
const MAX_URL_CHARS = 4_096;
const MAX_METADATA_ENTRIES = 16;
const MAX_METADATA_CHARS = 500;
const MAX_FILES = 100;
const MAX_ERROR_CHARS = 2_000;

/** The packet to send for a payload (seq and placement 0: the orchestrator fills them in), or undefined if it is too large. */
export function boundPacket(
  payload: ToolPayload,
): { readonly packet: Packet; readonly bytes: number } | undefined {
  const packet = create(PacketSchema, { placement: create(PlacementSchema), payload });
  const { payload: filled } = packet;
  switch (filled.case) {
    case "openUrlDocuments":
    case "searchToolDocumentsDelta":
      filled.value.documents = boundDocuments(filled.value.documents, MAX_UNSPLIT_BYTES);
      break;
    case "customToolDelta": {
      const data = cutBytes(filled.value.data, MAX_UNSPLIT_BYTES);
      if (data.length < filled.value.data.length) filled.value.truncated = true;
      filled.value.data = data;
      break;
    }
    case "pythonToolDelta":
    case "bashToolDelta":
      filled.value.stdout = cutBytes(filled.value.stdout, MAX_UNSPLIT_BYTES / 2);
      filled.value.stderr = cutBytes(filled.value.stderr, MAX_UNSPLIT_BYTES / 2);
      break;
    default:
      break;
  }
  const bytes = toBinary(PacketSchema, packet).length;
  return bytes <= MAX_PACKET_BYTES ? { packet, bytes } : undefined;
}

/** Cuts a result: model text to `maxOutputBytes` and `maxModelChars` (0 = no such limit), documents and texts to their sizes. */
export function boundResult(result: ToolResult, maxOutputBytes: number, maxModelChars: number): ToolResult {
  const chars = maxModelChars > 0 ? cutChars(result.modelText, maxModelChars) : result.modelText;
  const modelText = cutBytes(chars, maxOutputBytes);
  const jsonFits = Buffer.byteLength(result.resultJson) <= maxOutputBytes;
  const truncated = result.truncated || modelText.length < result.modelText.length || !jsonFits;
  return create(ToolResultSchema, {
    outcome: result.outcome || (result.error ? ToolOutcome.ERROR : ToolOutcome.OK),
    modelText,
    truncated,
    documents: boundDocuments(result.documents, MAX_RESULT_DOCUMENTS_BYTES),
    files: result.files.slice(0, MAX_FILES),
    error: result.error && { ...result.error, message: cutChars(result.error.message, MAX_ERROR_CHARS) },
    usage: result.usage,
    resultJson: jsonFits ? result.resultJson : "",
  });
}

/** Copies of documents whose fields and whose sum are bounded: snippets shrink first, then the last documents go. */
function boundDocuments(documents: readonly Document[], maxBytes: number): Document[] {
  const kept = documents.slice(0, MAX_DOCUMENTS);
  for (let snippetChars = MAX_SNIPPET_CHARS; snippetChars >= 0; snippetChars = shrink(snippetChars)) {
    const cut = kept.map((document) => boundDocument(document, snippetChars));
    if (encodedSize(cut) <= maxBytes) return cut;
    if (snippetChars === 0) return fitting(cut, maxBytes);
  }
  return [];
}

function shrink(snippetChars: number): number {
  return snippetChars > 125 ? Math.floor(snippetChars / 2) : 0;
}

function fitting(documents: readonly Document[], maxBytes: number): Document[] {
  const kept: Document[] = [];
  let size = 0;
  for (const document of documents) {
    size += encodedSize([document]);
    if (size > maxBytes) break;
    kept.push(document);
  }
  return kept;
}

function encodedSize(documents: readonly Document[]): number {
  return documents.reduce((sum, document) => sum + toBinary(DocumentSchema, document).length + 4, 0);
}

function boundDocument(document: Document, snippetChars: number): Document {
  const snippet = cutChars(document.snippet, snippetChars);
  const cut = document.snippet.length - snippet.length;
  return create(DocumentSchema, {
    ...document,
    title: cutChars(document.title, MAX_TITLE_CHARS),
    url: document.url.length <= MAX_URL_CHARS ? document.url : "",
    snippet,
    endChar: cut > 0 ? Math.max(document.startChar, document.endChar - cut) : document.endChar,
    metadata: Object.fromEntries(
      Object.entries(document.metadata)
        .slice(0, MAX_METADATA_ENTRIES)
        .map(([key, value]) => [cutChars(key, 100), cutChars(value, MAX_METADATA_CHARS)]),
    ),
    truncated: document.truncated || cut > 0,
  });
}
