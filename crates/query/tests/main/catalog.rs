//! The tables of the system catalogs.

use crate::fixture::bank;

#[test]
fn catalog_tables_describe_the_definitions() {
    let db = bank();
    assert_eq!(
        db.text("SELECT relname, relkind FROM pg_class WHERE relnamespace = 2200 ORDER BY relname"),
        "accounts|r\naccounts_owner|i\naccounts_pkey|i\nlines|r\nlines_pkey|i"
    );
    assert_eq!(
        db.text("SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute WHERE attrelid = 'accounts'::regclass ORDER BY attnum"),
        "id|integer|t\nowner|character varying(20)|t\nbalance|numeric(12,2)|f\nmemo|text|f"
    );
    assert_eq!(
        db.text("SELECT tablename FROM pg_tables ORDER BY 1"),
        "accounts\nlines"
    );
    assert_eq!(
        db.text("SELECT indexdef FROM pg_catalog.pg_indexes WHERE tablename = 'lines'"),
        "CREATE UNIQUE INDEX lines_pkey ON public.lines USING btree (a, b)"
    );
    assert_eq!(
        db.text("SELECT table_name, column_name, ordinal_position, data_type, is_nullable FROM information_schema.columns WHERE table_schema = 'public' AND table_name = 'lines' ORDER BY 3"),
        "lines|a|1|integer|NO\nlines|b|2|integer|NO"
    );
    assert_eq!(
        db.text("SELECT table_name FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"),
        "accounts\nlines"
    );
    assert_eq!(db.text("SELECT typname FROM pg_type WHERE oid = 23"), "int4");
    assert_eq!(
        db.text("SELECT 'accounts'::regclass::oid = c.oid FROM pg_class c WHERE relname = 'accounts'"),
        "t"
    );
    assert_eq!(
        db.text("SELECT c.oid::regclass::text FROM pg_class c WHERE relname = 'lines'"),
        "lines"
    );
    assert_eq!(db.state("SELECT 'nothing'::regclass"), "42P01");
    assert_eq!(db.state("SELECT * FROM pg_catalog.pg_nothing"), "42P01");
    assert_eq!(
        db.text("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'lines'::regclass"),
        "PRIMARY KEY (a, b)"
    );
    assert_eq!(
        db.text("SELECT count(*) FROM pg_settings WHERE name = 'server_version'"),
        "1"
    );
}

#[test]
fn every_catalog_table_can_be_read() {
    let db = bank();
    for name in [
        "pg_namespace",
        "pg_class",
        "pg_attribute",
        "pg_attrdef",
        "pg_type",
        "pg_index",
        "pg_constraint",
        "pg_sequence",
        "pg_depend",
        "pg_database",
        "pg_roles",
        "pg_authid",
        "pg_user",
        "pg_am",
        "pg_collation",
        "pg_settings",
        "pg_tablespace",
        "pg_tables",
        "pg_indexes",
        "pg_description",
        "pg_proc",
        "pg_inherits",
        "pg_policy",
        "pg_trigger",
        "pg_statistic_ext",
        "pg_publication",
        "pg_foreign_table",
        "pg_partitioned_table",
        "pg_enum",
        "pg_range",
        "pg_stat_activity",
        "pg_locks",
    ] {
        db.rows(&format!("SELECT * FROM pg_catalog.{name}"));
    }
    for name in [
        "schemata",
        "tables",
        "columns",
        "table_constraints",
        "key_column_usage",
        "views",
        "routines",
    ] {
        db.rows(&format!("SELECT * FROM information_schema.{name}"));
    }
}

#[test]
fn a_users_own_table_may_be_called_like_a_column_of_the_catalog() {
    let db = bank();
    db.table("name", &[("value", weft_types::SqlType::Int4)], &[]);
    assert_eq!(db.text("SELECT count(*) FROM name"), "0");
}
