/** ListModels: pages of the models that the caller may use. */
import { create } from "@bufbuild/protobuf";
import {
  ListModelsResponseSchema,
  ModelSchema,
  type ListModelsRequest,
  type ListModelsResponse,
  type Model,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import { DEMO_MODEL_ID, type ModelConfig, type PriceConfig } from "./config.js";

const DEFAULT_PAGE_SIZE = 100;
const MAX_PAGE_SIZE = 500;

/** A page token is the id of the last model of the page before. The first model of all is the default one. */
export function pageOfModels(models: readonly ModelConfig[], request: ListModelsRequest): ListModelsResponse {
  const { pageToken, pageSize } = request;
  const after = pageToken === "" ? -1 : models.findIndex(({ id }) => id === pageToken);
  if (pageToken !== "" && after === -1) {
    throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
      message: "page_token is not valid any more",
      details: { field: "page_token" },
    });
  }
  const size = Math.min(pageSize === 0 ? DEFAULT_PAGE_SIZE : pageSize, MAX_PAGE_SIZE);
  const page = models.slice(after + 1, after + 1 + size);
  const more = after + 1 + size < models.length;
  return create(ListModelsResponseSchema, {
    models: page.map((model) => modelMessage(model, model === models[0])),
    nextPageToken: more ? (page.at(-1)?.id ?? "") : "",
  });
}

function modelMessage(model: ModelConfig, isDefault: boolean): Model {
  return create(ModelSchema, {
    modelId: model.id,
    displayName: model.displayName,
    ownedBy: model.ownedBy,
    contextTokens: model.contextTokens,
    maxOutputTokens: model.maxOutputTokens,
    modalities: [...model.modalities],
    tools: model.tools ?? true,
    reasoning: model.reasoning ?? false,
    nativeToolCalling: model.tools ?? true,
    aliases: [...model.aliases],
    isDefault,
    demo: model.id === DEMO_MODEL_ID,
    ...(model.price && { price: priceMessage(model.price) }),
    ...(model.access && { access: { restricted: true, groups: [...model.access] } }),
  });
}

function priceMessage({ currency, input, output, cacheRead, cacheWrite }: PriceConfig) {
  return {
    currency,
    inputMicrosPerMtok: String(input),
    outputMicrosPerMtok: String(output),
    cacheReadMicrosPerMtok: String(cacheRead),
    cacheWriteMicrosPerMtok: String(cacheWrite),
  };
}
