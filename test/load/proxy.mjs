/**
 * What a log-less service in the middle costs: a grpc-js proxy that decodes and encodes the llm peer's stream.
 * proxy.mjs ADDRESS batches: message by message, the peer's batches kept; proxy.mjs ADDRESS deltas: a message for each delta.
 */
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import {
  LlmProxyService,
  StreamCompletionRequestSchema,
  StreamCompletionResponseSchema,
} from "../../dist/gen/turnwire/llm/v1/llm_proxy_service_pb.js";

const path = `/${LlmProxyService.typeName}/StreamCompletion`;
const each = process.argv[3] === "deltas";
const client = new grpc.Client(process.argv[2], grpc.credentials.createInsecure());
const encode = (schema) => (message) => Buffer.from(toBinary(schema, message));
const decode = (schema) => (bytes) => fromBinary(schema, bytes);
const server = new grpc.Server();
server.addService(
  {
    streamCompletion: {
      path,
      requestStream: false,
      responseStream: true,
      requestSerialize: encode(StreamCompletionRequestSchema),
      requestDeserialize: decode(StreamCompletionRequestSchema),
      responseSerialize: encode(StreamCompletionResponseSchema),
      responseDeserialize: decode(StreamCompletionResponseSchema),
    },
  },
  {
    streamCompletion(call) {
      const upstream = client.makeServerStreamRequest(
        path,
        encode(StreamCompletionRequestSchema),
        decode(StreamCompletionResponseSchema),
        call.request,
      );
      upstream.on("data", (message) => {
        let room = true;
        if (each) for (const delta of message.deltas) room = call.write({ ...message, deltas: [delta] });
        else room = call.write(message);
        if (room) return;
        upstream.pause();
        call.once("drain", () => upstream.resume());
      });
      upstream.on("end", () => call.end());
      upstream.on("error", (error) => call.destroy(error));
      call.on("cancelled", () => upstream.cancel());
    },
  },
);
server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  console.log(JSON.stringify({ ready: true, port }));
});
