/** Sends a message, leaves in the middle of the answer and comes back. Run it with: npx tsx examples/typescript/resume.ts */
import { createConnectTransport } from "@connectrpc/connect-node"; // in a browser: @connectrpc/connect-web
import { createTurnwireClient, type TurnUpdate } from "../../src/client/index.js";

const baseUrl = process.env.TURNWIRE_URL ?? "http://127.0.0.1:8080";
const client = createTurnwireClient({ transport: createConnectTransport({ baseUrl, httpVersion: "1.1" }) });

function show(update: TurnUpdate): void {
  if (update.kind !== "packets") return; // receipt, snapshot, connection
  for (const { payload } of update.packets) {
    if (payload.case === "agentResponseDelta") process.stdout.write(payload.value.content);
  }
}

const first = client.send({ text: "What time is it in Asia/Tokyo?" });
for await (const update of first) {
  show(update);
  if (first.lastSeq >= 50) break; // cancels the call; the turn goes on without us
}
process.stdout.write(`⟨gone after ${first.lastSeq}⟩`);

const second = client.attach(first.turnId!, { afterSeq: first.lastSeq });
for await (const update of second) show(update);
console.log(`\nturn ${second.turnId} ended at ${second.lastSeq}`);
