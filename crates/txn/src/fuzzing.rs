//! What fuzzing calls: any bytes as the record of a batch, decoded and replayed. See
//! [`weft_base::fuzzing`].
//!
//! A fuzzer does not guess hashes. So a record is replayed twice: as it is, and with its members calling the
//! programs that it defines.

use std::cell::RefCell;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use weft_base::fuzzing::Target;
use weft_base::{BatchId, Disk, IndexId, ManualClock, Progress, SimDisk, TableId};
use weft_program::{Program, ProgramHash, asm};
use weft_store::checkpoint::CheckpointConfig;
use weft_store::{
    CatalogOp, ColumnDef, FIRST_OBJECT_ID, IndexDef, IndexMethod, Locator, SequenceDef, SequenceId, TableDef,
};
use weft_types::{SqlError, SqlType, Value, encode_key_value};
use weft_wal::LogReader;

use crate::record::{BUDGET_OF_INSTRUCTIONS, BatchRecord, MemberRecord};
use crate::recovery::Replay;
use crate::transaction::TxnOptions;
use crate::write_set::{self, RowPosition, WriteOp};
use crate::{Engine, EngineConfig, EngineError};

/// All targets.
pub const TARGETS: [Target; 1] = [Target {
    name: "record",
    run: record,
    seeds,
}];

const DIR: &str = "/fuzz";
const TABLE: TableId = TableId(FIRST_OBJECT_ID);
/// A record of more members is decoded only: each may run for the whole budget of a program.
const MEMBERS_MAX: usize = 2;

/// A record: what is accepted has these bytes alone (but for the older version), and so have its write
/// sets; applying it gives the state that it names, or an error and the state before.
pub fn record(data: &[u8]) {
    let Ok(mut record) = BatchRecord::decode(data) else {
        return;
    };
    let again = record.encode();
    assert_eq!(BatchRecord::decode(&again).as_ref(), Ok(&record));
    let form = match data.first() {
        // Version 3 has the form of version 2, and other costs.
        Some(3) => BatchRecord {
            budget: BUDGET_OF_INSTRUCTIONS,
            ..record.clone()
        }
        .encode(),
        _ => again,
    };
    assert_eq!(form.get(1..), data.get(1..), "a record has two forms");
    for member in &record.members {
        if let MemberRecord::Commit { write_set, .. } = member {
            operations(write_set);
        }
    }
    if record.members.len() > MEMBERS_MAX {
        return;
    }
    replay(data);
    let hashes: Vec<ProgramHash> = record
        .programs
        .iter()
        .map(|bytes| ProgramHash::of(bytes))
        .collect();
    let mut next = hashes.iter().cycle();
    for member in &mut record.members {
        if let (MemberRecord::Program { hash, .. }, Some(fitting)) = (member, next.next()) {
            *hash = *fitting;
        }
    }
    replay(&record.encode());
}

/// A write set is a sequence of operations, each of which has these bytes alone.
fn operations(bytes: &[u8]) {
    let mut again = Vec::new();
    for op in write_set::operations(bytes) {
        match op {
            Ok(WriteOp::Insert { table, row }) => write_set::put_insert(&mut again, table, row),
            Ok(WriteOp::Update { table, place, row }) => {
                write_set::put_update(&mut again, table, &place, row);
            }
            Ok(WriteOp::Delete { table, place }) => write_set::put_delete(&mut again, table, &place),
            Err(_) => return,
        }
    }
    assert_eq!(again, bytes, "a write set has two forms");
}

thread_local! {
    /// Stands behind the first batches, and how many records were refused there since.
    static STATE: RefCell<Option<(Replay, u32)>> = const { RefCell::new(None) };
}
/// Programs of refused records stay known; so many are forgotten at once.
const REFUSED_MAX: u32 = 64;

fn replay(record: &[u8]) {
    STATE.with_borrow_mut(|state| {
        let (mut replay, refused) = match state.take() {
            Some(state) => state,
            None => match stand() {
                Some(replay) => (replay, 0),
                None => return,
            },
        };
        let (boundary, digest) = (replay.store().boundary(), replay.store().state_digest());
        let applied = replay.apply(BatchId(boundary.0 + 1), record);
        let store = replay.store();
        assert_eq!(
            store.verify_digest(&store.snapshot()),
            Ok(store.state_digest()),
            "rows and digest differ"
        );
        if applied.is_err() {
            assert_eq!(store.boundary(), boundary, "a refused record left a boundary");
            assert_eq!(
                store.state_digest(),
                digest,
                "a refused record left something behind"
            );
            // A batch with another digest has been finished: nothing comes after it.
            let goes_on =
                refused < REFUSED_MAX && !matches!(applied, Err(EngineError::DigestMismatch { .. }));
            *state = goes_on.then_some((replay, refused + 1));
        }
    });
}

fn config() -> EngineConfig {
    EngineConfig {
        workers: 1,
        segment_bytes: 8192,
        checkpoint_every_bytes: 0,
        checkpoint: CheckpointConfig {
            merge_beside: false,
            ..CheckpointConfig::default()
        },
        ..EngineConfig::default()
    }
}

fn engine(disk: &SimDisk) -> Option<Engine> {
    let (disk, clock): (Arc<dyn Disk>, _) = (Arc::new(disk.clone()), Arc::new(ManualClock::new(0)));
    Engine::open(disk, Path::new(DIR), clock, config(), &Progress::default()).ok()
}

/// A replay of the first batches, at its end.
fn stand() -> Option<Replay> {
    let disk: Arc<dyn Disk> = Arc::new(base()?.fork(0));
    let mut replay = Replay::open(disk, Path::new(DIR), &config(), &Progress::default()).ok()?;
    while replay.step().ok()?.is_some() {}
    Some(replay)
}

const HEAD: &str = ".program catalog 1\n.inputs\n  i0 int8\n  i1 int8\n.consts\n.tables\n  \
    t0 16384 (int8, int8) x0 16385 unique ordered primary (0)\n.outputs\n";
const TAIL: &str = ".commit\n  commit\n.abort\n  abort\n";
/// (id, v): inserts a row.
const OPEN: &str = ".access\n  insert_row t0 [i0]\n.logic\n  row b0, t0\n  setin b0.0, i0\n  setin b0.1, i1\n  \
    insert cp0, t0, b0\n  ret r0, cp0\n  end\n";
/// (id, n): adds n to a row's value.
const ADD: &str = ".access\n  write_row t0 [i0]\n.logic\n  key k0\n  keyin k0, i0\n  search cp0, t0.x0, k0\n  \
    ret r0, cp0\n  bnt r0, done\n  ldcol r1, cp0.1\n  ldin r2, i1\n  add r1, r1, r2\n  copyrow b0, cp0\n  \
    setr b0.1, r1\n  update cp0, b0\n  ret r0, cp0\ndone:\n  end\n";

fn program(text: &str) -> Option<Arc<Program>> {
    asm::parse(&[HEAD, text, TAIL].concat()).ok().map(Arc::new)
}

fn call(engine: &Engine, program: &Arc<Program>, id: i64, n: i64) -> Option<()> {
    let inputs = program.encode_inputs(&[Value::Int8(id), Value::Int8(n)]).ok()?;
    engine.execute(program, inputs).ok().map(drop)
}

fn table() -> TableDef {
    let columns = ["id", "v"].map(|name| ColumnDef::new(name, SqlType::Int8));
    TableDef::new(TABLE, "t", columns.to_vec()).with_index(IndexDef {
        id: IndexId(FIRST_OBJECT_ID + 1),
        name: "t_pkey".into(),
        table: TABLE,
        columns: vec![0],
        unique: true,
        primary: true,
        method: IndexMethod::Both,
    })
}

/// A disk with a table and three rows, made once.
fn base() -> Option<&'static SimDisk> {
    static BASE: OnceLock<Option<SimDisk>> = OnceLock::new();
    let make = || {
        let disk = SimDisk::new(0);
        let engine = engine(&disk)?;
        let mut session = engine.begin(TxnOptions::default());
        session.catalog_op(CatalogOp::CreateTable(table())).ok()?;
        session.commit().ok()?;
        let open = program(OPEN)?;
        for id in 1..=3 {
            call(&engine, &open, id, 100)?;
        }
        engine.wait_durable(engine.boundary()).ok()?;
        drop(engine);
        Some(disk)
    };
    BASE.get_or_init(make).as_ref()
}

/// The records that an engine writes for calls, a session and definitions behind the first batches, and one
/// with every operation of a write set.
fn seeds() -> Vec<Vec<u8>> {
    written().unwrap_or_default()
}

fn written() -> Option<Vec<Vec<u8>>> {
    let disk = base()?.fork(1);
    let engine = engine(&disk)?;
    let (open, add) = (program(OPEN)?, program(ADD)?);
    call(&engine, &add, 1, -7)?;
    call(&engine, &open, 4, 0)?;
    call(&engine, &add, 9, 1)?;
    session(&engine).ok()?;
    engine.wait_durable(engine.boundary()).ok()?;
    drop(engine);
    let reader = LogReader::open(Arc::new(disk), Path::new(DIR)).ok()?;
    let mut seeds: Vec<Vec<u8>> = reader
        .filter_map(Result::ok)
        .map(|record| record.payload)
        .collect();
    seeds.push(by_hand(&open, &add)?);
    Some(seeds)
}

fn session(engine: &Engine) -> Result<(), SqlError> {
    let mut session = engine.begin(TxnOptions::default());
    let column = ColumnDef::new("w", SqlType::Text);
    let fill = Value::Text("x".into());
    let table = TABLE;
    session.catalog_op(CatalogOp::AddColumn { table, column, fill })?;
    session.commit().map(drop).map_err(|refused| refused.error)?;
    let mut session = engine.begin(TxnOptions::default());
    if let Some(def) = engine.catalog().table_by_id(TABLE) {
        let row = def
            .layout
            .encode(&[Value::Int8(20), Value::Int8(0), Value::Text("new".into())])?;
        session.insert(def, &[row])?;
    }
    session.commit().map(drop).map_err(|refused| refused.error)
}

/// Two waves: both programs defined and called, and a write set.
fn by_hand(open: &Program, add: &Program) -> Option<Vec<u8>> {
    let inputs = |id| open.encode_inputs(&[Value::Int8(id), Value::Int8(5)]).ok();
    let layout = table().layout;
    let row = |id, v| layout.encode(&[Value::Int8(id), Value::Int8(v)]).ok();
    let key = |id| {
        let mut key = Vec::new();
        encode_key_value(&mut key, &Value::Int8(id));
        RowPosition::Located(Locator::Key(key))
    };
    let mut write_set = Vec::new();
    write_set::put_insert(&mut write_set, TABLE, &row(30, 1)?);
    write_set::put_update(&mut write_set, TABLE, &RowPosition::Own(0), &row(31, 2)?);
    write_set::put_update(&mut write_set, TABLE, &key(2), &row(2, 2)?);
    write_set::put_delete(&mut write_set, TABLE, &key(3));
    write_set::put_delete(&mut write_set, TABLE, &RowPosition::Own(0));
    let call = |program: &Program, id| {
        Some(MemberRecord::Program {
            hash: program.hash(),
            inputs: inputs(id)?,
        })
    };
    let mut definition = Vec::new();
    CatalogOp::CreateSequence(SequenceDef::new(SequenceId(FIRST_OBJECT_ID + 2), "s")).encode(&mut definition);
    let commit = |catalog_ops| MemberRecord::Commit {
        catalog_ops,
        write_set: write_set.clone(),
    };
    let record = BatchRecord {
        catalog_version: 1,
        programs: vec![open.encode(), add.encode()],
        members: vec![
            call(open, 11)?,
            call(add, 1)?,
            commit(vec![definition]),
            call(add, 11)?,
        ],
        wave_ends: vec![2, 3, 4],
        ..BatchRecord::default()
    };
    Some(record.encode())
}

#[cfg(test)]
mod tests {
    use weft_base::fuzzing::run_changed_seeds;

    use super::*;
    use crate::record::BUDGET;

    #[test]
    fn changed_seeds_are_replayed_or_refused() {
        run_changed_seeds(&TARGETS, 60);
    }

    /// The target reaches what is behind the decoder.
    #[test]
    fn the_next_record_of_the_log_is_applied() {
        let seeds = seeds();
        assert_eq!(seeds.len(), 10);
        let mut replay = stand().unwrap();
        let boundary = replay.store().boundary();
        assert_eq!(boundary, BatchId(4));
        let applied = replay.apply(BatchId(5), &seeds[4]).unwrap();
        assert_eq!(applied.member_count, 1);
        let by_hand = seeds.last().unwrap();
        let error = replay.apply(BatchId(6), by_hand).unwrap_err();
        assert!(
            matches!(error, EngineError::DigestMismatch { .. }),
            "it runs to its end: {error}"
        );
    }

    /// (id, v): inserts a row, after almost all instructions of the budget and some work by the byte.
    fn long_program() -> Arc<Program> {
        let text = HEAD.replace(
            ".consts\n",
            &format!(".consts\n  c0 text '{}'\n", "x".repeat(400_000)),
        );
        let logic = ".access\n  insert_row t0 [i0]\n.logic\n  ldi r0, 300000\n  ldi r1, 1\n  ldi r3, 0\nL1:\n  sub r0, r0, r1\n  \
                     cmp.gt r2, r0, r3\n  bt r2, L1\n  ldi r0, 1500\nL2:\n  key k0\n  keyk k0, c0\n  sub r0, r0, r1\n  \
                     cmp.gt r2, r0, r3\n  bt r2, L2\n  row b0, t0\n  setin b0.0, i0\n  setin b0.1, i1\n  \
                     insert cp0, t0, b0\n  ret r0, cp0\n  end\n";
        let program = asm::parse(&[&text, logic, TAIL].concat());
        Arc::new(program.unwrap_or_else(|error| panic!("{error}")))
    }

    /// What its programs were given belongs to a record's version: an old one is replayed as it was run.
    #[test]
    fn programs_of_old_records_are_not_charged_for_bytes() {
        let program = long_program();
        let inputs = program.encode_inputs(&[Value::Int8(40), Value::Int8(1)]).unwrap();
        let state_after = |budget| {
            let mut replay = stand().unwrap();
            let hash = program.hash();
            let record = BatchRecord {
                budget,
                catalog_version: 1,
                programs: vec![program.encode()],
                members: vec![MemberRecord::Program {
                    hash,
                    inputs: inputs.clone(),
                }],
                wave_ends: vec![1],
                ..BatchRecord::default()
            };
            let before = replay.store().state_digest();
            match replay.apply(BatchId(5), &record.encode()) {
                Err(EngineError::DigestMismatch { computed, .. }) => (before, computed),
                other => panic!("{other:?}"),
            }
        };
        let (before, after) = state_after(BUDGET_OF_INSTRUCTIONS);
        assert_ne!(before, after, "the row is inserted");
        let (before, after) = state_after(BUDGET);
        assert_eq!(before, after, "the budget does not suffice");
    }

    /// Fuzzing found it: it ran for 40 seconds, since a key that grew in a loop cost nothing.
    #[test]
    fn a_record_cannot_outlast_its_budget() {
        let text = "02010000000000000000456596f7dfd424d101c70157505247010100000000000000021400\
                    0000ffffffff14000000ffffffff00000001004028000214000000ffffffff14000000ffffffff0101014000000301000001\
                    010040000001000000000d0e0f6200000000000000610000000000000081010000000000010b000000000000000b0000000a\
                    000000250100000100000024020000010000002801010200000000720000000000000075000100030000003b000000000000\
                    003b000000000000001300000000000000110000000000000012000000000000000100cd56c256c70efcc907415d5e57a998\
                    a211000100000000000000f9ffffffffffffff";
        let mut bytes: Vec<u8> = (0..text.len() / 2)
            .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
            .collect();
        let record_of = |bytes: &[u8]| BatchRecord::decode(bytes).unwrap();
        assert_eq!(record_of(&bytes).budget, BUDGET_OF_INSTRUCTIONS);
        bytes[0] = 3;
        assert_eq!(record_of(&bytes).budget, BUDGET);
        let began = std::time::Instant::now();
        record(&bytes);
        let took = began.elapsed();
        assert!(took.as_secs() < 10, "{took:?}");
    }
}
