//! Two stores with the same rows, and a worker with their mirror.

use std::sync::Arc;

use weft_base::random::Prng;
use weft_base::{BatchId, IndexId, TableId};
use weft_device::memory::{Memory, MemoryParams};
use weft_device::softcore::{Call, Ended, Undone, WorkerModel, WorkerUnit, Write, opcode};
use weft_program::{BatchAccess, Outcome, Program, Scratch, TableShape, run};
use weft_store::{CatalogOp, ColumnDef, IndexDef, IndexMethod, Locator, Store, TableDef};
use weft_types::{SqlError, SqlType, Value, encode_key_from_row};

pub const TABLE: TableId = TableId(16_384);
pub const PAIRS: TableId = TableId(16_386);
/// Accounts 0 to here are there.
pub const ROWS: i64 = 150;
/// So many bytes of text have room on the device.
const TEXT_BYTES: usize = 40;
const BUDGET: u32 = 100_000;

/// A transaction of a test.
#[derive(Clone, Debug)]
pub struct Txn {
    pub program: usize,
    pub values: Vec<Value>,
}

impl Txn {
    pub fn new(program: usize, values: Vec<Value>) -> Txn {
        Txn { program, values }
    }
}

fn tables() -> [TableDef; 2] {
    let index = |id: u32, table: TableId, columns: &[usize]| IndexDef {
        id: IndexId(id),
        name: format!("i{id}"),
        table,
        columns: columns.to_vec(),
        unique: true,
        primary: true,
        method: IndexMethod::Both,
    };
    let accounts = vec![
        ColumnDef::new("id", SqlType::Int8),
        ColumnDef::new("balance", SqlType::Int8),
        ColumnDef::new("flags", SqlType::Int4),
        ColumnDef::new("note", SqlType::Text),
        ColumnDef::new("open", SqlType::Bool),
    ];
    let pairs = vec![
        ColumnDef::new("a", SqlType::Int8),
        ColumnDef::new("b", SqlType::Int4),
        ColumnDef::new("v", SqlType::Int2),
        ColumnDef::new("t", SqlType::Text),
    ];
    [
        TableDef::new(TABLE, "accounts", accounts).with_index(index(16_385, TABLE, &[0])),
        TableDef::new(PAIRS, "pairs", pairs).with_index(index(16_387, PAIRS, &[0, 1])),
    ]
}

fn account(key: i64) -> Vec<Value> {
    vec![
        Value::Int8(key),
        Value::Int8(1_000),
        if key % 7 == 0 {
            Value::Null
        } else {
            Value::Int4(key as i32)
        },
        if key % 5 == 0 {
            Value::Null
        } else {
            Value::Text("n".repeat(key as usize % 30))
        },
        Value::Bool(key % 3 == 0),
    ]
}

fn pair(key: i64) -> Vec<Value> {
    vec![
        Value::Int8(key),
        Value::Int4(key as i32 * 2),
        Value::Int2(key as i16 - 70),
        Value::Text(format!("pair {key}")),
    ]
}

/// A store with both tables, filled.
pub fn store() -> Arc<Store> {
    let store = Store::new();
    for table in tables() {
        batch(&store, |writer| {
            writer.apply_catalog(&CatalogOp::CreateTable(table)).unwrap();
        });
    }
    batch(&store, |writer| {
        let mut member = writer.member(0);
        let catalog = Arc::clone(member.catalog());
        for (id, row_of) in [(TABLE, account as fn(i64) -> Vec<Value>), (PAIRS, pair)] {
            let layout = &catalog.table_by_id(id).unwrap().layout;
            for key in 0..ROWS {
                member.insert(id, &layout.encode(&row_of(key)).unwrap()).unwrap();
            }
        }
        member.commit();
    });
    store
}

fn batch(store: &Arc<Store>, run: impl FnOnce(&mut weft_store::BatchWriter<'_>)) -> u64 {
    let batch = BatchId(store.boundary().0 + 1);
    let mut writer = store.begin_batch(batch);
    run(&mut writer);
    let digest = writer.finish();
    store.publish(batch);
    digest
}

/// What the CPU answers: rows by statement in order, and counts.
type Answer = Result<(Vec<(u32, Vec<u8>)>, Vec<u64>), SqlError>;

pub struct Bench {
    pub unit: WorkerUnit,
    programs: Vec<Program>,
    cpu: Arc<Store>,
    device: Arc<Store>,
    scratch: Scratch,
}

impl Bench {
    pub fn new(model: WorkerModel, params: MemoryParams, programs: &[Program], seed: u64) -> Bench {
        let cpu = store();
        for program in programs {
            weft_program::verify(program, &cpu.catalog()).unwrap();
        }
        let mut bench = Bench {
            unit: WorkerUnit::new(model, Memory::new(1 << 17, params, seed), seed),
            programs: programs.to_vec(),
            device: store(),
            cpu,
            scratch: Scratch::default(),
        };
        bench.load();
        bench
    }

    fn load(&mut self) {
        let catalog = self.cpu.catalog();
        for id in [TABLE, PAIRS] {
            let rows = rows(&self.cpu, id);
            let shape = TableShape::from_def(catalog.table_by_id(id).unwrap());
            self.unit
                .place_table(&shape, |_| TEXT_BYTES, rows.iter().map(Vec::as_slice))
                .unwrap();
        }
        for program in &self.programs {
            self.unit.load_program(program).unwrap();
        }
    }

    /// After a reset: everything is loaded again.
    pub fn reload(&mut self) {
        self.unit.card = weft_device::softcore::Card::new();
        self.load();
    }

    /// Keys of accounts, a few of which are not there, in any order.
    pub fn shuffled_keys(&self, random: &mut Prng) -> Vec<i64> {
        let mut keys: Vec<i64> = (0..ROWS + 6).collect();
        for at in (1..keys.len()).rev() {
            keys.swap(at, random.below(at as u64 + 1) as usize);
        }
        keys
    }

    fn inputs(&self, txn: &Txn) -> Vec<u8> {
        self.programs[txn.program].encode_inputs(&txn.values).unwrap()
    }

    fn on_cpu(&mut self, store: &Arc<Store>, txns: &[Txn]) -> (Vec<Answer>, u64) {
        let inputs: Vec<Vec<u8>> = txns.iter().map(|txn| self.inputs(txn)).collect();
        let mut answers = Vec::new();
        let digest = batch(store, |writer| {
            for (number, (txn, inputs)) in txns.iter().zip(&inputs).enumerate() {
                let mut member = writer.member(number as u32);
                let mut out = Outcome::default();
                let program = &self.programs[txn.program];
                let mut access = BatchAccess::new(&mut member);
                let result = run(program, inputs, &mut access, BUDGET, &mut self.scratch, &mut out);
                match &result {
                    Ok(()) => member.commit(),
                    Err(_) => member.rollback(),
                }
                answers.push(result.map(|()| answer(&out)));
            }
        });
        (answers, digest)
    }

    /// Runs a batch on the device alone.
    pub fn run_unchecked(&mut self, txns: &[Txn]) -> Vec<Ended> {
        let inputs: Vec<Vec<u8>> = txns.iter().map(|txn| self.inputs(txn)).collect();
        let calls: Vec<Call<'_>> = calls(txns, &inputs);
        let ended = self.unit.run(&calls).unwrap();
        ended.into_iter().map(Result::unwrap).collect()
    }

    /// The stores follow what the device alone has run.
    pub fn take_over(&mut self, txns: &[Txn]) {
        for store in [Arc::clone(&self.cpu), Arc::clone(&self.device)] {
            let _answers = self.on_cpu(&store, txns);
        }
    }

    /// The refusal of a transaction.
    pub fn refused(&mut self, txn: &Txn) -> String {
        let inputs = self.inputs(txn);
        let calls = calls(std::slice::from_ref(txn), std::slice::from_ref(&inputs));
        self.unit.run(&calls).unwrap().remove(0).unwrap_err().to_string()
    }

    /// Begins a batch, and resets the unit in the middle of it.
    pub fn interrupt(&mut self, txns: &[Txn], cycles: u64) {
        let inputs: Vec<Vec<u8>> = txns.iter().map(|txn| self.inputs(txn)).collect();
        let mut offset = 0;
        let mut next = 0;
        let blocks: Vec<(u32, u8)> = calls(txns, &inputs)
            .into_iter()
            .map(|call| {
                let (at, end) = self
                    .unit
                    .card
                    .write_block(&mut self.unit.memory, call, offset)
                    .unwrap();
                offset = end;
                (at, call.program as u8)
            })
            .collect();
        for _ in 0..cycles {
            let (taken, _) = self.unit.step(blocks.get(next).copied(), true).unwrap();
            next += usize::from(taken);
        }
        self.unit.reset();
    }

    /// Overwrites the moves of a program's code that undoes with instructions that do nothing.
    pub fn forget_to_undo(&mut self, program: usize) {
        let before: usize = (0..program)
            .map(|at| self.unit.card.program(at).unwrap().code.len())
            .sum();
        let core = self.unit.card.program(program).unwrap().clone();
        for (at, word) in core.code.iter().enumerate().skip(core.abort_at as usize) {
            if [opcode::MOVE, opcode::STOREW].contains(&(*word as u8)) {
                // FENCE
                self.unit.patch((before + at) as u16, u64::from(opcode::FENCE));
            }
        }
    }

    /// Runs a batch of transactions that do not conflict on both, and compares everything.
    pub fn check(
        &mut self,
        txns: &[Txn],
        random: &mut Prng,
        pauses: (u64, u64),
    ) -> Result<Vec<Ended>, String> {
        let cpu = Arc::clone(&self.cpu);
        let (expected, digest) = self.on_cpu(&cpu, txns);
        let inputs: Vec<Vec<u8>> = txns.iter().map(|txn| self.inputs(txn)).collect();
        let ended = self
            .unit
            .run_with(&calls(txns, &inputs), |_| {
                (
                    random.chance(100 - pauses.0, 100),
                    random.chance(100 - pauses.1, 100),
                )
            })
            .map_err(|error| error.to_string())?;
        let ended: Vec<Ended> = ended.into_iter().map(Result::unwrap).collect();
        for ((txn, expected), ended) in txns.iter().zip(&expected).zip(&ended) {
            compare(expected, ended).map_err(|difference| format!("{txn:?}: {difference}"))?;
        }
        // The writes enter the second store as write sets; what was rejected runs there, and goes to the
        // mirror.
        let device = Arc::clone(&self.device);
        let mut failed = None;
        let found = batch(&device, |writer| {
            for (number, ((txn, inputs), ended)) in txns.iter().zip(&inputs).zip(&ended).enumerate() {
                let mut member = writer.member(number as u32);
                let result = match ended {
                    Ended::Committed { writes, .. } => apply(&mut member, writes),
                    Ended::Undone(Undone::Failed(_)) => Err(String::new()),
                    Ended::Undone(_) => {
                        let mut out = Outcome::default();
                        let program = &self.programs[txn.program];
                        let mut access = BatchAccess::new(&mut member);
                        run(program, inputs, &mut access, BUDGET, &mut self.scratch, &mut out)
                            .map_err(|_| String::new())
                    }
                };
                match result {
                    Ok(()) => member.commit(),
                    Err(difference) => {
                        member.rollback();
                        failed = failed.take().or(Some(difference).filter(|text| !text.is_empty()));
                    }
                }
            }
        });
        if let Some(difference) = failed {
            return Err(difference);
        }
        if found != digest {
            return Err(format!(
                "the batch has the digest {found:#x}, on the CPU {digest:#x}"
            ));
        }
        if ended
            .iter()
            .any(|ended| matches!(ended, Ended::Undone(Undone::Rejected(_))))
        {
            // What the CPU did for the device is not in the mirror.
            self.unit.reset();
            self.reload();
        }
        for id in [TABLE, PAIRS] {
            let mut mirror = self.unit.card.mirror(&self.unit.memory, id)?;
            let mut expected = rows(&self.cpu, id);
            mirror.sort();
            expected.sort();
            if mirror != expected {
                return Err(format!("the mirror of table {} differs", id.0));
            }
        }
        Ok(ended)
    }
}

fn calls<'i>(txns: &[Txn], inputs: &'i [Vec<u8>]) -> Vec<Call<'i>> {
    let call = |(txn, inputs): (&Txn, &'i Vec<u8>)| Call {
        program: txn.program,
        inputs,
    };
    txns.iter().zip(inputs).map(call).collect()
}

/// All rows of a table.
pub fn rows(store: &Arc<Store>, id: TableId) -> Vec<Vec<u8>> {
    let snapshot = store.snapshot();
    let mut rows = Vec::new();
    snapshot
        .view()
        .scan(id, |row| rows.push(row.bytes.to_vec()))
        .unwrap();
    rows
}

fn answer(out: &Outcome) -> (Vec<(u32, Vec<u8>)>, Vec<u64>) {
    let rows = (0..out.statement_count())
        .flat_map(|number| {
            let statement = out.statement(number).unwrap();
            statement
                .rows()
                .map(move |row| (number as u32, row.to_vec()))
                .collect::<Vec<_>>()
        })
        .collect();
    (
        rows,
        out.statements().map(|statement| statement.affected()).collect(),
    )
}

fn compare(expected: &Answer, ended: &Ended) -> Result<(), String> {
    match (expected, ended) {
        (
            Ok((rows, counts)),
            Ended::Committed {
                rows: found,
                counts: counted,
                ..
            },
        ) => {
            let mut found = found.clone();
            found.sort_by_key(|(statement, _)| *statement);
            if (&found, counted) == (rows, counts) {
                return Ok(());
            }
            Err(format!(
                "rows {found:?}, counts {counted:?}, expected {rows:?}, {counts:?}"
            ))
        }
        (Err(error), Ended::Undone(Undone::Failed(found))) => {
            match (error.state, &error.message) == (found.state, &found.message) {
                true => Ok(()),
                false => Err(format!("{found:?}, expected {error:?}")),
            }
        }
        // The transaction met a row twice that it changes: the CPU runs it.
        (_, Ended::Undone(Undone::Rejected(_))) => Ok(()),
        _ => Err(format!("{ended:?}, expected {expected:?}")),
    }
}

fn apply(member: &mut weft_store::MemberWriter<'_>, writes: &[Write]) -> Result<(), String> {
    for Write { table, row } in writes {
        let catalog = Arc::clone(member.catalog());
        let def = catalog.table_by_id(*table).unwrap();
        let index = def
            .indexes
            .iter()
            .find(|index| Some(index.id) == def.primary_key)
            .unwrap();
        let mut key = Vec::new();
        encode_key_from_row(&mut key, &def.layout, row, &index.columns);
        let slot = member
            .locate(*table, &Locator::Key(key))
            .map_err(|error| error.message)?;
        let slot = slot.ok_or("a changed row is not there")?;
        member.update(*table, slot, row).map_err(|error| error.message)?;
    }
    Ok(())
}
