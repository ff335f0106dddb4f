/**
 * LlmProxyService over the configured providers. Owns the configuration in use and the count of running calls. L1 what is
 * wrong with the request is an RPC status, before anything is sent. L2 what goes wrong after that is an error delta, the last
 * one: what came before it is kept. L3 a call stays with the configuration it began with.
 */
import type { Duration } from "@bufbuild/protobuf/wkt";
import {
  LlmProxyService,
  type StreamCompletionRequest,
  type StreamCompletionResponse,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../lib/clock.js";
import { errorCodeName, TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import {
  bindService,
  messageFrame,
  type CallContext,
  type ServiceBinding,
  type StreamFrame,
} from "../lib/rpc/service-binding.js";
import { CallClock } from "./attempts/call-clock.js";
import { runAttempts, type EndedAttempt } from "./attempts/run-attempts.js";
import { batchDeltas } from "./batch-deltas.js";
import type { LlmConfig } from "./config.js";
import { countTokens } from "./count-tokens.js";
import { decodeCompletion, prepareCompletion } from "./direct.js";
import { embed } from "./embed.js";
import { Generation } from "./generation.js";
import { pageOfModels } from "./list-models.js";
import { mayUse } from "./routing/access.js";
import { Targets } from "./routing/targets.js";

export interface LlmServiceDeps {
  readonly config: LlmConfig;
  readonly clock: Clock;
  readonly logger: Logger;
  /** In [0, 1): spreads the waits before retries. Default: chance. */
  readonly random?: () => number;
}

/** Calls that are not over, places taken at the providers, and calls that wait for a place. */
export interface LlmLoad {
  readonly calls: number;
  readonly taken: number;
  readonly waiting: number;
}

/** The bound service, and the end of its connections. */
export interface LlmService extends ServiceBinding {
  /** What goes on now, whatever the configuration it began with. */
  readonly load: LlmLoad;
  /** Uses another configuration from the next call on; running calls keep theirs. */
  reload(config: LlmConfig): void;
  /** Closes the connections to the providers; running calls end with an error. */
  close(): Promise<void>;
}

export function createLlmService(deps: LlmServiceDeps): LlmService {
  const { clock, logger, random = Math.random } = deps;
  /** The newest one is the last. */
  const generations = [new Generation(deps.config, deps)];
  const current = (): Generation => generations.at(-1)!;
  let calls = 0;

  /** Counts a call, and gives it the configuration it stays with. */
  function enter(): { readonly generation: Generation; readonly leave: () => void } {
    const generation = current();
    if (calls >= generation.config.limits.maxCalls) throw new TurnError(ErrorCode.OVERLOADED);
    calls++;
    const leaveGeneration = generation.enter();
    return {
      generation,
      leave() {
        calls--;
        leaveGeneration();
      },
    };
  }

  async function withGeneration<T>(use: (generation: Generation) => Promise<T>): Promise<T> {
    const { generation, leave } = enter();
    try {
      return await use(generation);
    } finally {
      leave();
    }
  }

  async function* streamCompletion(
    request: StreamCompletionRequest,
    context: CallContext,
  ): AsyncGenerator<StreamFrame<StreamCompletionResponse>, void, undefined> {
    const { generation, leave } = enter();
    const { limits } = generation.config;
    const time = new CallClock(clock, limits.totalTimeoutMs, context.signal);
    try {
      if (!request.input) throw missing("input");
      const deltas = runAttempts({
        ...{ request, limits, clock, time, random },
        targets: await Targets.of(request, generation.catalog, time.signal),
        firstTokenTimeoutMs:
          milliseconds(request.firstTokenTimeout, "first_token_timeout") ?? limits.firstTokenTimeoutMs,
        stallTimeoutMs: milliseconds(request.stallTimeout, "stall_timeout") ?? limits.stallTimeoutMs,
        // After what the caller waits for has left.
        ended: (attempt) => void setImmediate(logAttempt, logger, request, attempt),
      });
      for await (const some of deltas) {
        for (const response of batchDeltas(some)) yield messageFrame(response);
      }
    } finally {
      time.close();
      leave();
    }
  }

  const binding = bindService(LlmProxyService, {
    streamCompletion,
    decodeCompletion: async function* (requests, { signal }) {
      const { generation, leave } = enter();
      try {
        const { config, catalog } = generation;
        const configuredModel = (name: string) => catalog.configured(name);
        yield* decodeCompletion(requests, { limits: config.limits, clock, configuredModel, signal });
      } finally {
        leave();
      }
    },
    prepareCompletion: async (request) => prepareCompletion(request),
    countTokens: (request, { signal }) =>
      withGeneration(({ catalog }) => countTokens(request, { catalog, clock, logger }, signal)),
    embed: (request, { signal }) =>
      withGeneration(({ catalog }) => embed(request, { catalog, clock }, signal)),
    listModels: (request, { signal }) =>
      withGeneration(async ({ catalog }) => {
        const models = await catalog.list(signal);
        return pageOfModels(
          models.filter(({ access }) => mayUse(access, request.caller)),
          request,
        );
      }),
  });
  return {
    ...binding,
    get load() {
      const load = { calls, taken: 0, waiting: 0 };
      for (const upstream of new Set(generations.flatMap((generation) => [...generation.upstreams]))) {
        load.taken += upstream.load.taken;
        load.waiting += upstream.load.waiting;
      }
      return load;
    },
    reload(config) {
      const before = current();
      generations.push(new Generation(config, deps, before));
      before.replace();
      const alive = generations.filter((generation) => generation === current() || generation.calls > 0);
      generations.splice(0, generations.length, ...alive);
    },
    async close() {
      await Promise.all(generations.map((generation) => generation.close()));
    },
  };
}

/** The books: one line per attempt, without a word of what was said. */
function logAttempt(logger: Logger, { caller }: StreamCompletionRequest, ended: EndedAttempt): void {
  const { attempt, target, usage, failure } = ended;
  const facts = {
    ...{ provider: target.upstream.name, model: target.model.id, attempt },
    ...(caller && { tenantId: caller.tenantId, turnId: caller.turnId, purpose: caller.purpose }),
    ...(usage && {
      ...{ inputTokens: usage.inputTokens, outputTokens: usage.outputTokens, estimated: usage.estimated },
      ...(usage.currency !== "" && { costMicros: usage.costMicros, currency: usage.currency }),
    }),
  };
  if (failure === undefined) logger.info(facts, "a model answered");
  else if (failure === "cancelled") logger.info(facts, "a model call was cancelled");
  else if (failure.code === ErrorCode.INTERNAL)
    logger.error({ err: failure, ...facts }, "a model call failed inside Turnwire");
  else
    logger.warn(
      { ...facts, code: errorCodeName(failure.code), failure: failure.message },
      "a model call failed",
    );
}

function milliseconds(duration: Duration | undefined, field: string): number | undefined {
  if (!duration) return undefined;
  const ms = Number(duration.seconds) * 1000 + duration.nanos / 1e6;
  if (ms > 0 && ms <= 86_400_000) return ms;
  throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
    message: `${field} must be more than zero and at most a day`,
    details: { field },
  });
}

function missing(field: string): TurnError {
  return new TurnError(ErrorCode.INVALID_ARGUMENT, { message: `${field} must be set`, details: { field } });
}
