//! Fuzz targets: arbitrary text as a SQL message, arbitrary bytes as COPY data. See [`weft_base::fuzzing`].

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use sqlparser::ast::{Expr, VisitMut, VisitorMut};
use weft_base::BatchId;
use weft_base::fuzzing::Target;
use weft_program::{BatchAccess, Outcome, Program, Scratch, run, verify};
use weft_store::{Catalog, Store};
use weft_types::{SqlError, SqlState, SqlType, TimeZone, Value};

use crate::statement::copy_data::CopyReader;
use crate::statement::{
    CopyFormat, CopyOptions, NoSource, Normalized, ParsedAst, Plan, PlanContext, ProgramPlan, message, plan,
    plan_text, statements,
};

/// All targets.
pub const TARGETS: [Target; 2] = [
    Target {
        name: "sql",
        run: sql,
        seeds: sql_seeds,
    },
    Target {
        name: "copy",
        run: copy,
        seeds: copy_seeds,
    },
];

/// Instruction budget of a program in fuzzing.
const BUDGET: u32 = 20_000;

/// A message of statements over a few tables: each is planned or rejected, with an error position within
/// the text. A plan that is a program passes the verifier and runs without an internal error; an expression
/// that the catalog would store as text means the same when it is parsed again.
pub fn sql(data: &[u8]) {
    let Some(text) = std::str::from_utf8(data).ok().filter(|text| !text.contains('\0')) else {
        return;
    };
    let Some(store) = store() else { return };
    let catalog = store.catalog();
    let _ = Normalized::default().normalize(text);
    printed(text);
    if let Err(error) = message(text) {
        return placed(&error, text);
    }
    for statement in statements(text) {
        match statement {
            Ok(statement) => {
                let text = text.get(statement.range.clone()).unwrap_or_default();
                planned(store, &catalog, &statement.ast, text);
            }
            Err(error) => placed(&error, text),
        }
    }
}

/// An error's position is a character of the text or its end.
fn placed(error: &SqlError, text: &str) {
    if let Some(position) = error.fields().position {
        let end = text.chars().count() as u32 + 1;
        assert!((1..=end).contains(&position), "{position} of {end}: {error:?}");
    }
}

fn printed(text: &str) {
    if let Ok(mut tree) = weft_syntax::parse_expression(text)
        && let again = weft_syntax::print_expression(&tree)
        && let Ok(mut reread) = weft_syntax::parse_expression(&again)
    {
        // Printing adds parentheses.
        let _ = (
            tree.visit(&mut WithoutParentheses),
            reread.visit(&mut WithoutParentheses),
        );
        // Unknown operators may merge into one token; a default cannot contain them.
        let told = format!("{tree:?}");
        let known = !told.contains("Prefixed {") && !told.contains("Custom(");
        assert!(
            !known || reread == tree,
            "an expression that is printed is another one: {again}"
        );
    }
}

struct WithoutParentheses;

impl VisitorMut for WithoutParentheses {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        while let Expr::Nested(inner) = expression {
            let inner = std::mem::replace(&mut **inner, Expr::value(sqlparser::ast::Value::Null));
            *expression = inner;
        }
        ControlFlow::Continue(())
    }
}

fn planned(store: &Store, catalog: &Catalog, ast: &ParsedAst, text: &str) {
    match plan(ast, &PlanContext::new(catalog, text)) {
        Ok(Plan::Program(plan)) => run_plan(store, catalog, &plan, text),
        Ok(_) => {}
        Err(error) => {
            placed(&error, text);
            assert_ne!(error.state, SqlState::INTERNAL_ERROR, "{error:?}");
        }
    }
}

/// Runs a plan with NULL for every parameter and rolls it back.
fn run_plan(store: &Store, catalog: &Catalog, plan: &ProgramPlan, text: &str) {
    let verified = verify(&plan.program, catalog);
    assert!(verified.is_ok(), "{text}: {verified:?}");
    let bytes = plan.program.encode();
    let same = Program::decode(&bytes).is_ok_and(|again| again.encode() == bytes);
    assert!(same, "{text}: a program changes when it is written and read");
    let params = vec![Value::Null; plan.params.len()];
    let Ok(inputs) = plan.bind(&params, &mut NoSource) else {
        return;
    };
    let writer = store.begin_batch(BatchId(store.boundary().0 + 1));
    let mut member = writer.member(0);
    let (mut scratch, mut outcome) = (Scratch::default(), Outcome::default());
    let mut access = BatchAccess::new(&mut member);
    let ran = run(
        &plan.program,
        &inputs,
        &mut access,
        BUDGET,
        &mut scratch,
        &mut outcome,
    );
    if let Err(error) = ran {
        assert_ne!(error.state, SqlState::INTERNAL_ERROR, "{text}: {error:?}");
    }
    member.rollback();
    writer.abort();
}

/// The tables of the records of PostgreSQL's answers, and some more.
const TABLES: [&str; 6] = [
    "create table t (id int primary key, a int, b bigint, c varchar(4), d double precision, n numeric(6,2))",
    "create index t_a on t (a, b)",
    "create table u (k text, j int not null default 7, s timestamptz, i interval, r int[], primary key (k, j))",
    "create table dd (id serial primary key, a int, b text unique, c numeric(4,1) default 1.25)",
    "create sequence sq",
    "create procedure pr(x int) language sql as 'update t set a = a + x where id = x'",
];

fn store() -> Option<&'static Arc<Store>> {
    static STORE: OnceLock<Option<Arc<Store>>> = OnceLock::new();
    let make = || {
        let store = Store::new();
        for text in TABLES {
            let catalog = store.catalog();
            let Ok(Plan::Ddl(ddl)) = plan_text(text, &PlanContext::new(&catalog, text)) else {
                return None;
            };
            for op in &ddl.ops {
                let batch = BatchId(store.boundary().0 + 1);
                let mut writer = store.begin_batch(batch);
                writer.apply_catalog(op).ok()?;
                writer.finish();
                store.publish(batch);
            }
        }
        Some(store)
    };
    STORE.get_or_init(make).as_ref()
}

/// Statements from the records of PostgreSQL's answers and from procedures, and lexically difficult ones.
fn sql_seeds() -> Vec<Vec<u8>> {
    /// Statements per file, so that the short form of the tests stays short.
    const STATEMENTS: usize = 60;
    let records = [
        include_str!("../../../tests/sql/statements/select_forms.slt"),
        include_str!("../../../tests/sql/statements/ddl.slt"),
        include_str!("../../../tests/sql/statements/insert_update_delete.slt"),
        include_str!("../../../tests/sql/statements/on_conflict.slt"),
        include_str!("../../../tests/sql/statements/prepared.slt"),
        include_str!("../../../tests/sql/seen/queries.slt"),
        include_str!("../../../tests/sql/seen/functions_and_literals.slt"),
    ];
    let mut seeds: Vec<Vec<u8>> = TABLES.iter().map(|text| text.as_bytes().to_vec()).collect();
    for file in records {
        let blocks = file.split("\n\n").filter_map(|block| {
            let (head, rest) = block.trim_start().split_once('\n')?;
            let is_one = head.starts_with("query") || head.starts_with("statement");
            is_one.then(|| rest.split("\n----").next().unwrap_or_default().to_owned())
        });
        seeds.extend(blocks.take(STATEMENTS).map(String::into_bytes));
    }
    seeds.push(include_str!("../../../examples/procedures/tpcc.sql").into());
    let lexical = [
        r#"select E'\x41\u00e4\'' , U&'d\0061' uescape '!', $q$ it's $q$, "a""b", 'a' 'b', 1e-5, .5, 0x1F, 1_000"#,
        "begin; insert into t values (1, -2, +3, 'x', 1.5, null); commit",
        "/* a /* nested */ comment */ select 1 -- and another\n; select $1::int + $2",
        "select ((((((((a + 1) * 2) - 3) / 4) % 5) ^ 6) || 'x')) from t where not (id between symmetric 1 and 2)",
        "with recursive r (n) as (select 1 union all select n + 1 from r where n < 9) select sum(n) over () from r",
        "copy t (id, a) from stdin with (format csv, header, null '~')",
        "declare c cursor for select * from t; fetch 5 from c; explain (costs off) select * from u",
        "create table x (a text default 'it''''s' || E'\\'', b int generated always as identity)",
        "select a is distinct from b, a = any (array[1, 2]), case a when 1 then 2 else 3 end, extract(day from now())",
        "call pr(3); set timezone = 'Europe/Berlin'; show all; prepare p (int) as select $1; execute p(1)",
    ];
    seeds.extend(lexical.map(|text| text.as_bytes().to_vec()));
    seeds
}

/// COPY data after a byte that selects the format and one that selects the size of the pieces in which it
/// arrives: rows and error must not depend on the pieces.
pub fn copy(data: &[u8]) {
    let &[format, piece, ref bytes @ ..] = data else {
        return;
    };
    let whole = rows(format, bytes, bytes.len().max(1));
    let cut = rows(format, bytes, usize::from(piece) + 1);
    assert_eq!(whole, cut, "rows depend on how their bytes are cut");
}

/// The upper bits of the first byte for binary data; the number of columns is 4.
const BINARY: u8 = 9;

/// Rows in encoded form, so that NaN equals itself.
type Rows = (Vec<Vec<u8>>, Option<SqlError>);

fn rows(format: u8, bytes: &[u8], piece: usize) -> Rows {
    let csv = format & 1 != 0;
    let kind = match (format >> 3 == BINARY, csv) {
        (true, _) => CopyFormat::Binary,
        (false, true) => CopyFormat::Csv,
        (false, false) => CopyFormat::Text,
    };
    let options = CopyOptions {
        format: kind,
        delimiter: if csv { b',' } else { b'\t' },
        null: if csv { String::new() } else { "\\N".into() },
        header: format & 2 != 0,
        quote: b'"',
        escape: if format & 4 != 0 { b'\\' } else { b'"' },
    };
    let types = [SqlType::Int4, SqlType::Text, SqlType::Float8, SqlType::Timestamp];
    let columns = types.iter().zip(["a", "b", "c", "d"]);
    let columns: Vec<(String, SqlType)> = columns.map(|(ty, name)| (name.to_owned(), *ty)).collect();
    let width = match format >> 3 {
        0 => 2,
        other => usize::from(other) % 5,
    };
    let mut rows = Vec::new();
    let mut each = |row: Vec<Value>| {
        let mut encoded = Vec::new();
        row.iter().for_each(|value| value.encode(&mut encoded));
        rows.push(encoded);
        Ok(())
    };
    let columns = columns.into_iter().take(width).collect();
    let mut reader = CopyReader::new("t", columns, options, TimeZone::UTC);
    let pieces = bytes
        .chunks(piece)
        .try_for_each(|part| reader.push(part, &mut each));
    let decoded = pieces.and_then(|()| reader.finish(&mut each));
    (rows, decoded.err())
}

fn copy_seeds() -> Vec<Vec<u8>> {
    let text: &[u8] = b"1\tone\\t\\x41\\101\n2\t\\N\r\n-3\ta\\\nb\n\\.\nrest";
    let csv: &[u8] = b"a,b\n1,\"two \"\"quotes\"\"\"\n2,\r\n3,\"a line\nand another\"\n\\.\n";
    let wide: &[u8] = b"1\tx\t1e300\t2000-01-01 00:00:00.5\n2\ty\tNaN\tinfinity\n";
    let binary: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\x02zz\
        \0\x04\0\0\0\x04\0\0\0\x01\0\0\0\x02xy\0\0\0\x08\x7f\xf0\0\0\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\x05\
        \0\x04\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
    let mut seeds = Vec::new();
    for piece in [0, 2, 100] {
        seeds.push([&[BINARY << 3, piece], binary].concat());
        seeds.push([&[0, piece], text].concat());
        seeds.push([&[3, piece], csv].concat());
        seeds.push([&[5, piece], csv].concat());
        seeds.push([&[4 << 3, piece], wide].concat());
    }
    seeds
}

#[cfg(test)]
mod tests {
    use weft_base::fuzzing::run_changed_seeds;

    use super::*;

    #[test]
    fn changed_statements_are_planned_or_refused() {
        assert!(store().is_some(), "{TABLES:?}");
        run_changed_seeds(&TARGETS[..1], 4);
    }

    #[test]
    fn changed_data_is_read_or_refused() {
        run_changed_seeds(&TARGETS[1..], 400);
    }
}
