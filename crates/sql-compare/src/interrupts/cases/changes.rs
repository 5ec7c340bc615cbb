//! What changes rows and definitions, and what waits.

use super::{Long, Way, long};

/// What changes rows and definitions.
pub(super) fn changes() -> Vec<Long> {
    let one = |name, sql: &str| long(name, sql);
    let with = |way, name, sql: &str| Long {
        way,
        ..long(name, sql)
    };
    vec![
        one(
            "INSERT ... SELECT",
            "INSERT INTO filled SELECT i, i FROM generate_series(1, 20000000) i",
        ),
        one(
            "INSERT of a cross join",
            "INSERT INTO filled SELECT 1, 1 FROM numbers a, numbers b WHERE a.a + b.a < 0",
        ),
        one("UPDATE of many rows", "UPDATE ones SET a = a + 1 - 1 WHERE a = 1"),
        one(
            "UPDATE from a join",
            "UPDATE ones SET a = 1 FROM ones b WHERE b.a = ones.a AND b.id < 1000",
        ),
        one(
            "DELETE of many rows",
            "DELETE FROM ones WHERE (SELECT count(*) FROM numbers a, numbers b WHERE a.a < b.a) > 0",
        ),
        one(
            "COPY out",
            "COPY (SELECT a.*, b.* FROM numbers a, numbers b) TO STDOUT",
        ),
        with(Way::Lines, "COPY in", "COPY copied FROM STDIN"),
        one(
            "COPY out of a long text",
            "COPY (SELECT repeat(E'\\t', 30000000) FROM generate_series(1, 1)) TO STDOUT",
        ),
        one("CREATE INDEX", "CREATE INDEX ON large (b, a)"),
        one("ADD PRIMARY KEY", "ALTER TABLE large ADD PRIMARY KEY (a)"),
        one("ADD COLUMN", "ALTER TABLE large ADD COLUMN c text DEFAULT 'more'"),
        one("DROP COLUMN", "ALTER TABLE large DROP COLUMN b"),
        one(
            "INSERT that meets rows",
            "INSERT INTO ones SELECT id, a FROM numbers ON CONFLICT (id) DO UPDATE SET a = excluded.a",
        ),
        one(
            "DELETE by a join",
            "DELETE FROM ones USING numbers b WHERE b.a > ones.id AND b.b = 'nothing'",
        ),
        one(
            "rows of a cursor",
            "BEGIN; DECLARE c CURSOR FOR SELECT a.b, b.b FROM numbers a, numbers b; FETCH 1000000 FROM c; COMMIT",
        ),
        one("a procedure that looks up", "CALL looking(1000000000)"),
        one("a procedure that counts", "CALL counting(10000000000)"),
        one("a procedure that writes", "CALL endless(1000000000)"),
        one(
            "EXPLAIN ANALYZE",
            "EXPLAIN ANALYZE SELECT count(*) FROM numbers a, numbers b",
        ),
        one(
            "a cursor",
            "BEGIN; DECLARE c CURSOR FOR SELECT count(*) FROM numbers a, numbers b; FETCH c; COMMIT",
        ),
        one(
            "PREPARE and EXECUTE",
            "PREPARE slow_one(int) AS SELECT count(*) FROM numbers a, numbers b WHERE a.a > $1; EXECUTE slow_one(1)",
        ),
        one(
            "a point statement of a long value",
            "SELECT length(repeat(b, 30000000)) FROM numbers WHERE id = 7",
        ),
        one(
            "an update by key of a long value",
            "UPDATE numbers SET b = replace(repeat('ab', 50000000), 'a', 'xyz') WHERE id = 7",
        ),
        one(
            "an insert of a long value",
            "INSERT INTO numbers VALUES (-1, 1, regexp_replace(repeat('ab', 50000000), 'a', 'xyz', 'g'))",
        ),
        with(
            Way::Prepared,
            "a parameter's long value",
            "SELECT length(repeat('ab', $1::int)) FROM numbers WHERE id = 7",
        ),
        with(
            Way::Prepared,
            "a cross join with a parameter",
            "SELECT count(*) FROM numbers a, numbers b WHERE a.a + b.a < $1::int",
        ),
    ]
}

/// What waits.
pub(super) fn waits() -> Vec<Long> {
    let blocked = |name, sql: &str| Long {
        way: Way::Blocked,
        ..long(name, sql)
    };
    vec![
        long("pg_sleep", "SELECT pg_sleep(10)"),
        long(
            "pg_sleep in a filter",
            "SELECT count(*) FROM numbers WHERE pg_sleep(10) IS NULL",
        ),
        long("pg_sleep by key", "SELECT pg_sleep(10) FROM numbers WHERE id = 1"),
        blocked(
            "an update by key that waits",
            "UPDATE held SET a = a + 1 WHERE id = 1",
        ),
        blocked("an update that waits", "UPDATE held SET a = a + 1 WHERE a > 0"),
        blocked("a delete that waits", "DELETE FROM held WHERE a < 7"),
        blocked("a lock that waits", "SELECT * FROM held WHERE id = 1 FOR UPDATE"),
        blocked("locks that wait", "SELECT * FROM held WHERE a > 0 FOR UPDATE"),
        blocked("a definition that waits", "ALTER TABLE held ADD COLUMN late int"),
        blocked("a truncation that waits", "TRUNCATE held"),
        blocked("an index that waits", "CREATE INDEX held_a ON held (a)"),
        blocked("a procedure that waits", "CALL endless(5)"),
    ]
}
