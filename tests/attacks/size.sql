-- case: fill past the cap in one statement
-- expect: stopped "sizeLimit"
INSERT INTO prices (name) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) SELECT hex(randomblob(500)) FROM n;
-- case: fill past the cap by one row
-- expect: stopped "sizeLimit"
INSERT INTO prices (name) VALUES (zeroblob(8000000));
-- case: fill past the cap by a copy
-- expect: stopped "sizeLimit"
CREATE TABLE t AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 10000) SELECT i, zeroblob(1000) AS b FROM n;
-- case: fill past the cap by updates
-- expect: stopped "sizeLimit"
UPDATE prices SET name = zeroblob(3000000);
-- case: fill past the cap by an index
-- expect: stopped "sizeLimit"
CREATE TABLE t AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000) SELECT printf('%0100d', i) AS a FROM n; CREATE INDEX i1 ON t (a); CREATE INDEX i2 ON t (a, a || 'x');
-- case: fill past the cap by full text
-- expect: stopped "sizeLimit"
INSERT INTO notes SELECT hex(randomblob(2000)) || ' ' || hex(randomblob(2000)) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2000) SELECT i FROM n);
-- case: many tables
-- expect: stopped "sizeLimit"
{{900*CREATE TABLE IF NOT EXISTS t1 (a); DROP TABLE t1; }} CREATE TABLE t AS SELECT zeroblob(9000000) AS b;
-- case: a row at the length limit
-- expect: stopped
INSERT INTO prices (name) VALUES (zeroblob(17000000));
-- case: reads work when it is full
-- expect: harmless
SELECT count(*) FROM prices;
-- case: deletes work when it is full, then an error
-- expect: error "no such table"
DELETE FROM prices; SELECT * FROM nope;
-- case: fill and delete in one batch, then an error
-- expect: error "no such table"
INSERT INTO prices (name) VALUES (zeroblob(2000000)); DELETE FROM prices WHERE length(name) > 100; SELECT * FROM nope;
