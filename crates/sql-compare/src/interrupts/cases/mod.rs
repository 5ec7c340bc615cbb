//! The statements, by what takes long in them.

mod changes;
mod numbers;
mod rows;
mod texts;
mod values;

/// How a statement comes to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::interrupts) enum Way {
    Simple,
    Prepared,
    /// `COPY ... FROM STDIN`, with lines that do not end.
    Lines,
    /// While another session has locked table `held`.
    Blocked,
}

/// A statement that takes long.
#[derive(Clone, Debug)]
pub(in crate::interrupts) struct Long {
    pub(in crate::interrupts) name: &'static str,
    pub(in crate::interrupts) sql: String,
    pub(in crate::interrupts) way: Way,
}

/// Tables that the statements read and change.
pub(in crate::interrupts) const SETUP: &[&str] = &[
    "CREATE TABLE numbers (id int PRIMARY KEY, a int, b text)",
    "INSERT INTO numbers SELECT i, (i * 7919) % 100000, 'text of ' || i FROM generate_series(1, 60000) i",
    "CREATE TABLE ones (id int PRIMARY KEY, a int)",
    "INSERT INTO ones SELECT i, 1 FROM generate_series(1, 60000) i",
    "CREATE TABLE held (id int PRIMARY KEY, a int)",
    "INSERT INTO held VALUES (1, 1), (2, 2)",
    "CREATE TABLE large (a int, b text)",
    "INSERT INTO large SELECT i, 'text of ' || i FROM generate_series(1, 120000) i",
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
    "CREATE PROCEDURE looking(n bigint) LANGUAGE plpgsql AS $$
     DECLARE i bigint := 0; found int;
     BEGIN
       WHILE i < n LOOP i := i + 1; SELECT a INTO found FROM numbers WHERE id = 7; END LOOP;
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
pub(in crate::interrupts) fn cases() -> Vec<Long> {
    let groups = [
        texts::texts(),
        texts::plans(),
        values::texts(),
        values::more_texts(),
        values::places_and_bytes(),
        values::arrays(),
        numbers::numbers(),
        rows::operators(),
        rows::collectors(),
        rows::series(),
        changes::changes(),
        changes::waits(),
    ];
    groups.into_iter().flatten().collect()
}
