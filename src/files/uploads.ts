/** Uploads: what their limits are, and what a refusal says. */
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import type { Principal } from "../lib/rpc/service-binding.js";
import type { FileRow, Store } from "../store/store.js";
import type { UploadLimits, UploadOutcome, UploadPart, UploadStore } from "../store/uploads.js";
import { mediaTypeOf } from "./media-type.js";

/** Reading files, whoever made them. */
export type FileReads = Pick<Store, "getFile" | "readFile">;

export const DEFAULT_UPLOAD_LIMITS: UploadLimits = {
  maxFileBytes: 50 * 1024 * 1024,
  maxUserBytes: 2 * 1024 * 1024 * 1024,
  maxFiles: 10_000,
  maxOpenUploads: 32,
};

/** An upload that nothing was added to for so long is removed, ms. */
export const ABANDONED_MS = 6 * 3_600_000;

export interface UploadsOptions {
  readonly store: UploadStore;
  readonly newId: () => string;
  readonly limits?: Partial<UploadLimits>;
}

/** Takes parts of files, and deletes files. */
export class Uploads {
  readonly #store: UploadStore;
  readonly #newId: () => string;
  readonly #limits: UploadLimits;

  constructor({ store, newId, limits }: UploadsOptions) {
    this.#store = store;
    this.#newId = newId;
    this.#limits = { ...DEFAULT_UPLOAD_LIMITS, ...limits };
  }

  get maxFileBytes(): number {
    return this.#limits.maxFileBytes;
  }

  /** Stores a part. `file` is there once the upload is whole. Throws TurnErrors that say how to go on. */
  async append(
    principal: Principal,
    part: Omit<UploadPart, "fileId">,
  ): Promise<{ readonly receivedBytes: number; readonly file: FileRow | undefined }> {
    if (!Number.isSafeInteger(part.offset)) throw refusal({ kind: "too_large" }, this.#limits);
    const outcome = await this.#store.append(
      principal,
      {
        uploadId: part.uploadId,
        fileId: this.#newId(),
        name: fileName(part.name),
        mediaType: mediaTypeOf(part.mediaType, part.name, part.data),
        sessionId: part.sessionId,
        offset: part.offset,
        data: part.data,
        last: part.last,
      },
      this.#limits,
    );
    if (outcome.kind === "stored") return outcome;
    throw refusal(outcome, this.#limits);
  }

  delete(principal: Principal, fileId: string): Promise<"deleted" | "not_found" | "of_a_turn"> {
    return this.#store.deleteFile(principal, fileId);
  }
}

/** The name without a path, whatever system it comes from. */
function fileName(name: string): string {
  return name.split(/[/\\]/).at(-1)!.trim() || "file";
}

function refusal(outcome: Exclude<UploadOutcome, { kind: "stored" }>, limits: UploadLimits): TurnError {
  switch (outcome.kind) {
    case "gap":
      return new TurnError(ErrorCode.INVALID_ARGUMENT, {
        message: `offset: the upload has ${outcome.receivedBytes} bytes, go on from there`,
        details: { field: "offset", received_bytes: String(outcome.receivedBytes) },
      });
    case "conflict":
      return new TurnError(ErrorCode.REQUEST_CONFLICT, {
        message: "this upload_id was used for other content: take a new one",
        details: { field: "upload_id" },
      });
    case "too_large":
      return new TurnError(ErrorCode.SIZE_LIMIT, {
        message: `a file may have at most ${mebibytes(limits.maxFileBytes)} MiB`,
        details: { field: "data" },
      });
    case "too_many_bytes":
      return new TurnError(ErrorCode.SIZE_LIMIT, {
        message: `your files may have at most ${mebibytes(limits.maxUserBytes)} MiB together: delete some`,
      });
    case "too_many_files":
      return new TurnError(ErrorCode.SIZE_LIMIT, {
        message: `you have ${limits.maxFiles} files, which is the limit: delete some`,
      });
    case "too_many_uploads":
      return new TurnError(ErrorCode.OVERLOADED, {
        message: `you have ${limits.maxOpenUploads} unfinished uploads: finish them, or wait until they expire`,
        retryAfterMs: 60_000,
      });
    case "session_not_found":
      return new TurnError(ErrorCode.NOT_FOUND, {
        message: "no such session",
        details: { field: "session_id" },
      });
  }
}

function mebibytes(bytes: number): number {
  return Math.floor(bytes / (1024 * 1024));
}
