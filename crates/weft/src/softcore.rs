//! The simulated softcore as a device of the engine (feature `fpga`): the adapter between what `weft_txn`
//! asks of a device and what the worker of `weft_device` takes.
//!
//! ```text
//!   Engine::place_on_device(Softcore) -- start: programs that are missing are loaded
//!                                     `- finish: blocks -> worker, cycle by cycle -> answers, write sets
//! ```
//!
//! Programs that no longer fit beside each other are loaded again when they are called: a core has room for
//! some thousand words of code, and a group that needs more runs in parts. The simulation runs in `finish`,
//! on the caller's thread, so nothing overlaps it; a card would run from `start` on.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use weft_base::TableId;
use weft_device::memory::{Memory, MemoryParams};
use weft_device::softcore::{
    Activity, Call, Ended, LoadError, Refused, Undone, WorkerModel, WorkerUnit, lower,
};
use weft_program::{Outcome, Program, TableShape};
use weft_store::{Locator, RowChange, TableDef};
use weft_txn::device::{DeviceAnswer, DeviceCall, DeviceExecutor, DeviceFault, NotRun};
use weft_txn::write_set::{RowPosition, put_update};
use weft_types::encode_key_from_row;

/// A softcore to be simulated.
#[derive(Debug, Clone)]
pub struct SoftcoreOptions {
    /// The circuit; others than the whole one are for showing that its faults are found.
    pub model: WorkerModel,
    /// Its memory.
    pub memory: MemoryParams,
    /// Words of 64 bits that it has.
    pub memory_words: usize,
    /// Room for each text column, in bytes; rows with a longer text make their table stay on the host.
    pub text_bytes: usize,
    /// Most transactions that are interleaved.
    pub interleaved_max: u8,
    /// Seed of what no reset reaches.
    pub seed: u64,
}

impl Default for SoftcoreOptions {
    fn default() -> SoftcoreOptions {
        SoftcoreOptions {
            model: WorkerModel::Whole,
            memory: MemoryParams::ideal(40),
            memory_words: 1 << 20,
            text_bytes: 64,
            interleaved_max: 64,
            seed: 1,
        }
    }
}

/// What the core did while groups ran, without loading.
#[derive(Debug, Clone, Default)]
pub struct SoftcoreFigures(Arc<Mutex<Activity>>);

impl SoftcoreFigures {
    /// Simulated cycles, by what the core did in them.
    pub fn activity(&self) -> Activity {
        *self.0.lock()
    }
}

/// Key columns of a placed table, and its definition.
struct Placed {
    def: Arc<TableDef>,
    key: Vec<usize>,
}

/// The device.
pub struct Softcore {
    options: SoftcoreOptions,
    unit: WorkerUnit,
    tables: HashMap<TableId, Placed>,
    /// By the numbers that the engine knows.
    programs: Vec<Arc<Program>>,
    /// Numbers on the core of those that are loaded.
    loaded: HashMap<usize, usize>,
    calls: Vec<(usize, Vec<u8>)>,
    figures: SoftcoreFigures,
}

impl Softcore {
    /// A softcore after reset, with nothing on it.
    pub fn new(options: SoftcoreOptions) -> Softcore {
        let memory = Memory::new(options.memory_words, options.memory, options.seed);
        let mut unit = WorkerUnit::new(options.model, memory, options.seed);
        unit.set_batch_max(options.interleaved_max);
        Softcore {
            options,
            unit,
            tables: HashMap::new(),
            programs: Vec::new(),
            loaded: HashMap::new(),
            calls: Vec::new(),
            figures: SoftcoreFigures::default(),
        }
    }

    /// What it does; can be read while it is placed.
    pub fn figures(&self) -> SoftcoreFigures {
        self.figures.clone()
    }

    /// The program's number on the core; loads it if there is room.
    fn resident(&mut self, number: usize) -> Result<usize, LoadError> {
        if let Some(at) = self.loaded.get(&number) {
            return Ok(*at);
        }
        let program = self
            .programs
            .get(number)
            .ok_or(LoadError::TooLarge("its number"))?;
        let at = self.unit.load_program(program)?;
        self.loaded.insert(number, at);
        Ok(at)
    }

    /// Runs calls from the front, as many as have room for their programs, and appends their answers.
    fn run_some(
        &mut self,
        calls: &[(usize, &[u8])],
        answers: &mut Vec<DeviceAnswer>,
    ) -> Result<(), DeviceFault> {
        let mut resident = Vec::with_capacity(calls.len());
        for (number, inputs) in calls {
            match self.resident(*number) {
                Ok(program) => resident.push(Call { program, inputs }),
                Err(error) if resident.is_empty() && self.loaded.is_empty() => {
                    return Err(DeviceFault(format!("a program is not taken again: {error}")));
                }
                Err(_) => break,
            }
        }
        if resident.is_empty() {
            self.unit.card.forget_programs();
            self.loaded.clear();
            return Ok(());
        }
        let before = self.unit.activity();
        let ended = self.unit.run(&resident);
        self.figures.add(self.unit.activity().since(&before));
        let ended = ended.map_err(|error| DeviceFault(error.to_string()))?;
        // What has found no room for its block has only been put off, if anything has run.
        let ran = ended.iter().position(|end| *end == Err(Refused::Full));
        let ran = ran.filter(|ran| *ran > 0).unwrap_or(ended.len());
        for end in ended.into_iter().take(ran) {
            answers.push(self.answer(end)?);
        }
        Ok(())
    }

    fn answer(&self, ended: Result<Ended, Refused>) -> Result<DeviceAnswer, DeviceFault> {
        let fault = |what: &str| Err(DeviceFault(what.to_owned()));
        match ended {
            Err(_) => Ok(DeviceAnswer::NotRun(NotRun::Inputs)),
            Ok(Ended::Undone(Undone::Failed(error))) => Ok(DeviceAnswer::Failed(*error)),
            Ok(Ended::Undone(Undone::Rejected(_))) => Ok(DeviceAnswer::NotRun(NotRun::Rejected)),
            Ok(Ended::Undone(Undone::Memory)) => fault("a word outside the memory"),
            Ok(Ended::Undone(Undone::Corrupt)) => fault("a block that no core writes"),
            Ok(Ended::Committed {
                rows, counts, writes, ..
            }) => {
                let rows = rows
                    .iter()
                    .map(|(statement, row)| (*statement as usize, row.as_slice()));
                let Some(outcome) = Outcome::of_rows(&counts, rows) else {
                    return fault("a row of no statement");
                };
                let mut write_set = Vec::new();
                for write in &writes {
                    let Some(placed) = self.tables.get(&write.table) else {
                        return fault("a row of no table");
                    };
                    let mut key = Vec::new();
                    encode_key_from_row(&mut key, &placed.def.layout, &write.row, &placed.key);
                    let place = RowPosition::Located(Locator::Key(key));
                    put_update(&mut write_set, write.table, &place, &write.row);
                }
                Ok(DeviceAnswer::Committed { outcome, write_set })
            }
        }
    }
}

impl SoftcoreFigures {
    fn add(&self, more: Activity) {
        let mut all = self.0.lock();
        all.cycles += more.cycles;
        all.instructions += more.instructions;
        all.result_cycles += more.result_cycles;
        all.index_cycles += more.index_cycles;
        all.memory_cycles += more.memory_cycles;
        all.switch_cycles += more.switch_cycles;
        all.closed_full += more.closed_full;
    }
}

impl DeviceExecutor for Softcore {
    fn clear(&mut self) {
        self.unit.clear();
        self.tables.clear();
        self.programs.clear();
        self.loaded.clear();
        self.calls.clear();
    }

    fn place_table(&mut self, table: &TableDef, row_count: u64) -> Result<(), String> {
        let shape = TableShape::from_def(table);
        let text_bytes = self.options.text_bytes;
        self.unit
            .place_empty(&shape, |_| text_bytes, row_count)
            .map_err(|refused| refused.to_string())?;
        let key = shape
            .primary_index()
            .map(|index| index.columns.clone())
            .unwrap_or_default();
        let def = Arc::new(table.clone());
        self.tables.insert(table.id, Placed { def, key });
        Ok(())
    }

    fn change_row(&mut self, change: &RowChange<'_>) -> Result<(), String> {
        self.unit
            .change_row(change.table, change.before, change.after)
            .map_err(|refused| refused.to_string())
    }

    fn load_program(&mut self, program: &Arc<Program>) -> Result<usize, String> {
        lower(program, self.unit.card.tables()).map_err(|error| error.to_string())?;
        self.programs.push(Arc::clone(program));
        Ok(self.programs.len() - 1)
    }

    fn start(&mut self, calls: &[DeviceCall<'_>]) -> Result<(), DeviceFault> {
        self.calls = calls
            .iter()
            .map(|call| (call.program, call.inputs.to_vec()))
            .collect();
        Ok(())
    }

    fn finish(&mut self) -> Result<Vec<DeviceAnswer>, DeviceFault> {
        let calls = std::mem::take(&mut self.calls);
        // One program after the other, so that each is loaded at most once.
        let mut order: Vec<usize> = (0..calls.len()).collect();
        order.sort_by_key(|at| calls.get(*at).map(|(program, _)| *program));
        let sorted: Vec<(usize, &[u8])> = order
            .iter()
            .filter_map(|at| calls.get(*at))
            .map(|(program, inputs)| (*program, inputs.as_slice()))
            .collect();
        let mut answers = Vec::with_capacity(calls.len());
        while answers.len() < sorted.len() {
            self.run_some(sorted.get(answers.len()..).unwrap_or_default(), &mut answers)?;
        }
        let mut in_order: Vec<(usize, DeviceAnswer)> = order.into_iter().zip(answers).collect();
        in_order.sort_by_key(|(at, _)| *at);
        Ok(in_order.into_iter().map(|(_, answer)| answer).collect())
    }
}
