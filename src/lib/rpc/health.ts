/** grpc.health.v1 for any transport: one serving state per process, under "" and each service's name. */
import { create } from "@bufbuild/protobuf";
import {
  HealthCheckResponse_ServingStatus,
  HealthCheckResponseSchema,
  Health,
} from "../../../gen/grpc/health/v1/health_pb.js";
import type { HealthCheckResponse } from "../../../gen/grpc/health/v1/health_pb.js";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../errors.js";
import type { ServiceBinding, StreamFrame } from "./service-binding.js";
import { bindService, messageFrame } from "./service-binding.js";

/** Whether this process wants traffic. Starts as not serving. Parts have names of their own and do not change the whole. */
export class HealthState {
  #serving = false;
  readonly #parts = new Map<string, boolean>();
  readonly #listeners = new Set<() => void>();

  get serving(): boolean {
    return this.#serving;
  }

  set(serving: boolean): void {
    if (serving === this.#serving) return;
    this.#serving = serving;
    for (const listener of [...this.#listeners]) listener();
  }

  /** Says how a part is, under a name that health checks can ask for. */
  setPart(name: string, serving: boolean): void {
    if (this.#parts.get(name) === serving) return;
    this.#parts.set(name, serving);
    for (const listener of [...this.#listeners]) listener();
  }

  /** undefined = there is no such part. */
  part(name: string): boolean | undefined {
    return this.#parts.get(name);
  }

  /** Calls back on every change until the returned function is called. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

/** The health service over `state`, knowing the given full service names. */
export function healthService(state: HealthState, serviceNames: readonly string[]): ServiceBinding {
  const known = new Set(["", ...serviceNames, Health.typeName]);
  const { SERVING, NOT_SERVING, SERVICE_UNKNOWN } = HealthCheckResponse_ServingStatus;
  const isServing = (service: string): boolean | undefined =>
    known.has(service) ? state.serving : state.part(service);
  const answer = (serving: boolean): HealthCheckResponse =>
    create(HealthCheckResponseSchema, { status: serving ? SERVING : NOT_SERVING });

  return bindService(Health, {
    check: async ({ service }) => {
      const serving = isServing(service);
      if (serving === undefined) throw new TurnError(ErrorCode.NOT_FOUND, { message: "no such service" });
      return answer(serving);
    },
    watch: ({ service }, { signal }) =>
      isServing(service) === undefined
        ? unknownUntilAborted(create(HealthCheckResponseSchema, { status: SERVICE_UNKNOWN }), signal)
        : watchHealth(state, () => isServing(service) === true, answer, signal),
  });
}

async function* watchHealth(
  state: HealthState,
  isServing: () => boolean,
  answer: (serving: boolean) => HealthCheckResponse,
  signal: AbortSignal,
): AsyncGenerator<StreamFrame<HealthCheckResponse>> {
  let wake: (() => void) | undefined;
  const nudge = (): void => wake?.();
  const stop = state.onChange(nudge);
  signal.addEventListener("abort", nudge);
  try {
    let said: boolean | undefined;
    while (!signal.aborted) {
      if (said !== isServing()) {
        said = isServing();
        yield messageFrame(answer(said));
        continue;
      }
      await new Promise<void>((resolve) => (wake = resolve));
    }
  } finally {
    stop();
    signal.removeEventListener("abort", nudge);
  }
}

async function* unknownUntilAborted(
  response: HealthCheckResponse,
  signal: AbortSignal,
): AsyncGenerator<StreamFrame<HealthCheckResponse>> {
  yield messageFrame(response);
  if (signal.aborted) return;
  await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}
