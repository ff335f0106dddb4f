/**
 * The model that needs no key: a fixed play that shows what a turn looks like, and says that it is one. Deterministic: the
 * same conversation gives the same deltas. Reasoning, then tool calls if fitting tools are offered and none was used yet, else
 * an answer that quotes what the tools said.
 */
import { create } from "@bufbuild/protobuf";
import {
  Role,
  ToolChoiceMode,
  type CompletionDelta,
  type CompletionInput,
  type ModelMessage,
} from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { FinishReason, UsageSchema } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../../lib/clock.js";
import { contentDelta, finishDelta, reasoningDelta, toolCallDelta, usageDelta } from "../deltas.js";
import { objectOf, parseJson } from "../json.js";
import { splitText } from "../well-formed.js";
import type { CompletionProvider } from "./provider.js";

export interface DemoOptions {
  readonly name: string;
  /** Milliseconds between deltas; 0 = none. */
  readonly deltaDelayMs: number;
}

const INTRO = "This is Turnwire's built-in demo: no language model was asked.";
const MAX_QUOTED_CHARS = 600;
const MAX_PASSAGES = 3;
const PASSAGE_CHARS = 240;
const ARGUMENT_PIECE_CHARS = 12;

export function createDemoProvider(options: DemoOptions, clock: Clock): CompletionProvider {
  return {
    name: options.name,
    prepare: (call) => ({
      droppedParameters: [],
      async *stream() {
        for (const delta of play(call.input, call.attempt)) {
          call.signal.throwIfAborted();
          yield [delta];
          if (options.deltaDelayMs > 0) await clock.sleep(options.deltaDelayMs, call.signal);
        }
      },
    }),
    listModels: () => Promise.resolve([]),
    close: () => Promise.resolve(),
  };
}

interface DemoCall {
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
  readonly reason: string;
}

/** The whole play for this conversation. */
function* play(input: CompletionInput, attempt: number): Generator<CompletionDelta, void, undefined> {
  const question = lastUserText(input.messages);
  const results = resultsAfterQuestion(input.messages);
  const calls = results.length === 0 ? chooseCalls(input, question) : [];
  const reasoning = calls.map(({ reason }) => reason).join(" ") || reasonToAnswer(results.length);
  for (const text of words(reasoning)) yield reasoningDelta(0, text);
  let written = reasoning.length;
  for (const [index, call] of calls.entries()) {
    const args = JSON.stringify(call.args);
    yield* callDeltas(call, args, 1 + index, `demo_${input.messages.length}${"_".repeat(index)}`);
    written += args.length;
  }
  if (calls.length === 0) {
    const answer = results.length > 0 ? answerFromResults(results, question) : plainAnswer(question);
    for (const text of words(answer)) yield contentDelta(1, text);
    written += answer.length;
  }
  const usage = create(UsageSchema, {
    inputTokens: estimateTokens(inputChars(input)),
    outputTokens: estimateTokens(written),
    reasoningTokens: estimateTokens(reasoning.length),
    estimated: true,
    attempts: 1,
  });
  yield usageDelta(usage, attempt);
  yield finishDelta({
    reason: calls.length > 0 ? FinishReason.TOOL_CALLS : FinishReason.STOP,
    rawReason: calls.length > 0 ? "tool_calls" : "stop",
  });
}

function* callDeltas(
  call: DemoCall,
  args: string,
  blockIndex: number,
  callId: string,
): Generator<CompletionDelta, void, undefined> {
  yield toolCallDelta({ blockIndex, callId, name: call.tool });
  for (const argumentsFragment of splitText(args, ARGUMENT_PIECE_CHARS)) {
    yield toolCallDelta({ blockIndex, callId, argumentsFragment });
  }
  yield toolCallDelta({ blockIndex, callId, complete: true });
}

/** Which tools the question asks for; none = none is needed, offered or allowed. */
function chooseCalls(input: CompletionInput, question: string): DemoCall[] {
  const mode = input.toolChoice?.mode ?? ToolChoiceMode.UNSPECIFIED;
  if (mode === ToolChoiceMode.NONE) return [];
  const offered =
    mode === ToolChoiceMode.ONE
      ? input.tools.filter(({ name }) => name === input.toolChoice?.toolName)
      : input.tools;
  const url = /https?:\/\/[^\s<>"'`)\]]+/.exec(question)?.[0].replace(/[.,;:!?]+$/, "");
  const calls: DemoCall[] = [];
  const search = offered.find(({ name }) => name === "search");
  if (search && (mode === ToolChoiceMode.ONE || ABOUT_DOCUMENTS.test(question)))
    calls.push({
      tool: search.name,
      args: { queries: [searchWords(question)] },
      reason: "The question is about documents, so I search those first.",
    });
  const openUrl = offered.find(({ name }) => name === "open_url");
  if (openUrl && url !== undefined) {
    const args = "urls" in properties(openUrl.parametersJsonSchema) ? { urls: [url] } : { url };
    calls.push({
      tool: openUrl.name,
      args,
      reason: "The message holds an address, so I open that page first.",
    });
  }
  if (
    calls.length > 0 ||
    ((mode === ToolChoiceMode.UNSPECIFIED || mode === ToolChoiceMode.AUTO) && EXPLAINING.test(question))
  )
    return calls;
  const clock = offered.find(({ name }) => name === "clock");
  if (clock)
    return [
      {
        tool: clock.name,
        args: zoneArgs(properties(clock.parametersJsonSchema), question),
        reason: "There is no page to open, so I look at the clock to show what a tool call looks like.",
      },
    ];
  const forced = mode === ToolChoiceMode.ONE || mode === ToolChoiceMode.REQUIRED ? offered[0] : undefined;
  return forced ? [{ tool: forced.name, args: {}, reason: `I was told to use ${forced.name}.` }] : [];
}

/** Questions that get a long answer at once. */
const EXPLAINING = /^\s*(?:explain|describe|tell me|write)\b/i;
const ABOUT_DOCUMENTS =
  /\b(documents?|files?|pdfs?|papers?|reports?|notes?|handbooks?|manuals?|contracts?|search|according to|dokumente?n?|dateie?n?)\b/i;
const ASKING_WORDS = new Set(
  (
    "a about according all and any are can do does for from have i in is it me my of on our please say says search tell " +
    "that the there they this to was were what when where which who why with you your document documents file files pdf " +
    "pdfs find"
  ).split(" "),
);

/** What to search for: the question without the words that ask. */
function searchWords(question: string): string {
  const all = question.replace(/https?:\/\/\S+/g, " ").match(/[\p{L}\p{N}-]+/gu) ?? [];
  const told = all.filter((word) => !ASKING_WORDS.has(word.toLowerCase()));
  return (told.length > 0 ? told : all).slice(0, 12).join(" ") || "document";
}

/** The clock's zone, if the question names one. */
function zoneArgs(
  schema: Readonly<Record<string, unknown>>,
  question: string,
): Readonly<Record<string, unknown>> {
  const member = ["timezone", "time_zone", "zone"].find((name) => name in schema);
  if (member === undefined) return {};
  const zone = /\b(?:UTC|[A-Z][A-Za-z]+(?:\/[A-Z][A-Za-z_+-]+){1,2})\b/.exec(question)?.[0];
  return { [member]: zone ?? zoneOfCity(question) ?? "UTC" };
}

/** The time zone that is named after a city of the question. */
function zoneOfCity(question: string): string | undefined {
  const asked = ` ${question.replace(/[^\p{L}\p{N}]+/gu, " ")} `;
  return Intl.supportedValuesOf("timeZone").find((zone) =>
    asked.includes(` ${zone.slice(zone.lastIndexOf("/") + 1).replaceAll("_", " ")} `),
  );
}

function properties(schemaJson: string): Readonly<Record<string, unknown>> {
  return objectOf(objectOf(parseJson(schemaJson))["properties"]);
}

function reasonToAnswer(results: number): string {
  return results > 0
    ? "The tool has answered, so I can tell what it said."
    : "No tool is needed here, so I answer at once.";
}

/** Long enough to reload the page in the middle of it. */
const LONG_ANSWER = `
This is a long answer, so that there is time to reload the page, to open a second tab, or to press stop while it is being written.

## What happens to it

1. **A number for everything.** Each piece of this text is a packet with a number: 1, 2, 3 and so on, without a gap.
2. **Stored before it is shown.** A packet goes into a log first. Only when the log has said that it holds the packet does anybody see it.
3. **Readers read the log.** This page, a second tab, a program in another language: each one reads from the number it has. Whoever was away for a while asks for what follows that number, and misses nothing.

> The answer belongs to the server, not to the connection. Close the page, and it goes on being written; open the page tomorrow, and it is all there.

## What it is good for

| when | then |
|---|---|
| the network is lost in the middle | the page reads on from where it was |
| somebody else opens the conversation | both see the same words at the same time |
| stop is pressed on another device | nothing follows, and what was said is kept |
| the server is restarted | what was shown is kept, and the end is told |

A reader needs no more than one number to come back:

\`\`\`sh
npx turnwire tail TURN --after 20
\`\`\`

## Why a log, and not a connection

Most chat back ends push words down the connection that asked for them. That works until the connection is gone. Then the words are gone too, or they sit in the memory of one process, or they are put together again from whatever was saved last, which is seldom what was shown.

With a log there is one story, and everybody reads the same one:

- The model writes at its own speed, and does not wait for the slowest reader.
- A reader on a train falls behind in a tunnel and catches up behind it.
- Two tabs never disagree, since neither of them is the original.
- A program can replay an answer a year later and get the same bytes.
- A test can cut the line at every single packet, and compare.

## What to try now

1. Reload this page. The text stands where it stood, and goes on.
2. Open the same address in a second tab, side by side with this one.
3. Press stop there, and look here.
4. Stop the server with Ctrl-C and start it again; then send the next question before it is back.

That is all there is to it: one order, one end, and a log between those who write and those who read.`;

function plainAnswer(question: string): string {
  if (EXPLAINING.test(question)) return `${INTRO}\n${LONG_ANSWER}`;
  const asked = question === "" ? "" : `\n\nYou wrote:\n\n${quote(question)}`;
  return `${INTRO}${asked}\n\nTo get real answers, set \`OPENAI_BASE_URL\` (and \`OPENAI_API_KEY\` if the server wants one) and start Turnwire again.`;
}

function answerFromResults(results: readonly ToolResult[], question: string): string {
  const parts = results.map(({ name, text, isError }) => {
    if (name === "search" && !isError) return answerFromPassages(text, searchWords(question));
    const marker = /\[\d+\]/.exec(text)?.[0];
    const verb = isError ? "failed with" : "answered";
    return `The tool${name === "" ? "" : ` \`${name}\``} ${verb}:\n\n${quote(text)}${marker === undefined ? "" : `\n\nSource: ${marker}`}`;
  });
  return `${INTRO}\n\n${parts.join("\n\n")}`;
}

/** Quotes the first passages of a search result, each with its number. */
function answerFromPassages(text: string, asked: string): string {
  const passages = [...text.matchAll(/^\[(\d+)\] (.+)\n([^]*?)(?=\n\n\[\d+\] |$(?![^]))/gm)].slice(
    0,
    MAX_PASSAGES,
  );
  if (passages.length === 0) return `I searched your documents:\n\n${quote(text)}`;
  const quotes = passages.map(
    ([, number, title, body]) => `- **${title}**: “${tellingPart(body!, asked)}” [${number}]`,
  );
  return `This is what your documents say:\n\n${quotes.join("\n")}`;
}

/** The line of a passage with most of the words asked for, and what follows it, without markup. */
function tellingPart(body: string, asked: string): string {
  const lines = body
    .replace(/^\[page \d+ of \d+\]$|^#+ .*$|[|`*]|-{3,}/gm, " ")
    .split("\n")
    .map((line) => line.replace(/\s+/g, " ").trim())
    .filter((line) => line !== "");
  const words = asked
    .toLowerCase()
    .split(" ")
    .map((word) => word.slice(0, Math.max(4, word.length - 2))); // "storks" is found in "stork"
  const hits = lines.map((line) => words.filter((word) => line.toLowerCase().includes(word)).length);
  const from = hits.indexOf(Math.max(...hits));
  const rest = lines.slice(Math.max(from, 0)).join(" ");
  const short = splitText(rest, PASSAGE_CHARS)[0] ?? "";
  if (short.length === rest.length) return rest;
  const word = short.lastIndexOf(" "); // a quote ends at a word
  return `${word > 0 ? short.slice(0, word) : short} ...`;
}

function quote(text: string): string {
  const short = splitText(text.trim(), MAX_QUOTED_CHARS)[0] ?? "";
  const cut = short.length < text.trim().length ? `${short} ...` : short;
  return cut
    .split(/\r?\n/)
    .map((line) => `> ${line}`)
    .join("\n");
}

interface ToolResult {
  readonly name: string;
  readonly text: string;
  readonly isError: boolean;
}

function lastUserText(messages: readonly ModelMessage[]): string {
  const message = messages.findLast(({ role }) => role === Role.USER);
  return (message?.parts ?? []).map(({ part }) => (part.case === "text" ? part.value : "")).join("");
}

/** What tools said since the last question, with the names they were called by. */
function resultsAfterQuestion(messages: readonly ModelMessage[]): ToolResult[] {
  const question = messages.findLastIndex(({ role }) => role === Role.USER);
  const parts = messages.slice(question + 1).flatMap((message) => message.parts.map(({ part }) => part));
  const names = new Map(
    parts.flatMap((part) => (part.case === "toolCall" ? [[part.value.callId, part.value.name]] : [])),
  );
  return parts.flatMap((part) =>
    part.case === "toolResult"
      ? [{ name: names.get(part.value.callId) ?? "", text: part.value.text, isError: part.value.isError }]
      : [],
  );
}

function inputChars(input: CompletionInput): number {
  const parts = input.messages.flatMap((message) => message.parts);
  const tools = input.tools.reduce(
    (sum, tool) => sum + tool.description.length + tool.parametersJsonSchema.length,
    0,
  );
  return parts.reduce((sum, { part }) => {
    switch (part.case) {
      case "text":
      case "reasoning":
      case "refusal":
        return sum + part.value.length;
      case "toolCall":
        return sum + part.value.argumentsJson.length;
      case "toolResult":
        return sum + part.value.text.length;
      default:
        return sum;
    }
  }, tools);
}

/** About four characters make a token. */
function estimateTokens(chars: number): number {
  return Math.ceil(chars / 4);
}

function words(text: string): string[] {
  return text.match(/\s*\S+\s*$|\s*\S+/g) ?? [];
}
