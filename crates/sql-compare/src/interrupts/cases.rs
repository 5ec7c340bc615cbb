//! The statements, by what takes long in them.

/// How a statement comes to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Simple,
    Prepared,
    /// `COPY ... FROM STDIN`, with lines that do not end.
    Lines,
    /// While another session has locked table `held`.
    Blocked,
}

/// A statement that takes long.
#[derive(Clone, Debug)]
pub(super) struct Long {
    pub(super) name: &'static str,
    pub(super) sql: String,
    pub(super) way: Way,
}

/// Tables that the statements read and change.
pub(super) const SETUP: &[&str] = &[
    "CREATE TABLE numbers (id int PRIMARY KEY, a int, b text)",
    "INSERT INTO numbers SELECT i, (i * 7919) % 100000, 'text of ' || i FROM generate_series(1, 60000) i",
    "CREATE TABLE ones (id int PRIMARY KEY, a int)",
    "INSERT INTO ones SELECT i, 1 FROM generate_series(1, 60000) i",
    "CREATE TABLE held (id int PRIMARY KEY, a int)",
    "INSERT INTO held VALUES (1, 1), (2, 2)",
    "CREATE TABLE filled (id int PRIMARY KEY, a int)",
    "CREATE TABLE copied (id int, a int)",
    "CREATE PROCEDURE endless(n int) LANGUAGE plpgsql AS $$
     DECLARE i int := 0;
     BEGIN
       WHILE i < n LOOP i := i + 1; UPDATE held SET a = a + 1 WHERE id = 2; END LOOP;
     END $$",
    "CREATE PROCEDURE counting(n bigint) LANGUAGE plpgsql AS $$
     DECLARE i bigint := 0;
     BEGIN
       WHILE i < n LOOP i := i + 1; END LOOP;
     END $$",
];

fn long(name: &'static str, sql: impl Into<String>) -> Long {
    Long {
        name,
        sql: sql.into(),
        way: Way::Simple,
    }
}

/// All of them.
pub(super) fn cases() -> Vec<Long> {
    let mut all = texts();
    all.extend(plans());
    all.extend(values());
    all.extend(more_values());
    all.extend(numbers());
    all.extend(operators());
    all.extend(series());
    all.extend(changes());
    all.extend(waits());
    all
}

/// Long texts: they are read and bound.
fn texts() -> Vec<Long> {
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
fn plans() -> Vec<Long> {
    let joins: String = (2..=40)
        .map(|n| format!(" JOIN numbers t{n} ON t{n}.id = t{}.a", n - 1))
        .collect();
    let commas: Vec<String> = (1..=40).map(|n| format!("numbers t{n}")).collect();
    let linked: Vec<String> = (2..=40).map(|n| format!("t{n}.id = t{}.a", n - 1)).collect();
    let columns: Vec<String> = (0..1_500).map(|n| format!("a + {n} AS c{n}")).collect();
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
    ]
}

/// A text of 100 million characters.
const BIG: &str = "repeat('ab', 50000000)";

/// Over a row that is not known before, so that the value is computed by the query.
fn over_a_row(name: &'static str, sql: String) -> Long {
    match sql.contains(" FROM ") {
        true => long(name, sql),
        false => long(name, sql + " FROM generate_series(1, 1)"),
    }
}

/// One huge value, made or looked through.
fn values() -> Vec<Long> {
    let big = BIG;
    let one = over_a_row;
    vec![
        one(
            "repeat",
            "SELECT length(repeat(repeat('ab', 1000), 400000))".into(),
        ),
        one("replace", format!("SELECT length(replace({big}, 'a', 'xyz'))")),
        one(
            "replace of what nearly fits",
            format!("SELECT length(replace({big}, repeat('ab', 1000) || 'c', 'x'))"),
        ),
        one(
            "translate",
            format!("SELECT length(translate({big}, 'ab', 'ba'))"),
        ),
        one("reverse", format!("SELECT length(reverse({big}))")),
        one("upper", format!("SELECT length(upper({big}))")),
        one("initcap", format!("SELECT length(initcap({big}))")),
        one(
            "regexp_replace",
            format!("SELECT length(regexp_replace({big}, 'a', 'xy', 'g'))"),
        ),
        one(
            "regexp_replace of captures",
            format!("SELECT length(regexp_replace({big}, '(a)(b)', '\\2\\1', 'g'))"),
        ),
        one(
            "a regular expression that fits nowhere",
            format!("SELECT {big} ~ 'ab+c'"),
        ),
        one(
            "a regular expression of many states",
            format!("SELECT {big} ~ '(a|b)*a(a|b){{14}}c'"),
        ),
        one(
            "a match at the end",
            format!("SELECT length((regexp_match({big} || 'c', '(a|b)*c'))[1])"),
        ),
        one("regexp_count", format!("SELECT regexp_count({big}, 'b')")),
        one(
            "regexp_split_to_array",
            format!("SELECT cardinality(regexp_split_to_array({big}, 'a'))"),
        ),
        one(
            "string_to_array",
            format!("SELECT cardinality(string_to_array({big}, 'a'))"),
        ),
        one(
            "array_to_string",
            "SELECT length(array_to_string(array_fill(7, ARRAY[20000000]), ','))".into(),
        ),
        one(
            "array_fill",
            "SELECT cardinality(array_fill(7, ARRAY[100000000]))".into(),
        ),
        one(
            "array_position",
            "SELECT array_position(array_fill(7, ARRAY[20000000]), 8)".into(),
        ),
        one(
            "array_replace",
            "SELECT cardinality(array_replace(array_fill(7, ARRAY[20000000]), 7, 8))".into(),
        ),
    ]
}

/// More of them: arrays, patterns, digests.
fn more_values() -> Vec<Long> {
    let big = BIG;
    let one = over_a_row;
    vec![
        one(
            "an array read from text",
            "SELECT cardinality(('{' || repeat('1,', 20000000) || '1}')::int[])".into(),
        ),
        one(
            "an array written as text",
            "SELECT length(array_fill(7, ARRAY[20000000])::text)".into(),
        ),
        one(
            "an array compared",
            "SELECT array_fill(7, ARRAY[20000000]) = array_fill(7, ARRAY[20000000])".into(),
        ),
        one(
            "overlapping arrays",
            "SELECT array_fill(1, ARRAY[100000]) && array_fill(2, ARRAY[100000])".into(),
        ),
        one(
            "contained arrays",
            "SELECT ARRAY(SELECT generate_series(1, 100000)) <@ ARRAY(SELECT generate_series(1, 100000))"
                .into(),
        ),
        one(
            "LIKE with ways back",
            "SELECT repeat('a', 2000000) LIKE '%' || repeat('a', 20000) || 'b%'".into(),
        ),
        one("ILIKE", format!("SELECT {big} ILIKE '%bb%'")),
        one("SIMILAR TO", format!("SELECT {big} SIMILAR TO '%(a|b)c'")),
        one(
            "strpos",
            "SELECT strpos(repeat('a', 20000000), repeat('a', 10000) || 'b')".into(),
        ),
        one(
            "split_part",
            format!("SELECT length(split_part({big}, 'b', 40000000))"),
        ),
        one("lpad", "SELECT length(lpad('x', 200000000, 'ab'))".into()),
        one(
            "format",
            format!("SELECT length(format('%s %L %I', {big}, {big}, {big}))"),
        ),
        one(
            "quote_literal",
            "SELECT length(quote_literal(repeat('''', 50000000)))".into(),
        ),
        one("md5", format!("SELECT md5({big})")),
        one("sha512", format!("SELECT sha512({big}::bytea)")),
        one("encode", format!("SELECT length(encode({big}::bytea, 'base64'))")),
        one("hex", format!("SELECT length(encode({big}::bytea, 'hex'))")),
        one(
            "to_char of a long picture",
            "SELECT length(to_char(now(), repeat('Day ', 5000000)))".into(),
        ),
        one(
            "concatenation",
            format!("SELECT length(concat({big}, {big}, {big}))"),
        ),
        one("comparison of long texts", format!("SELECT {big} < {big} || 'a'")),
        one(
            "string_agg",
            "SELECT length(string_agg(repeat('x', 1000), ',')) FROM generate_series(1, 400000)".into(),
        ),
        one(
            "array_agg",
            "SELECT cardinality(array_agg(i)) FROM generate_series(1, 30000000) i".into(),
        ),
        one("a long text sent", format!("SELECT {big} || {big}")),
        one(
            "chr and ascii in a chain",
            format!("SELECT length(btrim({big}, 'ab'))"),
        ),
        one(
            "levels of a CASE over a long text",
            format!("SELECT CASE WHEN length({big}) > 5 THEN length({big}) END"),
        ),
    ]
}

/// Numbers of many digits.
fn numbers() -> Vec<Long> {
    let one = |name, sql: &str| long(name, sql);
    vec![
        one(
            "power of many digits",
            "SELECT length(power(1.0000000001::numeric, 1000000000000.5)::text)",
        ),
        one(
            "a numeric to a high power",
            "SELECT length((99999.99999 ^ 26000)::text)",
        ),
        one("factorial", "SELECT length(factorial(30000)::text)"),
        one(
            "sqrt of many digits",
            "SELECT length(sqrt(repeat('7', 100000)::numeric)::text)",
        ),
        one("exp", "SELECT length(exp(60000.5)::text)"),
        one(
            "ln of many digits",
            "SELECT ln((repeat('7', 100000) || '.' || repeat('3', 16000))::numeric)",
        ),
        one(
            "log",
            "SELECT log(3.00000000001, (repeat('7', 100000) || '.' || repeat('3', 16000))::numeric)",
        ),
        one(
            "a product of many digits",
            "SELECT length((repeat('7', 130000)::numeric * repeat('9', 1000)::numeric)::text)",
        ),
        one(
            "a quotient of many digits",
            "SELECT length((repeat('7', 130000)::numeric / repeat('9', 60000)::numeric)::text)",
        ),
        one(
            "a remainder",
            "SELECT length(mod(repeat('7', 130000)::numeric, repeat('9', 60000)::numeric)::text)",
        ),
        one(
            "gcd",
            "SELECT gcd(repeat('7', 100000)::numeric, repeat('9', 99999)::numeric)",
        ),
        one(
            "a numeric read",
            "SELECT length((repeat('7', 130000)::numeric)::text)",
        ),
        one(
            "numeric series",
            "SELECT count(*) FROM generate_series(1::numeric, 100000000, 0.5)",
        ),
        one(
            "sum of many digits",
            "SELECT length(sum(x)::text) FROM (SELECT repeat('7', 100000)::numeric + i AS x FROM generate_series(1, 20000) i) t",
        ),
        one(
            "products of many digits",
            "SELECT count(*) FROM generate_series(1, 100000) i WHERE repeat('7', 100000)::numeric * i > 0",
        ),
    ]
}

/// Operators over many rows.
fn operators() -> Vec<Long> {
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
        one(
            "a sort",
            "SELECT a.b FROM numbers a, generate_series(1, 200) i ORDER BY md5(a.b || i) LIMIT 5",
        ),
        one(
            "a sort of everything",
            "SELECT count(*) FROM (SELECT a.b, i FROM numbers a, generate_series(1, 100) i ORDER BY a.b, i DESC OFFSET 1) t",
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
            "SELECT sum(s) FROM (SELECT sum(a.a) OVER (ORDER BY a.b, i) s FROM numbers a, generate_series(1, 100) i) t",
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
    ]
}

/// Rows made by recursions, series and subqueries.
fn series() -> Vec<Long> {
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

/// What changes rows and definitions.
fn changes() -> Vec<Long> {
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
            "CREATE TABLE AS",
            "CREATE TABLE many AS SELECT i, md5(i::text) FROM generate_series(1, 20000000) i",
        ),
        one(
            "COPY out",
            "COPY (SELECT a.*, b.* FROM numbers a, numbers b) TO STDOUT",
        ),
        with(Way::Lines, "COPY in", "COPY copied FROM STDIN"),
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
            "DO",
            "DO $$ DECLARE i bigint := 0; BEGIN WHILE i < 10000000000 LOOP i := i + 1; END LOOP; END $$",
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
fn waits() -> Vec<Long> {
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
        blocked("a copy that waits", "CREATE INDEX held_a ON held (a)"),
        blocked("a procedure that waits", "CALL endless(5)"),
    ]
}
