/**
 * The reading side of the proxy benchmark: `proxy-client.mjs http|grpc ADDRESS first|paced|saturated STREAMS DELTAS RATE`.
 * http reads server-sent events of chat completions, grpc an llm peer. `first` makes STREAMS calls one after the other and
 * times their first text; the other two open STREAMS at once. Prints one line of JSON.
 */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import http from "node:http";
import {
  LlmProxyService,
  Role,
  StreamCompletionRequestSchema,
  StreamCompletionResponseSchema,
} from "../../dist/gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { percentile } from "./processes.mjs";

const [kind, address, mode, streamsText, deltasText, rateText] = process.argv.slice(2);
const streams = Number(streamsText);
const deltas = Number(deltasText);
const rate = Number(rateText);
const text = `deltas=${deltas} rate=${rate}`;
const DEADLINE_MS = 120_000;
const ages = [];
let count = 0;

/** Each word of the content is the time at which it was sent. */
function arrived(content) {
  const now = process.hrtime.bigint();
  for (const stamp of content.split(" ")) {
    if (stamp === "") continue;
    count++;
    if (rate > 0) ages.push(Number(now - BigInt(stamp)) / 1e6);
  }
}

const agent = new http.Agent({ keepAlive: true });
const [host, port] = address.split(":");

function httpStream(onContent) {
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json", authorization: "Bearer none" };
    const request = http.request(
      { host, port, path: "/v1/chat/completions", method: "POST", headers, agent, timeout: DEADLINE_MS },
      (response) => {
        if (response.statusCode !== 200) reject(new Error(`status ${response.statusCode}`));
        let held = "";
        response.setEncoding("utf8");
        response.on("data", (part) => {
          held += part;
          for (let end = held.indexOf("\n"); end >= 0; end = held.indexOf("\n")) {
            const line = held.slice(0, end);
            held = held.slice(end + 1);
            if (!line.startsWith("data: {")) continue;
            const content = JSON.parse(line.slice(6)).choices?.[0]?.delta?.content;
            if (content) onContent(content);
          }
        });
        response.on("end", resolve).on("error", reject);
      },
    );
    // A server may close a connection just when it is used again: then the call was not taken.
    request.on("error", (error) =>
      request.reusedSocket && error.code === "ECONNRESET" ? resolve(httpStream(onContent)) : reject(error),
    );
    request.on("timeout", () => request.destroy(new Error("timed out")));
    request.end(
      JSON.stringify({ model: "bench", stream: true, messages: [{ role: "user", content: text }] }),
    );
  });
}

const client = kind === "grpc" ? new grpc.Client(address, grpc.credentials.createInsecure()) : undefined;

function grpcStream(onContent) {
  const request = create(StreamCompletionRequestSchema, {
    caller: { tenantId: "local", userId: "local" },
    input: {
      modelId: "bench",
      messages: [{ role: Role.USER, parts: [{ part: { case: "text", value: text } }] }],
    },
  });
  const call = client.makeServerStreamRequest(
    `/${LlmProxyService.typeName}/StreamCompletion`,
    (message) => Buffer.from(toBinary(StreamCompletionRequestSchema, message)),
    (bytes) => fromBinary(StreamCompletionResponseSchema, bytes),
    request,
    { deadline: Date.now() + DEADLINE_MS },
  );
  return new Promise((resolve, reject) => {
    call.on("data", (response) => {
      for (const { delta } of response.deltas) if (delta.case === "content") onContent(delta.value.text);
    });
    call.on("end", resolve).on("error", reject);
  });
}

const stream = kind === "grpc" ? grpcStream : httpStream;

async function firstTexts() {
  const waits = [];
  for (let i = 0; i < streams; i++) {
    const startMs = performance.now();
    let firstMs;
    await stream((content) => {
      firstMs ??= performance.now() - startMs;
      arrived(content);
    });
    if (i >= streams / 5) waits.push(firstMs); // the first fifth warms up
  }
  return { firstP50Ms: percentile(waits, 0.5), firstP99Ms: percentile(waits, 0.99) };
}

async function allAtOnce() {
  const startMs = performance.now();
  await Promise.all(Array.from({ length: streams }, () => stream(arrived)));
  return {
    perSecond: count / ((performance.now() - startMs) / 1000),
    ageP50Ms: ages.length ? percentile(ages, 0.5) : undefined,
    ageP99Ms: ages.length ? percentile(ages, 0.99) : undefined,
  };
}

const figures = mode === "first" ? await firstTexts() : await allAtOnce();
if (count !== streams * deltas) throw new Error(`${count} deltas arrived, ${streams * deltas} were sent`);
console.log(JSON.stringify({ ...figures, deltas: count }));
process.exit(0);
