/** The innermost loop: one model call, decoded delta by delta into packets. */
import type { StreamCompletionRequest } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../lib/clock.js";
import type { Logger } from "../lib/log.js";
import { TurnError } from "../lib/errors.js";
import {
  finishStep,
  hasFinished,
  nextDelta,
  startStep,
  type StepOptions,
  type StepOutcome,
} from "../turn/decode.js";
import { errorMessage } from "../turn/packets.js";
import type { ModelPort } from "./ports.js";

/** One model call of a cycle. */
export interface ModelCall {
  readonly models: ModelPort;
  readonly request: StreamCompletionRequest;
  readonly step: StepOptions;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Stores what is too long for a packet; the file's id. */
  readonly saveText: (name: string, text: string) => Promise<string>;
  /** Aborted = the turn or the lane ends: the generator throws the reason, and closing what is open is up to the end. */
  readonly signal: AbortSignal;
}

/** Yields the step's packets as they come, closes what is open at its end or failure, returns how it ended. */
export async function* streamStep(call: ModelCall): AsyncGenerator<readonly Packet[], StepOutcome> {
  call.signal.throwIfAborted(); // nobody is asked for what has ended
  const state = startStep(call.step);
  const { clock } = call;
  const startMs = clock.monotonicMs();
  const elapsedMs = (): number => Math.round(clock.monotonicMs() - startMs);
  let failure: TurnError | undefined;
  try {
    for await (const response of call.models.streamCompletion(call.request, call.signal)) {
      const nowMs = elapsedMs();
      const packets = response.deltas.flatMap((delta) => nextDelta(state, delta, nowMs));
      if (packets.length > 0) yield packets;
    }
    if (!hasFinished(state)) failure = new TurnError(ErrorCode.UPSTREAM_TRUNCATED);
  } catch (error) {
    call.signal.throwIfAborted();
    failure = TurnError.from(error);
    if (failure.code === ErrorCode.INTERNAL) call.logger.error({ err: failure.cause }, "a model call failed");
  }
  const end = finishStep(
    state,
    failure ? { kind: "failed", error: errorMessage(failure) } : { kind: "done" },
    elapsedMs(),
  );
  await keepLongArguments(call, end.packets, end.outcome);
  if (end.packets.length > 0) yield end.packets;
  return end.outcome;
}

/** Arguments that ToolCallReady had to cut are kept whole in a file that it names. */
async function keepLongArguments(
  call: ModelCall,
  packets: readonly Packet[],
  outcome: StepOutcome,
): Promise<void> {
  for (const { payload } of packets) {
    if (payload.case !== "toolCallReady" || !payload.value.truncated) continue;
    const ready = payload.value;
    const whole = outcome.calls.find((decoded) => decoded.callId === ready.callId);
    if (whole)
      ready.argumentsFileId = await call.saveText(`${whole.toolName}-arguments.json`, whole.argumentsJson);
  }
}
