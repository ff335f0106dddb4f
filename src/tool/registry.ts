/** The tools of this peer: found by id, listed in one order, told apart from other sets by a revision. */
import { createHash } from "node:crypto";
import { toBinary } from "@bufbuild/protobuf";
import { type Tool, ToolSchema } from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { type ArgumentChecker, createArgumentChecker } from "./arguments.js";
import type { ToolDefinition } from "./tool.js";

/** Longest argument text of a call, bytes. */
export const MAX_ARGUMENT_BYTES = 256 * 1024;

/** A registered tool with its compiled argument schema. */
export interface RegisteredTool {
  readonly definition: ToolDefinition;
  readonly checkArguments: ArgumentChecker;
}

export interface ToolRegistry {
  /** All tools, ordered by tool_id. */
  readonly tools: readonly Tool[];
  /** Changes whenever a tool's description changes. */
  readonly revision: string;
  get(toolId: string): RegisteredTool | undefined;
  /** Closes every tool. */
  close(): Promise<void>;
}

/** Builds a registry. Throws on double ids or names, on schemas that do not compile and on client-side tools. */
export function createToolRegistry(definitions: readonly ToolDefinition[]): ToolRegistry {
  const byId = new Map<string, RegisteredTool>();
  const names = new Set<string>();
  for (const definition of definitions) {
    const { toolId, name, clientSide } = definition.tool;
    if (!toolId || !name) throw new Error("a tool needs a tool_id and a name");
    if (byId.has(toolId)) throw new Error(`two tools have the id "${toolId}"`);
    if (names.has(name)) throw new Error(`two tools have the name "${name}"`);
    if (clientSide) throw new Error(`tool "${toolId}" runs in the client and cannot be served by a peer`);
    names.add(name);
    byId.set(toolId, {
      definition,
      checkArguments: createArgumentChecker(definition.tool, MAX_ARGUMENT_BYTES),
    });
  }
  const tools = [...byId.values()]
    .map((registered) => registered.definition.tool)
    .sort((a, b) => (a.toolId < b.toolId ? -1 : 1));
  return {
    tools,
    revision: revisionOf(tools),
    get: (toolId) => byId.get(toolId),
    close: async () => {
      await Promise.allSettled(definitions.map(async (definition) => definition.close?.()));
    },
  };
}

function revisionOf(tools: readonly Tool[]): string {
  const hash = createHash("sha256");
  for (const tool of tools) hash.update(toBinary(ToolSchema, tool));
  return hash.digest("hex").slice(0, 16);
}
