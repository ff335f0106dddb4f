/** Turns what went wrong into a sentence that helps and an exit code. */
import { Code } from "@connectrpc/connect";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnwireClientError } from "../client/index.js";
import { CliError, ExitCode } from "./exit-codes.js";

export interface Explanation {
  readonly message: string;
  readonly exitCode: ExitCode;
}

/** Explains anything a command may throw. `url` is the server that was asked. */
export function explainError(thrown: unknown, url: string): Explanation {
  if (thrown instanceof CliError) return { message: thrown.message, exitCode: thrown.exitCode };
  if (!(thrown instanceof TurnwireClientError)) {
    const message = thrown instanceof Error ? thrown.message : String(thrown);
    return { message: `the command line failed: ${message}`, exitCode: ExitCode.INTERNAL };
  }
  return thrown.typed ? explainTyped(thrown) : explainLoss(thrown, url);
}

function explainTyped(error: TurnwireClientError): Explanation {
  const fields = error.details.violations
    .map(({ field, description }) => `\n  ${field}: ${description}`)
    .join("");
  const message = `${error.message}${fields}`;
  switch (error.code) {
    case ErrorCode.NOT_FOUND:
    case ErrorCode.MODEL_NOT_FOUND:
    case ErrorCode.TOOL_NOT_FOUND:
      return { message, exitCode: ExitCode.NOT_FOUND };
    case ErrorCode.UNAUTHENTICATED:
      return {
        message: `${message}: give a valid token with --token or TURNWIRE_TOKEN`,
        exitCode: ExitCode.DENIED,
      };
    case ErrorCode.PERMISSION_DENIED:
      return { message, exitCode: ExitCode.DENIED };
    case ErrorCode.NOT_BUILT: {
      const field = error.details.notBuilt?.field;
      return { message: field ? `${message} (${field})` : message, exitCode: ExitCode.NOT_BUILT };
    }
    case ErrorCode.SESSION_BUSY: {
      const turn = error.details.sessionBusy?.turnId;
      const help = turn
        ? `: follow it with \`turnwire tail ${turn}\` or end it with \`turnwire stop ${turn}\``
        : "";
      return { message: `${message}${help}`, exitCode: ExitCode.REFUSED };
    }
    case ErrorCode.CURSOR_AHEAD: {
      const head = error.details.cursorAhead?.headSeq;
      return {
        message:
          head === undefined || message.includes(`${head}`) ? message : `${message} (the head is ${head})`,
        exitCode: ExitCode.REFUSED,
      };
    }
    case ErrorCode.UNAVAILABLE:
    case ErrorCode.OWNER_LOST:
      return { message, exitCode: ExitCode.UNREACHABLE };
    case ErrorCode.INTERNAL:
    case ErrorCode.LOG_TRUNCATED:
      return { message, exitCode: ExitCode.INTERNAL };
    default:
      return { message, exitCode: ExitCode.REFUSED };
  }
}

function explainLoss(error: TurnwireClientError, url: string): Explanation {
  switch (error.status) {
    case Code.Unauthenticated:
    case Code.PermissionDenied:
      return {
        message: `${url} refuses the call: check --token or TURNWIRE_TOKEN`,
        exitCode: ExitCode.DENIED,
      };
    case Code.Unimplemented:
      return {
        message: `what answers at ${url} is not a Turnwire server (${error.message})`,
        exitCode: ExitCode.UNREACHABLE,
      };
    case Code.InvalidArgument:
    case Code.NotFound:
    case Code.FailedPrecondition:
    case Code.OutOfRange:
    case Code.AlreadyExists:
      return { message: error.message, exitCode: ExitCode.REFUSED };
    default:
      return {
        message:
          `cannot reach Turnwire at ${url}: ${error.message}\n` +
          "Start the server with `npm start` in its folder, or name another with --url or TURNWIRE_URL.",
        exitCode: ExitCode.UNREACHABLE,
      };
  }
}
