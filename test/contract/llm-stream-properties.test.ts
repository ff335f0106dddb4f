/**
 * What must hold for every stream of every dialect: answers made at random, written as one server or another writes them, cut
 * anywhere, then broken in every way.
 */
import { create, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  StreamCompletionResponseSchema,
  type CompletionDelta,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { createDialect } from "../../src/llm/providers/dialects.js";
import { isJsonObject } from "../../src/llm/json.js";
import { ANSWER_WRITERS, type Answer, type AnswerBlock } from "../support/answer-writers.js";
import { foldDeltas, type CompletionResult } from "../support/completion-result.js";
import { seeded } from "../support/cut-bodies.js";
import { decoderOptions } from "../support/decoder-options.js";

/** The same answers in every run. */
const RUNS = { numRuns: 120, seed: 7 };

const anyText = fc.oneof(
  fc.string({ minLength: 1, maxLength: 20, unit: "binary" }),
  fc.constantFrom("\n", " ", "data: x\n\n", "[DONE]", "😀é\u2028", '{"error":1}', "<think>"),
);

const anyArgs = fc.dictionary(
  fc.string({ minLength: 1, maxLength: 5 }),
  fc.oneof(anyText, fc.integer(), fc.constant(null), fc.constant({}), fc.array(anyText, { maxLength: 2 })),
  { maxKeys: 3, noNullPrototype: true },
);

const anyBlock: fc.Arbitrary<AnswerBlock> = fc.oneof(
  fc.record({ kind: fc.constantFrom("text" as const, "reasoning" as const), text: anyText }),
  fc.record({
    kind: fc.constant("call" as const),
    name: fc.stringMatching(/^[a-z][a-z_]{0,9}$/),
    args: anyArgs,
  }),
);

const anyAnswer: fc.Arbitrary<Answer> = fc
  .record({
    blocks: fc.array(anyBlock, { minLength: 1, maxLength: 6 }),
    end: fc.constantFrom("stop" as const, "length" as const),
    usage: fc.record({ input: fc.integer({ min: 1, max: 1e6 }), output: fc.integer({ min: 1, max: 1e6 }) }),
  })
  .filter(({ blocks, end }) => end === "stop" || !lacksArguments(blocks));

/** The last call has none: where the length limit ends the answer, they may have been cut off. */
function lacksArguments(blocks: readonly AnswerBlock[]): boolean {
  const last = blocks.findLast((block) => block.kind === "call");
  return last !== undefined && Object.keys(last.args).length === 0;
}

/** An answer, the seed of its writing, and places to cut. */
const anyStream = fc.record({
  answer: anyAnswer,
  seed: fc.nat(),
  cuts: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 6 }),
});

type Mutation = (events: readonly Buffer[], at: number) => Buffer[];

const MUTATIONS: Readonly<Record<string, Mutation>> = {
  dropped: (events, at) => events.filter((_, each) => each !== at),
  repeated: (events, at) => [...events.slice(0, at + 1), ...events.slice(at)],
  swapped: (events, at) => [
    ...events.slice(0, at),
    ...events.slice(at, at + 2).reverse(),
    ...events.slice(at + 2),
  ],
  shortened: (events, at) =>
    events.map((event, each) => (each === at ? event.subarray(0, event.length >> 1) : event)),
  garbled: (events, at) => events.map((event, each) => (each === at ? garbled(event) : event)),
};

function garbled(event: Buffer): Buffer {
  const copy = Buffer.from(event);
  const at = copy.length >> 1;
  if (copy.length > 0) copy.writeUInt8(copy.readUInt8(at) ^ 0x15, at);
  return copy;
}

function decode(api: string, body: Buffer, cuts: readonly number[]): CompletionDelta[] {
  const decoder = createDialect(api, { baseUrl: "https://upstream.test", quirks: {} }).createDecoder(
    decoderOptions(),
  );
  const offsets = [0, ...cuts.map((cut) => Math.floor(cut * body.length)).sort((x, y) => x - y), body.length];
  const deltas = offsets.slice(1).flatMap((to, at) => decoder.push(body.subarray(offsets[at], to)));
  return [...deltas, ...decoder.end()];
}

/** What the answer must come out as; ids are the server's own matter. */
function meaningOf({ blocks, end, usage }: Answer): object {
  const calls = blocks.filter((block) => block.kind === "call");
  const texts = (kind: string): string =>
    blocks.map((block) => (block.kind === kind && block.kind !== "call" ? block.text : "")).join("");
  return {
    text: texts("text"),
    reasoning: texts("reasoning"),
    calls: calls.map(({ name, args }) => ({ name, args, complete: true, invalid: false })),
    finish: end === "stop" && calls.length > 0 ? "tool-calls" : end,
    usage,
    ...{ error: undefined, warnings: [], refusal: "", distinctIds: calls.length },
  };
}

function meaningIn(got: CompletionResult): object {
  const { text, reasoning, toolCalls, finish, usage, error, warnings, refusal } = got;
  return {
    ...{ text, reasoning, finish, error, warnings, refusal },
    usage: usage && { input: usage.input, output: usage.output },
    calls: toolCalls.map(({ name, args, complete, invalid }) => ({
      name,
      args: parsed(args),
      complete,
      invalid,
    })),
    distinctIds: new Set(toolCalls.map(({ id }) => id)).size,
  };
}

function parsed(args: string): unknown {
  return isJsonObject(args) ? (JSON.parse(args) as unknown) : args;
}

/** Holds for any stream: one end, last; deltas that can be sent; no complete call that is none. */
function expectSound(deltas: readonly CompletionDelta[]): CompletionResult {
  const ends = deltas.filter(({ delta }) => delta.case === "finish" || delta.case === "error");
  expect([ends.length, ends[0] === deltas.at(-1)]).toEqual([1, true]);
  toBinary(StreamCompletionResponseSchema, create(StreamCompletionResponseSchema, { deltas: [...deltas] }));
  const got = foldDeltas(deltas);
  for (const { name, args, complete } of got.toolCalls)
    if (complete) expect([name !== "", isJsonObject(args)]).toEqual([true, true]);
  return got;
}

for (const [api, write] of Object.entries(ANSWER_WRITERS)) {
  describe(`any stream - ${api}`, () => {
    test("means what the server said, however it was written and cut", () => {
      fc.assert(
        fc.property(anyStream, ({ answer, seed, cuts }) => {
          const body = Buffer.concat(write(answer, seeded(seed)).events);
          expect(meaningIn(expectSound(decode(api, body, cuts)))).toEqual(meaningOf(answer));
        }),
        RUNS,
      );
    });

    test("broken off before its end, it is an error, and no call is complete that the server did not call so", () => {
      fc.assert(
        fc.property(
          anyStream,
          fc.double({ min: 0, max: 1, noNaN: true }),
          ({ answer, seed, cuts }, where) => {
            const { events, endsAt } = write(answer, seeded(seed));
            const whole = Buffer.concat(events.slice(0, endsAt));
            const got = expectSound(decode(api, whole.subarray(0, Math.floor(where * whole.length)), cuts));
            expect([got.finish, got.error?.code]).toEqual([undefined, "UPSTREAM_TRUNCATED"]);
            const { text, reasoning } = meaningOf(answer) as CompletionResult;
            expect([isBeginning(got.text, text), isBeginning(got.reasoning, reasoning)]).toEqual([
              true,
              true,
            ]);
            if (api !== "openai-responses")
              expect(got.toolCalls.some(({ complete }) => complete)).toBe(false);
          },
        ),
        RUNS,
      );
    });

    test("with an event dropped, repeated, swapped, shortened or garbled, it ends once and soundly", () => {
      fc.assert(
        fc.property(
          anyStream,
          fc.constantFrom(...Object.keys(MUTATIONS)),
          fc.nat(),
          ({ answer, seed, cuts }, name, n) => {
            const { events, endsAt } = write(answer, seeded(seed));
            const body = Buffer.concat(MUTATIONS[name]!(events, n % events.length));
            const deltas = decode(api, body, cuts);
            expectSound(deltas);
            expect(foldDeltas(decode(api, body, []))).toEqual(foldDeltas(deltas));
            const ending = MUTATIONS[name]!(events.slice(0, endsAt), endsAt === 0 ? 0 : n % endsAt);
            expect(expectSound(decode(api, Buffer.concat(ending), cuts)).finish).toBeUndefined();
          },
        ),
        RUNS,
      );
    });
  });
}

/** What was kept of a text that broke off; half a character at its end is a replacement. */
function isBeginning(got: string, whole: string): boolean {
  return whole.startsWith(got.replace(/\ufffd$/, ""));
}
