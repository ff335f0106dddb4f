/** Tool arguments: from the model's text to a checked object, or to a sentence that tells the model what is wrong. */
import { Ajv, type ErrorObject, type ValidateFunction } from "ajv";
import formats from "ajv-formats";
import type { Tool } from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { cutChars } from "../lib/text.js";

/** Deepest nesting of arrays and objects that arguments may have. */
const MAX_DEPTH = 100;
/** Longest schema that is repeated to the model after a mistake, characters. */
const MAX_SCHEMA_ECHO = 2_000;

export type CheckedArguments =
  | { readonly kind: "ok"; readonly args: Record<string, unknown> }
  | { readonly kind: "invalid"; readonly text: string };

/** Checks the argument text of calls to one tool. */
export type ArgumentChecker = (argumentsJson: string) => CheckedArguments;

/**
 * Compiles a tool's schema. Throws when the schema itself is not valid JSON schema: a tool with a broken schema must not be
 * offered. Text beyond `maxBytes` is refused before it is parsed.
 */
export function createArgumentChecker(tool: Tool, maxBytes: number): ArgumentChecker {
  const schema: unknown = JSON.parse(tool.parametersJsonSchema || '{"type":"object"}');
  const ajv = new Ajv({
    allErrors: false,
    strict: false,
    ownProperties: true,
    validateFormats: true,
    logger: false,
  });
  formats.default(ajv);
  const validate = ajv.compile(schema as object);
  const invalid = (problem: string): CheckedArguments => ({ kind: "invalid", text: explain(tool, problem) });

  return (argumentsJson) => {
    const text = argumentsJson.trim() === "" ? "{}" : argumentsJson;
    const bytes = Buffer.byteLength(text);
    if (bytes > maxBytes) return invalid(`they are ${bytes} bytes long, at most ${maxBytes} are allowed`);
    if (nestingDepth(text) > MAX_DEPTH) return invalid(`they are nested more than ${MAX_DEPTH} levels deep`);
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch (error) {
      return invalid(`they are not valid JSON (${cutChars((error as Error).message, 200)})`);
    }
    if (typeof value !== "object" || value === null || Array.isArray(value))
      return invalid("they must be a JSON object");
    const args = wrapMergeArgument(tool, schema, value as Record<string, unknown>);
    return validate(args) ? { kind: "ok", args } : invalid(describe(validate));
  };
}

/** A tool whose calls are merged takes a list; one bare value stands for a list of one. */
function wrapMergeArgument(
  tool: Tool,
  schema: unknown,
  args: Record<string, unknown>,
): Record<string, unknown> {
  const name = tool.mergeArgument;
  if (!name || !Object.hasOwn(args, name) || Array.isArray(args[name])) return args;
  const property = (schema as { properties?: Record<string, { type?: unknown }> }).properties?.[name];
  if (property?.type !== "array" || typeof args[name] !== "string") return args;
  return { ...args, [name]: [args[name]] };
}

function explain(tool: Tool, problem: string): string {
  const schema = tool.parametersJsonSchema;
  const expected =
    schema.length <= MAX_SCHEMA_ECHO ? ` The arguments must match this JSON schema: ${schema}` : "";
  return `The arguments for "${tool.name}" are not valid: ${problem}. The tool was not run.${expected}`;
}

function describe(validate: ValidateFunction): string {
  const error = validate.errors?.[0];
  return error ? describeError(error) : "they do not match the schema";
}

function describeError(error: ErrorObject): string {
  const where = error.instancePath ? `"${cutChars(error.instancePath.slice(1), 200)}"` : "the object";
  const params = error.params as Record<string, unknown>;
  switch (error.keyword) {
    case "required":
      return `${where} lacks the property "${String(params["missingProperty"])}"`;
    case "additionalProperties":
      return `${where} has an unknown property "${cutChars(String(params["additionalProperty"]), 100)}"`;
    case "enum":
      return `${where} must be one of ${cutChars(JSON.stringify(params["allowedValues"]), 500)}`;
    default:
      return `${where} ${error.message ?? "does not match the schema"}`;
  }
}

/** Deepest nesting of brackets outside strings, in one pass and without recursion. */
function nestingDepth(text: string): number {
  let depth = 0;
  let deepest = 0;
  let inString = false;
  for (let i = 0; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (inString) {
      if (char === 0x5c) i++;
      else if (char === 0x22) inString = false;
    } else if (char === 0x22) inString = true;
    else if (char === 0x7b || char === 0x5b) deepest = Math.max(deepest, ++depth);
    else if (char === 0x7d || char === 0x5d) depth--;
  }
  return deepest;
}
