/**
 * Where the command line writes. Standard output carries what was asked for (answer text, tables, JSON lines); standard
 * error what happens meanwhile (tool calls, connection, errors), so that a pipe holds the answer alone. Owns the cursor's
 * column and the one passing line at the bottom.
 */
import type { Writable } from "node:stream";

export interface TerminalStream extends Writable {
  readonly isTTY?: boolean;
  readonly columns?: number;
}

type Style = "dim" | "bold" | "red";
const STYLES: Readonly<Record<Style, readonly [string, string]>> = {
  dim: ["\u001b[2m", "\u001b[22m"],
  bold: ["\u001b[1m", "\u001b[22m"],
  red: ["\u001b[31m", "\u001b[39m"],
};
const CLEAR_LINE = "\r\u001b[2K";

export class Terminal {
  readonly #out: TerminalStream;
  readonly #err: TerminalStream;
  readonly #colorOut: boolean;
  readonly #colorErr: boolean;
  #column = 0;
  #passing = "";

  constructor(out: TerminalStream, err: TerminalStream, env: Readonly<Record<string, string | undefined>>) {
    this.#out = out;
    this.#err = err;
    const plain = Boolean(env.NO_COLOR) || env.TERM === "dumb";
    this.#colorOut = Boolean(out.isTTY) && !plain;
    this.#colorErr = Boolean(err.isTTY) && !plain;
  }

  /** A person reads standard output as it comes. */
  get isTTY(): boolean {
    return Boolean(this.#out.isTTY);
  }

  get columns(): number {
    return this.#out.columns || 80; // some terminals say 0
  }

  /** Where a prompt stands: beside what is asked for. */
  get promptStream(): Writable {
    return this.#err;
  }

  /** Writes text from the server to standard output; waits while the reader of a pipe is behind. */
  async text(text: string, style?: Style): Promise<void> {
    this.#clearPassing();
    const shown = this.isTTY ? printable(text) : text;
    await this.#write(this.#out, style && this.#colorOut ? styled(shown, style) : shown);
    const newline = shown.lastIndexOf("\n");
    this.#column = newline < 0 ? this.#column + shown.length : shown.length - newline - 1;
  }

  /** Writes a whole line to standard output. */
  async line(text: string): Promise<void> {
    await this.text(`${text}\n`);
  }

  /** Goes to the beginning of a line, if not there. */
  async freshLine(): Promise<void> {
    if (this.#column > 0) await this.text("\n");
  }

  /** Says on standard error, in a line of its own, what happens beside the answer. */
  async aside(text: string, style: Style = "dim"): Promise<void> {
    this.#clearPassing();
    const shared = this.isTTY && this.#err.isTTY;
    const lead = shared && this.#column > 0 ? "\n" : "";
    if (shared) this.#column = 0;
    const shown = printable(text).trimEnd();
    await this.#write(this.#err, `${lead}${this.#colorErr ? styled(shown, style) : shown}\n`);
  }

  /** Shows what goes on right now, until something else is written. Only where a person looks, never in a file. */
  passing(text: string): void {
    if (!this.#err.isTTY || !this.#colorErr || (this.isTTY && this.#column > 0)) return;
    this.#clearPassing();
    this.#passing = printable(text)
      .replace(/\s+/g, " ")
      .slice(0, Math.max(10, this.columns - 1));
    this.#err.write(styled(this.#passing, "dim"));
  }

  /** Resolves when everything written has left the process. */
  async flush(): Promise<void> {
    this.#clearPassing();
    await Promise.all(
      [this.#out, this.#err].map(
        (stream) => new Promise<void>((resolve) => stream.write("", () => resolve())),
      ),
    );
  }

  #clearPassing(): void {
    if (this.#passing) this.#err.write(CLEAR_LINE);
    this.#passing = "";
  }

  #write(stream: TerminalStream, text: string): Promise<void> | undefined {
    if (stream.write(text) || stream.destroyed) return undefined;
    return new Promise((resolve) => {
      const done = (): void => {
        stream.off("drain", done).off("close", done);
        resolve();
      };
      stream.on("drain", done).on("close", done);
    });
  }
}

function styled(text: string, style: Style): string {
  const [on, off] = STYLES[style];
  return `${on}${text}${off}`;
}

/** Takes out what could steer a terminal: every control character but tab and newline. Models and pages are not trusted. */
export function printable(text: string): string {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "");
}
