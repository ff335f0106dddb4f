/** What a request must be before an implementation sees it; the same on every port. */
import type { DescMessage, DescService, Message } from "@bufbuild/protobuf";
import { create, fromBinary } from "@bufbuild/protobuf";
import { pathToString } from "@bufbuild/protobuf/reflect";
import { createValidator } from "@bufbuild/protovalidate";
import { BadRequestSchema } from "../../../gen/google/rpc/error_details_pb.js";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../errors.js";

const MAX_VIOLATIONS = 8;

/** A problem of one field, in the words for the caller. */
export interface FieldProblem {
  /** Path of the field with its proto names: "options.cycle_limit", "models[2].id". */
  readonly field: string;
  readonly description: string;
}

/** INVALID_ARGUMENT that names the fields, in words and as google.rpc.BadRequest. */
export function invalidFields(problems: readonly FieldProblem[]): TurnError {
  const shown = problems.slice(0, MAX_VIOLATIONS);
  return new TurnError(ErrorCode.INVALID_ARGUMENT, {
    message: shown
      .map((problem) => (problem.field ? `${problem.field}: ${problem.description}` : problem.description))
      .join("; "),
    details: shown[0]?.field ? { field: shown[0].field } : {},
    typed: [{ desc: BadRequestSchema, value: { fieldViolations: shown } }],
  });
}

/** The rules of the protos as compiled: the same for every port, and nothing of a request stays in it. */
const validator = createValidator();

/** Checks a request against the rules in its proto. Throws INVALID_ARGUMENT. */
export function validateRequest(desc: DescMessage, message: Message): void {
  const result = validator.validate(desc, message);
  if (result.kind === "valid") return;
  if (result.kind === "error") throw new TurnError(ErrorCode.INTERNAL, { cause: result.error });
  throw invalidFields(
    result.violations.map((violation) => ({
      field: pathToString(violation.field),
      description: violation.message,
    })),
  );
}

/** Compiles the rules of all requests now (some 100 ms for a large contract): the first caller does not wait for it. */
export function compileRules(services: readonly DescService[]): void {
  for (const { methods } of services)
    for (const { input } of methods) validator.validate(input, create(input));
}

/** Decodes a request. Broken UTF-8, cut or nested-too-deep bytes are INVALID_ARGUMENT. */
export function decodeRequest(desc: DescMessage, bytes: Uint8Array): Message {
  try {
    return fromBinary(desc, bytes);
  } catch (cause) {
    throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
      message: `the request is not a valid ${desc.typeName}: ${decodeProblem(cause)}`,
      cause,
    });
  }
}

function decodeProblem(cause: unknown): string {
  const text = cause instanceof Error ? cause.message : "";
  if (/utf-?8|encoded data/i.test(text)) return "a string is not UTF-8";
  if (/recursion|depth|nest/i.test(text)) return "it is nested too deeply";
  return "its bytes are malformed";
}
