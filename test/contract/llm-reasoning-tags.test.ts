/** Reasoning tags in the text of an answer: the case table of the test data, through the decoder. */
import { describe, expect, test } from "vitest";
import { createDialect } from "../../src/llm/providers/dialects.js";
import { DEFAULT_REASONING_TAGS } from "../../src/llm/providers/shared/reasoning-tags.js";
import type { CompletionResult } from "../support/completion-result.js";
import { decodePieces } from "../support/cut-bodies.js";
import { decoderOptions } from "../support/decoder-options.js";
import { readCases, testDataDir } from "../support/test-data.js";

const dir = testDataDir();

type CaseDelta =
  string | { readonly reasoning?: string; readonly content?: string; readonly boundary?: string };

interface TagCase {
  readonly id: string;
  readonly options: { readonly code_interpreter?: boolean };
  readonly deltas: readonly CaseDelta[];
  readonly expected: {
    readonly reasoning: string;
    readonly answer: string;
    readonly reasoning_complete?: boolean;
  };
}

const cases = dir ? (readCases(dir, "tag_detection") as { readonly cases: readonly TagCase[] }).cases : [];
const dialect = createDialect("openai-chat", { baseUrl: "https://upstream.test/v1", quirks: {} });

/** One answer as a server would stream it. */
function decode(deltas: readonly CaseDelta[], reasoningOpen: boolean): CompletionResult {
  const events = deltas.map((delta) => {
    const { reasoning, content } =
      typeof delta === "string" ? { reasoning: undefined, content: delta } : delta;
    return { choices: [{ index: 0, delta: { reasoning_content: reasoning, content } }] };
  });
  const end = { choices: [{ index: 0, delta: {}, finish_reason: "stop" }] };
  const body = [...events, end].map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
  const options = decoderOptions({ reasoningTags: DEFAULT_REASONING_TAGS, reasoningOpen });
  return decodePieces(dialect.createDecoder(options), [Buffer.from(body)]);
}

/** The answers of a turn whose rounds are parted by boundaries; each is told how the one before it ended. */
function decodeRounds(
  deltas: readonly CaseDelta[],
): Pick<CompletionResult, "text" | "reasoning" | "reasoningOpen"> {
  const rounds: CaseDelta[][] = [[]];
  for (const delta of deltas) {
    if (typeof delta === "object" && delta.boundary !== undefined) rounds.push([]);
    else rounds.at(-1)?.push(delta);
  }
  let whole = { text: "", reasoning: "", reasoningOpen: false };
  for (const round of rounds) {
    const { text, reasoning, reasoningOpen } = decode(round, whole.reasoningOpen);
    whole = { text: whole.text + text, reasoning: whole.reasoning + reasoning, reasoningOpen };
  }
  return whole;
}

function charByChar(deltas: readonly CaseDelta[]): CaseDelta[] {
  return deltas.flatMap((delta): CaseDelta[] => (typeof delta === "string" ? [...delta] : [delta]));
}

describe.skipIf(!dir)("reasoning tags", () => {
  // Code that runs is the tools' matter: its element stays text here.
  for (const { id, deltas, expected } of cases.filter(({ options }) => !options.code_interpreter)) {
    test(id, () => {
      const want = {
        text: expected.answer,
        reasoning: expected.reasoning,
        reasoningOpen: expected.reasoning_complete === false,
      };
      expect(decodeRounds(deltas)).toEqual(want);
      expect(decodeRounds(charByChar(deltas))).toEqual(want);
    });
  }
});
