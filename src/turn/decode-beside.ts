/** What a model stream says beside text and calls: usage, attempts, sources, media. */
import { create } from "@bufbuild/protobuf";
import type {
  AttemptBoundary,
  CitationDelta,
  MediaPart,
  ServerToolCall,
  UsageDelta,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { Document, Usage } from "../../gen/turnwire/packet/v1/common_pb.js";
import { DocumentSchema, ErrorCode, UsageSchema } from "../../gen/turnwire/packet/v1/common_pb.js";
import { ResetReason } from "../../gen/turnwire/packet/v1/control_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { StatusLevel } from "../../gen/turnwire/packet/v1/side_pb.js";
import { TurnError } from "../lib/errors.js";
import { freshAttempt } from "./decode-state.js";
import type { StepState } from "./decode-state.js";
import { cutText, errorMessage, packet, sumUsage } from "./packets.js";
import { lanePlacementOf } from "./placement.js";

const MAX_SOURCES = 200;
const MAX_MEDIA_PARTS = 16;
const MAX_MEDIA_BYTES = 16 * 1024 * 1024;
const MAX_SHORT_BYTES = 1024;
const MAX_URL_BYTES = 4096;
const MAX_SNIPPET_BYTES = 8192;

/** Within an attempt the newest figures hold; attempts add up. */
export function addUsage(state: StepState, out: Packet[], delta: UsageDelta): void {
  if (!delta.usage) return;
  state.usageByAttempt.set(delta.attempt || state.attempt, delta.usage);
  if (state.options.placement.parent) return; // an agent's usage is told with its call
  out.push(
    packet(
      "usageInfo",
      { usage: shownUsage(state), cycle: state.options.cycle },
      lanePlacementOf(state.options.modelIndex),
    ),
  );
}

/** Usage of all attempts of the cycle: what was shown and taken back was paid for too. */
export function stepUsage(state: StepState): Usage {
  const { priorUsage, attempt: first = 1 } = state.options;
  const made = Math.max(1, state.usageByAttempt.size, state.attempt - first + 1);
  const attempts = made + (priorUsage?.attempts ?? 0);
  return create(UsageSchema, { ...sumUsage([priorUsage, ...state.usageByAttempt.values()]), attempts });
}

/** The same as it may be shown before the lane's end. */
export function shownUsage(state: StepState): Usage {
  const usage = stepUsage(state);
  return state.secret ? { ...usage, costMicros: "0", currency: "" } : usage;
}

/**
 * The peer gave an attempt up and makes another one. What it showed is discarded (CycleReset, then the cycle begins
 * again); when it had shown nothing, nobody hears of it. discard_from_seq is 0: everything the cycle has shown.
 */
export function crossAttemptBoundary(state: StepState, out: Packet[], boundary: AttemptBoundary): void {
  const { cycle, modelIndex, placement, toolChoice } = state.options;
  if (placement.parent && state.visible) {
    // An agent's blocks stand inside a call of another cycle: they cannot be taken back alone.
    state.error = boundary.cause ?? errorMessage(new TurnError(ErrorCode.UPSTREAM_TRUNCATED), state.modelId);
    return;
  }
  const nextModel = boundary.nextModelId || state.modelId;
  state.attempt = Math.max(state.attempt, boundary.failedAttempt) + 1;
  if (state.visible) {
    const reason = nextModel === state.modelId ? ResetReason.RETRY : ResetReason.FALLBACK_MODEL;
    const lane = lanePlacementOf(modelIndex);
    out.push(packet("cycleReset", { cycle, reason }, lane, true));
    out.push(packet("cycleStarted", { cycle, modelId: nextModel, attempt: state.attempt, toolChoice }, lane));
  }
  state.modelId = nextModel;
  Object.assign(state, freshAttempt());
}

/** A source the provider itself cites, shown once. */
export function addCitation(state: StepState, out: Packet[], delta: CitationDelta): void {
  if (!delta.document) return;
  const document = boundDocument(delta.document);
  const id = document.documentId || document.url;
  if (id === "" || state.sourceIds.has(id) || state.sourceIds.size >= MAX_SOURCES) return;
  state.sourceIds.add(id);
  out.push(packet("sourceInfo", { documents: [document] }, lanePlacementOf(state.options.modelIndex)));
}

function boundDocument(document: Document): Document {
  return create(DocumentSchema, {
    ...document,
    documentId: cutText(document.documentId || document.url, MAX_SHORT_BYTES),
    title: cutText(document.title, MAX_SHORT_BYTES),
    url: cutText(document.url, MAX_URL_BYTES),
    snippet: cutText(document.snippet, MAX_SNIPPET_BYTES),
    source: cutText(document.source, MAX_SHORT_BYTES),
    metadata: {},
  });
}

/** A tool that the provider runs itself: a status line that is done when it is. */
export function addServerToolCall(state: StepState, out: Packet[], call: ServerToolCall): void {
  const action = cutText(call.name, MAX_SHORT_BYTES);
  if (action === "") return;
  out.push(
    packet(
      "statusUpdate",
      {
        action,
        description: action,
        done: call.done,
        level: StatusLevel.INFO,
        statusId: cutText(call.callId, MAX_SHORT_BYTES),
      },
      lanePlacementOf(state.options.modelIndex),
    ),
  );
}

/** Keeps what the model made, within bounds, for the caller to store. */
export function addMedia(state: StepState, media: MediaPart): void {
  const sizeOf = (part: MediaPart): number => (part.source.case === "data" ? part.source.value.length : 0);
  const held = state.media.reduce((sum, part) => sum + sizeOf(part), 0);
  if (state.media.length >= MAX_MEDIA_PARTS || held + sizeOf(media) > MAX_MEDIA_BYTES) return;
  state.media.push(media);
}
