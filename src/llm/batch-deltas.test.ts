import { create, toBinary } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import {
  ProviderStateSchema,
  StreamCompletionResponseSchema,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { batchDeltas, MAX_RESPONSE_BYTES } from "./batch-deltas.js";
import {
  contentDelta,
  modelSelectedDelta,
  providerStateDelta,
  reasoningDelta,
  refusalDelta,
  toolCallDelta,
} from "./deltas.js";

test("small deltas stay together, in one message, untouched", () => {
  const deltas = [modelSelectedDelta("m"), contentDelta(0, "a"), contentDelta(0, "b")];
  expect(batchDeltas(deltas).map((batch) => batch.deltas)).toEqual([deltas]);
  expect(batchDeltas([])).toEqual([]);
});

test("large texts are cut between code points; no message is larger than the limit", () => {
  const text = "\u{1f30d}\u20acx".repeat(40_000);
  const call = { blockIndex: 3, callId: "c", name: "f", argumentsFragment: text, complete: true };
  const batches = batchDeltas([
    contentDelta(1, text),
    reasoningDelta(2, text, { summary: true }),
    refusalDelta(text),
    toolCallDelta(call),
  ]);
  for (const batch of batches)
    expect(toBinary(StreamCompletionResponseSchema, batch).length).toBeLessThanOrEqual(MAX_RESPONSE_BYTES);
  const deltas = batches.flatMap((batch) => batch.deltas.map(({ delta }) => delta));
  const join = (kind: string) =>
    deltas
      .map((delta) =>
        delta.case !== kind
          ? ""
          : delta.case === "refusal"
            ? delta.value
            : delta.case === "toolCall"
              ? delta.value.argumentsFragment
              : "text" in (delta.value as object)
                ? (delta.value as { text: string }).text
                : "",
      )
      .join("");
  for (const kind of ["content", "reasoning", "refusal", "toolCall"]) expect(join(kind), kind).toBe(text);
  const calls = deltas.flatMap((delta) => (delta.case === "toolCall" ? [delta.value] : []));
  expect(calls.map(({ name }) => name).filter(Boolean)).toEqual(["f"]);
  expect(calls.map(({ complete }) => complete)).toEqual(calls.map((_, at) => at === calls.length - 1));
  expect(deltas.every((delta) => delta.case !== "reasoning" || delta.value.summary)).toBe(true);
});

test("payloads that cannot be cut fill a message; a large one is a message of its own", () => {
  const state = (bytes: number) =>
    providerStateDelta(create(ProviderStateSchema, { provider: "p", data: new Uint8Array(bytes) }));
  const deltas = [contentDelta(0, "a"), state(40_000), state(40_000), state(150_000), contentDelta(0, "b")];
  expect(batchDeltas(deltas).map((batch) => batch.deltas.length)).toEqual([2, 1, 1, 1]);
});
