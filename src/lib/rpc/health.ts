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

/** Whether this process wants traffic. Starts as not serving. */
export class HealthState {
  #serving = false;
  readonly #listeners = new Set<() => void>();

  get serving(): boolean {
    return this.#serving;
  }

  set(serving: boolean): void {
    if (serving === this.#serving) return;
    this.#serving = serving;
    for (const listener of [...this.#listeners]) listener();
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
  const answer = (): HealthCheckResponse =>
    create(HealthCheckResponseSchema, { status: state.serving ? SERVING : NOT_SERVING });

  return bindService(Health, {
    check: async ({ service }) => {
      if (!known.has(service)) throw new TurnError(ErrorCode.NOT_FOUND, { message: "no such service" });
      return answer();
    },
    watch: ({ service }, { signal }) =>
      known.has(service)
        ? watchHealth(state, answer, signal)
        : unknownUntilAborted(create(HealthCheckResponseSchema, { status: SERVICE_UNKNOWN }), signal),
  });
}

async function* watchHealth(
  state: HealthState,
  answer: () => HealthCheckResponse,
  signal: AbortSignal,
): AsyncGenerator<StreamFrame<HealthCheckResponse>> {
  let wake: (() => void) | undefined;
  const nudge = (): void => wake?.();
  const stop = state.onChange(nudge);
  signal.addEventListener("abort", nudge);
  try {
    let said: boolean | undefined;
    while (!signal.aborted) {
      if (said !== state.serving) {
        said = state.serving;
        yield messageFrame(answer());
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
