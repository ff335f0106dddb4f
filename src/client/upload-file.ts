import type { Client } from "@connectrpc/connect";
import type { FileService } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import type { File as StoredFile } from "../../gen/turnwire/chat/v1/types_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { clientError } from "./errors.js";
import { newRequestId } from "./request-id.js";
import { retryCall, type RetryCallOptions } from "./retry-call.js";

/** What is uploaded: a File of a page, or anything that gives its bytes in pieces. */
export interface UploadSource {
  readonly name: string;
  readonly type: string;
  readonly size: number;
  slice(start: number, end: number): { arrayBuffer(): Promise<ArrayBuffer> };
}

export interface UploadOptions extends RetryCallOptions {
  /** Told after each part: bytes that are stored. */
  readonly onProgress?: (bytes: number) => void;
}

/** The most that the service takes in one part. */
const PART_BYTES = 1024 * 1024;

/** Uploads a file in parts, one after the other; a part that is lost is sent again by itself. */
export async function uploadFile(
  files: Pick<Client<typeof FileService>, "uploadFile">,
  source: UploadSource,
  { onProgress, ...retry }: UploadOptions = {},
): Promise<StoredFile> {
  const uploadId = newRequestId();
  for (let offset = 0; ; offset += PART_BYTES) {
    const end = Math.min(offset + PART_BYTES, source.size);
    const last = end === source.size;
    const data = new Uint8Array(await source.slice(offset, end).arrayBuffer());
    const first = offset === 0 ? { name: source.name, mediaType: source.type } : {};
    const part = { ...first, uploadId, data, offset: String(offset), last };
    const { file } = await retryCall(() => files.uploadFile(part, { signal: retry.signal }), retry);
    onProgress?.(end);
    if (!last) continue;
    if (!file) throw clientError(ErrorCode.INTERNAL, "the upload ended without a file");
    return file;
  }
}
