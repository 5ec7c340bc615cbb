//! Operators over many rows, and where those come from.

use super::{Long, long};

/// Operators over many rows.
pub(super) fn operators() -> Vec<Long> {
    let one = |name, sql: &str| long(name, sql);
    vec![
        one("a self cross join", "SELECT count(*) FROM numbers a, numbers b"),
        one(
            "a cross join of values",
            "SELECT sum(a.a + b.a) FROM numbers a, numbers b WHERE a.a + b.a < 0",
        ),
        one(
            "a join of 40 million rows",
            "SELECT count(*) FROM (SELECT 1 AS a FROM generate_series(1, 40000) i) x JOIN ones y ON x.a = y.a",
        ),
        one(
            "one probe row and a large build side",
            "SELECT count(*), sum(z.id) FROM ones x JOIN ones y ON x.a = y.a JOIN numbers z ON z.id = y.id WHERE x.id <= 2000",
        ),
        one(
            "a probe row that meets all",
            "SELECT count(*) FROM generate_series(1, 20000000) i JOIN (SELECT 1 AS a) y ON i % 1 + 1 = y.a",
        ),
        one(
            "a left join on inequality",
            "SELECT count(*) FROM numbers a LEFT JOIN numbers b ON a.a < b.a AND a.b < b.b",
        ),
        one(
            "a full join",
            "SELECT count(*) FROM ones a FULL JOIN ones b ON a.a = b.a",
        ),
    ]
}

/// Operators that need all rows before they give one.
pub(super) fn collectors() -> Vec<Long> {
    let one = |name, sql: &str| long(name, sql);
    vec![
        one(
            "a sort",
            "SELECT a.b FROM numbers a, generate_series(1, 200) i ORDER BY md5(a.b || i) LIMIT 5",
        ),
        one(
            "a sort of everything",
            "SELECT count(*) FROM (SELECT a.b, i FROM numbers a, generate_series(1, 15) i ORDER BY a.b, i DESC OFFSET 1) t",
        ),
        one(
            "DISTINCT",
            "SELECT count(*) FROM (SELECT DISTINCT a.id, i FROM numbers a, generate_series(1, 500) i) t",
        ),
        one(
            "GROUP BY",
            "SELECT count(*) FROM (SELECT a.id % 1000 + i, count(*), sum(a.a) FROM numbers a, generate_series(1, 1000) i GROUP BY 1) t",
        ),
        one(
            "count(DISTINCT)",
            "SELECT count(DISTINCT a.id * 1000 + i) FROM numbers a, generate_series(1, 900) i",
        ),
        one(
            "EXCEPT ALL",
            "SELECT count(*) FROM (SELECT a.id, i FROM numbers a, generate_series(1, 300) i EXCEPT ALL SELECT id, a FROM ones) t",
        ),
        one(
            "a window without an end",
            "SELECT sum(s) FROM (SELECT sum(a.a) OVER (ORDER BY a.b, i) s FROM numbers a, generate_series(1, 20) i) t",
        ),
        one(
            "a sliding window",
            "SELECT count(s) FROM (SELECT max(b) OVER (ORDER BY id ROWS BETWEEN 20000 PRECEDING AND CURRENT ROW) s FROM numbers) t",
        ),
        one(
            "a window of sets",
            "SELECT count(s) FROM (SELECT array_agg(id) OVER (ORDER BY id) s FROM numbers) t",
        ),
        one(
            "percentiles",
            "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a.a + i) FROM numbers a, generate_series(1, 500) i",
        ),
        one(
            "INTERSECT",
            "SELECT count(*) FROM (SELECT a.id, i FROM numbers a, generate_series(1, 300) i INTERSECT SELECT id, a FROM ones) t",
        ),
        one(
            "UNION",
            "SELECT count(*) FROM (SELECT a.id + i FROM numbers a, generate_series(1, 300) i UNION SELECT id FROM ones) t",
        ),
        one(
            "aggregates of texts",
            "SELECT max(a.b || i), min(i || a.b) FROM numbers a, generate_series(1, 200) i",
        ),
        one(
            "a rank of many peers",
            "SELECT max(r) FROM (SELECT rank() OVER (PARTITION BY a.a % 7 ORDER BY i) r FROM numbers a, generate_series(1, 20) i) t",
        ),
        one(
            "rows before",
            "SELECT count(l) FROM (SELECT lag(a.b, 3) OVER (ORDER BY a.a, i) l FROM numbers a, generate_series(1, 10) i) t",
        ),
        one(
            "a join of texts",
            "SELECT count(*) FROM numbers a JOIN numbers b ON left(a.b, 7) = left(b.b, 7)",
        ),
        one(
            "rows that are not there",
            "SELECT count(*) FROM numbers a WHERE NOT EXISTS (SELECT 1 FROM numbers b WHERE b.a > a.a AND b.b < a.b)",
        ),
        one(
            "a limit far away",
            "SELECT a.id FROM numbers a, numbers b OFFSET 3000000000 LIMIT 1",
        ),
        one(
            "distinct by some",
            "SELECT count(*) FROM (SELECT DISTINCT ON (a.a) a.b, i FROM numbers a, generate_series(1, 100) i ORDER BY a.a, i DESC) t",
        ),
    ]
}

/// Rows made by recursions, series and subqueries.
pub(super) fn series() -> Vec<Long> {
    let one = |name, sql: &str| long(name, sql);
    vec![
        one(
            "a recursion",
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT (n + 1) % 1000 FROM r) SELECT count(*) FROM r",
        ),
        one(
            "a recursion that grows",
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION SELECT n + d FROM r, (VALUES (1), (2)) v(d) WHERE n < 100000000) SELECT count(*) FROM r",
        ),
        one(
            "a recursion of long steps",
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE (SELECT count(*) FROM numbers a, numbers b) > 0) SELECT count(*) FROM r",
        ),
        one(
            "a series in the select list",
            "SELECT generate_series(1, 2000000000)",
        ),
        one(
            "series in the select list, counted",
            "SELECT count(*) FROM (SELECT generate_series(1, 2000000000)) t",
        ),
        one(
            "a series in FROM",
            "SELECT count(*) FROM generate_series(1, 2000000000)",
        ),
        one(
            "a series of timestamps",
            "SELECT count(*) FROM generate_series(timestamp '2000-01-01', '5000-01-01', '1 second')",
        ),
        one(
            "unnest",
            "SELECT count(*) FROM numbers, unnest(array_fill(1, ARRAY[10000]))",
        ),
        one(
            "regexp_matches",
            "SELECT count(*) FROM regexp_matches(repeat('ab', 50000000), 'a', 'g')",
        ),
        one(
            "regexp_split_to_table",
            "SELECT count(*) FROM regexp_split_to_table(repeat('ab', 50000000), 'a')",
        ),
        one(
            "string_to_table",
            "SELECT count(*) FROM string_to_table(repeat('a,', 50000000), ',')",
        ),
        one(
            "a correlated subquery",
            "SELECT count(*) FROM numbers x WHERE (SELECT count(*) FROM numbers y WHERE y.a < x.a) = 3",
        ),
        one(
            "a correlated subquery in the list",
            "SELECT count((SELECT max(y.b) FROM numbers y WHERE y.a <> x.a)) FROM numbers x",
        ),
        one(
            "a lateral join",
            "SELECT count(*) FROM numbers x, LATERAL (SELECT y.b FROM numbers y WHERE y.a > x.a ORDER BY y.b LIMIT 3) z",
        ),
        one(
            "NOT IN",
            "SELECT count(*) FROM numbers x WHERE (x.a, x.b) NOT IN (SELECT y.a + 1, y.b FROM numbers y WHERE y.a <> x.id)",
        ),
        one(
            "functions of every row",
            "SELECT count(*) FROM generate_series(1, 100000000) i WHERE md5(i::text) LIKE '%zz%'",
        ),
        one("rows to the client", "SELECT a.*, b.* FROM numbers a, numbers b"),
        one(
            "a system relation",
            "SELECT count(*) FROM pg_type a, pg_type b, pg_type c, pg_type d",
        ),
    ]
}
