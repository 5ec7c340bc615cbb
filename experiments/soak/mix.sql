-- TPC-B without its history: a transaction of seven messages whose branches are hot, and data that stay as
-- large as they are, so that what grows is the server's.
\set account random(1, 100000 * :scale)
\set branch random(1, 1 * :scale)
\set teller random(1, 10 * :scale)
\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :account;
SELECT abalance FROM pgbench_accounts WHERE aid = :account;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :teller;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :branch;
END;
