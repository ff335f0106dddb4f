/**
 * What the events of one Responses answer mean: JSON in, deltas out.
 * Owns which output items are open. R1 items are told apart by their place in the output: proxies give an item a new id with
 * every event. Once a server gave one place to several, ids that are known count first. R2 unknown events and items are
 * ignored. R3 the last event says how the answer ended; where no item came, it holds them all, else calls that were left out.
 */
import type { CompletionDelta } from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, FinishReason } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../../lib/errors.js";
import { finishReasonOf } from "../../finish-reasons.js";
import { readErrorFacts } from "../../http/upstream-error.js";
import { objectOf, objectsOf, stringOf, uint32Of, type Json } from "../../json.js";
import type { DecoderOptions, EventReader } from "../dialect.js";
import { AnswerEnd } from "../shared/answer-end.js";
import { BlockWriter } from "../shared/block-writer.js";
import { SourceCollector } from "../shared/source-collector.js";
import type { CallsEnd } from "../shared/tool-call-assembler.js";
import type { OutputItem } from "./item.js";
import { itemOfEvent, openItem, type AnswerParts } from "./output-items.js";
import { usageOf } from "./usage.js";

export interface ResponseReaderOptions extends DecoderOptions {
  /** Show reasoning that is no summary. */
  readonly rawReasoning: boolean;
}

export class ResponseReader implements EventReader {
  readonly #parts: AnswerParts;
  readonly #end: AnswerEnd;
  readonly #open = new Map<number, OutputItem>();
  readonly #placeOfId = new Map<string, number>();
  readonly #callIds = new Set<string>();
  #itemSeen = false;
  #lastPlace = 0;
  /** Places of items that were given one that is taken. */
  #nextSparePlace = -1;

  constructor(options: ResponseReaderOptions) {
    const { attempt, secrets, rawReasoning } = options;
    const writer = new BlockWriter(options);
    const sources = new SourceCollector();
    const end = new AnswerEnd(writer, {
      attempt,
      secrets,
      beforeEnd: (out, how) => this.#beforeEnd(out, how),
    });
    this.#end = end;
    this.#parts = {
      ...{ writer, sources, serverCalls: new Map(), completed: [], rawReasoning },
      warn: (message, out) => end.warn(message, out),
    };
  }

  get ended(): boolean {
    return this.#end.ended;
  }

  get finishSeen(): boolean {
    return this.#end.finishSeen;
  }

  event(name: string, value: Json, out: CompletionDelta[]): void {
    if (this.#end.ended) return;
    const type = stringOf(value["type"]) || name;
    switch (type) {
      case "response.created":
      case "response.in_progress":
      case "response.queued":
        this.#end.setResponseId(stringOf(objectOf(value["response"])["id"]));
        return;
      case "response.output_item.added":
        this.#added(this.#freePlace(value), objectOf(value["item"]), out);
        return;
      case "response.output_item.done":
        this.#done(this.#placeOf(value), objectOf(value["item"]), out);
        return;
      case "response.completed":
      case "response.incomplete":
      case "response.failed":
      case "response.cancelled":
      case "response.done":
        this.#response(objectOf(value["response"]), statusOf(value, type), out);
        return;
      case "error":
        this.#end.reported(readErrorFacts(errorIn(value)), out);
        return;
      default:
        if (type.startsWith("response.")) this.#itemEvent(type, value, out);
        else if (value["error"]) this.#end.reported(readErrorFacts(value["error"]), out);
    }
  }

  document(value: Json, out: CompletionDelta[]): void {
    if (Array.isArray(value["output"])) this.#response(value, stringOf(value["status"]) || "completed", out);
    else if (value["error"] || value["type"] === "error")
      this.#end.reported(readErrorFacts(errorIn(value)), out);
    else this.#end.fail(new TurnError(ErrorCode.UPSTREAM_MALFORMED), out);
  }

  done(out: CompletionDelta[]): void {
    this.#end.done(out);
  }

  error(value: unknown, out: CompletionDelta[]): void {
    this.#end.errorEvent(value, out);
  }

  malformed(out: CompletionDelta[]): void {
    this.#end.malformed(out);
  }

  eof(out: CompletionDelta[], failure?: TurnError): void {
    this.#end.eof(out, failure);
  }

  #added(place: number, item: Json, out: CompletionDelta[]): void {
    this.#itemSeen = true;
    const id = stringOf(item["id"]);
    if (id !== "") this.#placeOfId.set(id, place);
    this.#callIds.add(stringOf(item["call_id"]));
    this.#open.set(place, openItem(item, this.#parts, out));
  }

  #itemEvent(type: string, value: Json, out: CompletionDelta[]): void {
    const place = this.#placeOf(value);
    let item = this.#open.get(place);
    if (!item) {
      item = itemOfEvent(type, value, this.#parts);
      if (!item) return;
      this.#open.set(place, item);
      this.#itemSeen = true;
    }
    item.event(type, value, out);
  }

  #done(place: number, item: Json, out: CompletionDelta[]): void {
    if (!this.#open.has(place)) this.#added(place, item, out);
    this.#open.get(place)?.done(item, out);
    this.#open.delete(place);
  }

  /** R1. What says neither belongs to the latest. */
  #placeOf(value: Json): number {
    const given = value["output_index"];
    if (typeof given === "number" && !this.#sharesPlaces) return (this.#lastPlace = given);
    const id = stringOf(value["item_id"]) || stringOf(objectOf(value["item"])["id"]);
    const place = this.#placeOfId.get(id) ?? uint32Of(value["output_index"]) ?? this.#lastPlace;
    return (this.#lastPlace = place);
  }

  get #sharesPlaces(): boolean {
    return this.#nextSparePlace < -1;
  }

  /** The place of an item that begins. */
  #freePlace(value: Json): number {
    const place = uint32Of(value["output_index"]) ?? this.#lastPlace;
    return (this.#lastPlace = this.#open.has(place) ? this.#nextSparePlace-- : place);
  }

  /** The whole response, as its last event or an answer that was not streamed holds it. */
  #response(response: Json, status: string, out: CompletionDelta[]): void {
    this.#end.setResponseId(stringOf(response["id"]));
    const usage = usageOf(response["usage"]);
    if (usage) this.#end.setUsage(usage);
    const leftOut = objectsOf(response["output"]).filter((item) => this.#isLeftOut(item));
    for (const item of leftOut) this.#done(this.#nextSparePlace--, item, out);
    if (status === "failed" || response["error"]) {
      this.#end.reported(readErrorFacts(response["error"]), out);
      return;
    }
    const raw =
      status === "incomplete" ? stringOf(objectOf(response["incomplete_details"])["reason"]) : status;
    this.#end.setFinish(reasonOf(status, raw), raw || status);
    this.#end.done(out);
  }

  /** R3. */
  #isLeftOut(item: Json): boolean {
    const callId = stringOf(item["call_id"]);
    return this.#itemSeen ? callId !== "" && !this.#callIds.has(callId) : true;
  }

  /** I3: the server's word that a call is whole holds, but not against its filter. */
  #beforeEnd(out: CompletionDelta[], how: CallsEnd): void {
    this.#open.clear();
    if (how === "broken" && this.#end.finishSeen) return;
    for (const call of this.#parts.completed) call.complete(out);
  }
}

/** Errors stand in a member of their own, or flat in the event. */
function errorIn(value: Json): unknown {
  return value["error"] ?? { message: value["message"], code: value["code"] };
}

/** How the response ended: by its own word, else by the name of the event. */
function statusOf(value: Json, type: string): string {
  const own = stringOf(objectOf(value["response"])["status"]);
  const word = type.slice("response.".length);
  return ENDS.has(own) || word === "done" ? own || "completed" : word;
}

const ENDS = new Set(["incomplete", "failed", "cancelled"]);

function reasonOf(status: string, raw: string): FinishReason {
  if (status === "completed") return FinishReason.STOP;
  // An answer that is still being made in the background, or was given up there, is none.
  return status === "incomplete" ? (finishReasonOf(raw) ?? FinishReason.LENGTH) : FinishReason.ERROR;
}
