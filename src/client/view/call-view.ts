/** One tool call as it is shown, and the words for it. Pure. */
import {
  BlockStatus,
  type AgentBlock,
  type Block,
  type ToolBlock,
} from "../../../gen/turnwire/chat/v1/turn_state_pb.js";
import { SectionStatus } from "../../../gen/turnwire/packet/v1/control_pb.js";
import { ToolCallStatus } from "../../../gen/turnwire/packet/v1/tools_pb.js";
import { toolBody } from "./tool-body.js";
import type { CallStatus, GroupView, ToolCallView } from "./view-types.js";

/** The view of a call, from its block, the agent inside it and what that agent shows. */
export function callView(
  block: Block,
  tool: ToolBlock,
  agent: AgentBlock | undefined,
  nested: readonly GroupView[],
  openedAtMs: number | undefined,
): ToolCallView {
  const { call, ready, result, end } = tool;
  const status = callStatus(block, tool);
  const isOver = status !== "preparing" && status !== "running";
  return {
    key: `call-${block.firstSeq}`,
    callId: call?.callId ?? "",
    toolId: call?.toolId ?? "",
    name: call?.displayName || call?.toolName || "a tool",
    status,
    argumentsJson: tool.argumentsJson,
    body: toolBody(tool, agent),
    resultText: result?.modelText,
    resultFileId: result?.truncated ? result.resultFileId : "",
    files: result?.files ?? NO_FILES,
    message: end?.message ?? "",
    mergedIntoCallId: ready?.mergedIntoCallId ?? "",
    durationMs: end?.durationMs ?? 0,
    openedAtMs: isOver ? undefined : openedAtMs,
    nested,
  };
}

const NO_FILES: ToolCallView["files"] = [];

function callStatus(block: Block, { ready, result, end }: ToolBlock): CallStatus {
  if (result) return RESULT_STATUS[result.status] ?? "ok";
  if (end) return SECTION_STATUS[end.status] ?? "ok";
  if (block.status === BlockStatus.DONE) return "ok";
  return ready ? "running" : "preparing";
}

const RESULT_STATUS: { readonly [status: number]: CallStatus } = {
  [ToolCallStatus.ERROR]: "error",
  [ToolCallStatus.TIMEOUT]: "timeout",
  [ToolCallStatus.CANCELLED]: "cancelled",
  [ToolCallStatus.UNKNOWN_OUTCOME]: "unknown",
  [ToolCallStatus.DENIED]: "denied",
};

const SECTION_STATUS: { readonly [status: number]: CallStatus } = {
  [SectionStatus.ERROR]: "error",
  [SectionStatus.TIMEOUT]: "timeout",
  [SectionStatus.CANCELLED]: "cancelled",
  [SectionStatus.UNKNOWN_OUTCOME]: "unknown",
  [SectionStatus.DENIED]: "denied",
};

/** What a call does, in a few words: "Searching documents for “rain”". */
export function callTitle(call: ToolCallView): string {
  const { body } = call;
  const isOver = call.status !== "preparing" && call.status !== "running";
  const verb = (now: string, past: string): string => (isOver && call.status === "ok" ? past : now);
  switch (body.kind) {
    case "search": {
      const where = body.isInternet ? "the web" : "documents";
      const what = body.queries.length > 0 ? ` for ${quoted(body.queries)}` : "";
      return `${verb("Searching", "Searched")} ${where}${what}`;
    }
    case "pages": {
      const what = body.urls.length === 1 ? hostOf(body.urls[0]!) : `${body.urls.length} pages`;
      return `${verb("Opening", "Opened")} ${body.urls.length === 0 ? "pages" : what}`;
    }
    case "code":
      return `${verb("Running", "Ran")} ${body.language === "python" ? "Python" : "a command"}`;
    case "images":
      return verb("Making images", "Made images");
    case "file":
      return `${verb("Reading", "Read")} ${body.name || "a file"}`;
    case "memory":
      return verb("Using memory", "Used memory");
    case "agent":
      return body.task ? cut(body.task, 80) : call.name;
    default:
      return call.name;
  }
}

/** How a call ended, in a word or two; empty while it runs or when it went well. */
export function callStatusWords(status: CallStatus): string {
  switch (status) {
    case "error":
      return "failed";
    case "timeout":
      return "took too long";
    case "cancelled":
      return "cancelled";
    case "denied":
      return "denied";
    case "unknown":
      return "outcome unknown";
    default:
      return "";
  }
}

function quoted(queries: readonly string[]): string {
  const more = queries.length > 1 ? ` and ${queries.length - 1} more` : "";
  return `“${cut(queries[0] ?? "", 60)}”${more}`;
}

function cut(text: string, maxChars: number): string {
  const chars = Array.from(text.slice(0, maxChars * 2)); // never through a pair
  return chars.length > maxChars ? `${chars.slice(0, maxChars - 1).join("")}…` : text;
}

function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host || url : cut(url, 60);
}
