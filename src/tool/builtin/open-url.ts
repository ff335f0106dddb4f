/** The `open_url` tool: fetches pages and gives their readable text as numbered documents. */
import { createHash } from "node:crypto";
import { create, fromJson } from "@bufbuild/protobuf";
import { DurationSchema } from "@bufbuild/protobuf/wkt";
import { type Document, DocumentSchema } from "../../../gen/turnwire/packet/v1/common_pb.js";
import {
  ToolFamily,
  ToolOutcome,
  type ToolResult,
  ToolResultSchema,
  ToolSchema,
} from "../../../gen/turnwire/tool/v1/tool_service_pb.js";
import { FetchFailure } from "../../egress/fetch-failure.js";
import type { SafeFetch } from "../../egress/safe-fetch.js";
import type { Extractor } from "../../extract/extractor.js";
import { cutChars, shareFairly } from "../../lib/text.js";
import {
  errorResult,
  type ToolContext,
  type ToolDefinition,
  type ToolInput,
  type ToolPayload,
} from "../tool.js";
import { type OpenedPage, openPage } from "../../extract/open-page.js";

const TOOL_ID = "open_url";
const MAX_URLS = 10;
/** Pages fetched at once. */
const MAX_PARALLEL = 4;
/** Model text of a call that names no limit, characters. */
const DEFAULT_MODEL_CHARS = 40_000;
const SNIPPET_CHARS = 600;
/** Left of the model text's limit for headings and reasons, characters per URL. */
const FRAME_CHARS = 400;

const PARAMETERS = {
  type: "object",
  properties: {
    urls: {
      type: "array",
      items: { type: "string", minLength: 1, maxLength: 4096 },
      minItems: 1,
      maxItems: MAX_URLS,
      description: "The full http or https URLs of the pages to read, at most 10.",
    },
  },
  required: ["urls"],
  additionalProperties: false,
};

export interface OpenUrlToolOptions {
  readonly fetch: SafeFetch;
  /** Closed together with the tool. */
  readonly extractor: Extractor;
}

/** Makes the tool. */
export function createOpenUrlTool({ fetch, extractor }: OpenUrlToolOptions): ToolDefinition {
  const tool = create(ToolSchema, {
    toolId: TOOL_ID,
    name: TOOL_ID,
    displayName: "Open URL",
    description:
      "Opens web pages or PDF files by their URLs and gives their text. Use it to read pages whose address is known.",
    parametersJsonSchema: JSON.stringify(PARAMETERS),
    idempotent: true,
    citeable: true,
    timeout: fromJson(DurationSchema, "90s"),
    mergeArgument: "urls",
    source: "builtin",
    family: ToolFamily.OPEN_URL,
  });
  return {
    tool,
    async *run(input, context): AsyncGenerator<ToolPayload, ToolResult, undefined> {
      const urls = [...new Set((input.args as { urls: string[] }).urls.map((url) => url.trim()))];
      yield { case: "openUrlStart", value: {} };
      yield { case: "openUrlUrls", value: { urls } };
      const outcomes = await openAll(urls, { fetch, extractor }, input, context);
      context.signal.throwIfAborted();
      const result = toResult(outcomes, input);
      if (result.documents.length > 0)
        yield { case: "openUrlDocuments", value: { documents: result.documents } };
      return result;
    },
    close: () => extractor.close(),
  };
}

type Outcome =
  | { readonly kind: "page"; readonly url: string; readonly page: OpenedPage }
  | { readonly kind: "failed"; readonly url: string; readonly reason: string };

async function openAll(
  urls: readonly string[],
  parts: OpenUrlToolOptions,
  input: ToolInput,
  context: ToolContext,
): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  const maxChars = input.maxModelChars || DEFAULT_MODEL_CHARS;
  let next = 0;
  const openSome = async (): Promise<void> => {
    while (next < urls.length && !context.signal.aborted) {
      const index = next++;
      outcomes[index] = await openOne(urls[index]!, parts, maxChars, context);
    }
  };
  await Promise.all(Array.from({ length: Math.min(MAX_PARALLEL, urls.length) }, openSome));
  return outcomes;
}

async function openOne(
  url: string,
  parts: OpenUrlToolOptions,
  maxChars: number,
  context: ToolContext,
): Promise<Outcome> {
  try {
    return { kind: "page", url, page: await openPage(url, { ...parts, maxChars }, context.signal) };
  } catch (error) {
    if (!(error instanceof FetchFailure))
      context.logger.error({ err: error }, "opening a page failed unexpectedly");
    return {
      kind: "failed",
      url,
      reason: error instanceof FetchFailure ? error.message : "it could not be read",
    };
  }
}

function toResult(outcomes: readonly Outcome[], input: ToolInput): ToolResult {
  const opened = outcomes.flatMap((outcome) => (outcome.kind === "page" ? [outcome] : []));
  const failures = outcomes.flatMap((outcome) =>
    outcome.kind === "failed" ? [`- ${outcome.url}: ${outcome.reason}`] : [],
  );
  if (opened.length === 0) return errorResult(`None of the pages could be opened:\n${failures.join("\n")}`);

  const limit = input.maxModelChars || DEFAULT_MODEL_CHARS;
  const failed =
    failures.length > 0 ? `Not opened:\n${cutChars(failures.join("\n"), FRAME_CHARS * failures.length)}` : "";
  const heads = opened.map(({ page }, index) => head(numberOf(index, input), page));
  const frames = heads.reduce((sum, text) => sum + text.length + CUT_MARK.length + 4, failed.length + 2);
  const shares = shareFairly(
    opened.map(({ page }) => page.text.length),
    Math.max(0, limit - frames),
  );
  const texts = opened.map(({ page }, index) => heads[index]! + body(page, shares[index]!));
  const truncated = opened.some(({ page }, index) => page.truncated || page.text.length > shares[index]!);
  return create(ToolResultSchema, {
    outcome: ToolOutcome.OK,
    modelText: [...texts, failed].filter((text) => text !== "").join("\n\n"),
    truncated,
    documents: opened.map(({ url, page }, index) => toDocument(url, page, numberOf(index, input))),
  });
}

const CUT_MARK = "\n[cut here: the page is longer]";

function head(number: number, page: OpenedPage): string {
  const title = page.title || page.url;
  return `${number > 0 ? `[${number}] ` : ""}${title}\n${page.url}\n\n`;
}

/** 0: the caller wants no numbers. */
function numberOf(index: number, { firstCitationNumber }: ToolInput): number {
  return firstCitationNumber > 0 ? firstCitationNumber + index : 0;
}

function body(page: OpenedPage, maxChars: number): string {
  const text = cutChars(page.text, maxChars);
  return text.length < page.text.length || page.truncated ? text + CUT_MARK : text;
}

function toDocument(requestedUrl: string, page: OpenedPage, citationNumber: number): Document {
  const snippet = cutChars(page.text, SNIPPET_CHARS);
  const metadata: Record<string, string> = { ...page.metadata, content_type: page.contentType };
  if (requestedUrl !== page.url) metadata["requested_url"] = requestedUrl;
  return create(DocumentSchema, {
    documentId: `web:${createHash("sha256").update(page.url).digest("hex").slice(0, 32)}`,
    title: page.title || page.url,
    url: page.url,
    snippet,
    source: "web",
    metadata,
    citationNumber,
    startChar: 0,
    endChar: snippet.length,
    truncated: page.truncated,
  });
}
