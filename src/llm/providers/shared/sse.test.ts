import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { TakeEvent } from "./event-parser.js";
import { SseParser } from "./sse.js";

interface SseEvent {
  readonly event: string;
  readonly data: string;
  readonly unterminated: boolean;
}

function collected(): { readonly events: SseEvent[]; readonly take: TakeEvent } {
  const events: SseEvent[] = [];
  return { events, take: (event, data, whole) => void events.push({ event, data, unterminated: !whole }) };
}

function parse(pieces: readonly (string | Uint8Array)[], maxEventChars = 1_000_000): SseEvent[] {
  const parser = new SseParser(maxEventChars);
  const { events, take } = collected();
  for (const piece of pieces) parser.push(typeof piece === "string" ? Buffer.from(piece) : piece, take);
  parser.end(take);
  return events;
}

const data = (text: string, event = "", unterminated = false): SseEvent => ({
  event,
  data: text,
  unterminated,
});

const TABLE: readonly {
  readonly name: string;
  readonly body: string;
  readonly events: readonly SseEvent[];
}[] = [
  { name: "LF", body: "data: a\n\ndata: b\n\n", events: [data("a"), data("b")] },
  { name: "CRLF", body: "data: a\r\n\r\ndata: b\r\n\r\n", events: [data("a"), data("b")] },
  { name: "CR", body: "data: a\r\rdata: b\r\r", events: [data("a"), data("b")] },
  {
    name: "mixed line ends",
    body: "data: a\r\n\ndata: b\n\r\ndata: c\r\n\r",
    events: [data("a"), data("b"), data("c")],
  },
  { name: "byte order mark", body: "\ufeffdata: a\n\n", events: [data("a")] },
  { name: "no space, two spaces", body: "data:a\n\ndata:  b\n\n", events: [data("a"), data(" b")] },
  { name: "comments", body: ": hello\n\n:\ndata: a\n: x\n\n", events: [data("a")] },
  { name: "several data lines", body: "data: a\ndata:\ndata: b\n\n", events: [data("a\n\nb")] },
  { name: "bare data field", body: "data\n\n", events: [data("")] },
  {
    name: "event name",
    body: "event: error\ndata: a\n\ndata: b\n\n",
    events: [data("a", "error"), data("b")],
  },
  { name: "event without data", body: "event: ping\n\ndata: a\n\n", events: [data("a")] },
  {
    name: "id, retry, unknown fields",
    body: "id: 1\nretry: 5\nfoo: bar\nnocolon\ndata: a\n\n",
    events: [data("a")],
  },
  {
    name: "no blank line at the end",
    body: "data: a\n\ndata: b\n",
    events: [data("a"), data("b", "", true)],
  },
  { name: "no line end at the end", body: "data: a", events: [data("a", "", true)] },
  {
    name: "more than one byte per character",
    body: "data: \u00e9\u20ac\u{1f30d}\n\n",
    events: [data("\u00e9\u20ac\u{1f30d}")],
  },
  { name: "nothing", body: "", events: [] },
];

describe("sse", () => {
  for (const { name, body, events } of TABLE) {
    test(`${name} - whole, cut in two at every byte, byte by byte`, () => {
      const bytes = Buffer.from(body);
      expect(parse([bytes])).toEqual(events);
      for (let at = 1; at < bytes.length; at++)
        expect(parse([bytes.subarray(0, at), bytes.subarray(at)])).toEqual(events);
      expect(parse([...bytes].map((byte) => Uint8Array.of(byte)))).toEqual(events);
    });
  }

  test("any text, any cut - the same events (S1)", () => {
    const line = fc.constantFrom(
      "data: x",
      "data:",
      "\n",
      "\r",
      "\r\n",
      "event: e",
      ": c",
      "data: \u{1f30d}",
      "\n\n",
    );
    fc.assert(
      fc.property(
        fc.array(line, { maxLength: 30 }),
        fc.array(fc.nat(400), { maxLength: 6 }),
        (lines, cuts) => {
          const bytes = Buffer.from(lines.join(""));
          const edges = [0, ...cuts.filter((cut) => cut < bytes.length).sort((a, b) => a - b), bytes.length];
          const pieces = edges.slice(1).map((edge, at) => bytes.subarray(edges[at], edge));
          expect(parse(pieces)).toEqual(parse([bytes]));
        },
      ),
    );
  });

  test("broken UTF-8 is replaced, never thrown", () => {
    expect(parse([Uint8Array.of(0x64, 0x61, 0x74, 0x61, 0x3a, 0xff, 0x0a, 0x0a)])).toEqual([data("\ufffd")]);
  });

  for (const [name, piece] of [
    ["one endless line", "x".repeat(100)],
    ["endless data lines", "data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n"],
  ] as const) {
    test(`${name} - refused at the limit (S2)`, () => {
      const parser = new SseParser(1000);
      const { events, take } = collected();
      parser.push(Buffer.from(`data: kept\n\n${piece}`), take);
      for (let count = 0; count < 100; count++) parser.push(Buffer.from(piece), take);
      expect(parser.overflowed).toBe(true);
      parser.push(Buffer.from("\n\ndata: late\n\n"), take);
      parser.end(take);
      expect(events).toEqual([data("kept")]);
    });
  }

  test("many small events - no limit on their sum", () => {
    const parser = new SseParser(1000);
    const { events, take } = collected();
    for (let round = 0; round < 1000; round++) parser.push(Buffer.from("data: abcdefgh\n\n"), take);
    expect(events).toHaveLength(1000);
  });
});
