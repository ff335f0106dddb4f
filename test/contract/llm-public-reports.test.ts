/**
 * Streams after public bug reports about other software, each with what it means: one body per rule that was missed there.
 * Every body is also cut in two at each byte.
 */
import { describe, expect, test } from "vitest";
import type { DecoderOptions, StreamDecoder } from "../../src/llm/providers/dialect.js";
import { createDialect } from "../../src/llm/providers/dialects.js";
import { DEFAULT_REASONING_TAGS } from "../../src/llm/providers/shared/reasoning-tags.js";
import type { CompletionResult } from "../support/completion-result.js";
import { decodePieces, expectSameHoweverCut } from "../support/cut-bodies.js";
import { decoderOptions } from "../support/decoder-options.js";
import { converseEvent, converseException } from "../support/event-stream-frames.js";
import { callChunk, chunk, geminiChunk, lines, namedSse, sse } from "../support/wire-bodies.js";

interface Report {
  readonly name: string;
  /** Where it was reported; "" = a variation of another. */
  readonly source: string;
  readonly body: string | Buffer;
  readonly want: Partial<CompletionResult>;
  readonly options?: Partial<DecoderOptions>;
}

type CallWanted = readonly [id: string, name: string, args: string];

/** Complete calls. */
const calls = (...list: readonly CallWanted[]): Pick<CompletionResult, "toolCalls"> => ({
  toolCalls: list.map(([id, name, args]) => ({ id, name, args, complete: true, invalid: false })),
});

const failed = (code: string, message = ""): Partial<CompletionResult> => ({
  finish: undefined,
  error: expect.objectContaining({ code, message: expect.stringContaining(message) as string }) as never,
});

const STOP = sse(chunk({}, "stop"), "[DONE]");
const CALLED = sse(chunk({}, "tool_calls"), "[DONE]");
const fn = (name: string | undefined, args: unknown): object => ({ function: { name, arguments: args } });

const OPENAI_CHAT: readonly Report[] = [
  {
    name: "an empty object before the arguments",
    source: "openai/openai-agents-js#712, BerriAI/litellm#4537",
    body:
      sse(
        callChunk({ index: 0, id: "a", ...fn("f", "{}") }),
        callChunk({ index: 0, ...fn(undefined, '{"x"') }),
        callChunk({ index: 0, ...fn(undefined, ":1}") }),
      ) + CALLED,
    want: { ...calls(["a", "f", '{"x":1}']), finish: "tool-calls", warnings: [] },
  },
  {
    name: "an empty object that stays the arguments",
    source: "openai/openai-agents-js#712",
    body: sse(callChunk({ index: 0, id: "a", ...fn("f", "{}") })) + CALLED,
    want: calls(["a", "f", "{}"]),
  },
  {
    name: "an empty object where the length limit ends the answer",
    source: "",
    body: sse(callChunk({ index: 0, id: "a", ...fn("f", {}) }), chunk({}, "length"), "[DONE]"),
    want: { ...calls(["a", "f", "{}"]), finish: "length" },
  },
  {
    name: "the whole call again with the finish",
    source: "decolua/9router#2869, lidge-jun/opencodex#361",
    body:
      sse(
        callChunk({ index: 0, id: "a", ...fn("f", '{"x"') }),
        callChunk({ index: 0, ...fn(undefined, ":1}") }),
        chunk({ tool_calls: [{ index: 0, id: "a", ...fn("f", '{"x":1}') }] }, "tool_calls"),
        chunk({}, "tool_calls"),
      ) + "data: [DONE]\n\n",
    want: { ...calls(["a", "f", '{"x":1}']), finish: "tool-calls" },
  },
  {
    name: "the whole arguments again and again",
    source: "Soju06/codex-lb#284",
    body:
      sse(
        callChunk({ index: 0, id: "a", ...fn("f", "") }),
        ...[1, 2, 3].map(() => callChunk({ index: 0, ...fn(undefined, '{"city":"Zurich"}') })),
      ) + CALLED,
    want: { ...calls(["a", "f", '{"city":"Zurich"}']), warnings: [] },
  },
  {
    name: "one id for several whole calls",
    source: "HKUDS/nanobot#3943",
    body:
      sse(
        callChunk({ index: 0, id: "a", ...fn("f", '{"x":1}') }),
        callChunk({ index: 1, id: "a", ...fn("g", '{"y":2}') }),
      ) + CALLED,
    want: calls(["a", "f", '{"x":1}'], ["call_1", "g", '{"y":2}']),
  },
  {
    name: "one id for several calls that come in pieces",
    source: "OpenRouterTeam/ai-sdk-provider#471",
    body:
      sse(
        callChunk({ index: 0, id: "a", ...fn("f", "") }),
        callChunk({ index: 1, id: "a", ...fn("f", "") }),
        callChunk({ index: 0, id: "a", ...fn(undefined, '{"x":') }),
        callChunk({ index: 1, id: "a", ...fn(undefined, '{"y":') }),
        callChunk({ index: 0, ...fn(undefined, "1}") }, { index: 1, ...fn(undefined, "2}") }),
      ) + CALLED,
    want: calls(["a", "f", '{"x":1}'], ["call_1", "f", '{"y":2}']),
  },
  {
    name: "ids that are empty, for parallel calls",
    source: "OpenRouterTeam/ai-sdk-provider#471",
    body:
      sse(
        callChunk({ index: 0, id: "", ...fn("f", '{"x":1}') }),
        callChunk({ index: 1, id: null, ...fn("f", '{"x":1}') }),
      ) + CALLED,
    want: calls(["call_1", "f", '{"x":1}'], ["call_2", "f", '{"x":1}']),
  },
  {
    name: "index 0 for every call",
    source: "vercel/ai#14277, ollama/ollama#15457",
    body:
      sse(
        callChunk({ index: 0, id: "a", ...fn("f", '{"x":1}') }),
        callChunk({ index: 0, id: "b", ...fn("f", '{"x":2}') }),
      ) + CALLED,
    want: calls(["a", "f", '{"x":1}'], ["b", "f", '{"x":2}']),
  },
  {
    name: "index 0 for every call, which has it in pieces without an id",
    source: "InternLM/lmdeploy#3412",
    body:
      sse(
        callChunk({ index: 0, id: "a", ...fn("f", "") }),
        callChunk({ index: 0, id: "", ...fn(undefined, '{"x":1}') }),
        callChunk({ index: 0, id: "b", ...fn("g", "") }),
        callChunk({ index: 0, id: "", ...fn(undefined, '{"y":') }),
        callChunk({ index: 0, id: "", ...fn(undefined, "2}") }),
      ) + CALLED,
    want: calls(["a", "f", '{"x":1}'], ["b", "g", '{"y":2}']),
  },
  {
    name: "an index that is a text",
    source: "sgl-project/sglang#6310",
    body:
      sse(
        callChunk({ index: "0", id: "a", ...fn("f", "") }, { index: "1", id: "b", ...fn("g", "") }),
        callChunk({ index: "0", ...fn(undefined, '{"x":1}') }),
        callChunk({ index: "1", ...fn(undefined, '{"y":2}') }),
      ) + CALLED,
    want: calls(["a", "f", '{"x":1}'], ["b", "g", '{"y":2}']),
  },
  {
    name: "the name again with each piece",
    source: "maximhq/bifrost#1829",
    body:
      sse(
        callChunk({ index: 0, id: "a", ...fn("search", '{"q":') }),
        callChunk({ index: 0, id: "a", ...fn("search", '"x"') }),
        callChunk({ index: 0, id: "a", ...fn("search", "}") }),
      ) + CALLED,
    want: calls(["a", "search", '{"q":"x"}']),
  },
  {
    name: "the name as far as it has come",
    source: "",
    body:
      sse(
        callChunk({ index: 0, id: "a", ...fn("get_", "") }),
        callChunk({ index: 0, id: "a", ...fn("get_weather", "") }),
        callChunk({ index: 0, ...fn(undefined, '{"q":1}') }),
      ) + CALLED,
    want: calls(["a", "get_weather", '{"q":1}']),
  },
  {
    name: "one call that is not in a list",
    source: "",
    body: sse(chunk({ tool_calls: { id: "a", ...fn("f", { x: 1 }) } })) + CALLED,
    want: calls(["a", "f", '{"x":1}']),
  },
  {
    name: "arguments that were encoded twice are not handed on as whole",
    source: "vllm-project/vllm#54964",
    body: sse(callChunk({ index: 0, id: "a", ...fn("f", '"{\\"x\\":1}"') })) + CALLED,
    want: {
      toolCalls: [{ id: "a", name: "f", args: '"{\\"x\\":1}"', complete: false, invalid: true }],
      warnings: ["UPSTREAM_MALFORMED"],
    },
  },
  {
    name: "interleaved calls that the length limit cuts",
    source: "14790897/MiqroForge-Desktop#1100",
    body: sse(
      callChunk({ index: 0, id: "a", ...fn("f", '{"x":') }, { index: 1, id: "b", ...fn("g", '{"y":') }),
      chunk({}, "length"),
      "[DONE]",
    ),
    want: {
      toolCalls: [
        { id: "a", name: "f", args: '{"x":', complete: false, invalid: false },
        { id: "b", name: "g", args: '{"y":', complete: false, invalid: false },
      ],
      finish: "length",
    },
  },
  {
    name: "an error without a field name",
    source: "stacklok/toolhive#6037, snailyp/gemini-balance#347",
    body: `${sse(chunk({ content: "Hel" }))}{"error":{"message":"engine died","code":500}}\n\n`,
    want: { text: "Hel", ...failed("UPSTREAM_UNAVAILABLE", "engine died") },
  },
  {
    name: "an error without a field name, over several lines",
    source: "",
    body: `${sse(chunk({ content: "Hel" }))}{\n  "error": {\n    "message": "engine died"\n  }\n}\n`,
    want: { text: "Hel", ...failed("UPSTREAM_UNAVAILABLE", "engine died"), warnings: [] },
  },
  {
    name: "an error in a list",
    source: "maximhq/bifrost#5188",
    body: sse(chunk({ content: "Hel" }), '[{"error":{"code":429,"message":"slow down"}}]'),
    want: { text: "Hel", ...failed("RATE_LIMIT", "slow down") },
  },
  {
    name: "an error that is a list",
    source: "",
    body: sse({ error: [{ message: "engine died" }] }),
    want: failed("UPSTREAM_UNAVAILABLE", "engine died"),
  },
  {
    name: "an error in an error",
    source: "",
    body: sse({ error: { error: { message: "bad key", code: 401 } } }),
    want: failed("UPSTREAM_AUTH", "bad key"),
  },
  {
    name: "an error that is a switch beside its message",
    source: "",
    body: sse({ error: true, message: "no capacity", status: 503 }),
    want: failed("UPSTREAM_UNAVAILABLE", "no capacity"),
  },
  {
    name: "an error named so, whose type is its kind",
    source: "use-agent-os/agent-os#2137",
    body: 'event: error\ndata: {"type":"rate_limit_error","message":"slow down"}\n\n',
    want: failed("RATE_LIMIT", "slow down"),
  },
  {
    name: "an error in a result beside null choices",
    source: "CherryHQ/cherry-studio#11287, milind-soni/OpenMausBot#1200",
    body: sse({ id: "x", choices: null, base_resp: { status_code: 1004, status_msg: "login fail" } }),
    want: failed("UPSTREAM_UNAVAILABLE", "login fail"),
  },
  {
    name: "a result that is none beside choices",
    source: "milind-soni/OpenMausBot#1200",
    body: sse(chunk({ content: "Hi" }, "stop", { base_resp: { status_code: 0, status_msg: "" } })),
    want: { text: "Hi", finish: "stop", error: undefined },
  },
  {
    name: "a list of errors instead of choices",
    source: "",
    body: JSON.stringify({
      success: false,
      errors: [{ code: 7009, message: "no such model" }],
      result: null,
    }),
    want: failed("UPSTREAM_UNAVAILABLE", "no such model"),
  },
  {
    name: "a flat error with a code",
    source: "",
    body: sse({ code: "InvalidParameter", message: "bad input", request_id: "r" }),
    want: failed("UPSTREAM_UNAVAILABLE", "bad input"),
  },
  {
    name: "a flat error in a detail",
    source: "",
    body: sse({ detail: "Input is too long for the model" }),
    want: failed("CONTEXT_TOO_LONG", "too long"),
  },
  {
    name: "a result beside empty choices is no error",
    source: "",
    body: sse(chunk({ content: "Hi" }), { status: "running", choices: [] }) + STOP,
    want: { text: "Hi", finish: "stop", error: undefined },
  },
  {
    name: "prose in an event",
    source: "diegosouzapw/OmniRoute#4937, lucasjinreal/Crane#121",
    body: sse(chunk({ content: "Hi" }), "error: <html>") + STOP,
    want: { text: "Hi", finish: "stop", warnings: ["UPSTREAM_MALFORMED"] },
  },
  {
    name: "events without data",
    source: "openclaw/openclaw#52679",
    body: `event: ping\n\ndata:\n\ndata: \n\ndata:   \n\n${sse(chunk({ content: "Hi" }))}id: 7\n\n${STOP}`,
    want: { text: "Hi", finish: "stop", warnings: [] },
  },
  {
    name: "a comment that was framed as data",
    source: "mnfst/llm-gateway#2053",
    body: sse(": OPENROUTER PROCESSING", chunk({ content: "Hi" })) + STOP,
    want: { text: "Hi", finish: "stop", warnings: [] },
  },
  {
    name: "data that was framed twice",
    source: "openclaw/openclaw#96497",
    body: sse(
      `data: ${JSON.stringify(chunk({ content: "Hi" }))}`,
      `data:${JSON.stringify(chunk({}, "stop"))}`,
      "data: [DONE]",
    ),
    want: { text: "Hi", finish: "stop", warnings: [] },
  },
  {
    name: "server-sent events announced as JSON",
    source: "openclaw/openclaw#97474",
    body: sse(chunk({ content: "Hi" })) + STOP,
    options: { contentType: "application/json" },
    want: { text: "Hi", finish: "stop" },
  },
  {
    name: "events parted by one line feed",
    source: "SillyTavern/SillyTavern#1482",
    body: (sse(chunk({ content: "H" }), chunk({ content: "i" })) + STOP).replaceAll("\n\n", "\n"),
    want: { text: "Hi", finish: "stop", warnings: [] },
  },
  {
    name: "events that end in CR LF twice",
    source: "farion1231/cc-switch#1787",
    body: (sse(chunk({ content: "Hi" })) + STOP).replaceAll("\n", "\r\n"),
    want: { text: "Hi", finish: "stop" },
  },
  {
    name: "lines of JSON, announced as such",
    source: "",
    body: lines(chunk({ content: "Hi" }), chunk({}, "stop")),
    options: { contentType: "application/x-ndjson" },
    want: { text: "Hi", finish: "stop", warnings: [] },
  },
  {
    name: "an end mark in quotes",
    source: "",
    body: sse(chunk({ content: "Hi" }), '"[DONE]"'),
    want: { text: "Hi", finish: "stop", warnings: [] },
  },
  {
    name: "an empty reason on every chunk, and no other",
    source: "ollama/ollama#4357",
    body: sse(chunk({ content: "H" }, ""), chunk({ content: "i" }, "")),
    want: { text: "Hi", ...failed("UPSTREAM_TRUNCATED") },
  },
  {
    name: "a generation that the server gave up",
    source: "theopenco/llmgateway#1701",
    body: sse(chunk({ content: "Hi" }), chunk({}, "abort"), "[DONE]"),
    want: { text: "Hi", ...failed("UPSTREAM_UNAVAILABLE", "abort") },
  },
  {
    name: "a reason with its cause behind a colon",
    source: "coder/coder#28470",
    body: sse(
      chunk({ reasoning: "Hm" }),
      chunk({}, "function_call_filter: MALFORMED_FUNCTION_CALL"),
      "[DONE]",
    ),
    want: { reasoning: "Hm", ...failed("UPSTREAM_UNAVAILABLE", "function_call_filter") },
  },
  {
    name: "words for the length limit and the filter",
    source: "aws-samples/bedrock-access-gateway",
    body: sse(chunk({ content: "Hi" }), chunk({}, "content_filtered")),
    want: { finish: "content-filter", rawFinish: "content_filtered" },
  },
  {
    name: "the reason is only known at the last chunk",
    source: "BerriAI/litellm#21744",
    body: sse(chunk({ content: "H" }, "not_finished"), chunk({ content: "i" }, "model_length")),
    want: { text: "Hi", finish: "length" },
  },
  {
    name: "an empty role",
    source: "MiniMax-AI/MiniMax-M2.5#2",
    body: sse(chunk({ role: "", content: "Hi", reasoning_content: "" })) + STOP,
    want: { text: "Hi", reasoning: "", finish: "stop" },
  },
  {
    name: "content in parts: thinking, references, text",
    source: "meilisearch/meilisearch#6327, symfony/ai#2422, BerriAI/litellm#16272",
    body:
      sse(
        chunk({ content: [{ type: "thinking", thinking: [{ type: "text", text: "Hm" }] }] }),
        chunk({
          content: [
            { type: "reference", reference_ids: [1] },
            { type: "text", text: "H" },
          ],
        }),
        chunk({ content: ["i"] }),
        chunk({ content: { type: "text", text: "!" } }),
      ) + STOP,
    want: { reasoning: "Hm", text: "Hi!", order: ["reasoning", "text"] },
  },
  {
    name: "reasoning as a summary in a part",
    source: "",
    body:
      sse(
        chunk({
          content: [{ type: "reasoning", summary: [{ type: "summary_text", text: "Hm", signature: "s" }] }],
        }),
      ) + STOP,
    want: { reasoning: "Hm", text: "" },
  },
  ...["reasoning_content", "reasoning", "reasoning_text", "thinking", "thinking_content"].map((name) => ({
    name: `reasoning in ${name}`,
    source: "betagouv/ComparIA#330",
    body: sse(chunk({ [name]: "Hm", content: null }), chunk({ content: "Hi" })) + STOP,
    want: { reasoning: "Hm", text: "Hi", order: ["reasoning", "text"] },
  })),
  {
    name: "counts under the names of another API",
    source: "earendil-works/pi#2326",
    body: sse(
      chunk({ content: "Hi" }, "stop", {
        usage: { input_tokens: 11, output_tokens: "5", cache_read_input_tokens: 3 },
      }),
    ),
    want: { usage: { input: 11, output: 5, reasoning: 0, cached: 3, cacheWrite: 0 } },
  },
  {
    name: "sources only among the search results",
    source: "",
    body: sse(
      chunk({ content: "Hi" }, null, { search_results: [{ url: "https://a.test/", title: "A" }] }),
      chunk({}, "stop", { web_search: [{ link: "https://a.test/" }, { link: "https://b.test/" }] }),
    ),
    want: { sources: ["https://a.test/", "https://b.test/"] },
  },
  {
    name: "what may become a tag comes before the call",
    source: "ollama/ollama#17284",
    body:
      sse(chunk({ content: "Let me look <" }), callChunk({ index: 0, id: "a", ...fn("f", '{"x":1}') })) +
      CALLED,
    options: { reasoningTags: DEFAULT_REASONING_TAGS },
    want: { text: "Let me look <", order: ["text", "tool_call"] },
  },
  {
    name: "a tag in pieces, then a call",
    source: "pydantic/pydantic-ai#6021",
    body:
      sse(
        ...["<th", "ink>Hm</thi", "nk>", "So"].map((content) => chunk({ content })),
        callChunk({ index: 0, id: "a", ...fn("f", "{}") }),
      ) + CALLED,
    options: { reasoningTags: DEFAULT_REASONING_TAGS },
    want: { reasoning: "Hm", text: "So", order: ["reasoning", "text", "tool_call"] },
  },
];

const started = { type: "message_start", message: { id: "m", usage: { input_tokens: 3, output_tokens: 1 } } };
const opens = (index: unknown, content_block: object) => ({
  type: "content_block_start",
  index,
  content_block,
});
const piece = (index: unknown, delta: object) => ({ type: "content_block_delta", index, delta });
const closes = (index: unknown) => ({ type: "content_block_stop", index });
const stops = (stop_reason: string) => ({
  type: "message_delta",
  delta: { stop_reason },
  usage: { output_tokens: 7 },
});
const STOPPED = { type: "message_stop" };

const ANTHROPIC: readonly Report[] = [
  {
    name: "an error event whose type is its kind",
    source: "Pasta-Devs/Marinara-Engine#2659, jeremychone/rust-genai#157",
    body: `${namedSse(started, opens(0, { type: "text", text: "Hel" }))}event: error\ndata: {"type":"overloaded_error","message":"Overloaded"}\n\n`,
    want: { text: "Hel", ...failed("UPSTREAM_UNAVAILABLE", "Overloaded") },
  },
  {
    name: "arguments only in the start of the block",
    source: "Yeachan-Heo/gajae-code#1895, inflaborg/ccrelay#119",
    body: namedSse(
      started,
      opens(0, { type: "tool_use", id: "a", name: "f", input: { x: 1 } }),
      closes(0),
      stops("tool_use"),
      STOPPED,
    ),
    want: calls(["a", "f", '{"x":1}']),
  },
  {
    name: "arguments only in the start of the block, as text",
    source: "",
    body: namedSse(
      started,
      opens(0, { type: "tool_use", id: "a", name: "f", input: '{"x":1}' }),
      closes(0),
      stops("tool_use"),
      STOPPED,
    ),
    want: calls(["a", "f", '{"x":1}']),
  },
  {
    name: "a piece of the arguments that is an object",
    source: "",
    body: namedSse(
      started,
      opens(0, { type: "tool_use", id: "a", name: "f", input: {} }),
      piece(0, { type: "input_json_delta", partial_json: { x: 1 } }),
      closes(0),
      stops("tool_use"),
      STOPPED,
    ),
    want: calls(["a", "f", '{"x":1}']),
  },
  {
    name: "arguments in small pieces",
    source: "bojieli/ai-agent-book#194, jyjeanne/crustly#38",
    body: namedSse(
      started,
      opens("1", { type: "tool_use", id: "a", name: "f", input: {} }),
      ...['{"fi', 'le":', '"a"}'].map((text) => piece("1", { type: "input_json_delta", partial_json: text })),
      closes("1"),
      stops("tool_use"),
      STOPPED,
    ),
    want: calls(["a", "f", '{"file":"a"}']),
  },
  {
    name: "one id for several calls",
    source: "HKUDS/nanobot#4473",
    body: namedSse(
      started,
      ...[0, 1].flatMap((at) => [
        opens(at, { type: "tool_use", id: "grep:3", name: "f", input: { at } }),
        closes(at),
      ]),
      stops("tool_use"),
      STOPPED,
    ),
    want: calls(["grep:3", "f", '{"at":0}'], ["call_1", "f", '{"at":1}']),
  },
  {
    name: "a stop reason that does not stand in a delta",
    source: "",
    body: namedSse(started, opens(0, { type: "text", text: "Hi" }), {
      type: "message_delta",
      stop_reason: "max_tokens",
    } as never),
    want: { text: "Hi", finish: "length" },
  },
  {
    name: "ends without a word",
    source: "ranxianglei/billion-context#440, QwenLM/qwen-code#9005",
    body: namedSse(started, opens(0, { type: "text", text: "Hi" }), closes(0)),
    want: { text: "Hi", ...failed("UPSTREAM_TRUNCATED") },
  },
];

const item = (type: string, output_index: unknown, of: object) => ({
  type: `response.${type}`,
  output_index,
  ...of,
});
const callItem = (id: string, name: string, args: unknown, status = "completed") => ({
  ...{ type: "function_call", id: `fc_${id}`, call_id: id, name, arguments: args, status },
});
const completed = (more: object = {}) => ({
  type: "response.completed",
  response: { id: "r", status: "completed", ...more },
});

const RESPONSES: readonly Report[] = [
  {
    name: "one place for parallel calls, told apart by their ids",
    source: "can1357/oh-my-pi#1882, diegosouzapw/OmniRoute#11144",
    body: namedSse(
      item("output_item.added", 0, { item: callItem("a", "f", "") }),
      item("output_item.added", 0, { item: callItem("b", "g", "") }),
      item("function_call_arguments.delta", 0, { item_id: "fc_a", delta: '{"x":1}' }),
      item("function_call_arguments.delta", 0, { item_id: "fc_b", delta: '{"y":2}' }),
      item("output_item.done", 0, { item: callItem("a", "f", '{"x":1}') }),
      item("output_item.done", 0, { item: callItem("b", "g", '{"y":2}') }),
      completed(),
    ),
    want: calls(["a", "f", '{"x":1}'], ["b", "g", '{"y":2}']),
  },
  {
    name: "a text at the place of a call",
    source: "tashfeenahmed/freellmapi#846, teabranch/open-responses-server#63",
    body: namedSse(
      item("output_item.added", 0, { item: callItem("a", "f", "") }),
      item("output_item.added", 0, { item: { type: "message", id: "msg" } }),
      item("output_text.delta", 0, { item_id: "msg", content_index: 0, delta: "Hi" }),
      item("function_call_arguments.done", 0, { item_id: "fc_a", arguments: '{"x":1}' }),
      completed(),
    ),
    want: { text: "Hi", ...calls(["a", "f", '{"x":1}']) },
  },
  {
    name: "arguments that are an object",
    source: "",
    body: namedSse(item("output_item.done", 0, { item: callItem("a", "f", { x: 1 }) }), completed()),
    want: calls(["a", "f", '{"x":1}']),
  },
  {
    name: "a call that only the last event knows",
    source: "Oaklight/llm-rosetta#418",
    body: namedSse(
      item("output_text.delta", 0, { item_id: "msg", content_index: 0, delta: "Hi" }),
      completed({
        output: [
          { type: "message", content: [{ type: "output_text", text: "Hi" }] },
          callItem("a", "f", '{"x":1}'),
        ],
      }),
    ),
    want: { text: "Hi", ...calls(["a", "f", '{"x":1}']), finish: "tool-calls" },
  },
  {
    name: "incomplete, and no word why",
    source: "pydantic/pydantic-ai#7912",
    body: namedSse(item("output_text.delta", 0, { delta: "Hi" }), {
      type: "response.incomplete",
      response: { status: "incomplete", incomplete_details: null },
    } as never),
    want: { text: "Hi", finish: "length" },
  },
  {
    name: "completed by name, incomplete by status",
    source: "pydantic/pydantic-ai#7912",
    body: namedSse(
      item("output_text.delta", 0, { delta: "Hi" }),
      completed({ status: "incomplete", incomplete_details: { reason: "content_filter" } }),
    ),
    want: { text: "Hi", finish: "content-filter" },
  },
  {
    name: "an error event whose type is its kind",
    source: "",
    body: 'event: error\ndata: {"type":"server_error","message":"boom"}\n\n',
    want: failed("UPSTREAM_UNAVAILABLE", "boom"),
  },
];

const GEMINI: readonly Report[] = [
  {
    name: "an error in a list, as an event",
    source: "maximhq/bifrost#5188, googleapis/python-genai#1162",
    body: sse(
      geminiChunk([{ text: "Hel" }]),
      '[{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}]',
    ),
    want: { text: "Hel", ...failed("UPSTREAM_UNAVAILABLE", "busy") },
  },
  {
    name: "a list that breaks off with an error",
    source: "flachesis/gemini-rust#29, nyo16/nous#26",
    body: JSON.stringify(
      [geminiChunk([{ text: "Hel" }]), { error: { code: 429, message: "quota" } }],
      null,
      2,
    ),
    want: { text: "Hel", ...failed("RATE_LIMIT", "quota") },
  },
  {
    name: "an error named so",
    source: "",
    body: 'event: error\ndata: {"code":503,"message":"busy","status":"UNAVAILABLE"}\n\n',
    want: failed("UPSTREAM_UNAVAILABLE", "busy"),
  },
  {
    name: "arguments that are text",
    source: "",
    body: sse(geminiChunk([{ functionCall: { name: "f", args: '{"x":1}' } }], { finishReason: "STOP" })),
    want: calls(["call_1", "f", '{"x":1}']),
  },
  {
    name: "arguments that are no object",
    source: "",
    body: sse(geminiChunk([{ functionCall: { name: "f", args: "x=1" } }], { finishReason: "STOP" })),
    want: { toolCalls: [expect.objectContaining({ complete: false, invalid: true }) as never] },
  },
  {
    name: "two calls under one id",
    source: "brainlid/langchain#620",
    body: sse(
      geminiChunk([{ functionCall: { id: "call-f", name: "f", args: { x: 1 } } }]),
      geminiChunk([{ functionCall: { id: "call-f", name: "f", args: { x: 1 } } }], { finishReason: "STOP" }),
    ),
    want: calls(["call-f", "f", '{"x":1}'], ["call_1", "f", '{"x":1}']),
  },
  {
    name: "a bare text among the events",
    source: "maximhq/bifrost#5188",
    body: sse(geminiChunk([{ text: "Hi" }]), '"message"', geminiChunk([], { finishReason: "STOP" })),
    want: { text: "Hi", finish: "stop", warnings: ["UPSTREAM_MALFORMED"] },
  },
  {
    name: "a malformed call without content",
    source: "BerriAI/litellm#21744",
    body: sse({ candidates: [{ content: {}, finishReason: "MALFORMED_FUNCTION_CALL" }] }),
    want: failed("UPSTREAM_MALFORMED"),
  },
];

const OLLAMA: readonly Report[] = [
  {
    name: "lines that a relay made server-sent events",
    source: "",
    body: sse(
      { message: { content: "H" } },
      { message: { content: "i" } },
      { done: true, done_reason: "stop" },
    ),
    want: { text: "Hi", finish: "stop", warnings: [] },
  },
  {
    name: "arguments that are text, null or missing",
    source: "",
    body: lines(
      { message: { tool_calls: [{ function: { name: "f", arguments: '{"x":1}' } }] } },
      {
        message: { tool_calls: [{ function: { name: "g", arguments: null } }, { function: { name: "h" } }] },
      },
      { done: true, done_reason: "stop" },
    ),
    want: {
      ...calls(["call_1", "f", '{"x":1}'], ["call_2", "g", "{}"], ["call_3", "h", "{}"]),
      finish: "tool-calls",
    },
  },
  {
    name: "a list of arguments",
    source: "",
    body: lines({ message: { tool_calls: [{ function: { name: "f", arguments: [1] } }] } }, { done: true }),
    want: { toolCalls: [expect.objectContaining({ args: "[1]", complete: false, invalid: true }) as never] },
  },
];

const cohere = (type: string, message: object, index = 0) => ({ type, index, delta: { message } });
const COHERE_END = { type: "message-end", delta: { finish_reason: "TOOL_CALL" } };

const COHERE: readonly Report[] = [
  {
    name: "calls in a list, arguments as an object",
    source: "",
    body: namedSse(
      cohere("tool-call-start", { tool_calls: [{ id: "a", function: { name: "f", arguments: { x: 1 } } }] }),
      COHERE_END,
    ),
    want: calls(["a", "f", '{"x":1}']),
  },
  {
    name: "content in a list",
    source: "",
    body: namedSse(cohere("content-delta", { content: [{ text: "Hi" }] }), {
      type: "message-end",
      delta: { finish_reason: "max_tokens" },
    } as never),
    want: { text: "Hi", finish: "length" },
  },
  {
    name: "an error named so",
    source: "",
    body: 'event: error\ndata: {"message":"too many requests","status":429}\n\n',
    want: failed("RATE_LIMIT", "too many"),
  },
];

const BEDROCK: readonly Report[] = [
  {
    name: "arguments that are an object",
    source: "",
    body: Buffer.concat([
      converseEvent("contentBlockStart", {
        contentBlockIndex: 0,
        start: { toolUse: { toolUseId: "a", name: "f" } },
      }),
      converseEvent("contentBlockDelta", { contentBlockIndex: 0, delta: { toolUse: { input: { x: 1 } } } }),
      converseEvent("contentBlockStop", { contentBlockIndex: 0 }),
      converseEvent("messageStop", { stopReason: "tool_use" }),
    ]),
    want: calls(["a", "f", '{"x":1}']),
  },
  {
    name: "one id for several calls",
    source: "agno-agi/agno#2336",
    body: Buffer.concat([
      ...[0, 1].flatMap((at) => [
        converseEvent("contentBlockStart", {
          contentBlockIndex: at,
          start: { toolUse: { toolUseId: "a", name: "f" } },
        }),
        converseEvent("contentBlockDelta", {
          contentBlockIndex: at,
          delta: { toolUse: { input: `{"at":${at}}` } },
        }),
        converseEvent("contentBlockStop", { contentBlockIndex: at }),
      ]),
      converseEvent("messageStop", { stopReason: "tool_use" }),
    ]),
    want: calls(["a", "f", '{"at":0}'], ["call_1", "f", '{"at":1}']),
  },
  {
    name: "an exception after text",
    source: "",
    body: Buffer.concat([
      converseEvent("contentBlockDelta", { contentBlockIndex: 0, delta: { text: "Hel" } }),
      converseException("throttlingException", "slow down"),
    ]),
    want: { text: "Hel", ...failed("RATE_LIMIT", "slow down") },
  },
];

const REPORTS: Readonly<Record<string, readonly Report[]>> = {
  "openai-chat": OPENAI_CHAT,
  "anthropic-messages": ANTHROPIC,
  "openai-responses": RESPONSES,
  gemini: GEMINI,
  "ollama-chat": OLLAMA,
  "cohere-v2": COHERE,
  "bedrock-converse": BEDROCK,
};

for (const [api, reports] of Object.entries(REPORTS)) {
  const dialect = createDialect(api, { baseUrl: "https://upstream.test/v1", quirks: {} });
  describe(`public reports - ${api}`, () => {
    for (const { name, body, want, options } of reports) {
      test(name, () => {
        const decoder = (): StreamDecoder => dialect.createDecoder(decoderOptions(options));
        const bytes = Buffer.from(body);
        const got = decodePieces(decoder(), [bytes]);
        expect(got).toMatchObject(want);
        expect(got.finish === undefined).toBe(got.error !== undefined);
        expectSameHoweverCut(decoder, bytes, got);
      });
    }
  });
}
