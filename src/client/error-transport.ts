import type { StreamResponse, Transport } from "@connectrpc/connect";
import type { DescMessage } from "@bufbuild/protobuf";
import { toClientError } from "./errors.js";

/** The same transport, its failures turned into TurnwireClientError. */
export function mapErrors(transport: Transport): Transport {
  return {
    async unary(...call) {
      try {
        return await transport.unary(...call);
      } catch (thrown) {
        throw toClientError(thrown);
      }
    },
    async stream(...call) {
      try {
        return withMappedMessages(await transport.stream(...call));
      } catch (thrown) {
        throw toClientError(thrown);
      }
    },
  };
}

function withMappedMessages<I extends DescMessage, O extends DescMessage>(
  response: StreamResponse<I, O>,
): StreamResponse<I, O> {
  return { ...response, message: mapped(response.message) };
}

async function* mapped<T>(messages: AsyncIterable<T>): AsyncGenerator<T, void> {
  try {
    yield* messages;
  } catch (thrown) {
    throw toClientError(thrown);
  }
}
