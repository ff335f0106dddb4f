/** What a tool shows of its work, gathered from its own packets. Pure; unknown packets are passed over. */
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { AgentBlock, ToolBlock } from "../../../gen/turnwire/chat/v1/turn_state_pb.js";
import type { Document } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet } from "../../../gen/turnwire/packet/v1/packet_pb.js";
import {
  CustomToolResponseType,
  MemoryOperation,
  type CustomToolDelta,
} from "../../../gen/turnwire/packet/v1/tools_pb.js";

/** The inside of a call, by family. "plain" has nothing but its arguments and result. */
export type ToolBody =
  | { readonly kind: "plain" }
  | SearchBody
  | PagesBody
  | CodeBody
  | ImagesBody
  | FileBody
  | MemoryBody
  | AgentBody
  | OutputBody;

/** A search of documents or of the web. */
export interface SearchBody {
  readonly kind: "search";
  readonly isInternet: boolean;
  readonly queries: readonly string[];
  /** Sources that it is narrowed to; empty = all. */
  readonly sources: readonly string[];
  readonly from: Timestamp | undefined;
  readonly until: Timestamp | undefined;
  readonly documents: readonly Document[];
}

/** Addresses that are opened, and what was read there. */
export interface PagesBody {
  readonly kind: "pages";
  readonly urls: readonly string[];
  readonly documents: readonly Document[];
}

/** Code or a command that runs. */
export interface CodeBody {
  readonly kind: "code";
  readonly language: "python" | "bash";
  readonly code: string;
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number | undefined;
  readonly timedOut: boolean;
}

/** Images that were made; fetch them by their file id. */
export interface ImagesBody {
  readonly kind: "images";
  readonly images: readonly { readonly fileId: string; readonly prompt: string }[];
}

/** A part of a file that was read. */
export interface FileBody {
  readonly kind: "file";
  readonly name: string;
  readonly fileId: string;
  readonly startChar: number;
  readonly endChar: number;
  readonly totalChars: number;
  readonly preview: string;
}

/** Memories that were stored, changed or read. */
export interface MemoryBody {
  readonly kind: "memory";
  readonly memories: readonly {
    readonly text: string;
    readonly operation: "added" | "updated" | "recalled";
  }[];
  /** True if the tool may not be used here. */
  readonly noAccess: boolean;
}

/** An agent that works on a task. */
export interface AgentBody {
  readonly kind: "agent";
  readonly task: string;
  readonly repo: string;
  readonly thinking: string;
  readonly answer: string;
}

/** What a custom tool gave back, piece by piece. */
export interface OutputBody {
  readonly kind: "output";
  readonly parts: readonly OutputPart[];
}

/** One piece of a custom tool's output. */
export interface OutputPart {
  readonly format: "text" | "json" | "csv" | "image";
  readonly text: string;
  readonly fileIds: readonly string[];
  readonly truncated: boolean;
  /** What the tool said went wrong; empty = nothing. */
  readonly error: string;
  /** True if the user has to sign in at the tool's server. */
  readonly needsSignIn: boolean;
}

const PLAIN: ToolBody = { kind: "plain" };

/** The body of a call; `agent` is the agent that runs inside it. */
export function toolBody(tool: ToolBlock, agent?: AgentBlock): ToolBody {
  if (agent) {
    const { task, repo, thinking, answer } = agent;
    return { kind: "agent", task, repo, thinking, answer };
  }
  let body: ToolBody = PLAIN;
  for (const packet of tool.detail) body = addPacket(body, packet);
  const documents = tool.result?.documents ?? [];
  if (
    (body.kind === "search" || body.kind === "pages") &&
    body.documents.length === 0 &&
    documents.length > 0
  )
    return { ...body, documents };
  return body;
}

function addPacket(body: ToolBody, { payload }: Packet): ToolBody {
  switch (payload.case) {
    case "searchToolStart":
      return { ...searchOf(body), isInternet: payload.value.isInternetSearch };
    case "searchToolFilterDelta": {
      const { sources, timeFilterStart, timeFilterEnd } = payload.value;
      return { ...searchOf(body), sources, from: timeFilterStart, until: timeFilterEnd };
    }
    case "searchToolQueriesDelta": {
      const search = searchOf(body);
      return { ...search, queries: [...new Set([...search.queries, ...payload.value.queries])] };
    }
    case "searchToolDocumentsDelta": {
      const search = searchOf(body);
      return { ...search, documents: [...search.documents, ...payload.value.documents] };
    }
    case "openUrlStart":
      return pagesOf(body);
    case "openUrlUrls": {
      const pages = pagesOf(body);
      return { ...pages, urls: [...new Set([...pages.urls, ...payload.value.urls])] };
    }
    case "openUrlDocuments": {
      const pages = pagesOf(body);
      return { ...pages, documents: [...pages.documents, ...payload.value.documents] };
    }
    case "pythonToolStart":
      return { ...codeOf(body, "python"), code: payload.value.code };
    case "bashToolStart":
      return { ...codeOf(body, "bash"), code: payload.value.cmd };
    case "pythonToolDelta":
      return addOutput(codeOf(body, "python"), payload.value);
    case "bashToolDelta": {
      const { exitCode, timedOut } = payload.value;
      return { ...addOutput(codeOf(body, "bash"), payload.value), exitCode, timedOut };
    }
    case "imageGenerationStart":
      return { kind: "images", images: [] };
    case "imageGenerationFinal": {
      const images = payload.value.images.map(({ fileId, revisedPrompt }) => ({
        fileId,
        prompt: revisedPrompt,
      }));
      return { kind: "images", images };
    }
    case "fileReaderResult": {
      const { fileName, fileId, startChar, endChar, totalChars, previewStart, previewEnd } = payload.value;
      const preview = previewEnd ? `${previewStart}\n...\n${previewEnd}` : previewStart;
      return { kind: "file", name: fileName, fileId, startChar, endChar, totalChars, preview };
    }
    case "memoryToolStart":
      return memoryOf(body);
    case "memoryToolNoAccess":
      return { ...memoryOf(body), noAccess: true };
    case "memoryToolDelta": {
      const memory = memoryOf(body);
      const added = { text: payload.value.memoryText, operation: operationOf(payload.value.operation) };
      return { ...memory, memories: [...memory.memories, added] };
    }
    case "customToolStart":
      return outputOf(body);
    case "customToolDelta": {
      const output = outputOf(body);
      return { ...output, parts: [...output.parts, partOf(payload.value)] };
    }
    default:
      return body;
  }
}

function searchOf(body: ToolBody): SearchBody {
  if (body.kind === "search") return body;
  const nothing = { queries: [], sources: [], from: undefined, until: undefined, documents: [] };
  return { kind: "search", isInternet: false, ...nothing };
}

function pagesOf(body: ToolBody): PagesBody {
  return body.kind === "pages" ? body : { kind: "pages", urls: [], documents: [] };
}

function codeOf(body: ToolBody, language: CodeBody["language"]): CodeBody {
  if (body.kind === "code") return body;
  return { kind: "code", language, code: "", stdout: "", stderr: "", exitCode: undefined, timedOut: false };
}

function addOutput(body: CodeBody, more: { readonly stdout: string; readonly stderr: string }): CodeBody {
  return { ...body, stdout: body.stdout + more.stdout, stderr: body.stderr + more.stderr };
}

function memoryOf(body: ToolBody): MemoryBody {
  return body.kind === "memory" ? body : { kind: "memory", memories: [], noAccess: false };
}

function outputOf(body: ToolBody): OutputBody {
  return body.kind === "output" ? body : { kind: "output", parts: [] };
}

function operationOf(operation: MemoryOperation): MemoryBody["memories"][number]["operation"] {
  if (operation === MemoryOperation.UPDATE) return "updated";
  return operation === MemoryOperation.RECALL ? "recalled" : "added";
}

function partOf(delta: CustomToolDelta): OutputPart {
  const { error } = delta;
  const status = error?.statusCode ? ` (HTTP ${error.statusCode})` : "";
  return {
    format: formatOf(delta.responseType),
    text: delta.data,
    fileIds: [...delta.fileIds, ...(delta.dataFileId ? [delta.dataFileId] : [])],
    truncated: delta.truncated,
    error: error ? `${error.message || "the tool reported a failure"}${status}` : "",
    needsSignIn: error?.isAuthError ?? false,
  };
}

function formatOf(type: CustomToolResponseType): OutputPart["format"] {
  switch (type) {
    case CustomToolResponseType.JSON:
      return "json";
    case CustomToolResponseType.CSV:
      return "csv";
    case CustomToolResponseType.IMAGE:
      return "image";
    default:
      return "text";
  }
}
