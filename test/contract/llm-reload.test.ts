/** The llm process's half of a reload: SIGHUP and changed files, what health checks and callers see of it. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { create } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  Health,
  HealthCheckRequestSchema,
  HealthCheckResponse_ServingStatus,
} from "../../gen/grpc/health/v1/health_pb.js";
import { ListModelsRequestSchema, LlmProxyService } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { silentLogger } from "../../src/lib/log.js";
import { createGrpcClient, type GrpcClient } from "../../src/lib/rpc/grpc-client.js";
import { readConfig } from "../../src/main/config.js";
import { startLlm, type RunningPeer } from "../../src/main/start-llm.js";

const { SERVING, NOT_SERVING } = HealthCheckResponse_ServingStatus;
const signal = new AbortController().signal;
let dir: string;
let file: string;
let peer: RunningPeer;
let models: GrpcClient<typeof LlmProxyService>;
let health: GrpcClient<typeof Health>;

beforeAll(async () => {
  dir = mkdtempSync(path.join(os.tmpdir(), "turnwire-reload-"));
  file = path.join(dir, "models.yaml");
  write("one");
  peer = await startLlm(readConfig({}, false), 0, { TURNWIRE_CONFIG: file }, silentLogger);
  const options = { addresses: `127.0.0.1:${peer.port}`, logger: silentLogger };
  models = createGrpcClient(LlmProxyService, options);
  health = createGrpcClient(Health, options);
});
afterAll(async () => {
  models?.close();
  health?.close();
  await peer?.close(0);
  rmSync(dir, { recursive: true });
});

function write(model: string): void {
  writeFileSync(
    file,
    `providers: [{ name: p, api: openai-chat, baseUrl: "http://127.0.0.1:1", models: [${model}] }]`,
  );
}

async function listed(): Promise<string[]> {
  const answer = await models.unary("listModels", create(ListModelsRequestSchema), { signal });
  return answer.models.map(({ modelId }) => modelId);
}

async function statusOf(service: string): Promise<HealthCheckResponse_ServingStatus> {
  return (await health.unary("check", create(HealthCheckRequestSchema, { service }), { signal })).status;
}

/** Asks until the answer is this one. */
async function until<T>(ask: () => Promise<T>, want: T): Promise<void> {
  await expect.poll(ask, { timeout: 20_000, interval: 50 }).toEqual(want);
}

test("a changed file is in use soon; SIGHUP takes it at once", async () => {
  expect(await listed()).toEqual(["one", "demo"]);
  write("two");
  await until(listed, ["two", "demo"]);
  write("three");
  process.emit("SIGHUP");
  expect(await listed()).toEqual(["three", "demo"]);
});

test("a file with a mistake - the old one stays, the process serves on, the health of the configuration says so", async () => {
  expect(await statusOf("turnwire.llm.config")).toBe(SERVING);
  write("four: 4");
  process.emit("SIGHUP");
  expect(await statusOf("turnwire.llm.config")).toBe(NOT_SERVING);
  expect(await statusOf(LlmProxyService.typeName)).toBe(SERVING);
  expect(await listed()).toEqual(["three", "demo"]);
  write("five");
  await until(() => statusOf("turnwire.llm.config"), SERVING);
  expect(await listed()).toEqual(["five", "demo"]);
});

test("without a file there is nothing to ask for, and SIGHUP is left alone", async () => {
  const before = process.listenerCount("SIGHUP");
  const bare = await startLlm(readConfig({}, false), 0, {}, silentLogger);
  expect(process.listenerCount("SIGHUP")).toBe(before);
  await bare.close(0);
});
