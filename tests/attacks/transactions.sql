-- case: begin and commit around a read
-- expect: harmless
BEGIN; SELECT 1; COMMIT;
-- case: begin immediate
-- expect: harmless
BEGIN IMMEDIATE TRANSACTION; SELECT 1; END TRANSACTION;
-- case: begin exclusive
-- expect: harmless
BEGIN EXCLUSIVE; SELECT 1; COMMIT;
-- case: start transaction of another dialect
-- expect: harmless
START TRANSACTION; SELECT 1; COMMIT;
-- case: commit in the middle, then an error
-- expect: error "no such table"
DELETE FROM prices; COMMIT; SELECT * FROM nope;
-- case: commit behind a comment, then an error
-- expect: error "no such table"
DELETE FROM prices; /* x */ COMMIT -- y
; SELECT * FROM nope;
-- case: unmatched rollback
-- expect: refused "as you asked"
DELETE FROM prices; ROLLBACK;
-- case: begin, delete, rollback
-- expect: refused "as you asked"
BEGIN; DELETE FROM prices; ROLLBACK;
-- case: rollback to a savepoint
-- expect: refused "a part of a batch"
SAVEPOINT a; DELETE FROM prices; ROLLBACK TO a; RELEASE a;
-- case: release the platform's savepoint
-- expect: error "no such table"
DELETE FROM prices; RELEASE cicada_statement; SELECT * FROM nope;
-- case: rollback to the platform's savepoint
-- expect: refused "a part of a batch"
DELETE FROM prices; ROLLBACK TO cicada_statement;
-- case: savepoint with the platform's name
-- expect: error "no such table"
SAVEPOINT cicada_statement; DELETE FROM prices; SELECT * FROM nope;
-- case: begin with more words
-- expect: error
BEGIN DELETE FROM prices;
-- case: explain of a begin
-- expect: refused "one transaction"
EXPLAIN BEGIN;
-- case: commit with a hidden statement
-- expect: error
COMMIT DELETE FROM prices WHERE 1 = 1;
-- case: a statement that fails after partial changes
-- expect: error "UNIQUE"
INSERT INTO prices (id, name) VALUES (100, 'a'), (101, 'b'), (1, 'dup');
-- case: or ignore after partial changes, then an error
-- expect: error "UNIQUE"
INSERT OR IGNORE INTO prices (id, name) VALUES (100, 'a'), (1, 'dup'); INSERT INTO prices (id, name) VALUES (100, 'again');
-- case: or fail keeps its rows for the statement only
-- expect: error "UNIQUE"
INSERT OR FAIL INTO prices (id, name) VALUES (100, 'a'), (1, 'dup');
-- case: or rollback
-- expect: error
INSERT INTO prices (id, name) VALUES (100, 'a'); INSERT OR ROLLBACK INTO prices (id, name) VALUES (1, 'dup'); DELETE FROM prices;
-- case: raise rollback in a trigger
-- expect: error
CREATE TRIGGER t BEFORE DELETE ON prices BEGIN SELECT RAISE(ROLLBACK, 'no'); END; INSERT INTO prices (name) VALUES ('x'); DELETE FROM prices;
-- case: raise abort in a trigger
-- expect: error "no thanks"
CREATE TRIGGER t BEFORE DELETE ON prices BEGIN SELECT RAISE(ABORT, 'no thanks'); END; DELETE FROM prices;
-- case: raise fail in a trigger
-- expect: error
CREATE TRIGGER t AFTER UPDATE ON prices BEGIN SELECT RAISE(FAIL, 'half'); END; UPDATE prices SET name = 'x';
-- case: deferred foreign key that fails at commit
-- expect: error "foreign key"
CREATE TABLE p (id INTEGER PRIMARY KEY); CREATE TABLE c (p REFERENCES p DEFERRABLE INITIALLY DEFERRED); INSERT INTO c VALUES (7);
-- case: immediate foreign key
-- expect: error "FOREIGN KEY"
CREATE TABLE p (id INTEGER PRIMARY KEY); CREATE TABLE c (p REFERENCES p); INSERT INTO c VALUES (7);
-- case: foreign key to a table that is not there
-- expect: error
CREATE TABLE c (p REFERENCES nope); INSERT INTO c VALUES (7);
-- case: schema change, then an error
-- expect: error "no such table"
DROP TABLE prices; CREATE TABLE prices (a); SELECT * FROM nope;
-- case: all schema changes, then a syntax error
-- expect: error "syntax"
ALTER TABLE prices ADD COLUMN x; CREATE INDEX i ON prices (x); CREATE VIEW v AS SELECT x FROM prices; SELEC 1;
-- case: only semicolons
-- expect: harmless
;;; ; -- nothing
;
-- case: nothing
-- expect: harmless

-- case: an open string
-- expect: error
SELECT 'abc; DELETE FROM prices;
-- case: an open comment
-- expect: harmless
SELECT 1; /* DELETE FROM prices;
-- case: an open name
-- expect: error
SELECT "abc; DELETE FROM prices;
-- case: a null character
-- expect: error
SELECT 1 {{NUL}} DELETE FROM prices;
-- case: parameters
-- expect: error "parameters"
SELECT ?1, :a, @b, $c;
-- case: a write behind explain
-- expect: harmless
EXPLAIN DELETE FROM prices; EXPLAIN QUERY PLAN DELETE FROM prices;
-- case: a write behind WITH, then an error
-- expect: error
WITH x AS (SELECT 1) DELETE FROM prices; SELECT * FROM nope;
-- case: a write with returning, then an error
-- expect: error
DELETE FROM prices RETURNING id; SELECT * FROM nope;
-- case: a misspelt read is answered, a misspelt write is not
-- expect: error "Did you mean"
UPDATE prices SET prise = 0;
-- case: a misspelt delete is not run
-- expect: error "Did you mean"
DELETE FROM prices WHERE nam = 'a' OR 1;
-- case: a misspelt table in a delete
-- expect: error "there is prices"
DELETE FROM price;
-- case: a misspelt insert
-- expect: error "Did you mean"
INSERT INTO prices (nam) VALUES ('x');
-- case: prose before a delete that is no sentence
-- expect: error "syntax"
EXPLIAN
DELETE FROM prices;
-- case: prose that could be a statement
-- expect: error
please: run
DELETE FROM prices; SELECT * FROM nope;
-- case: a savepoint that hides a statement
-- expect: error
SAVEPOINT DELETE FROM;
-- case: savepoints in a row of triggers
-- expect: error
CREATE TRIGGER tr AFTER INSERT ON prices BEGIN SAVEPOINT x; END;
-- case: a rollback between blanks and comments
-- expect: refused "undoes the whole batch"
INSERT INTO prices (name) VALUES ('x'); /* a */ ROLLBACK /* b */ ;
-- case: raise rollback by a conflict clause in a trigger
-- expect: error
CREATE TRIGGER tr AFTER INSERT ON prices BEGIN INSERT OR ROLLBACK INTO prices (id) VALUES (1); END; INSERT INTO prices (name) VALUES ('x');
-- case: a constraint that rolls back by itself
-- expect: error
CREATE TABLE u (a UNIQUE ON CONFLICT ROLLBACK); INSERT INTO u VALUES (1); INSERT INTO u VALUES (1);
-- case: a commit inside a string of statements that fails
-- expect: error "no such table"
INSERT INTO prices (name) VALUES ('x'); COMMIT; BEGIN; DELETE FROM prices; COMMIT; SELECT * FROM nope;
-- case: more savepoints than can be
-- expect: harmless
{{300*SAVEPOINT s; }}SELECT 1;
-- case: a byte order mark before the batch
-- expect: harmless
﻿SELECT 1;
-- case: blanks that are none
-- expect: error
DELETE FROM prices;
-- case: a semicolon of another script
-- expect: error
DELETE FROM prices；
-- case: a hidden letter in a keyword
-- expect: error
DEL​ETE FROM prices;
-- case: a comment that hides a statement's end
-- expect: error "no such table"
DELETE FROM prices /* ; */ WHERE id = 1 -- ; COMMIT
; SELECT * FROM nope;
-- case: a comment in a comment
-- expect: error
DELETE FROM prices; /* a /* b */ c */
-- case: a trigger that ends the batch early
-- expect: error
CREATE TRIGGER tr AFTER INSERT ON prices BEGIN DELETE FROM prices; END; END; COMMIT; SELECT * FROM nope;
-- case: a name that is a keyword of transactions
-- expect: error "no such table"
CREATE TABLE t ("commit" INT, "rollback" INT); INSERT INTO t ("commit") VALUES (1); SELECT * FROM nope;
-- case: a deferred constraint and a commit of the model's own
-- expect: error "deferred foreign key"
CREATE TABLE p (a PRIMARY KEY); CREATE TABLE c (a REFERENCES p DEFERRABLE INITIALLY DEFERRED); INSERT INTO c VALUES (9); COMMIT; BEGIN; SELECT 1;
