/**
 * Reads one turn's packets over every protocol and HTTP version the server speaks, as the encodings of the single packets,
 * so that tests compare bytes.
 */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { createClient, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { Client, credentials, Metadata } from "@grpc/grpc-js";
import {
  ChatService,
  ResumeTurnRequestSchema,
  ResumeTurnResponseSchema,
} from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { PacketSchema } from "../../gen/turnwire/packet/v1/packet_pb.js";
import type { TurnwireProcess } from "./turnwire-process.js";

/** Resolves with the packets after `afterSeq`, each as its bytes, to the stream's end or until `take` packets were had. */
export type ReadPackets = (turnId: string, afterSeq: number, take?: number) => Promise<Uint8Array[]>;

export interface NamedReader {
  readonly name: string;
  readonly read: ReadPackets;
  close(): void;
}

const DEADLINE_MS = 60_000;

export function allReaders(server: Pick<TurnwireProcess, "httpUrl" | "grpcAddress">): NamedReader[] {
  const baseUrl = server.httpUrl;
  return [
    nativeReader("gRPC, native port", server.grpcAddress),
    nativeReader("gRPC (grpc-js), shared port", new URL(baseUrl).host),
    transportReader("gRPC, HTTP/2", createGrpcTransport({ baseUrl })),
    transportReader("Connect, HTTP/1.1", createConnectTransport({ baseUrl, httpVersion: "1.1" })),
    transportReader("Connect, HTTP/2", createConnectTransport({ baseUrl, httpVersion: "2" })),
    transportReader(
      "Connect JSON, HTTP/1.1",
      createConnectTransport({ baseUrl, httpVersion: "1.1", useBinaryFormat: false }),
    ),
    transportReader("gRPC-Web, HTTP/1.1", createGrpcWebTransport({ baseUrl, httpVersion: "1.1" })),
    transportReader("gRPC-Web, HTTP/2", createGrpcWebTransport({ baseUrl, httpVersion: "2" })),
  ];
}

function transportReader(name: string, transport: Transport): NamedReader {
  const client = createClient(ChatService, transport);
  return {
    name,
    close: () => undefined,
    async read(turnId, afterSeq, take = Infinity) {
      const packets: Uint8Array[] = [];
      const cut = new AbortController();
      try {
        for await (const response of client.resumeTurn(
          { turnId, afterSeq },
          { signal: cut.signal, timeoutMs: DEADLINE_MS },
        )) {
          for (const packet of response.packets) {
            if (packet.seq > 0) packets.push(toBinary(PacketSchema, packet));
            if (packets.length >= take) return packets;
          }
        }
      } finally {
        cut.abort();
      }
      return packets;
    },
  };
}

/** grpc-js with the response's own bytes: the packets are cut out of them without decoding. */
function nativeReader(name: string, address: string): NamedReader {
  const client = new Client(address, credentials.createInsecure());
  return {
    name,
    close: () => client.close(),
    read(turnId, afterSeq, take = Infinity) {
      const request = Buffer.from(
        toBinary(ResumeTurnRequestSchema, create(ResumeTurnRequestSchema, { turnId, afterSeq })),
      );
      return new Promise((resolve, reject) => {
        const packets: Uint8Array[] = [];
        const call = client.makeServerStreamRequest(
          `/${ChatService.typeName}/ResumeTurn`,
          (bytes: Buffer) => bytes,
          (bytes: Buffer) => bytes,
          request,
          new Metadata(),
          { deadline: Date.now() + DEADLINE_MS },
        );
        call.on("data", (bytes: Buffer) => {
          for (const packet of rawPackets(bytes)) if (packets.length < take) packets.push(packet);
          if (packets.length >= take) {
            call.cancel();
            resolve(packets);
          }
        });
        call.on("error", reject);
        call.on("end", () => resolve(packets));
      });
    },
  };
}

/** The bytes of field 1 (packets), as they are on the wire; heartbeats left out. */
export function rawPackets(response: Uint8Array): Uint8Array[] {
  const packets: Uint8Array[] = [];
  let at = 0;
  while (at < response.length) {
    if (response[at] !== 0x0a) {
      // Another field (receipt, head_seq, ...): such messages carry no packets but heartbeats.
      return fromBinary(ResumeTurnResponseSchema, response)
        .packets.filter((packet) => packet.seq > 0)
        .map((packet) => toBinary(PacketSchema, packet));
    }
    let length = 0;
    at++;
    for (let shift = 0; ; shift += 7) {
      const byte = response[at++]!;
      length += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) break;
    }
    const bytes = response.subarray(at, at + length);
    at += length;
    if (fromBinary(PacketSchema, bytes).seq > 0) packets.push(bytes);
  }
  return packets;
}
