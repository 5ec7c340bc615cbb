//! Functions that clients call on the catalog, and those of the session: see [`SessionFunction`].

use datafusion::arrow::array::Array;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::ScalarValue;
use weft_base::IndexId;
use weft_store::ProcedureDef;
use weft_types::{SqlError, SqlState};

use super::look_up::{
    constraint_definition, constraint_index, index_definition, quote_ident, relation_name, relation_oid,
};
use super::{PG_CATALOG_OID, PUBLIC_OID, ROLE_OID, flag, int4, int8, oid, procedures, text, types};
use crate::query::{SessionContext, SessionFunction, canceled_by_user, timed_out, timestamptz_type};

type Answer = Result<ScalarValue, SqlError>;

/// All session functions.
pub fn all() -> impl Iterator<Item = &'static SessionFunction> {
    FUNCTIONS.iter().chain(CLOCK).chain(CONSTANTS)
}

const fn function(
    name: &'static str,
    returns: fn() -> DataType,
    body: fn(&SessionContext, &[ScalarValue]) -> Answer,
) -> SessionFunction {
    SessionFunction {
        name,
        returns,
        strict: true,
        body,
    }
}

const fn lenient(
    name: &'static str,
    returns: fn() -> DataType,
    body: fn(&SessionContext, &[ScalarValue]) -> Answer,
) -> SessionFunction {
    SessionFunction {
        name,
        returns,
        strict: false,
        body,
    }
}

fn utf8() -> DataType {
    DataType::Utf8
}

fn boolean() -> DataType {
    DataType::Boolean
}

fn oid_type() -> DataType {
    DataType::UInt32
}

fn bigint() -> DataType {
    DataType::Int64
}

fn integer() -> DataType {
    DataType::Int32
}

fn date_type() -> DataType {
    DataType::Date32
}

fn timestamp_type() -> DataType {
    DataType::Timestamp(datafusion::arrow::datatypes::TimeUnit::Microsecond, None)
}

fn text_list() -> DataType {
    DataType::new_list(DataType::Utf8, true)
}

const NULL: ScalarValue = ScalarValue::Null;

/// A text about the procedure whose id is the first argument; NULL if there is none.
fn of_procedure(
    session: &SessionContext,
    args: &[ScalarValue],
    shown: fn(&ProcedureDef) -> String,
) -> ScalarValue {
    if args.first().is_none_or(ScalarValue::is_null) {
        return NULL;
    }
    procedures::by_oid(&session.catalog, oid_arg(args, 0)).map_or(NULL, |procedure| text(shown(procedure)))
}

static FUNCTIONS: &[SessionFunction] = &[
    function("__regclass_in", oid_type, |session, args| {
        let name = text_arg(args, 0);
        relation_oid(&session.catalog, &name).map(oid).ok_or_else(|| {
            SqlError::new(
                SqlState::UNDEFINED_TABLE,
                format!("relation \"{name}\" does not exist"),
            )
        })
    }),
    function("to_regclass", oid_type, |session, args| {
        Ok(relation_oid(&session.catalog, &text_arg(args, 0)).map_or(NULL, oid))
    }),
    function("__regclass_out", utf8, |session, args| {
        let id = oid_arg(args, 0);
        Ok(text(match relation_name(&session.catalog, id) {
            Some(name) => quote_ident(&name),
            None if id == 0 => "-".to_string(),
            None => system_relation(id).map_or_else(|| id.to_string(), str::to_string),
        }))
    }),
    function("__regtype_in", oid_type, |_, args| {
        let name = text_arg(args, 0);
        types::oid_of(&name).map(oid).ok_or_else(|| {
            SqlError::new(
                SqlState::UNDEFINED_OBJECT,
                format!("type \"{name}\" does not exist"),
            )
        })
    }),
    function("to_regtype", oid_type, |_, args| {
        Ok(types::oid_of(&text_arg(args, 0)).map_or(NULL, oid))
    }),
    function("__regnamespace_in", oid_type, |_, args| {
        let name = text_arg(args, 0);
        match name.as_str() {
            "public" => Ok(oid(PUBLIC_OID)),
            "pg_catalog" => Ok(oid(PG_CATALOG_OID)),
            _ => Err(SqlError::new(
                SqlState::INVALID_SCHEMA_NAME,
                format!("schema \"{name}\" does not exist"),
            )),
        }
    }),
    function("__regnamespace_out", utf8, |_, args| {
        Ok(text(match oid_arg(args, 0) {
            PUBLIC_OID => "public".to_string(),
            PG_CATALOG_OID => "pg_catalog".to_string(),
            other => other.to_string(),
        }))
    }),
    function("__regproc_out", utf8, |_, args| Ok(text(text_arg(args, 0)))),
    lenient("format_type", utf8, |_, args| {
        if args.first().is_none_or(ScalarValue::is_null) {
            return Ok(NULL);
        }
        let typmod = args
            .get(1)
            .filter(|typmod| !typmod.is_null())
            .map(|_| int_arg(args, 1) as i32);
        Ok(text(types::format_type(oid_arg(args, 0), typmod)))
    }),
    function("pg_get_expr", utf8, |_, args| Ok(text(text_arg(args, 0)))),
    function("pg_get_indexdef", utf8, |session, args| {
        let Some(index) = session.catalog.index_by_id(IndexId(oid_arg(args, 0))) else {
            return Ok(NULL);
        };
        let Some(table) = session.catalog.table_by_id(index.table) else {
            return Ok(NULL);
        };
        let column = int_arg(args, 1);
        if column > 0 {
            let name = index
                .columns
                .get(column as usize - 1)
                .and_then(|column| table.columns.get(*column));
            return Ok(name.map_or(NULL, |column| text(quote_ident(&column.name))));
        }
        let pretty = args.get(2).is_some_and(|pretty| *pretty == flag(true));
        Ok(text(index_definition(table, index, !pretty)))
    }),
    function("pg_get_constraintdef", utf8, |session, args| {
        Ok(constraint_index(&session.catalog, oid_arg(args, 0))
            .map_or(NULL, |(table, index)| text(constraint_definition(table, index))))
    }),
    function("pg_get_serial_sequence", utf8, |session, args| {
        let (table, column) = (text_arg(args, 0), text_arg(args, 1));
        let owner = relation_oid(&session.catalog, &table)
            .and_then(|id| session.catalog.table_by_id(weft_base::TableId(id)))
            .ok_or_else(|| {
                SqlError::new(
                    SqlState::UNDEFINED_TABLE,
                    format!("relation \"{table}\" does not exist"),
                )
            })?;
        let position = owner.column_index(&column).map(|position| position as u32);
        let sequence = session.catalog.sequences().find(|sequence| {
            position.is_some() && sequence.owned_by == position.map(|column| (owner.id, column))
        });
        Ok(sequence.map_or(NULL, |sequence| {
            text(format!("public.{}", quote_ident(&sequence.name)))
        }))
    }),
    function("pg_table_is_visible", boolean, |session, args| {
        let id = oid_arg(args, 0);
        Ok(if relation_name(&session.catalog, id).is_some() {
            flag(true)
        } else {
            NULL
        })
    }),
    function("pg_type_is_visible", boolean, |_, _| Ok(flag(true))),
    function("pg_function_is_visible", boolean, |_, _| Ok(flag(true))),
    function("pg_operator_is_visible", boolean, |_, _| Ok(flag(true))),
    function("pg_collation_is_visible", boolean, |_, _| Ok(flag(true))),
    function("pg_relation_is_publishable", boolean, |session, args| {
        Ok(flag(relation_name(&session.catalog, oid_arg(args, 0)).is_some()))
    }),
    function("pg_get_userbyid", utf8, |session, args| {
        let id = oid_arg(args, 0);
        Ok(text(if id == ROLE_OID {
            session.settings.user.to_string()
        } else {
            format!("unknown (OID={id})")
        }))
    }),
    function("pg_encoding_to_char", utf8, |_, args| {
        Ok(text(if int_arg(args, 0) == 6 { "UTF8" } else { "" }))
    }),
    function("pg_char_to_encoding", integer, |_, args| {
        let utf8 = text_arg(args, 0).to_lowercase().replace('-', "") == "utf8";
        Ok(int4(if utf8 { 6 } else { -1 }))
    }),
    function("pg_relation_size", bigint, |_, _| Ok(int8(0))),
    function("pg_table_size", bigint, |_, _| Ok(int8(0))),
    function("pg_total_relation_size", bigint, |_, _| Ok(int8(0))),
    function("pg_indexes_size", bigint, |_, _| Ok(int8(0))),
    function("pg_database_size", bigint, |_, _| Ok(int8(0))),
    function("pg_size_pretty", utf8, |_, args| {
        Ok(text(pretty_size(int_arg(args, 0))))
    }),
    lenient("obj_description", utf8, |_, _| Ok(NULL)),
    lenient("shobj_description", utf8, |_, _| Ok(NULL)),
    lenient("col_description", utf8, |_, _| Ok(NULL)),
    lenient("pg_get_viewdef", utf8, |_, _| Ok(NULL)),
    lenient("pg_get_ruledef", utf8, |_, _| Ok(NULL)),
    lenient("pg_get_triggerdef", utf8, |_, _| Ok(NULL)),
    lenient("pg_get_functiondef", utf8, |session, args| {
        Ok(of_procedure(session, args, procedures::definition))
    }),
    // Procedures have none.
    lenient("pg_get_function_result", utf8, |_, _| Ok(NULL)),
    lenient("pg_get_function_arguments", utf8, |session, args| {
        Ok(of_procedure(session, args, procedures::arguments))
    }),
    lenient("pg_get_function_identity_arguments", utf8, |session, args| {
        Ok(of_procedure(session, args, procedures::arguments))
    }),
    lenient("pg_get_partkeydef", utf8, |_, _| Ok(NULL)),
    lenient("pg_get_statisticsobjdef_columns", utf8, |_, _| Ok(NULL)),
    lenient("pg_tablespace_location", utf8, |_, _| Ok(text(""))),
    lenient("has_database_privilege", boolean, |_, _| Ok(flag(true))),
    lenient("has_schema_privilege", boolean, |_, _| Ok(flag(true))),
    lenient("has_table_privilege", boolean, |_, _| Ok(flag(true))),
    lenient("has_column_privilege", boolean, |_, _| Ok(flag(true))),
    lenient("has_function_privilege", boolean, |_, _| Ok(flag(true))),
    lenient("has_sequence_privilege", boolean, |_, _| Ok(flag(true))),
    lenient("pg_has_role", boolean, |_, _| Ok(flag(true))),
    lenient("pg_is_in_recovery", boolean, |_, _| Ok(flag(false))),
    lenient("pg_is_other_temp_schema", boolean, |_, _| Ok(flag(false))),
    lenient("pg_my_temp_schema", oid_type, |_, _| Ok(oid(0))),
    function("quote_ident", utf8, |_, args| {
        Ok(text(quote_ident(&text_arg(args, 0))))
    }),
    function("quote_literal", utf8, |_, args| {
        Ok(text(quote_literal(&text_arg(args, 0))))
    }),
    lenient("quote_nullable", utf8, |_, args| {
        Ok(text(match args.first() {
            Some(value) if !value.is_null() => quote_literal(&text_arg(args, 0)),
            _ => "NULL".to_string(),
        }))
    }),
    lenient("array_to_string", utf8, array_to_string),
    lenient("current_setting", utf8, current_setting),
];

static CLOCK: &[SessionFunction] = &[
    lenient("now", timestamptz_type, transaction_time),
    lenient("transaction_timestamp", timestamptz_type, transaction_time),
    lenient("current_timestamp", timestamptz_type, transaction_time),
    lenient("statement_timestamp", timestamptz_type, |session, _| {
        Ok(timestamptz(session.settings.statement_micros))
    }),
    lenient("clock_timestamp", timestamptz_type, |session, _| {
        Ok(timestamptz(session.settings.statement_micros))
    }),
    lenient("localtimestamp", timestamp_type, |session, _| {
        Ok(ScalarValue::TimestampMicrosecond(
            Some(session.settings.transaction_micros),
            None,
        ))
    }),
    lenient("current_date", date_type, |session, _| {
        let days = session.settings.transaction_micros.div_euclid(86_400_000_000);
        Ok(ScalarValue::Date32(i32::try_from(days).ok()))
    }),
];

static CONSTANTS: &[SessionFunction] = &[
    lenient("current_user", utf8, |session, _| {
        Ok(text(&*session.settings.user))
    }),
    lenient("session_user", utf8, |session, _| {
        Ok(text(&*session.settings.user))
    }),
    lenient("current_role", utf8, |session, _| {
        Ok(text(&*session.settings.user))
    }),
    lenient("user", utf8, |session, _| Ok(text(&*session.settings.user))),
    lenient("current_database", utf8, |session, _| {
        Ok(text(&*session.settings.database))
    }),
    lenient("current_catalog", utf8, |session, _| {
        Ok(text(&*session.settings.database))
    }),
    lenient("current_schema", utf8, |_, _| Ok(text("public"))),
    lenient("current_schemas", text_list, |_, args| {
        let mut names = vec![text("public")];
        if args.first() == Some(&flag(true)) {
            names.insert(0, text("pg_catalog"));
        }
        Ok(ScalarValue::List(ScalarValue::new_list(
            &names,
            &DataType::Utf8,
            true,
        )))
    }),
    lenient("version", utf8, |_, _| {
        Ok(text(concat!(
            "PostgreSQL 15.0 (Weft ",
            env!("CARGO_PKG_VERSION"),
            ")"
        )))
    }),
    lenient("pg_backend_pid", integer, |session, _| {
        Ok(int4(session.settings.backend_pid))
    }),
    lenient("inet_server_addr", utf8, |_, _| Ok(NULL)),
    lenient("inet_client_addr", utf8, |_, _| Ok(NULL)),
    lenient("pg_postmaster_start_time", timestamptz_type, |_, _| Ok(NULL)),
    lenient("pg_conf_load_time", timestamptz_type, |_, _| Ok(NULL)),
    function("pg_sleep", utf8, sleep),
    lenient("txid_current", bigint, |_, _| Ok(int8(1))),
];

/// `pg_sleep(seconds)`, which ends when the statement is canceled or its time is up. Other queries get the
/// thread.
fn sleep(session: &SessionContext, args: &[ScalarValue]) -> Answer {
    let seconds = text_arg(args, 0)
        .parse::<f64>()
        .unwrap_or(0.0)
        .clamp(0.0, 86_400.0);
    let wanted = std::time::Duration::from_secs_f64(seconds);
    tokio::task::block_in_place(|| sleep_for(session, wanted))
}

fn sleep_for(session: &SessionContext, wanted: std::time::Duration) -> Answer {
    let started = std::time::Instant::now();
    let cancel = &session.settings.cancel;
    let requests = cancel.requests();
    while started.elapsed() < wanted {
        if cancel.is_canceled() || cancel.requests() != requests {
            return Err(canceled_by_user());
        }
        if session
            .settings
            .statement_timeout
            .is_some_and(|timeout| started.elapsed() > timeout)
        {
            return Err(timed_out());
        }
        let rest = wanted.saturating_sub(started.elapsed());
        std::thread::sleep(rest.min(std::time::Duration::from_millis(10)));
    }
    Ok(text(""))
}

fn transaction_time(session: &SessionContext, _args: &[ScalarValue]) -> Answer {
    Ok(timestamptz(session.settings.transaction_micros))
}

fn timestamptz(micros: i64) -> ScalarValue {
    ScalarValue::TimestampMicrosecond(Some(micros), Some("UTC".into()))
}

fn text_arg(args: &[ScalarValue], position: usize) -> String {
    match args.get(position) {
        Some(
            ScalarValue::Utf8(Some(text))
            | ScalarValue::LargeUtf8(Some(text))
            | ScalarValue::Utf8View(Some(text)),
        ) => text.clone(),
        Some(value) if !value.is_null() => value.to_string(),
        _ => String::new(),
    }
}

fn int_arg(args: &[ScalarValue], position: usize) -> i64 {
    text_arg(args, position).trim().parse().unwrap_or(0)
}

fn oid_arg(args: &[ScalarValue], position: usize) -> u32 {
    u32::try_from(int_arg(args, position)).unwrap_or(0)
}

/// Catalog tables that clients name by oid (`classoid::regclass`).
fn system_relation(id: u32) -> Option<&'static str> {
    Some(match id {
        1247 => "pg_type",
        1249 => "pg_attribute",
        1255 => "pg_proc",
        1259 => "pg_class",
        2615 => "pg_namespace",
        _ => return None,
    })
}

fn quote_literal(value: &str) -> String {
    if value.contains('\\') {
        format!("E'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
    } else {
        format!("'{}'", value.replace('\'', "''"))
    }
}

fn pretty_size(bytes: i64) -> String {
    let mut value = bytes;
    for unit in ["bytes", "kB", "MB", "GB"] {
        if value.abs() < 10 * 1024 {
            return format!("{value} {unit}");
        }
        value = (value + 512) / 1024;
    }
    format!("{value} TB")
}

fn current_setting(session: &SessionContext, args: &[ScalarValue]) -> Answer {
    let name = text_arg(args, 0);
    if let Some(value) = session.settings.parameters.get(&name.to_lowercase()) {
        return Ok(text(value));
    }
    if args.get(1) == Some(&flag(true)) {
        return Ok(NULL);
    }
    Err(SqlError::new(
        SqlState::UNDEFINED_OBJECT,
        format!("unrecognized configuration parameter \"{name}\""),
    ))
}

/// `array_to_string(array, separator [, text for NULL])`.
fn array_to_string(_session: &SessionContext, args: &[ScalarValue]) -> Answer {
    let (Some(array), Some(separator)) = (args.first(), args.get(1)) else {
        return Ok(NULL);
    };
    if array.is_null() || separator.is_null() {
        return Ok(NULL);
    }
    let items = match array {
        ScalarValue::List(list) => list.value(0),
        ScalarValue::LargeList(list) => list.value(0),
        _ => return Ok(NULL),
    };
    let for_null = args
        .get(2)
        .filter(|text| !text.is_null())
        .map(|_| text_arg(args, 2));
    let options = FormatOptions::default();
    let formatter =
        ArrayFormatter::try_new(&items, &options).map_err(|error| SqlError::internal(error.to_string()))?;
    let mut parts = Vec::with_capacity(items.len());
    for position in 0..items.len() {
        if items.is_null(position) {
            parts.extend(for_null.clone());
        } else {
            parts.push(formatter.value(position).to_string());
        }
    }
    Ok(text(parts.join(&text_arg(args, 1))))
}
