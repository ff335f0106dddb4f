/** The `search` tool: finds passages of the caller's own documents and gives them as numbered sources. */
import { create, fromJson } from "@bufbuild/protobuf";
import { DurationSchema, timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import {
  type SearchScope,
  SearchScopeSchema,
  ToolFamily,
  ToolOutcome,
  type ToolResult,
  ToolResultSchema,
  ToolSchema,
} from "../../../gen/turnwire/tool/v1/tool_service_pb.js";
import type { Owner } from "../../lib/rpc/service-binding.js";
import {
  errorResult,
  type ToolContext,
  type ToolDefinition,
  type ToolInput,
  type ToolPayload,
} from "../tool.js";
import type { DocumentIndex, IndexedPassage } from "./document-index.js";
import { fuse, renderPassages, snippetWords, toDocument } from "./search-results.js";

const TOOL_ID = "search";
const MAX_QUERIES = 5;
/** Passages of one call: fewer than the citation numbers that a call gets. */
const MAX_PASSAGES = 10;
/** Passages that each query brings to the list. */
const PER_QUERY = 20;
/** Model text of a call that names no limit, characters. */
const DEFAULT_MODEL_CHARS = 16_000;

const stringList = (maxItems: number, maxLength: number, description: string) => ({
  type: "array",
  items: { type: "string", minLength: 1, maxLength },
  maxItems,
  description,
});

const PARAMETERS = {
  type: "object",
  properties: {
    queries: {
      ...stringList(
        MAX_QUERIES,
        400,
        "What to look for, at most 5 queries of a few significant words each, in the language of the documents.",
      ),
      minItems: 1,
    },
    filters: {
      type: "object",
      properties: {
        tags: stringList(32, 64, "Only documents with all of these tags."),
        document_ids: stringList(256, 128, "Only these documents, by the document_id of earlier results."),
        after: {
          type: "string",
          format: "date-time",
          description: "Only documents added from this time on.",
        },
        before: { type: "string", format: "date-time", description: "Only documents added up to this time." },
      },
      additionalProperties: false,
      description: "What narrows the search. Leave it out unless the user asks for it.",
    },
  },
  required: ["queries"],
  additionalProperties: false,
};

interface SearchArguments {
  readonly queries: readonly string[];
  readonly filters?: {
    readonly tags?: readonly string[];
    readonly document_ids?: readonly string[];
    readonly after?: string;
    readonly before?: string;
  };
}

/** Makes the tool over an index, which is the caller's to close. */
export function createSearchTool({ index }: { readonly index: DocumentIndex }): ToolDefinition {
  const tool = create(ToolSchema, {
    toolId: TOOL_ID,
    name: TOOL_ID,
    displayName: "Search documents",
    description:
      "Searches the user's own documents and gives the passages that fit best, with numbers to cite them by. Use it for " +
      "questions about the user's documents, files and notes. Ask with other words if the first search brings nothing.",
    parametersJsonSchema: JSON.stringify(PARAMETERS),
    idempotent: true,
    citeable: true,
    timeout: fromJson(DurationSchema, "30s"),
    mergeArgument: "queries",
    source: "builtin",
    family: ToolFamily.SEARCH,
  });
  return {
    tool,
    async *run(input, context): AsyncGenerator<ToolPayload, ToolResult, undefined> {
      const { queries: asked, filters } = input.args as unknown as SearchArguments;
      const queries = [...new Set(asked.map((query) => query.trim()).filter((query) => query !== ""))];
      const scope = narrow(input.searchScope ?? create(SearchScopeSchema), filters);
      yield { case: "searchToolStart", value: { isInternetSearch: false } };
      if (scope.sources.length > 0 || scope.after || scope.before)
        yield {
          case: "searchToolFilterDelta",
          value: { sources: scope.sources, timeFilterStart: scope.after, timeFilterEnd: scope.before },
        };
      yield { case: "searchToolQueriesDelta", value: { queries } };
      const owner = ownerOf(input);
      if (!owner)
        return errorResult(
          "Documents are searched for a user, and this call names none.",
          ErrorCode.PERMISSION_DENIED,
        );
      const passages = await searchAll(index, owner, queries, scope, context);
      if (passages.length === 0) return await nothingFound(index, owner);
      const result = toResult(passages, queries, input);
      yield { case: "searchToolDocumentsDelta", value: { documents: result.documents } };
      return result;
    },
  };
}

function ownerOf({ caller }: ToolInput): Owner | undefined {
  return caller && caller.tenantId !== "" && caller.userId !== ""
    ? { tenantId: caller.tenantId, userId: caller.userId }
    : undefined;
}

async function searchAll(
  index: DocumentIndex,
  owner: Owner,
  queries: readonly string[],
  scope: SearchScope,
  { signal }: ToolContext,
): Promise<IndexedPassage[]> {
  signal.throwIfAborted();
  const search = (query: string) => index.search(owner, query, scope, PER_QUERY, signal);
  return fuse(await Promise.all(queries.map(search)), MAX_PASSAGES);
}

function toResult(
  passages: readonly IndexedPassage[],
  queries: readonly string[],
  input: ToolInput,
): ToolResult {
  const first = input.firstCitationNumber;
  const { text, truncated } = renderPassages(passages, first, input.maxModelChars || DEFAULT_MODEL_CHARS);
  const words = snippetWords(queries);
  return create(ToolResultSchema, {
    outcome: ToolOutcome.OK,
    modelText: text,
    truncated,
    documents: passages.map((passage, index) => toDocument(passage, words, first > 0 ? first + index : 0)),
  });
}

async function nothingFound(index: DocumentIndex, owner: Owner): Promise<ToolResult> {
  const modelText = (await index.hasDocuments(owner))
    ? "No passage was found. Try other or fewer words, or tell the user that the documents do not say."
    : "The user has no documents that could be searched. Say so, and that documents can be added.";
  return create(ToolResultSchema, { outcome: ToolOutcome.OK, modelText });
}

/** The user's scope, narrowed further by what the model asks for. */
function narrow(scope: SearchScope, filters: SearchArguments["filters"] = {}): SearchScope {
  const { tags = [], document_ids: wanted = [], after, before } = filters;
  const documentIds = bothOf(scope.documentIds, wanted);
  return create(SearchScopeSchema, {
    ...scope,
    tags: [...new Set([...scope.tags, ...tags])],
    documentIds,
    after: laterOf(scope, after),
    before: earlierOf(scope, before),
  });
}

/** An empty list leaves all. Two lists without a document in common leave none, which an id that nobody has says. */
function bothOf(allowed: readonly string[], wanted: readonly string[]): string[] {
  if (allowed.length === 0) return [...wanted];
  if (wanted.length === 0) return [...allowed];
  const both = wanted.filter((id) => allowed.includes(id));
  return both.length > 0 ? both : ["none"];
}

function laterOf({ after }: SearchScope, asked: string | undefined): SearchScope["after"] {
  const time = asked === undefined ? undefined : new Date(asked);
  return time && (!after || time > timestampDate(after)) ? timestampFromDate(time) : after;
}

function earlierOf({ before }: SearchScope, asked: string | undefined): SearchScope["before"] {
  const time = asked === undefined ? undefined : new Date(asked);
  return time && (!before || time < timestampDate(before)) ? timestampFromDate(time) : before;
}
