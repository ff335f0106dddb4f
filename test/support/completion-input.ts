/** Completion inputs in few words, for tests of request builders. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  CompletionInputSchema,
  Role,
  type CompletionInput,
  type ProviderState,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";

type InputInit = Exclude<MessageInitShape<typeof CompletionInputSchema>, CompletionInput>;
type MessageInit = NonNullable<InputInit["messages"]>[number];
type PartInit = Exclude<
  NonNullable<Exclude<MessageInit, { $typeName: string }>["parts"]>[number],
  { $typeName: string }
>;

/** An input with these messages; without any, the user says "x". */
export function completionInput(
  messages: readonly MessageInit[] = [says(Role.USER, text("x"))],
  more: InputInit = {},
): CompletionInput {
  return create(CompletionInputSchema, { modelId: "m", messages: [...messages], ...more });
}

export function says(role: Role, ...parts: PartInit[]): MessageInit {
  return { role, parts };
}

export function text(value: string): PartInit {
  return { part: { case: "text", value } };
}

export function reasoning(value: string): PartInit {
  return { part: { case: "reasoning", value } };
}

export function call(callId: string, name: string, argumentsJson: string): PartInit {
  return { part: { case: "toolCall", value: { callId, name, argumentsJson } } };
}

export function result(callId: string, value: string, isError = false): PartInit {
  return { part: { case: "toolResult", value: { callId, text: value, isError } } };
}

export function state(value: Pick<ProviderState, "provider" | "data">): PartInit {
  return { part: { case: "providerState", value } };
}

/** Media that holds its data, or that lies at an address. */
export function media(mediaType: string, content: Uint8Array | string, name = ""): PartInit {
  const source =
    typeof content === "string"
      ? ({ case: "url", value: content } as const)
      : ({ case: "data", value: content } as const);
  return { part: { case: "media", value: { mediaType, name, source } } };
}
