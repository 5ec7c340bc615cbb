//! In-memory tables and a session without a clock, for tests.

use std::sync::Arc;

use weft_base::{BatchId, RowId, TableId};
use weft_binder::relation::{Output, Query, Relation, Scan};
use weft_expression::{ColumnId, CompareOp, Expr, NoSession, Op};
use weft_store::{Catalog, CatalogOp, ColumnDef, TableDef};
use weft_types::{SqlError, SqlType, TimeZone, Value};

use crate::engine::{QueryEngine, Reading};
use crate::lower::Environment;
use crate::settings::{CancelSignal, JoinChoice, PlanningTurn, QueryPriority, QuerySettings};
use crate::source::{ReadSource, RowVisitor};

/// No system catalogs.
pub struct Nothing;

impl Environment for Nothing {
    fn rows(&self, _schema: &str, name: &str, _columns: &[usize]) -> Result<Vec<Vec<Value>>, SqlError> {
        Err(SqlError::internal(format!("no relation {name}")))
    }
}

/// Tables and their rows.
pub struct Tables {
    pub tables: Vec<(Arc<TableDef>, Vec<Vec<u8>>)>,
}

impl ReadSource for Tables {
    fn catalog(&self) -> Arc<Catalog> {
        let mut catalog = Catalog::new();
        for (def, _) in &self.tables {
            catalog = catalog
                .apply(&CatalogOp::CreateTable(def.as_ref().clone()))
                .unwrap();
        }
        Arc::new(catalog)
    }
    fn batch(&self) -> BatchId {
        BatchId(1)
    }
    fn chunk_count(&self, table: TableId) -> usize {
        self.tables
            .iter()
            .filter(|(def, _)| def.id == table)
            .map(|(_, rows)| rows.len().div_ceil(2))
            .sum()
    }
    fn read_chunk(&self, table: TableId, chunk: usize, visit: RowVisitor<'_>) -> Result<(), SqlError> {
        for (def, rows) in &self.tables {
            if def.id == table {
                for row in rows.iter().skip(chunk * 2).take(2) {
                    visit(row, RowId::decode([0; 16]));
                }
            }
        }
        Ok(())
    }
    fn row_count_estimate(&self, table: TableId) -> usize {
        self.chunk_count(table) * 2
    }
}

pub fn int(value: i32) -> Value {
    Value::Int4(value)
}

pub fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

pub fn numeric(value: &str) -> Value {
    Value::Numeric(weft_types::Numeric::parse(value).unwrap())
}

const MONEY: SqlType = SqlType::Numeric(Some(weft_types::NumericSpec {
    precision: 10,
    scale: 2,
}));

/// Tables `a(id, x, name)` and `b(id, a, n)`.
pub fn tables() -> Arc<Tables> {
    let null = Value::Null;
    let table = |number, name: &str, columns, rows: Vec<Vec<Value>>| {
        let def = Arc::new(TableDef::new(TableId(number), name, columns));
        let rows = rows.iter().map(|row| def.layout.encode(row).unwrap()).collect();
        (def, rows)
    };
    let a = table(
        16_384,
        "a",
        vec![
            ColumnDef::new("id", SqlType::Int4).not_null(),
            ColumnDef::new("x", SqlType::Int4),
            ColumnDef::new("name", SqlType::Text),
        ],
        vec![
            vec![int(1), int(10), text("one")],
            vec![int(2), int(20), text("two")],
            vec![int(3), null.clone(), text("three")],
            vec![int(4), int(10), null.clone()],
        ],
    );
    let b = table(
        16_385,
        "b",
        vec![
            ColumnDef::new("id", SqlType::Int4).not_null(),
            ColumnDef::new("a", SqlType::Int4),
            ColumnDef::new("n", MONEY),
        ],
        vec![
            vec![int(1), int(1), numeric("1.50")],
            vec![int(2), int(1), numeric("2.25")],
            vec![int(3), int(2), null.clone()],
            vec![int(4), null, numeric("7.00")],
        ],
    );
    Arc::new(Tables { tables: vec![a, b] })
}

/// Table `a` with columns `first`, `first + 1`, `first + 2`; likewise `b`.
pub fn scan(table: usize, first: u32) -> Relation {
    let tables = tables();
    let (def, _) = &tables.tables[table];
    let columns = def.columns.iter().enumerate();
    Relation::Scan(Scan {
        table: Arc::clone(def),
        alias: def.name.clone(),
        columns: columns
            .map(|(at, column)| (at, ColumnId(first + at as u32), column.ty))
            .collect(),
        hidden: None,
        target: false,
    })
}

pub fn col(id: u32, ty: SqlType) -> Expr {
    Expr::column(ColumnId(id), ty)
}

pub fn icol(id: u32) -> Expr {
    col(id, SqlType::Int4)
}

pub fn iconst(value: i32) -> Expr {
    Expr::constant(int(value), SqlType::Int4)
}

pub fn cmp(op: CompareOp, a: Expr, b: Expr) -> Expr {
    Expr::new(Op::Compare(op), SqlType::Bool, vec![a, b])
}

pub fn eq(a: Expr, b: Expr) -> Expr {
    cmp(CompareOp::Eq, a, b)
}

pub fn filter(input: Relation, predicate: Expr) -> Relation {
    Relation::Filter {
        input: Box::new(input),
        predicate,
    }
}

pub fn project(input: Relation, items: Vec<(u32, Expr)>) -> Relation {
    Relation::Project {
        input: Box::new(input),
        items: items.into_iter().map(|(id, expr)| (ColumnId(id), expr)).collect(),
    }
}

pub fn query(relation: Relation, output: &[(u32, SqlType)]) -> Query {
    Query {
        parameters: Vec::new(),
        shared: Vec::new(),
        relation,
        output: output
            .iter()
            .map(|(id, ty)| Output {
                column: ColumnId(*id),
                name: format!("c{id}"),
                ty: *ty,
                origin: None,
            })
            .collect(),
        tables: Vec::new(),
        reads: Vec::new(),
        session_bound: false,
        moves_sequence: false,
        takes_advisory_locks: false,
        is_volatile: false,
        steps: Vec::new(),
    }
}

pub fn settings() -> QuerySettings {
    QuerySettings {
        session: Arc::new(NoSession),
        zone: TimeZone::UTC,
        deadline: None,
        cancel: CancelSignal::default(),
        planning: PlanningTurn::default(),
        priority: QueryPriority::default(),
        join: JoinChoice::default(),
    }
}

/// The rows of a query as text, with `|` between values, in the order in which the query returns
/// them.
pub fn run(query: Query) -> Result<Vec<String>, SqlError> {
    let engine = QueryEngine::new(2)?;
    let query = Arc::new(query);
    let reading = Reading {
        source: tables(),
        target: None,
        given: None,
        steps: crate::StepRows::default(),
        environment: Arc::new(Nothing),
    };
    if std::env::var("SHOW_PLANS").is_ok() {
        for line in engine.explain(&query, reading.clone(), &[], &settings())? {
            println!("{line}");
        }
    }
    let mut stream = engine.run_over(&query, reading, &[], &settings())?;
    let encoder = stream.encoder();
    let mut lines = Vec::new();
    while let Some(batch) = stream.next_batch()? {
        for row in encoder.values(&batch)? {
            let shown = row.iter().zip(&query.output).map(|(value, output)| {
                let mut out = String::new();
                match value {
                    Value::Null => out.push('-'),
                    value => weft_types::format_text(value, &output.ty, &mut out),
                }
                out
            });
            lines.push(shown.collect::<Vec<_>>().join("|"));
        }
    }
    Ok(lines)
}

/// Like [`run`], but sorted.
pub fn sorted(query: Query) -> Vec<String> {
    let mut lines = run(query).unwrap();
    lines.sort();
    lines
}

/// A bound query over the tables.
pub fn bound(sql: &str) -> Result<Query, SqlError> {
    let statement = weft_syntax::parse_statement(sql)?;
    let catalog = tables().catalog();
    let environment = weft_binder::Environment {
        catalog: &catalog,
        parameters: &[],
        text: sql,
        functions: &|_| &[],
        relations: &|_, _| None,
    };
    weft_binder::bind_query(&statement, environment)
}

/// The rows of a statement, sorted by the test unless the statement sorts them.
pub fn answer(sql: &str) -> Result<Vec<String>, SqlError> {
    let query = bound(sql)?;
    let ordered = matches!(query.relation, Relation::Sort { .. } | Relation::Limit { .. });
    let mut lines = run(query)?;
    if !ordered {
        lines.sort();
    }
    Ok(lines)
}
