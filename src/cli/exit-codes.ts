/** How a command ended, for scripts. The help text and the README list the same numbers. */
export const ExitCode = {
  /** Done; for chat and tail: the turn completed. */
  OK: 0,
  /** The turn did not complete: an error, interrupted, a deadline, or stopped by somebody else. */
  TURN_FAILED: 1,
  /** The command line makes no sense. */
  USAGE: 2,
  /** No such session, turn or model, or it is not yours. */
  NOT_FOUND: 3,
  /** No Turnwire server answers at the address. */
  UNREACHABLE: 4,
  /** The token is missing or wrong, or may not do this. */
  DENIED: 5,
  /** The server refused the request: invalid, session busy, a cursor that cannot be served, a limit. */
  REFUSED: 6,
  /** Comes with a later version. */
  NOT_BUILT: 69,
  /** A fault inside the server or the command line. */
  INTERNAL: 70,
  /** Ctrl-C. */
  INTERRUPTED: 130,
  /** SIGTERM. */
  TERMINATED: 143,
} as const;

export type ExitCode = (typeof ExitCode)[keyof typeof ExitCode];

/** A command that ends early with a message for a person. */
export class CliError extends Error {
  override readonly name = "CliError";
  readonly exitCode: ExitCode;

  constructor(exitCode: ExitCode, message: string) {
    super(message);
    this.exitCode = exitCode;
  }
}
