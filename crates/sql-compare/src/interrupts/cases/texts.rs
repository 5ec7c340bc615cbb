//! Long texts, and statements that are short to run and long to plan.

use super::{Long, long};

/// Long texts: they are read and bound.
pub(super) fn texts() -> Vec<Long> {
    let numbers: Vec<String> = (0..400_000).map(|n| n.to_string()).collect();
    let rows: Vec<String> = (100_000..250_000).map(|n| format!("({n},{n})")).collect();
    let values: Vec<String> = (0..150_000).map(|n| format!("({n},'{n}',{n}.5)")).collect();
    let unions = vec!["SELECT a, b FROM numbers WHERE a = 1"; 700].join(" UNION ALL ");
    vec![
        long(
            "a list of 400,000 numbers",
            format!("SELECT count(*) FROM numbers WHERE a IN ({})", numbers.join(",")),
        ),
        long(
            "150,000 rows of VALUES",
            format!("SELECT count(*) FROM (VALUES {}) v", values.join(",")),
        ),
        long(
            "INSERT of 150,000 rows",
            format!("INSERT INTO filled VALUES {}", rows.join(",")),
        ),
        long(
            "a literal of 30 million characters",
            format!("SELECT length('{}')", "it''s ".repeat(5_000_000)),
        ),
        long(
            "a comment of 60 million characters",
            format!("SELECT 1 /* {} */", "/* */ ".repeat(10_000_000)),
        ),
        long(
            "an array of 400,000 numbers",
            format!("SELECT cardinality(ARRAY[{}])", numbers.join(",")),
        ),
        long("700 branches of UNION ALL over a table", unions),
        long("200,000 statements in a message", "SELECT 1;".repeat(200_000)),
    ]
}

/// Statements that are short to run and long to plan.
pub(super) fn plans() -> Vec<Long> {
    let joins: String = (2..=40)
        .map(|n| format!(" JOIN numbers t{n} ON t{n}.id = t{}.a", n - 1))
        .collect();
    let commas: Vec<String> = (1..=40).map(|n| format!("numbers t{n}")).collect();
    let linked: Vec<String> = (2..=40).map(|n| format!("t{n}.id = t{}.a", n - 1)).collect();
    let columns: Vec<String> = (0..1_500).map(|n| format!("a + {n} AS c{n}")).collect();
    let arms: String = (0..20_000).map(|n| format!("WHEN {n} THEN {n} ")).collect();
    let conditions: Vec<String> = (0..10_000).map(|n| format!("a = {n} AND id <> a")).collect();
    let groups: Vec<String> = (0..500).map(|n| format!("a % {}", n + 2)).collect();
    let ctes: Vec<String> = (1..=300)
        .map(|n| format!("c{n} AS (SELECT x + 1 AS x, x AS y FROM c{})", n - 1))
        .collect();
    let nested = format!(
        "SELECT count(*) FROM {}numbers{}",
        "(SELECT id, a, b, a + 1 AS d FROM (SELECT id, a, b FROM ".repeat(100),
        " ORDER BY a, id) t WHERE a > 1) t".repeat(100)
    );
    let correlated = format!(
        "SELECT count(*) FROM numbers n0 WHERE {}true{}",
        (1..=30)
            .map(|n| format!(
                "EXISTS (SELECT 1 FROM numbers n{n} WHERE n{n}.a = n{}.id AND ",
                n - 1
            ))
            .collect::<String>(),
        ")".repeat(30)
    );
    vec![
        long(
            "40 tables joined",
            format!("SELECT count(*) FROM numbers t1{joins}"),
        ),
        long(
            "40 tables and their conditions",
            format!(
                "SELECT count(*) FROM {} WHERE {}",
                commas.join(", "),
                linked.join(" AND ")
            ),
        ),
        long(
            "1,500 columns four deep",
            format!(
                "SELECT * FROM (SELECT * FROM (SELECT DISTINCT * FROM (SELECT {} FROM numbers) a) b
                 ORDER BY c0, c1, c2, c3) c WHERE c7 > 0",
                columns.join(", ")
            ),
        ),
        long(
            "300 chained WITH",
            format!(
                "WITH c0 AS (SELECT 0 AS x, 0 AS y), {} SELECT x FROM c300",
                ctes.join(", ")
            ),
        ),
        long("subqueries 200 deep", nested),
        long("EXISTS 30 deep", correlated),
        long(
            "20,000 terms",
            format!(
                "SELECT count(*) FROM numbers WHERE a = {}1",
                "a + ".repeat(20_000)
            ),
        ),
        long(
            "calls 1,000 deep",
            format!(
                "SELECT count({}a{}) FROM numbers",
                "abs(".repeat(1_000),
                ")".repeat(1_000)
            ),
        ),
        long(
            "a CASE of 20,000 arms",
            format!("SELECT count(CASE a {arms} END) FROM numbers"),
        ),
        long(
            "10,000 conditions",
            format!("SELECT count(*) FROM numbers WHERE {}", conditions.join(" OR ")),
        ),
        long(
            "grouped by 500 columns",
            format!("SELECT count(*) FROM numbers GROUP BY {}", groups.join(", ")),
        ),
    ]
}
