-- case: a literal with a spelling that is repaired elsewhere
-- expect: works
-- check: SELECT a FROM t => ILIKE NOW() SERIAL PRIMARY KEY
CREATE TABLE t (id SERIAL PRIMARY KEY, a); INSERT INTO t (a) VALUES ('ILIKE NOW() SERIAL PRIMARY KEY');
-- case: serial primary key numbers rows
-- expect: works
-- check: SELECT group_concat(id) FROM t => 1,2
CREATE TABLE t (id SERIAL PRIMARY KEY, a); INSERT INTO t (a) VALUES ('x'), ('y');
-- case: ilike beside a literal that has it
-- expect: works
-- check: SELECT a FROM t => x ILIKE y
CREATE TABLE t AS SELECT 'x ILIKE y' AS a WHERE 'Ab' ILIKE 'aB' AND 'ILIKE' ILIKE 'ilike';
-- case: now() beside a literal
-- expect: works
-- check: SELECT a || (b > '2020') FROM t => now()1
CREATE TABLE t AS SELECT 'now()' AS a, NOW() AS b;
-- case: a code fence around a batch
-- expect: works
-- check: SELECT a FROM t => ```sql
```sql
CREATE TABLE t AS SELECT '```sql' AS a;
```
-- case: a code fence inside a literal
-- expect: works
-- check: SELECT length(a) FROM t => 9
```sql
CREATE TABLE t AS SELECT 'a
```
bcd' AS a;
```
-- case: a sentence before and behind
-- expect: works
-- check: SELECT a FROM t => 1
Here's the statement you asked for:
CREATE TABLE t AS SELECT 1 AS a;
This creates the table.
-- case: semicolons in strings
-- expect: works
-- check: SELECT a FROM t => a;b;; c
CREATE TABLE t AS SELECT 'a;b;; c' AS a; SELECT ';';
-- case: doubled quotes
-- expect: works
-- check: SELECT a FROM t => it's "fine"
CREATE TABLE t AS SELECT 'it''s "fine"' AS a;
-- case: comment marks in strings
-- expect: works
-- check: SELECT a FROM t => -- no /* comment */
CREATE TABLE t AS SELECT '-- no /* comment */' AS a;
-- case: strings in comments
-- expect: works
-- check: SELECT a FROM t => 1
CREATE TABLE t AS /* 'open */ SELECT 1 AS a -- 'open
;
-- case: json paths and dollar signs
-- expect: works
-- check: SELECT a FROM t => $5
CREATE TABLE t AS SELECT '{"p": "$5"}' ->> '$.p' AS a;
-- case: emojis
-- expect: works
-- check: SELECT a FROM t => 🦗🦗
CREATE TABLE t AS SELECT '🦗🦗' AS a;
-- case: a backslash is no escape
-- expect: works
-- check: SELECT a FROM t => a\
CREATE TABLE t AS SELECT 'a\' AS a;
-- case: line breaks in strings
-- expect: works
-- check: SELECT length(a) FROM t => 3
CREATE TABLE t AS SELECT 'a
b' AS a;
-- case: a blob literal
-- expect: works
-- check: SELECT hex(a) FROM t => 00FF
CREATE TABLE t AS SELECT x'00ff' AS a;
-- case: a trigger with semicolons and case
-- expect: works
-- check: SELECT group_concat(a) FROM t => 1,big
CREATE TABLE t (a); CREATE TRIGGER tr AFTER INSERT ON t WHEN NEW.a = 1 BEGIN INSERT INTO t VALUES (CASE WHEN 1 THEN 'big' END); SELECT ';'; END; INSERT INTO t VALUES (1);
-- case: double quotes are no strings
-- expect: error "no such column"
SELECT "hello";
-- case: a wrong column in double quotes is not turned into a string
-- expect: error
INSERT INTO prices (name) VALUES ("hello");
-- case: an alias that is a repaired spelling
-- expect: works
-- check: SELECT len FROM t => 3
CREATE TABLE t AS SELECT length('abc') AS len;
-- case: a column named now
-- expect: works
-- check: SELECT now FROM t => 1
CREATE TABLE t (now, ilike); INSERT INTO t (now) VALUES (1);
