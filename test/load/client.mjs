/**
 * The reading side of a benchmark, a process of its own: opens `turns` streams at once, counts the text deltas that arrive
 * and how old each is, prints one line of JSON. Usage: client.mjs direct|native|connect ADDRESS TURNS DELTAS RATE
 */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import * as grpc from "@grpc/grpc-js";
import {
  ChatService,
  SendMessageRequestSchema,
  SendMessageResponseSchema,
} from "../../dist/gen/turnwire/chat/v1/chat_service_pb.js";
import {
  LlmProxyService,
  Role,
  StreamCompletionRequestSchema,
  StreamCompletionResponseSchema,
} from "../../dist/gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { percentile } from "./processes.mjs";

const [kind, address, turnsText, deltasText, rateText] = process.argv.slice(2);
const turns = Number(turnsText);
const deltas = Number(deltasText);
const rate = Number(rateText);
const text = `deltas=${deltas} rate=${rate}`;
const ages = [];
let count = 0;
let firstMs;
let lastMs;

function arrived(content) {
  const now = process.hrtime.bigint();
  firstMs ??= performance.now();
  for (const stamp of content.split(" ")) {
    if (stamp === "") continue;
    count++;
    if (rate > 0) ages.push(Number(now - BigInt(stamp)) / 1e6);
  }
  lastMs = performance.now();
}

function grpcStream(client, path, requestSchema, responseSchema, request, onMessage) {
  const call = client.makeServerStreamRequest(
    path,
    (message) => Buffer.from(toBinary(requestSchema, message)),
    (bytes) => fromBinary(responseSchema, bytes),
    request,
    { deadline: Date.now() + 120_000 },
  );
  return new Promise((resolve, reject) => {
    call.on("data", onMessage);
    call.on("end", resolve);
    call.on("error", reject);
  });
}

const onPackets = (response) => {
  for (const packet of response.packets)
    if (packet.payload.case === "agentResponseDelta") arrived(packet.payload.value.content);
};

async function main() {
  const sends = [];
  if (kind === "direct") {
    const client = new grpc.Client(address, grpc.credentials.createInsecure());
    for (let i = 0; i < turns; i++) {
      const request = create(StreamCompletionRequestSchema, {
        caller: { tenantId: "local", userId: "local" },
        input: {
          modelId: "bench",
          messages: [{ role: Role.USER, parts: [{ part: { case: "text", value: text } }] }],
        },
      });
      sends.push(
        grpcStream(
          client,
          `/${LlmProxyService.typeName}/StreamCompletion`,
          StreamCompletionRequestSchema,
          StreamCompletionResponseSchema,
          request,
          (response) => {
            for (const delta of response.deltas)
              if (delta.delta.case === "content") arrived(delta.delta.value.text);
          },
        ),
      );
    }
  } else if (kind === "native") {
    const client = new grpc.Client(address, grpc.credentials.createInsecure());
    for (let i = 0; i < turns; i++) {
      const request = create(SendMessageRequestSchema, { text, models: [{ modelId: "bench" }] });
      sends.push(
        grpcStream(
          client,
          `/${ChatService.typeName}/SendMessage`,
          SendMessageRequestSchema,
          SendMessageResponseSchema,
          request,
          onPackets,
        ),
      );
    }
  } else {
    const client = createClient(
      ChatService,
      createConnectTransport({ baseUrl: `http://${address}`, httpVersion: "2" }),
    );
    for (let i = 0; i < turns; i++) {
      sends.push(
        (async () => {
          for await (const response of client.sendMessage(
            { text, models: [{ modelId: "bench" }] },
            { timeoutMs: 120_000 },
          ))
            onPackets(response);
        })(),
      );
    }
  }
  await Promise.all(sends);
}

const startMs = performance.now();
await main();
const expected = turns * deltas;
if (count !== expected) throw new Error(`${count} deltas arrived, ${expected} were sent`);
console.log(
  JSON.stringify({
    deltas: count,
    perSecond: count / ((lastMs - firstMs) / 1000),
    firstMs: firstMs - startMs,
    p50Ms: ages.length ? percentile(ages, 0.5) : undefined,
    p99Ms: ages.length ? percentile(ages, 0.99) : undefined,
  }),
);
process.exit(0);
