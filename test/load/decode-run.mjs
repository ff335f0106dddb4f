/** The measured process of the decode benchmark: `decode-run.mjs PEERS TESTDATA RUNS BATCH_MS`; prints its figures as JSON. */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { createDialect } from "../../dist/src/llm/providers/dialects.js";

const [peers, testData, runs, batchMs] = process.argv.slice(2);
const PIECE_BYTES = 4096;
const require = createRequire(path.join(peers, "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);

const { createOpenAI } = await load("@ai-sdk/openai");
const { createAnthropic } = await load("@ai-sdk/anthropic");
const { createGroq } = await load("@ai-sdk/groq");
const { createDeepSeek } = await load("@ai-sdk/deepseek");
const { default: OpenAI } = await load("openai");
const { default: Anthropic } = await load("@anthropic-ai/sdk");

const openAiChat = { dialect: "openai-chat", official: officialChat };
const RECORDINGS = [
  { ...openAiChat, body: "openai/vercel-openai-text.sse", ai: (o) => createOpenAI(o).chat("m") },
  { ...openAiChat, body: "groq/vercel-groq-reasoning.sse", ai: (o) => createGroq(o)("m") },
  {
    ...openAiChat,
    body: "deepseek/otl-streaming-with-api-usage-and-events.sse",
    ai: (o) => createDeepSeek(o)("m"),
  },
  {
    dialect: "anthropic-messages",
    body: "anthropic/pyd-pause-turn-web-search-streaming-vcr-0.sse",
    ai: (o) => createAnthropic(o)("m"),
    official: officialMessages,
  },
  {
    dialect: "openai-responses",
    body: "openai-responses/pyd-openai-responses-thinking-part-iter.sse",
    ai: (o) => createOpenAI(o).responses("gpt-5"),
    official: officialResponses,
  },
  {
    dialect: "openai-responses",
    body: "xai/vercel-xai-text-streaming-1-responses.sse",
    ai: (o) => createOpenAI(o).responses("gpt-5"),
    official: officialResponses,
  },
];

function piecesOf(bytes) {
  const pieces = [];
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) pieces.push(bytes.subarray(at, at + PIECE_BYTES));
  return pieces;
}

/** A fetch that answers with the recording. */
function replay(pieces) {
  return () => {
    let next = 0;
    const body = new ReadableStream({
      pull(controller) {
        if (next < pieces.length) controller.enqueue(pieces[next++]);
        else controller.close();
      },
    });
    return Promise.resolve(new Response(body, { headers: { "content-type": "text/event-stream" } }));
  };
}

const emptyResult = () => ({ text: "", reasoning: "", calls: "" });

function turnwire({ dialect }, pieces) {
  const made = createDialect(dialect, { baseUrl: "https://api.test/v1", quirks: {} });
  return () => {
    const decoder = made.createDecoder({
      attempt: 1,
      newCallId: () => "call",
      secrets: [],
      reasoningTags: [],
      reasoningOpen: false,
      maxEventBytes: 8 << 20,
      maxResponseBytes: 64 << 20,
      contentType: "text/event-stream",
    });
    const result = emptyResult();
    const take = (deltas) => {
      for (const { delta } of deltas) {
        if (delta.case === "content") result.text += delta.value.text;
        else if (delta.case === "reasoning") result.reasoning += delta.value.text;
        else if (delta.case === "toolCall") result.calls += delta.value.name + delta.value.argumentsFragment;
      }
    };
    for (const piece of pieces) take(decoder.push(piece));
    take(decoder.end());
    return result;
  };
}

function aiSdk({ ai }, pieces) {
  const model = ai({ apiKey: "none", fetch: replay(pieces) });
  const prompt = [{ role: "user", content: [{ type: "text", text: "x" }] }];
  return async () => {
    const result = emptyResult();
    const { stream } = await model.doStream({ prompt });
    for await (const part of stream) {
      if (part.type === "text-delta") result.text += part.delta;
      else if (part.type === "reasoning-delta") result.reasoning += part.delta;
      else if (part.type === "tool-call" && !part.providerExecuted)
        result.calls += part.toolName + part.input;
    }
    return result;
  };
}

const messages = [{ role: "user", content: "x" }];

function officialChat(pieces) {
  const client = new OpenAI({ apiKey: "none", fetch: replay(pieces), maxRetries: 0 });
  return async () => {
    const result = emptyResult();
    for await (const { choices } of await client.chat.completions.create({
      model: "m",
      messages,
      stream: true,
    })) {
      const delta = choices?.[0]?.delta;
      if (delta?.content) result.text += delta.content;
      result.reasoning += delta?.reasoning_content ?? delta?.reasoning ?? "";
      for (const { function: call } of delta?.tool_calls ?? [])
        result.calls += (call?.name ?? "") + (call?.arguments ?? "");
    }
    return result;
  };
}

function officialResponses(pieces) {
  const client = new OpenAI({ apiKey: "none", fetch: replay(pieces), maxRetries: 0 });
  return async () => {
    const result = emptyResult();
    for await (const event of await client.responses.create({ model: "m", input: "x", stream: true })) {
      if (event.type === "response.output_text.delta") result.text += event.delta;
      else if (event.type.startsWith("response.reasoning") && event.type.endsWith("text.delta"))
        result.reasoning += event.delta;
    }
    return result;
  };
}

function officialMessages(pieces) {
  const client = new Anthropic({ apiKey: "none", fetch: replay(pieces), maxRetries: 0 });
  return async () => {
    const result = emptyResult();
    for await (const event of await client.messages.create({
      model: "m",
      max_tokens: 1,
      messages,
      stream: true,
    })) {
      if (event.type !== "content_block_delta") continue;
      if (event.delta.type === "text_delta") result.text += event.delta.text;
      else if (event.delta.type === "thinking_delta") result.reasoning += event.delta.thinking;
    }
    return result;
  };
}

/** What any decoder has to do at least. */
function floor(bytes) {
  const decoder = new TextDecoder();
  return () => {
    let parsed = 0;
    for (const line of decoder.decode(bytes).split("\n")) {
      if (!line.startsWith("data: {")) continue;
      if (JSON.parse(line.slice(6))) parsed++;
    }
    return { parsed };
  };
}

/** CPU microseconds of one call, over a batch. */
async function measure(work, times) {
  const before = process.cpuUsage();
  for (let i = 0; i < times; i++) await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / times;
}

/** How often a batch repeats the work, from a warm-up of the same length. */
async function batchSize(work) {
  const until = performance.now() + Number(batchMs);
  let times = 0;
  while (performance.now() < until) {
    await work();
    times++;
  }
  return Math.max(1, times);
}

function compare(ours, others) {
  const wrong = Object.entries(others).flatMap(([name, result]) =>
    ["text", "reasoning"]
      .filter((field) => result[field] !== ours[field])
      .map((field) => `${name}: ${field} differs`),
  );
  return wrong.length === 0 ? "yes" : wrong.join(", ");
}

const recordings = [];
for (const recording of RECORDINGS) {
  const bytes = new Uint8Array(readFileSync(path.join(testData, "corpus", recording.body)));
  const pieces = piecesOf(bytes);
  const ways = {
    turnwire: turnwire(recording, pieces),
    ai: aiSdk(recording, pieces),
    official: recording.official(pieces),
    floor: floor(bytes),
  };
  const same = compare(await ways.turnwire(), { ai: await ways.ai(), official: await ways.official() });
  const times = {};
  for (const [name, work] of Object.entries(ways)) times[name] = await batchSize(work);
  const rounds = [];
  for (let run = 0; run < Number(runs); run++) {
    const round = {};
    for (const [name, work] of Object.entries(ways)) round[name] = await measure(work, times[name]);
    rounds.push(round);
  }
  recordings.push({
    name: recording.body,
    bytes: bytes.length,
    events: (await ways.floor()).parsed,
    rounds,
    same,
  });
  console.error(`measured ${recording.body}`);
}
const versions = ["ai", "openai", "@anthropic-ai/sdk"].map((name) => {
  const { version } = JSON.parse(
    readFileSync(path.join(peers, "node_modules", name, "package.json"), "utf8"),
  );
  return `${name} ${version}`;
});
console.log(
  JSON.stringify({ node: process.version, versions: versions.join(", "), runs: Number(runs), recordings }),
);
