/** Output items of tools that the server ran: its searches, its code interpreter, its images, the MCP servers it asked. */
import { create } from "@bufbuild/protobuf";
import {
  MediaPartSchema,
  type CompletionDelta,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { objectOf, stringOf, uint32Of, type Json } from "../../json.js";
import { mediaDelta } from "../../deltas.js";
import type { BlockWriter } from "../shared/block-writer.js";
import { pushState } from "../shared/provider-state.js";
import { serverToolDelta } from "../shared/server-tools.js";
import { PROVIDER_STATE, type OutputItem } from "./item.js";

/** Base64 of one image: a message between services holds it whole. */
const MAX_IMAGE_CHARS = 4 * 1024 * 1024;

/** Ids of calls that wait for an item with their output, by the tool. */
export type ServerCalls = Map<string, string>;

/** What of the answer these items need. */
export interface ServerParts {
  readonly writer: BlockWriter;
  readonly serverCalls: ServerCalls;
  /** Says that something was left out. */
  readonly warn: (message: string, out: CompletionDelta[]) => void;
}

interface ServerKind {
  readonly name: (item: Json) => string;
  readonly args: (item: Json) => unknown;
  /** undefined = the result is an item of its own. */
  readonly result: ((item: Json) => unknown) | undefined;
}

const CALLS: ReadonlyMap<string, ServerKind> = new Map<string, ServerKind>([
  ["web_search_call", kind("web_search", (item) => item["arguments"] ?? item["action"], statusOf)],
  ["file_search_call", kind("file_search", pick("queries"), pick("results"))],
  ["code_interpreter_call", kind("code_interpreter", pick("code", "container_id"), pick("outputs"))],
  ["image_generation_call", kind("image_generation", () => ({}), statusOf)],
  ["tool_search_call", kind("tool_search", (item) => item["arguments"], undefined)],
  [
    "mcp_call",
    {
      name: (item) => stringOf(item["name"]),
      args: (item) => item["arguments"],
      result: (item) => item["error"] ?? item["output"] ?? null,
    },
  ],
]);

/** Items that hold the output of an earlier call. */
const OUTPUTS: ReadonlyMap<string, { readonly name: string; readonly result: (item: Json) => unknown }> =
  new Map([
    ["tool_search_output", { name: "tool_search", result: pick("tools") }],
    ["shell_call_output", { name: "shell", result: pick("output") }],
  ]);

/** The item; undefined = it is no tool of the server. */
export function serverItem(item: Json, parts: ServerParts, out: CompletionDelta[]): OutputItem | undefined {
  const type = stringOf(item["type"]);
  const call = CALLS.get(type);
  if (call) return new ServerCall(item, call, parts, out);
  const output = OUTPUTS.get(type);
  if (!output) return undefined;
  return {
    event: () => undefined,
    done(whole, done) {
      const callId =
        stringOf(whole["call_id"]) || (parts.serverCalls.get(output.name) ?? stringOf(whole["id"]));
      done.push(serverToolDelta({ callId, name: output.name, result: output.result(whole), done: true }));
      keep(whole, parts.writer, done);
    },
  };
}

class ServerCall implements OutputItem {
  readonly #kind: ServerKind;
  readonly #callId: string;
  readonly #name: string;
  readonly #parts: ServerParts;

  constructor(item: Json, serverKind: ServerKind, parts: ServerParts, out: CompletionDelta[]) {
    this.#kind = serverKind;
    this.#parts = parts;
    this.#callId = stringOf(item["id"]);
    this.#name = serverKind.name(item);
    parts.serverCalls.set(this.#name, this.#callId);
    parts.writer.noteOutput();
    out.push(serverToolDelta({ callId: this.#callId, name: this.#name }));
  }

  /** A picture on its way is a result that is not the last. */
  event(type: string, value: Json, out: CompletionDelta[]): void {
    if (type !== "response.image_generation_call.partial_image") return;
    const result = { partial_image: uint32Of(value["partial_image_index"]) ?? 0 };
    out.push(serverToolDelta({ callId: this.#callId, name: this.#name, result }));
  }

  done(item: Json, out: CompletionDelta[]): void {
    const about = { callId: this.#callId, name: this.#name };
    const args = this.#kind.args(item);
    const argumentsJson = typeof args === "string" ? args : JSON.stringify(args ?? {});
    out.push(serverToolDelta({ ...about, argumentsJson }));
    if (this.#kind.result)
      out.push(serverToolDelta({ ...about, result: this.#kind.result(item), done: true }));
    if (item["type"] === "image_generation_call") pushImage(item, this.#parts, out);
    else keep(item, this.#parts.writer, out);
  }
}

/** What goes back as it is. */
function keep(item: Json, writer: BlockWriter, out: CompletionDelta[]): void {
  pushState(PROVIDER_STATE, item, writer.nextIndex, out);
}

function pushImage(item: Json, { warn }: ServerParts, out: CompletionDelta[]): void {
  const base64 = stringOf(item["result"]);
  if (base64 === "") return;
  if (base64.length > MAX_IMAGE_CHARS) {
    warn("the model made an image that is too large, it was left out", out);
    return;
  }
  const mediaType = `image/${stringOf(item["output_format"]) || "png"}`;
  const data = Buffer.from(base64, "base64");
  out.push(mediaDelta(create(MediaPartSchema, { mediaType, source: { case: "data", value: data } })));
}

function kind(name: string, args: ServerKind["args"], result: ServerKind["result"]): ServerKind {
  return { name: () => name, args, result };
}

/** These members of the item, as far as it has them. */
function pick(...names: readonly string[]): (item: Json) => unknown {
  return (item) => Object.fromEntries(names.map((name) => [name, item[name] ?? undefined]));
}

function statusOf(item: Json): unknown {
  return { status: item["status"], ...objectOf(item["action"]) };
}
