/**
 * Recorded answers with members put wrong at random: whatever a server sends, a decoder ends once, in a finish or an error,
 * says nothing that the contract cannot carry, and says the same however the bytes were cut. Needs the test data folder.
 */
import { create, toBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  StreamCompletionResponseSchema,
  type CompletionDelta,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { createDialect } from "../../src/llm/providers/dialects.js";
import { foldDeltas } from "../support/completion-result.js";
import { seeded } from "../support/cut-bodies.js";
import { decoderOptions } from "../support/decoder-options.js";
import { corpusCases, testDataDir, type CorpusCase } from "../support/test-data.js";

const dir = testDataDir();
const ROUNDS = 150;
/** Of events that are changed. */
const SHARE = 0.2;

const DIALECT_OF: Readonly<Record<string, string>> = {
  ...{ "openai-chat": "openai-chat", "openai-responses": "openai-responses" },
  ...{ "anthropic-messages": "anthropic-messages", "gemini-stream": "gemini" },
  ...{ "ollama-chat": "ollama-chat", "cohere-v2-chat": "cohere-v2" },
};

const JUNK: readonly unknown[] = [
  ...[null, true, 0, -1, 1.5, 1e300, 4_294_967_295, "", "x", "\ud83d", "constructor", "__proto__"],
  ...[[], {}, [null], [[]], [{}], ["a"], { type: "text" }],
];

type Random = () => number;

const pick = <T>(items: readonly T[], random: Random): T => items[Math.floor(random() * items.length)]!;

/** The value with one member, anywhere in it, replaced or left out. */
function mutated(value: unknown, random: Random): unknown {
  const keys = typeof value === "object" && value !== null ? Object.keys(value) : [];
  if (keys.length === 0 || random() < 0.15) return pick(JUNK, random);
  const key = pick(keys, random);
  const copy = (Array.isArray(value) ? [...(value as unknown[])] : { ...(value as object) }) as Record<
    string,
    unknown
  >;
  if (random() < 0.1) delete copy[key];
  else copy[key] = mutated(copy[key], random);
  return copy;
}

function mutatedLine(line: string, random: Random): string {
  const at = line.indexOf("{");
  if (at === -1 || random() > SHARE) return line;
  return line.slice(0, at) + JSON.stringify(mutated(JSON.parse(line.slice(at)), random));
}

/** The body with some of its events changed. */
function hostile({ body, stream }: CorpusCase, random: Random): Buffer {
  const text = Buffer.from(body).toString("utf8");
  if (!stream) return Buffer.from(JSON.stringify(mutated(JSON.parse(text), random)));
  return Buffer.from(text.replace(/[^\r\n]+/g, (line) => mutatedLine(line, random)));
}

function decode(api: string, contentType: string, pieces: readonly Uint8Array[]): CompletionDelta[] {
  const dialect = createDialect(DIALECT_OF[api] ?? "", { baseUrl: "https://upstream.test", quirks: {} });
  const decoder = dialect.createDecoder(decoderOptions({ contentType }));
  return [...pieces.flatMap((piece) => decoder.push(piece)), ...decoder.end()];
}

function isEnd({ delta }: CompletionDelta): boolean {
  return delta.case === "finish" || delta.case === "error";
}

describe.skipIf(!dir)("hostile events", () => {
  const bodies = (dir ? corpusCases(dir) : []).filter(
    ({ body, name }) => body.length < 30_000 && !name.includes("derived-truncated"),
  );
  for (const api of Object.keys(DIALECT_OF)) {
    test(api, () => {
      const random = seeded(7);
      const own = bodies.filter((each) => each.api === api);
      for (let round = 0; round < ROUNDS; round++) {
        const recorded = pick(own, random);
        const body = hostile(recorded, random);
        const where = `round ${round} of ${recorded.name}`;
        const deltas = decode(api, recorded.contentType, [body]);
        expect([deltas.filter(isEnd).length, isEnd(deltas.at(-1)!)], where).toEqual([1, true]);
        toBinary(StreamCompletionResponseSchema, create(StreamCompletionResponseSchema, { deltas }));
        const cut = Math.floor(random() * body.length);
        const again = decode(api, recorded.contentType, [body.subarray(0, cut), body.subarray(cut)]);
        expect(foldDeltas(again), `${where}, cut at ${cut}`).toEqual(foldDeltas(deltas));
      }
    });
  }
});
