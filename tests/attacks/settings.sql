-- case: writable_schema
-- expect: refused "PRAGMA"
PRAGMA writable_schema = ON;
-- case: writable_schema in capitals with comments
-- expect: refused "PRAGMA"
PRAGMA/* */WRITABLE_SCHEMA/* */=/* */1;
-- case: writable_schema of main
-- expect: refused "PRAGMA"
PRAGMA main.writable_schema = 1;
-- case: writable_schema as call
-- expect: refused "PRAGMA"
PRAGMA writable_schema(1);
-- case: reset writable schema
-- expect: refused "PRAGMA"
PRAGMA writable_schema = RESET;
-- case: journal off
-- expect: refused "PRAGMA"
PRAGMA journal_mode = OFF;
-- case: journal memory
-- expect: refused "PRAGMA"
PRAGMA journal_mode = MEMORY;
-- case: journal wal
-- expect: refused "PRAGMA"
PRAGMA main.journal_mode = WAL;
-- case: journal mode asked
-- expect: refused "PRAGMA"
PRAGMA journal_mode;
-- case: synchronous
-- expect: refused "PRAGMA"
PRAGMA synchronous = FULL;
-- case: locking
-- expect: refused "PRAGMA"
PRAGMA locking_mode = EXCLUSIVE;
-- case: key
-- expect: refused "PRAGMA"
PRAGMA key = 'secret';
-- case: rekey
-- expect: refused "PRAGMA"
PRAGMA rekey = 'secret';
-- case: database list
-- expect: refused "PRAGMA"
PRAGMA database_list;
-- case: database list as table
-- expect: refused "PRAGMA"
SELECT file FROM pragma_database_list;
-- case: database list as table with schema
-- expect: refused
SELECT * FROM main.pragma_database_list;
-- case: temp store
-- expect: refused "PRAGMA"
PRAGMA temp_store = FILE;
-- case: temp store directory
-- expect: refused "PRAGMA"
PRAGMA temp_store_directory = '/tmp';
-- case: data store directory
-- expect: refused "PRAGMA"
PRAGMA data_store_directory = '/tmp';
-- case: page size set
-- expect: refused "PRAGMA"
PRAGMA page_size = 65536;
-- case: page size asked
-- expect: harmless
PRAGMA page_size;
-- case: max page count
-- expect: refused "PRAGMA"
PRAGMA max_page_count = 1000000000;
-- case: auto vacuum
-- expect: refused "PRAGMA"
PRAGMA auto_vacuum = FULL;
-- case: incremental vacuum
-- expect: refused "PRAGMA"
PRAGMA incremental_vacuum(100);
-- case: encoding set
-- expect: refused "PRAGMA"
PRAGMA encoding = 'UTF-16';
-- case: user version
-- expect: refused "PRAGMA"
PRAGMA user_version = 7;
-- case: user version asked
-- expect: refused "PRAGMA"
PRAGMA user_version;
-- case: application id
-- expect: refused "PRAGMA"
PRAGMA application_id = 7;
-- case: schema version
-- expect: refused "PRAGMA"
PRAGMA schema_version = 1;
-- case: trusted schema
-- expect: refused "PRAGMA"
PRAGMA trusted_schema = ON;
-- case: cell size check
-- expect: refused "PRAGMA"
PRAGMA cell_size_check = OFF;
-- case: foreign keys off
-- expect: refused "PRAGMA"
PRAGMA foreign_keys = OFF;
-- case: defer foreign keys
-- expect: refused "PRAGMA"
PRAGMA defer_foreign_keys = ON;
-- case: recursive triggers
-- expect: refused "PRAGMA"
PRAGMA recursive_triggers = ON;
-- case: case sensitive like
-- expect: refused "PRAGMA"
PRAGMA case_sensitive_like = ON;
-- case: mmap
-- expect: refused "PRAGMA"
PRAGMA mmap_size = 1000000000;
-- case: cache spill
-- expect: refused "PRAGMA"
PRAGMA cache_spill = ON;
-- case: cache size
-- expect: refused "PRAGMA"
PRAGMA cache_size = -1000000;
-- case: hard heap limit
-- expect: refused "PRAGMA"
PRAGMA hard_heap_limit = 0;
-- case: soft heap limit
-- expect: refused "PRAGMA"
PRAGMA soft_heap_limit = 1;
-- case: threads
-- expect: refused "PRAGMA"
PRAGMA threads = 8;
-- case: wal checkpoint
-- expect: refused "PRAGMA"
PRAGMA wal_checkpoint(TRUNCATE);
-- case: wal autocheckpoint
-- expect: refused "PRAGMA"
PRAGMA wal_autocheckpoint = 0;
-- case: journal size limit
-- expect: refused "PRAGMA"
PRAGMA journal_size_limit = 0;
-- case: secure delete
-- expect: refused "PRAGMA"
PRAGMA secure_delete = OFF;
-- case: ignore checks
-- expect: refused "PRAGMA"
PRAGMA ignore_check_constraints = ON;
-- case: read uncommitted
-- expect: refused "PRAGMA"
PRAGMA read_uncommitted = 1;
-- case: query only
-- expect: refused "PRAGMA"
PRAGMA query_only = ON;
-- case: reverse unordered selects
-- expect: refused "PRAGMA"
PRAGMA reverse_unordered_selects = ON;
-- case: legacy alter table
-- expect: refused "PRAGMA"
PRAGMA legacy_alter_table = ON;
-- case: legacy file format
-- expect: refused "PRAGMA"
PRAGMA legacy_file_format = ON;
-- case: busy timeout
-- expect: refused "PRAGMA"
PRAGMA busy_timeout = 100000000;
-- case: optimize
-- expect: refused "PRAGMA"
PRAGMA optimize;
-- case: shrink memory
-- expect: refused "PRAGMA"
PRAGMA shrink_memory;
-- case: compile options
-- expect: refused "PRAGMA"
PRAGMA compile_options;
-- case: module list
-- expect: refused "PRAGMA"
SELECT * FROM pragma_module_list;
-- case: function list
-- expect: refused "PRAGMA"
SELECT * FROM pragma_function_list;
-- case: an unknown pragma
-- expect: refused "PRAGMA"
PRAGMA no_such_pragma = 1;
-- case: pragma in quotes
-- expect: refused "PRAGMA"
PRAGMA "journal_mode" = 'OFF';
-- case: explain of a pragma
-- expect: refused "PRAGMA"
EXPLAIN PRAGMA journal_mode = OFF;
-- case: table info
-- expect: harmless
PRAGMA table_info(prices); SELECT name FROM pragma_table_xinfo('prices'); PRAGMA index_list(prices); PRAGMA foreign_key_list(prices);
-- case: integrity check
-- expect: harmless
PRAGMA integrity_check; PRAGMA quick_check(1);
-- case: table list
-- expect: harmless
PRAGMA table_list;
-- case: data version
-- expect: harmless
PRAGMA data_version;
