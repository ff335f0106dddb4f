/** Vite plugins of the page: what keeps its first load small. */
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { base64Decode, base64Encode } from "@bufbuild/protobuf/wire";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";

const DESCRIPTOR = /fileDesc\("([A-Za-z0-9+/=]+)"/g;
const VALIDATION_RULES = "buf/validate/validate.proto";

/**
 * Takes the validation rules out of the generated descriptors: the service checks requests, the page does not. The rules'
 * own file stays by name, since the others import it.
 */
export function withoutValidationRules() {
  return {
    name: "turnwire-without-validation-rules",
    enforce: "pre",
    transform: {
      filter: { id: /\/gen\/.*_pb\.ts$/ },
      handler(code) {
        const slim = code.replace(DESCRIPTOR, (_, encoded) => `fileDesc("${slimDescriptor(encoded)}"`);
        return { code: slim, map: null };
      },
    },
  };
}

function slimDescriptor(encoded) {
  const file = fromBinary(FileDescriptorProtoSchema, base64Decode(encoded));
  if (file.name === VALIDATION_RULES) Object.assign(file, { messageType: [], enumType: [], extension: [] });
  dropUnknown(file);
  return base64Encode(toBinary(FileDescriptorProtoSchema, file), "std_raw");
}

/** Options that the descriptor's own schema does not know are extensions: here, only the rules. */
function dropUnknown(message) {
  delete message.$unknown;
  for (const value of Object.values(message)) {
    if (Array.isArray(value)) value.forEach((each) => typeof each === "object" && dropUnknown(each));
    else if (value && typeof value === "object" && "$typeName" in value) dropUnknown(value);
  }
}

/**
 * Builds the SharedWorker together with the page, so that both load the same chunks: `__HUB_WORKER_URL__` becomes its
 * address.
 */
export function sharedWorker(file) {
  let reference;
  return {
    name: "turnwire-shared-worker",
    buildStart() {
      reference = this.emitFile({ type: "chunk", id: file });
    },
    transform(code) {
      return code.includes("__HUB_WORKER_URL__")
        ? {
            code: code.replaceAll("__HUB_WORKER_URL__", `import.meta.ROLLUP_FILE_URL_${reference}`),
            map: null,
          }
        : undefined;
    },
  };
}
