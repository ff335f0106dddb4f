/** The public face of the client: what applications import. */
export { createTurnwireClient } from "./turnwire-client.js";
export type { AttachOptions, TurnwireClient, TurnwireClientOptions } from "./turnwire-client.js";
export { TurnStream } from "./turn-stream.js";
export type { ConnectionUpdate, StopTarget, TurnUpdate } from "./turn-stream.js";
export { TurnwireClientError } from "./errors.js";
export type { ErrorDetails } from "./errors.js";
export { cancellableStream } from "./cancellable-stream.js";
export { newRequestId } from "./request-id.js";
