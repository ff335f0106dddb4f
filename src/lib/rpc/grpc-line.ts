/**
 * One grpc-js client with the calls on it. Owns its connections. An HTTP/2 server closes a connection on which many streams
 * were reset in a short time (Node: 1,000 at once, then 33 a second), and all other calls on it fail. So a line that has
 * seen its share of calls that were cancelled retires: new calls take another one, its own go on to their end.
 */
import type { ServiceError, StatusObject } from "@grpc/grpc-js";
import { Client, credentials, status, type ChannelOptions } from "@grpc/grpc-js";
import type { EventEmitter } from "node:events";

/** Below half of what a server bears. */
const MAX_RESETS = 400;

export class GrpcLine {
  readonly client: Client;
  readonly #target: string;
  readonly #options: ChannelOptions;
  #open = 0;
  #resets = 0;
  #retired = false;

  constructor(target: string, options: ChannelOptions) {
    this.#target = target;
    this.#options = options;
    this.client = new Client(target, credentials.createInsecure(), options);
  }

  /** Counts a call that was opened on the client. */
  carry<C extends EventEmitter>(call: C): C {
    this.#open++;
    call.once("status", ({ code }: StatusObject | ServiceError) => {
      this.#open--;
      if (code === status.CANCELLED || code === status.DEADLINE_EXCEEDED) this.#resets++;
      if (this.#retired && this.#open === 0) this.client.close();
    });
    return call;
  }

  /** The line for the next call: this one, or another in its place. */
  renewed(): GrpcLine {
    if (this.#resets < MAX_RESETS) return this;
    this.#retired = true;
    if (this.#open === 0) this.client.close();
    return new GrpcLine(this.#target, this.#options);
  }
}
