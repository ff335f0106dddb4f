/**
 * Owns the connection that listens for other processes' appends. What it hears is a hint; after each (re)connect `onReady`
 * says that hints may have been missed.
 */
import pg from "pg";
import { systemClock } from "../lib/clock.js";
import type { Logger } from "../lib/log.js";
import { aborted } from "../lib/signals.js";
import { CHANNEL } from "./postgres-appender.js";
import { endClient } from "./postgres-connection.js";

export interface PostgresListenerOptions {
  readonly connectionString: string;
  /** Notifications of this origin are this process's own. */
  readonly origin: string;
  readonly logger: Logger;
  readonly onHint: (turnId: string, entryNo: number) => void;
  readonly onReady: () => void;
}

const RECONNECT_FIRST_MS = 25;
const RECONNECT_MOST_MS = 250;

export class PostgresListener {
  readonly #options: PostgresListenerOptions;
  readonly #closing = new AbortController();
  readonly #running: Promise<void>;

  constructor(options: PostgresListenerOptions) {
    this.#options = options;
    this.#running = this.#run();
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing;
    for (let pause = RECONNECT_FIRST_MS; !signal.aborted; pause = Math.min(pause * 2, RECONNECT_MOST_MS)) {
      try {
        await this.#listen(() => (pause = RECONNECT_FIRST_MS));
      } catch (error) {
        if (!signal.aborted)
          this.#options.logger.debug({ err: error }, "not listening to the log's notifications");
      }
      await systemClock.sleep(pause, signal).catch(() => undefined); // aborted: the loop ends
    }
  }

  /** Listens until the connection is lost (then it throws) or the listener is closed. */
  async #listen(onListening: () => void): Promise<void> {
    const client = new pg.Client({
      connectionString: this.#options.connectionString,
      application_name: "turnwire-log-listen",
      connectionTimeoutMillis: 2_000,
      keepAlive: true,
    });
    const lost = new Promise<never>((_, reject) => {
      client.on("error", reject);
      client.on("end", () => reject(new Error("the connection ended")));
    });
    lost.catch(() => undefined); // also looked at below
    client.on("notification", (message) => this.#onNotification(message.payload ?? ""));
    try {
      await Promise.race([client.connect(), lost]);
      await Promise.race([client.query(`listen ${CHANNEL}`), lost]);
      onListening();
      this.#options.onReady();
      await Promise.race([lost, aborted(this.#closing.signal)]);
    } finally {
      await endClient(client);
    }
  }

  #onNotification(payload: string): void {
    const space = payload.indexOf(" ");
    if (payload.slice(0, space) === this.#options.origin) return;
    for (const hint of payload.slice(space + 1).split(",")) {
      const [turnId, entryNo] = hint.split(":");
      if (turnId && Number(entryNo) > 0) this.#options.onHint(turnId, Number(entryNo));
    }
  }
}
