import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import type { CompletionDelta } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, FinishReason, UsageSchema } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../lib/errors.js";
import {
  contentDelta,
  errorDelta,
  finishDelta,
  reasoningDelta,
  toolCallDelta,
  usageDelta,
  warningDelta,
} from "../deltas.js";
import { SecretFilter } from "./secret-filter.js";
import { SecretMatcher } from "./secret-matcher.js";

const KEY = "sk-test-0123456789abcdef";
const OTHER = "zz-second-key-42";

const filterOf = (secrets: readonly string[]) => new SecretFilter(new SecretMatcher(secrets));

function textOf(deltas: readonly CompletionDelta[]): string {
  return deltas
    .map(({ delta }) =>
      delta.case === "content"
        ? delta.value.text
        : delta.case === "toolCall"
          ? delta.value.argumentsFragment
          : "",
    )
    .join("");
}

function filtered(...pieces: string[]): string {
  const filter = filterOf([KEY, OTHER]);
  const out = pieces.flatMap((text) => filter.apply([contentDelta(0, text)]));
  return textOf([...out, ...filter.flush()]);
}

describe("secret filter", () => {
  test("F1 a key never comes out whole, cut anywhere", () => {
    const text = `you sent ${KEY}, did you?`;
    for (let at = 0; at <= text.length; at++) {
      const out = filtered(text.slice(0, at), text.slice(at));
      expect(out).not.toContain(KEY.slice(4));
      expect(out).toMatch(/^you sent .{0,3}\[key\], did you\?$/);
    }
  });

  test("F1 byte by byte, twice, and several keys", () => {
    const text = `${KEY}${KEY} and ${OTHER} ${KEY}`;
    const out = filtered(...text);
    expect(out).not.toContain(KEY.slice(4));
    expect(out).not.toContain(OTHER.slice(4));
    expect(out.match(/\[key\]/g)).toHaveLength(4);
  });

  test("F2 what only begins like a key waits, then comes out as it is", () => {
    const filter = filterOf([KEY]);
    expect(textOf(filter.apply([contentDelta(0, "see sk-te")]))).toBe("see ");
    expect(textOf(filter.apply([contentDelta(0, "mplate")]))).toBe("sk-template");
    expect(textOf(filter.apply([contentDelta(0, "sk-test")]))).toBe("");
    const rest = filter.apply([finishDelta({ reason: FinishReason.STOP })]);
    expect(rest.map(({ delta }) => delta.case)).toEqual(["content", "finish"]);
    expect(textOf(rest)).toBe("sk-test");
    expect(filter.flush()).toEqual([]);
  });

  test.each([
    ["usage", usageDelta(create(UsageSchema, { outputTokens: 1 }), 1)],
    ["a warning", warningDelta(ErrorCode.UPSTREAM_MALFORMED, "skipped")],
    ["reasoning", reasoningDelta(1, "hm")],
    ["a call", toolCallDelta({ blockIndex: 2, callId: "c", name: "t", argumentsFragment: "{}" })],
    ["an empty text", contentDelta(0, "")],
    ["another block", contentDelta(3, "")],
  ])("F1 %s between the pieces of a key, wherever it is cut", (_, between) => {
    for (let at = 1; at < KEY.length; at++) {
      const filter = filterOf([KEY]);
      const pieces = [contentDelta(0, KEY.slice(0, at)), between, contentDelta(3, `${KEY.slice(at)}!`)];
      const out = pieces.flatMap((delta) => filter.apply([delta]));
      const content = [...out, ...filter.flush()].filter(({ delta }) => delta.case === "content");
      expect(textOf(content)).toMatch(/^.{0,3}\[key\]!$/);
    }
  });

  test("F3 what waited and was no key stays in its own block", () => {
    const filter = filterOf([KEY]);
    const out = [contentDelta(0, "see sk-te"), contentDelta(1, "mplate")].flatMap((delta) =>
      filter.apply([delta]),
    );
    expect(out.map(({ delta }) => delta.value)).toMatchObject([
      { blockIndex: 0, text: "see " },
      { blockIndex: 0, text: "sk-te" },
      { blockIndex: 1, text: "mplate" },
    ]);
  });

  test("F3 what has no key stays the same object", () => {
    const delta = contentDelta(0, "s k - t e s t");
    expect(filterOf([KEY]).apply([delta])[0]).toBe(delta);
  });

  test("the last piece of a call's arguments holds nothing back", () => {
    const filter = filterOf([KEY]);
    const out = [
      ...filter.apply([
        toolCallDelta({ blockIndex: 0, callId: "c", name: "t", argumentsFragment: '{"a":"sk-te' }),
      ]),
      ...filter.apply([
        toolCallDelta({ blockIndex: 0, callId: "c", argumentsFragment: "st-", complete: true }),
      ]),
    ];
    expect(textOf(out)).toBe('{"a":"sk-test-');
    expect(out.at(-1)?.delta).toMatchObject({ value: { complete: true } });
    expect(filter.flush()).toEqual([]);
  });

  test("F1 keys in the id and the name of a call are masked in each of its deltas alike", () => {
    const filter = filterOf([KEY]);
    const ids = { blockIndex: 0, callId: `call-${KEY}` };
    const out = [
      toolCallDelta({ ...ids, name: KEY, argumentsFragment: "{" }),
      toolCallDelta({ ...ids, argumentsFragment: "}" }),
      toolCallDelta({ ...ids, argumentsFragment: "", complete: true }),
      toolCallDelta({ ...ids, argumentsInvalid: true }),
    ].flatMap((delta) => filter.apply([delta]));
    const calls = out.map(({ delta }) => delta.value);
    expect(calls).toMatchObject(["[key]", "", "", ""].map((name) => ({ callId: "call-[key]", name })));
  });

  test("keys in all other deltas are masked", () => {
    const [delta] = filterOf([KEY]).apply([warningDelta(ErrorCode.UPSTREAM_MALFORMED, `bad ${KEY}`)]);
    expect(delta?.delta).toMatchObject({ case: "warning", value: { message: "bad [key]" } });
  });

  test("keys in the details of an error are masked, in the name of a call, and where JSON would escape them", () => {
    const quoted = 'pass"word\\0123';
    const filter = filterOf([KEY, quoted]);
    const error = new TurnError(ErrorCode.UPSTREAM_REJECTED, { message: quoted, details: { said: KEY } });
    const [failed] = filter.apply([errorDelta(error)]);
    expect(failed?.delta).toMatchObject({ value: { message: "[key]", details: { said: "[key]" } } });
    const [call] = filter.apply([toolCallDelta({ blockIndex: 0, callId: "c", name: KEY })]);
    expect(call?.delta).toMatchObject({ value: { name: "[key]" } });
  });
});

const LONG = 'sk-Ab"9\\z+/xYz0123456789QwErTyUiOp';
const FORMS: readonly (readonly [string, string])[] = [
  ["as it is", LONG],
  ["in capitals", LONG.toUpperCase()],
  ["in small letters", LONG.toLowerCase()],
  ["its first half", LONG.slice(0, LONG.length / 2)],
  ["its second half", LONG.slice(LONG.length / 2)],
  ["in a URL", encodeURIComponent(LONG)],
  ["in JSON", JSON.stringify(LONG).slice(1, -1)],
  ["in JSON within JSON", JSON.stringify(JSON.stringify(LONG)).slice(3, -3)],
  ["in base64", Buffer.from(LONG).toString("base64")],
  ["in base64url", Buffer.from(LONG).toString("base64url")],
  ["in base64 after Bearer", Buffer.from(`Bearer ${LONG}`).toString("base64")],
  ["in base64 after a user", Buffer.from(`me:${LONG}`).toString("base64")],
  ["in base64 after a longer user", Buffer.from(`user:${LONG}`).toString("base64")],
  ["in hexadecimal digits", Buffer.from(LONG).toString("hex")],
];

/** So much of a form may be seen: "QmVhcmVyIHNr" is the base64 of "Bearer sk", and three characters are no beginning yet. */
const SHOWN_CHARS = 15;

/** The longest piece of `form` that is in `text`, in any letter case. */
function longestCommon(text: string, form: string): number {
  const [where, what] = [text.toLowerCase(), form.toLowerCase()];
  for (let length = what.length; length > 0; length--)
    for (let at = 0; at + length <= what.length; at++)
      if (where.includes(what.slice(at, at + length))) return length;
  return 0;
}

describe("secret filter - forms", () => {
  test.each(FORMS)("%s, cut anywhere - no more of it than a few characters", (_, form) => {
    for (let at = 0; at <= form.length; at++) {
      const filter = filterOf([LONG]);
      const pieces = [`see ${form.slice(0, at)}`, `${form.slice(at)}, then`];
      const out = [...pieces.flatMap((text) => filter.apply([contentDelta(0, text)])), ...filter.flush()];
      expect(textOf(out)).toContain("[key]");
      expect(textOf(out)).toMatch(/, then$/);
      expect(longestCommon(textOf(out), form)).toBeLessThanOrEqual(SHOWN_CHARS);
    }
  });

  test.each(FORMS)("%s - in ids, names, sources and details, too", (_, form) => {
    const filter = filterOf([LONG]);
    const deltas = [
      toolCallDelta({ blockIndex: 0, callId: `c-${form}`, name: form }),
      warningDelta(ErrorCode.UPSTREAM_MALFORMED, form),
      errorDelta(new TurnError(ErrorCode.UPSTREAM_REJECTED, { message: form, details: { [`x`]: form } })),
    ].flatMap((delta) => filter.apply([delta]));
    const text = JSON.stringify(deltas.map(({ delta }) => delta.value));
    expect(longestCommon(text, form)).toBeLessThanOrEqual(SHOWN_CHARS);
  });

  test("text that has nothing of it comes out as it went in, however it is cut", () => {
    let seed = 7;
    const random = (below: number): number => (seed = (seed * 48_271) % 2_147_483_647) % below;
    const words = [
      "sk-",
      "Ab",
      "the ",
      "sk-Ab",
      "0123",
      "x",
      LONG.slice(0, 9),
      "\n",
      "ünï",
      LONG.slice(5, 15),
    ];
    for (let run = 0; run < 300; run++) {
      const text = Array.from({ length: 30 }, () => words[random(words.length)]).join("|");
      const filter = filterOf([LONG, KEY]);
      const out: CompletionDelta[] = [];
      for (let at = 0; at < text.length;) {
        const size = 1 + random(6);
        out.push(...filter.apply([contentDelta(0, text.slice(at, at + size))]));
        at += size;
      }
      expect(textOf([...out, ...filter.flush()])).toBe(text);
    }
  });

  test("a key over and over, letter by letter - the same as in one piece, and no more is held than a key is long", () => {
    const periodic = "abababababababababababababab";
    const text = `x ${periodic.repeat(50)} y`;
    const whole = filterOf([periodic]);
    const expected = textOf([...whole.apply([contentDelta(0, text)]), ...whole.flush()]);
    const filter = filterOf([periodic]);
    const out = [...text].flatMap((letter) => filter.apply([contentDelta(0, letter)]));
    const shown = textOf([...out, ...filter.flush()]);
    expect(shown).toMatch(/^x (?:aba)?\[key\] y$/);
    expect(expected).toBe("x [key] y");
  });
});
