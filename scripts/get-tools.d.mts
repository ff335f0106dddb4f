export type Tool = "grpcurl" | "ghz" | "protoc-gen-go" | "protoc-gen-go-grpc" | "python";

/** Path of the program, from PATH or the cache; undefined = it is not here. */
export function findTool(name: Tool): string | undefined;

/** Whether this machine has what the tool is made with: Go, or Python. */
export function canMake(name: Tool): boolean;

/** Fetches the tool if it is not here: its path, or a sentence that says why it cannot be had. */
export function getTool(
  name: Tool,
  print?: (line: string) => void,
):
  | { readonly path: string; readonly missing?: undefined }
  | { readonly path?: undefined; readonly missing: string };
