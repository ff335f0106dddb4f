/** The tool peer's service: ToolService over a registry. What a call does is in tool-calls.ts. */
import { create } from "@bufbuild/protobuf";
import {
  type ListToolsRequest,
  type ListToolsResponse,
  ListToolsResponseSchema,
  ToolService,
} from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import type { Clock } from "../lib/clock.js";
import type { Logger } from "../lib/log.js";
import { bindService, type ServiceBinding } from "../lib/rpc/service-binding.js";
import type { ToolRegistry } from "./registry.js";
import { ToolCalls } from "./tool-calls.js";
import { completeLimits, type ToolServiceLimits } from "./tool-limits.js";

export interface ToolServiceOptions {
  readonly registry: ToolRegistry;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly limits?: ToolServiceLimits;
}

const DEFAULT_PAGE_SIZE = 100;
const MAX_PAGE_SIZE = 1_000;

/** Implements ToolService. Calls are scoped to the tenant and user of `caller`, or of the connection when it names none. */
export function createToolService(options: ToolServiceOptions): ServiceBinding {
  const calls = new ToolCalls({ ...options, limits: completeLimits(options.limits) });
  return bindService(ToolService, {
    listTools: async (request) => listTools(options.registry, request),
    executeTool: (request, context) => calls.execute(request, context),
    getToolCall: async (request, context) => calls.get(request, context),
    cancelToolCall: async (request, context) => calls.cancel(request, context),
  });
}

function listTools(registry: ToolRegistry, request: ListToolsRequest): ListToolsResponse {
  const size = Math.min(request.pageSize || DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE);
  const after = request.pageToken;
  const rest = after === "" ? registry.tools : registry.tools.filter((tool) => tool.toolId > after);
  const tools = rest.slice(0, size);
  return create(ListToolsResponseSchema, {
    tools,
    nextPageToken: rest.length > size ? tools.at(-1)!.toolId : "",
    revision: registry.revision,
  });
}
