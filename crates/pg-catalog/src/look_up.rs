//! Looking up definitions by oid and by name, and formatting them as SQL.

use weft_base::{IndexId, TableId};
use weft_expression::Session;
use weft_store::{
    Catalog, CheckTime, ConstraintDef, ConstraintRule, ForeignKey, IndexDef, IndexMethod, ReferentialAction,
    Relation, SequenceId, TableDef, ViewId,
};

use crate::visible::shown_name;

/// Offset of the oids of constraints from their index's.
const CONSTRAINT_BASE: u32 = 0x4000_0000;
/// Base of the oids of column defaults, which encode table and column.
const DEFAULT_BASE: u32 = 0x8000_0000;

/// The oid of the constraint that an index enforces.
pub fn constraint_oid(index: IndexId) -> u32 {
    CONSTRAINT_BASE.wrapping_add(index.0)
}

/// The oid of a column's default (0-based column).
pub fn default_oid(table: TableId, column: usize) -> u32 {
    DEFAULT_BASE
        .wrapping_add(table.0.wrapping_mul(1600))
        .wrapping_add(column as u32)
}

/// The relation with an oid of pg_class.
pub fn relation_by_oid(catalog: &Catalog, oid: u32) -> Option<Relation> {
    if let Some(table) = catalog.table_by_id(TableId(oid)) {
        return Some(Relation::Table(table.id));
    }
    if let Some(index) = catalog.index_by_id(IndexId(oid)) {
        return Some(Relation::Index(index.id, index.table));
    }
    if let Some(view) = catalog.view_by_id(ViewId(oid)) {
        return Some(Relation::View(view.id));
    }
    catalog
        .sequence_by_id(SequenceId(oid))
        .map(|sequence| Relation::Sequence(sequence.id))
}

/// The name of the relation with an oid of pg_class.
pub fn relation_name(catalog: &Catalog, oid: u32) -> Option<String> {
    Some(match relation_by_oid(catalog, oid)? {
        Relation::Table(id) => catalog.table_by_id(id)?.name.clone(),
        Relation::Index(id, _) => catalog.index_by_id(id)?.name.clone(),
        Relation::Sequence(id) => catalog.sequence_by_id(id)?.name.clone(),
        Relation::View(id) => catalog.view_by_id(id)?.name.clone(),
    })
}

/// `'name'::regclass`, with support for quoted and schema-qualified names.
pub fn relation_oid(catalog: &Catalog, name: &str) -> Option<u32> {
    let trimmed = name.trim();
    if let Ok(oid) = trimmed.parse() {
        return Some(oid);
    }
    let plain = trimmed
        .strip_prefix("public.")
        .or_else(|| trimmed.strip_prefix("\"public\"."))
        .unwrap_or(trimmed);
    let folded = match plain.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => plain.to_ascii_lowercase(),
    };
    match catalog.relation(&folded)? {
        Relation::Table(id) => Some(id.0),
        Relation::Index(id, _) => Some(id.0),
        Relation::Sequence(id) => Some(id.0),
        Relation::View(id) => Some(id.0),
    }
}

/// The index that enforces a constraint.
pub fn constraint_index(catalog: &Catalog, oid: u32) -> Option<(&TableDef, &IndexDef)> {
    let index = catalog.index_by_id(IndexId(oid.checked_sub(CONSTRAINT_BASE)?))?;
    let table = catalog.table_by_id(index.table)?;
    Some((table, index))
}

/// A name in SQL, quoted if necessary.
pub fn quote_ident(name: &str) -> String {
    let mut characters = name.chars();
    let plain = characters
        .next()
        .is_some_and(|c| c.is_ascii_lowercase() || c == '_')
        && characters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !RESERVED.contains(&name)
        && !KEYWORDS_OF_PLACES
            .split_whitespace()
            .any(|keyword| keyword == name);
    if plain {
        name.to_string()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// PostgreSQL's keywords that are names in some places only: column names, or type and function
/// names.
const KEYWORDS_OF_PLACES: &str = "between bigint bit boolean char character coalesce dec decimal exists extract \
    float greatest grouping inout int integer interval least national nchar none normalize nullif numeric out \
    overlay position precision real row setof smallint substring time timestamp treat trim values varchar \
    xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize \
    xmltable authorization binary collation concurrently cross current_schema freeze full ilike inner is isnull \
    join left like natural notnull outer overlaps right similar tablesample verbose";

/// PostgreSQL's reserved keywords.
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "current_catalog",
    "current_date",
    "current_role",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "grant",
    "group",
    "having",
    "in",
    "initially",
    "intersect",
    "into",
    "lateral",
    "leading",
    "limit",
    "localtime",
    "localtimestamp",
    "not",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "placing",
    "primary",
    "references",
    "returning",
    "select",
    "session_user",
    "some",
    "symmetric",
    "table",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "when",
    "where",
    "window",
    "with",
];

/// The columns of an index, comma separated.
pub fn index_columns(table: &TableDef, index: &IndexDef) -> String {
    let names: Vec<String> = index
        .columns
        .iter()
        .filter_map(|column| table.columns.get(*column))
        .map(|column| quote_ident(&column.name))
        .collect();
    names.join(", ")
}

/// Name of an index's access method.
pub fn method_name(index: &IndexDef) -> &'static str {
    if index.method == IndexMethod::Hash {
        "hash"
    } else {
        "btree"
    }
}

/// `pg_get_indexdef`.
pub fn index_definition(table: &TableDef, index: &IndexDef, qualified: bool) -> String {
    format!(
        "CREATE {}INDEX {} ON {}{} USING {} ({})",
        if index.unique { "UNIQUE " } else { "" },
        quote_ident(&index.name),
        if qualified { "public." } else { "" },
        quote_ident(&table.name),
        method_name(index),
        index_columns(table, index)
    )
}

/// `pg_get_constraintdef`.
pub fn constraint_definition(table: &TableDef, index: &IndexDef) -> String {
    let kind = if index.primary { "PRIMARY KEY" } else { "UNIQUE" };
    format!("{kind} ({})", index_columns(table, index))
}

/// `pg_get_constraintdef` of a constraint that is not an index.
pub fn rule_definition(session: &dyn Session, catalog: &Catalog, constraint: &ConstraintDef) -> String {
    let rule = match &constraint.rule {
        ConstraintRule::ForeignKey(key) => foreign_key_definition(session, catalog, constraint, key),
        ConstraintRule::Check { sql } => format!("CHECK (({sql}))"),
    };
    match constraint.is_valid {
        true => rule,
        false => format!("{rule} NOT VALID"),
    }
}

fn foreign_key_definition(
    session: &dyn Session,
    catalog: &Catalog,
    constraint: &ConstraintDef,
    key: &ForeignKey,
) -> String {
    let columns = |table: Option<&std::sync::Arc<TableDef>>, columns: &[usize]| {
        let defs = columns.iter().filter_map(|column| table?.columns.get(*column));
        let names: Vec<String> = defs.map(|column| quote_ident(&column.name)).collect();
        names.join(", ")
    };
    let (table, parent) = (
        catalog.table_by_id(constraint.table),
        catalog.table_by_id(key.parent),
    );
    let mut text = format!(
        "FOREIGN KEY ({}) REFERENCES {}({})",
        columns(table, &key.columns),
        parent.map_or_else(String::new, |parent| shown_name(session, &parent.name)),
        columns(parent, &key.parent_columns)
    );
    for (when, action) in [("UPDATE", key.on_update), ("DELETE", key.on_delete)] {
        if action != ReferentialAction::NoAction {
            text.push_str(&format!(" ON {when} {}", action_words(action)));
        }
    }
    if key.check_time.is_deferrable() {
        text.push_str(" DEFERRABLE");
    }
    if key.check_time == CheckTime::DeferrableCommit {
        text.push_str(" INITIALLY DEFERRED");
    }
    text
}

/// What a foreign key does, in SQL.
pub fn action_words(action: ReferentialAction) -> &'static str {
    match action {
        ReferentialAction::NoAction => "NO ACTION",
        ReferentialAction::Restrict => "RESTRICT",
        ReferentialAction::Cascade => "CASCADE",
        ReferentialAction::SetNull => "SET NULL",
    }
}

/// A constraint that is not an index, by its oid.
pub fn constraint_by_oid(catalog: &Catalog, oid: u32) -> Option<&ConstraintDef> {
    let mut all = catalog.tables().flat_map(|table| &table.constraints);
    all.find(|constraint| constraint.id.0 == oid)
        .map(|found| found.as_ref())
}
