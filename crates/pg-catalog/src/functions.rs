//! System catalog functions that clients call, as entries of the table of functions.
//!
//! Those that need the catalog access it through [`SessionView`]. The conversions between names and oids
//! (`regclassin`, `regclassout` and the like) are entries too, so that a cast is a call.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use weft_base::{IndexId, TableId};
use weft_expression::{Arg, Context, Entry, Kernel, Kind, Returns, Volatility};
use weft_store::{Catalog, ProcedureDef};
use weft_types::sql_type::Element;
use weft_types::{SqlError, SqlState, SqlType, Value, ValueRef};

use crate::look_up::{
    constraint_by_oid, constraint_definition, constraint_index, index_definition, quote_ident, relation_name,
    relation_oid, rule_definition,
};
use crate::system::{SYSTEM_RELATIONS, system_oid, system_relation};
use crate::visible::{is_public_searched, name_in, shown_expression, shown_name};
use crate::{
    INFORMATION_SCHEMA_OID, PG_CATALOG_OID, PUBLIC_OID, ROLE_OID, SessionView, accounts, comments, flag,
    int4, int8, list, oid, privileges, procedures, sequences, text, types, views,
};

pub(crate) type Answer = Result<Value, SqlError>;
pub(crate) type Arguments<'a, 'b> = &'a [ValueRef<'b>];
pub(crate) type Compute = fn(&Context<'_>, &[ValueRef<'_>]) -> Answer;

const BOOL: Arg = Arg::Is(SqlType::Bool);
const INT4: Arg = Arg::Is(SqlType::Int4);
const INT8: Arg = Arg::Is(SqlType::Int8);
const NAME: Arg = Arg::Is(SqlType::Name);
const NUMERIC: Arg = Arg::Is(SqlType::Numeric(None));
const OID: Arg = Arg::Is(SqlType::Oid);
const REGCLASS: Arg = Arg::Is(SqlType::Regclass);
const REGPROC: Arg = Arg::Is(SqlType::Regproc);
const REGNAMESPACE: Arg = Arg::Is(SqlType::Regnamespace);
const REGTYPE: Arg = Arg::Is(SqlType::Regtype);
const TEXT: Arg = Arg::Is(SqlType::Text);

/// The entries with a name, lower case; several if it is overloaded.
#[must_use]
pub fn functions(name: &str) -> &'static [&'static Entry] {
    BY_NAME.get(name).map_or(&[], Vec::as_slice)
}

static BY_NAME: LazyLock<HashMap<&'static str, Vec<&'static Entry>>> = LazyLock::new(|| {
    let mut by_name: HashMap<_, Vec<&'static Entry>> = HashMap::new();
    for entry in [
        NAMES,
        DEFINITIONS,
        VISIBLE,
        SIZES,
        SYSTEM,
        privileges::ENTRIES,
        privileges::MEMBERSHIP,
        privileges::DEFAULTS,
        sequences::ENTRIES,
        comments::ENTRIES,
    ]
    .into_iter()
    .flatten()
    {
        by_name.entry(entry.name).or_default().push(entry);
    }
    by_name
});

/// A strict function: NULL if an argument is NULL.
pub(crate) const fn strict(
    name: &'static str,
    arguments: &'static [Arg],
    returns: SqlType,
    compute: Compute,
) -> Entry {
    Entry {
        name,
        kind: Kind::Function,
        arguments,
        variadic: false,
        returns: Returns::Is(returns),
        volatility: Volatility::Stable,
        strict: true,
        fallible: true,
        kernel: Kernel::Values(compute),
    }
}

/// A function that is called with NULLs too.
const fn lenient(name: &'static str, arguments: &'static [Arg], returns: SqlType, compute: Compute) -> Entry {
    Entry {
        strict: false,
        ..strict(name, arguments, returns, compute)
    }
}

fn null(_: &Context<'_>, _: Arguments<'_, '_>) -> Answer {
    Ok(Value::Null)
}

fn yes(_: &Context<'_>, _: Arguments<'_, '_>) -> Answer {
    Ok(flag(true))
}

fn no(_: &Context<'_>, _: Arguments<'_, '_>) -> Answer {
    Ok(flag(false))
}

fn zero(_: &Context<'_>, _: Arguments<'_, '_>) -> Answer {
    Ok(int8(0))
}

/// Conversions between names and oids.
static NAMES: &[Entry] = &[
    strict("regclassin", &[TEXT], SqlType::Regclass, |context, arguments| {
        let name = text_at(arguments, 0);
        relation_or_system(SessionView::catalog_of(context)?, name)
            .map(oid)
            .ok_or_else(|| undefined_table(name))
    }),
    strict("to_regclass", &[TEXT], SqlType::Regclass, |context, arguments| {
        let found = relation_or_system(SessionView::catalog_of(context)?, text_at(arguments, 0));
        Ok(found.map_or(Value::Null, oid))
    }),
    strict("regclassout", &[REGCLASS], SqlType::Text, |context, arguments| {
        let id = oid_at(arguments, 0);
        Ok(text(match relation_name(SessionView::catalog_of(context)?, id) {
            Some(name) => shown_name(context.session, &name),
            None if id == 0 => "-".to_owned(),
            None => system_relation(id).map_or_else(|| id.to_string(), str::to_owned),
        }))
    }),
    strict("regtypein", &[TEXT], SqlType::Regtype, |_, arguments| {
        let name = text_at(arguments, 0);
        type_of(name).map(oid).ok_or_else(|| {
            SqlError::new(
                SqlState::UNDEFINED_OBJECT,
                format!("type \"{name}\" does not exist"),
            )
        })
    }),
    strict("to_regtype", &[TEXT], SqlType::Regtype, |_, arguments| {
        Ok(type_of(text_at(arguments, 0)).map_or(Value::Null, oid))
    }),
    strict("regtypeout", &[REGTYPE], SqlType::Text, |_, arguments| {
        let id = oid_at(arguments, 0);
        let known = types::all().iter().find(|row| row.oid == id);
        Ok(text(match known {
            Some(row) => row.shown().to_owned(),
            None if id == 0 => "-".to_owned(),
            None => id.to_string(),
        }))
    }),
    strict("regprocin", &[TEXT], SqlType::Regproc, |context, arguments| {
        let name = text_at(arguments, 0);
        if let Ok(id) = name.trim().parse() {
            return Ok(oid(id));
        }
        let catalog = SessionView::catalog_of(context)?;
        if let Some((id, _)) = HANDLERS.iter().find(|(_, known)| *known == name) {
            return Ok(oid(*id));
        }
        let found = catalog.procedures().find(|procedure| procedure.name == name);
        found.map(|procedure| oid(procedure.id.0)).ok_or_else(|| {
            SqlError::new(
                SqlState::UNDEFINED_FUNCTION,
                format!("function \"{name}\" does not exist"),
            )
        })
    }),
    strict("regprocout", &[REGPROC], SqlType::Text, |context, arguments| {
        let id = oid_at(arguments, 0);
        Ok(text(
            match procedures::by_oid(SessionView::catalog_of(context)?, id) {
                Some(procedure) => shown_name(context.session, &procedure.name),
                None if id == 0 => "-".to_owned(),
                None => match HANDLERS.iter().find(|(known, _)| *known == id) {
                    Some((_, name)) => (*name).to_owned(),
                    None => id.to_string(),
                },
            },
        ))
    }),
    strict(
        "regnamespacein",
        &[TEXT],
        SqlType::Regnamespace,
        |_, arguments| {
            let name = text_at(arguments, 0);
            if let Some((found, _)) = SCHEMAS.iter().find(|(_, known)| *known == name) {
                return Ok(oid(*found));
            }
            name.parse().map(oid).map_err(|_| {
                SqlError::new(
                    SqlState::INVALID_SCHEMA_NAME,
                    format!("schema \"{name}\" does not exist"),
                )
            })
        },
    ),
    strict("regrolein", &[TEXT], SqlType::Oid, |context, arguments| {
        let name = text_at(arguments, 0);
        let accounts = SessionView::catalog_of(context)?.accounts();
        if let Some(role) = accounts.role_named(name) {
            return Ok(oid(role.id.0));
        }
        if accounts.is_empty() && context.session.user() == name {
            return Ok(oid(ROLE_OID));
        }
        name.parse().map(oid).map_err(|_| {
            SqlError::new(
                SqlState::UNDEFINED_OBJECT,
                format!("role \"{name}\" does not exist"),
            )
        })
    }),
    strict(
        "regnamespaceout",
        &[REGNAMESPACE],
        SqlType::Text,
        |_, arguments| {
            let id = oid_at(arguments, 0);
            let known = SCHEMAS.iter().find(|(known, _)| *known == id);
            Ok(text(match known {
                Some((_, name)) => (*name).to_owned(),
                None if id == 0 => "-".to_owned(),
                None => id.to_string(),
            }))
        },
    ),
];

/// Definitions as SQL.
static DEFINITIONS: &[Entry] = &[
    lenient("format_type", &[OID, INT4], SqlType::Text, |_, arguments| {
        if is_null(arguments, 0) {
            return Ok(Value::Null);
        }
        let typmod = match arguments.get(1) {
            Some(ValueRef::Int4(typmod)) => Some(*typmod),
            _ => None,
        };
        Ok(text(types::format_type(oid_at(arguments, 0), typmod)))
    }),
    strict("pg_get_expr", &[TEXT, OID], SqlType::Text, expression),
    strict("pg_get_expr", &[TEXT, OID, BOOL], SqlType::Text, expression),
    strict("pg_get_indexdef", &[OID], SqlType::Text, index_text),
    strict("pg_get_indexdef", &[OID, INT4, BOOL], SqlType::Text, index_text),
    strict("pg_get_constraintdef", &[OID], SqlType::Text, constraint_text),
    strict(
        "pg_get_constraintdef",
        &[OID, BOOL],
        SqlType::Text,
        constraint_text,
    ),
    strict(
        "pg_get_serial_sequence",
        &[TEXT, TEXT],
        SqlType::Text,
        serial_sequence,
    ),
    strict(
        "pg_get_functiondef",
        &[OID],
        SqlType::Text,
        |context, arguments| of_procedure(context, arguments, procedures::definition),
    ),
    strict(
        "pg_get_function_arguments",
        &[OID],
        SqlType::Text,
        |context, arguments| of_procedure(context, arguments, procedures::arguments),
    ),
    strict(
        "pg_get_function_identity_arguments",
        &[OID],
        SqlType::Text,
        |context, arguments| of_procedure(context, arguments, procedures::arguments),
    ),
    // Procedures have no result.
    strict("pg_get_function_result", &[OID], SqlType::Text, null),
    strict("pg_get_function_sqlbody", &[OID], SqlType::Text, null),
    strict("pg_get_viewdef", &[OID], SqlType::Text, view_text),
    strict("pg_get_viewdef", &[OID, BOOL], SqlType::Text, view_text),
    strict("pg_get_viewdef", &[OID, INT4], SqlType::Text, view_text),
    strict("pg_get_viewdef", &[TEXT], SqlType::Text, named_view_text),
    strict("pg_get_viewdef", &[TEXT, BOOL], SqlType::Text, named_view_text),
    strict("pg_get_ruledef", &[OID], SqlType::Text, null),
    strict("pg_get_ruledef", &[OID, BOOL], SqlType::Text, null),
    strict("pg_get_triggerdef", &[OID], SqlType::Text, null),
    strict("pg_get_triggerdef", &[OID, BOOL], SqlType::Text, null),
    strict("pg_get_partkeydef", &[OID], SqlType::Text, null),
    strict("pg_get_partition_constraintdef", &[OID], SqlType::Text, null),
    strict("pg_get_statisticsobjdef_columns", &[OID], SqlType::Text, null),
];

/// Visibility: whether an object is found without its schema's name.
static VISIBLE: &[Entry] = &[
    strict(
        "pg_table_is_visible",
        &[OID],
        SqlType::Bool,
        |context, arguments| {
            let id = oid_at(arguments, 0);
            if system_relation(id).is_some() {
                return Ok(flag(true));
            }
            let known = relation_name(SessionView::catalog_of(context)?, id).is_some();
            Ok(match known {
                true => flag(is_public_searched(context.session)),
                false => Value::Null,
            })
        },
    ),
    strict(
        "pg_relation_is_publishable",
        &[REGCLASS],
        SqlType::Bool,
        |context, arguments| {
            let table = SessionView::catalog_of(context)?.table_by_id(TableId(oid_at(arguments, 0)));
            Ok(flag(table.is_some()))
        },
    ),
    strict("pg_type_is_visible", &[OID], SqlType::Bool, yes),
    strict("pg_function_is_visible", &[OID], SqlType::Bool, yes),
    strict("pg_operator_is_visible", &[OID], SqlType::Bool, yes),
    strict("pg_opclass_is_visible", &[OID], SqlType::Bool, yes),
    strict("pg_opfamily_is_visible", &[OID], SqlType::Bool, yes),
    strict("pg_collation_is_visible", &[OID], SqlType::Bool, yes),
    strict("pg_conversion_is_visible", &[OID], SqlType::Bool, yes),
    strict("pg_statistics_obj_is_visible", &[OID], SqlType::Bool, yes),
    strict("pg_ts_config_is_visible", &[OID], SqlType::Bool, yes),
    strict("pg_ts_dict_is_visible", &[OID], SqlType::Bool, yes),
    strict("pg_is_other_temp_schema", &[OID], SqlType::Bool, no),
    lenient("pg_my_temp_schema", &[], SqlType::Oid, |_, _| Ok(oid(0))),
];

/// Sizes: data in memory occupies nothing on disk.
static SIZES: &[Entry] = &[
    strict("pg_relation_size", &[REGCLASS], SqlType::Int8, zero),
    strict("pg_relation_size", &[REGCLASS, TEXT], SqlType::Int8, zero),
    strict("pg_table_size", &[REGCLASS], SqlType::Int8, zero),
    strict("pg_total_relation_size", &[REGCLASS], SqlType::Int8, zero),
    strict("pg_indexes_size", &[REGCLASS], SqlType::Int8, zero),
    strict("pg_database_size", &[NAME], SqlType::Int8, zero),
    strict("pg_database_size", &[OID], SqlType::Int8, zero),
    strict("pg_tablespace_size", &[NAME], SqlType::Int8, zero),
    strict("pg_tablespace_size", &[OID], SqlType::Int8, zero),
    strict("pg_tablespace_location", &[OID], SqlType::Text, |_, _| {
        Ok(text(""))
    }),
    strict("pg_size_pretty", &[INT8], SqlType::Text, |_, arguments| {
        Ok(text(match arguments.first() {
            Some(ValueRef::Int8(bytes)) => pretty_size(*bytes),
            _ => String::new(),
        }))
    }),
    strict("pg_size_pretty", &[NUMERIC], SqlType::Text, |_, _| {
        Err(SqlError::unsupported(
            "pg_size_pretty of numeric is not supported",
        ))
    }),
];

/// The server, the database and its users.
static SYSTEM: &[Entry] = &[
    lenient("version", &[], SqlType::Text, |_, _| {
        Ok(text(concat!(
            "PostgreSQL 15.0 (Weft ",
            env!("CARGO_PKG_VERSION"),
            ")"
        )))
    }),
    lenient("current_schema", &[], SqlType::Name, |context, _| {
        Ok(match is_public_searched(context.session) {
            true => text("public"),
            false => Value::Null,
        })
    }),
    strict(
        "current_schemas",
        &[BOOL],
        SqlType::Array(Element::Name),
        |context, arguments| {
            let mut names = Vec::new();
            if is_public_searched(context.session) {
                names.push(text("public"));
            }
            if let Some(ValueRef::Bool(true)) = arguments.first() {
                names.insert(0, text("pg_catalog"));
            }
            Ok(list(Element::Name, names))
        },
    ),
    strict("pg_get_userbyid", &[OID], SqlType::Name, |context, arguments| {
        let id = oid_at(arguments, 0);
        let name = accounts::name_by_oid(SessionView::catalog_of(context)?, context.session, id);
        Ok(text(name.unwrap_or_else(|| format!("unknown (OID={id})"))))
    }),
    strict("pg_encoding_to_char", &[INT4], SqlType::Name, |_, arguments| {
        let utf8 = matches!(arguments.first(), Some(ValueRef::Int4(6)));
        Ok(text(if utf8 { "UTF8" } else { "" }))
    }),
    strict("pg_char_to_encoding", &[NAME], SqlType::Int4, |_, arguments| {
        let utf8 = text_at(arguments, 0).to_ascii_lowercase().replace('-', "") == "utf8";
        Ok(int4(if utf8 { 6 } else { -1 }))
    }),
    lenient("pg_client_encoding", &[], SqlType::Name, |_, _| Ok(text("UTF8"))),
    lenient("pg_is_in_recovery", &[], SqlType::Bool, no),
    lenient("inet_server_addr", &[], SqlType::Text, null),
    lenient("inet_server_port", &[], SqlType::Int4, null),
    lenient("inet_client_addr", &[], SqlType::Text, null),
    lenient("inet_client_port", &[], SqlType::Int4, null),
    lenient("pg_postmaster_start_time", &[], SqlType::TimestampTz, null),
    lenient("pg_conf_load_time", &[], SqlType::TimestampTz, null),
    lenient("txid_current", &[], SqlType::Int8, |_, _| Ok(int8(1))),
];

/// A text about the procedure whose oid is the first argument; NULL if there is none.
fn of_procedure(
    context: &Context<'_>,
    arguments: Arguments<'_, '_>,
    shown: fn(&ProcedureDef) -> String,
) -> Answer {
    let procedure = procedures::by_oid(SessionView::catalog_of(context)?, oid_at(arguments, 0));
    Ok(procedure.map_or(Value::Null, |procedure| text(shown(procedure))))
}

/// Expressions are stored as text.
fn expression(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Answer {
    let catalog = SessionView::catalog_of(context)?;
    Ok(text(shown_expression(
        context.session,
        catalog,
        text_at(arguments, 0),
    )))
}

fn view_text(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Answer {
    let catalog = SessionView::catalog_of(context)?;
    Ok(views::definition_by_oid(catalog, oid_at(arguments, 0)))
}

fn named_view_text(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Answer {
    let catalog = SessionView::catalog_of(context)?;
    let name = text_at(arguments, 0);
    match relation_oid(catalog, name) {
        Some(oid) => Ok(views::definition_by_oid(catalog, oid)),
        None => Err(SqlError::new(
            SqlState::UNDEFINED_TABLE,
            format!("relation \"{name}\" does not exist"),
        )),
    }
}

fn index_text(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Answer {
    let catalog = SessionView::catalog_of(context)?;
    let Some(index) = catalog.index_by_id(IndexId(oid_at(arguments, 0))) else {
        return Ok(Value::Null);
    };
    let Some(table) = catalog.table_by_id(index.table) else {
        return Ok(Value::Null);
    };
    if let Some(ValueRef::Int4(column)) = arguments.get(1)
        && *column != 0
    {
        let name = usize::try_from(*column - 1)
            .ok()
            .and_then(|column| index.columns.get(column))
            .and_then(|column| table.columns.get(*column));
        return Ok(text(
            name.map_or_else(String::new, |column| quote_ident(&column.name)),
        ));
    }
    let pretty = matches!(arguments.get(2), Some(ValueRef::Bool(true)));
    Ok(text(index_definition(table, index, !pretty)))
}

fn constraint_text(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Answer {
    let (catalog, id) = (SessionView::catalog_of(context)?, oid_at(arguments, 0));
    if let Some(constraint) = constraint_by_oid(catalog, id) {
        return Ok(text(rule_definition(context.session, catalog, constraint)));
    }
    let found = constraint_index(catalog, id);
    Ok(found.map_or(Value::Null, |(table, index)| {
        text(constraint_definition(table, index))
    }))
}

fn serial_sequence(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Answer {
    let (name, column) = (text_at(arguments, 0), text_at(arguments, 1));
    let catalog = SessionView::catalog_of(context)?;
    let table = relation_oid(catalog, name)
        .and_then(|id| catalog.table_by_id(TableId(id)))
        .ok_or_else(|| undefined_table(name))?;
    let Some(position) = table.column_index(column) else {
        let message = format!(
            "column \"{column}\" of relation \"{}\" does not exist",
            table.name
        );
        return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
    };
    let owner = Some((table.id, position as u32));
    let sequence = catalog.sequences().find(|sequence| sequence.owned_by == owner);
    Ok(sequence.map_or(Value::Null, |sequence| {
        text(format!("public.{}", quote_ident(&sequence.name)))
    }))
}

fn is_null(arguments: Arguments<'_, '_>, at: usize) -> bool {
    matches!(arguments.get(at), None | Some(ValueRef::Null))
}

pub(crate) fn text_at<'a>(arguments: &'a [ValueRef<'_>], at: usize) -> &'a str {
    match arguments.get(at) {
        Some(ValueRef::Text(text)) => text,
        _ => "",
    }
}

pub(crate) fn oid_at(arguments: Arguments<'_, '_>, at: usize) -> u32 {
    match arguments.get(at) {
        Some(ValueRef::Oid(id)) => *id,
        _ => 0,
    }
}

pub(crate) fn undefined_table(name: &str) -> SqlError {
    SqlError::new(
        SqlState::UNDEFINED_TABLE,
        format!("relation \"{name}\" does not exist"),
    )
}

/// The type given by name or by a numeric oid.
fn type_of(name: &str) -> Option<u32> {
    name.trim().parse().ok().or_else(|| types::oid_of(name))
}

/// The displayed names of the values of a type that refers to objects by oid; `None` for every other type.
#[must_use]
pub fn oid_names(ty: &SqlType, catalog: &Catalog, search_path: &str) -> Option<BTreeMap<u32, String>> {
    let mut names: BTreeMap<u32, String> = match ty {
        SqlType::Regclass => {
            let system = SYSTEM_RELATIONS
                .iter()
                .map(|(oid, name)| (*oid, (*name).to_owned()));
            let indexes = catalog.tables().flat_map(|table| {
                let indexes = table
                    .indexes
                    .iter()
                    .map(|index| (index.id.0, name_in(search_path, &index.name)));
                indexes.chain([(table.id.0, name_in(search_path, &table.name))])
            });
            let sequences = catalog
                .sequences()
                .map(|sequence| (sequence.id.0, name_in(search_path, &sequence.name)));
            let views = catalog
                .views()
                .map(|view| (view.id.0, name_in(search_path, &view.name)));
            system.chain(indexes).chain(sequences).chain(views).collect()
        }
        SqlType::Regproc => catalog
            .procedures()
            .map(|procedure| (procedure.id.0, name_in(search_path, &procedure.name)))
            .chain(HANDLERS.iter().map(|(oid, name)| (*oid, (*name).to_owned())))
            .collect(),
        SqlType::Regnamespace => SCHEMAS
            .iter()
            .map(|(oid, name)| (*oid, (*name).to_owned()))
            .collect(),
        _ => return None,
    };
    names.insert(0, "-".to_owned());
    Some(names)
}

/// The functions behind access methods.
const HANDLERS: [(u32, &str); 3] = [
    (3, "heap_tableam_handler"),
    (330, "bthandler"),
    (331, "hashhandler"),
];

/// The schemas and their oids.
const SCHEMAS: [(u32, &str); 3] = [
    (PUBLIC_OID, "public"),
    (PG_CATALOG_OID, "pg_catalog"),
    (INFORMATION_SCHEMA_OID, "information_schema"),
];

pub(crate) fn relation_or_system(catalog: &Catalog, name: &str) -> Option<u32> {
    relation_oid(catalog, name).or_else(|| {
        let plain = name.trim().trim_start_matches("pg_catalog.");
        system_oid(plain)
    })
}

fn pretty_size(bytes: i64) -> String {
    let mut value = bytes;
    for unit in ["bytes", "kB", "MB", "GB", "TB"] {
        if value.unsigned_abs() < 10 * 1024 {
            return format!("{value} {unit}");
        }
        value = value.saturating_add(512 * value.signum()) / 1024;
    }
    format!("{value} PB")
}
