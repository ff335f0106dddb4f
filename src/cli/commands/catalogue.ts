/** The commands that list and look up: sessions, models, tools; and stop. */
import { toJsonString } from "@bufbuild/protobuf";
import { StopTurnResponseSchema } from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import {
  MessageRole,
  MessageSchema,
  SessionSchema,
  TurnStatus,
  type Message,
} from "../../../gen/turnwire/chat/v1/types_pb.js";
import { ModelSchema, type Model, type Price } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ToolSchema } from "../../../gen/turnwire/tool/v1/tool_service_pb.js";
import type { StopTarget } from "../../client/index.js";
import type { CliContext } from "../context.js";
import { CliError, ExitCode } from "../exit-codes.js";
import { oneLine, PAGE_SIZE, pages, printRows, time } from "./list.js";

export async function listSessions(
  options: { readonly limit: number },
  context: CliContext,
): Promise<ExitCode> {
  const sessions = await pages(
    (pageToken) =>
      context.client.api.listSessions({ pageToken, pageSize: Math.min(PAGE_SIZE, options.limit) }, context),
    (page) => page.sessions,
    options.limit,
  );
  return printRows(
    SessionSchema,
    sessions,
    "no sessions yet: `turnwire chat` starts one",
    context,
    (session) => [
      session.sessionId,
      time(session.updateTime ?? session.createTime),
      session.activeTurns.length > 0 ? "running" : "",
      oneLine(session.title) || "(no title)",
    ],
  );
}

export async function showSession(sessionId: string, context: CliContext): Promise<ExitCode> {
  const { client, terminal, json } = context;
  const { session, mainline } = await client.api.getSession({ sessionId }, context);
  if (session) {
    const about = [session.sessionId, time(session.updateTime ?? session.createTime), oneLine(session.title)];
    await terminal.line(json ? toJsonString(SessionSchema, session) : about.filter(Boolean).join("  "));
    for (const turn of json ? [] : session.activeTurns) {
      await terminal.line(`running: turn ${turn.turnId} at seq ${turn.headSeq}`);
    }
  }
  for (const message of mainline) {
    if (json) await terminal.line(toJsonString(MessageSchema, message));
    else await terminal.line(`\n${author(message)}\n${textOf(message)}`);
  }
  return ExitCode.OK;
}

export async function deleteSession(sessionId: string, context: CliContext): Promise<ExitCode> {
  await context.client.api.deleteSession({ sessionId }, context);
  if (!context.json) await context.terminal.line(`deleted ${sessionId}`);
  return ExitCode.OK;
}

export async function listModels(context: CliContext): Promise<ExitCode> {
  const models = await pages(
    (pageToken) => context.client.api.listModels({ pageToken, pageSize: PAGE_SIZE }, context),
    (page) => page.models,
  );
  return printRows(ModelSchema, models, "no models are configured", context, (model) => [
    model.isDefault ? "*" : " ",
    model.modelId,
    oneLine(model.displayName),
    abilities(model),
  ]);
}

export async function listTools(context: CliContext): Promise<ExitCode> {
  const tools = await pages(
    (pageToken) => context.client.api.listTools({ pageToken, pageSize: PAGE_SIZE }, context),
    (page) => page.tools,
  );
  return printRows(ToolSchema, tools, "no tools are configured", context, (tool) => [
    tool.toolId,
    oneLine(tool.description).slice(0, 100),
  ]);
}

export interface StopOptions {
  readonly session?: string;
  readonly request?: string;
  readonly lane?: number;
}

export async function stop(
  turnId: string | undefined,
  options: StopOptions,
  context: CliContext,
): Promise<ExitCode> {
  const { client, terminal, json, signal } = context;
  const answer = await client.stop(stopTarget(turnId, options), { modelIndex: options.lane, signal });
  if (json) await terminal.line(toJsonString(StopTurnResponseSchema, answer));
  else if (answer.turnId === "")
    await terminal.line("nothing runs there yet: the send will be stopped when it arrives");
  else {
    const status = (TurnStatus[answer.status] ?? "unknown").toLowerCase();
    await terminal.line(`turn ${answer.turnId}: no content after seq ${answer.stopSeq} (${status})`);
  }
  return ExitCode.OK;
}

function stopTarget(turnId: string | undefined, { session, request }: StopOptions): StopTarget {
  const targets: StopTarget[] = [];
  if (turnId) targets.push({ turnId });
  if (request) targets.push({ requestId: request });
  if (session) targets.push({ sessionId: session });
  const [target, ...others] = targets;
  if (!target || others.length > 0) {
    throw new CliError(ExitCode.USAGE, "name one thing to stop: a turn, --session ID or --request ID");
  }
  return target;
}

function abilities(model: Model): string {
  const aliases = model.aliases.filter((alias) => !alias.endsWith(`/${model.modelId}`)); // provider/id says nothing new
  const words = [
    model.contextTokens > 0 ? `${model.contextTokens} tokens` : "",
    ...model.modalities,
    model.tools ? "tools" : "",
    model.reasoning ? "reasoning" : "",
    model.demo ? "demo" : "",
    model.price ? price(model.price) : "",
    model.access?.restricted ? "restricted" : "",
    aliases.length > 0 ? `also ${aliases.join(", ")}` : "",
  ];
  return words.map(oneLine).filter(Boolean).join(", ");
}

/** "0.15 in, 0.6 out USD per million tokens". */
function price({ inputMicrosPerMtok, outputMicrosPerMtok, currency }: Price): string {
  const units = (micros: string): number => Number(micros) / 1_000_000;
  return `${units(inputMicrosPerMtok)} in, ${units(outputMicrosPerMtok)} out ${currency} per million tokens`;
}

function author(message: Message): string {
  if (message.role === MessageRole.USER) return "you:";
  return `${message.answer?.displayName || message.answer?.modelId || "assistant"}:`;
}

function textOf(message: Message): string {
  return message.role === MessageRole.USER ? (message.input?.text ?? "") : (message.answer?.text ?? "");
}
