-- Files that people upload, the documents they add, and the passages that search finds.

-- An uploaded file belongs to no turn. It grows part by part and can be read once it is whole.
alter table turnwire.files alter column turn_id drop not null;
alter table turnwire.files
  add column upload_id text,
  -- The session that it is deleted with.
  add column session_id text references turnwire.sessions on delete cascade,
  add column whole boolean not null default true,
  add column touch_time timestamptz(3) not null default clock_timestamp();
create unique index files_by_upload on turnwire.files (tenant_id, user_id, upload_id) where upload_id is not null;
create index files_by_session on turnwire.files (session_id) where session_id is not null;
create index files_unfinished on turnwire.files (touch_time) where not whole;

create table turnwire.source_documents (
  document_id text primary key,
  tenant_id text not null,
  user_id text not null,
  -- Of AddDocument; null = none was given.
  request_id text,
  request_hash text not null,
  title text not null,
  media_type text not null,
  tags text[] not null,
  project_id text not null,
  -- Kind of origin: 'text', 'upload', 'web'; and what it is read from.
  source text not null,
  url text not null,
  file_id text not null,
  -- Text that was sent with the request, until it is indexed.
  pending_text text,
  -- Numbers of chat.v1.DocumentStatus and DocumentFailure.
  status smallint not null default 1,
  failure smallint not null default 0,
  error text not null default '',
  size_bytes bigint not null,
  processed_bytes bigint not null default 0,
  chunks integer not null default 0,
  -- The text search configuration of its passages.
  language text not null default 'simple',
  -- Who indexes it until when, and how often that was begun.
  worker text not null default '',
  lease_until timestamptz(3),
  attempts integer not null default 0,
  create_time timestamptz(3) not null default clock_timestamp()
);
create unique index source_documents_by_request on turnwire.source_documents (tenant_id, user_id, request_id)
  where request_id is not null;
create index source_documents_by_time on turnwire.source_documents (tenant_id, user_id, create_time desc, document_id desc);
create index source_documents_indexing on turnwire.source_documents (create_time) where status = 1;

-- A document's text, cut into passages: one after the other they are the whole text. `terms` has the passage's words, its
-- owner's mark and the marks of words that it is about (src/documents/pg-document-index.ts).
create table turnwire.passages (
  document_id text not null references turnwire.source_documents on delete cascade,
  chunk_index integer not null,
  tenant_id text not null,
  user_id text not null,
  -- Positions in the document's text, in code points.
  start_char integer not null,
  end_char integer not null,
  -- 0 = has no pages.
  page integer not null,
  heading text not null,
  text text not null,
  terms tsvector not null,
  primary key (document_id, chunk_index)
) with (toast_tuple_target = 8160); -- ranking reads many `terms`: they stay in the row
create index passages_by_place on turnwire.passages (document_id, start_char);
create index passages_by_terms on turnwire.passages using gin (terms) with (gin_pending_list_limit = 8192);
