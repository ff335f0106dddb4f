/** FileService: files of the caller, uploaded in parts or made by turns; streamed back, deleted. */
import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  DeleteFileResponseSchema,
  DownloadFileResponseSchema,
  FileService,
  GetFileResponseSchema,
  UploadFileResponseSchema,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { FileSchema, type File } from "../../gen/turnwire/chat/v1/types_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import {
  bindService,
  messageFrame,
  type Principal,
  type ServiceBinding,
} from "../lib/rpc/service-binding.js";
import type { FileRow } from "../store/store.js";
import type { FileReads, Uploads } from "./uploads.js";

export interface FileServiceDeps {
  readonly reads: FileReads;
  readonly uploads: Uploads;
}

export function createFileService({ reads, uploads }: FileServiceDeps): ServiceBinding {
  const ownFile = async (principal: Principal, fileId: string): Promise<FileRow> => {
    const file = await reads.getFile(principal, fileId);
    if (!file) throw noFile(fileId);
    return file;
  };
  return bindService(FileService, {
    async uploadFile(request, { principal }) {
      const offset = Number(request.offset);
      const { file } = await uploads.append(principal, { ...request, offset });
      return create(UploadFileResponseSchema, { uploadId: request.uploadId, file: file && viewFile(file) });
    },

    async getFile(request, { principal }) {
      return create(GetFileResponseSchema, { file: viewFile(await ownFile(principal, request.fileId)) });
    },

    async *downloadFile(request, { principal, signal }) {
      const file = await ownFile(principal, request.fileId);
      const offset = BigInt(request.offset);
      if (offset > file.sizeBytes)
        throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
          message: "offset is beyond the end of the file",
          details: { field: "offset" },
        });
      for await (const data of reads.readFile(principal, request.fileId, offset)) {
        signal.throwIfAborted();
        yield messageFrame(create(DownloadFileResponseSchema, { data }));
      }
    },

    async deleteFile(request, { principal }) {
      switch (await uploads.delete(principal, request.fileId)) {
        case "deleted":
          return create(DeleteFileResponseSchema);
        case "not_found":
          throw noFile(request.fileId);
        case "of_a_turn":
          throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
            message: "a turn made this file: it is deleted with its session",
            details: { field: "file_id" },
          });
      }
    },
  });
}

/** A file as the contract shows it. */
export function viewFile(row: FileRow): File {
  return create(FileSchema, {
    fileId: row.fileId,
    name: row.name,
    mediaType: row.mediaType,
    sizeBytes: row.sizeBytes.toString(),
    sha256: row.sha256,
    downloadPath: `/files/${encodeURIComponent(row.fileId)}`,
    turnId: row.turnId,
    createTime: timestampFromDate(row.createTime),
  });
}

function noFile(fileId: string): TurnError {
  return new TurnError(ErrorCode.NOT_FOUND, { message: `no file ${fileId}`, details: { field: "file_id" } });
}
