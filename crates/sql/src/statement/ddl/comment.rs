//! COMMENT ON.
//!
//! Objects that exist here can have comments; those of PostgreSQL that do not, and system relations and
//! built-in types, are refused with 0A000.

use weft_base::TableId;
use weft_store::{
    Catalog, CatalogOp, CommentClass, Commented, DATABASE_OBJECT_OID, IndexDef, PLPGSQL_EXTENSION_OID,
    PUBLIC_SCHEMA_OID, ProcedureDef, ProcedureParam, Relation, RoleId, ViewId,
};
use weft_syntax::reader::TokenReader;
use weft_types::{SqlError, SqlState};

use super::super::plan::Plan;
use super::super::procedure::header;
use super::super::rights::not_owner;
use super::super::{PlanContext, named_type, names};
use super::Changes;
use crate::error;

type Parsed<T> = Result<T, SqlError>;

/// A kind of relation, as the statement names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RelationKind {
    Table,
    Index,
    Sequence,
    View,
    /// One of which there is none here.
    Other(&'static str),
}

/// What the comment is on, by name.
#[derive(Clone, Debug)]
enum Target {
    Relation(RelationKind, Vec<String>),
    Column(Vec<String>),
    Constraint(String, Vec<String>),
    /// The word that was used, the name, and the parameters if they were given.
    Procedure(&'static str, Vec<String>, Option<Vec<ProcedureParam>>),
    Schema(String),
    Database(String),
    Role(String),
    Extension(String),
    Type(String),
    Domain(String),
}

/// COMMENT ON.
#[derive(Clone, Debug)]
pub struct CommentStatement {
    target: Target,
    /// `None`: IS NULL.
    text: Option<String>,
}

/// Kinds of objects that do not exist here, or not as objects.
const OTHERS: [&[&str]; 24] = [
    &["ACCESS", "METHOD"],
    &["AGGREGATE"],
    &["CAST"],
    &["COLLATION"],
    &["CONVERSION"],
    &["EVENT", "TRIGGER"],
    &["FOREIGN", "DATA", "WRAPPER"],
    &["FUNCTION"],
    &["LANGUAGE"],
    &["LARGE", "OBJECT"],
    &["OPERATOR"],
    &["POLICY"],
    &["PROCEDURAL", "LANGUAGE"],
    &["PUBLICATION"],
    &["RULE"],
    &["SERVER"],
    &["STATISTICS"],
    &["SUBSCRIPTION"],
    &["TABLESPACE"],
    &["TEXT", "SEARCH", "CONFIGURATION"],
    &["TEXT", "SEARCH", "DICTIONARY"],
    &["TEXT", "SEARCH", "PARSER"],
    &["TEXT", "SEARCH", "TEMPLATE"],
    &["TRIGGER"],
];

/// Parses what follows COMMENT.
pub(crate) fn parse(reader: &mut TokenReader<'_>) -> Parsed<CommentStatement> {
    reader.expect("ON")?;
    let target = target(reader)?;
    reader.expect("IS")?;
    let text = match reader.accept("NULL") {
        true => None,
        false => Some(reader.string()?),
    };
    Ok(CommentStatement { target, text })
}

fn target(reader: &mut TokenReader<'_>) -> Parsed<Target> {
    const RELATIONS: [(&[&str], RelationKind); 6] = [
        (&["TABLE"], RelationKind::Table),
        (&["INDEX"], RelationKind::Index),
        (&["SEQUENCE"], RelationKind::Sequence),
        (&["VIEW"], RelationKind::View),
        (
            &["MATERIALIZED", "VIEW"],
            RelationKind::Other("a materialized view"),
        ),
        (&["FOREIGN", "TABLE"], RelationKind::Other("a foreign table")),
    ];
    for (words, kind) in RELATIONS {
        if reader.accept_all(words) {
            return Ok(Target::Relation(kind, reader.qualified_name()?));
        }
    }
    for word in ["PROCEDURE", "ROUTINE"] {
        if reader.accept(word) {
            let name = reader.qualified_name()?;
            return Ok(Target::Procedure(word, name, header::signature(reader)?));
        }
    }
    let name = |reader: &mut TokenReader<'_>| reader.identifier().map(names::cut);
    if reader.accept("COLUMN") {
        return reader.qualified_name().map(Target::Column);
    }
    if reader.accept("CONSTRAINT") {
        let constraint = name(reader)?;
        reader.expect("ON")?;
        if reader.accept("DOMAIN") {
            return type_text(reader).map(Target::Domain);
        }
        return Ok(Target::Constraint(constraint, reader.qualified_name()?));
    }
    if reader.accept("SCHEMA") {
        return name(reader).map(Target::Schema);
    }
    if reader.accept("DATABASE") {
        return name(reader).map(Target::Database);
    }
    if reader.accept("ROLE") {
        return name(reader).map(Target::Role);
    }
    if reader.accept("EXTENSION") {
        return name(reader).map(Target::Extension);
    }
    if reader.accept("TYPE") {
        return type_text(reader).map(Target::Type);
    }
    if reader.accept("DOMAIN") {
        return type_text(reader).map(Target::Domain);
    }
    match OTHERS.iter().find(|words| reader.accept_all(words)) {
        Some(words) => Err(error::unsupported(format!(
            "COMMENT ON {} is not supported",
            words.join(" ")
        ))),
        None => Err(reader.unexpected()),
    }
}

/// The text of a type, up to IS.
fn type_text(reader: &mut TokenReader<'_>) -> Parsed<String> {
    let (whole, start) = (reader.rest(), reader.offset());
    while !reader.peek_text().eq_ignore_ascii_case("is") {
        if reader.next_token().is_none() {
            return Err(reader.unexpected());
        }
    }
    let text = whole.get(..reader.offset() - start).unwrap_or_default().trim();
    match text.is_empty() {
        true => Err(reader.unexpected()),
        false => Ok(text.to_owned()),
    }
}

/// Plans the statement.
pub(crate) fn plan(statement: &CommentStatement, ctx: &PlanContext<'_>) -> Result<Plan, SqlError> {
    let mut changes = Changes::new(ctx.catalog);
    match object(ctx.catalog, &statement.target)? {
        Some(on) => changes.push(CatalogOp::Comment {
            on,
            text: statement.text.clone(),
        })?,
        None => {
            // A dump may have been made under another name: an error would end its restoring.
            let Target::Database(name) = &statement.target else {
                return Err(SqlError::internal("a comment on nothing"));
            };
            changes.notices.push(undefined_database(name));
        }
    }
    Ok(changes.finish("COMMENT"))
}

fn undefined_database(name: &str) -> SqlError {
    SqlError::new(
        SqlState::INVALID_CATALOG_NAME,
        format!("database \"{name}\" does not exist"),
    )
}

fn undefined(kind: &str, name: &str) -> SqlError {
    SqlError::new(
        SqlState::UNDEFINED_OBJECT,
        format!("{kind} \"{name}\" does not exist"),
    )
}

/// The object; `None` for a database that does not exist.
fn object(catalog: &Catalog, target: &Target) -> Result<Option<Commented>, SqlError> {
    let whole = |class, id| Ok(Some(Commented::object(class, id)));
    match target {
        Target::Relation(kind, name) => of_relation(catalog, *kind, name).map(Some),
        Target::Column(name) => of_column(catalog, name).map(Some),
        Target::Constraint(name, table) => of_constraint(catalog, name, table).map(Some),
        Target::Procedure(word, name, params) => {
            let procedure = procedure(catalog, word, name, params.as_deref())?;
            whole(CommentClass::Procedure, procedure.id.0)
        }
        Target::Schema(name) => match name.as_str() {
            "public" => whole(CommentClass::Schema, PUBLIC_SCHEMA_OID),
            "pg_catalog" | "information_schema" => {
                Err(error::unsupported("comments on system schemas are not supported"))
            }
            _ => Err(SqlError::new(
                SqlState::INVALID_SCHEMA_NAME,
                format!("schema \"{name}\" does not exist"),
            )),
        },
        Target::Database(name) if name == "postgres" => whole(CommentClass::Database, DATABASE_OBJECT_OID),
        Target::Database(_) => Ok(None),
        Target::Role(name) => {
            let role = catalog.accounts().role_named(name);
            let role = role.ok_or_else(|| undefined("role", name))?;
            whole(CommentClass::Role, role.id.0)
        }
        Target::Extension(name) if name == "plpgsql" => whole(CommentClass::Extension, PLPGSQL_EXTENSION_OID),
        Target::Extension(name) => Err(undefined("extension", name)),
        Target::Type(text) => match named_type(text) {
            Ok(_) => Err(error::unsupported("comments on built-in types are not supported")),
            Err(error) => Err(error),
        },
        Target::Domain(text) => match named_type(text) {
            Ok(_) => Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("\"{text}\" is not a domain"),
            )),
            Err(error) => Err(error),
        },
    }
}

/// The relation that a name refers to, and its name without schema.
fn relation<'n>(catalog: &Catalog, parts: &'n [String]) -> Result<(Relation, &'n str), SqlError> {
    let (schema, name) = match parts {
        [name] => (None, name),
        [schema, name] | [_, schema, name] => (Some(schema.as_str()), name),
        _ => return Err(error::undefined_table(&parts.join("."))),
    };
    if matches!(schema, None | Some("public"))
        && let Some(relation) = catalog.relation(name)
    {
        return Ok((relation, name));
    }
    match schema {
        Some("public") => Err(error::undefined_table(&parts.join("."))),
        None | Some("pg_catalog" | "information_schema") => {
            match weft_pg_catalog::relation_columns(schema, name) {
                Some(_) => Err(error::unsupported(
                    "comments on system relations are not supported",
                )),
                None => Err(error::undefined_table(&parts.join("."))),
            }
        }
        Some(schema) => Err(SqlError::new(
            SqlState::INVALID_SCHEMA_NAME,
            format!("schema \"{schema}\" does not exist"),
        )),
    }
}

fn of_relation(catalog: &Catalog, kind: RelationKind, parts: &[String]) -> Result<Commented, SqlError> {
    let (relation, name) = relation(catalog, parts)?;
    let id = match (kind, relation) {
        (RelationKind::Table, Relation::Table(id)) => id.0,
        (RelationKind::Index, Relation::Index(id, _)) => id.0,
        (RelationKind::Sequence, Relation::Sequence(id)) => id.0,
        (RelationKind::View, Relation::View(id)) => id.0,
        _ => {
            let kind = match kind {
                RelationKind::Table => "a table",
                RelationKind::Index => "an index",
                RelationKind::Sequence => "a sequence",
                RelationKind::View => "a view",
                RelationKind::Other(kind) => kind,
            };
            return Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("\"{name}\" is not {kind}"),
            ));
        }
    };
    Ok(Commented::object(CommentClass::Relation, id))
}

fn of_column(catalog: &Catalog, parts: &[String]) -> Result<Commented, SqlError> {
    let Some((column, table @ [_, ..])) = parts.split_last() else {
        return Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            "column name must be qualified",
        ));
    };
    let (relation, name) = relation(catalog, table)?;
    let kind = match relation {
        Relation::Table(id) => return column_of(catalog, id, column),
        Relation::Index(..) => "indexes",
        Relation::Sequence(_) => "sequences",
        Relation::View(id) => return column_of_view(catalog, id, column),
    };
    Err(SqlError::new(
        SqlState::WRONG_OBJECT_TYPE,
        format!("cannot set comment on relation \"{name}\""),
    )
    .detail(format!("This operation is not supported for {kind}.")))
}

fn column_of(catalog: &Catalog, id: TableId, column: &str) -> Result<Commented, SqlError> {
    let table = catalog.table_by_id(id);
    let table = table.ok_or_else(|| SqlError::internal("a table without definition"))?;
    let position = table
        .column_index(column)
        .and_then(|position| u32::try_from(position).ok());
    match position {
        Some(position) => Ok(Commented::column(id, position)),
        None if weft_binder::SYSTEM_COLUMNS.contains(&column) => {
            Err(error::unsupported("comments on system columns are not supported"))
        }
        None => Err(error::undefined_column_of(column, &table.name)),
    }
}

fn column_of_view(catalog: &Catalog, id: ViewId, column: &str) -> Result<Commented, SqlError> {
    let view = catalog.view_by_id(id);
    let view = view.ok_or_else(|| SqlError::internal("a view without definition"))?;
    let position = view.columns.iter().position(|known| known.name == column);
    match position.and_then(|position| u32::try_from(position).ok()) {
        Some(position) => Ok(Commented::column(TableId(id.0), position)),
        None => Err(error::undefined_column_of(column, &view.name)),
    }
}

fn of_constraint(catalog: &Catalog, name: &str, parts: &[String]) -> Result<Commented, SqlError> {
    let (relation, shown) = relation(catalog, parts)?;
    let table = match relation {
        Relation::Table(id) => catalog.table_by_id(id),
        _ => None,
    };
    let found = table.and_then(|table| {
        let serves = |index: &&std::sync::Arc<IndexDef>| index.is_constraint() && index.name == name;
        let index = table.indexes.iter().find(serves).map(|index| index.id.0);
        index.or_else(|| table.constraint(name).map(|constraint| constraint.id.0))
    });
    match found {
        Some(id) => Ok(Commented::object(CommentClass::Constraint, id)),
        None => Err(SqlError::new(
            SqlState::UNDEFINED_OBJECT,
            format!("constraint \"{name}\" for table \"{shown}\" does not exist"),
        )),
    }
}

fn procedure<'c>(
    catalog: &'c Catalog,
    word: &str,
    parts: &[String],
    params: Option<&[ProcedureParam]>,
) -> Result<&'c ProcedureDef, SqlError> {
    let name = names::relation(parts)?;
    let word = word.to_ascii_lowercase();
    let undefined = |message: String| Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message));
    let known = catalog.procedure(name);
    match (known, params) {
        (Some(known), None) => Ok(known),
        (Some(known), Some(params)) if known.takes(params) => Ok(known),
        (_, Some(params)) => {
            let types: Vec<String> = params.iter().map(|param| param.ty.name()).collect();
            let (name, types) = (parts.join("."), types.join(", "));
            undefined(format!("{word} {name}({types}) does not exist"))
        }
        (None, None) => undefined(format!("could not find a {word} named \"{}\"", parts.join("."))),
    }
}

/// Refuses a role that may not comment on an object: only its owner may, and for roles who may change them.
///
/// # Errors
/// 42501.
pub(crate) fn check_owner(on: Commented, catalog: &Catalog, role: RoleId) -> Result<(), SqlError> {
    let denied = |message: &str| Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
    let id = on.object;
    let (owned, kind) = match on.class {
        CommentClass::Role => {
            let accounts = catalog.accounts();
            return match accounts.role(role).is_some_and(|acting| acting.create_role) {
                _ if accounts.is_superuser(RoleId(id)) => denied("must be superuser"),
                true => Ok(()),
                false => denied("must have CREATEROLE privilege"),
            };
        }
        CommentClass::Extension => return Err(not_owner("extension", "plpgsql")),
        CommentClass::Constraint => match catalog.table_of_constraint(id) {
            Some(table) => (table.0, Some("relation")),
            None => return Ok(()),
        },
        CommentClass::Relation if on.column > 0 => (id, Some("relation")),
        CommentClass::Relation => match catalog.index_by_id(weft_base::IndexId(id)) {
            Some(index) if !catalog.is_owner(role, index.table.0) => {
                return Err(not_owner("index", &index.name));
            }
            Some(_) => return Ok(()),
            None => (id, None),
        },
        CommentClass::Procedure | CommentClass::Schema | CommentClass::Database => (id, None),
    };
    let Some(object) = catalog.object_kind(owned) else {
        return Ok(());
    };
    match catalog.is_owner(role, owned) {
        true => Ok(()),
        false => Err(not_owner(
            kind.unwrap_or_else(|| object.noun()),
            catalog.object_name(owned).unwrap_or_default(),
        )),
    }
}
