-- SysBench's table, with a padding of 60 bytes and a column of 120.
CREATE TABLE sbtest (
    id integer PRIMARY KEY,
    k integer NOT NULL,
    c char(120) NOT NULL,
    pad char(60) NOT NULL
);
CREATE INDEX sbtest_k ON sbtest (k);
