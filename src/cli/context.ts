import type { Readable } from "node:stream";
import type { TurnwireClient } from "../client/index.js";
import type { Terminal } from "./terminal.js";

/** What every command is given. */
export interface CliContext {
  readonly client: TurnwireClient;
  readonly terminal: Terminal;
  readonly stdin: Readable & { readonly isTTY?: boolean };
  /** One JSON object per line instead of text for people. */
  readonly json: boolean;
  /** Aborts when the command has to end: SIGTERM, or Ctrl-C unless a command takes it. */
  readonly signal: AbortSignal;
  readonly interrupts: Interrupts;
}

/** Who hears Ctrl-C: the command that took it last, else nobody and the command ends. */
export class Interrupts {
  readonly #handlers: (() => void)[] = [];
  readonly #otherwise: () => void;

  constructor(otherwise: () => void) {
    this.#otherwise = otherwise;
  }

  /** Takes Ctrl-C until the returned function is called. */
  take(handler: () => void): () => void {
    this.#handlers.push(handler);
    return () => {
      const index = this.#handlers.lastIndexOf(handler);
      if (index >= 0) this.#handlers.splice(index, 1);
    };
  }

  /** Ctrl-C was pressed. */
  readonly raise = (): void => {
    (this.#handlers.at(-1) ?? this.#otherwise)();
  };
}
