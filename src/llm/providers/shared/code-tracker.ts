/**
 * Whether a text that streams by stands in code, so far as that decides about tags: fences (three or more backticks or tildes
 * at the start of a line, indented or not) over lines, backticks within one line.
 */

/** A line is looked at this far. */
const MAX_LINE_CHARS = 1024;

export class CodeTracker {
  #line = "";
  /** What closes the fence; "" = none is open. */
  #fence = "";

  /** The line stands in a fence. */
  get inFence(): boolean {
    return this.#fence !== "";
  }

  /** Text of the running line; no line break in it. */
  add(text: string): void {
    if (this.#line.length < MAX_LINE_CHARS) this.#line += text.slice(0, MAX_LINE_CHARS - this.#line.length);
  }

  endLine(): void {
    const line = this.#line.trim();
    this.#line = "";
    if (this.#fence === "") this.#fence = openedFence(line);
    else if (line.startsWith(this.#fence) && line === (this.#fence[0] ?? "").repeat(line.length))
      this.#fence = "";
  }

  /** What comes next begins a line, whatever stood before it. */
  startLine(): void {
    this.#line = "";
  }

  /** Whether the end of this continuation of the line stands between backticks, as far as the line is looked at. */
  inInlineCode(text: string): boolean {
    let open = 0;
    const line = this.#line + text.slice(0, MAX_LINE_CHARS - this.#line.length);
    for (const [run] of line.matchAll(/`+/g)) {
      if (open === 0) open = run.length;
      else if (open === run.length) open = 0;
    }
    return open > 0;
  }
}

/** The run that opens a fence; "" = the line opens none: backticks within the line are inline code. */
function openedFence(line: string): string {
  const fence = /^(?:`{3,}|~{3,})/.exec(line)?.[0] ?? "";
  return fence.startsWith("`") && line.includes("`", fence.length) ? "" : fence;
}
