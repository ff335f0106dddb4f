import { createHash } from "node:crypto";
import type { TurnRow } from "../store/store.js";
import type { ChatDeps } from "./ports.js";
import { FencedError } from "./turn-writer.js";

/** Stores a text under its turn as a file of the turn's user; answers its id. The same id again changes nothing. */
export async function saveTextFile(
  deps: ChatDeps,
  turn: TurnRow,
  epoch: number,
  fileId: string,
  name: string,
  text: string,
): Promise<string> {
  const data = Buffer.from(text, "utf8");
  const principal = { tenantId: turn.tenantId, userId: turn.userId, admin: false };
  const file = {
    fileId,
    name,
    mediaType: "text/plain; charset=utf-8",
    sizeBytes: BigInt(data.length),
    sha256: createHash("sha256").update(data).digest("hex"),
    turnId: turn.turnId,
    createTime: deps.clock.now(),
  };
  if (!(await deps.store.saveFile(principal, epoch, file, data)))
    throw new FencedError("another process owns the turn");
  return fileId;
}
