CREATE TABLE mcp_tools (
  name TEXT PRIMARY KEY NOT NULL,
  hash TEXT NOT NULL,
  pinned_at TEXT NOT NULL,
  changed_hash TEXT,
  changed_at TEXT
) STRICT
