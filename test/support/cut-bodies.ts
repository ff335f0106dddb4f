/** Bodies decoded in pieces: however a network cuts them, they mean the same. */
import { expect } from "vitest";
import type { StreamDecoder } from "../../src/llm/providers/dialect.js";
import { foldDeltas, type CompletionResult } from "./completion-result.js";

/** Bodies below this size are cut in two at every byte, longer ones at seeded random points. */
export const MAX_BYTES_CUT_EVERYWHERE = 8 * 1024;

/** Largest pieces of the random cuttings. */
const PIECE_BYTES = [7, 61, 1021, 5000];

/** Decodes a body that arrives in these pieces, with the decoder for one response. */
export function decodePieces(decoder: StreamDecoder, pieces: readonly Uint8Array[]): CompletionResult {
  const deltas = pieces.flatMap((piece) => decoder.push(piece));
  deltas.push(...decoder.end());
  return foldDeltas(deltas);
}

/** The body in pieces that end at these offsets. */
export function cutAt(body: Uint8Array, offsets: readonly number[]): Uint8Array[] {
  const edges = [0, ...offsets, body.length];
  return edges.slice(1).map((edge, at) => body.subarray(edges[at], edge));
}

/** Fails for the first cutting that gives another result than the whole body. */
export function expectSameHoweverCut(
  makeDecoder: () => StreamDecoder,
  body: Uint8Array,
  whole: CompletionResult,
): void {
  const wanted = JSON.stringify(whole);
  for (const [name, pieces] of cuttings(body)) {
    const got = decodePieces(makeDecoder(), pieces);
    if (JSON.stringify(got) !== wanted) expect(got, name).toEqual(whole);
  }
}

function* cuttings(body: Uint8Array): Generator<[name: string, pieces: Uint8Array[]]> {
  if (body.length < MAX_BYTES_CUT_EVERYWHERE) {
    for (let at = 1; at < body.length; at++)
      yield [`cut at byte ${at}`, [body.subarray(0, at), body.subarray(at)]];
    return;
  }
  const random = seeded(body.length);
  for (const maxPiece of PIECE_BYTES)
    yield [`pieces of up to ${maxPiece} bytes`, randomCut(body, random, maxPiece)];
}

function randomCut(body: Uint8Array, random: () => number, maxPiece: number): Uint8Array[] {
  const offsets: number[] = [];
  for (let at = 0; at < body.length;) {
    at += 1 + Math.floor(random() * maxPiece);
    if (at < body.length) offsets.push(at);
  }
  return cutAt(body, offsets);
}

/** A small seeded generator: the same cuts in every run. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}
