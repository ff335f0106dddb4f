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

const KEY = "sk-test-0123456789abcdef";
const OTHER = "zz-second-key-42";

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
  const filter = new SecretFilter([KEY, OTHER]);
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
    const filter = new SecretFilter([KEY]);
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
      const filter = new SecretFilter([KEY]);
      const pieces = [contentDelta(0, KEY.slice(0, at)), between, contentDelta(3, `${KEY.slice(at)}!`)];
      const out = pieces.flatMap((delta) => filter.apply([delta]));
      const content = [...out, ...filter.flush()].filter(({ delta }) => delta.case === "content");
      expect(textOf(content)).toMatch(/^.{0,3}\[key\]!$/);
    }
  });

  test("F3 what waited and was no key stays in its own block", () => {
    const filter = new SecretFilter([KEY]);
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
    expect(new SecretFilter([KEY]).apply([delta])[0]).toBe(delta);
  });

  test("the last piece of a call's arguments holds nothing back", () => {
    const filter = new SecretFilter([KEY]);
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
    const filter = new SecretFilter([KEY]);
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
    const [delta] = new SecretFilter([KEY]).apply([warningDelta(ErrorCode.UPSTREAM_MALFORMED, `bad ${KEY}`)]);
    expect(delta?.delta).toMatchObject({ case: "warning", value: { message: "bad [key]" } });
  });

  test("keys in the details of an error are masked, in the name of a call, and where JSON would escape them", () => {
    const quoted = 'pass"word\\0123';
    const filter = new SecretFilter([KEY, quoted]);
    const error = new TurnError(ErrorCode.UPSTREAM_REJECTED, { message: quoted, details: { said: KEY } });
    const [failed] = filter.apply([errorDelta(error)]);
    expect(failed?.delta).toMatchObject({ value: { message: "[key]", details: { said: "[key]" } } });
    const [call] = filter.apply([toolCallDelta({ blockIndex: 0, callId: "c", name: KEY })]);
    expect(call?.delta).toMatchObject({ value: { name: "[key]" } });
  });
});
