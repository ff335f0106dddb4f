import type pg from "pg";

const END_WITHIN_MS = 1_000;

/** Breaks a connection at once: what is under way fails, nothing is waited for. */
export function destroyClient(client: pg.Client): void {
  // The client has no public way to do this, and its `end` waits for a server that may not answer.
  const { connection } = client as unknown as { connection?: { stream?: { destroy(error: Error): void } } };
  connection?.stream?.destroy(new Error("the log's database gave no answer for too long"));
}

/** Ends a connection, within a second whatever the server does. Never rejects. */
export async function endClient(client: pg.Client): Promise<void> {
  const timer = setTimeout(() => destroyClient(client), END_WITHIN_MS);
  // It may be broken already, and then there is nothing to end.
  await Promise.race([client.end().catch(() => undefined), later(END_WITHIN_MS * 2)]);
  clearTimeout(timer);
}

function later(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms).unref());
}
