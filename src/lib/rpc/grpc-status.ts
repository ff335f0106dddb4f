/** The statuses of status.ts in the shapes of @grpc/grpc-js: metadata with a google.rpc.Status in its binary trailer. */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import type { Code } from "@connectrpc/connect";
import type { StatusObject } from "@grpc/grpc-js";
import { Metadata } from "@grpc/grpc-js";
import { StatusSchema } from "../../../gen/google/rpc/status_pb.js";
import { TurnError } from "../errors.js";
import type { EncodedDetail } from "./status.js";
import { fromRpcStatus, toRpcStatus } from "./status.js";

const DETAILS_KEY = "grpc-status-details-bin";
const TYPE_PREFIX = "type.googleapis.com/";

/** The status of whatever was thrown, as a grpc-js server sends it. */
export function toGrpcStatus(thrown: unknown): StatusObject {
  const status = toRpcStatus(thrown);
  const metadata = new Metadata();
  const details = create(StatusSchema, {
    code: status.code,
    message: status.message,
    details: status.details.map((detail) => ({ typeUrl: TYPE_PREFIX + detail.type, value: detail.value })),
  });
  metadata.set(DETAILS_KEY, Buffer.from(toBinary(StatusSchema, details)));
  return { code: status.code as number, details: status.message, metadata };
}

/** What a grpc-js client's error means: the peer's own words if it speaks our error model, else the table's. */
export function fromGrpcError(thrown: unknown): TurnError {
  if (thrown instanceof TurnError) return thrown;
  const error = thrown as Partial<StatusObject>;
  if (typeof error?.code !== "number") return TurnError.from(thrown);
  return fromRpcStatus(
    { code: error.code as number as Code, message: error.details ?? "", details: detailsOf(error.metadata) },
    thrown,
  );
}

function detailsOf(metadata: Metadata | undefined): EncodedDetail[] {
  const bytes = metadata?.get(DETAILS_KEY)[0];
  if (!(bytes instanceof Uint8Array)) return [];
  try {
    return fromBinary(StatusSchema, bytes).details.map((any) => ({
      type: any.typeUrl.slice(any.typeUrl.lastIndexOf("/") + 1),
      value: any.value,
    }));
  } catch {
    return []; // unreadable details: the code still stands
  }
}
