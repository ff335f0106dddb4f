/** Reading a response body: decompressed while it arrives, and never more of it than allowed. */
import { pipeline, type Readable } from "node:stream";
import { constants, createBrotliDecompress, createGunzip, createInflate } from "node:zlib";
import { FetchFailure } from "./fetch-failure.js";

export interface BodyLimits {
  /** Most bytes kept, after decompression. */
  readonly maxBytes: number;
  /** What happens to a longer body: keep its start, or fail. */
  readonly beyond: "cut" | "fail";
}

export interface Body {
  readonly bytes: Buffer;
  readonly truncated: boolean;
}

/**
 * A body that unpacks to more than this many times its size is a bomb, not a page; judged once it is larger than
 * `BOMB_FLOOR_BYTES`. Deflate reaches 1,032; real pages stay below 50.
 */
const MAX_EXPANSION = 200;
const BOMB_FLOOR_BYTES = 1024 * 1024;

/** Reads and decompresses. Destroys `source` when it stops early. */
export async function readBody(source: Readable, contentEncoding: string, limits: BodyLimits): Promise<Body> {
  const decoder = decoderFor(contentEncoding.trim().toLowerCase());
  const content = decoder ? pipeline(source, decoder, () => undefined) : source; // whoever reads `content` sees the failure
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of content as AsyncIterable<Buffer>) {
      const room = limits.maxBytes - size;
      chunks.push(chunk.length > room ? chunk.subarray(0, room) : chunk);
      size += chunk.length;
      if (decoder && size > BOMB_FLOOR_BYTES && size > decoder.bytesWritten * MAX_EXPANSION) {
        throw new FetchFailure("too_large", "the compressed content unpacks to far more than its size");
      }
      if (size > limits.maxBytes) break;
    }
  } catch (error) {
    if (!/^(Z_|ERR_(BROTLI|_ERROR))/.test((error as { code?: string }).code ?? "")) throw error;
    throw new FetchFailure("unreadable", "the compressed content is damaged", { cause: error });
  } finally {
    source.destroy();
  }
  const truncated = size > limits.maxBytes;
  if (truncated && limits.beyond === "fail") {
    throw new FetchFailure(
      "too_large",
      `the content is larger than ${Math.floor(limits.maxBytes / (1024 * 1024))} MiB`,
    );
  }
  return { bytes: Buffer.concat(chunks), truncated };
}

function decoderFor(encoding: string) {
  const options = { finishFlush: constants.Z_SYNC_FLUSH }; // a stream cut at its end still gives what arrived
  switch (encoding) {
    case "":
    case "identity":
      return undefined;
    case "gzip":
    case "x-gzip":
      return createGunzip(options);
    case "deflate":
      return createInflate(options);
    case "br":
      return createBrotliDecompress({ finishFlush: constants.BROTLI_OPERATION_FLUSH });
    default:
      throw new FetchFailure("unreadable", "the server used a content encoding that was not asked for");
  }
}
