//! Comments as clients read them: `pg_description`, `pg_shdescription`, and the functions over them.
//!
//! Built-in functions, types and operators have no comments here.

use weft_base::IndexId;
use weft_expression::{Arg, Context, Entry};
use weft_store::{Catalog, CommentClass, Commented, PLPGSQL_EXTENSION_OID};
use weft_types::{SqlType, Value, ValueRef};

use crate::functions::{Answer, Arguments, oid_at, strict, text_at};
use crate::look_up::{constraint_index, constraint_oid};
use crate::{PG_CATALOG_OID, ROLE_OID, Row, SessionView, flag, int4, oid, text};

const OID: Arg = Arg::Is(SqlType::Oid);
const NAME: Arg = Arg::Is(SqlType::Name);
const INT4: Arg = Arg::Is(SqlType::Int4);

/// The functions.
pub(crate) static ENTRIES: &[Entry] = &[
    strict(
        "obj_description",
        &[OID, NAME],
        SqlType::Text,
        |context, arguments| of_object(context, arguments, false),
    ),
    strict("obj_description", &[OID], SqlType::Text, |context, arguments| {
        let (catalog, id) = (SessionView::catalog_of(context)?, oid_at(arguments, 0));
        let known = |on: &Commented| on.column == 0 && !is_shared(on.class) && shown_oid(catalog, *on) == id;
        let found = catalog.comments().find(|(on, _)| known(on));
        Ok(found.map_or(Value::Null, |(_, comment)| text(comment)))
    }),
    strict(
        "shobj_description",
        &[OID, NAME],
        SqlType::Text,
        |context, arguments| of_object(context, arguments, true),
    ),
    strict(
        "col_description",
        &[OID, INT4],
        SqlType::Text,
        |context, arguments| {
            let column = match arguments.get(1) {
                Some(ValueRef::Int4(column)) => u32::try_from(*column).ok(),
                _ => None,
            };
            let comment = column.and_then(|column| {
                let on = Commented {
                    class: CommentClass::Relation,
                    object: oid_at(arguments, 0),
                    column,
                };
                SessionView::catalog_of(context).ok()?.comment(on)
            });
            Ok(comment.map_or(Value::Null, text))
        },
    ),
];

/// The system relation that lists objects of a class, and its oid.
fn relation_of(class: CommentClass) -> (&'static str, u32) {
    match class {
        CommentClass::Relation => ("pg_class", 1259),
        CommentClass::Constraint => ("pg_constraint", 2606),
        CommentClass::Procedure => ("pg_proc", 1255),
        CommentClass::Schema => ("pg_namespace", 2615),
        CommentClass::Database => ("pg_database", 1262),
        CommentClass::Role => ("pg_authid", 1260),
        CommentClass::Extension => ("pg_extension", 3079),
    }
}

/// Whether the comment belongs to all databases.
fn is_shared(class: CommentClass) -> bool {
    matches!(class, CommentClass::Database | CommentClass::Role)
}

/// The oid that the object has in its system relation.
fn shown_oid(catalog: &Catalog, on: Commented) -> u32 {
    match catalog.index_by_id(IndexId(on.object)) {
        Some(index) if on.class == CommentClass::Constraint => constraint_oid(index.id),
        _ => on.object,
    }
}

/// The comment on an object given by its oid and the name of a system relation.
fn of_object(context: &Context<'_>, arguments: Arguments<'_, '_>, shared: bool) -> Answer {
    let (catalog, relation) = (SessionView::catalog_of(context)?, text_at(arguments, 1));
    const CLASSES: [CommentClass; 7] = [
        CommentClass::Relation,
        CommentClass::Constraint,
        CommentClass::Procedure,
        CommentClass::Schema,
        CommentClass::Database,
        CommentClass::Role,
        CommentClass::Extension,
    ];
    let mut classes = CLASSES.into_iter();
    let class = classes.find(|class| relation_of(*class).0 == relation && is_shared(*class) == shared);
    let comment = class.and_then(|class| {
        let id = oid_at(arguments, 0);
        let id = match class {
            CommentClass::Constraint => constraint_index(catalog, id).map_or(id, |(_, index)| index.id.0),
            _ => id,
        };
        catalog.comment(Commented::object(class, id))
    });
    Ok(comment.map_or(Value::Null, text))
}

/// The rows of `pg_description`, or of `pg_shdescription`.
pub(crate) fn rows(catalog: &Catalog, shared: bool) -> Vec<Row> {
    let comments = catalog.comments().filter(|(on, _)| is_shared(on.class) == shared);
    comments
        .map(|(on, comment)| {
            vec![
                ("objoid", oid(shown_oid(catalog, on))),
                ("classoid", oid(relation_of(on.class).1)),
                ("objsubid", int4(i32::try_from(on.column).unwrap_or(i32::MAX))),
                ("description", text(comment)),
            ]
        })
        .collect()
}

/// `pg_extension`: the language of procedures is the only one.
pub(crate) fn extensions() -> Vec<Row> {
    vec![vec![
        ("oid", oid(PLPGSQL_EXTENSION_OID)),
        ("extname", text("plpgsql")),
        ("extowner", oid(ROLE_OID)),
        ("extnamespace", oid(PG_CATALOG_OID)),
        ("extrelocatable", flag(false)),
        ("extversion", text("1.0")),
    ]]
}
