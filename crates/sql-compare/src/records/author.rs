//! Records written by the catalog: every operator, function, cast, aggregate and window function that
//! PostgreSQL has over our types, with values at their edges, as constants and over a row by its key and
//! past it.
//!
//! The answers are recorded from PostgreSQL afterwards. Statements that are better written by hand stand in
//! files of their own, which this module does not touch.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use weft_base::Prng;

use super::{Record, write};
use crate::catalog::{Catalog, Form, Signature, Slot};
use crate::generate::{Generator, Mix, is_ordered};
use crate::schema::Schema;
use crate::types::{self, ALL, INT4, TEXT, Type, quoted};

/// Statements by file.
type Files = BTreeMap<String, Vec<String>>;

/// Writes the files into `folder`, without answers.
///
/// # Errors
/// A file that cannot be written.
pub fn author(folder: &Path, catalog: &Catalog) -> Result<(), String> {
    let mut files = Files::new();
    scalars(catalog, &mut files);
    casts(&mut files);
    aggregates(catalog, &mut files);
    windows(catalog, &mut files);
    random(catalog, &mut files);
    for (name, statements) in files {
        let records: Vec<Record> = statements.into_iter().map(Record::of).collect();
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|e| format!("{}: {e}", parent.display()))?;
        }
        fs::write(&path, write(&records)).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

/// A value as a constant of its type.
fn constant(ty: Type, value: &str) -> String {
    match ty {
        types::BOOL => value.to_owned(),
        INT4 if !value.starts_with('-') => value.to_owned(),
        _ => format!("{}::{}", quoted(value), ty.name()),
    }
}

fn file_word(ty: Type) -> String {
    ty.name().replace("[]", "_array")
}

/// The types that a signature's places get.
fn instantiate(signature: &Signature) -> Vec<Type> {
    let of = |slot: &Slot| match slot {
        Slot::Is(ty) => *ty,
        Slot::Element => INT4,
        Slot::Array => types::INT4_ARRAY,
        Slot::Any => TEXT,
    };
    signature.arguments.iter().map(of).collect()
}

/// A value for an argument: chosen where most values make no sense.
fn value_for(name: &str, at: usize, ty: Type, random: &mut Prng) -> &'static str {
    let pool = crate::generate::argument_texts(name, at);
    if ty.is_string() && !pool.is_empty() {
        return pool
            .get(random.below(pool.len() as u64) as usize)
            .copied()
            .unwrap_or_default();
    }
    if crate::generate::argument_is_count(name, at) && ty.is_number() {
        return ["1", "2", "5", "0", "10", "-1"][random.below(6) as usize];
    }
    let values = ty.values();
    values
        .get(random.below(values.len() as u64) as usize)
        .copied()
        .unwrap_or_default()
}

fn call(signature: &Signature, arguments: &[String]) -> String {
    match (signature.form, arguments) {
        (Form::Prefix, [operand]) => format!("{} ({operand})", signature.name),
        (Form::Infix, [left, right]) => format!("{left} {} {right}", signature.name),
        _ => format!("{}({})", signature.name, arguments.join(", ")),
    }
}

/// Operators by the type of their left side, functions by that of their first argument.
fn scalars(catalog: &Catalog, files: &mut Files) {
    let mut random = Prng::new(17);
    let mut ids = BTreeMap::<String, usize>::new();
    let mut rows = BTreeMap::<String, BTreeMap<Type, ()>>::new();
    let mut bodies = Files::new();
    for signature in catalog
        .scalars
        .iter()
        .filter(|signature| signature.form != Form::Cast)
    {
        let types = instantiate(signature);
        let first = types.first().copied().unwrap_or(INT4);
        let folder = if signature.form == Form::Function {
            "functions"
        } else {
            "operators"
        };
        let name = format!("{folder}/{}.slt", file_word(first));
        let body = bodies.entry(name.clone()).or_default();
        let constants = if signature.form == Form::Function { 3 } else { 2 };
        for _ in 0..constants {
            let values: Vec<String> = types
                .iter()
                .enumerate()
                .map(|(at, ty)| constant(*ty, value_for(&signature.name, at, *ty, &mut random)))
                .collect();
            let sql = format!("SELECT {}", call(signature, &values));
            if !body.contains(&sql) {
                body.push(sql);
            }
        }
        if types.is_empty() {
            continue;
        }
        // Over a row: the columns are named after their types, `l_` for the first of a type and `r_` for
        // others.
        let columns: Vec<String> = types
            .iter()
            .enumerate()
            .map(|(at, ty)| {
                rows.entry(name.clone()).or_default().insert(*ty, ());
                let side = if types.iter().take(at).any(|other| other == ty) {
                    "r"
                } else {
                    "l"
                };
                let pool = crate::generate::argument_texts(&signature.name, at);
                let counted = crate::generate::argument_is_count(&signature.name, at) && ty.is_number();
                if (ty.is_string() && !pool.is_empty()) || counted {
                    return constant(*ty, value_for(&signature.name, at, *ty, &mut random));
                }
                format!("{side}_{}", file_word(*ty))
            })
            .collect();
        let id = ids.entry(name.clone()).or_default();
        *id = *id % 5 + 1;
        let expression = call(signature, &columns);
        body.push(format!("SELECT {expression} FROM pairs WHERE id = {id}"));
        body.push(format!("SELECT {expression} FROM pairs WHERE id + 0 = {id}"));
    }
    for (name, body) in bodies {
        let types: Vec<Type> = rows.remove(&name).unwrap_or_default().into_keys().collect();
        let mut statements = pairs_table(&types);
        statements.extend(body);
        statements.push("DROP TABLE pairs".to_owned());
        files.insert(name, statements);
    }
}

/// A table of five rows with two columns of each type.
fn pairs_table(types: &[Type]) -> Vec<String> {
    let column = |ty: &Type| format!("l_{0} {1}, r_{0} {1}", file_word(*ty), declared(*ty));
    let columns: Vec<String> = types.iter().map(column).collect();
    let mut statements = vec![
        "DROP TABLE IF EXISTS pairs".to_owned(),
        format!("CREATE TABLE pairs (id int4 PRIMARY KEY, {})", columns.join(", ")),
    ];
    for id in 1..=5_usize {
        let value = |ty: &Type| {
            let values: Vec<&str> = ty
                .values()
                .iter()
                .copied()
                .filter(|value| *value != "Infinity" || *ty != types::NUMERIC)
                .collect();
            let at = |step: usize| {
                values
                    .get(step % (values.len() + 1))
                    .map_or("NULL".to_owned(), |v| quoted(v))
            };
            format!("{}, {}", at(id), at(id * 2 + 1))
        };
        let values: Vec<String> = types.iter().map(value).collect();
        statements.push(format!("INSERT INTO pairs VALUES ({id}, {})", values.join(", ")));
    }
    statements
}

/// How a column of the type is declared.
fn declared(ty: Type) -> &'static str {
    if ty == types::BPCHAR { "char(5)" } else { ty.name() }
}

/// Every pair of types, and modifiers.
fn casts(files: &mut Files) {
    let mut random = Prng::new(18);
    for from in ALL {
        let name = format!("casts/{}.slt", file_word(from));
        let statements = files.entry(name).or_default();
        for to in ALL {
            let tries = if from.is_string() && !to.is_string() { 0 } else { 2 };
            for _ in 0..tries {
                let value = value_for("", 0, from, &mut random);
                statements.push(format!("SELECT {}::{}", constant(from, value), to.name()));
            }
            if from.is_string() && !to.is_string() {
                let values = to.values();
                let value = values
                    .get(random.below(values.len() as u64) as usize)
                    .copied()
                    .unwrap_or_default();
                statements.push(format!("SELECT {}::{}", constant(from, value), to.name()));
                statements.push(format!("SELECT CAST({} AS {})", constant(from, "abc"), to.name()));
            }
        }
        for value in from.values() {
            statements.push(format!(
                "SELECT {}, {}::text",
                constant(from, value),
                constant(from, value)
            ));
        }
        statements.dedup();
    }
    let modified = [
        (types::NUMERIC, "numeric(5,2)"),
        (types::NUMERIC, "numeric(3)"),
        (types::NUMERIC, "numeric(10,4)"),
        (TEXT, "varchar(3)"),
        (TEXT, "char(3)"),
        (types::TIMESTAMP, "timestamp(0)"),
        (types::TIMESTAMP, "timestamp(3)"),
        (types::TIMESTAMPTZ, "timestamptz(1)"),
        (types::TIME, "time(2)"),
        (types::INTERVAL, "interval(2)"),
        (types::INTERVAL, "interval day to second"),
        (types::FLOAT8, "float(24)"),
        (types::FLOAT8, "numeric(8,3)"),
    ];
    let statements = files.entry("casts/modifiers.slt".to_owned()).or_default();
    for (from, to) in modified {
        for value in from.values() {
            statements.push(format!("SELECT CAST({} AS {to})", constant(from, value)));
        }
    }
}

/// Every aggregate over all rows, by group, over distinct values, over some rows and over none.
fn aggregates(catalog: &Catalog, files: &mut Files) {
    for signature in &catalog.aggregates {
        let types = instantiate(signature);
        let Some(first) = types.first().copied() else {
            continue;
        };
        let name = format!("aggregates/{}.slt", file_word(first));
        let statements = files.entry(name).or_insert_with(|| values_table(first));
        let mut list = vec!["v".to_owned()];
        list.extend(types.iter().skip(1).map(|ty| match *ty {
            TEXT => "','".to_owned(),
            types::BYTEA => "'\\x2c'::bytea".to_owned(),
            _ => "w".to_owned(),
        }));
        let order = if is_ordered(&signature.name) {
            " ORDER BY id"
        } else {
            ""
        };
        let call = format!("{}({}{order})", signature.name, list.join(", "));
        statements.push(format!("SELECT {call} FROM vals"));
        statements.push(format!("SELECT g, {call} FROM vals GROUP BY g ORDER BY g"));
        statements.push(format!(
            "SELECT {call} FILTER (WHERE id > 2) FROM vals WHERE id < 6"
        ));
        statements.push(format!("SELECT {call} FROM vals WHERE id = 3"));
        statements.push(format!("SELECT {call} FROM vals WHERE id > 100"));
        if order.is_empty() {
            statements.push(format!(
                "SELECT {}(DISTINCT {}) FROM vals WHERE id < 5",
                signature.name,
                list.join(", ")
            ));
        }
    }
    for (name, statements) in files.iter_mut() {
        if name.starts_with("aggregates/") {
            statements.push("DROP TABLE vals".to_owned());
        }
    }
}

/// A table of values that sums do not run out of: the edges are there for types that only compare.
fn values_table(ty: Type) -> Vec<String> {
    let values: Vec<&str> = match ty {
        types::INT2 => vec!["1", "5", "-3", "100", "7", "5"],
        INT4 => vec!["1", "5", "-3", "2147483647", "7", "5"],
        types::INT8 => vec!["1", "5", "-3", "9223372036854775807", "7", "5"],
        types::FLOAT4 | types::FLOAT8 => vec!["0.5", "1.5", "-2.25", "1024", "3", "1.5"],
        types::NUMERIC => vec!["1.5", "2.25", "-3", "12345678901234567890.5", "0.001", "1.50"],
        types::INTERVAL => vec!["1 day", "02:00:00", "1 mon", "-3 days", "1 day", "00:00:00.5"],
        _ => ty.values().to_vec(),
    };
    let mut statements = vec![
        "DROP TABLE IF EXISTS vals".to_owned(),
        format!(
            "CREATE TABLE vals (id int4 PRIMARY KEY, g int4, v {0}, w {0})",
            declared(ty)
        ),
    ];
    for id in 1..=8_usize {
        let value = |at: usize| {
            values
                .get(at % (values.len() + 1))
                .map_or("NULL".to_owned(), |v| quoted(v))
        };
        statements.push(format!(
            "INSERT INTO vals VALUES ({id}, {}, {}, {})",
            id % 3,
            value(id - 1),
            value(id * 3)
        ));
    }
    statements
}

fn windows(catalog: &Catalog, files: &mut Files) {
    const FRAMES: [&str; 8] = [
        "ORDER BY id",
        "PARTITION BY g ORDER BY id",
        "ORDER BY v NULLS FIRST, id",
        "PARTITION BY g ORDER BY v DESC, id",
        "ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
        "ORDER BY g RANGE BETWEEN 1 PRECEDING AND CURRENT ROW",
        "ORDER BY g GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES",
        "",
    ];
    let mut statements = values_table(INT4);
    let extra = [
        "sum(v)",
        "avg(v)",
        "count(*)",
        "min(v)",
        "max(v)",
        "array_agg(v)",
        "sum(v::float8)",
        "sum(v::numeric)",
        "count(v)",
    ];
    let mut calls: Vec<String> = extra.iter().map(|call| (*call).to_owned()).collect();
    for signature in &catalog.windows {
        let arguments = signature
            .arguments
            .iter()
            .enumerate()
            .map(|(at, slot)| match slot {
                Slot::Is(INT4) => "2",
                _ if at == 0 => "v",
                _ => "-1",
            });
        calls.push(format!(
            "{}({})",
            signature.name,
            arguments.collect::<Vec<_>>().join(", ")
        ));
    }
    for call in calls {
        for frame in FRAMES {
            let needs_order = frame.is_empty() && !call.starts_with("sum") && !call.starts_with("count");
            if needs_order {
                continue;
            }
            // Which of several peers comes first is open.
            let frame = match frame.strip_prefix("ORDER BY g ") {
                Some(range) if by_order(&call) && range.starts_with("RANGE") => {
                    format!("ORDER BY id {range}")
                }
                Some(groups) if by_order(&call) => format!("ORDER BY g, id {groups}"),
                _ => frame.to_owned(),
            };
            statements.push(format!("SELECT id, {call} OVER ({frame}) FROM vals ORDER BY id"));
        }
    }
    statements.push("DROP TABLE vals".to_owned());
    files.insert("windows/calls.slt".to_owned(), statements);
}

/// Whether a call tells rows apart that its order does not.
fn by_order(call: &str) -> bool {
    let names = [
        "array_agg",
        "first_value",
        "last_value",
        "nth_value",
        "lag",
        "lead",
        "ntile",
        "row_number",
    ];
    names.iter().any(|name| call.split('(').next() == Some(*name))
}

/// Statements of the generator, over its own tables.
fn random(catalog: &Catalog, files: &mut Files) {
    let schema = Schema::whole();
    for (name, mix, seed, count) in [
        ("random/queries.slt", Mix::Queries, 5, 400),
        ("random/expressions.slt", Mix::Expressions, 6, 300),
    ] {
        let mut statements = Vec::new();
        for table in schema.tables.iter().filter(|table| table.name != "w") {
            statements.push(format!("DROP TABLE IF EXISTS {}", table.name));
            statements.extend(table.make.clone());
        }
        let mut generator = Generator::new(seed, catalog, &schema);
        let mut written = 0;
        while written < count {
            let statement = generator.statement(mix);
            let free = statement.freedom.representative
                || statement.freedom.float_sums
                || statement.freedom.any_data_error;
            let sql = statement.tree.sql();
            // What an order of rows decides is no record.
            if free || sql.len() > 400 {
                continue;
            }
            statements.push(sql);
            statements.extend(statement.off_key.map(|tree| tree.sql()));
            written += 1;
        }
        statements.extend(
            schema
                .tables
                .iter()
                .filter(|table| table.name != "w")
                .map(|table| format!("DROP TABLE {}", table.name)),
        );
        files.insert(name.to_owned(), statements);
    }
}
