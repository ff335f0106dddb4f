-- The final state of everything, and what a turn needs to survive its process. Protobuf values are stored encoded.
-- Tenant and user stand on every row that belongs to somebody. Timestamps have milliseconds, as clients see them.
-- Numbers in `role`, `phase`, `kind` are explained beside them; `outcome`, `stop_reason`, `status` are the enums' numbers.

create table turnwire.sessions (
  session_id text primary key,
  tenant_id text not null,
  user_id text not null,
  -- Of CreateSession; null = none was given.
  request_id text,
  title text not null,
  tags text[] not null,
  settings bytea not null,
  -- End of the branch that is shown; '' = no message yet.
  current_message_id text not null default '',
  create_time timestamptz(3) not null default clock_timestamp(),
  update_time timestamptz(3) not null default clock_timestamp(),
  revision bigint not null default 1,
  archived boolean not null default false
);
create unique index sessions_by_request on turnwire.sessions (tenant_id, user_id, request_id) where request_id is not null;
create index sessions_by_update on turnwire.sessions (tenant_id, user_id, update_time desc, session_id desc);

create table turnwire.turns (
  turn_id text primary key,
  session_id text not null references turnwire.sessions on delete cascade,
  tenant_id text not null,
  user_id text not null,
  request_id text not null,
  partition integer not null,
  log_id text not null,
  -- 1 running, 2 committed (final rows and terminal stored), 3 closed (the terminal is in the log).
  phase smallint not null default 1,
  epoch integer not null default 0,
  owner text not null,
  user_message_id text not null,
  plan bytea not null,
  session_created boolean not null,
  start_time timestamptz(3) not null default clock_timestamp(),
  end_time timestamptz(3),
  outcome smallint not null default 0,
  stop_reason smallint not null default 0,
  usage bytea,
  terminal_seq integer not null default 0,
  terminal_batch bytea,
  -- This server's clock: when the terminal was known to be in the log, and whether the log entries are gone.
  close_time timestamptz(3),
  erased boolean not null default false
);
-- A session runs one turn at a time; the accept looks first, this makes it certain.
create unique index turns_running on turnwire.turns (session_id) where phase = 1;
create index turns_by_session on turnwire.turns (session_id, start_time desc, turn_id desc);
create index turns_by_user on turnwire.turns (tenant_id, user_id, start_time desc, turn_id desc);
create index turns_open_by_owner on turnwire.turns (owner, start_time) where phase < 3;
create index turns_erasable on turnwire.turns (close_time) where phase = 3 and not erased;

-- One row per request_id ever sent: who inserts it runs the turn, everybody else reads it. Without a turn it is the
-- tombstone of a stop that came first.
create table turnwire.turn_requests (
  tenant_id text not null,
  user_id text not null,
  request_id text not null,
  turn_id text references turnwire.turns on delete cascade deferrable initially deferred,
  request_hash text,
  stop_time timestamptz(3),
  primary key (tenant_id, user_id, request_id)
);
create index turn_requests_by_turn on turnwire.turn_requests (turn_id) where turn_id is not null;
create index turn_requests_tombstones on turnwire.turn_requests (stop_time) where turn_id is null;

create table turnwire.messages (
  message_id text primary key,
  session_id text not null references turnwire.sessions on delete cascade,
  tenant_id text not null,
  user_id text not null,
  -- '' = a root.
  parent_message_id text not null,
  turn_id text not null,
  model_index integer,
  -- 1 user, 2 assistant.
  role smallint not null,
  input bytea,
  answer bytea,
  -- The answer's plain text, for search (U+0000 taken out).
  search_text text not null default '',
  -- Order of creation: a parent comes before its children.
  ordinal bigint generated always as identity,
  create_time timestamptz(3) not null default clock_timestamp()
);
create index messages_by_session on turnwire.messages (session_id, ordinal);
create index messages_by_parent on turnwire.messages (session_id, parent_message_id, ordinal);

create table turnwire.lanes (
  turn_id text not null references turnwire.turns on delete cascade,
  model_index integer not null,
  tenant_id text not null,
  user_id text not null,
  model_id text not null,
  message_id text not null,
  outcome smallint not null default 0,
  usage bytea,
  primary key (turn_id, model_index)
);

-- Written at the commit. What models and tools said is kept as UTF-8 bytes: it may hold U+0000, which text cannot.
create table turnwire.tool_calls (
  turn_id text not null references turnwire.turns on delete cascade,
  model_index integer not null,
  ordinal integer not null,
  tenant_id text not null,
  user_id text not null,
  call_id text not null,
  cycle integer not null,
  tool_id text not null,
  arguments_json bytea not null,
  status smallint not null,
  model_text bytea not null,
  primary key (turn_id, model_index, ordinal)
);

create table turnwire.documents (
  turn_id text not null references turnwire.turns on delete cascade,
  document_id text not null,
  tenant_id text not null,
  user_id text not null,
  document bytea not null,
  primary key (turn_id, document_id)
);

create table turnwire.citations (
  turn_id text not null,
  model_index integer not null,
  number integer not null,
  tenant_id text not null,
  user_id text not null,
  document_id text not null,
  primary key (turn_id, model_index, number),
  foreign key (turn_id, document_id) references turnwire.documents on delete cascade
);

-- What was used, per lane. Outlives its session: it holds no content, and accounts must add up.
create table turnwire.usage (
  turn_id text not null,
  model_index integer not null,
  tenant_id text not null,
  user_id text not null,
  model_id text not null,
  usage bytea not null,
  end_time timestamptz(3) not null,
  primary key (turn_id, model_index)
);
create index usage_by_user on turnwire.usage (tenant_id, user_id, end_time);

create table turnwire.files (
  file_id text primary key,
  turn_id text not null references turnwire.turns on delete cascade,
  tenant_id text not null,
  user_id text not null,
  name text not null,
  media_type text not null,
  size_bytes bigint not null,
  sha256 text not null,
  create_time timestamptz(3) not null
);
create index files_by_turn on turnwire.files (turn_id);

-- Each part but the last holds exactly 256 KiB.
create table turnwire.file_parts (
  file_id text not null references turnwire.files on delete cascade,
  part_no integer not null,
  tenant_id text not null,
  user_id text not null,
  data bytea not null,
  primary key (file_id, part_no)
);
alter table turnwire.file_parts alter column data set storage external;

-- The packets of a turn, in dense parts of concatenated batches.
create table turnwire.archive_parts (
  turn_id text not null references turnwire.turns on delete cascade,
  first_seq integer not null,
  last_seq integer not null,
  tenant_id text not null,
  user_id text not null,
  batch bytea not null,
  primary key (turn_id, last_seq),
  check (last_seq >= first_seq)
);
alter table turnwire.archive_parts alter column batch set storage external;

-- Private recovery rows. 1 input, 2 cycle, 3 dispatching, 4 result; -1 and '' stand for "has none".
create table turnwire.checkpoints (
  turn_id text not null references turnwire.turns on delete cascade,
  kind smallint not null,
  model_index integer not null,
  cycle integer not null,
  call_id text not null,
  ordinal bigint generated always as identity,
  tenant_id text not null,
  user_id text not null,
  epoch integer not null,
  data bytea not null,
  primary key (turn_id, kind, model_index, cycle, call_id)
);

-- What others want of a turn's owner. 1 stop; model_index -1 = the whole turn.
create table turnwire.turn_commands (
  turn_id text not null references turnwire.turns on delete cascade,
  kind smallint not null,
  model_index integer not null,
  tenant_id text not null,
  user_id text not null,
  create_time timestamptz(3) not null default clock_timestamp(),
  -- The owner's answer; null = open.
  stop_seq integer,
  primary key (turn_id, kind, model_index)
);

create table turnwire.processes (
  incarnation text primary key,
  data_dir_id text not null,
  beat bigint not null default 0,
  start_time timestamptz(3) not null default clock_timestamp()
);
