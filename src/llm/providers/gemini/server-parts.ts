/** Parts about tools that Gemini ran itself: code, and its own searches. */
import { objectOf, stringOf, type Json } from "../../json.js";

const NAMES = ["executableCode", "codeExecutionResult", "toolCall", "toolResponse"];

export function isServerPart(part: Json): boolean {
  return NAMES.some((name) => part[name] !== undefined);
}

export interface ServerStep {
  /** "" = the server gave none. */
  readonly id: string;
  readonly name: string;
  /** undefined = the part is a result. */
  readonly args: unknown;
  /** undefined = the part is a call. */
  readonly result: unknown;
}

/** What the part says. Code and its result often have no id: they follow each other. */
export function readServerPart(part: Json): ServerStep {
  const code = part["executableCode"] ?? part["codeExecutionResult"];
  if (code !== undefined) {
    const result = part["executableCode"] === undefined ? code : undefined;
    const args = part["executableCode"];
    return { id: stringOf(objectOf(code)["id"]), name: "code_execution", args, result };
  }
  const isCall = part["toolCall"] !== undefined;
  const tool = objectOf(part["toolCall"] ?? part["toolResponse"]);
  return {
    id: stringOf(tool["id"]),
    name: stringOf(tool["toolType"]) || "server_tool",
    args: isCall ? (tool["args"] ?? {}) : undefined,
    result: isCall ? undefined : (tool["response"] ?? {}),
  };
}
