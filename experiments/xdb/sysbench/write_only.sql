-- oltp_write_only: an update of an indexed column, one of another, a row removed and put back.
\set one random(1, :rows)
\set other random(1, :rows)
\set again random(1, :rows)
\set k random(1, :rows)
BEGIN;
UPDATE sbtest SET k = k + 1 WHERE id = :one;
UPDATE sbtest SET c = :k WHERE id = :other;
DELETE FROM sbtest WHERE id = :again;
INSERT INTO sbtest VALUES (:again, :k, :k, :again) ON CONFLICT DO NOTHING;
COMMIT;
