//! Rows of `information_schema`, which shows a role what it owns or may use.

use weft_expression::Session;
use weft_store::{
    BOOTSTRAP_ROLE, Catalog, CheckTime, ColumnDef, ConstraintRule, ForeignKey, Privileges, RoleId, TableDef,
    ViewDef,
};
use weft_types::{SqlType, Value};

use crate::look_up::action_words;
use crate::{Row, SessionView, int4, text, views};

/// The rows of a table; none for tables that are always empty.
pub fn rows(name: &str, catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    let database = || text(session.database());
    let seen = Seen {
        catalog,
        role: SessionView::of(session).map_or(BOOTSTRAP_ROLE, |view| view.role),
    };
    match name {
        "schemata" => ["pg_catalog", "public", "information_schema"]
            .into_iter()
            .map(|schema| {
                vec![
                    ("catalog_name", database()),
                    ("schema_name", text(schema)),
                    ("schema_owner", text(session.user())),
                ]
            })
            .collect(),
        "tables" => {
            let tables = seen.tables(name).map(|table| (&table.name, true));
            let views = seen.views(name).map(|view| (&view.name, false));
            let row = |(name, is_table): (&String, bool)| table_row(name, is_table, database());
            tables.chain(views).map(row).collect()
        }
        "columns" => {
            let tables = seen.tables(name).map(|table| {
                let shows_defaults = seen.owns(table.id.0);
                (&table.name, &table.columns, (true, shows_defaults))
            });
            let views = seen
                .views(name)
                .map(|view| (&view.name, &view.columns, (false, false)));
            let rows = |(name, columns, (is_table, shows_defaults)): (&String, &Vec<ColumnDef>, _)| {
                let row = |(position, column)| {
                    let mut row = column_row((name, is_table), position, column, database());
                    row.retain(|(cell, _)| shows_defaults || *cell != "column_default");
                    row
                };
                columns.iter().enumerate().map(row).collect::<Vec<Row>>()
            };
            tables.chain(views).flat_map(rows).collect()
        }
        "views" => {
            let shown = seen.views("tables");
            shown
                .map(|view| view_row(view, seen.owns(view.id.0), database()))
                .collect()
        }
        "table_constraints" | "key_column_usage" | "constraint_column_usage" => {
            constraint_rows(name, &seen, &database())
        }
        "check_constraints" => {
            let all = seen.tables(name).flat_map(|table| &table.constraints);
            all.filter_map(|constraint| {
                let ConstraintRule::Check { sql } = &constraint.rule else {
                    return None;
                };
                Some(vec![
                    ("constraint_catalog", database()),
                    ("constraint_schema", text("public")),
                    ("constraint_name", text(&constraint.name)),
                    ("check_clause", text(format!("(({sql}))"))),
                ])
            })
            .collect()
        }
        "referential_constraints" => referential_rows(&seen, &database()),
        "sequences" => catalog
            .sequences()
            .filter(|sequence| seen.shows(name, sequence.id.0))
            .map(|sequence| {
                vec![
                    ("sequence_catalog", database()),
                    ("sequence_schema", text("public")),
                    ("sequence_name", text(&sequence.name)),
                    ("data_type", text(sequence.ty.name())),
                    ("numeric_precision", integer_bits(&sequence.ty)),
                    ("numeric_precision_radix", int4(2)),
                    ("numeric_scale", int4(0)),
                    ("start_value", text(sequence.start.to_string())),
                    ("minimum_value", text(sequence.min_value.to_string())),
                    ("maximum_value", text(sequence.max_value.to_string())),
                    ("increment", text(sequence.increment.to_string())),
                    ("cycle_option", text(if sequence.cycle { "YES" } else { "NO" })),
                ]
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// What a role sees.
struct Seen<'a> {
    catalog: &'a Catalog,
    role: RoleId,
}

impl<'a> Seen<'a> {
    fn owns(&self, object: u32) -> bool {
        self.catalog.is_owner(self.role, object)
    }

    /// Whether a relation shows an object: to its owner, and to whoever has certain privileges.
    fn shows(&self, relation: &str, object: u32) -> bool {
        use Privileges as P;
        let writes = P::INSERT.union(P::UPDATE).union(P::REFERENCES);
        let any = match relation {
            "tables" => P::ALL,
            "columns" | "key_column_usage" => writes.union(P::SELECT),
            "table_constraints" | "referential_constraints" => {
                writes.union(P::DELETE).union(P::TRUNCATE).union(P::TRIGGER)
            }
            "sequences" => P::SELECT.union(P::UPDATE).union(P::USAGE),
            _ => P::NONE,
        };
        self.owns(object) || self.catalog.privileges_of(self.role, object).intersects(any)
    }

    /// The tables that a relation shows.
    fn tables<'s>(&'s self, relation: &'s str) -> impl Iterator<Item = &'a TableDef> + use<'a, 's> {
        let tables = self.catalog.tables().map(AsRef::as_ref);
        tables.filter(move |table: &&TableDef| self.shows(relation, table.id.0))
    }

    /// The views that a relation shows.
    fn views<'s>(&'s self, relation: &'s str) -> impl Iterator<Item = &'a ViewDef> + use<'a, 's> {
        let views = self.catalog.views().map(AsRef::as_ref);
        views.filter(move |view: &&ViewDef| self.shows(relation, view.id.0))
    }
}

fn view_row(view: &ViewDef, shows_query: bool, database: Value) -> Row {
    vec![
        ("table_catalog", database),
        ("table_schema", text("public")),
        ("table_name", text(&view.name)),
        (
            "view_definition",
            match shows_query {
                true => text(views::definition(view)),
                false => Value::Null,
            },
        ),
        ("check_option", text("NONE")),
        ("is_updatable", yes_no(false)),
        ("is_insertable_into", yes_no(false)),
        ("is_trigger_updatable", yes_no(false)),
        ("is_trigger_deletable", yes_no(false)),
        ("is_trigger_insertable_into", yes_no(false)),
    ]
}

fn table_row(name: &str, is_table: bool, database: Value) -> Row {
    vec![
        ("table_catalog", database),
        ("table_schema", text("public")),
        ("table_name", text(name)),
        ("table_type", text(if is_table { "BASE TABLE" } else { "VIEW" })),
        ("is_insertable_into", yes_no(is_table)),
        ("is_typed", text("NO")),
    ]
}

fn yes_no(value: bool) -> Value {
    text(if value { "YES" } else { "NO" })
}

fn integer_bits(ty: &SqlType) -> Value {
    match ty {
        SqlType::Int2 => int4(16),
        SqlType::Int4 => int4(32),
        SqlType::Int8 => int4(64),
        _ => Value::Null,
    }
}

fn column_row(
    (relation, is_table): (&str, bool),
    position: usize,
    column: &ColumnDef,
    database: Value,
) -> Row {
    let mut row = vec![
        ("table_catalog", database.clone()),
        ("table_schema", text("public")),
        ("table_name", text(relation)),
        ("column_name", text(&column.name)),
        (
            "ordinal_position",
            int4(i32::try_from(position + 1).unwrap_or(i32::MAX)),
        ),
        ("is_nullable", yes_no(!column.not_null)),
        ("data_type", text(column.ty.without_typmod().name())),
        ("udt_catalog", database),
        ("udt_schema", text("pg_catalog")),
        ("udt_name", text(column.ty.catalog_name())),
        ("is_self_referencing", yes_no(false)),
        ("is_identity", yes_no(column.identity.is_some())),
        ("is_generated", text("NEVER")),
        ("is_updatable", yes_no(is_table)),
    ];
    if let Some(default) = &column.default {
        row.push(("column_default", text(&default.sql)));
    }
    if let Some(identity) = &column.identity {
        row.push((
            "identity_generation",
            text(if identity.always { "ALWAYS" } else { "BY DEFAULT" }),
        ));
    }
    match &column.ty {
        ty @ (SqlType::Int2 | SqlType::Int4 | SqlType::Int8) => {
            row.push(("numeric_precision", integer_bits(ty)));
            row.push(("numeric_precision_radix", int4(2)));
            row.push(("numeric_scale", int4(0)));
        }
        SqlType::Float4 | SqlType::Float8 => {
            row.push((
                "numeric_precision",
                int4(if column.ty == SqlType::Float4 { 24 } else { 53 }),
            ));
            row.push(("numeric_precision_radix", int4(2)));
        }
        SqlType::Numeric(spec) => {
            row.push(("numeric_precision_radix", int4(10)));
            if let Some(spec) = spec {
                row.push(("numeric_precision", int4(i32::from(spec.precision))));
                row.push(("numeric_scale", int4(i32::from(spec.scale))));
            }
        }
        SqlType::Text => row.push(("character_octet_length", int4(1 << 30))),
        SqlType::Varchar(Some(length)) => row.extend(length_cells(*length)),
        SqlType::Char(length) => row.extend(length_cells(*length)),
        SqlType::Date => row.push(("datetime_precision", int4(0))),
        SqlType::Timestamp | SqlType::TimestampTz => row.push(("datetime_precision", int4(6))),
        _ => {}
    }
    row
}

fn length_cells(length: u32) -> [(&'static str, Value); 2] {
    let characters = i32::try_from(length).unwrap_or(i32::MAX);
    [
        ("character_maximum_length", int4(characters)),
        ("character_octet_length", int4(characters.saturating_mul(4))),
    ]
}

fn ordinal(position: usize) -> Value {
    int4(i32::try_from(position + 1).unwrap_or(i32::MAX))
}

/// A foreign key in the relations that list constraints; `row` names it.
fn foreign_key_rows(
    name: &str,
    seen: &Seen<'_>,
    (table, key): (&TableDef, &ForeignKey),
    mut row: Row,
    rows: &mut Vec<Row>,
) {
    let Some(parent) = seen.catalog.table_by_id(key.parent) else {
        return;
    };
    // The columns that are referenced are their table's.
    let of = match name {
        "constraint_column_usage" => parent,
        _ => table,
    };
    if !seen.shows(name, of.id.0) {
        return;
    }
    match name {
        "table_constraints" => {
            row.push(("constraint_type", text("FOREIGN KEY")));
            row.push(("is_deferrable", yes_no(key.check_time.is_deferrable())));
            let deferred = key.check_time == CheckTime::DeferrableCommit;
            row.push(("initially_deferred", yes_no(deferred)));
            row.push(("enforced", yes_no(true)));
            rows.push(row);
        }
        "key_column_usage" => {
            let index = parent.index(key.index);
            for (position, (own, theirs)) in key.columns.iter().zip(&key.parent_columns).enumerate() {
                let mut row = row.clone();
                if let Some(column) = table.columns.get(*own) {
                    row.push(("column_name", text(&column.name)));
                }
                row.push(("ordinal_position", ordinal(position)));
                let place = index.and_then(|index| index.columns.iter().position(|column| column == theirs));
                row.push((
                    "position_in_unique_constraint",
                    place.map_or(Value::Null, ordinal),
                ));
                rows.push(row);
            }
        }
        // The columns that are referenced, with their table.
        _ => {
            for column in key
                .parent_columns
                .iter()
                .filter_map(|column| parent.columns.get(*column))
            {
                let mut row = row.clone();
                for (cell, value) in &mut row {
                    if *cell == "table_name" {
                        *value = text(&parent.name);
                    }
                }
                row.push(("column_name", text(&column.name)));
                rows.push(row);
            }
        }
    }
}

fn referential_rows(seen: &Seen<'_>, database: &Value) -> Vec<Row> {
    let catalog = seen.catalog;
    let keys = seen
        .tables("referential_constraints")
        .flat_map(|table| table.foreign_keys());
    keys.map(|(constraint, key)| {
        let parent = catalog.table_by_id(key.parent);
        let index = parent.and_then(|parent| parent.index(key.index));
        vec![
            ("constraint_catalog", database.clone()),
            ("constraint_schema", text("public")),
            ("constraint_name", text(&constraint.name)),
            ("unique_constraint_catalog", database.clone()),
            ("unique_constraint_schema", text("public")),
            (
                "unique_constraint_name",
                index.map_or(Value::Null, |index| text(&index.name)),
            ),
            ("match_option", text("NONE")),
            ("update_rule", text(action_words(key.on_update))),
            ("delete_rule", text(action_words(key.on_delete))),
        ]
    })
    .collect()
}

fn constraint_rows(name: &str, seen: &Seen<'_>, database: &Value) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in seen.catalog.tables() {
        let named = |constraint: &str| -> Row {
            vec![
                ("constraint_catalog", database.clone()),
                ("constraint_schema", text("public")),
                ("constraint_name", text(constraint)),
                ("table_catalog", database.clone()),
                ("table_schema", text("public")),
                ("table_name", text(&table.name)),
            ]
        };
        for (constraint, key) in table.foreign_keys() {
            foreign_key_rows(name, seen, (table, key), named(&constraint.name), &mut rows);
        }
        if !seen.shows(name, table.id.0) {
            continue;
        }
        for check in table.checks() {
            let mut row = named(&check.constraint.name);
            match name {
                "table_constraints" => {
                    row.push(("constraint_type", text("CHECK")));
                    row.push(("is_deferrable", yes_no(false)));
                    row.push(("initially_deferred", yes_no(false)));
                    row.push(("enforced", yes_no(true)));
                    rows.push(row);
                }
                "constraint_column_usage" => {
                    let columns = check
                        .columns
                        .iter()
                        .filter_map(|column| table.columns.get(*column));
                    rows.extend(columns.map(|column| {
                        let mut row = row.clone();
                        row.push(("column_name", text(&column.name)));
                        row
                    }));
                }
                _ => {}
            }
        }
        for index in table.indexes.iter().filter(|index| index.is_constraint()) {
            let mut row = named(&index.name);
            if name == "table_constraints" {
                row.push((
                    "constraint_type",
                    text(if index.primary { "PRIMARY KEY" } else { "UNIQUE" }),
                ));
                row.push(("is_deferrable", yes_no(false)));
                row.push(("initially_deferred", yes_no(false)));
                row.push(("enforced", yes_no(true)));
                rows.push(row);
                continue;
            }
            for (position, column) in index.columns.iter().enumerate() {
                let Some(column) = table.columns.get(*column) else {
                    continue;
                };
                let mut row = row.clone();
                row.push(("column_name", text(&column.name)));
                row.push((
                    "ordinal_position",
                    int4(i32::try_from(position + 1).unwrap_or(i32::MAX)),
                ));
                rows.push(row);
            }
        }
    }
    rows
}
