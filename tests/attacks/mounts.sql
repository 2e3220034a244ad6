-- case: a charter that is too long
-- expect: error "20000"
UPDATE __agent_config SET charter = '{{20001*x}}';
-- case: an empty charter
-- expect: error "empty"
UPDATE __agent_config SET charter = '  ';
-- case: no charter
-- expect: error "NULL"
UPDATE __agent_config SET charter = NULL;
-- case: a second config row
-- expect: refused "no new rows"
INSERT INTO __agent_config (id, charter) VALUES (2, 'x');
-- case: a config row replaced
-- expect: refused
REPLACE INTO __agent_config (id, charter) VALUES (1, 'x');
-- case: the config's key
-- expect: refused "kept by the platform"
UPDATE __agent_config SET id = 2;
-- case: update or replace on the key
-- expect: refused "kept by the platform"
UPDATE OR REPLACE __agent_config SET id = 1;
-- case: the config's time
-- expect: refused "kept by the platform"
UPDATE __agent_config SET updated_at = 'x';
-- case: the config removed
-- expect: refused "can't be removed"
DELETE FROM __agent_config;
-- case: a pause that is no time
-- expect: error "no time"
UPDATE __agent_config SET paused_until = 'tomorrow';
-- case: a card without title
-- expect: error "title"
INSERT INTO __kanban_cards (title) VALUES ('');
-- case: a card with NULL title
-- expect: error
INSERT INTO __kanban_cards (title) VALUES (NULL);
-- case: a card with an unknown status
-- expect: error "must be todo"
INSERT INTO __kanban_cards (title, status) VALUES ('x', 'Done');
-- case: a second doing card
-- expect: error "only one card may be doing"
INSERT INTO __kanban_cards (title, status) VALUES ('x', 'doing'); INSERT INTO __kanban_cards (title, status) VALUES ('y', 'doing');
-- case: a second doing card by update
-- expect: error "only one card may be doing"
INSERT INTO __kanban_cards (title, status) VALUES ('x', 'doing'), ('y', 'todo'); UPDATE __kanban_cards SET status = 'doing' WHERE title = 'y';
-- case: a rejected card without reason
-- expect: error "reason"
INSERT INTO __kanban_cards (title, status) VALUES ('x', 'rejected');
-- case: a rejected card again
-- expect: error "rejected, which is final"
UPDATE __kanban_cards SET status = 'todo' WHERE card_id = 'card-rejected';
-- case: a rejected card under a new id
-- expect: error "rejected, which is final"
INSERT INTO __kanban_cards (title) VALUES ('buy a BOAT!');
-- case: a rejected card replaced
-- expect: error "rejected, which is final"
REPLACE INTO __kanban_cards (card_id, title) VALUES ('card-rejected', 'other');
-- case: a rejected card by update or replace of another's title
-- expect: error "rejected, which is final"
INSERT INTO __kanban_cards (title) VALUES ('x'); UPDATE __kanban_cards SET title = 'Buy a boat' WHERE title = 'x';
-- case: a card removed
-- expect: refused "can't be removed"
DELETE FROM __kanban_cards;
-- case: a card's times
-- expect: refused "kept by the platform"
UPDATE __kanban_cards SET completed_at = 'x';
-- case: a card with a trigger that is no JSON
-- expect: error "JSON"
INSERT INTO __kanban_cards (title, trigger_json) VALUES ('x', 'at noon');
-- case: a card with a due time that is none
-- expect: error "no time"
INSERT INTO __kanban_cards (title, due_at) VALUES ('x', 'soon');
-- case: a card with a long description
-- expect: error "4000"
INSERT INTO __kanban_cards (title, description) VALUES ('x', '{{4001*d}}');
-- case: a thousand cards
-- expect: error "500 open cards"
INSERT INTO __kanban_cards (title) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000) SELECT 'card ' || i FROM n;
-- case: a schedule with six fields
-- expect: error "5"
INSERT INTO __agent_schedules (schedule_key, schedule) VALUES ('a', '0 0 7 * * 1');
-- case: a schedule that is too frequent
-- expect: error "shortest interval"
INSERT INTO __agent_schedules (schedule_key, schedule) VALUES ('a', '* * * * *');
-- case: a schedule that is too frequent once a day
-- expect: error "shortest interval"
INSERT INTO __agent_schedules (schedule_key, schedule) VALUES ('a', '0,1 7 * * *');
-- case: a schedule that never fires
-- expect: error
INSERT INTO __agent_schedules (schedule_key, schedule) VALUES ('a', '0 0 31 2 *');
-- case: a schedule that is no cron
-- expect: error "cron"
INSERT INTO __agent_schedules (schedule_key, schedule) VALUES ('a', 'every day');
-- case: a schedule with an unknown zone
-- expect: error "timezone"
INSERT INTO __agent_schedules (schedule_key, schedule, timezone) VALUES ('a', '0 7 * * *', 'Mars/Olympus');
-- case: a schedule with a long key
-- expect: error "schedule_key"
INSERT INTO __agent_schedules (schedule_key, schedule) VALUES ('{{17*k}}', '0 7 * * *');
-- case: a schedule in the past
-- expect: error "past"
INSERT INTO __agent_schedules (schedule_key, kind, run_at) VALUES ('a', 'once', '2001-01-01T00:00:00Z');
-- case: a schedule of an unknown kind
-- expect: error "kind"
INSERT INTO __agent_schedules (schedule_key, kind) VALUES ('a', 'often');
-- case: a schedule that claims to be the manifest's
-- expect: error "manifest"
INSERT INTO __agent_schedules (schedule_key, schedule, source) VALUES ('a', '0 7 * * *', 'manifest');
-- case: the manifest's schedule changed
-- expect: error "manifest"
UPDATE __agent_schedules SET enabled = 0 WHERE schedule_key = 'morning';
-- case: the manifest's schedule removed
-- expect: error "manifest"
DELETE FROM __agent_schedules WHERE schedule_key = 'morning';
-- case: the manifest's schedule replaced
-- expect: error
REPLACE INTO __agent_schedules (schedule_key, schedule) VALUES ('morning', '0 7 * * *');
-- case: a schedule's source
-- expect: refused "kept by the platform"
UPDATE __agent_schedules SET source = 'agent';
-- case: too many schedules
-- expect: error "at most 12"
INSERT INTO __agent_schedules (schedule_key, schedule) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 13) SELECT 'k' || i, '0 7 * * *' FROM n;
-- case: a large skill
-- expect: error "8192"
INSERT INTO __agent_skills (name, instructions) VALUES ('x', '{{8200*i}}');
-- case: a skill with tools that are no JSON
-- expect: error "JSON array"
INSERT INTO __agent_skills (name, tools_json) VALUES ('x', 'sql');
-- case: two skills of a name
-- expect: error "exists"
INSERT INTO __agent_skills (name) VALUES ('x'), ('X');
-- case: a skill's version
-- expect: refused "kept by the platform"
UPDATE __agent_skills SET version = 9;
-- case: too many skills
-- expect: error "100 skills"
INSERT INTO __agent_skills (name) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 101) SELECT 'skill ' || i FROM n;
-- case: the manifest's skill changed
-- expect: error "manifest"
UPDATE __agent_skills SET instructions = 'x' WHERE name = 'pricing';
-- case: the policy functions do no harm
-- expect: harmless
SELECT cicada_policy('max_active'), cicada_card_problem('a', 'b', 'c', 'todo', NULL, NULL, NULL);
-- case: card rolled back with its batch
-- expect: error "no such table"
INSERT INTO __kanban_cards (title) VALUES ('gone'); SELECT * FROM nope;
-- case: a priority that is a word
-- expect: error "cannot store TEXT value in INTEGER column __kanban_cards.priority"
INSERT INTO __kanban_cards (title, priority) VALUES ('x', 'high');
-- case: a priority without end
-- expect: error "cannot store REAL value in INTEGER column"
INSERT INTO __kanban_cards (title, priority) VALUES ('x', 9e999);
-- case: a title of bytes
-- expect: error "cannot store BLOB value in TEXT column"
INSERT INTO __kanban_cards (title) VALUES (x'ff00');
-- case: an id of bytes
-- expect: error "cannot store BLOB value in TEXT column"
INSERT INTO __kanban_cards (card_id, title) VALUES (zeroblob(8), 'x');
-- case: a schedule's key of bytes
-- expect: error "cannot store BLOB value in TEXT column"
INSERT INTO __agent_schedules (schedule_key, schedule) VALUES (x'6b', '0 7 * * *');
-- case: an instruction of bytes
-- expect: error "cannot store BLOB value in TEXT column"
INSERT INTO __agent_schedules (schedule_key, schedule, instruction) VALUES ('k', '0 7 * * *', randomblob(10));
-- case: a charter of bytes
-- expect: error "cannot store BLOB value in TEXT column"
UPDATE __agent_config SET charter = x'00';
-- case: enabled as a word
-- expect: error "cannot store TEXT value in INTEGER column"
INSERT INTO __agent_schedules (schedule_key, schedule, enabled) VALUES ('k', '0 7 * * *', 'yes');
-- case: checks passed by OR IGNORE
-- expect: error "status is 'nonsense'"
INSERT OR IGNORE INTO __kanban_cards (title, status) VALUES ('x', 'nonsense');
-- case: checks passed by OR FAIL
-- expect: error "status is 'nonsense'"
INSERT OR FAIL INTO __kanban_cards (title, status) VALUES ('fine', 'todo'), ('x', 'nonsense');
-- case: checks passed by UPDATE OR IGNORE
-- expect: error "can't be empty"
UPDATE OR IGNORE __agent_config SET charter = '';
-- case: checks passed by an upsert
-- expect: error "status is 'nonsense'"
INSERT INTO __kanban_cards (card_id, title) VALUES ('c', 'x'); INSERT INTO __kanban_cards (card_id, title) VALUES ('c', 'x') ON CONFLICT (card_id) DO UPDATE SET status = 'nonsense';
-- case: a second doing card by an upsert
-- expect: error "only one card may be doing"
INSERT INTO __kanban_cards (card_id, title, status) VALUES ('a', 'x', 'doing'), ('b', 'y', 'todo'); INSERT INTO __kanban_cards (card_id, title) VALUES ('b', 'y') ON CONFLICT (card_id) DO UPDATE SET status = 'doing';
-- case: two doing cards by UPDATE FROM
-- expect: error "only one card may be doing"
INSERT INTO __kanban_cards (card_id, title) VALUES ('a', 'x'), ('b', 'y'); UPDATE __kanban_cards SET status = v.s FROM (SELECT 'a' AS k, 'doing' AS s UNION ALL SELECT 'b', 'doing') v WHERE v.k = card_id;
-- case: the rejected card by an upsert
-- expect: error "final"
INSERT INTO __kanban_cards (card_id, title) VALUES ('card-rejected', 'x') ON CONFLICT (card_id) DO UPDATE SET status = 'todo', title = 'New';
-- case: a card's rowid
-- expect: refused "kept by the platform"
INSERT INTO __kanban_cards (title) VALUES ('x'); UPDATE __kanban_cards SET rowid = 99;
-- case: a card's rowid by another name
-- expect: refused "kept by the platform"
UPDATE __kanban_cards SET _rowid_ = 99;
-- case: the config's rowid
-- expect: refused "kept by the platform"
UPDATE __agent_config SET oid = 2;
-- case: a card's key
-- expect: refused "kept by the platform"
UPDATE __kanban_cards SET card_id = 'mine' WHERE status = 'rejected';
-- case: edits returned
-- expect: error "can't be empty"
UPDATE __agent_config SET charter = ' ' RETURNING charter;
-- case: a trigger of a card that is large
-- expect: error "2000 bytes"
INSERT INTO __kanban_cards (title, trigger_json) VALUES ('x', '{"at": "{{2000*9}}"}');
-- case: a trigger of a card that is deep
-- expect: error
INSERT INTO __kanban_cards (title, trigger_json) VALUES ('x', '{"a":{{900*[}}{{900*]}}}');
-- case: a title with a null character
-- expect: error "null"
INSERT INTO __kanban_cards (title) VALUES ('a' || char(0) || 'b'); SELECT cause_null_error;
-- case: the manifest's schedule shadowed in other case
-- expect: error
INSERT INTO __agent_schedules (schedule_key, schedule) VALUES ('MORNING', '0 7 * * *'); SELECT nope;
-- case: the image of the mounts
-- expect: error "no such table: cicada_image.__messages"
SELECT * FROM cicada_image.__messages;
-- case: the image of the mounts written
-- expect: error "unknown database cicada_image"
CREATE TABLE cicada_image.t (a);
-- case: the image of the mounts attached
-- expect: refused "out of reach"
ATTACH 'mounts.db' AS cicada_image;
