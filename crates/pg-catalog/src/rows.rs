//! Rows of `pg_catalog`.

use weft_expression::{AdvisoryKey, Session};
use weft_store::{
    BOOTSTRAP_ROLE, Catalog, CheckTime, ConstraintDef, ConstraintRule, DATABASE_OBJECT_OID, Distribution,
    IndexDef, Privileges, ReferentialAction, RoleDef, SequenceDef, TableDef,
};
use weft_types::{Element, SqlType, Value};

use crate::look_up::{constraint_oid, default_oid, index_definition, method_name};
use crate::{
    DATABASE_OID, INFORMATION_SCHEMA_OID, PG_CATALOG_OID, PUBLIC_OID, ROLE_OID, Row, SessionView, accounts,
    comments, depend, flag, int2, int2_list, int4, int8, list, oid, oid_list, procedures, text, types,
    vector, views,
};

/// The rows of a table; none for tables that are always empty.
pub fn rows(name: &str, catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    match name {
        "pg_namespace" => namespaces(catalog),
        "pg_class" => classes(catalog),
        "pg_attribute" => attributes(catalog),
        "pg_attrdef" => defaults(catalog),
        "pg_type" => builtin_types(),
        "pg_index" => indexes(catalog),
        "pg_constraint" => constraints(catalog),
        "pg_sequence" => sequences(catalog),
        "pg_sequences" => sequence_view(catalog, session),
        "pg_depend" => depend::rows(catalog),
        "pg_database" => databases(catalog, session),
        "pg_roles" | "pg_authid" | "pg_user" | "pg_shadow" => roles(name, catalog, session),
        "pg_description" => comments::rows(catalog, false),
        "pg_shdescription" => comments::rows(catalog, true),
        "pg_extension" => comments::extensions(),
        "pg_auth_members" => accounts::memberships(catalog),
        "pg_group" => accounts::groups(catalog),
        "pg_default_acl" => accounts::default_acls(catalog),
        "pg_am" => access_methods(),
        "pg_collation" => collations(),
        "pg_settings" => settings(session),
        "pg_tablespace" => tablespaces(),
        "pg_language" => procedures::languages(),
        "pg_proc" => procedures::rows(catalog),
        "pg_tables" => table_view(catalog, session),
        "pg_indexes" => index_view(catalog),
        "pg_views" => views::rows(catalog, session),
        "pg_rewrite" => views::rules(catalog),
        "pg_stat_user_tables" => table_statistics(catalog),
        "pg_stat_ssl" => encryptions(catalog, session),
        "pg_prepared_xacts" => prepared_transactions(session),
        "pg_locks" => locks(session),
        _ => Vec::new(),
    }
}

fn namespaces(catalog: &Catalog) -> Vec<Row> {
    [
        (PG_CATALOG_OID, "pg_catalog"),
        (PUBLIC_OID, "public"),
        (INFORMATION_SCHEMA_OID, "information_schema"),
    ]
    .into_iter()
    .map(|(id, name)| {
        vec![
            ("oid", oid(id)),
            ("nspname", text(name)),
            ("nspowner", oid(catalog.owner_of(id).0)),
            ("nspacl", accounts::schema_acl(catalog, id)),
        ]
    })
    .collect()
}

fn class(id: u32, name: &str, kind: &str, am: u32, columns: usize) -> Row {
    vec![
        ("oid", oid(id)),
        ("relname", text(name)),
        ("relnamespace", oid(PUBLIC_OID)),
        ("reltype", oid(0)),
        ("reloftype", oid(0)),
        ("relowner", oid(ROLE_OID)),
        ("relam", oid(am)),
        ("relfilenode", oid(id)),
        ("reltablespace", oid(0)),
        ("relpages", int4(0)),
        ("reltuples", Value::Float4(-1.0)),
        ("relallvisible", int4(0)),
        ("reltoastrelid", oid(0)),
        ("relhasindex", flag(false)),
        ("relisshared", flag(false)),
        ("relpersistence", text("p")),
        ("relkind", text(kind)),
        ("relnatts", int2(columns)),
        ("relchecks", int2(0)),
        ("relhasrules", flag(false)),
        ("relhastriggers", flag(false)),
        ("relhassubclass", flag(false)),
        ("relrowsecurity", flag(false)),
        ("relforcerowsecurity", flag(false)),
        ("relispopulated", flag(true)),
        ("relreplident", text(if kind == "r" { "d" } else { "n" })),
        ("relispartition", flag(false)),
        ("relrewrite", oid(0)),
        ("relfrozenxid", oid(0)),
        ("relminmxid", oid(0)),
    ]
}

fn classes(catalog: &Catalog) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in catalog.tables() {
        let mut row = class(table.id.0, &table.name, "r", 2, table.columns.len());
        set(&mut row, "relhasindex", flag(!table.indexes.is_empty()));
        set(&mut row, "relchecks", int2(table.checks().len()));
        // Those of foreign keys, which psql looks for only where there are triggers.
        set(&mut row, "relhastriggers", flag(table.has_references()));
        accounts::set_rights(&mut row, catalog, table.id.0, "relowner", "relacl");
        if let Some(options) = distribution_options(table) {
            row.push(("reloptions", options));
        }
        rows.push(row);
        for index in &table.indexes {
            let am = if method_name(index) == "hash" { 405 } else { 403 };
            let mut row = class(index.id.0, &index.name, "i", am, index.columns.len());
            set(&mut row, "relowner", oid(catalog.owner_of(table.id.0).0));
            rows.push(row);
        }
    }
    for view in catalog.views() {
        let mut row = class(view.id.0, &view.name, "v", 0, view.columns.len());
        set(&mut row, "relfilenode", oid(0));
        set(&mut row, "relhasrules", flag(true));
        accounts::set_rights(&mut row, catalog, view.id.0, "relowner", "relacl");
        rows.push(row);
    }
    for sequence in catalog.sequences() {
        let mut row = class(sequence.id.0, &sequence.name, "S", 0, 3);
        accounts::set_rights(&mut row, catalog, sequence.id.0, "relowner", "relacl");
        rows.push(row);
    }
    rows
}

/// The distribution as CREATE TABLE gave it: `{partition_by=column}`, `{replicated=true}`.
fn distribution_options(table: &TableDef) -> Option<Value> {
    let option = match table.distribution {
        Distribution::Single => return None,
        Distribution::Hash => {
            let column = table.columns.get(table.partition_column()?)?;
            format!("partition_by={}", column.name)
        }
        Distribution::Replicated => "replicated=true".to_owned(),
    };
    Some(list(Element::Text, vec![Value::Text(option)]))
}

pub(crate) fn set(row: &mut Row, column: &str, value: Value) {
    if let Some((_, cell)) = row.iter_mut().find(|(name, _)| *name == column) {
        *cell = value;
    }
}

fn collation(ty: &SqlType) -> u32 {
    if ty.is_text() { 100 } else { 0 }
}

fn attribute(relation: u32, number: i16, name: &str, ty: &SqlType) -> Row {
    let described = types::all().iter().find(|row| row.oid == ty.oid());
    let cell = |position: usize| {
        described
            .and_then(|row| row.cells.get(position))
            .copied()
            .unwrap_or_default()
    };
    vec![
        ("attrelid", oid(relation)),
        ("attname", text(name)),
        ("atttypid", oid(ty.oid())),
        ("attstattarget", int4(-1)),
        ("attlen", Value::Int2(ty.typlen())),
        ("attnum", Value::Int2(number)),
        ("attndims", int4(0)),
        ("attcacheoff", int4(-1)),
        ("atttypmod", int4(ty.typmod())),
        ("attbyval", flag(cell(2) == "t")),
        ("attalign", text(cell(13))),
        ("attstorage", text(cell(14))),
        ("attcompression", text("")),
        ("attnotnull", flag(false)),
        ("atthasdef", flag(false)),
        ("atthasmissing", flag(false)),
        ("attidentity", text("")),
        ("attgenerated", text("")),
        ("attisdropped", flag(false)),
        ("attislocal", flag(true)),
        ("attinhcount", int4(0)),
        ("attcollation", oid(collation(ty))),
    ]
}

fn attributes(catalog: &Catalog) -> Vec<Row> {
    let mut rows = Vec::new();
    let number = |position: usize| i16::try_from(position + 1).unwrap_or(i16::MAX);
    for table in catalog.tables() {
        for (position, column) in table.columns.iter().enumerate() {
            let mut row = attribute(table.id.0, number(position), &column.name, &column.ty);
            set(&mut row, "attnotnull", flag(column.not_null));
            set(&mut row, "atthasdef", flag(column.default.is_some()));
            if let Some(identity) = &column.identity {
                set(
                    &mut row,
                    "attidentity",
                    text(if identity.always { "a" } else { "d" }),
                );
            }
            rows.push(row);
        }
        for index in &table.indexes {
            for (position, column) in index.columns.iter().enumerate() {
                if let Some(column) = table.columns.get(*column) {
                    rows.push(attribute(index.id.0, number(position), &column.name, &column.ty));
                }
            }
        }
    }
    for view in catalog.views() {
        for (position, column) in view.columns.iter().enumerate() {
            rows.push(attribute(view.id.0, number(position), &column.name, &column.ty));
        }
    }
    for sequence in catalog.sequences() {
        let columns = [
            ("last_value", SqlType::Int8),
            ("log_cnt", SqlType::Int8),
            ("is_called", SqlType::Bool),
        ];
        for (position, (name, ty)) in columns.iter().enumerate() {
            let mut row = attribute(sequence.id.0, number(position), name, ty);
            set(&mut row, "attnotnull", flag(true));
            rows.push(row);
        }
    }
    rows
}

fn defaults(catalog: &Catalog) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in catalog.tables() {
        for (position, column) in table.columns.iter().enumerate() {
            if let Some(default) = &column.default {
                rows.push(vec![
                    ("oid", oid(default_oid(table.id, position))),
                    ("adrelid", oid(table.id.0)),
                    ("adnum", int2(position + 1)),
                    ("adbin", text(&default.sql)),
                ]);
            }
        }
    }
    rows
}

fn builtin_types() -> Vec<Row> {
    types::all()
        .iter()
        .map(|row| {
            let cell = |position: usize| row.cells.get(position).copied().unwrap_or_default();
            let id = |position: usize| oid(cell(position).parse().unwrap_or(0));
            vec![
                ("oid", oid(row.oid)),
                ("typname", text(cell(0))),
                ("typnamespace", oid(PG_CATALOG_OID)),
                ("typowner", oid(ROLE_OID)),
                ("typlen", cell(1).parse().map_or(Value::Null, Value::Int2)),
                ("typbyval", flag(cell(2) == "t")),
                ("typtype", text(cell(3))),
                ("typcategory", text(cell(4))),
                ("typispreferred", flag(cell(5) == "t")),
                ("typisdefined", flag(true)),
                ("typdelim", text(cell(6))),
                ("typrelid", oid(0)),
                ("typelem", id(7)),
                ("typarray", id(8)),
                ("typinput", text(cell(9))),
                ("typoutput", text(cell(10))),
                ("typreceive", text(cell(11))),
                ("typsend", text(cell(12))),
                ("typalign", text(cell(13))),
                ("typstorage", text(cell(14))),
                ("typcollation", id(15)),
                ("typsubscript", text(cell(16))),
                ("typnotnull", flag(false)),
                ("typbasetype", oid(0)),
                ("typtypmod", int4(-1)),
                ("typndims", int4(0)),
            ]
        })
        .collect()
}

fn all_indexes(catalog: &Catalog) -> impl Iterator<Item = (&TableDef, &IndexDef)> {
    catalog.tables().flat_map(|table| {
        table
            .indexes
            .iter()
            .map(move |index| (table.as_ref(), index.as_ref()))
    })
}

fn indexes(catalog: &Catalog) -> Vec<Row> {
    all_indexes(catalog)
        .map(|(table, index)| {
            let columns = index.columns.len();
            vec![
                ("indexrelid", oid(index.id.0)),
                ("indrelid", oid(table.id.0)),
                ("indnatts", int2(columns)),
                ("indnkeyatts", int2(columns)),
                ("indisunique", flag(index.unique)),
                ("indnullsnotdistinct", flag(false)),
                ("indisprimary", flag(index.primary)),
                ("indisexclusion", flag(false)),
                ("indimmediate", flag(true)),
                ("indisclustered", flag(false)),
                ("indisvalid", flag(true)),
                ("indcheckxmin", flag(false)),
                ("indisready", flag(true)),
                ("indislive", flag(true)),
                ("indisreplident", flag(false)),
                (
                    "indkey",
                    vector(int2_list(index.columns.iter().map(|column| column + 1))),
                ),
                (
                    "indcollation",
                    oid_list(
                        index
                            .columns
                            .iter()
                            .map(|c| table.columns.get(*c).map_or(0, |c| collation(&c.ty))),
                    ),
                ),
                ("indclass", vector(oid_list(index.columns.iter().map(|_| 0)))),
                ("indoption", vector(int2_list(index.columns.iter().map(|_| 0)))),
            ]
        })
        .collect()
}

fn constraints(catalog: &Catalog) -> Vec<Row> {
    let tables = catalog.tables();
    let others = tables.flat_map(|table| {
        table
            .constraints
            .iter()
            .map(move |it| (table.as_ref(), it.as_ref()))
    });
    let others = others.map(|(table, constraint)| constraint_row(table, constraint));
    index_constraints(catalog).into_iter().chain(others).collect()
}

/// The row of a constraint that is not an index.
fn constraint_row(table: &TableDef, constraint: &ConstraintDef) -> Row {
    let mut row = vec![
        ("oid", oid(constraint.id.0)),
        ("conname", text(&constraint.name)),
        ("connamespace", oid(PUBLIC_OID)),
        ("condeferrable", flag(false)),
        ("condeferred", flag(false)),
        ("convalidated", flag(constraint.is_valid)),
        ("conrelid", oid(table.id.0)),
        ("contypid", oid(0)),
        ("conindid", oid(0)),
        ("conparentid", oid(0)),
        ("confrelid", oid(0)),
        ("confupdtype", text(" ")),
        ("confdeltype", text(" ")),
        ("confmatchtype", text(" ")),
        ("conislocal", flag(true)),
        ("coninhcount", int4(0)),
        ("connoinherit", flag(false)),
    ];
    match &constraint.rule {
        ConstraintRule::Check { sql } => {
            let checks = table.checks().iter();
            let check = checks.filter(|check| check.constraint.id == constraint.id);
            let columns = check.flat_map(|check| check.columns.iter().map(|column| column + 1));
            row.push(("contype", text("c")));
            row.push(("conkey", int2_list(columns)));
            row.push(("conbin", text(sql)));
        }
        ConstraintRule::ForeignKey(key) => {
            row.push(("contype", text("f")));
            set(&mut row, "condeferrable", flag(key.check_time.is_deferrable()));
            let deferred = key.check_time == CheckTime::DeferrableCommit;
            set(&mut row, "condeferred", flag(deferred));
            set(&mut row, "conindid", oid(key.index.0));
            set(&mut row, "confrelid", oid(key.parent.0));
            set(&mut row, "confupdtype", text(action_letter(key.on_update)));
            set(&mut row, "confdeltype", text(action_letter(key.on_delete)));
            set(&mut row, "confmatchtype", text("s"));
            set(&mut row, "connoinherit", flag(true));
            row.push(("conkey", int2_list(key.columns.iter().map(|column| column + 1))));
            let parents = key.parent_columns.iter().map(|column| column + 1);
            row.push(("confkey", int2_list(parents)));
        }
    }
    row
}

fn action_letter(action: ReferentialAction) -> &'static str {
    match action {
        ReferentialAction::NoAction => "a",
        ReferentialAction::Restrict => "r",
        ReferentialAction::Cascade => "c",
        ReferentialAction::SetNull => "n",
    }
}

fn index_constraints(catalog: &Catalog) -> Vec<Row> {
    all_indexes(catalog)
        .filter(|(_, index)| index.is_constraint())
        .map(|(table, index)| {
            vec![
                ("oid", oid(constraint_oid(index.id))),
                ("conname", text(&index.name)),
                ("connamespace", oid(PUBLIC_OID)),
                ("contype", text(if index.primary { "p" } else { "u" })),
                ("condeferrable", flag(false)),
                ("condeferred", flag(false)),
                ("convalidated", flag(true)),
                ("conrelid", oid(table.id.0)),
                ("contypid", oid(0)),
                ("conindid", oid(index.id.0)),
                ("conparentid", oid(0)),
                ("confrelid", oid(0)),
                ("confupdtype", text(" ")),
                ("confdeltype", text(" ")),
                ("confmatchtype", text(" ")),
                ("conislocal", flag(true)),
                ("coninhcount", int4(0)),
                ("connoinherit", flag(true)),
                ("conkey", int2_list(index.columns.iter().map(|column| column + 1))),
            ]
        })
        .collect()
}

fn sequences(catalog: &Catalog) -> Vec<Row> {
    let row = |sequence: &SequenceDef| {
        vec![
            ("seqrelid", oid(sequence.id.0)),
            ("seqtypid", oid(sequence.ty.oid())),
            ("seqstart", int8(sequence.start)),
            ("seqincrement", int8(sequence.increment)),
            ("seqmax", int8(sequence.max_value)),
            ("seqmin", int8(sequence.min_value)),
            ("seqcache", int8(1)),
            ("seqcycle", flag(sequence.cycle)),
        ]
    };
    catalog.sequences().map(|sequence| row(sequence)).collect()
}

fn sequence_view(catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    let role = SessionView::of(session).map_or(BOOTSTRAP_ROLE, |view| view.role);
    let reads = Privileges::SELECT.union(Privileges::USAGE);
    catalog
        .sequences()
        .map(|sequence| {
            let may_read = catalog.privileges_of(role, sequence.id.0).intersects(reads);
            let state = crate::sequences::state(catalog, session, sequence.id)
                .filter(|state| state.is_called && may_read);
            vec![
                ("schemaname", text("public")),
                ("sequencename", text(&sequence.name)),
                (
                    "sequenceowner",
                    accounts::owner_name(catalog, session, sequence.id.0),
                ),
                ("data_type", text(sequence.ty.name())),
                ("start_value", int8(sequence.start)),
                ("min_value", int8(sequence.min_value)),
                ("max_value", int8(sequence.max_value)),
                ("increment_by", int8(sequence.increment)),
                ("cycle", flag(sequence.cycle)),
                ("cache_size", int8(1)),
                (
                    "last_value",
                    state.map_or(Value::Null, |state| Value::Int8(state.last_value)),
                ),
            ]
        })
        .collect()
}

fn databases(catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    vec![vec![
        ("oid", oid(DATABASE_OID)),
        ("datname", text(session.database())),
        ("datdba", oid(catalog.owner_of(DATABASE_OBJECT_OID).0)),
        ("datacl", accounts::shown_acl(catalog, DATABASE_OBJECT_OID)),
        ("encoding", int4(6)),
        ("datlocprovider", text("c")),
        ("datistemplate", flag(false)),
        ("datallowconn", flag(true)),
        ("datconnlimit", int4(-1)),
        ("datfrozenxid", oid(0)),
        ("datminmxid", oid(0)),
        ("dattablespace", oid(1663)),
        ("datcollate", text("C.UTF-8")),
        ("datctype", text("C.UTF-8")),
    ]]
}

/// The roles, under the names of columns in pg_roles, pg_authid, pg_user and pg_shadow; passwords only where
/// superusers alone may read.
fn roles(name: &str, catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    let shown = |role: &RoleDef| {
        let password = match (name, &role.password) {
            ("pg_authid" | "pg_shadow", Some(verifier)) => text(verifier),
            ("pg_authid" | "pg_shadow", None) => Value::Null,
            _ => text("********"),
        };
        let called = || accounts::role_name(catalog, session, role.id.0);
        let until = role.valid_until.map_or(Value::Null, Value::TimestampTz);
        let bootstrap = role.id == BOOTSTRAP_ROLE;
        vec![
            ("oid", oid(role.id.0)),
            ("rolname", called()),
            ("rolsuper", flag(role.superuser)),
            ("rolinherit", flag(role.inherit)),
            ("rolcreaterole", flag(role.create_role)),
            ("rolcreatedb", flag(role.create_db)),
            ("rolcanlogin", flag(role.login)),
            ("rolreplication", flag(bootstrap)),
            ("rolbypassrls", flag(bootstrap)),
            ("rolconnlimit", int4(role.connection_limit)),
            ("rolpassword", password.clone()),
            ("rolvaliduntil", until.clone()),
            ("usename", called()),
            ("usesysid", oid(role.id.0)),
            ("usecreatedb", flag(role.create_db)),
            ("usesuper", flag(role.superuser)),
            ("userepl", flag(bootstrap)),
            ("usebypassrls", flag(bootstrap)),
            ("passwd", password),
            ("valuntil", until),
        ]
    };
    let roles = catalog.accounts().roles();
    roles
        .filter(|role| !matches!(name, "pg_user" | "pg_shadow") || role.login)
        .map(|role| shown(role))
        .collect()
}

fn access_methods() -> Vec<Row> {
    [
        (2, "heap", "heap_tableam_handler", "t"),
        (403, "btree", "bthandler", "i"),
        (405, "hash", "hashhandler", "i"),
    ]
    .into_iter()
    .map(|(id, name, handler, kind)| {
        vec![
            ("oid", oid(id)),
            ("amname", text(name)),
            ("amhandler", text(handler)),
            ("amtype", text(kind)),
        ]
    })
    .collect()
}

fn collations() -> Vec<Row> {
    [(100, "default", "d"), (950, "C", "c"), (951, "POSIX", "c")]
        .into_iter()
        .map(|(id, name, provider)| {
            vec![
                ("oid", oid(id)),
                ("collname", text(name)),
                ("collnamespace", oid(PG_CATALOG_OID)),
                ("collowner", oid(ROLE_OID)),
                ("collprovider", text(provider)),
                ("collisdeterministic", flag(true)),
                ("collencoding", int4(-1)),
            ]
        })
        .collect()
}

fn settings(session: &dyn Session) -> Vec<Row> {
    let settings = SessionView::of(session).map_or(&[][..], |view| &view.settings);
    settings
        .iter()
        .map(|(name, value)| {
            vec![
                ("name", text(name)),
                ("setting", text(value)),
                ("category", text("Client Connection Defaults")),
                ("short_desc", text("")),
                ("context", text("user")),
                ("vartype", text("string")),
                ("source", text("session")),
                ("boot_val", text(value)),
                ("reset_val", text(value)),
                ("pending_restart", flag(false)),
            ]
        })
        .collect()
}

/// The connections that the role may see: its own, and for superusers all.
fn encryptions(catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    let Some(view) = SessionView::of(session) else {
        return Vec::new();
    };
    let sees_all = catalog.accounts().is_superuser(view.role);
    let connections = (view.clients)().into_iter();
    connections
        .filter(|connection| sees_all || connection.role == view.role)
        .map(|connection| {
            let mut row = vec![
                ("pid", Value::Int4(connection.pid as i32)),
                ("ssl", flag(connection.encryption.is_some())),
            ];
            if let Some(encryption) = connection.encryption {
                row.push(("version", text(encryption.version)));
                row.push(("cipher", text(encryption.cipher)));
                row.push(("bits", Value::Int4(encryption.bits)));
            }
            row
        })
        .collect()
}

/// Only advisory locks: the others lock hashes of keys.
fn locks(session: &dyn Session) -> Vec<Row> {
    let locks = SessionView::of(session).map_or_else(Vec::new, |view| (view.advisory_locks)());
    locks
        .into_iter()
        .map(|lock| {
            let (class, object, kind) = match lock.key {
                AdvisoryKey::Single(number) => ((number >> 32) as u32, number as u32, 1),
                AdvisoryKey::Pair(first, second) => (first as u32, second as u32, 2),
            };
            let pid = lock.pid as i32;
            let mode = if lock.shared { "ShareLock" } else { "ExclusiveLock" };
            vec![
                ("locktype", text("advisory")),
                ("database", oid(DATABASE_OID)),
                ("classid", oid(class)),
                ("objid", oid(object)),
                ("objsubid", Value::Int2(kind)),
                ("virtualtransaction", text(format!("{pid}/0"))),
                ("pid", Value::Int4(pid)),
                ("mode", text(mode)),
                ("granted", flag(lock.waits_since.is_none())),
                ("fastpath", flag(false)),
                (
                    "waitstart",
                    lock.waits_since.map_or(Value::Null, Value::TimestampTz),
                ),
            ]
        })
        .collect()
}

fn prepared_transactions(session: &dyn Session) -> Vec<Row> {
    let prepared = SessionView::of(session).map_or_else(Vec::new, |view| (view.prepared)());
    prepared
        .into_iter()
        .map(|prepared| {
            vec![
                // A transaction id has 32 bits, as PostgreSQL's, and goes round.
                ("transaction", oid(prepared.transaction as u32)),
                ("gid", text(prepared.name)),
                ("prepared", Value::TimestampTz(prepared.prepared_micros)),
                ("owner", text(prepared.owner)),
                ("database", text(session.database())),
            ]
        })
        .collect()
}

fn tablespaces() -> Vec<Row> {
    [(1663, "pg_default"), (1664, "pg_global")]
        .into_iter()
        .map(|(id, name)| {
            vec![
                ("oid", oid(id)),
                ("spcname", text(name)),
                ("spcowner", oid(ROLE_OID)),
            ]
        })
        .collect()
}

fn table_view(catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    catalog
        .tables()
        .map(|table| {
            vec![
                ("schemaname", text("public")),
                ("tablename", text(&table.name)),
                ("tableowner", accounts::owner_name(catalog, session, table.id.0)),
                ("hasindexes", flag(!table.indexes.is_empty())),
                ("hasrules", flag(false)),
                ("hastriggers", flag(false)),
                ("rowsecurity", flag(false)),
            ]
        })
        .collect()
}

fn index_view(catalog: &Catalog) -> Vec<Row> {
    all_indexes(catalog)
        .map(|(table, index)| {
            vec![
                ("schemaname", text("public")),
                ("tablename", text(&table.name)),
                ("indexname", text(&index.name)),
                ("indexdef", text(index_definition(table, index, true))),
            ]
        })
        .collect()
}

fn table_statistics(catalog: &Catalog) -> Vec<Row> {
    catalog
        .tables()
        .map(|table| {
            vec![
                ("relid", oid(table.id.0)),
                ("schemaname", text("public")),
                ("relname", text(&table.name)),
            ]
        })
        .collect()
}
