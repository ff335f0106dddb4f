/**
 * One model call: attempts with keys and models until one of them says something that counts. Invariants: A1 nobody is asked
 * again once content or a tool call was handed on. A2 each attempt begins with AttemptStarted, each that is given up ends
 * with AttemptBoundary. A3 the last delta is a finish or an error, exactly one. A4 an abort of the signal ends every wait at
 * once. A5 behind an arena, who answers is said right before the end and not earlier.
 */
import type {
  CompletionDelta,
  StreamCompletionRequest,
} from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { Usage } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../../lib/clock.js";
import { TurnError } from "../../lib/errors.js";
import type { LlmLimits } from "../config.js";
import {
  attemptBoundaryDelta,
  attemptStartedDelta,
  errorDelta,
  finishDelta,
  modelSelectedDelta,
  parametersDroppedDelta,
} from "../deltas.js";
import { SecretFilter } from "../http/secret-filter.js";
import type { PreparedCompletion } from "../providers/provider.js";
import type { Target, Targets } from "../routing/targets.js";
import { AttemptGate, boundaryCause } from "./attempt-gate.js";
import type { CallClock } from "./call-clock.js";
import type { Place } from "./places.js";
import { nextStep, type NextStep } from "./retry-policy.js";

export interface AttemptsCall {
  readonly request: StreamCompletionRequest;
  /** Who is asked, in order. */
  readonly targets: Targets;
  readonly limits: LlmLimits;
  readonly firstTokenTimeoutMs: number;
  readonly stallTimeoutMs: number;
  readonly clock: Clock;
  readonly time: CallClock;
  /** In [0, 1). */
  readonly random: () => number;
  /** Told of each attempt that has ended, for the books. */
  readonly ended: (attempt: EndedAttempt) => void;
}

export interface EndedAttempt {
  readonly attempt: number;
  readonly target: Target;
  readonly usage: Usage | undefined;
  /** undefined = it answered. */
  readonly failure: TurnError | "cancelled" | undefined;
}

/** An attempt that failed before it had said anything that counts. */
interface Failed {
  readonly error: TurnError;
  readonly gate: AttemptGate;
  /** The model cannot be asked this: nothing was announced. */
  readonly unsendable: boolean;
}

type Deltas = readonly CompletionDelta[];

/** Yields the deltas of the call. Throws the signal's reason when the caller leaves, and what is wrong with a call that cannot be sent. */
export async function* runAttempts(call: AttemptsCall): AsyncGenerator<Deltas, void, undefined> {
  let asking: Asking = { target: call.targets.first, attempt: 1, retries: 0, triedKeys: new Set() };
  for (;;) {
    const failed = yield* runAttempt(call, asking);
    if (!failed) return;
    const step = await decide(call, asking, failed.error);
    const { target, attempt } = asking;
    const gaveUp = step.kind === "give_up";
    if (gaveUp && failed.unsendable && attempt === 1) throw failed.error;
    const last = failed.gate.finish(gaveUp);
    const close = failed.unsendable ? [started(target, attempt), ...last] : last;
    if (gaveUp) {
      yield [...close, ...reveal(target, failed.gate), errorDelta(failed.error, target.model.id)];
      return;
    }
    asking = nextAsking(call, asking, step, failed.gate.attempt + 1);
    const cause = boundaryCause(failed.error, target.hiddenAs);
    const nextId = asking.target.hiddenAs || asking.target.model.id;
    yield [...close, attemptBoundaryDelta(failed.gate.attempt, cause, nextId)];
    if (step.kind === "again") await pause(call, step.afterMs);
  }
}

/** Who is asked now. */
interface Asking {
  readonly target: Target;
  readonly attempt: number;
  /** Of this model. */
  readonly retries: number;
  /** Of this provider, by this call. */
  readonly triedKeys: Set<number>;
}

async function decide(call: AttemptsCall, asking: Asking, error: TurnError): Promise<NextStep> {
  const { targets, limits, time } = call;
  if (time.expired) return { kind: "give_up" };
  const failed = {
    error,
    retries: asking.retries,
    hasOtherKey: asking.target.upstream.hasOtherKey(asking.triedKeys),
    hasOtherModel: (await targets.peek(time.signal)) !== undefined,
    leftMs: time.leftMs(),
  };
  return nextStep(failed, limits, call.random());
}

function nextAsking({ targets }: AttemptsCall, asking: Asking, step: NextStep, attempt: number): Asking {
  switch (step.kind) {
    case "other_model":
      return { target: targets.advance(), attempt, retries: 0, triedKeys: new Set() };
    case "again":
      return { ...asking, attempt, retries: asking.retries + 1 };
    default:
      return { ...asking, attempt };
  }
}

async function pause({ clock, time }: AttemptsCall, ms: number): Promise<void> {
  try {
    await clock.sleep(ms, time.signal);
  } catch (error) {
    if (!time.expired) throw error; // the next attempt says that the time is up
  }
}

async function* runAttempt(
  call: AttemptsCall,
  asking: Asking,
): AsyncGenerator<Deltas, Failed | undefined, undefined> {
  const { target, attempt } = asking;
  const { model, hiddenAs } = target;
  const gate = new AttemptGate({ attempt, input: call.request.input!, price: model.price, hiddenAs });
  let prepared: PreparedCompletion;
  try {
    prepared = prepare(call, asking);
  } catch (error) {
    return { error: TurnError.from(error), gate, unsendable: true };
  }
  const answer = streamAttempt(call, asking, prepared, gate);
  const first = answer.next(); // what is announced travels while the provider is asked
  first.catch(() => undefined); // it is awaited below, if anybody still waits then
  let error: TurnError | undefined;
  try {
    yield opening(target, attempt, prepared.droppedParameters);
    const step = await first;
    if (!step.done) yield step.value;
    error = step.done ? step.value : yield* answer;
  } finally {
    // Who leaves before the first delta ends an attempt that is under way: the end of the call's clock stops it.
    answer.return(undefined).catch(() => undefined);
  }
  if (error && !gate.committed) return { error, gate, unsendable: false };
  const { end } = gate;
  const last =
    error || end.kind === "failed"
      ? errorDelta(error ?? TurnError.from(end), model.id)
      : finishDelta(end.finish);
  yield [...gate.finish(true), ...reveal(target, gate), last];
  return undefined;
}

/** Streams one attempt; returns how it failed. Throws when the caller leaves. */
async function* streamAttempt(
  call: AttemptsCall,
  { target, triedKeys }: Asking,
  prepared: PreparedCompletion,
  gate: AttemptGate,
): AsyncGenerator<Deltas, TurnError | undefined, undefined> {
  const { upstream } = target;
  const { time } = call;
  // It comes first: what the gate holds and keeps has no key in it any more.
  const filter = new SecretFilter(upstream.secrets);
  let place: Place | undefined;
  let failure: TurnError | "cancelled" | undefined = "cancelled";
  try {
    place = await upstream.enter(triedKeys, time.signal);
    triedKeys.add(place.keyIndex);
    for await (const deltas of prepared.stream(place.key)) {
      const out = gate.take(filter.apply(deltas));
      if (out.length > 0) yield out;
    }
    const rest = gate.take(filter.flush());
    if (rest.length > 0) yield rest;
    const { end } = gate;
    return (failure = end.kind === "failed" ? end.error : undefined);
  } catch (error) {
    if (!time.expired) time.signal.throwIfAborted();
    const rest = gate.take(filter.flush());
    if (rest.length > 0) yield rest;
    return (failure = time.expired ?? TurnError.from(error));
  } finally {
    if (place) upstream.leave(place, failure);
    call.ended({ attempt: gate.attempt, target, usage: gate.usage, failure });
  }
}

function prepare(call: AttemptsCall, { target, attempt }: Asking): PreparedCompletion {
  const { request, time, firstTokenTimeoutMs, stallTimeoutMs } = call;
  return target.upstream.provider.prepare({
    ...{ input: request.input!, model: target.model, attempt, firstTokenTimeoutMs, stallTimeoutMs },
    ...{ deadlineMs: time.leftMs(), caller: request.caller, idempotencyKey: request.idempotencyKey },
    signal: time.signal,
  });
}

function started({ model, upstream, hiddenAs }: Target, attempt: number): CompletionDelta {
  return hiddenAs === ""
    ? attemptStartedDelta(attempt, upstream.name, model.upstreamModel)
    : attemptStartedDelta(attempt, "", "");
}

function opening(target: Target, attempt: number, dropped: readonly string[]): CompletionDelta[] {
  const deltas = [started(target, attempt)];
  if (target.hiddenAs === "") deltas.push(modelSelectedDelta(target.model.id));
  if (dropped.length > 0) deltas.push(parametersDroppedDelta(dropped));
  return deltas;
}

/** A5. */
function reveal({ model, hiddenAs }: Target, gate: AttemptGate): CompletionDelta[] {
  return hiddenAs === "" ? [] : [modelSelectedDelta(gate.selected || model.id)];
}
