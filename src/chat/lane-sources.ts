/**
 * What a lane's tools have found: the documents that its next answer may cite, by number. Numbers belong to a lane: each has
 * its own, from 1 on, whatever the lanes beside it find.
 */
import { create } from "@bufbuild/protobuf";
import { CitationMode } from "../../gen/turnwire/chat/v1/types_pb.js";
import {
  ModelMessageSchema,
  Role,
  type ModelMessage,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { Document } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { StepOptions } from "../turn/decode.js";

const REMINDER =
  "Where your answer uses what these documents say, cite them right after the statement by their numbers in square " +
  "brackets, for example [3] or [3, 5]. Use no other numbers in brackets, and write no list of sources.";

/** Citation numbers of the calls of a lane are this far apart (contract.md 3). */
const CITATION_RANGE = 100;

export class LaneSources {
  readonly #mode: CitationMode;
  readonly #documents = new Map<number, Document>();
  #nextNumber = 1;

  constructor(mode: CitationMode) {
    this.#mode = mode;
  }

  /** The first number of a fresh range, for one call. */
  reserveNumbers(): number {
    const first = this.#nextNumber;
    this.#nextNumber += CITATION_RANGE;
    return first;
  }

  /** The first document of a number keeps it. */
  add(documents: readonly Document[]): void {
    for (const document of documents) {
      const number = document.citationNumber;
      if (number > 0 && !this.#documents.has(number)) this.#documents.set(number, document);
    }
  }

  /** For the next model call; undefined = markers stay as the model writes them. */
  citations(): StepOptions["citations"] {
    if (this.#mode === CitationMode.KEEP || this.#documents.size === 0) return undefined;
    const style = this.#mode === CitationMode.REMOVE ? "remove" : "hyperlink";
    return { style, documentOf: (number) => this.#documents.get(number) };
  }

  /** What the model is reminded of, after everything else it reads; not part of the conversation. */
  reminder(): ModelMessage[] {
    if (this.#mode === CitationMode.REMOVE || this.#documents.size === 0) return [];
    const part = { part: { case: "text" as const, value: REMINDER } };
    return [create(ModelMessageSchema, { role: Role.REMINDER, parts: [part] })];
  }
}
