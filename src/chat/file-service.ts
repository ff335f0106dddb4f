/** FileService, the reading half: what turns stored because it was too long for a packet. */
import { create } from "@bufbuild/protobuf";
import {
  DownloadFileResponseSchema,
  FileService,
  GetFileResponseSchema,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import { bindService, messageFrame, type ServiceBinding } from "../lib/rpc/service-binding.js";
import type { Store } from "../store/store.js";
import { viewFile } from "./views.js";

export function createFileService(store: Store): ServiceBinding {
  return bindService(FileService, {
    async getFile(request, { principal }) {
      const file = await store.getFile(principal, request.fileId);
      if (!file) throw noFile(request.fileId);
      return create(GetFileResponseSchema, { file: viewFile(file) });
    },

    async *downloadFile(request, { principal, signal }) {
      const file = await store.getFile(principal, request.fileId);
      if (!file) throw noFile(request.fileId);
      const offset = BigInt(request.offset);
      if (offset > file.sizeBytes)
        throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
          message: "offset is beyond the end of the file",
          details: { field: "offset" },
        });
      for await (const data of store.readFile(principal, request.fileId, offset)) {
        signal.throwIfAborted();
        yield messageFrame(create(DownloadFileResponseSchema, { data }));
      }
    },
  });
}

function noFile(fileId: string): TurnError {
  return new TurnError(ErrorCode.NOT_FOUND, { message: `no file ${fileId}`, details: { field: "file_id" } });
}
