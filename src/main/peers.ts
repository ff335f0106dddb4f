/** The llm and tool peers as the orchestrator sees them: gRPC clients behind its ports, with short-lived catalogues. */
import { create } from "@bufbuild/protobuf";
import {
  ListModelsRequestSchema,
  LlmProxyService,
  type Model,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import {
  ListToolsRequestSchema,
  ToolService,
  type Tool,
} from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import type { ModelPort, ToolPort } from "../chat/ports.js";
import type { Clock } from "../lib/clock.js";
import type { Logger } from "../lib/log.js";
import { createGrpcClient } from "../lib/rpc/grpc-client.js";
import type { Principal } from "../lib/rpc/service-binding.js";
import { abortable } from "../lib/signals.js";

/** How long a catalogue may be old, ms: a new model shows within this time, and a send costs no extra call. */
const CATALOGUE_MS = 2_000;
const MAX_PAGES = 50;
const MAX_CATALOGUES = 1_000;

export interface PeerOptions {
  readonly addresses: string;
  readonly token: string | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
}

export interface Peer<Port> {
  readonly port: Port;
  /** Rejects when the peer does not serve. */
  ready(signal: AbortSignal): Promise<void>;
  close(): void;
}

export function connectModels(options: PeerOptions): Peer<ModelPort> {
  const client = createGrpcClient(LlmProxyService, options);
  const catalogue = new Catalogue<Model>(options.clock, async (principal, pageToken, signal) => {
    const { tenantId, userId, groups = [] } = principal;
    const caller = { tenantId, userId, groups: [...groups], purpose: "catalogue" };
    const page = await client.unary(
      "listModels",
      create(ListModelsRequestSchema, { caller, pageSize: 200, pageToken }),
      { signal, timeoutMs: 10_000 },
    );
    return { rows: page.models, nextToken: page.nextPageToken };
  });
  return {
    port: {
      streamCompletion: (request, signal) => client.serverStream("streamCompletion", request, { signal }),
      listModels: (principal, signal) => catalogue.list(principal, signal),
    },
    ready: (signal) => client.ready(signal),
    close: () => client.close(),
  };
}

export function connectTools(options: PeerOptions): Peer<ToolPort> {
  const client = createGrpcClient(ToolService, options);
  const catalogue = new Catalogue<Tool>(options.clock, async (principal, pageToken, signal) => {
    const caller = { tenantId: principal.tenantId, userId: principal.userId };
    const page = await client.unary(
      "listTools",
      create(ListToolsRequestSchema, { caller, pageSize: 200, pageToken }),
      { signal, timeoutMs: 10_000 },
    );
    return { rows: page.tools, nextToken: page.nextPageToken };
  });
  return {
    port: {
      executeTool: (request, signal) => client.serverStream("executeTool", request, { signal }),
      listTools: (principal, signal) => catalogue.list(principal, signal),
    },
    ready: (signal) => client.ready(signal),
    close: () => client.close(),
  };
}

type FetchPage<T> = (
  principal: Principal,
  pageToken: string,
  signal: AbortSignal,
) => Promise<{ rows: readonly T[]; nextToken: string }>;

/** A peer's list per caller, kept for CATALOGUE_MS; callers at the same time share one call. */
class Catalogue<T> {
  readonly #clock: Clock;
  readonly #fetchPage: FetchPage<T>;
  readonly #kept = new Map<string, { readonly atMs: number; readonly list: Promise<readonly T[]> }>();

  constructor(clock: Clock, fetchPage: FetchPage<T>) {
    this.#clock = clock;
    this.#fetchPage = fetchPage;
  }

  list(principal: Principal, signal: AbortSignal): Promise<readonly T[]> {
    const { tenantId, userId, groups = [] } = principal;
    const key = JSON.stringify([tenantId, userId, groups]);
    const kept = this.#kept.get(key);
    const nowMs = this.#clock.monotonicMs();
    if (kept && nowMs - kept.atMs < CATALOGUE_MS) return abortable(kept.list, signal);
    if (this.#kept.size >= MAX_CATALOGUES) this.#kept.clear();
    const list = this.#fetchAll(principal);
    this.#kept.set(key, { atMs: nowMs, list });
    list.catch(() => this.#kept.delete(key)); // a failure is not kept
    return abortable(list, signal);
  }

  /** Not bound to one caller's signal: others wait for the same call. */
  async #fetchAll(principal: Principal): Promise<readonly T[]> {
    const signal = AbortSignal.timeout(15_000);
    const rows: T[] = [];
    let token = "";
    for (let page = 0; page < MAX_PAGES; page++) {
      const next = await this.#fetchPage(principal, token, signal);
      rows.push(...next.rows);
      token = next.nextToken;
      if (token === "") break;
    }
    return rows;
  }
}
