-- oltp_read_write: ten reads by key, four ranges of a hundred, and what oltp_write_only does.
\set r1 random(1, :rows)
\set r2 random(1, :rows)
\set r3 random(1, :rows)
\set r4 random(1, :rows)
\set r5 random(1, :rows)
\set r6 random(1, :rows)
\set r7 random(1, :rows)
\set r8 random(1, :rows)
\set r9 random(1, :rows)
\set r10 random(1, :rows)
\set s1 random(1, :rows)
\set e1 :s1 + 99
\set s2 random(1, :rows)
\set e2 :s2 + 99
\set s3 random(1, :rows)
\set e3 :s3 + 99
\set s4 random(1, :rows)
\set e4 :s4 + 99
\set one random(1, :rows)
\set other random(1, :rows)
\set again random(1, :rows)
\set k random(1, :rows)
BEGIN;
SELECT c FROM sbtest WHERE id = :r1;
SELECT c FROM sbtest WHERE id = :r2;
SELECT c FROM sbtest WHERE id = :r3;
SELECT c FROM sbtest WHERE id = :r4;
SELECT c FROM sbtest WHERE id = :r5;
SELECT c FROM sbtest WHERE id = :r6;
SELECT c FROM sbtest WHERE id = :r7;
SELECT c FROM sbtest WHERE id = :r8;
SELECT c FROM sbtest WHERE id = :r9;
SELECT c FROM sbtest WHERE id = :r10;
SELECT c FROM sbtest WHERE id BETWEEN :s1 AND :e1;
SELECT sum(k) FROM sbtest WHERE id BETWEEN :s2 AND :e2;
SELECT c FROM sbtest WHERE id BETWEEN :s3 AND :e3 ORDER BY c;
SELECT DISTINCT c FROM sbtest WHERE id BETWEEN :s4 AND :e4 ORDER BY c;
UPDATE sbtest SET k = k + 1 WHERE id = :one;
UPDATE sbtest SET c = :k WHERE id = :other;
DELETE FROM sbtest WHERE id = :again;
INSERT INTO sbtest VALUES (:again, :k, :k, :again) ON CONFLICT DO NOTHING;
COMMIT;
