/**
 * The arguments of one call that Vertex AI streams value by value: each piece names its place by a JSON path.
 * Owns the object that is being put together. Lists only grow at their end and paths are short, so that a few bytes cannot
 * ask for much memory.
 */
import { parseJson, stringOf, type Json } from "../../json.js";

const MAX_PATH_STEPS = 64;

type Container = Record<string, unknown> | unknown[];

export class PartialArguments {
  readonly #root: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
  /** The text that goes on with the next piece, by its path. */
  #openPath = "";
  #broken = false;

  /** Whole arguments, as other servers send them; relays may write them as text. */
  assign(args: unknown): void {
    const members = typeof args === "string" ? parseJson(args) : args;
    if (typeof members !== "object" || members === null || Array.isArray(members)) this.#broken = true;
    else Object.assign(this.#root, members);
  }

  /** Takes one element of `partialArgs`. */
  push(piece: Json): void {
    const path = stringOf(piece["jsonPath"]);
    const steps = parsePath(path);
    const value = valueOf(piece);
    if (!steps || value === undefined || !this.#set(steps, value, path === this.#openPath))
      this.#broken = true;
    this.#openPath = piece["willContinue"] === true ? path : "";
  }

  /** The arguments as JSON; a text that is no JSON object where a piece did not fit. */
  text(): string {
    return this.#broken ? `${JSON.stringify(this.#root)} (incomplete)` : JSON.stringify(this.#root);
  }

  #set(steps: readonly (string | number)[], value: unknown, goesOn: boolean): boolean {
    let container: Container = this.#root;
    for (let at = 0; at < steps.length - 1; at++) {
      const next = childOf(container, steps[at]!, typeof steps[at + 1] === "number");
      if (!next) return false;
      container = next;
    }
    const last = steps[steps.length - 1]!;
    if (!fits(container, last)) return false;
    const present = Reflect.get(container, last) as unknown;
    const whole =
      goesOn && typeof present === "string" && typeof value === "string" ? present + value : value;
    return Reflect.set(container, last, whole);
  }
}

/** The container at this step, made if it is missing. */
function childOf(parent: Container, step: string | number, list: boolean): Container | undefined {
  if (!fits(parent, step)) return undefined;
  const present = Reflect.get(parent, step) as unknown;
  if (present === undefined) {
    const made: Container = list ? [] : (Object.create(null) as Record<string, unknown>);
    Reflect.set(parent, step, made);
    return made;
  }
  return typeof present === "object" && present !== null ? (present as Container) : undefined;
}

/** Lists take an index up to their length, objects a name. */
function fits(container: Container, step: string | number): boolean {
  return Array.isArray(container)
    ? typeof step === "number" && step <= container.length
    : typeof step === "string";
}

function valueOf(piece: Json): unknown {
  if ("stringValue" in piece) return stringOf(piece["stringValue"]);
  if ("nullValue" in piece) return null;
  return piece["numberValue"] ?? piece["boolValue"];
}

/** `$.a[0]["b c"]` as its steps; undefined = no such path. */
function parsePath(path: string): (string | number)[] | undefined {
  if (!path.startsWith("$")) return undefined;
  const steps: (string | number)[] = [];
  const step = /\.([^.[\]]+)|\[(\d+)\]|\[(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')\]/gy;
  step.lastIndex = 1;
  while (step.lastIndex < path.length) {
    const match = step.exec(path);
    if (!match || steps.length >= MAX_PATH_STEPS) return undefined;
    const [, name, index, double, single] = match;
    const quoted = (double ?? single)?.replace(/\\(.)/g, "$1");
    steps.push(index !== undefined ? Number(index) : (name ?? quoted ?? ""));
  }
  return steps.length === 0 || typeof steps[0] === "number" ? undefined : steps;
}
