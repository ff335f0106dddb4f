/** Bodies that a server compressed although it was asked not to. */
import { pipeline, type Readable } from "node:stream";
import { constants, createBrotliDecompress, createUnzip } from "node:zlib";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../lib/errors.js";
import type { UpstreamResponse } from "./upstream-client.js";

/** What of a response tells how to read its body. */
export type EncodedResponse = Pick<UpstreamResponse, "headers" | "body">;

/**
 * The body as it was before its server compressed it; the body itself if it did not. What came before a broken end is kept.
 * Throws UPSTREAM_MALFORMED for an encoding that nobody asked for and we cannot undo.
 */
export function decodedBody({ headers, body }: EncodedResponse): Readable {
  const encodings = String(headers["content-encoding"] ?? "")
    .toLowerCase()
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "" && name !== "identity");
  return encodings.reduceRight<Readable>((encoded, name) => {
    const decoder = DECODERS.get(name);
    if (!decoder) throw unknownEncoding(body);
    return pipeline(encoded, decoder(), () => undefined); // its reader learns of failures
  }, body);
}

/** A body that breaks off ends where it does: whether its answer is whole is not the encoding's matter. */
const unzip = (): ReturnType<typeof createUnzip> => createUnzip({ finishFlush: constants.Z_SYNC_FLUSH });
const unbrotli = (): ReturnType<typeof createBrotliDecompress> =>
  createBrotliDecompress({ finishFlush: constants.BROTLI_OPERATION_FLUSH });

const DECODERS: ReadonlyMap<string, typeof unzip | typeof unbrotli> = new Map([
  ["gzip", unzip],
  ["x-gzip", unzip],
  ["deflate", unzip],
  ["br", unbrotli],
]);

function unknownEncoding(body: Readable): TurnError {
  body.on("error", () => undefined).destroy(); // nobody reads it
  const message = "the model provider compressed its answer in a way that is not known";
  return new TurnError(ErrorCode.UPSTREAM_MALFORMED, { message });
}
