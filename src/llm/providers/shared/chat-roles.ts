/** Messages and tools in the form that most chat dialects share: one role per message, functions with a schema. Pure. */
import {
  Role,
  type CompletionInput,
  type ContentPart,
  type ToolDefinition,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { assertNever } from "../../../lib/assert-never.js";
import type { Json } from "../../json.js";
import { invalid, parametersOf, textOnly, type OfferedTools } from "./request-input.js";

/** What a dialect makes of its messages, by who speaks. `field` names the parts, or the part, in an error. */
export interface RoleWriters {
  user(parts: readonly ContentPart[], field: string): Json;
  /** undefined = it says nothing: servers refuse such a message. */
  assistant(parts: readonly ContentPart[], field: string): Json | undefined;
  /** A message of its own for each result. */
  toolResult(part: ContentPart, field: string): Json;
}

/** The conversation. Throws INVALID_ARGUMENT naming the field for what cannot be sent. */
export function messagesByRole(input: CompletionInput, write: RoleWriters): Json[] {
  return input.messages.flatMap(({ role, parts }, at): Json[] => {
    const field = `input.messages[${at}]`;
    switch (role) {
      case Role.SYSTEM:
        return [{ role: "system", content: textOnly(parts, field) }];
      case Role.USER:
      case Role.REMINDER: // what the model is reminded of stands last, and only the user may speak there
        return [write.user(parts, field)];
      case Role.ASSISTANT:
        return [write.assistant(parts, field) ?? []].flat();
      case Role.TOOL:
        return parts.map((part, number) => write.toolResult(part, `${field}.parts[${number}]`));
      case Role.UNSPECIFIED:
        throw invalid(`${field}.role`, "must be set");
      default:
        return assertNever(role, "role");
    }
  });
}

/** For servers that cannot be told which tool to call: the one that must be called is the only one that is offered. */
export function onlyOffered({ tools, mode, toolName }: OfferedTools): Json[] {
  return tools.flatMap((tool, at) =>
    mode === "one" && tool.name !== toolName ? [] : [functionTool(tool, at)],
  );
}

/** The tool at this place of `input.tools`. */
export function functionTool(tool: ToolDefinition, at: number): Json & { readonly function: Json } {
  const { name, description } = tool;
  return { type: "function", function: { name, description, parameters: parametersOf(tool, at) } };
}
