//! CREATE TABLE.
//!
//! Object ids are assigned in PostgreSQL's order: sequences of SERIAL and IDENTITY columns, the table, its
//! indexes. The sequences are created first because column defaults name them.

use std::collections::HashSet;

use sqlparser::ast::{self, ColumnOption, CreateTableOptions, GeneratedAs, TableConstraint};
use weft_base::{IndexId, TableId};
use weft_store::{
    Catalog, CatalogOp, ColumnDef, DefaultExpr, Distribution, Identity, IndexDef, SequenceDef, SequenceId,
    TableDef,
};
use weft_types::{SqlError, SqlState};

use super::super::copy::quote_ident;
use super::super::{defaults, names};
use super::constraint::{NewCheck, NewConstraint};
use super::index::{IndexKind, check_key, column_names};
use super::{Changes, sequence, types};
use crate::error;

/// An index that a constraint requires.
struct Constraint {
    kind: IndexKind,
    name: Option<String>,
    columns: Vec<String>,
}

/// A column with its default, sequence and constraints.
pub(super) struct NewColumn {
    pub(super) def: ColumnDef,
    pub(super) default: Option<ast::Expr>,
    /// The sequence of SERIAL or IDENTITY, with id and owner still to be set; whether it is an identity,
    /// and ALWAYS.
    pub(super) sequence: Option<(SequenceDef, Option<bool>)>,
    pub(super) primary: Option<Option<String>>,
    pub(super) unique: Vec<Option<String>>,
    pub(super) constraints: Vec<NewConstraint>,
}

/// CREATE TABLE.
pub(super) fn create_table(changes: &mut Changes, create: &ast::CreateTable) -> Result<(), SqlError> {
    let distribution = refuse_variants(create)?;
    let parts = names::parts(&create.name);
    let name = names::cut(names::relation(&parts)?.to_owned());
    if create.if_not_exists && changes.catalog.relation(&name).is_some() {
        changes.notice(format!("relation \"{name}\" already exists, skipping"));
        return Ok(());
    }
    let mut columns = Vec::with_capacity(create.columns.len());
    for column in &create.columns {
        columns.push(new_column(column, &name)?);
    }
    refuse_duplicates(&columns)?;
    let constraints = constraints(create, &columns)?;
    let mut others: Vec<NewConstraint> = columns
        .iter()
        .flat_map(|column| column.constraints.clone())
        .collect();
    for constraint in &create.constraints {
        others.extend(NewConstraint::of_table(constraint)?);
    }
    create_sequences(changes, &name, &mut columns)?;
    for column in &mut columns {
        settle_default(&changes.catalog, column)?;
    }
    let table = TableId(changes.catalog.next_object_id());
    let defs: Vec<ColumnDef> = columns.into_iter().map(|column| column.def).collect();
    let mut def = TableDef::new(table, name, defs);
    for (number, constraint) in constraints.into_iter().enumerate() {
        let index = define_constraint(&changes.catalog, &def, constraint, table.0 + 1 + number as u32)?;
        def = def.with_index(index);
    }
    changes.push(CatalogOp::CreateTable(def))?;
    place(changes, table, distribution)?;
    others
        .into_iter()
        .try_for_each(|constraint| constraint.add(changes, table, true))
}

/// Adds the operation of `WITH (partition_by = ...)` or `WITH (replicated = true)`.
fn place(changes: &mut Changes, table: TableId, given: Option<GivenDistribution>) -> Result<(), SqlError> {
    let distribution = match given {
        None => return Ok(()),
        Some(GivenDistribution::Replicated) => Distribution::Replicated,
        Some(GivenDistribution::By(column)) => {
            let def = changes.catalog.table_by_id(table);
            let first = def.and_then(|def| {
                let key = def.primary_index()?;
                def.columns.get(*key.columns.first()?)
            });
            if first.is_none_or(|first| first.name != column) {
                let message = format!(
                    "a table is partitioned by the first column of its primary key, not by \"{column}\""
                );
                return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
            }
            Distribution::Hash
        }
    };
    changes.push(CatalogOp::SetDistribution { table, distribution })
}

fn refuse_variants(create: &ast::CreateTable) -> Result<Option<GivenDistribution>, SqlError> {
    let refusal = if create.temporary {
        "temporary tables are not supported"
    } else if create.query.is_some() {
        "CREATE TABLE AS is not supported"
    } else if create.like.is_some() {
        "CREATE TABLE (LIKE ...) is not supported"
    } else if create.inherits.is_some() {
        "table inheritance is not supported"
    } else if create.partition_by.is_some() || create.partition_of.is_some() {
        "partitioned tables are not supported"
    } else if create.external || create.or_replace || create.on_commit.is_some() {
        "this form of CREATE TABLE is not supported"
    } else {
        return storage_options(&create.table_options);
    };
    Err(error::unsupported(refusal))
}

/// What WITH says about the ranks that hold a table's rows.
enum GivenDistribution {
    /// `partition_by = 'column'`
    By(String),
    /// `replicated`
    Replicated,
}

/// WITH (fillfactor = ...) and the like have no effect; unknown names are errors, as in PostgreSQL. The
/// distribution is not PostgreSQL's (decision 0044).
fn storage_options(options: &CreateTableOptions) -> Result<Option<GivenDistribution>, SqlError> {
    let (CreateTableOptions::With(list)
    | CreateTableOptions::Options(list)
    | CreateTableOptions::Plain(list)) = options
    else {
        return Ok(None);
    };
    let mut distribution = None;
    for option in list {
        let (name, value) = match option {
            ast::SqlOption::KeyValue { key, value } => (names::ident(key), Some(value)),
            ast::SqlOption::Ident(key) => (names::ident(key), None),
            other => {
                return Err(error::unsupported(format!(
                    "storage option {other} is not supported"
                )));
            }
        };
        let given = match name.as_str() {
            "partition_by" => Some(GivenDistribution::By(partition_column(value)?)),
            "replicated" => is_on(&name, value)?.then_some(GivenDistribution::Replicated),
            known if is_storage_option(known) => continue,
            _ => {
                return Err(SqlError::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("unrecognized parameter \"{name}\""),
                ));
            }
        };
        if given.is_some() && distribution.is_some() {
            let message = "a table has one distribution: partition_by or replicated, once";
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
        distribution = given.or(distribution);
    }
    Ok(distribution)
}

/// Whether ALTER TABLE would change which ranks hold the rows.
pub(super) fn is_distribution_option(name: &str) -> bool {
    matches!(name, "partition_by" | "replicated")
}

fn is_storage_option(name: &str) -> bool {
    matches!(
        name,
        "fillfactor" | "parallel_workers" | "oids" | "user_catalog_table"
    ) || ["autovacuum_", "toast", "vacuum_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// The text of an option's value, quoted or not.
fn option_text(value: &ast::Expr) -> String {
    match value {
        ast::Expr::Value(value) => match value.value.clone().into_string() {
            Some(text) => text,
            None => value.to_string(),
        },
        ast::Expr::Identifier(name) => names::ident(name),
        other => other.to_string(),
    }
}

fn partition_column(value: Option<&ast::Expr>) -> Result<String, SqlError> {
    let text = value.map(option_text).unwrap_or_default();
    if text.contains('(') {
        let message = format!("partition_by = '{text}' is not supported: tables are partitioned by hash");
        return Err(error::unsupported(message).hint("Name the first column of the primary key."));
    }
    if text.is_empty() {
        let message = "partition_by needs the name of a column";
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(text)
}

/// A boolean option, true without a value.
fn is_on(name: &str, value: Option<&ast::Expr>) -> Result<bool, SqlError> {
    let text = value.map_or_else(|| "true".to_owned(), option_text);
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        _ => Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid value for boolean option \"{name}\": {text}"),
        )),
    }
}

/// Reads a column definition. Defaults are not bound yet: they may name sequences that do not exist yet.
pub(super) fn new_column(column: &ast::ColumnDef, table: &str) -> Result<NewColumn, SqlError> {
    let name = names::ident(&column.name);
    let column_type = types::column_type(&column.data_type)?;
    let mut new = NewColumn {
        def: ColumnDef::new(name.clone(), column_type.ty),
        default: None,
        sequence: None,
        primary: None,
        unique: Vec::new(),
        constraints: Vec::new(),
    };
    if column_type.serial {
        new.def.not_null = true;
        new.sequence = Some((sequence::new_sequence(SequenceId(0), "", column_type.ty)?, None));
    }
    let mut null = false;
    for option in &column.options {
        let constraint_name = option.name.as_ref().map(names::ident);
        match &option.option {
            ColumnOption::Null => null = true,
            ColumnOption::NotNull => new.def.not_null = true,
            ColumnOption::Default(expr) if new.default.is_none() && new.sequence.is_none() => {
                new.default = Some(expr.clone());
            }
            ColumnOption::Default(_) => {
                return Err(SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    format!("multiple default values specified for column \"{name}\" of table \"{table}\""),
                ));
            }
            ColumnOption::PrimaryKey(_) if new.primary.is_none() => new.primary = Some(constraint_name),
            ColumnOption::PrimaryKey(_) => return Err(multiple_keys(table)),
            ColumnOption::Unique(_) => new.unique.push(constraint_name),
            ColumnOption::Generated {
                generated_as,
                sequence_options,
                generation_expr: None,
                ..
            } => {
                let always = match generated_as {
                    GeneratedAs::Always => true,
                    GeneratedAs::ByDefault => false,
                    GeneratedAs::ExpStored => {
                        return Err(error::unsupported("generated columns are not supported"));
                    }
                };
                let mut sequence =
                    sequence::new_sequence(SequenceId(0), "", column_type.ty).map_err(|_| {
                        SqlError::new(
                            SqlState::INVALID_PARAMETER_VALUE,
                            "identity column type must be smallint, integer, or bigint",
                        )
                    })?;
                sequence::apply_options(&mut sequence, sequence_options.as_deref().unwrap_or(&[]))?;
                new.def.not_null = true;
                new.sequence = Some((sequence, Some(always)));
            }
            ColumnOption::Collation(collation) => check_collation(collation)?,
            ColumnOption::Check(check) => {
                let check = NewCheck::read(check, option.name.as_ref())?;
                new.constraints.push(NewConstraint::Check(check));
            }
            ColumnOption::ForeignKey(key) => {
                let mut key = key.clone();
                key.columns = vec![column.name.clone()];
                new.constraints
                    .push(NewConstraint::foreign_key(&key, option.name.as_ref()));
            }
            other => {
                return Err(error::unsupported(format!(
                    "column option {other} is not supported"
                )));
            }
        }
    }
    if null && (new.def.not_null || new.primary.is_some()) {
        return Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            format!("conflicting NULL/NOT NULL declarations for column \"{name}\" of table \"{table}\""),
        ));
    }
    Ok(new)
}

fn check_collation(name: &ast::ObjectName) -> Result<(), SqlError> {
    match names::parts(name).last().map(String::as_str) {
        Some("C" | "POSIX" | "default" | "c" | "ucs_basic") => Ok(()),
        _ => Err(error::unsupported(format!("collation {name} is not supported"))
            .hint("Text compares by its bytes, as under collation \"C\".")),
    }
}

fn multiple_keys(table: &str) -> SqlError {
    SqlError::new(
        SqlState::INVALID_TABLE_DEFINITION,
        format!("multiple primary keys for table \"{table}\" are not allowed"),
    )
}

fn refuse_duplicates(columns: &[NewColumn]) -> Result<(), SqlError> {
    let mut names = HashSet::with_capacity(columns.len());
    for column in columns {
        if !names.insert(column.def.name.as_str()) {
            return Err(SqlError::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{}\" specified more than once", column.def.name),
            ));
        }
    }
    Ok(())
}

/// Constraints of the columns and of the table, the primary key first.
fn constraints(create: &ast::CreateTable, columns: &[NewColumn]) -> Result<Vec<Constraint>, SqlError> {
    let mut list = Vec::new();
    for column in columns {
        let own = || vec![column.def.name.clone()];
        list.extend(column.primary.iter().map(|name| Constraint {
            kind: IndexKind::Primary,
            name: name.clone(),
            columns: own(),
        }));
        list.extend(column.unique.iter().map(|name| Constraint {
            kind: IndexKind::Unique,
            name: name.clone(),
            columns: own(),
        }));
    }
    for constraint in &create.constraints {
        if matches!(
            constraint,
            TableConstraint::Check(_) | TableConstraint::ForeignKey(_)
        ) {
            continue;
        }
        let (kind, name, columns) = read_constraint(constraint)?;
        list.push(Constraint { kind, name, columns });
    }
    let table = names::parts(&create.name).pop().unwrap_or_default();
    if list
        .iter()
        .filter(|constraint| constraint.kind == IndexKind::Primary)
        .count()
        > 1
    {
        return Err(multiple_keys(&table));
    }
    list.sort_by_key(|constraint| constraint.kind != IndexKind::Primary);
    Ok(list)
}

/// The kind, name and columns of a table constraint.
pub(super) fn read_constraint(
    constraint: &TableConstraint,
) -> Result<(IndexKind, Option<String>, Vec<String>), SqlError> {
    match constraint {
        TableConstraint::PrimaryKey(key) => Ok((
            IndexKind::Primary,
            key.name.as_ref().map(names::ident),
            column_names(&key.columns)?,
        )),
        TableConstraint::Unique(unique) => {
            if matches!(unique.nulls_distinct, ast::NullsDistinctOption::NotDistinct) {
                return Err(error::unsupported("NULLS NOT DISTINCT is not supported"));
            }
            Ok((
                IndexKind::Unique,
                unique.name.as_ref().map(names::ident),
                column_names(&unique.columns)?,
            ))
        }
        other => Err(error::unsupported(format!("constraint {other} is not supported"))),
    }
}

fn define_constraint(
    catalog: &Catalog,
    table: &TableDef,
    constraint: Constraint,
    id: u32,
) -> Result<IndexDef, SqlError> {
    let mut columns = Vec::with_capacity(constraint.columns.len());
    for name in &constraint.columns {
        columns.push(table.column_index(name).ok_or_else(|| {
            SqlError::new(
                SqlState::UNDEFINED_COLUMN,
                format!("column \"{name}\" named in key does not exist"),
            )
        })?);
    }
    check_key(table, &columns)?;
    let name = match constraint.name {
        Some(name) => name,
        None => {
            let base = constraint.kind.default_name(&table.name, &constraint.columns);
            free_name(catalog, table, &base)
        }
    };
    Ok(constraint.kind.define(IndexId(id), name, table.id, columns))
}

/// A name that neither the catalog nor the new table's other indexes use.
fn free_name(catalog: &Catalog, table: &TableDef, base: &str) -> String {
    let mut name = catalog.free_name(base);
    let mut suffix = 0;
    while name == table.name || table.indexes.iter().any(|index| index.name == name) {
        suffix += 1;
        name = catalog.free_name(&format!("{base}{suffix}"));
    }
    name
}

/// Creates the sequences of SERIAL and IDENTITY columns and links the columns to them.
fn create_sequences(changes: &mut Changes, table: &str, columns: &mut [NewColumn]) -> Result<(), SqlError> {
    let count = columns.iter().filter(|column| column.sequence.is_some()).count() as u32;
    let owner = TableId(changes.catalog.next_object_id() + count);
    for (number, column) in columns.iter_mut().enumerate() {
        tie_sequence(changes, table, (owner, number as u32), column)?;
    }
    Ok(())
}

/// Creates one column's sequence, if it has one.
pub(super) fn tie_sequence(
    changes: &mut Changes,
    table: &str,
    owner: (TableId, u32),
    column: &mut NewColumn,
) -> Result<(), SqlError> {
    let Some((mut sequence, identity)) = column.sequence.take() else {
        return Ok(());
    };
    sequence.id = SequenceId(changes.catalog.next_object_id());
    sequence.name = changes
        .catalog
        .free_name(&names::cut(format!("{table}_{}_seq", column.def.name)));
    sequence.owned_by = Some(owner);
    match identity {
        Some(always) => {
            column.def.identity = Some(Identity {
                always,
                sequence: sequence.id,
            })
        }
        None => {
            let quoted = if is_plain(&sequence.name) {
                sequence.name.clone()
            } else {
                quote_ident(&sequence.name)
            };
            let sql = format!("nextval('{}'::regclass)", quoted.replace('\'', "''"));
            column.def.default = Some(DefaultExpr { sql });
        }
    }
    changes.push(CatalogOp::CreateSequence(sequence))
}

/// Whether a name is parsed back unchanged without quotes.
fn is_plain(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// `nextval('name')` as PostgreSQL keeps it: with the name as a relation.
fn sequence_default(expr: &ast::Expr) -> Option<String> {
    let ast::Expr::Function(function) = expr else {
        return None;
    };
    let ast::FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let (name, arguments) = (names::parts(&function.name), list.args.as_slice());
    let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(argument))] = arguments else {
        return None;
    };
    let literal = matches!(argument, ast::Expr::Value(value)
        if matches!(value.value, ast::Value::SingleQuotedString(_)));
    (name.last().is_some_and(|name| name == "nextval") && literal)
        .then(|| format!("nextval({}::regclass)", weft_syntax::print_expression(argument)))
}

/// Checks a default and stores its text.
pub(super) fn settle_default(catalog: &Catalog, column: &mut NewColumn) -> Result<(), SqlError> {
    if let Some(expr) = &column.default {
        column.def.default = Some(DefaultExpr {
            sql: sequence_default(expr).unwrap_or_else(|| weft_syntax::print_expression(expr)),
        });
        defaults::column_default(catalog, &column.def)?;
        // DEFAULT NULL is no default.
        if matches!(expr, ast::Expr::Value(value) if matches!(value.value, ast::Value::Null)) {
            column.def.default = None;
        }
    }
    Ok(())
}
