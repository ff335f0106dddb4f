/** The dialect of Amazon Bedrock's Converse: JSON requests, answers as a binary event stream. */
import { ErrorCode } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../../lib/errors.js";
import { stringOf, uint32Of, type Json } from "../../json.js";
import type { DecoderOptions, Dialect, DialectSettings, StreamDecoder } from "../dialect.js";
import { EventStreamParser } from "../shared/event-stream.js";
import { createFramedDecoder } from "../shared/framed-decoder.js";
import { ConverseReader } from "./reader.js";
import { buildBody, buildConverseRequest, modelPath } from "./request.js";
import { parseAwsCredentials, signAwsRequest } from "./sign.js";

/**
 * The dialect as the server at this address speaks it. Keys: an API key of Bedrock, or AWS credentials as one text
 * ("id:secret" or "id:secret:token"), with which requests are signed for the region of the address or `quirks.region`.
 */
export function createBedrockConverseDialect(settings: DialectSettings): Dialect {
  const region = regionOf(settings);
  return {
    api: "bedrock-converse",
    accept: "application/vnd.amazon.eventstream, application/json",
    buildRequest: buildConverseRequest,
    authorize(request, apiKey): Readonly<Record<string, string>> {
      if (apiKey === undefined) return {};
      const credentials = parseAwsCredentials(apiKey);
      return credentials
        ? signAwsRequest(request, credentials, region)
        : { authorization: `Bearer ${apiKey}` };
    },
    createDecoder: createBedrockConverseDecoder,
    embedding: {
      maxInputs: 1,
      request(inputs, model) {
        const isCohere = model.upstreamModel.includes("cohere.");
        const body = isCohere
          ? { texts: [...inputs], input_type: "search_document" }
          : { inputText: inputs[0] ?? "" };
        return { path: `${modelPath(model.upstreamModel)}/invoke`, headers: {}, body, dropped: [] };
      },
      read: readEmbedding,
    },
    tokenCount: {
      request(input, model) {
        const dropped: string[] = [];
        const { messages, system, toolConfig } = buildBody(input, model, dropped);
        const converse = { messages, system, toolConfig };
        const path = `${modelPath(model.upstreamModel)}/count-tokens`;
        return { path, headers: {}, body: { input: { converse } }, dropped };
      },
      read: (answer) => uint32Of(answer["inputTokens"]) ?? 0,
    },
  };
}

/** A decoder for one response. */
export function createBedrockConverseDecoder(options: DecoderOptions): StreamDecoder {
  return createFramedDecoder({
    ...options,
    reader: new ConverseReader(options),
    framing: (maxEventBytes) => new EventStreamParser(maxEventBytes),
  });
}

function regionOf({ baseUrl, quirks }: DialectSettings): string {
  const region = quirks["region"];
  if (region !== undefined && (typeof region !== "string" || !/^[a-z0-9-]{1,32}$/.test(region))) {
    const message = 'quirks.region must be the name of a region, such as "eu-central-1"';
    throw new TurnError(ErrorCode.INVALID_ARGUMENT, { message, details: { field: "quirks.region" } });
  }
  return stringOf(region) || (/bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\./.exec(baseUrl)?.[1] ?? "us-east-1");
}

/** Titan gives one vector, Cohere a list. */
function readEmbedding(answer: Json) {
  const vectors = answer["embeddings"] ?? (answer["embedding"] ? [answer["embedding"]] : []);
  return {
    vectors: Array.isArray(vectors) ? (vectors as number[][]) : [],
    inputTokens: uint32Of(answer["inputTextTokenCount"]) ?? 0,
  };
}
