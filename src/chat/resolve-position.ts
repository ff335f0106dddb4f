/** Where in the session's tree a send goes, and what it says: read before anything is stored. */
import { create, fromBinary } from "@bufbuild/protobuf";
import { ErrorCode, UserInputSchema, type UserInput } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import type { Principal } from "../lib/rpc/service-binding.js";
import type { MessageRow } from "../store/store.js";
import type { ChatDeps } from "./ports.js";
import type { SendRequest } from "./send-request.js";
import { notBuilt } from "./unbuilt.js";

export interface Position {
  /** What the new user message follows: "" = nothing, undefined = the end of the current branch. */
  readonly parentMessageId: string | undefined;
  /** The user message that is answered anew; undefined = the send has one of its own. */
  readonly answeredMessageId: string | undefined;
  /** The whole input, however long. */
  readonly input: UserInput;
}

/**
 * Throws NOT_FOUND for a message that is not there, not the caller's or of another session, INVALID_ARGUMENT for one that
 * somebody else wrote than the position asks for. Messages never move, so what is read here holds at the accept.
 */
export async function resolvePosition(
  deps: Pick<ChatDeps, "store">,
  principal: Principal,
  request: SendRequest,
): Promise<Position> {
  const { position, text, attachments } = request;
  const own = { answeredMessageId: undefined, input: create(UserInputSchema, { text, attachments }) };
  switch (position.case) {
    case undefined:
      return { ...own, parentMessageId: undefined };
    case "fromRoot":
      return { ...own, parentMessageId: "" };
    case "parentMessageId":
      return { ...own, parentMessageId: position.value };
    case "editMessageId": {
      const [edited] = await branchTo(deps, principal, request, position.value, "edit_message_id");
      if (edited!.role !== "user")
        throw wrongRole("edit_message_id names an answer: name the message of the user");
      const before = fromBinary(UserInputSchema, edited!.input!);
      const kept = attachments.length > 0 ? attachments : before.attachments;
      return {
        parentMessageId: edited!.parentMessageId,
        answeredMessageId: undefined,
        input: create(UserInputSchema, { text, attachments: kept }),
      };
    }
    case "regenerateMessageId": {
      const branch = await branchTo(deps, principal, request, position.value, "regenerate_message_id");
      if (branch.at(-1)!.role !== "assistant")
        throw wrongRole("regenerate_message_id names a message of the user: name an answer to it");
      const answered = branch[0]!;
      return {
        parentMessageId: answered.parentMessageId,
        answeredMessageId: answered.messageId,
        input: fromBinary(UserInputSchema, answered.input!),
      };
    }
    case "continueMessageId":
      throw notBuilt("continue_message_id");
  }
}

/** The message that the send names, last, behind the one that it follows. */
async function branchTo(
  { store }: Pick<ChatDeps, "store">,
  principal: Principal,
  request: SendRequest,
  messageId: string,
  field: string,
): Promise<readonly MessageRow[]> {
  const rows = await store.branch(principal, messageId, field === "edit_message_id" ? 1 : 2);
  if (rows.at(-1)?.sessionId === request.sessionId) return rows;
  throw new TurnError(ErrorCode.NOT_FOUND, {
    message: `${field} names no message of this session`,
    details: { field },
  });
}

function wrongRole(message: string): TurnError {
  return new TurnError(ErrorCode.INVALID_ARGUMENT, { message, details: { field: message.split(" ")[0]! } });
}
