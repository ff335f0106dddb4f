/** What a server of the OpenAI chat dialect may do differently: the shape of the data in `vendors.ts`. */
import type { Json } from "../../json.js";

/** Members that an effort adds to the request; undefined = the model does not take it. */
export interface EffortMembers {
  readonly off?: Json;
  readonly low?: Json;
  readonly medium?: Json;
  readonly high?: Json;
}

/** What a tool choice may be beside "auto"; `any` is what some call `required`. */
export type ToolChoiceName = "none" | "required" | "any" | "one";

/** Kinds of media that a message may hold beside images. */
export type MediaKind = "image" | "audio" | "file";

export interface ChatQuirks {
  /** Path of the call; `{model}` stands for the model's name, `{apiVersion}` for that quirk. */
  readonly path: string;
  readonly apiVersion: string;
  /** Path of the model list; "" = there is none. */
  readonly modelsPath: string;
  readonly embeddingsPath: string;
  /** The header that carries the key; `authorization` carries it as a bearer token. */
  readonly keyHeader: string;
  /** The member that limits the answer. */
  readonly maxTokensField: string;
  readonly seedField: string;
  /** Whether `stream_options.include_usage` may be sent. */
  readonly streamUsage: boolean;
  /** Most texts at which the model stops. */
  readonly maxStops: number;
  readonly toolChoices: readonly ToolChoiceName[];
  /** Formats of the answer that it takes. */
  readonly formats: readonly ("object" | "schema")[];
  readonly media: readonly MediaKind[];
  readonly efforts: EffortMembers;
  /** Effort `off` is also sent to a model of which is not known whether it reasons. */
  readonly offByDefault: boolean;
  /** The member of an assistant message in which earlier reasoning goes back; "" = it does not. */
  readonly reasoningField: string;
  /** Marks where the provider's prompt cache may end, where that is asked for. */
  readonly cacheMarks: boolean;
  /** The form of call ids it takes: `nine` letters or digits. */
  readonly callIds: "any" | "nine";
  /** A message of nothing but calls has `null` as its content; false = an empty text. */
  readonly nullContent: boolean;
  /** A user may speak right after a tool. */
  readonly userAfterTool: boolean;
  /** Parameters it does not take, by their names in `Sampling` and `CompletionInput`. */
  readonly drops: readonly string[];
  /** Members that each request has. */
  readonly extra: Json;
}
