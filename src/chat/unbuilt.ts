/**
 * Fields of the contract whose behaviour is not built yet. A request that sets one is refused with its name: silence would
 * look like success. Delete a line when its behaviour lands.
 */
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import {
  DoubleSendPolicy,
  OnInterrupt,
  ToolCallingMode,
  type TurnOptions,
  type Session,
  type SessionSettings,
} from "../../gen/turnwire/chat/v1/types_pb.js";
import { NotBuiltSchema } from "../../gen/turnwire/chat/v1/errors_pb.js";
import type { SendRequest } from "./send-request.js";
import { TurnError } from "../lib/errors.js";

/** The refusal: UNIMPLEMENTED, naming the field as it is spelt in the proto. */
export function notBuilt(field: string): TurnError {
  return new TurnError(ErrorCode.NOT_BUILT, {
    message: `${field} is not built yet: leave it unset`,
    details: { field },
    typed: [{ desc: NotBuiltSchema, value: { field } }],
  });
}

/** Throws for the first set field of a send that nothing obeys yet. */
export function refuseUnbuiltSend(request: SendRequest): void {
  if (request.attachments.length > 0) throw notBuilt("attachments");
  if (request.position.case === "continueMessageId") throw notBuilt("continue_message_id");
  refuseUnbuiltPolicy(request.ifBusy, "if_busy");
  if (request.incognito) throw notBuilt("incognito");
  if (request.mcpCredentials.length > 0) throw notBuilt("mcp_credentials");
  request.models.forEach((model, index) => {
    if (model.direct) throw notBuilt(`models[${index}].direct`);
  });
  if (request.options) refuseUnbuiltOptions(request.options, "options");
  if (request.newSession) refuseUnbuiltSettings(request.newSession, "new_session");
}

/** The same for a session that is made. */
export function refuseUnbuiltSession(session: Session): void {
  if (session.incognito) throw notBuilt("session.incognito");
  if (session.projectId !== "") throw notBuilt("session.project_id");
  if (session.archived) throw notBuilt("session.archived");
  if (session.settings) refuseUnbuiltSettings(session.settings, "session.settings");
}

/** The same for a session's defaults. */
export function refuseUnbuiltSettings(settings: SessionSettings, path: string): void {
  refuseUnbuiltPolicy(settings.ifBusy, `${path}.if_busy`);
  if (settings.defaults) refuseUnbuiltOptions(settings.defaults, `${path}.defaults`);
}

function refuseUnbuiltPolicy(policy: DoubleSendPolicy, path: string): void {
  if (policy !== DoubleSendPolicy.UNSPECIFIED && policy !== DoubleSendPolicy.REJECT) throw notBuilt(path);
}

function refuseUnbuiltOptions(options: TurnOptions, path: string): void {
  const unbuilt: (keyof TurnOptions)[] = [
    "deepResearch",
    "features",
    "filters",
    "clientTools",
    "responseJsonSchema",
    "backgroundTasks",
    "variables",
  ];
  for (const field of unbuilt) if (isSet(options[field])) throw notBuilt(`${path}.${snakeCase(field)}`);
  if (options.toolCalling === ToolCallingMode.PROMPTED) throw notBuilt(`${path}.tool_calling`);
  if (options.onInterrupt === OnInterrupt.RESTART_CYCLE) throw notBuilt(`${path}.on_interrupt`);
}

/** "Set to its zero" asks for nothing, so it is allowed. */
function isSet(value: unknown): boolean {
  return value !== undefined && value !== false && value !== 0 && value !== "";
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
