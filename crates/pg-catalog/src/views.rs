//! Views in `pg_catalog`, and the text of a view's query.

use weft_expression::Session;
use weft_store::{Catalog, ViewDef, ViewId};
use weft_types::Value;

use crate::{Row, accounts, flag, int4, oid, text};

/// Offset of the oids of rules from their view's.
const RULE_BASE: u32 = 0x6000_0000;
/// pg_class and pg_rewrite, as classes of objects.
const CLASS_OF_CLASSES: u32 = 1259;
const CLASS_OF_RULES: u32 = 2618;

/// `pg_get_viewdef`: the query as it was written, every `*` written out, with PostgreSQL's space before and
/// semicolon behind.
pub(crate) fn definition(view: &ViewDef) -> String {
    format!(" {};", view.query)
}

/// The text of a view's query by the view's oid.
pub(crate) fn definition_by_oid(catalog: &Catalog, oid: u32) -> Value {
    let view = catalog.view_by_id(ViewId(oid));
    view.map_or(Value::Null, |view| text(definition(view)))
}

/// Rows of `pg_views`.
pub(crate) fn rows(catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    let row = |view: &ViewDef| {
        vec![
            ("schemaname", text("public")),
            ("viewname", text(&view.name)),
            ("viewowner", accounts::owner_name(catalog, session, view.id.0)),
            ("definition", text(definition(view))),
        ]
    };
    catalog.views().map(|view| row(view)).collect()
}

/// Rows of `pg_rewrite`: the rule by which a view is its query.
pub(crate) fn rules(catalog: &Catalog) -> Vec<Row> {
    let row = |view: &ViewDef| {
        vec![
            ("oid", oid(rule_oid(view))),
            ("rulename", text("_RETURN")),
            ("ev_class", oid(view.id.0)),
            ("ev_type", text("1")),
            ("ev_enabled", text("O")),
            ("is_instead", flag(true)),
            ("ev_qual", text("<>")),
            ("ev_action", text("<>")),
        ]
    };
    catalog.views().map(|view| row(view)).collect()
}

fn rule_oid(view: &ViewDef) -> u32 {
    RULE_BASE.wrapping_add(view.id.0)
}

/// Rows of `pg_depend`: a rule is part of its view, and needs the columns that the query uses.
pub(crate) fn dependencies(catalog: &Catalog) -> Vec<Row> {
    let mut rows = Vec::new();
    for view in catalog.views() {
        let mut depend = |relation: u32, column: i32, kind: &str| {
            rows.push(vec![
                ("classid", oid(CLASS_OF_RULES)),
                ("objid", oid(rule_oid(view))),
                ("objsubid", int4(0)),
                ("refclassid", oid(CLASS_OF_CLASSES)),
                ("refobjid", oid(relation)),
                ("refobjsubid", int4(column)),
                ("deptype", text(kind)),
            ]);
        };
        depend(view.id.0, 0, "i");
        for source in &view.sources {
            depend(source.relation, 0, "n");
        }
    }
    rows
}
