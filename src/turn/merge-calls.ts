/** Calls of one step that are better run as one: several searches become one search with all their queries. */
import type { DecodedCall, StepTool } from "./step.js";

/**
 * Marks calls of the same tool whose arguments differ in its `mergeArgument` alone: the first one runs with the values of
 * all, the others name it. Calls with unfit or otherwise different arguments stay as they are, and so does the order.
 */
export function mergeCalls(
  calls: readonly DecodedCall[],
  toolByName: (name: string) => StepTool | undefined,
): DecodedCall[] {
  const groups = new Map<string, { first: number; values: unknown[] }>();
  const merged = [...calls];
  for (const [index, call] of calls.entries()) {
    const name = toolByName(call.toolName)?.mergeArgument ?? "";
    const parts = name === "" || !call.argumentsValid ? undefined : splitArguments(call.argumentsJson, name);
    if (!parts) continue;
    const key = `${call.toolId}\n${parts.others}`;
    const group = groups.get(key);
    if (!group) {
      groups.set(key, { first: index, values: parts.values });
      continue;
    }
    group.values.push(...parts.values.filter((value) => !group.values.includes(value)));
    const into = calls[group.first]!;
    merged[index] = { ...call, mergedIntoCallId: into.callId };
    merged[group.first] = {
      ...into,
      mergedArgumentsJson: withValues(into.argumentsJson, name, group.values),
    };
  }
  return merged;
}

/** The values of the argument (one bare text stands for a list of one), and all other arguments as one text. */
function splitArguments(json: string, name: string): { values: unknown[]; others: string } | undefined {
  const args = JSON.parse(json) as Record<string, unknown>;
  const value = Object.hasOwn(args, name) ? args[name] : undefined;
  const values = typeof value === "string" ? [value] : value;
  if (!Array.isArray(values)) return undefined;
  const others = Object.entries(args).filter(([key]) => key !== name);
  others.sort(([a], [b]) => (a < b ? -1 : 1));
  return { values: [...(values as unknown[])], others: JSON.stringify(others) };
}

function withValues(json: string, name: string, values: readonly unknown[]): string {
  const args = JSON.parse(json) as Record<string, unknown>;
  return JSON.stringify({ ...args, [name]: values });
}
