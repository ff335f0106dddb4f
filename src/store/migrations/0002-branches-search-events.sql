-- What a page needs beside turns: feedback, search over all that was said, and events that tell other clients of changes.

alter table turnwire.messages
  -- Of SetFeedback: 1 good, -1 bad, 0 nothing said.
  add column rating smallint not null default 0,
  add column comment text not null default '',
  add column reasons text[] not null default '{}',
  -- The words of `search_text` and, so that a search reads nobody else's entries, one lexeme for whom they belong to.
  add column search tsvector;
create index messages_by_words on turnwire.messages using gin (search);

-- What happened to the sessions of a user, for whoever watches. Rows point to what changed; it is read as it is then.
-- Kept for an hour; they outlive their session, or nobody would hear that it was deleted.
create table turnwire.session_events (
  ordinal bigint generated always as identity primary key,
  tenant_id text not null,
  user_id text not null,
  -- A reader has seen what its snapshot shows: what is visible now and was not then is new to it, in whatever order
  -- transactions end.
  xact_id xid8 not null default pg_current_xact_id(),
  -- 1 session changed, 2 session deleted, 3 turn started, 4 turn ended, 5 document, 6 title, 7 tags, 8 follow-ups.
  kind smallint not null,
  -- '' for documents.
  session_id text not null,
  -- '' unless it is about a turn.
  turn_id text not null default '',
  -- The encoded message, of kinds 5 and up.
  data bytea,
  create_time timestamptz(3) not null default clock_timestamp()
);
create index session_events_by_user on turnwire.session_events (tenant_id, user_id, xact_id);
