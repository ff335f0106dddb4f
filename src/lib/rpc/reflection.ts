/**
 * grpc.reflection v1 and v1alpha over generated descriptors: list, describe and call work with stock tools. A file is
 * answered with everything it imports, each file once per stream, options kept.
 */
import type {
  DescExtension,
  DescFile,
  DescMessage,
  DescService,
  MessageInitShape,
  Registry,
} from "@bufbuild/protobuf";
import { create, createRegistry, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { Health } from "../../../gen/grpc/health/v1/health_pb.js";
import { file_google_rpc_error_details } from "../../../gen/google/rpc/error_details_pb.js";
import { file_turnwire_chat_v1_errors } from "../../../gen/turnwire/chat/v1/errors_pb.js";
import * as v1 from "../../../gen/grpc/reflection/v1/reflection_pb.js";
import * as v1alpha from "../../../gen/grpc/reflection/v1alpha/reflection_pb.js";
import type { ServiceBinding, StreamFrame } from "./service-binding.js";
import { bindService, messageFrame } from "./service-binding.js";

const NOT_FOUND = 5;
const INVALID_ARGUMENT = 3;

/** Both versions of the reflection service, describing `services`, health and themselves, and the details of statuses. */
export function reflectionServices(services: readonly DescService[]): ServiceBinding[] {
  const described = [...services, Health, v1.ServerReflection, v1alpha.ServerReflection];
  const details = [file_google_rpc_error_details, file_turnwire_chat_v1_errors];
  const index = indexFiles([...described.map((service) => service.file), ...details]);
  const names = [...new Set(described.map((service) => service.typeName))].sort();
  return [
    bindService(v1.ServerReflection, {
      serverReflectionInfo: (requests) => answer(requests, v1.ServerReflectionResponseSchema, index, names),
    }),
    bindService(v1alpha.ServerReflection, {
      serverReflectionInfo: (requests) =>
        answer(requests, v1alpha.ServerReflectionResponseSchema, index, names),
    }),
  ];
}

interface FileIndex {
  readonly byPath: ReadonlyMap<string, DescFile>;
  readonly registry: Registry;
  readonly extensions: ReadonlyMap<string, readonly DescExtension[]>;
}

function indexFiles(roots: readonly DescFile[]): FileIndex {
  const byPath = new Map<string, DescFile>();
  const visit = (file: DescFile): void => {
    if (byPath.has(pathOf(file))) return;
    byPath.set(pathOf(file), file);
    file.dependencies.forEach(visit);
  };
  roots.forEach(visit);
  const registry = createRegistry(...byPath.values());
  const extensions = new Map<string, DescExtension[]>();
  for (const type of registry) {
    if (type.kind !== "extension") continue;
    extensions.set(type.extendee.typeName, [...(extensions.get(type.extendee.typeName) ?? []), type]);
  }
  return { byPath, registry, extensions };
}

type Request = v1.ServerReflectionRequest | v1alpha.ServerReflectionRequest;

async function* answer<
  D extends typeof v1.ServerReflectionResponseSchema | typeof v1alpha.ServerReflectionResponseSchema,
>(
  requests: AsyncIterable<Request>,
  schema: D,
  index: FileIndex,
  names: readonly string[],
): AsyncGenerator<StreamFrame<never>> {
  const sent = new Set<string>();
  for await (const request of requests) {
    const response = {
      validHost: request.host,
      originalRequest: request,
      messageResponse: respond(request, index, names, sent),
    };
    // v1 and v1alpha differ in their type names only
    yield messageFrame(create(schema as DescMessage, response as MessageInitShape<DescMessage>) as never);
  }
}

type MessageResponse = NonNullable<
  MessageInitShape<typeof v1.ServerReflectionResponseSchema>["messageResponse"]
>;

function respond(
  request: Request,
  index: FileIndex,
  names: readonly string[],
  sent: Set<string>,
): MessageResponse {
  const { messageRequest } = request;
  switch (messageRequest.case) {
    case "listServices":
      return { case: "listServicesResponse", value: { service: names.map((name) => ({ name })) } };
    case "fileByFilename":
      return filesFrom(index.byPath.get(messageRequest.value), sent);
    case "fileContainingSymbol":
      return filesFrom(fileOfSymbol(index.registry, messageRequest.value), sent);
    case "fileContainingExtension": {
      const { containingType, extensionNumber } = messageRequest.value;
      const found = index.extensions
        .get(containingType)
        ?.find((extension) => extension.number === extensionNumber);
      return filesFrom(found?.file, sent);
    }
    case "allExtensionNumbersOfType": {
      const type = messageRequest.value;
      if (!index.registry.getMessage(type)) return failure(NOT_FOUND, "no such message type");
      const extensionNumber = (index.extensions.get(type) ?? []).map((extension) => extension.number);
      return { case: "allExtensionNumbersResponse", value: { baseTypeName: type, extensionNumber } };
    }
    default:
      return failure(INVALID_ARGUMENT, "the request asks for nothing");
  }
}

function filesFrom(root: DescFile | undefined, sent: Set<string>): MessageResponse {
  if (!root) return failure(NOT_FOUND, "not found");
  const files: DescFile[] = [root]; // asked for by name: answered even if this stream had it before
  sent.add(pathOf(root));
  for (let next = 0; next < files.length; next++) {
    for (const dependency of files[next]!.dependencies) {
      if (sent.has(pathOf(dependency))) continue;
      sent.add(pathOf(dependency));
      files.push(dependency);
    }
  }
  const fileDescriptorProto = files.map((file) => toBinary(FileDescriptorProtoSchema, file.proto));
  return { case: "fileDescriptorResponse", value: { fileDescriptorProto } };
}

/** The file that defines a type, service, method, field, oneof or enum value, named in full. */
function fileOfSymbol(registry: Registry, symbol: string): DescFile | undefined {
  const direct = registry.get(symbol);
  if (direct) return direct.file;
  const dot = symbol.lastIndexOf(".");
  if (dot < 0) return undefined;
  const parent = registry.get(symbol.slice(0, dot));
  const name = symbol.slice(dot + 1);
  switch (parent?.kind) {
    case "service":
      return parent.methods.some((method) => method.name === name) ? parent.file : undefined;
    case "message":
      return parent.members.some((member) => member.name === name) ? parent.file : undefined;
    case "enum":
      return parent.values.some((value) => value.name === name) ? parent.file : undefined;
    default:
      return undefined;
  }
}

function failure(errorCode: number, errorMessage: string): MessageResponse {
  return { case: "errorResponse", value: { errorCode, errorMessage } };
}

/** The path under which other files import it: DescFile.name has no suffix. */
function pathOf(file: DescFile): string {
  return file.proto.name;
}
