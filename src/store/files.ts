/** Files: what is too long for a packet, in parts, under the epoch of the turn that made it; and reading all files. */
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import type { Principal } from "../lib/rpc/service-binding.js";
import { bytes, Undo, type Db } from "./db.js";
import type { FileRow, Store } from "./store.js";

export const FILE_PART_BYTES = 256 * 1024;

export type FileMethods = Pick<Store, "saveFile" | "getFile" | "readFile">;

export function fileMethods(db: Db): FileMethods {
  return {
    saveFile: (principal, epoch, file, data) => saveFile(db, principal, epoch, file, data),
    getFile: (principal, fileId) => getFile(db, principal, fileId),
    readFile: (principal, fileId, offset) => readFile(db, principal, fileId, offset),
  };
}

const SAVE_FILE = {
  name: "save_file",
  text: `
    with guard as materialized (
      select turn_id from turnwire.turns where turn_id = $1 and epoch = $2 and phase = 1 and tenant_id = $3 and user_id = $4 for share),
    saved as (
      insert into turnwire.files (file_id, turn_id, tenant_id, user_id, name, media_type, size_bytes, sha256, create_time)
      select $5, turn_id, $3, $4, $6, $7, $8, $9, $10 from guard on conflict (file_id) do nothing returning 1)
    select exists (select from guard) as guarded, exists (select from saved) as saved`,
};

async function saveFile(
  db: Db,
  { tenantId, userId }: Principal,
  epoch: number,
  file: FileRow,
  data: Uint8Array,
): Promise<boolean> {
  return db.writers.transaction(async (tx) => {
    const rows = await tx.query<{ guarded: boolean; saved: boolean }>(SAVE_FILE, [
      file.turnId,
      epoch,
      tenantId,
      userId,
      file.fileId,
      file.name,
      file.mediaType,
      file.sizeBytes,
      file.sha256,
      file.createTime,
    ]);
    const { guarded, saved } = rows[0]!;
    if (!guarded) throw new Undo(false);
    if (!saved) return true; // stored before, whole
    for (let at = 0, part = 0; at < data.length; at += FILE_PART_BYTES, part++) {
      await tx.query(
        {
          name: "save_file_part",
          text: "insert into turnwire.file_parts (file_id, part_no, tenant_id, user_id, data) values ($1, $2, $3, $4, $5)",
        },
        [file.fileId, part, tenantId, userId, data.subarray(at, at + FILE_PART_BYTES)],
      );
    }
    return true;
  });
}

export interface RawFile {
  readonly file_id: string;
  readonly name: string;
  readonly media_type: string;
  readonly size_bytes: string;
  readonly sha256: string;
  /** null on files that users uploaded. */
  readonly turn_id: string | null;
  readonly create_time: Date;
}

export const FILE_COLUMNS = "file_id, name, media_type, size_bytes, sha256, turn_id, create_time";

export function toFileRow(raw: RawFile): FileRow {
  return {
    fileId: raw.file_id,
    name: raw.name,
    mediaType: raw.media_type,
    sizeBytes: BigInt(raw.size_bytes),
    sha256: raw.sha256,
    turnId: raw.turn_id ?? "",
    createTime: raw.create_time,
  };
}

async function getFile(
  db: Db,
  { tenantId, userId }: Principal,
  fileId: string,
): Promise<FileRow | undefined> {
  const rows = await db.readers.query<RawFile>(
    `select ${FILE_COLUMNS} from turnwire.files where file_id = $1 and tenant_id = $2 and user_id = $3 and whole`,
    [fileId, tenantId, userId],
  );
  return rows[0] && toFileRow(rows[0]);
}

async function* readFile(
  db: Db,
  principal: Principal,
  fileId: string,
  offset: bigint,
): AsyncGenerator<Uint8Array> {
  if (offset < 0n)
    throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
      message: "offset must not be negative",
      details: { field: "offset" },
    });
  const file = await getFile(db, principal, fileId);
  if (!file)
    throw new TurnError(ErrorCode.NOT_FOUND, {
      message: `no file ${fileId.slice(0, 128)}`,
      details: { field: "file_id" },
    });
  for (let at = offset; at < file.sizeBytes;) {
    const partNo = Number(at / BigInt(FILE_PART_BYTES));
    const rows = await db.readers.query<{ data: Buffer }>(
      "select data from turnwire.file_parts where file_id = $1 and part_no = $2 and tenant_id = $3 and user_id = $4",
      [fileId, partNo, principal.tenantId, principal.userId],
    );
    if (!rows[0])
      throw new TurnError(ErrorCode.NOT_FOUND, {
        message: `file ${fileId.slice(0, 128)} was deleted`,
        details: { field: "file_id" },
      });
    const part = bytes(rows[0].data).subarray(Number(at % BigInt(FILE_PART_BYTES)));
    yield part;
    at += BigInt(part.length);
  }
}
