-- case: endless recursion
-- expect: stopped "stopped after"
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n;
-- case: endless recursion with rows
-- expect: stopped
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n ORDER BY i DESC;
-- case: huge recursion
-- expect: stopped
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000000000) SELECT max(i) FROM n;
-- case: recursion that grows its text
-- expect: stopped
WITH RECURSIVE n(t) AS (SELECT 'x' UNION ALL SELECT t || t FROM n) SELECT max(length(t)) FROM n;
-- case: cross join of many rows
-- expect: stopped
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 10000) SELECT count(*) FROM n a, n b, n c;
-- case: zeroblob of 2^31
-- expect: stopped
SELECT length(zeroblob(2147483648));
-- case: zeroblob at the limit
-- expect: harmless
SELECT length(zeroblob(1000000));
-- case: randomblob
-- expect: stopped
SELECT length(randomblob(2000000000));
-- case: printf width
-- expect: stopped
SELECT length(printf('%.2147483647d', 1));
-- case: printf width of characters
-- expect: stopped
SELECT length(printf('%2000000000s', 'x'));
-- case: hex of a blob
-- expect: stopped
SELECT length(hex(zeroblob(16000000)));
-- case: hex of hex
-- expect: stopped
SELECT length(hex(hex(hex(zeroblob(4000000)))));
-- case: group_concat explosion
-- expect: stopped
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000) SELECT length(group_concat(printf('%1000d', i))) FROM n;
-- case: replace growth
-- expect: stopped
SELECT length(replace(replace(hex(zeroblob(100000)), '0', hex(zeroblob(500))), '0', hex(zeroblob(500))));
-- case: deep json
-- expect: error "JSON"
SELECT json('{{5000*[}}{{5000*]}}');
-- case: deep json extract
-- expect: error
SELECT json_extract('{{3000*[}}1{{3000*]}}', '$[0]');
-- case: deep expression
-- expect: error
SELECT {{5000*(}}1{{5000*)}};
-- case: long expression
-- expect: error "depth"
SELECT 1 {{5000* + 1}};
-- case: compound select
-- expect: error "compound"
SELECT 1 {{1000* UNION ALL SELECT 1}};
-- case: many columns
-- expect: error "too many"
SELECT 1 {{3000*, 1}};
-- case: 30,000 column table
-- expect: error
CREATE TABLE t (a {{30000*, a}});
-- case: many arguments
-- expect: error "too many"
SELECT max(1 {{2000*, 1}});
-- case: many join tables
-- expect: error "join"
SELECT 1 FROM prices {{70*, prices}};
-- case: 60 tables, joined
-- expect: stopped
SELECT count(*) FROM prices {{60*, prices}};
-- case: slow LIKE
-- expect: harmless
SELECT '{{5000*a}}' LIKE '{{20*a%}}b';
-- case: a long LIKE pattern
-- expect: error "too complex"
SELECT 'a' LIKE '{{2000*a%}}';
-- case: slow GLOB
-- expect: stopped
SELECT sum(printf('%01000d', i) GLOB '*0*0*0*0*0*0*0*0*0*0*1*2*3*x') FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n);
-- case: catastrophic regular expression
-- expect: harmless
SELECT '{{5000*a}}' REGEXP '^(a+)+$', '{{5000*a}}b' REGEXP '^(a|aa)+$', regexp_count('{{2000*a}}', '(a*)*');
-- case: large regular expression
-- expect: error "pattern"
SELECT 'a' REGEXP '(a{1000}){1000}';
-- case: long regular expression
-- expect: error "pattern"
SELECT 'a' REGEXP '{{2000*a}}';
-- case: regular expression that is none
-- expect: error "not valid"
SELECT 'a' REGEXP '(';
-- case: regexp replacement that grows
-- expect: error "too long"
SELECT length(regexp_replace(hex(zeroblob(1000000)), '0', '{{500*x}}'));
-- case: regexp replacement with groups that grows
-- expect: error "too long"
SELECT length(regexp_replace(hex(zeroblob(1000000)), '.+', '{{500*$0}}'));
-- case: long levenshtein
-- expect: error "1000"
SELECT levenshtein(hex(zeroblob(100000)), hex(zeroblob(100000)));
-- case: sort without index
-- expect: stopped
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000000) SELECT printf('%0200d', i) AS t FROM n ORDER BY t DESC LIMIT 1;
-- case: distinct of much
-- expect: stopped
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 50000000) SELECT count(DISTINCT printf('%0100d', i)) FROM n;
-- case: scratch table that eats memory
-- expect: stopped
CREATE TEMP TABLE s AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) SELECT i, zeroblob(100000) AS b FROM n;
-- case: triggers that call each other
-- expect: error
CREATE TABLE a (x); CREATE TABLE b (x); CREATE TRIGGER ta AFTER INSERT ON a BEGIN INSERT INTO b VALUES (NEW.x); INSERT INTO b VALUES (NEW.x); END; CREATE TRIGGER tb AFTER INSERT ON b BEGIN INSERT INTO a VALUES (NEW.x); INSERT INTO a VALUES (NEW.x); END; INSERT INTO a VALUES (1); SELECT * FROM nope;
-- case: triggers that double
-- expect: stopped
CREATE TABLE a (x); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000) INSERT INTO a SELECT i FROM n; CREATE TRIGGER ta AFTER INSERT ON a WHEN NEW.x > 0 BEGIN UPDATE a SET x = x + 1; END; INSERT INTO a SELECT x FROM a; INSERT INTO a SELECT x FROM a; INSERT INTO a SELECT x FROM a;
-- case: window over a cross join
-- expect: stopped
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 5000) SELECT max(s) FROM (SELECT sum(a.i) OVER (ORDER BY b.i ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS s FROM n a, n b);
-- case: json_tree over made text
-- expect: stopped
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 300000) SELECT count(*) FROM (SELECT json_group_array(i) AS j FROM n), json_tree(j) a, json_tree(j) b;
-- case: nested views
-- expect: harmless
CREATE TEMP VIEW v0 AS SELECT 1 AS x; CREATE TEMP VIEW v1 AS SELECT a.x FROM v0 a, v0 b; CREATE TEMP VIEW v2 AS SELECT a.x FROM v1 a, v1 b; SELECT count(*) FROM v2;
-- case: view of itself
-- expect: error "circular"
CREATE TEMP VIEW v AS SELECT * FROM v; SELECT * FROM v;
-- case: nested views that double
-- expect: error
CREATE TEMP VIEW v1 AS SELECT 1 AS x; CREATE TEMP VIEW v2 AS SELECT a.x FROM v1 a, v1 b, v1 c, v1 d; CREATE TEMP VIEW v3 AS SELECT a.x FROM v2 a, v2 b, v2 c, v2 d; CREATE TEMP VIEW v4 AS SELECT a.x FROM v3 a, v3 b, v3 c, v3 d; CREATE TEMP VIEW v5 AS SELECT a.x FROM v4 a, v4 b; SELECT count(*) FROM v5;
-- case: a text of a megabyte
-- expect: error "1,000,000 bytes"
SELECT '{{1100000*x}}';
-- case: many statements
-- expect: harmless
{{2000*SELECT 1; }}
-- case: a thousand result rows
-- expect: harmless
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000) SELECT i, printf('%0100d', i) FROM n;
-- case: a million result rows
-- expect: harmless
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000) SELECT i FROM n;
-- case: one huge cell
-- expect: harmless
SELECT hex(zeroblob(5000000)) AS h;
-- case: huge blobs in rows
-- expect: harmless
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 50) SELECT zeroblob(1000000) AS b FROM n;
-- case: fts5 query bomb
-- expect: harmless
SELECT * FROM notes WHERE notes MATCH '{{200*a* OR }}b';
-- case: fts5 syntax
-- expect: error "unterminated"
SELECT * FROM notes WHERE notes MATCH '"((';
-- case: fts5 special commands
-- expect: harmless
SELECT * FROM notes WHERE notes MATCH '*id';
-- case: strftime of far times
-- expect: harmless
SELECT date('now', '{{50*+99999 years}}'), strftime('%J', 1e300), datetime(9e99, 'unixepoch');
-- case: division by zero and overflow
-- expect: harmless
SELECT 1 / 0, 1 % 0, 9223372036854775807 + 1, -9223372036854775808 / -1, 1e308 * 10;
-- case: abs of the smallest integer
-- expect: error "overflow"
SELECT abs(-9223372036854775808);
-- case: sum that overflows
-- expect: error "overflow"
SELECT sum(x) FROM (SELECT 9223372036854775807 AS x UNION ALL SELECT 1);
-- case: characters
-- expect: harmless
SELECT char(0, 1, 8238, 65533, 1114111), unicode(''), x'ff00fe', CAST(x'fffefd' AS TEXT);
-- case: a materialised recursion that sorts itself
-- expect: stopped
WITH RECURSIVE n(i, t) AS MATERIALIZED (SELECT 1, 'x' UNION SELECT i + 1, hex(randomblob(500)) FROM n ORDER BY 2 LIMIT 10000000) SELECT count(*) FROM n;
-- case: percentiles over a cross join
-- expect: stopped
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) SELECT median(a.i * b.i) FROM n a, n b;
-- case: json_group_array of much
-- expect: stopped
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000000) SELECT json_group_array(hex(randomblob(100))) FROM n;
-- case: printf with many stars
-- expect: stopped
SELECT length(printf('%*d%*d%*d', 2000000000, 1, 2000000000, 1, 2000000000, 1));
-- case: sha256 over and over
-- expect: stopped
WITH RECURSIVE n(h) AS (SELECT 'x' UNION ALL SELECT sha256(h) FROM n) SELECT count(*) FROM n;
-- case: text distance in a product
-- expect: error "at most 1000 characters"
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000) SELECT max(levenshtein(hex(zeroblob(a.i)), hex(randomblob(b.i)))) FROM n a, n b;
-- case: an expression index over growth
-- expect: stopped
CREATE TABLE big (a); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) INSERT INTO big SELECT hex(randomblob(20)) FROM n; CREATE INDEX i ON big (replace(hex(zeroblob(100000)), '00', a));
-- case: a trigger cascade over rows
-- expect: stopped
CREATE TABLE a (x); CREATE TRIGGER tr AFTER INSERT ON a WHEN (SELECT count(*) FROM a) < 100000000 BEGIN INSERT INTO a SELECT x FROM a; INSERT INTO a SELECT x FROM a; END; INSERT INTO a VALUES (1); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100) INSERT INTO a SELECT i FROM n;
