//! The catalog alone: PostgreSQL's errors, encoding both ways, bad bytes.

use std::sync::Arc;

use proptest::prelude::*;
use weft_base::{BatchId, ByteReader, IndexId, TableId};
use weft_store::{
    Catalog, CatalogOp, ColumnDef, DefaultExpr, Distribution, FIRST_OBJECT_ID, Identity, IndexDef,
    IndexMethod, ParamMode, ProcedureDef, ProcedureId, ProcedureLanguage, ProcedureParam, Relation,
    SequenceDef, SequenceId, SequenceState, SourceColumn, TableDef, ViewDef, ViewId, ViewSource,
};
use weft_types::{NumericSpec, SqlType, Value};

use crate::fixture::{self, ITEMS, ITEMS_NAME, ITEMS_PKEY, NOTES};

fn catalog() -> Catalog {
    let catalog = Catalog::new()
        .apply(&CatalogOp::CreateTable(fixture::items()))
        .unwrap();
    catalog.apply(&CatalogOp::CreateTable(fixture::notes())).unwrap()
}

fn refused(catalog: &Catalog, op: CatalogOp) -> (String, String) {
    let error = catalog.apply(&op).unwrap_err();
    (error.state.code().to_owned(), error.message.clone())
}

#[test]
fn names_and_ids_are_found() {
    let catalog = catalog();
    assert_eq!(catalog.version().0, 2);
    assert_eq!(catalog.table("items").unwrap().id, ITEMS);
    assert!(catalog.table("items_pkey").is_none());
    assert_eq!(catalog.index_by_name("items_pkey").unwrap().id, ITEMS_PKEY);
    assert_eq!(catalog.index_by_id(ITEMS_PKEY).unwrap().table, ITEMS);
    assert_eq!(
        catalog.relation("items_pkey"),
        Some(Relation::Index(ITEMS_PKEY, ITEMS))
    );
    assert_eq!(catalog.tables().count(), 2);
    assert_eq!(catalog.free_name("items_pkey"), "items_pkey1");
    assert_eq!(catalog.free_name("fresh"), "fresh");
    let items = catalog.table("items").unwrap();
    assert!(items.columns[0].not_null, "a primary key's columns refuse NULL");
    assert_eq!(items.column_index("name"), Some(2));
    let error = catalog.table_or_error("nothing").unwrap_err();
    assert_eq!(
        (error.state.code(), error.message.as_str()),
        ("42P01", "relation \"nothing\" does not exist")
    );
}

#[test]
fn errors_are_postgresqls() {
    let catalog = catalog();
    let next = catalog.next_object_id();
    let table = |name: &str, columns| CatalogOp::CreateTable(TableDef::new(TableId(next), name, columns));
    let (state, message) = refused(&catalog, table("items_pkey", vec![]));
    assert_eq!(
        (state.as_str(), message.as_str()),
        ("42P07", "relation \"items_pkey\" already exists")
    );
    let twice = vec![
        ColumnDef::new("a", SqlType::Int4),
        ColumnDef::new("a", SqlType::Text),
    ];
    let (state, message) = refused(&catalog, table("t", twice));
    assert_eq!(
        (state.as_str(), message.as_str()),
        ("42701", "column \"a\" specified more than once")
    );
    let index = |columns: &[usize]| fixture::index(IndexId(next), "i", ITEMS, columns, IndexMethod::Both);
    let primary = IndexDef {
        primary: true,
        unique: true,
        ..index(&[1])
    };
    let (state, message) = refused(&catalog, CatalogOp::CreateIndex(primary));
    assert_eq!(
        (state.as_str(), message.as_str()),
        (
            "42P16",
            "multiple primary keys for table \"items\" are not allowed"
        )
    );
    assert_eq!(refused(&catalog, CatalogOp::CreateIndex(index(&[9]))).0, "42703");
    assert_eq!(refused(&catalog, CatalogOp::CreateIndex(index(&[]))).0, "54011");
    assert_eq!(refused(&catalog, CatalogOp::DropTable(TableId(7))).0, "42P01");
    assert_eq!(refused(&catalog, CatalogOp::DropIndex(IndexId(7))).0, "42704");
    let clear = CatalogOp::SetNotNull {
        table: ITEMS,
        column: 0,
        not_null: false,
    };
    assert_eq!(
        refused(&catalog, clear),
        ("42P16".into(), "column \"id\" is in a primary key".into())
    );
    let rename = CatalogOp::RenameColumn {
        table: ITEMS,
        column: 0,
        name: "kind".into(),
    };
    assert_eq!(refused(&catalog, rename).0, "42701");
    let stale = TableDef::new(NOTES, "t", vec![]);
    assert_eq!(refused(&catalog, CatalogOp::CreateTable(stale)).0, "40001");
    let many = (0..1_601)
        .map(|n| ColumnDef::new(format!("c{n}"), SqlType::Bool))
        .collect();
    assert_eq!(refused(&catalog, table("t", many)).0, "54011");
    let add = CatalogOp::AddColumn {
        table: ITEMS,
        column: ColumnDef::new("extra", SqlType::Int4),
        fill: Value::Text("x".into()),
    };
    assert_eq!(refused(&catalog, add).0, "42804");
}

#[test]
fn sequences_follow_their_table() {
    let catalog = catalog();
    let id = SequenceId(catalog.next_object_id());
    let owned = SequenceDef {
        owned_by: Some((ITEMS, 1)),
        ..SequenceDef::new(id, "items_kind_seq")
    };
    let catalog = catalog.apply(&CatalogOp::CreateSequence(owned.clone())).unwrap();
    let zero = SequenceDef {
        increment: 0,
        id: SequenceId(id.0 + 1),
        name: "z".into(),
        ..owned.clone()
    };
    assert_eq!(
        refused(&catalog, CatalogOp::CreateSequence(zero)).1,
        "INCREMENT must not be zero"
    );
    let out = CatalogOp::SetSequence {
        id,
        state: SequenceState {
            last_value: 0,
            is_called: false,
        },
    };
    assert_eq!(refused(&catalog, out).0, "22003");
    let moved = catalog
        .apply(&CatalogOp::DropColumn {
            table: ITEMS,
            column: 0,
        })
        .unwrap();
    assert_eq!(
        moved.sequence("items_kind_seq").unwrap().owned_by,
        Some((ITEMS, 0))
    );
    assert!(
        catalog
            .apply(&CatalogOp::DropColumn {
                table: ITEMS,
                column: 1
            })
            .unwrap()
            .sequence_by_id(id)
            .is_none()
    );
    assert!(
        catalog
            .apply(&CatalogOp::DropTable(ITEMS))
            .unwrap()
            .sequence("items_kind_seq")
            .is_none()
    );
    let dropped = catalog.apply(&CatalogOp::DropSequence(id)).unwrap();
    assert!(dropped.sequence_state(id).is_none());
    assert!(dropped.next_object_id() > id.0, "ids are not used again");

    let def = SequenceDef {
        max_value: 3,
        ..owned
    };
    let at = |last_value| SequenceState {
        last_value,
        is_called: true,
    };
    assert_eq!(def.initial_state().next(&def), Some(1));
    assert_eq!((at(2).next(&def), at(3).next(&def)), (Some(3), None));
    assert_eq!(at(3).next(&SequenceDef { cycle: true, ..def }), Some(1));
}

fn ops() -> Vec<CatalogOp> {
    let next = catalog().next_object_id();
    let types = [
        SqlType::Bool,
        SqlType::Int2,
        SqlType::Float4,
        SqlType::Numeric(None),
        SqlType::Numeric(Some(NumericSpec {
            precision: 10,
            scale: -2,
        })),
        SqlType::Varchar(None),
        SqlType::Varchar(Some(10)),
        SqlType::Char(3),
        SqlType::Bytea,
        SqlType::Date,
        SqlType::Timestamp,
        SqlType::TimestampTz,
        SqlType::Uuid,
    ];
    let mut columns: Vec<ColumnDef> = types
        .into_iter()
        .enumerate()
        .map(|(at, ty)| ColumnDef::new(format!("c{at}"), ty))
        .collect();
    columns[1].default = Some(DefaultExpr { sql: "1 + 1".into() });
    columns[1].identity = Some(Identity {
        always: true,
        sequence: SequenceId(next),
    });
    let index = fixture::index(
        IndexId(next + 2),
        "wide_idx",
        TableId(next + 1),
        &[0, 3, 2],
        IndexMethod::Hash,
    );
    let sequence = SequenceDef {
        cycle: true,
        owned_by: Some((ITEMS, 0)),
        ..SequenceDef::new(SequenceId(next), "s")
    };
    vec![
        CatalogOp::CreateSequence(sequence),
        CatalogOp::CreateTable(TableDef::new(TableId(next + 1), "wide", columns).with_index(index)),
        CatalogOp::AdvanceSequence {
            id: SequenceId(next),
            to: 12,
        },
        CatalogOp::SetSequence {
            id: SequenceId(next),
            state: SequenceState {
                last_value: 4,
                is_called: false,
            },
        },
        CatalogOp::SetNotNull {
            table: ITEMS,
            column: 1,
            not_null: true,
        },
        CatalogOp::SetDefault {
            table: ITEMS,
            column: 1,
            default: Some(DefaultExpr { sql: "7".into() }),
        },
        CatalogOp::AddColumn {
            table: NOTES,
            column: ColumnDef::new("x", SqlType::Text),
            fill: Value::Text("f".into()),
        },
        CatalogOp::AddColumn {
            table: NOTES,
            column: ColumnDef::new("y", SqlType::Int4),
            fill: Value::Null,
        },
        CatalogOp::RenameColumn {
            table: NOTES,
            column: 0,
            name: "text".into(),
        },
        CatalogOp::RenameTable {
            table: NOTES,
            name: "remarks".into(),
        },
        CatalogOp::RenameIndex {
            index: ITEMS_PKEY,
            name: "items_pk".into(),
        },
        CatalogOp::CreateIndex(fixture::index(
            IndexId(next + 3),
            "more",
            ITEMS,
            &[1],
            IndexMethod::Ordered,
        )),
        CatalogOp::DropIndex(ITEMS_PKEY),
        CatalogOp::AddPrimaryKey(IndexDef {
            primary: true,
            unique: true,
            ..fixture::index(IndexId(next + 4), "items_pkey", ITEMS, &[0, 1], IndexMethod::Both)
        }),
        CatalogOp::Truncate(ITEMS),
        CatalogOp::DropColumn {
            table: NOTES,
            column: 0,
        },
        CatalogOp::DropTable(TableId(next + 1)),
        CatalogOp::DropSequence(SequenceId(next)),
        CatalogOp::PutProcedure(procedure(next + 5, "null;")),
        CatalogOp::PutProcedure(procedure(next + 5, "begin end")),
        CatalogOp::DropProcedure(ProcedureId(next + 5)),
        CatalogOp::DropIndex(ITEMS_NAME),
        CatalogOp::SetDistribution {
            table: ITEMS,
            distribution: Distribution::Hash,
        },
        CatalogOp::PutProcedure(procedure(next + 6, "null;")),
        CatalogOp::SetDistribution {
            table: ITEMS,
            distribution: Distribution::Replicated,
        },
        CatalogOp::PutView(view(next + 7, "seen", ITEMS.0, &[("id", true), ("name", false)])),
        CatalogOp::PutView(view(next + 8, "seen_too", next + 7, &[("c0", true)])),
        CatalogOp::PutView(view(next + 8, "renamed", next + 7, &[("c0", true)])),
        CatalogOp::DropView(ViewId(next + 8)),
        CatalogOp::RetypeColumn {
            table: NOTES,
            column: 0,
            ty: SqlType::Bytea,
        },
    ]
}

/// A view with one column `c0`, which reads columns of a relation and names some of them.
fn view(id: u32, name: &str, relation: u32, columns: &[(&str, bool)]) -> ViewDef {
    let column = |(name, used): &(&str, bool)| SourceColumn {
        name: (*name).into(),
        used: *used,
    };
    ViewDef {
        id: ViewId(id),
        name: name.into(),
        columns: vec![ColumnDef::new("c0", SqlType::Int4)],
        query: "SELECT 1 AS c0".into(),
        sources: vec![ViewSource {
            relation,
            columns: columns.iter().map(column).collect(),
        }],
    }
}

#[test]
fn views_hold_what_they_use_and_forget_what_they_do_not() {
    let catalog = catalog();
    let next = catalog.next_object_id();
    let first = view(next, "one", ITEMS.0, &[("id", true), ("name", false)]);
    let second = view(next + 1, "two", next, &[("c0", true)]);
    let with = catalog.apply(&CatalogOp::PutView(first.clone())).unwrap();
    let with = with.apply(&CatalogOp::PutView(second.clone())).unwrap();
    assert_eq!(with.view("two").unwrap().id, ViewId(next + 1));
    let column = |name: &str| {
        let column = with.table_by_id(ITEMS).unwrap().column_index(name).unwrap();
        u32::try_from(column).unwrap()
    };
    for op in [
        CatalogOp::DropTable(ITEMS),
        CatalogOp::DropView(ViewId(next)),
        CatalogOp::DropColumn {
            table: ITEMS,
            column: column("id"),
        },
    ] {
        assert_eq!(refused(&with, op).0, "2BP01");
    }
    for op in [
        CatalogOp::RenameTable {
            table: ITEMS,
            name: "things".into(),
        },
        CatalogOp::RenameColumn {
            table: ITEMS,
            column: column("id"),
            name: "key".into(),
        },
        CatalogOp::PutView(ViewDef {
            name: "other".into(),
            ..first.clone()
        }),
    ] {
        assert_eq!(refused(&with, op).0, "0A000");
    }
    let renamed = CatalogOp::RenameColumn {
        table: ITEMS,
        column: column("name"),
        name: "title".into(),
    };
    let after = with.apply(&renamed).unwrap();
    let left = &after.view("one").unwrap().sources[0].columns;
    assert_eq!(
        left.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(),
        ["id"]
    );

    // Names, circles, columns, sources.
    let put = |view: ViewDef| refused(&with, CatalogOp::PutView(view)).0;
    assert_eq!(put(view(next + 2, "items", ITEMS.0, &[])), "42P07");
    assert_eq!(put(view(next, "one", next + 1, &[])), "42P17");
    assert_eq!(put(view(next, "one", next, &[])), "42P17");
    assert_eq!(put(view(next + 2, "three", next + 9, &[])), "42P01");
    assert_eq!(put(view(next + 2, "three", next, &[("nothing", true)])), "42703");
    let mut other = first;
    other.columns[0].ty = SqlType::Int8;
    assert_eq!(put(other.clone()), "42P16");
    other.columns.clear();
    assert_eq!(put(other), "42P16");
    let gone = with.apply(&CatalogOp::DropView(ViewId(next + 1))).unwrap();
    let gone = gone.apply(&CatalogOp::DropView(ViewId(next))).unwrap();
    assert!(gone.views().next().is_none() && gone.relation("one").is_none());
    assert_eq!(refused(&gone, CatalogOp::DropView(ViewId(next))).0, "42P01");
}

#[test]
fn a_partitioned_table_keeps_its_key_and_unique_indexes_contain_its_first_column() {
    let place = |table| CatalogOp::SetDistribution {
        table,
        distribution: Distribution::Hash,
    };
    let catalog = catalog();
    assert_eq!(refused(&catalog, place(ITEMS)).0, "0A000");
    let catalog = catalog.apply(&CatalogOp::DropIndex(ITEMS_NAME)).unwrap();
    let next = catalog.next_object_id();
    let (state, message) = refused(&catalog, place(NOTES));
    assert_eq!(
        (state.as_str(), message.as_str()),
        (
            "42P16",
            "table \"notes\" cannot be partitioned without a primary key"
        )
    );
    let unique = |columns: &[usize]| {
        CatalogOp::CreateIndex(IndexDef {
            unique: true,
            ..fixture::index(IndexId(next), "u", ITEMS, columns, IndexMethod::Both)
        })
    };
    let with_index = catalog.apply(&unique(&[1])).unwrap();
    assert_eq!(refused(&with_index, place(ITEMS)).0, "0A000");
    let placed = catalog.apply(&place(ITEMS)).unwrap();
    assert_eq!(placed.table_by_id(ITEMS).unwrap().partition_column(), Some(0));
    assert_eq!(refused(&placed, unique(&[1])).0, "0A000");
    placed.apply(&unique(&[1, 0])).unwrap();
    assert_eq!(refused(&placed, CatalogOp::DropIndex(ITEMS_PKEY)).0, "0A000");
    let drop_key = CatalogOp::DropColumn {
        table: ITEMS,
        column: 0,
    };
    assert_eq!(refused(&placed, drop_key).0, "0A000");
}

fn procedure(id: u32, body: &str) -> ProcedureDef {
    let param = |name: &str, mode, ty| ProcedureParam {
        name: name.into(),
        mode,
        ty,
    };
    ProcedureDef {
        id: ProcedureId(id),
        name: "transfer".into(),
        params: vec![
            param("from", ParamMode::In, SqlType::Int8),
            param("left", ParamMode::Out, SqlType::Numeric(None)),
            param("", ParamMode::InOut, SqlType::Varchar(None)),
        ],
        language: ProcedureLanguage::PlPgSql,
        body: body.into(),
    }
}

#[test]
fn procedures_have_a_separate_namespace() {
    let catalog = catalog();
    let next = catalog.next_object_id();
    let named = |id, name: &str| {
        CatalogOp::PutProcedure(ProcedureDef {
            name: name.into(),
            ..procedure(id, "")
        })
    };
    let with = catalog.apply(&named(next, "items")).unwrap();
    assert_eq!(with.procedure("items").unwrap().id, ProcedureId(next));
    assert_eq!(with.table("items").unwrap().id, ITEMS);
    assert_eq!(refused(&with, named(next + 1, "items")).0, "42723");
    assert_eq!(refused(&with, named(next - 1, "other")).0, "40001");
    assert_eq!(refused(&with, named(next + 1, "")).0, "42602");
    assert_eq!(
        refused(&catalog, CatalogOp::DropProcedure(ProcedureId(next))).0,
        "42883"
    );
}

#[test]
fn operations_and_catalogs_round_trip() {
    let mut catalog = catalog();
    for op in ops() {
        let mut bytes = Vec::new();
        op.encode(&mut bytes);
        let mut reader = ByteReader::new(&bytes);
        assert_eq!(CatalogOp::decode(&mut reader).unwrap(), op);
        reader.finish().unwrap();
        for cut in 0..bytes.len() {
            assert!(
                CatalogOp::decode(&mut ByteReader::new(&bytes[..cut])).is_err(),
                "{op:?} cut at {cut}"
            );
        }
        let next = catalog.apply(&op).unwrap();
        assert_eq!(
            next.version().0 - catalog.version().0,
            u64::from(!op.keeps_version())
        );
        if !matches!(op, CatalogOp::Truncate(_)) {
            assert_ne!(next.digest(), catalog.digest(), "{op:?}");
        }
        catalog = next;

        let mut bytes = Vec::new();
        catalog.encode(&mut bytes);
        let mut reader = ByteReader::new(&bytes);
        let again = Catalog::decode(&mut reader).unwrap();
        reader.finish().unwrap();
        assert_eq!(again, catalog);
        assert_eq!(again.digest(), catalog.digest());
        for cut in 0..bytes.len() {
            // Sections at the end may be missing: what is there is a catalog without what the last ones say.
            if let Ok(cut) = Catalog::decode(&mut ByteReader::new(&bytes[..cut])) {
                let sections = |catalog: &Catalog| {
                    let is_placed = |table: &Arc<TableDef>| table.distribution != Distribution::Single;
                    let has_earlier = |table: &Arc<TableDef>| table.laid_out_since() > BatchId(0);
                    [
                        catalog.procedures().next().is_some(),
                        catalog.tables().any(is_placed),
                        catalog.tables().any(has_earlier),
                        catalog.views().next().is_some(),
                    ]
                };
                let (all, left) = (sections(&catalog), sections(&cut));
                let kept = left
                    .iter()
                    .rposition(|is_there| *is_there)
                    .map_or(0, |last| last + 1);
                assert!(left != all && left[..kept] == all[..kept], "{all:?} {left:?}");
                assert_ne!(cut.digest(), catalog.digest());
            }
        }
    }
}

proptest! {
    #[test]
    fn damaged_catalogs_do_not_panic(at in 0usize..4_000, bit in 0u8..8, noise: Vec<u8>) {
        let mut catalog = catalog();
        for op in ops().iter().take(12) {
            catalog = catalog.apply(op).unwrap();
        }
        let mut bytes = Vec::new();
        catalog.encode(&mut bytes);
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        drop(Catalog::decode(&mut ByteReader::new(&bytes)));
        drop(Catalog::decode(&mut ByteReader::new(&noise)));
        drop(CatalogOp::decode(&mut ByteReader::new(&noise)));
    }

    #[test]
    fn free_ids_start_high(extra in 0u32..5) {
        let op = CatalogOp::CreateTable(TableDef::new(TableId(FIRST_OBJECT_ID + extra), "t", vec![]));
        prop_assert_eq!(Catalog::new().apply(&op).unwrap().next_object_id(), FIRST_OBJECT_ID + extra + 1);
    }
}
