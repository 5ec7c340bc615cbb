//! CREATE, ALTER, DROP: their effects on the catalog.

use weft_sql::statement::Plan;
use weft_store::{CatalogOp, IndexMethod, ProcedureDef};
use weft_types::{OWN_STATES_MAX, SqlState, SqlType};

use super::fixture::{Db, expect, fails};

fn notices(db: &Db, sql: &str) -> Vec<String> {
    match db.plan(sql).unwrap() {
        Plan::Ddl(plan) => {
            assert!(plan.ops.is_empty(), "{sql}");
            plan.notices
                .iter()
                .map(|notice| notice.message.to_string())
                .collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn types_aliases_and_serial() {
    let db = Db::with(&[
        "CREATE TABLE public.t (a smallserial, b serial4, c bigserial, d int8, e double precision, \
        f timestamp with time zone, g timestamp without time zone, h decimal(9,3), i character varying(7), j char, \
        k float(24), l float, m bool NULL, n dec, \"O p\" serial NOT NULL)",
    ]);
    let catalog = db.store.catalog();
    let table = catalog.table("t").unwrap();
    let names: Vec<String> = table.columns.iter().map(|column| column.ty.name()).collect();
    assert_eq!(
        names,
        [
            "smallint",
            "integer",
            "bigint",
            "bigint",
            "double precision",
            "timestamp with time zone",
            "timestamp without time zone",
            "numeric(9,3)",
            "character varying(7)",
            "character(1)",
            "real",
            "double precision",
            "boolean",
            "numeric",
            "integer",
        ]
    );
    let default = |column: usize| {
        table.columns[column]
            .default
            .as_ref()
            .map(|default| default.sql.as_str())
    };
    assert_eq!(default(1), Some("nextval('t_b_seq'::regclass)"));
    assert_eq!(default(14), Some("nextval('\"t_O p_seq\"'::regclass)"));
    assert!(table.columns[0].not_null);
    let sequence = catalog.sequence("t_a_seq").unwrap();
    assert_eq!(
        (sequence.ty, sequence.max_value, sequence.owned_by),
        (SqlType::Int2, 32767, Some((table.id, 0)))
    );
}

#[test]
fn constraints_and_their_names() {
    let db = Db::with(&[
        "CREATE TABLE t (a int UNIQUE, b text, c int CONSTRAINT mine UNIQUE, UNIQUE (b, c), PRIMARY KEY (c, a)) WITH (fillfactor=90)",
        "CREATE INDEX ON t (b)",
        "CREATE INDEX ON t (b)",
        "CREATE UNIQUE INDEX named ON t USING btree (c)",
        "CREATE INDEX hashed ON t USING hash (b)",
    ]);
    let catalog = db.store.catalog();
    let table = catalog.table("t").unwrap();
    let names: Vec<&str> = table.indexes.iter().map(|index| index.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "t_pkey",
            "t_a_key",
            "mine",
            "t_b_c_key",
            "t_b_idx",
            "t_b_idx1",
            "named",
            "hashed"
        ]
    );
    assert_eq!(table.primary_index().unwrap().columns, [2, 0]);
    assert!(table.columns[0].not_null && table.columns[2].not_null && !table.columns[1].not_null);
    let methods: Vec<IndexMethod> = table.indexes.iter().skip(4).map(|index| index.method).collect();
    assert_eq!(
        methods,
        [
            IndexMethod::Ordered,
            IndexMethod::Ordered,
            IndexMethod::Both,
            IndexMethod::Hash
        ]
    );
}

/// A default is stored as text: whatever its quoting, parsing it again yields the same value.
#[test]
fn quotes_in_defaults_are_unchanged() {
    let mut db = Db::with(&[
        r"CREATE TABLE q (id int PRIMARY KEY, a text DEFAULT 'x''''y', b text DEFAULT 'z\\''', c text DEFAULT '''')",
        "INSERT INTO q (id) VALUES (1)",
    ]);
    let found = db.run("SELECT a, b, c FROM q WHERE id = 1").unwrap();
    assert_eq!(found, [r"x''y|z\\'|'"]);
}

#[test]
fn if_exists_and_if_not_exists() {
    let mut db = Db::with(&["CREATE TABLE t (a int)", "CREATE INDEX i ON t (a)"]);
    assert_eq!(
        notices(&db, "CREATE TABLE IF NOT EXISTS t (b int)"),
        ["relation \"t\" already exists, skipping"]
    );
    assert_eq!(
        notices(&db, "DROP TABLE IF EXISTS nope"),
        ["table \"nope\" does not exist, skipping"]
    );
    assert_eq!(
        notices(&db, "CREATE INDEX IF NOT EXISTS i ON t (a)"),
        ["relation \"i\" already exists, skipping"]
    );
    fails(
        &mut db,
        "CREATE TABLE t (a int)",
        "42P07",
        "relation \"t\" already exists",
    );
    fails(
        &mut db,
        "DROP TABLE nope",
        "42P01",
        "table \"nope\" does not exist",
    );
    expect(&mut db, "DROP TABLE IF EXISTS nope, t CASCADE", &["DROP TABLE"]);
    assert!(db.store.catalog().table("t").is_none() && db.store.catalog().index_by_name("i").is_none());
}

#[test]
fn alter_table() {
    let mut db = Db::with(&[
        "CREATE TABLE pgbench_branches (bid int not null, bbalance int, filler char(88)) with (fillfactor=100)",
        "alter table pgbench_branches add primary key (bid)",
        "ALTER TABLE pgbench_branches ADD CONSTRAINT u UNIQUE (bbalance, filler)",
        "ALTER TABLE pgbench_branches ALTER COLUMN bbalance SET DEFAULT 3, ALTER filler SET NOT NULL",
        "INSERT INTO pgbench_branches VALUES (1, DEFAULT, 'x')",
        "ALTER TABLE pgbench_branches ADD COLUMN extra int DEFAULT 9",
        "ALTER TABLE pgbench_branches RENAME COLUMN extra TO more",
        "ALTER TABLE IF EXISTS pgbench_branches RENAME TO b",
    ]);
    expect(
        &mut db,
        "SELECT bid, bbalance, more FROM b WHERE bid = 1",
        &["1|3|9"],
    );
    assert_eq!(
        db.store
            .catalog()
            .table("b")
            .unwrap()
            .primary_index()
            .unwrap()
            .name,
        "pgbench_branches_pkey"
    );
    expect(
        &mut db,
        "ALTER TABLE b ALTER filler DROP NOT NULL, DROP CONSTRAINT u, DROP COLUMN more",
        &["ALTER TABLE"],
    );
    assert_eq!(db.store.catalog().table("b").unwrap().indexes.len(), 1);
    fails(
        &mut db,
        "ALTER TABLE b ADD PRIMARY KEY (bid)",
        "42P16",
        "multiple primary keys for table \"b\" are not allowed",
    );
    fails(
        &mut db,
        "ALTER TABLE b ADD UNIQUE (nope)",
        "42703",
        "column \"nope\" named in key does not exist",
    );
    expect(&mut db, "TRUNCATE TABLE b", &["TRUNCATE TABLE"]);
    expect(&mut db, "SELECT bid FROM b WHERE bid = 1", &[]);
}

#[test]
fn what_is_refused_is_refused_clearly() {
    let mut db = Db::with(&["CREATE TABLE t (a int PRIMARY KEY)"]);
    for (sql, state, message) in [
        (
            "CREATE TEMP TABLE x (a int)",
            "0A000",
            "temporary tables are not supported",
        ),
        (
            "CREATE TABLE x (a int CHECK (a > random()))",
            "0A000",
            "a CHECK constraint whose condition depends on more than the row is not supported",
        ),
        (
            "CREATE TABLE x (a int REFERENCES t ON DELETE SET DEFAULT)",
            "0A000",
            "SET DEFAULT of a foreign key is not supported",
        ),
        (
            "CREATE TABLE x (a int, FOREIGN KEY (a) REFERENCES t (a) MATCH FULL)",
            "0A000",
            "MATCH FULL and MATCH PARTIAL are not supported",
        ),
        (
            "CREATE TEMP TABLE x AS SELECT 1",
            "0A000",
            "temporary tables are not supported",
        ),
        ("CREATE TABLE x (a xml)", "0A000", "type xml is not supported"),
        ("CREATE TABLE x (a nope)", "42704", "type \"nope\" does not exist"),
        (
            "CREATE TABLE x (a varchar(0))",
            "22023",
            "length for type varchar must be at least 1",
        ),
        (
            "CREATE TABLE x (a numeric(2000))",
            "22023",
            "NUMERIC precision 2000 must be between 1 and 1000",
        ),
        (
            "CREATE TABLE x (a int, a int)",
            "42701",
            "column \"a\" specified more than once",
        ),
        (
            "CREATE TABLE x (a int PRIMARY KEY, PRIMARY KEY (a))",
            "42P16",
            "multiple primary keys for table \"x\" are not allowed",
        ),
        (
            "CREATE TABLE x (a int, PRIMARY KEY (b))",
            "42703",
            "column \"b\" named in key does not exist",
        ),
        (
            "CREATE TABLE x (a int DEFAULT b)",
            "0A000",
            "cannot use column reference in DEFAULT expression",
        ),
        (
            "CREATE TABLE x (a int DEFAULT 'x')",
            "22P02",
            "invalid input syntax for type integer: \"x\"",
        ),
        (
            "CREATE TABLE x (a int) WITH (nope=1)",
            "22023",
            "unrecognized parameter \"nope\"",
        ),
        (
            "CREATE TABLE other.x (a int)",
            "3F000",
            "schema \"other\" does not exist",
        ),
        (
            "CREATE INDEX ON t (lower(a))",
            "0A000",
            "indexes on expressions are not supported",
        ),
        (
            "CREATE INDEX ON t (a) WHERE a > 1",
            "0A000",
            "partial indexes are not supported",
        ),
        (
            "DROP INDEX t_pkey",
            "2BP01",
            "cannot drop index t_pkey because constraint t_pkey on table t requires it",
        ),
        ("DROP SCHEMA public", "0A000", "DROP SCHEMA is not supported"),
    ] {
        fails(&mut db, sql, state, message);
    }
}

#[test]
fn sequences() {
    let mut db = Db::with(&[
        "CREATE SEQUENCE s AS integer START WITH 5 INCREMENT BY 2 MINVALUE 1 MAXVALUE 100 CYCLE CACHE 10",
        "CREATE SEQUENCE down INCREMENT -1",
        "ALTER SEQUENCE s RESTART WITH 9",
        "CREATE TABLE t (id int GENERATED BY DEFAULT AS IDENTITY (START WITH 10 INCREMENT BY 5) PRIMARY KEY)",
    ]);
    let catalog = db.store.catalog();
    let s = catalog.sequence("s").unwrap();
    assert_eq!(
        (s.start, s.increment, s.min_value, s.max_value, s.cycle),
        (5, 2, 1, 100, true)
    );
    assert_eq!(catalog.sequence_state(s.id).unwrap().last_value, 9);
    let identity = catalog.sequence("t_id_seq").unwrap();
    assert_eq!((identity.start, identity.increment), (10, 5));
    let down = catalog.sequence("down").unwrap();
    assert_eq!((down.start, down.min_value, down.max_value), (-1, i64::MIN, -1));
    expect(&mut db, "DROP SEQUENCE s", &["DROP SEQUENCE"]);
}

/// A procedure that raises an SQLSTATE without a name.
fn raising(name: &str, code: &str) -> String {
    format!(
        "CREATE PROCEDURE {name}() LANGUAGE plpgsql AS $$ BEGIN IF false THEN RAISE SQLSTATE '{code}'; END IF; END $$"
    )
}

/// The bound applies to new codes: existing procedures can be called, however many codes the process has
/// kept since it started.
#[test]
fn user_defined_codes_are_counted_when_procedures_are_created() {
    let mut db = Db::with(&[&raising("before", "ZA000")]);
    for number in 0..OWN_STATES_MAX {
        let _ = SqlState::interned(&format!("Z{number:04}"));
    }
    // As after a restart: the definition exists, and its code has not been used yet.
    let Some(stored) = db
        .store
        .catalog()
        .procedure("before")
        .map(|known| ProcedureDef::clone(known))
    else {
        panic!("it was created");
    };
    let op = CatalogOp::PutProcedure(ProcedureDef {
        body: stored.body.replace("ZA000", "ZA001"),
        ..stored
    });
    db.apply(&op).unwrap();
    db.plan("CALL before()").unwrap();
    let message = format!("more than {OWN_STATES_MAX} SQLSTATEs that have no name were raised");
    fails(&mut db, &raising("after", "ZA002"), "54000", &message);
    // Also where the rest of the body cannot be checked yet.
    let early = raising("after", "ZA002").replace("IF false", "DELETE FROM not_there_yet; IF false");
    fails(&mut db, &early, "54000", &message);
    // A known code takes no more memory, and calling a procedure that raises its own code adds none.
    db.plan(&raising("after", "ZA000")).unwrap();
    db.plan("CREATE PROCEDURE calling() LANGUAGE plpgsql AS $$ BEGIN CALL before(); END $$")
        .unwrap();
}
