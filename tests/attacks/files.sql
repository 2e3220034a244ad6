-- case: attach a file beside the memory
-- expect: refused "out of reach"
ATTACH 'other.db' AS other;
-- case: attach by absolute path
-- expect: refused "out of reach"
ATTACH DATABASE '/etc/passwd' AS p;
-- case: attach by URI
-- expect: refused "out of reach"
ATTACH 'file:/tmp/x.db?mode=rwc' AS x;
-- case: attach in memory
-- expect: refused "out of reach"
ATTACH ':memory:' AS m;
-- case: attach a temporary file
-- expect: refused "out of reach"
ATTACH '' AS t;
-- case: attach the memory itself
-- expect: refused "out of reach"
ATTACH 'memory.db' AS again;
-- case: attach the ledger
-- expect: refused "out of reach"
ATTACH '../ledger/ledger.db' AS ledger;
-- case: attach by an expression
-- expect: refused "out of reach"
ATTACH 'a' || '.db' AS a;
-- case: attach with a key
-- expect: error
ATTACH 'x.db' AS x KEY 'secret';
-- case: attach behind a comment
-- expect: refused "out of reach"
/* hello */ ATTACH -- x
 'x.db' AS x;
-- case: attach in a trigger body
-- expect: error
CREATE TRIGGER t AFTER INSERT ON prices BEGIN ATTACH 'x' AS x; END;
-- case: detach main
-- expect: refused "DETACH"
DETACH main;
-- case: detach temp
-- expect: refused "DETACH"
DETACH DATABASE temp;
-- case: vacuum
-- expect: harmless
VACUUM;
-- case: vacuum main
-- expect: harmless
VACUUM main;
-- case: vacuum into a file
-- expect: refused "out of reach"
VACUUM INTO 'copy.db';
-- case: vacuum into a parent folder
-- expect: refused "out of reach"
VACUUM main INTO '/tmp/copy.db';
-- case: readfile
-- expect: error "no such function"
SELECT readfile('/etc/passwd');
-- case: writefile
-- expect: error "no such function"
SELECT writefile('/tmp/cicada-attack', 'x');
-- case: edit
-- expect: error "no such function"
SELECT edit('x', 'vi');
-- case: fsdir
-- expect: error
SELECT * FROM fsdir('.');
-- case: lsmode
-- expect: error "no such function"
SELECT lsmode(33188);
-- case: zipfile function
-- expect: error
SELECT zipfile('a', 'b');
-- case: zipfile table
-- expect: refused "not available"
CREATE VIRTUAL TABLE z USING zipfile('/tmp/x.zip');
-- case: load_extension
-- expect: error
SELECT load_extension('/tmp/x.so');
-- case: load_extension with entry point
-- expect: error
SELECT load_extension('x', 'y');
-- case: load_extension in a view
-- expect: error
CREATE VIEW v AS SELECT load_extension('x'); SELECT * FROM v;
-- case: shell dot command
-- expect: error "syntax error"
.shell id
-- case: shell dot open
-- expect: error "syntax error"
.open /etc/passwd
-- case: csv module
-- expect: refused "not available"
CREATE VIRTUAL TABLE c USING csv(filename='/etc/passwd');
-- case: dbstat table
-- expect: refused "not available"
CREATE VIRTUAL TABLE d USING dbstat(main);
-- case: dbstat eponymous
-- expect: refused "not available"
SELECT * FROM dbstat;
-- case: dbpage
-- expect: error
SELECT hex(data) FROM sqlite_dbpage('main');
-- case: write dbpage
-- expect: error
UPDATE sqlite_dbpage SET data = zeroblob(4096) WHERE pgno = 1;
-- case: fileio module
-- expect: refused "not available"
CREATE VIRTUAL TABLE f USING fileio('/etc/passwd');
-- case: rtree module
-- expect: refused "not available"
CREATE VIRTUAL TABLE r USING rtree(id, a, b);
-- case: geopoly module
-- expect: refused "not available"
CREATE VIRTUAL TABLE g USING geopoly(a);
-- case: fts3 module
-- expect: refused "not available"
CREATE VIRTUAL TABLE f USING fts3(a);
-- case: fts4 module
-- expect: refused "not available"
CREATE VIRTUAL TABLE f USING fts4(a, tokenize=icu);
-- case: fts5vocab module
-- expect: refused "not available"
CREATE VIRTUAL TABLE f USING fts5vocab('main', 'x', 'row');
-- case: unknown module in quotes
-- expect: refused "not available"
CREATE VIRTUAL TABLE f USING "evil module"(a);
-- case: module name with upper case
-- expect: refused "not available"
CREATE VIRTUAL TABLE f USING DBSTAT;
-- case: temp virtual table of another kind
-- expect: refused "not available"
CREATE VIRTUAL TABLE temp.f USING rtree(id, a, b);
-- case: fts3_tokenizer
-- expect: error
SELECT fts3_tokenizer('simple');
-- case: fts3_tokenizer with pointer
-- expect: error
SELECT fts3_tokenizer('simple', x'4141414141414141');
-- case: fts5 pointer
-- expect: error
SELECT fts5(1, 2);
-- case: fts5 contentless
-- expect: refused "content="
CREATE VIRTUAL TABLE f USING fts5(a, content='');
-- case: fts5 external content
-- expect: refused "content="
CREATE VIRTUAL TABLE f USING fts5(name, content='prices', content_rowid='id');
-- case: fts5 external content on a mount
-- expect: refused
CREATE VIRTUAL TABLE f USING fts5(body, content="__messages");
-- case: fts5 external content in upper case and spaces
-- expect: refused "content="
CREATE VIRTUAL TABLE f USING fts5(name, CONTENT = prices);
-- case: fts5 external content in quotes
-- expect: error
CREATE VIRTUAL TABLE f USING fts5(name, "content"='prices');
-- case: sqlite_stmt table
-- expect: error
SELECT * FROM sqlite_stmt;
-- case: bytecode table
-- expect: error
SELECT * FROM bytecode('SELECT 1');
-- case: tables_used
-- expect: error
SELECT * FROM tables_used('SELECT 1');
-- case: generate_series
-- expect: error
SELECT * FROM generate_series(1, 10);
-- case: load a file outside by parent path
-- expect: refused "not below"
SELECT load_table('../../ledger/ledger.db', 'x');
-- case: load a file by absolute path
-- expect: refused "not below"
SELECT load_table('/etc/passwd', 'x');
-- case: load through a dot path
-- expect: refused "not below"
load_table('a/../../x.csv', 'x');
-- case: load a link out of the folder
-- expect: error "no file"
SELECT load_table('link.csv', 'x');
-- case: load a folder
-- expect: error "no file"
SELECT load_table('.', 'x');
-- case: load an empty path
-- expect: refused
SELECT load_table('', 'x');
-- case: load the memory itself
-- expect: refused "not below"
SELECT load_table('../memory.db', 'x');
-- case: load into a mount
-- expect: refused "platform"
SELECT load_table('small.csv', '__messages');
-- case: load into a durable table by default
-- expect: refused "durable table"
SELECT load_table('small.csv', 'prices');
-- case: load into sqlite_schema
-- expect: error
SELECT load_table('small.csv', 'sqlite_schema', 'durable');
-- case: load into a name with a quote
-- expect: refused "not allowed"
SELECT load_table('small.csv', 'x"; DROP TABLE prices; --');
-- case: load_table by expression
-- expect: error "write it as"
SELECT load_table('small' || '.csv', 'x');
-- case: load_table in the middle of a statement
-- expect: error
INSERT INTO prices (name) SELECT load_table('small.csv', 'x');
-- case: a file with a hostile header
-- expect: harmless
SELECT load_table('hostile.csv', 'h'); SELECT * FROM h;
-- case: a file that claims to be JSON
-- expect: error "JSON"
SELECT load_table('broken.json', 'h');
-- case: deeply nested JSON file
-- expect: harmless
SELECT load_table('deep.json', 'h');
-- case: binary file as CSV
-- expect: error "cells"
SELECT load_table('binary.csv', 'h');
-- case: the image of the mounts as a file to load
-- expect: error
SELECT load_table('../mounts.db', 'x');
-- case: the ledger as a file to load
-- expect: error
SELECT load_table('../../ledger/ledger.db', 'x');
-- case: a device as a file to load
-- expect: error
SELECT load_table('/dev/zero', 'x');
-- case: the environment as a file to load
-- expect: error
SELECT load_table('/proc/self/environ', 'x');
-- case: attach behind EXPLAIN
-- expect: refused "out of reach"
EXPLAIN ATTACH 'x.db' AS x;
-- case: attach behind EXPLAIN QUERY PLAN
-- expect: refused
EXPLAIN QUERY PLAN ATTACH 'x.db' AS x;
-- case: vacuum behind EXPLAIN
-- expect: harmless
EXPLAIN VACUUM INTO 'x.db';
