import { DocumentFailure } from "../../gen/turnwire/chat/v1/types_pb.js";
import type { FetchFailure } from "../egress/fetch-failure.js";

/** Why a document cannot be indexed: stored with it. `message` is public and says what to do. */
export class UnreadableDocument extends Error {
  override readonly name = "UnreadableDocument";
  readonly failure: DocumentFailure;

  constructor(failure: DocumentFailure, message: string, options?: ErrorOptions) {
    super(message, options);
    this.failure = failure;
  }
}

/** The same for what fetching or extraction said. `fetching`: the address could not be read, else its content. */
export function unreadableFrom(error: FetchFailure, fetching: boolean): UnreadableDocument {
  const unreachable = (): UnreadableDocument =>
    new UnreadableDocument(
      DocumentFailure.UNREACHABLE,
      `The address could not be read: ${error.message}. Open it in a browser, save it and add the file.`,
      { cause: error },
    );
  const because = (failure: DocumentFailure, advice: string): UnreadableDocument =>
    new UnreadableDocument(failure, `It could not be read: ${error.message}. ${advice}`, { cause: error });
  switch (error.kind) {
    case "too_large":
      return because(DocumentFailure.TOO_LARGE, "Split it and add the parts.");
    case "encrypted":
      return because(DocumentFailure.ENCRYPTED, "Save a copy without the password and add that.");
    case "unreadable":
      return because(DocumentFailure.BROKEN, "Open it in its program, save it anew and add that.");
    case "timeout":
      return fetching ? unreachable() : because(DocumentFailure.TIMEOUT, "Split it and add the parts.");
    default:
      return unreachable();
  }
}
