/** The limits that clients are promised, as a table: a request, and what its refusal must name. */
import type { DescMessage, Message, MessageInitShape } from "@bufbuild/protobuf";
import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  AddDocumentRequestSchema,
  ClaimClientCallRequestSchema,
  CreateSessionRequestSchema,
  ForkTurnRequestSchema,
  GetSessionRequestSchema,
  GetTurnRequestSchema,
  ListSessionsRequestSchema,
  ListTurnsRequestSchema,
  ResumeTurnRequestSchema,
  SendMessageAndWaitRequestSchema,
  SendMessageRequestSchema,
  SetFeedbackRequestSchema,
  StartTurnRequestSchema,
  StopTurnRequestSchema,
  StopTurnsRequestSchema,
  SubmitClientResultRequestSchema,
  UpdateSessionRequestSchema,
  UploadFileRequestSchema,
  WatchRequestSchema,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import type { DoubleSendPolicy, TurnStatus } from "../../gen/turnwire/chat/v1/types_pb.js";
import {
  DecodeCompletionRequestSchema,
  EmbedRequestSchema,
  StreamCompletionRequestSchema,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import {
  CancelToolCallRequestSchema,
  ExecuteToolRequestSchema,
} from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { violations } from "./proto-rules.js";

const KIB = 1024;
const MIB = 1024 * KIB;

type Case = readonly [title: string, message: Message, schema: DescMessage, expected: readonly string[]];

function row<S extends DescMessage>(
  title: string,
  schema: S,
  init: MessageInitShape<S>,
  ...expected: string[]
): Case {
  return [title, create(schema, init), schema, expected];
}

const execute = { toolId: "clock", idempotencyKey: "turn:call" };
const input = {
  modelId: "demo",
  messages: [{ role: 2, parts: [{ part: { case: "text", value: "hi" } as const }] }],
};
const attachments = (count: number) => Array.from({ length: count }, (_, i) => ({ fileId: `f${i}` }));
const send = (
  init: MessageInitShape<typeof SendMessageRequestSchema>,
  title: string,
  ...expected: string[]
): Case[] => [
  row(`SendMessage ${title}`, SendMessageRequestSchema, init, ...expected),
  row(`SendMessageAndWait ${title}`, SendMessageAndWaitRequestSchema, init as never, ...expected),
  row(`StartTurn ${title}`, StartTurnRequestSchema, init as never, ...expected),
];

const cases: readonly Case[] = [
  // A send.
  ...send({}, "of nothing: whether text is needed depends on the position, not on a rule"),
  ...send({ text: "x".repeat(512 * KIB) }, "of 512 KiB"),
  ...send({ text: "x".repeat(512 * KIB + 1) }, "of more than 512 KiB", "text [string.max_bytes]"),
  ...send(
    { text: "\u00e9".repeat(256 * KIB + 1) },
    "counts bytes, not characters",
    "text [string.max_bytes]",
  ),
  ...send({ requestId: "A-z_0.9:" }, "with every kind of character in its request_id"),
  ...send({ requestId: "a".repeat(129) }, "with a long request_id", "request_id [string.max_bytes]"),
  ...send({ requestId: "a b" }, "with a space in its request_id", "request_id [string.pattern]"),
  ...send({ sessionId: "a/b" }, "with a slash in its session_id", "session_id [string.pattern]"),
  ...send({ clientId: "a\nb" }, "with a line break in its client_id", "client_id [string.pattern]"),
  ...send(
    { position: { case: "fromRoot", value: false } },
    "that says from_root: false",
    "from_root [bool.const]",
  ),
  ...send(
    { position: { case: "parentMessageId", value: "" } },
    "after nothing",
    "parent_message_id [string.min_len]",
  ),
  ...send(
    { position: { case: "editMessageId", value: "" } },
    "that edits nothing",
    "edit_message_id [string.min_len]",
  ),
  ...send({ attachments: attachments(32) }, "with 32 files"),
  ...send({ attachments: attachments(33) }, "with 33 files", "attachments [repeated.max_items]"),
  ...send({ attachments: [{}] }, "with a file without id", "attachments[0].file_id [string.min_len]"),
  ...send({ models: Array.from({ length: 8 }, () => ({ modelId: "m" })) }, "to 8 models"),
  ...send(
    { models: Array.from({ length: 9 }, () => ({ modelId: "m" })) },
    "to 9 models",
    "models [repeated.max_items]",
  ),
  ...send({ models: [{ modelId: "m" }, {}] }, "to a model without id", "models[1].model_id [string.min_len]"),
  ...send(
    {
      models: [
        {
          modelId: "m",
          sampling: {
            temperature: 2.1,
            topP: -0.1,
            presencePenalty: -3,
            frequencyPenalty: 2.5,
            maxOutputTokens: 0,
          },
        },
      ],
    },
    "with sampling out of range",
    "models[0].sampling.temperature [double.gte_lte]",
    "models[0].sampling.top_p [double.gte_lte]",
    "models[0].sampling.max_output_tokens [uint32.gte_lte]",
    "models[0].sampling.presence_penalty [double.gte_lte]",
    "models[0].sampling.frequency_penalty [double.gte_lte]",
  ),
  ...send(
    {
      models: [
        { modelId: "m", sampling: { temperature: 0, topP: 1, presencePenalty: -2, frequencyPenalty: 2 } },
      ],
    },
    "at the edges of sampling",
  ),
  ...send(
    { models: [{ modelId: "m", sampling: { temperature: Number.NaN } }] },
    "with no number as temperature",
    "models[0].sampling.temperature [double.gte_lte]",
  ),
  ...send(
    { models: [{ modelId: "m", direct: { api: "Open AI", upstreamModel: "x" } }] },
    "with an unknown kind of api name",
    "models[0].direct.api [string.pattern]",
  ),
  ...send({ ifBusy: 77 as DoubleSendPolicy }, "with an unknown policy", "if_busy [enum.defined_only]"),
  ...send({ options: { maxCycles: 64, deadlineMs: 86_400_000 } }, "at the edges of its options"),
  ...send({ options: { maxCycles: 65 } }, "with 65 cycles", "options.max_cycles [uint32.gte_lte]"),
  ...send({ options: { maxCycles: 0 } }, "with no cycle", "options.max_cycles [uint32.gte_lte]"),
  ...send({ options: { deadlineMs: 0 } }, "with no time", "options.deadline_ms [uint32.gte_lte]"),
  ...send(
    { options: { deadlineMs: 86_400_001 } },
    "with more than a day",
    "options.deadline_ms [uint32.gte_lte]",
  ),
  ...send(
    { options: { responseJsonSchema: "x".repeat(64 * KIB + 1) } },
    "with a long schema",
    "options.response_json_schema [string.max_bytes]",
  ),
  ...send(
    { options: { clientTools: { tools: [{ name: "not a name" }] } } },
    "with a client tool of a bad name",
    "options.client_tools.tools[0].name [string.pattern]",
  ),
  ...send(
    {
      options: {
        variables: { values: Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`v${i}`, ""])) },
      },
    },
    "with 65 variables",
    "options.variables.values [map.max_pairs]",
  ),
  ...send(
    { mcpCredentials: [{ serverId: "s", headers: { "X-A": "a\r\nX-B: c" } }] },
    "with a header that breaks its line",
    'mcp_credentials[0].headers["X-A"] [string.pattern]',
  ),
  ...send(
    { newSession: { defaults: { maxCycles: 65 } } },
    "with bad session defaults",
    "new_session.defaults.max_cycles [uint32.gte_lte]",
  ),

  // Other calls of the chat services.
  row(
    "CreateSession with a long title",
    CreateSessionRequestSchema,
    { session: { title: "x".repeat(KIB + 1) } },
    "session.title [string.max_bytes]",
  ),
  row("UpdateSession without a session", UpdateSessionRequestSchema, {}, "session [required]"),
  row("GetSession without an id", GetSessionRequestSchema, {}, "session_id [get_session.target]"),
  row("GetSession by share token", GetSessionRequestSchema, { shareToken: "t" }),
  row(
    "UpdateSession without its id",
    UpdateSessionRequestSchema,
    { session: {} },
    "session.session_id [update_session.session_id]",
  ),
  row("ListSessions, 1,000 wanted", ListSessionsRequestSchema, { pageSize: 1000 }),
  row("ListSessions, 1,001 wanted", ListSessionsRequestSchema, { pageSize: 1001 }, "page_size [uint32.lte]"),
  row(
    "ListSessions with a long token",
    ListSessionsRequestSchema,
    { pageToken: "x".repeat(KIB + 1) },
    "page_token [string.max_bytes]",
  ),
  row(
    "ListTurns with an unknown status",
    ListTurnsRequestSchema,
    { statuses: [1, 99 as TurnStatus] },
    "statuses[1] [enum.defined_only]",
  ),
  row("SetFeedback of 2", SetFeedbackRequestSchema, { messageId: "m", rating: 2 }, "rating [int32.gte_lte]"),
  row(
    "Watch of 101 sessions",
    WatchRequestSchema,
    { sessionIds: Array.from({ length: 101 }, (_, i) => `s${i}`) },
    "session_ids [repeated.max_items]",
  ),
  row(
    "Watch with a cursor of no turn",
    WatchRequestSchema,
    { cursors: [{ afterSeq: 1 }] },
    "cursors[0].turn_id [string.min_len]",
  ),
  row("ResumeTurn of nothing", ResumeTurnRequestSchema, {}, "turn_id [string.min_len]"),
  row("ResumeTurn from the greatest cursor", ResumeTurnRequestSchema, { turnId: "t", afterSeq: 0xffff_ffff }),
  row("GetTurn of nothing", GetTurnRequestSchema, {}, "turn_id [string.min_len]"),
  row("StopTurn of nothing", StopTurnRequestSchema, {}, "target [required]"),
  row(
    "StopTurn of an empty turn_id",
    StopTurnRequestSchema,
    { target: { case: "turnId", value: "" } },
    "turn_id [string.min_len]",
  ),
  row("StopTurn of a request", StopTurnRequestSchema, { target: { case: "requestId", value: "r" } }),
  row("ForkTurn of nothing", ForkTurnRequestSchema, {}, "turn_id [string.min_len]"),
  row(
    "ClaimClientCall of nothing",
    ClaimClientCallRequestSchema,
    {},
    "turn_id [string.min_len]",
    "client_call_id [string.min_len]",
  ),
  row(
    "SubmitClientResult without a result",
    SubmitClientResultRequestSchema,
    { turnId: "t", clientCallId: "c" },
    "result [required]",
  ),
  row("UploadFile of 1 MiB", UploadFileRequestSchema, { uploadId: "u", data: new Uint8Array(MIB) }),
  row(
    "UploadFile of more than 1 MiB",
    UploadFileRequestSchema,
    { uploadId: "u", data: new Uint8Array(MIB + 1) },
    "data [bytes.max_len]",
  ),
  row(
    "UploadFile with a control character in its name",
    UploadFileRequestSchema,
    { uploadId: "u", name: "a\u0000b" },
    "name [string.pattern]",
  ),
  row("AddDocument without a source", AddDocumentRequestSchema, {}, "source [required]"),
  row(
    "AddDocument from a file address",
    AddDocumentRequestSchema,
    { source: { case: "url", value: "file:///etc/passwd" } },
    "url [string.pattern]",
  ),
  row("StopTurns of nothing", StopTurnsRequestSchema, {}, " [message.oneof]"),

  // The peers.
  row("StreamCompletion", StreamCompletionRequestSchema, { input }),
  row("StreamCompletion without input", StreamCompletionRequestSchema, {}, "input [required]"),
  row(
    "StreamCompletion of no model",
    StreamCompletionRequestSchema,
    { input: { ...input, modelId: "" } },
    "input.model_id [string.min_len]",
  ),
  row(
    "StreamCompletion of nobody's message",
    StreamCompletionRequestSchema,
    { input: { modelId: "m", messages: [{}] } },
    "input.messages[0].role [enum.not_in]",
  ),
  row(
    "StreamCompletion with an empty part",
    StreamCompletionRequestSchema,
    { input: { modelId: "m", messages: [{ role: 2, parts: [{}] }] } },
    "input.messages[0].parts[0].part [required]",
  ),
  row(
    "StreamCompletion with a tool of a bad name",
    StreamCompletionRequestSchema,
    { input: { ...input, tools: [{ name: "" }] } },
    "input.tools[0].name [string.pattern]",
  ),
  row(
    "StreamCompletion with a timeout of nothing",
    StreamCompletionRequestSchema,
    { input, stallTimeout: {} },
    "stall_timeout [duration.gt_lte]",
  ),
  row("DecodeCompletion of no frame", DecodeCompletionRequestSchema, {}, "frame [required]"),
  row("Embed of no text", EmbedRequestSchema, { modelId: "e" }, "inputs [repeated.min_items]"),
  row("ExecuteTool", ExecuteToolRequestSchema, execute),
  row(
    "ExecuteTool of nothing",
    ExecuteToolRequestSchema,
    {},
    "tool_id [string.min_len]",
    "idempotency_key [string.min_len]",
  ),
  row(
    "ExecuteTool with long arguments",
    ExecuteToolRequestSchema,
    { ...execute, argumentsJson: "x".repeat(MIB + 1) },
    "arguments_json [string.max_bytes]",
  ),
  row("CancelToolCall of nothing", CancelToolCallRequestSchema, {}, "idempotency_key [string.min_len]"),
];

describe("request rules - what clients are promised", () => {
  test.each(cases)("%s", (_title, message, schema, expected) => {
    expect(violations(schema, message).sort()).toEqual([...expected].sort());
  });
});
