/** The tools every tool peer has. */
import type { Clock } from "../../lib/clock.js";
import { createSafeFetch, type SafeFetchOptions } from "../../egress/safe-fetch.js";
import { createExtractor, type ExtractorOptions } from "../../extract/extractor.js";
import type { ToolDefinition } from "../tool.js";
import { createClockTool } from "./clock.js";
import type { DocumentIndex } from "./document-index.js";
import { createOpenUrlTool } from "./open-url.js";
import { createSearchTool } from "./search.js";

export interface BuiltinToolsOptions {
  readonly clock: Clock;
  /** How pages are reached: `tools.openUrl` of the configuration file. `allowHosts` lists "host:port" pairs without checks. */
  readonly openUrl?: SafeFetchOptions & { readonly extractor?: ExtractorOptions };
  /** What `search` looks into; without it there is no `search`. */
  readonly documents?: DocumentIndex | undefined;
}

/** `clock`, `open_url` and, over an index, `search`. They hold nothing until they are called; the registry's `close` releases what they hold then. */
export function createBuiltinTools({
  clock,
  openUrl = {},
  documents,
}: BuiltinToolsOptions): ToolDefinition[] {
  return [
    createClockTool({ clock }),
    createOpenUrlTool({ fetch: createSafeFetch(openUrl), extractor: createExtractor(openUrl.extractor) }),
    ...(documents ? [createSearchTool({ index: documents })] : []),
  ];
}
