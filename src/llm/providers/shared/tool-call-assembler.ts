/**
 * Puts streamed tool calls together, whatever a compatible server does with ids, indices and names.
 * Owns the calls of one answer. Rules:
 * T1 a fragment belongs to the call of its id, else of its index, else to the open call (the latest).
 * T2 an unknown id on a used index opens a call, unless the call there has no id yet, or the fragment has no name and
 * that call still lacks arguments (servers that invent an id per fragment). A known id opens one with the head of another call.
 * T3 a name is appended to, unless the piece repeats the name so far.
 * T4 a call's first delta carries its whole name; it is held back until the first argument or the next block.
 * T5 only calls whose arguments are a whole JSON object in an answer that ended properly are ever complete.
 * T6 an empty object in the head of a call stands for none yet; arguments that were whole are not taken twice.
 */
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { toolCallDelta } from "../../deltas.js";
import { isJsonObject } from "../../json.js";
import { SurrogateJoiner } from "../../well-formed.js";

/** One element of `tool_calls`, its members as they were found. */
export interface ToolCallFragment {
  readonly id: string | undefined;
  readonly index: number | undefined;
  readonly name: string | undefined;
  readonly args: string;
}

interface OpenCall {
  readonly ordinal: number;
  readonly blockIndex: number;
  readonly callId: string;
  readonly joiner: SurrogateJoiner;
  hasWireId: boolean;
  name: string;
  args: string;
  /** The last character of the arguments that is no white space is a brace: only then they may be whole. */
  closes: boolean;
  /** T6: the server gave an empty object. */
  emptyObject: boolean;
  /** The name as it was last sent; undefined = the call was not announced yet. */
  sentName: string | undefined;
}

/** How an answer ended, for its calls: `proper`, `cut` by a limit or filter, or `broken` off. */
export type CallsEnd = "proper" | "cut" | "broken";

export interface SettledCalls {
  readonly deltas: CompletionDelta[];
  readonly complete: number;
  readonly invalid: number;
}

export class ToolCallAssembler {
  readonly #newBlock: () => number;
  readonly #newCallId: () => string;
  readonly #calls: OpenCall[] = [];
  readonly #byId = new Map<string, OpenCall>();
  readonly #byIndex = new Map<number, OpenCall[]>();
  /** Ids that name several calls, so none. */
  readonly #sharedIds = new Set<string>();

  /** `newBlock` gives the block index of a call that opens, `newCallId` an id for a call that has none. */
  constructor(newBlock: () => number, newCallId: () => string) {
    this.#newBlock = newBlock;
    this.#newCallId = newCallId;
  }

  get count(): number {
    return this.#calls.length;
  }

  push(fragment: ToolCallFragment, out: CompletionDelta[]): void {
    const call = this.#route(fragment) ?? this.#open(fragment, out);
    if (fragment.id !== undefined) this.#byId.set(fragment.id, call);
    if (fragment.name !== undefined) call.name = joinedName(call.name, fragment.name);
    if (isStandIn(call, fragment)) return;
    const text = call.joiner.push(fragment.args);
    if (text === "") return;
    call.args += text;
    const end = text.trimEnd();
    if (end !== "") call.closes = end.endsWith("}");
    out.push(this.#announce(call, text));
  }

  /** Announces what is still held back: before another block opens. */
  announceAll(out: CompletionDelta[]): void {
    const last = this.#calls.at(-1);
    if (last?.sentName === undefined && last !== undefined) out.push(this.#announce(last, ""));
  }

  /** The last delta of each call. The call that a `cut` answer was in, and all of a `broken` one, stay open. */
  settle(end: CallsEnd): SettledCalls {
    const deltas: CompletionDelta[] = [];
    let complete = 0;
    let invalid = 0;
    for (const call of this.#calls) {
      if (call.sentName === undefined) deltas.push(this.#announce(call, ""));
      const rest = call.joiner.flush();
      call.args += rest;
      const empty = call.args.trim() === "";
      const valid = call.name !== "" && (empty || isJsonObject(call.args));
      const lacksAll = empty && !call.emptyObject && call === this.#calls.at(-1);
      const cutHere = end === "cut" && (lacksAll || !valid);
      if (end === "broken" || cutHere) continue;
      if (valid) complete++;
      else invalid++;
      deltas.push(
        toolCallDelta({
          blockIndex: call.blockIndex,
          callId: call.callId,
          name: call.name === call.sentName ? "" : call.name,
          argumentsFragment: empty ? "{}" : rest,
          complete: valid,
          argumentsInvalid: !valid,
        }),
      );
    }
    return { deltas, complete, invalid };
  }

  #announce(call: OpenCall, fragment: string): CompletionDelta {
    const name = call.name === call.sentName ? "" : call.name;
    call.sentName = call.name;
    return toolCallDelta({
      blockIndex: call.blockIndex,
      callId: call.callId,
      name,
      argumentsFragment: fragment,
    });
  }

  #open(fragment: ToolCallFragment, out: CompletionDelta[]): OpenCall {
    this.announceAll(out);
    const call: OpenCall = {
      ordinal: this.#calls.length,
      blockIndex: this.#newBlock(),
      callId: fragment.id === undefined || this.#byId.has(fragment.id) ? this.#newCallId() : fragment.id,
      joiner: new SurrogateJoiner(),
      hasWireId: fragment.id !== undefined,
      name: "",
      args: "",
      closes: false,
      emptyObject: false,
      sentName: undefined,
    };
    this.#calls.push(call);
    if (fragment.index !== undefined) {
      const sharing = this.#byIndex.get(fragment.index);
      if (sharing) sharing.push(call);
      else this.#byIndex.set(fragment.index, [call]);
    }
    return call;
  }

  /** The call a fragment continues; undefined = it opens one. */
  #route(given: ToolCallFragment): OpenCall | undefined {
    const fragment =
      given.id !== undefined && this.#sharedIds.has(given.id) ? { ...given, id: undefined } : given;
    const { id } = fragment;
    const byId = id === undefined ? undefined : this.#byId.get(id);
    if (id !== undefined && byId) {
      if (!this.#isHeadAfter(byId, fragment)) return byId;
      this.#sharedIds.add(id);
      return undefined;
    }
    const there = this.#callAt(fragment);
    if (!there) return undefined;
    return id === undefined ? withoutId(there, fragment) : withNewId(there, fragment);
  }

  /** The head of another call under an id that was used before; a repetition of the same call is none. */
  #isHeadAfter(call: OpenCall, { name, index, args }: ToolCallFragment): boolean {
    if (name === undefined) return false;
    if (isBlankObject(args)) return index !== undefined && !this.#byIndex.has(index);
    return args !== call.args && isWhole(call);
  }

  /** T1: the call at the fragment's index, or the open call where the index says nothing. */
  #callAt({ id, index, name }: ToolCallFragment): OpenCall | undefined {
    if (index === undefined) return id !== undefined && name !== undefined ? undefined : this.#calls.at(-1);
    const sharing = this.#byIndex.get(index);
    if (sharing?.length === 1) return sharing[0];
    if (sharing) {
      // Heads that shared an index by mistake: whoever still lacks arguments, by its true position if that fits.
      const lacking = sharing.filter((call) => !call.emptyObject && !isWhole(call));
      return lacking.find((call) => call.ordinal === index) ?? lacking.at(-1) ?? sharing.at(-1);
    }
    if (id !== undefined || name !== undefined) return undefined;
    // A continuation under an index that no head had: the head's was wrong, this one is right, or it is the open call's.
    const open = this.#calls[index] ?? this.#calls.at(-1);
    return open && !isWhole(open) ? open : undefined;
  }
}

/** T2. */
function withNewId(there: OpenCall, fragment: ToolCallFragment): OpenCall | undefined {
  const { name } = fragment;
  const completesHead = !there.hasWireId && (name === undefined || name === there.name || there.name === "");
  const idPerFragment = name === undefined && fragment.args !== "";
  if (isWhole(there) || !(completesHead || idPerFragment)) return undefined;
  there.hasWireId = true;
  return there;
}

/** Without an id, a second whole call in the same slot shows by its name after arguments that were whole. */
function withoutId(there: OpenCall, fragment: ToolCallFragment): OpenCall | undefined {
  const { name, args } = fragment;
  if (there.hasWireId && args === there.args) return there;
  const opens =
    name !== undefined && (args !== "" || name !== there.name) && (there.emptyObject || isWhole(there));
  return opens ? undefined : there;
}

/** T6. */
function isStandIn(call: OpenCall, { name, args }: ToolCallFragment): boolean {
  if (call.args === "" && name !== undefined && isEmptyObject(args)) return (call.emptyObject = true);
  return args !== "" && args === call.args && isWhole(call);
}

function isEmptyObject(args: string): boolean {
  return args.startsWith("{") && /^\{\s*\}\s*$/.test(args);
}

function isBlankObject(args: string): boolean {
  return args.trim() === "" || isEmptyObject(args);
}

/** T3: servers send a name in pieces, again with each piece, or as far as it has come. */
function joinedName(name: string, piece: string): string {
  return piece.startsWith(name) ? piece : name + piece;
}

function isWhole(call: OpenCall): boolean {
  return call.closes && isJsonObject(call.args);
}
