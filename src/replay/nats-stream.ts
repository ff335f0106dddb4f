/** The stream that holds the log: made, checked and named. What the server echoes is what counts. */
import type { StreamConfig, StreamInfo } from "nats";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import { newId } from "../lib/ids.js";
import type { Logger } from "../lib/log.js";
import { LIVE_SUBJECTS, LOG_SUBJECTS } from "./nats-entry.js";
import type { NatsInbox } from "./nats-inbox.js";
import { MAX_BATCH_BYTES } from "./replay-log.js";

/** JetStream error codes that mean something to us. */
export const STREAM_NOT_FOUND = 10059;
export const NO_MESSAGE_FOUND = 10037;
const STREAM_NAME_IN_USE = 10058;

export interface StreamOptions {
  readonly stream: string;
  readonly replicas: number;
  /** Undefined: 4 GiB, or the most the server grants; an existing stream keeps its own. */
  readonly maxBytes: number | undefined;
  /** Undefined: 24 h; an existing stream keeps its own. */
  readonly maxAgeMs: number | undefined;
  readonly logger: Logger;
}

const DEFAULT_MAX_BYTES = 4 * 1024 ** 3;
const LEAST_MAX_BYTES = 64 * 1024 ** 2;
const DEFAULT_MAX_AGE_MS = 24 * 3600 * 1000;
const NANOS_PER_MS = 1_000_000;
/** Headers of an entry stay far below this. */
const HEADER_ROOM_BYTES = 4 * 1024;
const ID_IN_DESCRIPTION = /turnwire log ([0-9a-f-]{36})/;

/** An answer of the JetStream API that is an error. */
export class JetStreamError extends Error {
  override readonly name = "JetStreamError";
  readonly errCode: number;

  constructor(errCode: number, description: string) {
    super(`JetStream error ${errCode}: ${description}`);
    this.errCode = errCode;
  }
}

/** Calls the JetStream API. Throws JetStreamError for an error answer, NoAnswerError for none. */
export async function callJetStream<T>(inbox: NatsInbox, method: string, request: object = {}): Promise<T> {
  const answer = await inbox.ask(`$JS.API.${method}`, JSON.stringify(request));
  const body = answer.json<T & { error?: { code: number; err_code?: number; description?: string } }>();
  if (body.error)
    throw new JetStreamError(body.error.err_code ?? body.error.code, body.error.description ?? "");
  return body;
}

/** The stream's description; undefined = there is no such stream. */
export async function streamInfo(inbox: NatsInbox, stream: string): Promise<StreamInfo | undefined> {
  try {
    return await callJetStream<StreamInfo>(inbox, `STREAM.INFO.${stream}`);
  } catch (error) {
    if (error instanceof JetStreamError && error.errCode === STREAM_NOT_FOUND) return undefined;
    throw error;
  }
}

/** The log's id: written into the description when the stream is made; else (made by hand) its time of creation. */
export function logIdOf(info: StreamInfo): string {
  return ID_IN_DESCRIPTION.exec(info.config.description ?? "")?.[1] ?? `created-${info.created}`;
}

/** Makes the stream if it is not there, brings it up to date if it differs, and checks what the server says it is. */
export async function ensureStream(inbox: NatsInbox, options: StreamOptions): Promise<StreamInfo> {
  const existing = await streamInfo(inbox, options.stream);
  const info = existing ? await updateStream(inbox, existing, options) : await createStream(inbox, options);
  checkConfig(info.config, options);
  return info;
}

async function createStream(inbox: NatsInbox, options: StreamOptions): Promise<StreamInfo> {
  let maxBytes = options.maxBytes ?? DEFAULT_MAX_BYTES;
  for (;;) {
    try {
      const config = wantedConfig(options, maxBytes);
      const info = await callJetStream<StreamInfo>(inbox, `STREAM.CREATE.${options.stream}`, config);
      options.logger.info(
        { stream: options.stream, maxBytes, logId: logIdOf(info) },
        "made the log's stream",
      );
      return info;
    } catch (error) {
      if (!(error instanceof JetStreamError)) throw error;
      if (error.errCode === STREAM_NAME_IN_USE) {
        const made = await streamInfo(inbox, options.stream); // another process was first: its id counts
        if (made) return made;
      }
      const noRoom = /insufficient|resources|maximum|exceed/i.test(error.message);
      if (!noRoom || options.maxBytes !== undefined || maxBytes <= LEAST_MAX_BYTES)
        throw unusable(error.message);
      maxBytes = Math.max(LEAST_MAX_BYTES, Math.floor(maxBytes / 2));
    }
  }
}

async function updateStream(
  inbox: NatsInbox,
  existing: StreamInfo,
  options: StreamOptions,
): Promise<StreamInfo> {
  const has = existing.config;
  const wanted = wantedConfig(options, has.max_bytes);
  const config: Partial<StreamConfig> = {
    ...has,
    subjects: wanted.subjects!,
    discard: wanted.discard!,
    allow_direct: true,
    republish: wanted.republish!,
    max_msgs: -1,
    max_msgs_per_subject: -1,
    max_msg_size: wanted.max_msg_size!,
    max_bytes: options.maxBytes ?? (has.max_bytes > 0 ? has.max_bytes : DEFAULT_MAX_BYTES),
    max_age: options.maxAgeMs === undefined ? has.max_age : wanted.max_age!,
    duplicate_window: options.maxAgeMs === undefined ? has.duplicate_window : wanted.duplicate_window!,
  };
  const same = (Object.keys(config) as (keyof StreamConfig)[]).every(
    (key) => JSON.stringify(config[key]) === JSON.stringify(has[key]),
  );
  if (same) return existing;
  try {
    return await callJetStream<StreamInfo>(inbox, `STREAM.UPDATE.${options.stream}`, config);
  } catch (error) {
    if (error instanceof JetStreamError) throw unusable(error.message);
    throw error;
  }
}

function wantedConfig(options: StreamOptions, maxBytes: number): Partial<StreamConfig> {
  const maxAgeNanos = (options.maxAgeMs ?? DEFAULT_MAX_AGE_MS) * NANOS_PER_MS;
  return {
    name: options.stream,
    description: `turnwire log ${newId()}`,
    subjects: [LOG_SUBJECTS],
    retention: "limits",
    storage: "file",
    num_replicas: options.replicas,
    discard: "new",
    max_bytes: maxBytes,
    max_age: maxAgeNanos,
    max_msgs: -1,
    max_msgs_per_subject: -1,
    max_consumers: -1,
    max_msg_size: MAX_BATCH_BYTES + HEADER_ROOM_BYTES,
    // No message carries an id, but the window must not be longer than max_age.
    duplicate_window: Math.min(maxAgeNanos, 1_000 * NANOS_PER_MS),
    allow_direct: true,
    republish: { src: LOG_SUBJECTS, dest: LIVE_SUBJECTS },
  } as Partial<StreamConfig>;
}

/** Old servers leave out what they do not know without a word, so the echo is read. */
function checkConfig(config: StreamConfig, options: StreamOptions): void {
  const wrong = [
    config.subjects.join() !== LOG_SUBJECTS && "subjects",
    config.storage !== "file" && "storage",
    config.retention !== "limits" && "retention",
    config.discard !== "new" && "discard",
    config.allow_direct !== true && "allow_direct",
    (config.republish?.src !== LOG_SUBJECTS || config.republish.dest !== LIVE_SUBJECTS) && "republish",
    !(config.max_bytes > 0) && "max_bytes",
    config.max_msgs_per_subject > 0 && "max_msgs_per_subject",
    config.num_replicas < options.replicas && "num_replicas",
    config.no_ack === true && "no_ack",
  ].filter((name) => name !== false);
  if (wrong.length > 0) throw unusable(`these settings are not what the log needs: ${wrong.join(", ")}`);
}

function unusable(why: string): TurnError {
  return new TurnError(ErrorCode.INTERNAL, {
    cause: new Error(`the JetStream stream cannot be used: ${why}`),
  });
}
