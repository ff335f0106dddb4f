/**
 * The wake-ups between processes: one connection that listens, made when first needed, made again whenever it breaks.
 *
 * A wake-up is a hint and may get lost; what it points to is a row. So whoever subscribes is also called after each
 * (re)connect, and reads its rows then.
 */
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import type { Logger } from "../lib/log.js";

export type WakeChannel = "turnwire_command" | "turnwire_stopped" | "turnwire_session_event";

interface Subscription {
  readonly channel: WakeChannel;
  readonly wake: (payload: string | undefined) => void;
}

const CHANNELS: readonly WakeChannel[] = ["turnwire_command", "turnwire_stopped", "turnwire_session_event"];
const CONNECT_TIMEOUT_MS = 2_000;
/** A connection that does not answer this question in time is half open. */
const PROBE_EVERY_MS = 10_000;
const PROBE_TIMEOUT_MS = 3_000;
const MAX_BACKOFF_MS = 500;

export class Listener {
  readonly #connectionString: string;
  readonly #logger: Logger;
  readonly #subscriptions = new Set<Subscription>();
  readonly #closed = new AbortController();
  #running: Promise<void> | undefined;
  #client: pg.Client | undefined;

  constructor(connectionString: string, logger: Logger) {
    this.#connectionString = connectionString;
    this.#logger = logger;
  }

  /** `wake` with the payload of each notification, and with undefined after each (re)connect. Returns unsubscribe. */
  subscribe(channel: WakeChannel, wake: (payload: string | undefined) => void): () => void {
    const subscription = { channel, wake };
    this.#subscriptions.add(subscription);
    this.#running ??= this.#run();
    return () => void this.#subscriptions.delete(subscription);
  }

  async close(): Promise<void> {
    this.#closed.abort();
    const client = this.#client;
    if (client)
      await Promise.race([client.end().catch(() => undefined), sleep(1_000, undefined, { ref: false })]);
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#closed;
    for (let attempt = 0; !signal.aborted; attempt++) {
      const listened = await this.#listen(signal);
      if (listened) attempt = 0;
      const backoffMs = Math.min(50 * 2 ** attempt, MAX_BACKOFF_MS);
      await sleep(backoffMs, undefined, { signal, ref: false }).catch(() => undefined); // closed
    }
  }

  /** One life of the connection; false when it never listened. Never throws. */
  async #listen(signal: AbortSignal): Promise<boolean> {
    const client = new pg.Client({
      connectionString: this.#connectionString,
      application_name: "turnwire-listener",
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      query_timeout: PROBE_TIMEOUT_MS,
      keepAlive: true,
    });
    const ended = new Promise<void>((resolve) => {
      client.once("end", resolve);
      client.on("error", (error) => {
        this.#logger.debug({ err: error }, "the listening connection was lost");
        resolve();
      });
    });
    try {
      await client.connect();
      this.#client = client;
      client.on("notification", ({ channel, payload }) => this.#wake(channel, payload));
      for (const channel of CHANNELS) await client.query(`listen ${channel}`);
    } catch (error) {
      this.#logger.debug({ err: error }, "the listening connection could not be made");
      this.#discard(client);
      return false;
    }
    for (const channel of CHANNELS) this.#wake(channel, undefined);
    await Promise.race([ended, this.#probe(client, signal)]);
    this.#discard(client);
    return true;
  }

  /** Resolves when the connection is dead or the listener closed. */
  async #probe(client: pg.Client, signal: AbortSignal): Promise<void> {
    try {
      while (this.#client === client) {
        await sleep(PROBE_EVERY_MS, undefined, { signal, ref: false });
        await client.query("select 1");
      }
    } catch {
      // Closed, or no answer: either way this connection has served.
    }
  }

  #discard(client: pg.Client): void {
    if (this.#client === client) this.#client = undefined;
    client.end().catch(() => undefined); // it may be broken
  }

  #wake(channel: string, payload: string | undefined): void {
    for (const subscription of this.#subscriptions)
      if (subscription.channel === channel) subscription.wake(payload);
  }
}
