/** What a body is, whatever its server calls it, and where it ends: with a reader that writes down what it is given. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { errorCodeName, TurnError } from "../../../lib/errors.js";
import type { Json } from "../../json.js";
import type { EventReader } from "../dialect.js";
import type { EventParser } from "./event-parser.js";
import { createFramedDecoder, type FramedDecoderSettings } from "./framed-decoder.js";
import { Utf8Decoder } from "./utf8-decoder.js";

/** Writes down its calls; ends at an event `{"end":true}` or at the end mark. */
class Listener implements EventReader {
  readonly heard: string[] = [];
  ended = false;
  finishSeen = false;

  event(name: string, value: Json): void {
    this.heard.push(`${name}${JSON.stringify(value)}`);
    this.ended = value["end"] === true;
  }
  document(value: Json): void {
    this.heard.push(`document ${JSON.stringify(value)}`);
    this.ended = true;
  }
  done(): void {
    this.heard.push("done");
    this.ended = true;
  }
  error(value: unknown): void {
    this.heard.push(`error ${String(value)}`);
    this.ended = true;
  }
  malformed(): void {
    this.heard.push("malformed");
  }
  eof(_out: CompletionDelta[], failure?: TurnError): void {
    this.heard.push(failure ? `failed ${errorCodeName(failure.code)}` : "eof");
    this.ended = true;
  }
}

type Settings = Partial<FramedDecoderSettings>;

function listen(pieces: readonly (string | Uint8Array)[], settings: Settings = {}): string[] {
  const reader = new Listener();
  const decoder = createFramedDecoder({
    ...{ reader, framing: "sse", contentType: "", maxEventBytes: 10_000, maxResponseBytes: 100_000 },
    ...settings,
  });
  for (const piece of pieces) decoder.push(typeof piece === "string" ? Buffer.from(piece) : piece);
  decoder.end();
  expect(decoder.ended).toBe(true);
  expect([decoder.push(Buffer.from('data: {"late":1}\n\n')), decoder.end()]).toEqual([[], []]);
  return reader.heard;
}

const NDJSON: Settings = { framing: "ndjson" };

const TABLE: readonly { name: string; body: string; heard: string[]; settings?: Settings }[] = [
  { name: "nothing", body: "", heard: ["eof"] },
  { name: "blanks", body: "\n \r\n", heard: ["eof"] },
  {
    name: "events",
    body: 'data: {"a":1}\n\nevent: x\ndata: {"b":2}\n\n',
    heard: ['{"a":1}', 'x{"b":2}', "eof"],
  },
  { name: "the end mark", body: "data: [DONE]\n\ndata: {}\n\n", heard: ["done"] },
  {
    name: "an event that ends the answer",
    body: 'data: {"end":true}\n\ndata: {}\n\n',
    heard: ['{"end":true}'],
  },
  { name: "keep-alives", body: "data: null\n\ndata:\n\n: c\n\n", heard: ["eof"] },
  {
    name: "events that are no objects",
    body: "data: 1\n\ndata: [1]\n\ndata: x\n\n",
    heard: ["malformed", "malformed", "malformed", "eof"],
  },
  { name: "an error that is no JSON", body: "event: error\ndata: busy\n\n", heard: ["error busy"] },
  { name: "an error that is a text", body: 'event: error\ndata: "busy"\n\n', heard: ["error busy"] },
  { name: "an event that the end cuts off", body: 'data: {"a":1}\n\ndata: {"b', heard: ['{"a":1}', "eof"] },
  { name: "a whole event without its blank line", body: 'data: {"a":1}', heard: ['{"a":1}', "eof"] },
  {
    name: "events without blank lines",
    body: 'data: {"a":1}\ndata: {"b":2}\n\n',
    heard: ['{"a":1}', '{"b":2}', "eof"],
  },
  { name: "a document", body: ' \n{"a":\n1}', heard: ['document {"a":1}'] },
  { name: "a document after a byte order mark", body: '\ufeff{"a":1}', heard: ['document {"a":1}'] },
  { name: "a document that is cut off", body: '{"a":', heard: ["failed UPSTREAM_TRUNCATED"] },
  { name: "lines where events were due", body: '{"a":1}\n{"b":2}\n', heard: ['{"a":1}', '{"b":2}', "eof"] },
  {
    name: "an array",
    body: '[{"a":"]}"},\n{"b":[{"c":"\\""}]}]',
    heard: ['{"a":"]}"}', '{"b":[{"c":"\\""}]}', "eof"],
  },
  { name: "an array that is cut off", body: '[{"a":1},{"b"', heard: ['{"a":1}', "eof"] },
  { name: "prose", body: "upstream connect error", heard: ["eof"] },
  {
    name: "lines",
    body: '{"a":1}\n\n{"b":2}\r\n{"c":3}',
    heard: ['{"a":1}', '{"b":2}', '{"c":3}', "eof"],
    settings: NDJSON,
  },
  {
    name: "a broken line",
    body: '{"a":1}\n{oops\n{"b":2}\n',
    heard: ['{"a":1}', "malformed", '{"b":2}', "eof"],
    settings: NDJSON,
  },
  { name: "a document over lines", body: '{\n"a":1\n}\n', heard: ['document {"a":1}'], settings: NDJSON },
  {
    name: "a document that says so",
    body: '{"a":1}',
    heard: ['document {"a":1}'],
    settings: { ...NDJSON, contentType: "application/json; charset=utf-8" },
  },
  {
    name: "lines that say they were a document",
    body: '{"a":1}\n{"b":2}\n',
    heard: ['{"a":1}', '{"b":2}', "eof"],
    settings: { ...NDJSON, contentType: "application/json" },
  },
];

describe("framed decoder", () => {
  for (const { name, body, heard, settings } of TABLE) {
    test(`${name} - whole, cut in two at every byte, byte by byte (D1)`, () => {
      const bytes = Buffer.from(body);
      expect(listen([bytes], settings)).toEqual(heard);
      for (let at = 1; at < bytes.length; at++)
        expect(listen([bytes.subarray(0, at), bytes.subarray(at)], settings)).toEqual(heard);
      expect(
        listen(
          [...bytes].map((byte) => Uint8Array.of(byte)),
          settings,
        ),
      ).toEqual(heard);
    });
  }

  test.each([
    ["an event", `data: ${"x".repeat(20_000)}`, {}, "failed UPSTREAM_MALFORMED"],
    ["a line", `{"a":"${"x".repeat(20_000)}`, NDJSON, "failed UPSTREAM_MALFORMED"],
    ["an element", `[{"a":"${"x".repeat(20_000)}`, {}, "failed UPSTREAM_MALFORMED"],
    ["a document", `{"a":"${"x".repeat(20_000)}`, {}, "failed SIZE_LIMIT"],
    ["all of it", 'data: {"a":1}\n\n'.repeat(10_000), {}, "failed SIZE_LIMIT"],
  ] as const)("%s is too large - a typed end, whole and in pieces (D3)", (_, body, settings, end) => {
    expect(listen([body], settings).at(-1)).toBe(end);
    expect(listen(body.match(/[^]{1,1000}/g) ?? [], settings).at(-1)).toBe(end);
  });

  test.each([
    ["blanks", "", "\n", {}],
    ["a document", '{"a":"', "x", {}],
    ["an event", "data: ", "x", {}],
    ["elements", "", "[{},", {}],
  ] as const)("%s byte by byte - in linear time", (_, before, piece, settings) => {
    const pieces = [before, ...Array.from({ length: 100_000 }, () => piece)];
    const limits = { maxEventBytes: 1_000_000, maxResponseBytes: 1_000_000 };
    expect(listen(pieces, { ...settings, ...limits }).length).toBeGreaterThan(0);
  });

  test("a parser of the dialect's own - gets the bytes, and may end the answer", () => {
    const parser: EventParser = {
      overflowed: false,
      push(bytes, take) {
        take("frame", `{"bytes":${bytes.length}}`, true);
        if (bytes.length > 2) throw new TurnError(ErrorCode.UPSTREAM_MALFORMED);
      },
      end: () => undefined,
    };
    const heard = listen([Uint8Array.of(0, 1), Uint8Array.of(0, 1, 2)], { framing: () => parser });
    expect(heard).toEqual(['frame{"bytes":2}', 'frame{"bytes":3}', "failed UPSTREAM_MALFORMED"]);
  });
});

describe("utf-8 in pieces", () => {
  test("any bytes, any cut - what a whole decoding gives", () => {
    const bytes = fc.array(
      fc.oneof(fc.nat(255), fc.constantFrom(0xef, 0xbb, 0xbf, 0xf0, 0x9f, 0x98, 0x80, 0xe2)),
    );
    fc.assert(
      fc.property(bytes, fc.array(fc.nat(20), { maxLength: 8 }), (values, sizes) => {
        const body = Uint8Array.from(values);
        const decoder = new Utf8Decoder();
        let text = "";
        let at = 0;
        for (const size of [...sizes, body.length]) {
          text += decoder.push(body.subarray(at, at + size));
          at += size;
        }
        expect(text + decoder.end()).toBe(new TextDecoder().decode(body));
      }),
      { numRuns: 1_000 },
    );
  });
});
