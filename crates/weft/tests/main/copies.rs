//! COPY in and out.

use crate::client::{Client, Results, database};
use weft::sink::TxnStatus::{Failed, Idle};

#[test]
fn text_and_csv_both_ways() {
    let db = database();
    let mut c = Client::with(
        &db,
        "create table t (id int primary key, v text, n numeric(6,2) default 1.5)",
    );
    assert_eq!(
        c.copy_in("copy t (id, v) from stdin", "1\ta\\tb\n2\t\\N\n\\.\n")
            .unwrap(),
        "COPY 2"
    );
    assert_eq!(
        c.copy_in(
            "copy t from stdin with (format csv, header)",
            "id,v,n\n3,\"x,\"\"y\"\"\nz\",2\n4,,\n"
        )
        .unwrap(),
        "COPY 2"
    );
    let (results, result) = c.message("copy t to stdout");
    result.unwrap();
    let mut lines: Vec<&str> = results.output.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "1\ta\\tb\t1.50",
            "2\t\\N\t1.50",
            "3\tx,\"y\"\\nz\t2.00",
            "4\t\\N\t\\N"
        ]
    );
    assert_eq!(results.tags, ["COPY 4"]);
    let (results, result) =
        c.message("copy (select id, v from t where id <= 3 order by id desc) to stdout with csv header");
    result.unwrap();
    assert_eq!(results.output, "id,v\n3,\"x,\"\"y\"\"\nz\"\n2,\n1,a\tb\n");
}

#[test]
fn binary_both_ways() {
    let db = database();
    let mut c = Client::with(
        &db,
        "create table t (id int primary key, v text, n numeric(6,2), a int[], j jsonb, d date)",
    );
    c.ok("insert into t values (1, 'x', 1.5, '{1,null}', '{\"a\": 1}', '2024-02-29'), (2, null, null, null, null, null)");
    let (results, result) = c.message("copy t to stdout (format binary)");
    result.unwrap();
    assert_eq!(results.tags, ["COPY 2"]);
    let before = c.rows("select * from t order by id");
    c.ok("delete from t");
    let copy_in = |c: &mut Client, sql: &str, input: &[u8]| {
        let mut sink = Results {
            input: input.to_vec(),
            ..Results::default()
        };
        c.0.execute_simple(sql, &mut sink).map(|()| sink.tags.join("; "))
    };
    let tags = copy_in(&mut c, "copy t from stdin binary", &results.copied);
    assert_eq!(tags.unwrap(), "COPY 2");
    assert_eq!(c.rows("select * from t order by id"), before);
    // Nothing of damaged data is kept.
    c.ok("delete from t");
    let cut = &results.copied[..results.copied.len() - 5];
    let error = copy_in(&mut c, "copy t from stdin binary", cut).unwrap_err();
    assert_eq!(error.state.0, "22P04");
    assert_eq!(c.rows("select count(*) from t"), "0");
    let (results, result) = c.message("copy (select 1 where false) to stdout (format binary)");
    result.unwrap();
    assert_eq!(results.copied, b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\xff\xff");
}

#[test]
fn an_error_undoes_the_whole_copy() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int not null)");
    c.ok("insert into t values (7, 7)");
    for (input, state) in [
        ("1\t1\n2\tx\n", "22P02"),
        ("1\t1\n2\n", "22P04"),
        ("1\t1\n7\t1\n", "23505"),
        ("1\t1\n1\t2\n", "23505"),
        ("1\t1\n2\t\\N\n", "23502"),
        ("1\t1\n99999999999\t1\n", "22003"),
    ] {
        assert_eq!(
            c.copy_in("copy t from stdin", input).unwrap_err().state.0,
            state,
            "{input}"
        );
        c.is(Idle);
        assert_eq!(c.rows("select * from t"), "7,7");
    }
    let mut sink = Results {
        input: b"1\t1\n".to_vec(),
        breaks: true,
        ..Results::default()
    };
    assert_eq!(
        c.0.execute_simple("copy t from stdin", &mut sink)
            .unwrap_err()
            .state
            .0,
        "57014"
    );
    assert_eq!(c.rows("select * from t"), "7,7");
    c.ok("begin; insert into t values (8, 8)");
    c.copy_in("copy t from stdin", "8\t8\n").unwrap_err();
    c.is(Failed);
    c.ok("rollback");
    assert_eq!(c.rows("select * from t"), "7,7");
}

#[test]
fn many_rows() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    let input: String = (0..10_000).map(|id| format!("{id}\t{}\n", id % 7)).collect();
    assert_eq!(c.copy_in("copy t from stdin", &input).unwrap(), "COPY 10000");
    assert_eq!(c.rows("select count(*), sum(v) from t"), "10000,29994");
}

/// Gives some bytes, then fails.
struct Breaks<'b>(&'b [u8]);

impl std::io::Read for Breaks<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self.0.is_empty() {
            true => Err(std::io::Error::other("the tape is torn")),
            false => self.0.read(into),
        }
    }
}

#[test]
fn an_embedding_program_copies_from_a_reader() {
    let db = database();
    let mut session = db.session();
    session
        .run("create table t (id int primary key, v text)")
        .unwrap();
    let rows: String = (0..30_000).map(|id| format!("{id}\tvalue {id}\n")).collect();
    let copied = session.copy_in("copy t from stdin", &mut rows.as_bytes());
    assert_eq!(copied.unwrap(), 30_000);
    let error = session
        .copy_in("copy t from stdin", &mut Breaks(b"40000\tone\n40001\ttwo\n"))
        .unwrap_err();
    assert_eq!(error.state.code(), "58030");
    assert!(error.message.contains("the tape is torn"), "{error}");
    let duplicate = session.copy_in("copy t from stdin", &mut "7\tagain\n".as_bytes());
    assert_eq!(duplicate.unwrap_err().state.code(), "23505");
    let found = session
        .query("select count(*)::int, max(id) from t", &[])
        .unwrap();
    assert_eq!(found.value(0, 0), weft::Value::Int4(30_000));
    assert_eq!(found.value(0, 1), weft::Value::Int4(29_999));
    // Not a copy: nothing is read.
    assert_eq!(session.copy_in("truncate t", &mut Breaks(b"")).unwrap(), 0);
}
