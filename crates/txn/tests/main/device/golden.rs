//! A device made of the product's own parts: a second store as the mirror, and the interpreter. It takes more
//! programs than a softcore does, refuses some, and fails as it is told to.

use std::sync::Arc;

use weft_base::{BatchId, Prng, TableId};
use weft_program::{BatchAccess, Outcome, Program, Scratch, run};
use weft_store::{CatalogOp, Locator, RowChange, Store, TableDef};
use weft_txn::device::{DeviceAnswer, DeviceCall, DeviceExecutor, DeviceFault, NotRun};
use weft_txn::write_set::{self, RowPosition};
use weft_types::{SqlError, encode_key_from_row};

const BUDGET: u32 = 1_000_000;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A bit of a count.
    Answer,
    /// A bit of a changed row.
    Write,
    /// A member has no answer.
    Lost,
    /// The unit does not report.
    Hung,
    /// The unit takes nothing.
    Refuses,
    /// Another row is changed as well.
    Undeclared,
    /// The write set ends early.
    Cut,
}

impl Planted {
    pub const ALL: [Planted; 7] = [
        Planted::Answer,
        Planted::Write,
        Planted::Lost,
        Planted::Hung,
        Planted::Refuses,
        Planted::Undeclared,
        Planted::Cut,
    ];

    /// It is in one value of a right row or count: only a comparison shows it.
    pub fn is_silent(self) -> bool {
        matches!(self, Planted::Answer | Planted::Write)
    }
}

/// How the device behaves.
pub struct Golden {
    store: Arc<Store>,
    programs: Vec<Arc<Program>>,
    calls: Vec<(usize, Vec<u8>)>,
    /// Rejects one member of so many, if it is not 0.
    pub rejects_one_in: u64,
    /// Programs that it does not take, by the number of instructions modulo 3.
    pub refuses: Option<usize>,
    /// In the group with this number, counted from its making, or the first one after it that gives occasion.
    pub planted: Option<(u64, Planted)>,
    pub random: Prng,
    groups: u64,
}

impl Golden {
    pub fn new(seed: u64) -> Golden {
        Golden {
            store: Store::new(),
            programs: Vec::new(),
            calls: Vec::new(),
            rejects_one_in: 0,
            refuses: None,
            planted: None,
            random: Prng::new(seed),
            groups: 0,
        }
    }

    fn planted_now(&self) -> Option<Planted> {
        let (group, planted) = self.planted?;
        (group < self.groups).then_some(planted)
    }

    fn run(&mut self, program: &Program, inputs: &[u8]) -> DeviceAnswer {
        if self.rejects_one_in > 0 && self.random.below(self.rejects_one_in) == 0 {
            return DeviceAnswer::NotRun(match self.random.below(2) {
                0 => NotRun::Rejected,
                _ => NotRun::Inputs,
            });
        }
        let batch = BatchId(self.store.boundary().0 + 1);
        let writer = self.store.begin_batch(batch);
        let (mut scratch, mut outcome) = (Scratch::default(), Outcome::default());
        let mut member = writer.member(0);
        let mut access = BatchAccess::new(&mut member);
        let ended = run(program, inputs, &mut access, BUDGET, &mut scratch, &mut outcome);
        let answer = match ended {
            Ok(()) => {
                member.commit();
                let mut changes = Vec::new();
                writer.changes_since(0, |change| {
                    changes.push((
                        change.table,
                        change.before.map(<[u8]>::to_vec),
                        change.after.map(<[u8]>::to_vec),
                    ));
                });
                let write_set = write_set_of(&changes, |table| {
                    Arc::clone(writer.catalog().table_by_id(table).unwrap())
                });
                DeviceAnswer::Committed { outcome, write_set }
            }
            Err(error) => {
                member.rollback();
                DeviceAnswer::Failed(error)
            }
        };
        writer.finish();
        self.store.publish(batch);
        answer
    }
}

type Change = (TableId, Option<Vec<u8>>, Option<Vec<u8>>);

fn write_set_of(changes: &[Change], def_of: impl Fn(TableId) -> Arc<TableDef>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (table, before, after) in changes {
        let place = |row: &[u8]| RowPosition::Located(Locator::Key(key_of(&def_of(*table), row)));
        match (before, after) {
            (None, Some(row)) => write_set::put_insert(&mut bytes, *table, row),
            (Some(before), Some(row)) => write_set::put_update(&mut bytes, *table, &place(before), row),
            (Some(before), None) => write_set::put_delete(&mut bytes, *table, &place(before)),
            (None, None) => {}
        }
    }
    bytes
}

fn key_of(def: &TableDef, row: &[u8]) -> Vec<u8> {
    let mut key = Vec::new();
    let columns = &def.primary_index().unwrap().columns;
    encode_key_from_row(&mut key, &def.layout, row, columns);
    key
}

/// A bit of the last byte of what the last member changed.
fn flip(write_set: &mut [u8]) {
    if let Some(last) = write_set.last_mut() {
        *last ^= 1;
    }
}

fn other_count(outcome: &Outcome) -> Outcome {
    let counts: Vec<u64> = outcome
        .statements()
        .map(|statement| statement.affected() ^ 1)
        .collect();
    Outcome::of_rows(&counts, []).unwrap()
}

impl DeviceExecutor for Golden {
    fn clear(&mut self) {
        self.store = Store::new();
        self.programs.clear();
        self.calls.clear();
    }

    fn place_table(&mut self, table: &TableDef, _row_count: u64) -> Result<(), String> {
        let batch = BatchId(self.store.boundary().0 + 1);
        let mut writer = self.store.begin_batch(batch);
        // As a softcore it knows no conditions of tables.
        let mut table = table.clone();
        table
            .columns
            .iter_mut()
            .for_each(|column| column.not_null = false);
        let made = writer.apply_catalog(&CatalogOp::CreateTable(table));
        made.map_err(|error| error.message)?;
        writer.finish();
        self.store.publish(batch);
        Ok(())
    }

    fn change_row(&mut self, change: &RowChange<'_>) -> Result<(), String> {
        let batch = BatchId(self.store.boundary().0 + 1);
        let writer = self.store.begin_batch(batch);
        let mut member = writer.member(0);
        let mut change_row = || -> Result<(), SqlError> {
            let def = Arc::clone(member.catalog().table_by_id(change.table).unwrap());
            for row in change.before.iter().chain(&change.after) {
                let slot = member.locate(change.table, &Locator::Key(key_of(&def, row)))?;
                if let Some(slot) = slot {
                    member.remove(change.table, slot)?;
                }
            }
            match change.after {
                Some(row) => member.insert(change.table, row).map(drop),
                None => Ok(()),
            }
        };
        change_row().map_err(|error| error.message)?;
        member.commit();
        writer.finish();
        self.store.publish(batch);
        Ok(())
    }

    fn load_program(&mut self, program: &Arc<Program>) -> Result<usize, String> {
        if self.refuses == Some(program.instrs.len() % 3) {
            return Err("its length is not to the device's liking".to_owned());
        }
        self.programs.push(Arc::clone(program));
        Ok(self.programs.len() - 1)
    }

    fn start(&mut self, calls: &[DeviceCall<'_>]) -> Result<(), DeviceFault> {
        self.groups += 1;
        if self.planted_now() == Some(Planted::Refuses) {
            return Err(DeviceFault("the unit takes nothing".to_owned()));
        }
        self.calls = calls
            .iter()
            .map(|call| (call.program, call.inputs.to_vec()))
            .collect();
        Ok(())
    }

    fn finish(&mut self) -> Result<Vec<DeviceAnswer>, DeviceFault> {
        let calls = std::mem::take(&mut self.calls);
        let mut answers: Vec<DeviceAnswer> = calls
            .iter()
            .map(|(number, inputs)| {
                let program = Arc::clone(&self.programs[*number]);
                self.run(&program, inputs)
            })
            .collect();
        match self.planted_now() {
            None | Some(Planted::Refuses) => {}
            Some(Planted::Hung) => return Err(DeviceFault("no report".to_owned())),
            Some(Planted::Lost) => {
                answers.pop();
            }
            Some(Planted::Answer) => self.change_count(&mut answers),
            Some(planted) => self.change_write_set(&mut answers, planted),
        }
        Ok(answers)
    }
}

impl Golden {
    /// Of the first answer that counts anything.
    fn change_count(&mut self, answers: &mut [DeviceAnswer]) {
        for answer in answers {
            if let DeviceAnswer::Committed { outcome, .. } = answer
                && outcome.statement_count() > 0
            {
                *outcome = other_count(outcome);
                self.planted = None;
                return;
            }
        }
    }

    /// Of the first member that changed a row.
    fn change_write_set(&mut self, answers: &mut [DeviceAnswer], planted: Planted) {
        let found = answers.iter_mut().find_map(|answer| match answer {
            DeviceAnswer::Committed { write_set, .. } if !write_set.is_empty() => Some(write_set),
            _ => None,
        });
        let Some(write_set) = found else {
            return;
        };
        self.planted = None;
        match planted {
            Planted::Write => flip(write_set),
            Planted::Cut => {
                write_set.pop();
            }
            _ => {
                let row = self.any_row();
                let catalog = self.store.catalog();
                let def = catalog.table_by_id(crate::bank::ACCOUNTS).unwrap();
                let place = RowPosition::Located(Locator::Key(key_of(def, &row)));
                write_set::put_update(write_set, def.id, &place, &row);
            }
        }
    }

    /// The row with the highest key: no test's program touches it.
    fn any_row(&self) -> Vec<u8> {
        let snapshot = self.store.snapshot();
        let mut rows = Vec::new();
        let see = |row: weft_store::RowVersion<'_>| rows.push(row.bytes.to_vec());
        snapshot.view().scan(crate::bank::ACCOUNTS, see).unwrap();
        let def = Arc::clone(self.store.catalog().table_by_id(crate::bank::ACCOUNTS).unwrap());
        rows.into_iter()
            .max_by_key(|row| def.layout.fixed_u64(row, 0))
            .unwrap()
    }
}
