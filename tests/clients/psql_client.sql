-- What a person does with psql. The output is compared with psql_client.expected, so it must not vary:
-- no oids, no times, no owners.
\set ON_ERROR_STOP off
\set VERBOSITY verbose
\set SHOW_CONTEXT never
\pset pager off

DROP TABLE IF EXISTS cl_order, cl_customer;
CREATE TABLE cl_customer (
    id integer PRIMARY KEY,
    name varchar(40) NOT NULL,
    balance numeric(10,2) DEFAULT 0,
    born date
);
CREATE TABLE cl_order (
    id bigint PRIMARY KEY,
    customer integer NOT NULL,
    placed timestamp,
    note text
);
CREATE INDEX cl_order_customer ON cl_order (customer);

-- tables and their definitions
\dt cl_*
\di cl_*
\d cl_customer
\d cl_order
\d no_such_table

-- rows
INSERT INTO cl_customer VALUES
    (1, 'Anna', 10.50, '1990-02-28'), (2, 'Björn', -3, NULL), (3, 'Cleo', DEFAULT, '2000-01-01');
INSERT INTO cl_order VALUES
    (10, 1, '2026-11-21 10:00:00', 'first'), (11, 1, NULL, NULL), (12, 3, '2026-11-21 10:00:00.25', E'two\nlines');
SELECT * FROM cl_customer ORDER BY id;
SELECT c.name, count(o.id) AS orders FROM cl_customer c
    LEFT JOIN cl_order o ON o.customer = c.id GROUP BY c.name ORDER BY c.name;
UPDATE cl_customer SET balance = balance + 1 WHERE id = 2 RETURNING id, balance;
DELETE FROM cl_order WHERE id = 11;
SELECT id, note FROM cl_order ORDER BY id \gx
SELECT 1 AS one, 'text' AS two, NULL AS three, true AS four;
;

-- transactions
BEGIN;
UPDATE cl_customer SET balance = 0;
ROLLBACK;
BEGIN;
SELECT 1/0;
SELECT 1;
COMMIT;
SELECT sum(balance) FROM cl_customer;

-- errors, with their codes
SELECT * FROM nowhere;
SELECT nothing FROM cl_customer;
INSERT INTO cl_customer VALUES (1, 'Again');
INSERT INTO cl_customer VALUES (4, NULL);
INSERT INTO cl_customer VALUES (4, 'Dora', 123456789.00);
SELEC 1;

-- copy
\copy cl_order (id, customer, note) from stdin
20	2	copied
21	2	\N
22	2	tab\there
\.
\copy (SELECT id, note FROM cl_order WHERE customer = 2 ORDER BY id) to stdout
COPY (SELECT id, note FROM cl_order ORDER BY id) TO STDOUT;

-- prepared statements and settings
PREPARE cl_find (int) AS SELECT name FROM cl_customer WHERE id = $1;
EXECUTE cl_find(3);
DEALLOCATE cl_find;
SET application_name = 'cl';
SHOW application_name;
SHOW server_encoding;

DROP TABLE cl_order;
DROP TABLE cl_customer;
\dt cl_*
