CREATE TABLE messages (
  message_id TEXT PRIMARY KEY NOT NULL, seq INTEGER NOT NULL UNIQUE, timestamp TEXT NOT NULL,
  channel TEXT NOT NULL, direction TEXT NOT NULL CHECK (direction IN ('in', 'out')), from_address TEXT,
  to_address TEXT, conversation_id TEXT, peer_agent TEXT, subject TEXT, body TEXT NOT NULL,
  body_bytes INTEGER NOT NULL, attachments_json TEXT NOT NULL DEFAULT '[]', status TEXT NOT NULL,
  handled INTEGER NOT NULL DEFAULT 0 CHECK (handled IN (0, 1)), payload_json TEXT, cycle TEXT
) STRICT;
CREATE TABLE message_summaries (
  summary_id TEXT PRIMARY KEY NOT NULL, conversation_id TEXT, from_seq INTEGER NOT NULL,
  to_seq INTEGER NOT NULL, text TEXT NOT NULL, created_at TEXT NOT NULL
) STRICT;
CREATE TABLE contacts (
  contact_id TEXT PRIMARY KEY NOT NULL, channel TEXT NOT NULL, address TEXT NOT NULL,
  normalized_address TEXT NOT NULL, display_name TEXT, source TEXT NOT NULL, status TEXT NOT NULL,
  allow_inbound INTEGER NOT NULL DEFAULT 0, allow_outbound INTEGER NOT NULL DEFAULT 0,
  may_instruct INTEGER NOT NULL DEFAULT 0, requested_at TEXT, responded_at TEXT, last_conversed_at TEXT,
  updated_at TEXT NOT NULL, UNIQUE (channel, normalized_address)
) STRICT;
CREATE TABLE files (
  path TEXT PRIMARY KEY NOT NULL, file_id TEXT NOT NULL, mime_type TEXT, size_bytes INTEGER NOT NULL,
  sha256 TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL, blob_key TEXT,
  source TEXT NOT NULL DEFAULT 'manifest'
) STRICT;
CREATE TABLE schedules (
  schedule_key TEXT PRIMARY KEY NOT NULL, name TEXT,
  kind TEXT NOT NULL CHECK (kind IN ('recurring', 'once')), schedule TEXT, timezone TEXT, run_at TEXT,
  instruction TEXT, enabled INTEGER NOT NULL, last_fired_at TEXT, updated_at TEXT NOT NULL
) STRICT;
CREATE TABLE skills (
  skill_id TEXT NOT NULL, version INTEGER NOT NULL, name TEXT NOT NULL, description TEXT NOT NULL,
  tools_json TEXT NOT NULL, instructions TEXT NOT NULL, removed INTEGER NOT NULL DEFAULT 0, cycle TEXT,
  created_at TEXT NOT NULL, PRIMARY KEY (skill_id, version)
) STRICT;
CREATE TABLE cards (
  card_id TEXT PRIMARY KEY NOT NULL, title TEXT NOT NULL, description TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('todo', 'doing', 'done', 'rejected')), priority INTEGER NOT NULL,
  due_at TEXT, trigger_json TEXT, reason TEXT, created_at TEXT NOT NULL, completed_at TEXT,
  updated_at TEXT NOT NULL
) STRICT;
CREATE TABLE card_events (
  event_id INTEGER PRIMARY KEY, card_id TEXT NOT NULL, at TEXT NOT NULL, from_status TEXT, to_status TEXT,
  change_json TEXT NOT NULL, actor TEXT NOT NULL CHECK (actor IN ('agent', 'person', 'platform')),
  cycle TEXT
) STRICT;
CREATE TABLE config_changes (
  change_id INTEGER PRIMARY KEY, at TEXT NOT NULL, field TEXT NOT NULL, old_value TEXT, new_value TEXT,
  actor TEXT NOT NULL, cycle TEXT
) STRICT;
CREATE TABLE proposals (
  proposal_id TEXT PRIMARY KEY NOT NULL, kind TEXT NOT NULL, base_hash TEXT NOT NULL,
  content TEXT NOT NULL, content_hash TEXT NOT NULL, summary TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('open', 'approved', 'rejected', 'superseded')), cycle TEXT,
  created_at TEXT NOT NULL, decided_at TEXT
) STRICT;
CREATE TABLE human_requests (
  request_id TEXT PRIMARY KEY NOT NULL, question TEXT NOT NULL, options_json TEXT NOT NULL DEFAULT '[]',
  state TEXT NOT NULL CHECK (state IN ('open', 'answered', 'expired')), answer TEXT, cycle TEXT,
  created_at TEXT NOT NULL, expires_at TEXT NOT NULL, answered_at TEXT
) STRICT;
CREATE TABLE steps (
  cycle TEXT NOT NULL, attempt INTEGER NOT NULL, step INTEGER NOT NULL, kind TEXT NOT NULL,
  started_at TEXT NOT NULL, ended_at TEXT, text TEXT, calls_json TEXT NOT NULL DEFAULT '[]',
  input_tokens INTEGER NOT NULL DEFAULT 0, cached_input_tokens INTEGER NOT NULL DEFAULT 0,
  output_tokens INTEGER NOT NULL DEFAULT 0, summarised INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (cycle, attempt, step)
) STRICT;
CREATE TABLE step_summaries (
  summary_id TEXT PRIMARY KEY NOT NULL, cycle TEXT NOT NULL, from_step INTEGER NOT NULL,
  to_step INTEGER NOT NULL, text TEXT NOT NULL, created_at TEXT NOT NULL
) STRICT;
CREATE TABLE tool_results (
  result_id TEXT PRIMARY KEY NOT NULL, cycle TEXT NOT NULL, attempt INTEGER NOT NULL,
  step INTEGER NOT NULL, tool_name TEXT NOT NULL, source_url TEXT, created_at TEXT NOT NULL,
  bytes INTEGER NOT NULL, line_count INTEGER NOT NULL, is_json INTEGER NOT NULL, json_type TEXT,
  top_keys TEXT, is_binary INTEGER NOT NULL, is_truncated INTEGER NOT NULL, content TEXT,
  analysis_json TEXT, sha256 TEXT NOT NULL, blob_key TEXT
) STRICT;
CREATE INDEX tool_results_by_time ON tool_results (created_at);
CREATE TABLE tool_pins (
  result_id TEXT PRIMARY KEY NOT NULL, reason TEXT NOT NULL, pinned_at TEXT NOT NULL
) STRICT;
CREATE TABLE dropped_blobs (
  blob_key TEXT PRIMARY KEY NOT NULL, dropped_at TEXT NOT NULL, reason TEXT NOT NULL
) STRICT;
CREATE TABLE outbox (
  message_id TEXT PRIMARY KEY NOT NULL, channel TEXT NOT NULL, to_address TEXT NOT NULL, subject TEXT,
  body TEXT NOT NULL, conversation_id TEXT, attachments_json TEXT NOT NULL DEFAULT '[]',
  state TEXT NOT NULL CHECK (state IN ('pending', 'sent', 'failed', 'unknown')),
  attempts INTEGER NOT NULL DEFAULT 0, error TEXT, cycle TEXT, created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL, next_at TEXT
) STRICT;
CREATE TABLE ingested (
  id TEXT PRIMARY KEY NOT NULL, kind TEXT NOT NULL, at TEXT NOT NULL
) STRICT;
CREATE TABLE cycles (
  cycle TEXT NOT NULL, attempt INTEGER NOT NULL, uid TEXT NOT NULL, epoch INTEGER,
  started_at TEXT NOT NULL, ended_at TEXT, triggers_json TEXT NOT NULL DEFAULT '[]', kind TEXT, class TEXT,
  outcome TEXT, summary TEXT, model_calls INTEGER NOT NULL DEFAULT 0,
  tool_calls INTEGER NOT NULL DEFAULT 0, input_tokens INTEGER NOT NULL DEFAULT 0,
  cached_input_tokens INTEGER NOT NULL DEFAULT 0, output_tokens INTEGER NOT NULL DEFAULT 0,
  cost REAL NOT NULL DEFAULT 0, messages INTEGER NOT NULL DEFAULT 0, report_json TEXT,
  PRIMARY KEY (cycle, attempt)
) STRICT;
CREATE TABLE table_stats (
  table_name TEXT PRIMARY KEY NOT NULL, last_used_cycle TEXT, last_used_at TEXT, last_changed_at TEXT,
  created_cycle TEXT, rows INTEGER
) STRICT;
CREATE TABLE notices (
  notice_id INTEGER PRIMARY KEY, at TEXT NOT NULL, text TEXT NOT NULL
) STRICT;
CREATE TABLE documentation (
  table_name TEXT NOT NULL, column_name TEXT NOT NULL DEFAULT '', note TEXT NOT NULL,
  person INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (table_name, column_name)
) STRICT
