//! What fuzzing calls: any bytes as what is read of the catalog when a database is opened. See
//! [`weft_base::fuzzing`].
//!
//! The first byte says what the rest is: the header of a checkpoint, a catalog, or a sequence of catalog
//! operations as the log has them, each behind its length. Of an image of indexes: its footer, or a chunk of
//! one of its kinds behind the number of its items.

use weft_base::fuzzing::Target;
use weft_base::{BatchId, ByteReader, ByteWriter, CodecError, IndexId, RowId, TableId};
use weft_types::{SqlType, Value};

use crate::catalog::{
    Catalog, CatalogOp, ColumnDef, CommentClass, Commented, DefaultExpr, Distribution, FIRST_OBJECT_ID,
    Identity, IndexDef, IndexMethod, PUBLIC_SCHEMA_OID, ParamMode, ProcedureDef, ProcedureId,
    ProcedureLanguage, ProcedureParam, SequenceDef, SequenceId, SequenceState, SourceColumn, TableDef,
    ViewDef, ViewId, ViewSource,
};
use crate::checkpoint::format::Header;
use crate::checkpoint::image::{Footer, chunks};
use crate::memory::{ColdPlace, SlotId};
use crate::store::Store;

/// All targets.
pub const TARGETS: [Target; 2] = [
    Target {
        name: "catalog",
        run: catalog,
        seeds,
    },
    Target {
        name: "image",
        run: image,
        seeds: image_seeds,
    },
];

const HEADER: u8 = 0;
const CATALOG: u8 = 1;
const OPERATIONS: u8 = 2;
/// Operations of one input, at most.
const OPERATIONS_MAX: usize = 64;

/// A header, a catalog or operations: what is accepted is written and read as the same; operations apply or
/// are refused, and the digest stays that of the rows.
pub fn catalog(data: &[u8]) {
    match data.split_first() {
        Some((&HEADER, bytes)) => {
            if let Ok(header) = Header::decode(bytes) {
                let again = Header::encode(header.batch, header.digest, &header.catalog);
                let same = Header::decode(&again).is_ok_and(|again| again.catalog == header.catalog);
                assert!(same, "a header changes when it is written anew");
            }
        }
        Some((&CATALOG, bytes)) => {
            if let Ok(catalog) = Catalog::decode(&mut ByteReader::new(bytes)) {
                unchanged(&catalog);
            }
        }
        Some((_, bytes)) => operations(bytes),
        None => {}
    }
}

const FOOTER: u8 = 0;
const PLACES: u8 = 1;
const ENTRIES: u8 = 2;

/// A part of an image: what is accepted is what was written, or at least within its bounds.
pub fn image(data: &[u8]) {
    let Some((&kind, bytes)) = data.split_first() else {
        return;
    };
    if kind == FOOTER {
        let _ = Footer::decode(bytes);
        return;
    }
    let Some((&items, bytes)) = bytes.split_first() else {
        return;
    };
    let items = u64::from(items);
    match kind {
        PLACES => {
            if let Ok(regions) = chunks::places(bytes, items) {
                assert_eq!(regions.len(), 2);
            }
        }
        ENTRIES => {
            if let Ok(entries) = chunks::entries(bytes, items) {
                let again = chunks::entries(&chunks::put_entries(&entries), items);
                assert_eq!(
                    again.as_ref(),
                    Ok(&entries),
                    "entries change when they are written anew"
                );
            }
        }
        _ => {
            if let Ok(entries) = chunks::hashed(bytes, items) {
                assert_eq!(entries.len() as u64, items);
            }
        }
    }
}

fn image_seeds() -> Vec<Vec<u8>> {
    let place = |offset: u32, batch: u64, member: u32, ordinal: u32| ColdPlace {
        offset,
        row_id: RowId {
            batch: BatchId(batch),
            member,
            ordinal,
        },
        seal_bits: 0x00ab_cd00 << (offset % 8),
    };
    let first = [
        place(0, 7, 0, 0),
        place(1, 7, 0, 1),
        place(5, 7, 1, 1),
        place(255, 3, 9, 4),
    ];
    let second = [place(1_000, 3, 9, 5), place(1_023, u64::MAX, u32::MAX, u32::MAX)];
    let places = chunks::put_places(&[&first, &second]);
    let keys = ["", "a", "abc", "abd", "b"].map(|key| key.as_bytes().to_vec());
    let entries: Vec<_> = keys
        .into_iter()
        .zip((0..).map(|slot| SlotId(slot * 77 % 300)))
        .collect();
    let entries = chunks::put_entries(&entries);
    let mut hashed = Vec::new();
    for slot in 0..4u64 {
        hashed.put_u64(slot << 60 | slot);
        hashed.put_varint(slot * 500);
    }
    vec![
        [&[FOOTER], &chunks::footer()[..]].concat(),
        [&[PLACES, 6], &places[..]].concat(),
        [&[ENTRIES, 5], &entries[..]].concat(),
        [&[3, 4], &hashed[..]].concat(),
    ]
}

/// A catalog is the same, its digest included, when it is written and read again.
fn unchanged(catalog: &Catalog) {
    let mut bytes = Vec::new();
    catalog.encode(&mut bytes);
    let mut reader = ByteReader::new(&bytes);
    let again = Catalog::decode(&mut reader);
    assert_eq!(
        again.as_ref(),
        Ok(catalog),
        "a catalog changes when it is written anew"
    );
    assert!(reader.finish().is_ok());
    // What clients are told of the types.
    for column in catalog.tables().flat_map(|table| &table.columns) {
        let told = SqlType::from_typmod(column.ty.oid(), column.ty.typmod());
        assert_eq!(told, Some(column.ty), "a modifier that no type has");
    }
}

fn operations(bytes: &[u8]) {
    let store = Store::new();
    let mut reader = ByteReader::new(bytes);
    for _ in 0..OPERATIONS_MAX {
        let Ok(bytes) = reader.len_prefixed() else { break };
        let Ok(op) = operation(bytes) else { break };
        let batch = BatchId(store.boundary().0 + 1);
        let mut writer = store.begin_batch(batch);
        if writer.apply_catalog(&op).is_err() {
            writer.abort();
            continue;
        }
        unchanged(writer.catalog());
        // Rows, so that the operations that follow have some to write anew.
        let tables: Vec<_> = writer.catalog().tables().cloned().collect();
        for (number, table) in tables.iter().enumerate() {
            let mut member = writer.member(number as u32);
            if member.insert(table.id, table.layout.null_row()).is_ok() {
                member.commit();
            }
        }
        let digest = writer.finish();
        store.publish(batch);
        assert_eq!(
            Ok(digest),
            store.verify_digest(&store.snapshot()),
            "rows and digest differ"
        );
    }
    store.collect_garbage(usize::MAX);
}

/// One operation, the same when it is written and read again.
fn operation(bytes: &[u8]) -> Result<CatalogOp, CodecError> {
    let mut reader = ByteReader::new(bytes);
    let op = CatalogOp::decode(&mut reader)?;
    let (mut once, mut twice) = (Vec::new(), Vec::new());
    op.encode(&mut once);
    CatalogOp::decode(&mut ByteReader::new(&once))?.encode(&mut twice);
    assert_eq!(once, twice, "an operation changes when it is written anew");
    Ok(op)
}

fn index(id: u32, name: &str, table: u32, columns: &[usize], method: IndexMethod) -> IndexDef {
    IndexDef {
        id: IndexId(id),
        name: name.into(),
        table: TableId(table),
        columns: columns.to_vec(),
        unique: method == IndexMethod::Both,
        primary: false,
        method,
    }
}

fn view(id: u32, table: u32) -> ViewDef {
    ViewDef {
        id: ViewId(id),
        name: "y".into(),
        columns: vec![ColumnDef::new("a", SqlType::Int4)],
        query: "SELECT a FROM w".into(),
        sources: vec![ViewSource {
            relation: table,
            columns: vec![SourceColumn {
                name: "a".into(),
                used: true,
            }],
        }],
    }
}

/// A history that has every operation in it.
fn history() -> Vec<CatalogOp> {
    const A: u32 = FIRST_OBJECT_ID;
    let table = TableId(A);
    let mut columns = vec![
        ColumnDef::new("a", SqlType::Int4),
        ColumnDef::new("b", SqlType::Varchar(Some(9))),
        ColumnDef::new("c", SqlType::Numeric(None)),
    ];
    if let Some(column) = columns.first_mut() {
        column.identity = Some(Identity {
            always: true,
            sequence: SequenceId(A + 2),
        });
    }
    let text = |sql: &str| Some(DefaultExpr { sql: sql.into() });
    let sequence = SequenceDef {
        owned_by: Some((table, 0)),
        ..SequenceDef::new(SequenceId(A + 2), "s")
    };
    let procedure = ProcedureDef {
        id: ProcedureId(A + 5),
        name: "p".into(),
        params: vec![ProcedureParam {
            name: "x".into(),
            mode: ParamMode::InOut,
            ty: SqlType::Int8,
        }],
        language: ProcedureLanguage::Sql,
        body: "select 1".into(),
    };
    let (column, fill) = (ColumnDef::new("d", SqlType::Text), Value::Text("fill".into()));
    vec![
        CatalogOp::CreateTable(TableDef::new(table, "t", columns).with_index(index(
            A + 1,
            "i",
            A,
            &[1, 0],
            IndexMethod::Ordered,
        ))),
        CatalogOp::CreateSequence(sequence),
        CatalogOp::AdvanceSequence {
            id: SequenceId(A + 2),
            to: 7,
        },
        CatalogOp::SetSequence {
            id: SequenceId(A + 2),
            state: SequenceState {
                last_value: 9,
                is_called: false,
            },
        },
        CatalogOp::CreateIndex(index(A + 3, "u", A, &[1], IndexMethod::Both)),
        CatalogOp::AddColumn { table, column, fill },
        CatalogOp::SetDefault {
            table,
            column: 1,
            default: text("'x'"),
        },
        CatalogOp::SetNotNull {
            table,
            column: 3,
            not_null: false,
        },
        CatalogOp::RenameColumn {
            table,
            column: 3,
            name: "e".into(),
        },
        CatalogOp::RenameIndex {
            index: IndexId(A + 3),
            name: "v".into(),
        },
        CatalogOp::RenameTable {
            table,
            name: "w".into(),
        },
        CatalogOp::Truncate(table),
        CatalogOp::RetypeColumn {
            table,
            column: 1,
            ty: SqlType::Date,
        },
        CatalogOp::AddPrimaryKey(index(A + 4, "k", A, &[0], IndexMethod::Both)),
        CatalogOp::PutProcedure(procedure),
        CatalogOp::SetDistribution {
            table,
            distribution: Distribution::Replicated,
        },
        CatalogOp::SetIdentity {
            table,
            column: 0,
            identity: None,
        },
    ]
}

fn later_history() -> Vec<CatalogOp> {
    const A: u32 = FIRST_OBJECT_ID;
    let table = TableId(A);
    vec![
        CatalogOp::Comment {
            on: Commented::column(table, 3),
            text: Some("last".into()),
        },
        CatalogOp::Comment {
            on: Commented::object(CommentClass::Schema, PUBLIC_SCHEMA_OID),
            text: None,
        },
        CatalogOp::DropColumn { table, column: 2 },
        CatalogOp::DropIndex(IndexId(A + 3)),
        CatalogOp::DropProcedure(ProcedureId(A + 5)),
        CatalogOp::CreateSequence(SequenceDef::new(SequenceId(A + 6), "free")),
        CatalogOp::DropSequence(SequenceId(A + 6)),
        CatalogOp::PutView(view(A + 7, A)),
        CatalogOp::PutView(ViewDef {
            name: "z".into(),
            ..view(A + 7, A)
        }),
        CatalogOp::DropView(ViewId(A + 7)),
        CatalogOp::DropTable(table),
    ]
}

fn seeds() -> Vec<Vec<u8>> {
    let mut history = history();
    history.extend(later_history());
    let mut seeds = Vec::new();
    let mut written = vec![OPERATIONS];
    let mut catalog = Catalog::new();
    for (number, op) in history.iter().enumerate() {
        let mut bytes = Vec::new();
        op.encode(&mut bytes);
        written.put_len_prefixed(&bytes);
        if let Ok(next) = catalog.apply(op) {
            catalog = next;
        }
        if number % 5 == 3 {
            let mut bytes = vec![CATALOG];
            catalog.encode(&mut bytes);
            seeds.push(bytes);
            let header = Header::encode(BatchId(number as u64), catalog.digest(), &catalog);
            seeds.push([&[HEADER], &header[..]].concat());
            seeds.push(written.clone());
        }
    }
    seeds.push(written);
    seeds
}

#[cfg(test)]
mod tests {
    use weft_base::fuzzing::run_changed_seeds;

    use super::*;

    #[test]
    fn changed_seeds_are_read_or_refused() {
        run_changed_seeds(&TARGETS, 150);
    }

    #[test]
    fn the_history_applies_as_a_whole() {
        let mut catalog = Catalog::new();
        for op in history().into_iter().chain(later_history()) {
            catalog = catalog
                .apply(&op)
                .unwrap_or_else(|error| panic!("{op:?}: {error:?}"));
        }
        assert_eq!(catalog.tables().count(), 0);
    }
}
