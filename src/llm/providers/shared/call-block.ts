/** A tool call in an answer whose server opens and closes blocks itself; block-writer.ts makes and settles it. */
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { toolCallDelta } from "../../deltas.js";
import { isJsonObject } from "../../json.js";
import { SurrogateJoiner } from "../../well-formed.js";
import type { CallsEnd } from "./tool-call-assembler.js";

export interface CallOptions {
  /** The server's id; "" = it has none. */
  readonly id: string;
  readonly name: string;
  /** `text`: the arguments are free text, and become a JSON string. Default `object`. */
  readonly form?: "object" | "text";
  /** False for calls that the server may have run itself: they do not make the answer one that asks for tools. */
  readonly asksForTools?: boolean;
}

/** A tool call of the answer. */
export class CallBlock {
  readonly callId: string;
  readonly name: string;
  readonly blockIndex: number;
  readonly #isText: boolean;
  readonly #joiner = new SurrogateJoiner();
  #args = "";
  #asksForTools: boolean;
  #state: "open" | "complete" | "cut" = "open";

  constructor(options: CallOptions, callId: string, blockIndex: number) {
    this.callId = callId;
    this.name = options.name;
    this.blockIndex = blockIndex;
    this.#asksForTools = options.asksForTools ?? true;
    this.#isText = options.form === "text";
  }

  /** No arguments have come for it. */
  get empty(): boolean {
    return this.#args === "";
  }

  /** The next piece of the arguments. */
  push(fragment: string, out: CompletionDelta[]): void {
    const joined = this.#joiner.push(fragment);
    if (joined === "" || this.#state !== "open") return;
    const piece = this.#isText ? `${this.#args === "" ? '"' : ""}${escaped(joined)}` : joined;
    this.#args += piece;
    out.push(this.#delta(piece));
  }

  /** It makes the answer one that asks for tools. */
  get asksForTools(): boolean {
    return this.#asksForTools;
  }

  /** The server went on with its result: nobody is asked for it any more. */
  answered(): void {
    this.#asksForTools = false;
  }

  /** The server cut the call off: it is never complete. */
  cut(): void {
    if (this.#state === "open") this.#state = "cut";
  }

  /** The server says that the call is whole. Arguments that do not parse stay open for the end of the answer. */
  complete(out: CompletionDelta[]): void {
    if (this.#state === "open" && this.#isValid()) this.#finish(out);
  }

  /** For the writer. */
  announce(out: CompletionDelta[]): void {
    out.push(toolCallDelta({ blockIndex: this.blockIndex, callId: this.callId, name: this.name }));
  }

  /** For the writer: the answer is over. */
  settle(how: CallsEnd, isLast: boolean, out: CompletionDelta[]): "complete" | "invalid" | "open" {
    if (this.#state === "complete") return "complete";
    if (this.#state === "cut" || how === "broken") return "open";
    const valid = this.#isValid();
    if (how === "cut" && (!valid || (isLast && this.#args.trim() === ""))) return "open";
    if (valid) {
      this.#finish(out);
      return "complete";
    }
    out.push(this.#delta(this.#joiner.flush(), { argumentsInvalid: true }));
    return "invalid";
  }

  #isValid(): boolean {
    return this.name !== "" && (this.#isText || this.#args.trim() === "" || isJsonObject(this.#args));
  }

  #finish(out: CompletionDelta[]): void {
    this.#state = "complete";
    const rest = this.#joiner.flush();
    const whole = this.#args.trim() === "" && rest === "";
    if (this.#isText)
      out.push(this.#delta(whole ? '""' : `${escaped(rest)}"`, { complete: true, argumentsInvalid: true }));
    else out.push(this.#delta(whole ? "{}" : rest, { complete: true }));
  }

  #delta(
    argumentsFragment: string,
    flags: { complete?: boolean; argumentsInvalid?: boolean } = {},
  ): CompletionDelta {
    return toolCallDelta({ blockIndex: this.blockIndex, callId: this.callId, argumentsFragment, ...flags });
  }
}

/** The text as it stands inside a JSON string. */
function escaped(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}
