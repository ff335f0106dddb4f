/**
 * Files that users upload: an upload grows part by part in the order of its offsets, and is a file once it is whole.
 *
 * U1 a part sent again changes nothing; other bytes at the same place are a conflict.
 * U2 what is not whole is not found as a file, and is removed when nothing was added for a while.
 */
import type { Principal } from "../lib/rpc/service-binding.js";
import { bytes, Undo, type Channel, type Queryable } from "./db.js";
import { FILE_COLUMNS, FILE_PART_BYTES, toFileRow, type RawFile } from "./files.js";
import { lockOwner } from "./owner-key.js";
import type { FileRow } from "./store.js";

export interface UploadPart {
  /** The client's id: all parts of a file carry the same one. */
  readonly uploadId: string;
  /** Id of the file, if this part is its first. */
  readonly fileId: string;
  readonly name: string;
  readonly mediaType: string;
  /** Session that the file is deleted with; "" = none. */
  readonly sessionId: string;
  readonly offset: number;
  readonly data: Uint8Array;
  /** The file ends with this part. */
  readonly last: boolean;
}

export interface UploadLimits {
  /** Size of one file, bytes. */
  readonly maxFileBytes: number;
  /** Uploaded files of one user together, bytes: those that are not whole count as far as they came. */
  readonly maxUserBytes: number;
  /** Uploaded files of one user. */
  readonly maxFiles: number;
  /** Uploads of one user that are not whole. */
  readonly maxOpenUploads: number;
}

export type UploadOutcome =
  | { readonly kind: "stored"; readonly receivedBytes: number; readonly file: FileRow | undefined }
  /** The part begins behind what there is. */
  | { readonly kind: "gap"; readonly receivedBytes: number }
  /** The upload has other bytes there, or has ended elsewhere. */
  | { readonly kind: "conflict" }
  | {
      readonly kind:
        "too_large" | "too_many_bytes" | "too_many_files" | "too_many_uploads" | "session_not_found";
    };

export interface UploadStore {
  append(principal: Principal, part: UploadPart, limits: UploadLimits): Promise<UploadOutcome>;
  /** "of_a_turn": it goes with its session. */
  deleteFile(principal: Principal, fileId: string): Promise<"deleted" | "not_found" | "of_a_turn">;
  /** Removes uploads that nothing was added to for so long; answers how many. */
  deleteAbandoned(olderThanMs: number, limit: number): Promise<number>;
}

/** Uploads over Postgres. `channel` is the caller's to close. */
export function pgUploadStore(channel: Channel): UploadStore {
  return {
    append: (principal, part, limits) => channel.transaction((tx) => appendPart(tx, principal, part, limits)),
    deleteFile: (principal, fileId) => deleteFile(channel, principal, fileId),
    deleteAbandoned: async (olderThanMs, limit) => {
      const rows = await channel.query(
        `delete from turnwire.files where file_id in (
           select file_id from turnwire.files
           where not whole and touch_time < clock_timestamp() - $1 * interval '1 millisecond' limit $2 for update skip locked)
         returning 1`,
        [olderThanMs, limit],
      );
      return rows.length;
    },
  };
}

interface RawUpload extends RawFile {
  readonly whole: boolean;
}

async function appendPart(
  tx: Queryable,
  principal: Principal,
  part: UploadPart,
  limits: UploadLimits,
): Promise<UploadOutcome> {
  const end = part.offset + part.data.length;
  if (end > limits.maxFileBytes) return { kind: "too_large" };
  let upload = await lockUpload(tx, principal, part.uploadId);
  if (!upload && part.offset > 0)
    return (await hasSession(tx, principal, part.sessionId))
      ? { kind: "gap", receivedBytes: 0 }
      : { kind: "session_not_found" }; // it was deleted, and what there was of the upload with it
  if (!upload) {
    await lockOwner(tx, "uploads", principal);
    upload = await lockUpload(tx, principal, part.uploadId); // another first part of it was faster
  }
  if (!upload) {
    const refused = await begin(tx, principal, part, limits);
    if (refused) return refused;
    upload = (await lockUpload(tx, principal, part.uploadId))!;
  }
  const received = Number(upload.size_bytes);
  if (part.offset > received) return { kind: "gap", receivedBytes: received };
  if (upload.whole && (end > received || (part.last && end < received))) return { kind: "conflict" };
  if (part.last && end < received) return { kind: "conflict" };
  const known = Math.min(received, end) - part.offset;
  if (!(await isStored(tx, upload.file_id, part.offset, part.data.subarray(0, known))))
    return { kind: "conflict" };
  if (upload.whole) return { kind: "stored", receivedBytes: received, file: toFileRow(upload) };
  if (end > received && (await usedBytes(tx, principal)) + end - received > limits.maxUserBytes)
    throw new Undo({ kind: "too_many_bytes" } satisfies UploadOutcome);
  await write(tx, principal, upload.file_id, received, part.data.subarray(known));
  const rows = await tx.query<RawUpload>(
    `update turnwire.files set size_bytes = $2, touch_time = clock_timestamp(), whole = $3, sha256 = case when $3
       then (select encode(sha256(coalesce(string_agg(data, ''::bytea order by part_no), ''::bytea)), 'hex')
             from turnwire.file_parts p where p.file_id = $1)
       else '' end
     where file_id = $1 returning ${FILE_COLUMNS}, whole`,
    [upload.file_id, Math.max(received, end), part.last],
  );
  return {
    kind: "stored",
    receivedBytes: Math.max(received, end),
    file: part.last ? toFileRow(rows[0]!) : undefined,
  };
}

async function lockUpload(
  tx: Queryable,
  { tenantId, userId }: Principal,
  uploadId: string,
): Promise<RawUpload | undefined> {
  const rows = await tx.query<RawUpload>(
    `select ${FILE_COLUMNS}, whole from turnwire.files where tenant_id = $1 and user_id = $2 and upload_id = $3 for update`,
    [tenantId, userId, uploadId],
  );
  return rows[0];
}

/** What the user's uploads hold together. */
async function usedBytes(tx: Queryable, { tenantId, userId }: Principal): Promise<number> {
  const [used] = await tx.query<{ bytes: string }>(
    `select coalesce(sum(size_bytes), 0) as bytes from turnwire.files
     where tenant_id = $1 and user_id = $2 and upload_id is not null`,
    [tenantId, userId],
  );
  return Number(used!.bytes);
}

/** Makes the row. The owner must be locked. */
async function begin(
  tx: Queryable,
  { tenantId, userId }: Principal,
  part: UploadPart,
  limits: UploadLimits,
): Promise<UploadOutcome | undefined> {
  const [used] = await tx.query<{ files: string; open: string }>(
    `select count(*) as files, count(*) filter (where not whole) as open
     from turnwire.files where tenant_id = $1 and user_id = $2 and upload_id is not null`,
    [tenantId, userId],
  );
  if (!(await hasSession(tx, { tenantId, userId }, part.sessionId))) return { kind: "session_not_found" };
  if (Number(used!.open) >= limits.maxOpenUploads) return { kind: "too_many_uploads" };
  if (Number(used!.files) >= limits.maxFiles) return { kind: "too_many_files" };
  await tx.query(
    `insert into turnwire.files
       (file_id, tenant_id, user_id, name, media_type, size_bytes, sha256, create_time, upload_id, session_id, whole)
     values ($1, $2, $3, $4, $5, 0, '', clock_timestamp(), $6, nullif($7, ''), false)`,
    [part.fileId, tenantId, userId, part.name, part.mediaType, part.uploadId, part.sessionId],
  );
  return undefined;
}

/** Whether the user has the session, or none is named. It stays until the transaction ends. */
async function hasSession(
  tx: Queryable,
  { tenantId, userId }: Pick<Principal, "tenantId" | "userId">,
  sessionId: string,
): Promise<boolean> {
  if (sessionId === "") return true;
  const rows = await tx.query(
    "select from turnwire.sessions where session_id = $1 and tenant_id = $2 and user_id = $3 for key share",
    [sessionId, tenantId, userId],
  );
  return rows.length > 0;
}

/** Whether the file holds exactly these bytes there. */
async function isStored(tx: Queryable, fileId: string, offset: number, data: Uint8Array): Promise<boolean> {
  if (data.length === 0) return true;
  const first = Math.floor(offset / FILE_PART_BYTES);
  const last = Math.floor((offset + data.length - 1) / FILE_PART_BYTES);
  const rows = await tx.query<{ data: Buffer }>(
    "select data from turnwire.file_parts where file_id = $1 and part_no between $2 and $3 order by part_no",
    [fileId, first, last],
  );
  const start = offset - first * FILE_PART_BYTES;
  const stored = Buffer.concat(rows.map((row) => bytes(row.data))).subarray(start, start + data.length);
  return stored.equals(data);
}

/** Adds bytes at the end: fills up the last part, then makes new ones. */
async function write(
  tx: Queryable,
  { tenantId, userId }: Principal,
  fileId: string,
  at: number,
  data: Uint8Array,
): Promise<void> {
  for (let done = 0; done < data.length;) {
    const position = at + done;
    const piece = data.subarray(done, done + FILE_PART_BYTES - (position % FILE_PART_BYTES));
    await tx.query(
      `insert into turnwire.file_parts as p (file_id, part_no, tenant_id, user_id, data) values ($1, $2, $3, $4, $5)
       on conflict (file_id, part_no) do update set data = p.data || excluded.data`,
      [fileId, Math.floor(position / FILE_PART_BYTES), tenantId, userId, piece],
    );
    done += piece.length;
  }
}

async function deleteFile(
  channel: Channel,
  { tenantId, userId }: Principal,
  fileId: string,
): Promise<"deleted" | "not_found" | "of_a_turn"> {
  const rows = await channel.query<{ turn_id: string | null }>(
    `with found as (select file_id, turn_id from turnwire.files where file_id = $1 and tenant_id = $2 and user_id = $3 and whole),
     gone as (delete from turnwire.files f using found where f.file_id = found.file_id and found.turn_id is null)
     select turn_id from found`,
    [fileId, tenantId, userId],
  );
  if (!rows[0]) return "not_found";
  return rows[0].turn_id === null ? "deleted" : "of_a_turn";
}
