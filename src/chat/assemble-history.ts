import { fromBinary } from "@bufbuild/protobuf";
import { LaneStateSchema } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import type { ModelMessage } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { UserInputSchema } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Principal } from "../lib/rpc/service-binding.js";
import { whileUnavailable } from "../lib/retry.js";
import { buildModelMessages, type BranchMessage } from "../turn/history.js";
import type { TurnPlan } from "./resolve-plan.js";
import type { ChatDeps } from "./ports.js";

/** Messages of a branch that are looked at, newest first. */
const BRANCH_LIMIT = 400;
/** Characters per token, roughly, for the budget of a model whose context size is known. */
const CHARS_PER_TOKEN = 3;
/** Characters of history when the context size is not known. */
const DEFAULT_MAX_CHARS = 400_000;

/** The conversation that the lanes of a turn are asked with: system prompt, the branch up to the parent, the new message. */
export async function assembleHistory(
  deps: ChatDeps,
  principal: Principal,
  plan: TurnPlan,
  signal: AbortSignal,
): Promise<readonly ModelMessage[]> {
  // The branch as the accept stored it: it ends in the new user message, whatever became the end of it meanwhile.
  const load = () => deps.store.branch(principal, plan.started.userMessageId, BRANCH_LIMIT);
  const rows = (await whileUnavailable(load, deps.clock, signal)).slice(0, -1);
  const branch: BranchMessage[] = rows.map((row) => ({
    role: row.role,
    input: row.input && fromBinary(UserInputSchema, row.input),
    answer: row.answer && fromBinary(LaneStateSchema, row.answer),
  }));
  const systemPrompt = [plan.systemPrompt, plan.additionalContext].filter((text) => text !== "").join("\n\n");
  return buildModelMessages({ systemPrompt, branch, userInput: plan.input, maxChars: maxChars(plan) })
    .messages;
}

function maxChars(plan: TurnPlan): number {
  const known = plan.lanes.map((lane) => lane.model.contextTokens).filter((tokens) => tokens > 0);
  return known.length > 0 ? Math.min(...known) * CHARS_PER_TOKEN : DEFAULT_MAX_CHARS;
}
