//! A worker under simulation: one cycle a call, with its memory behind it.
//!
//! As the driver of the hash index it is also the judge of the port: requests and reports stay as they are
//! until they are taken, and a failed assertion of the circuit is an error.
//!
//! `unsafe`: the C shim (`shim.cpp`). [`Pins`] mirrors its structure field by field; a model is owned by one
//! [`WorkerUnit`] and freed once. Tests: `tests/softcore.rs`.

use std::ffi::c_int;
use std::ptr::NonNull;

use super::card::{Call, Card, Ended, LoadWord, Refused};
use super::{CONTEXTS, LoadError};
use crate::hash_index::UnitError;
use crate::memory::{Memory, Request, Response};
use weft_base::TableId;
use weft_program::{Program, TableShape};

/// Most operations that can be in flight in the index.
const SLOTS: u8 = 64;
/// Cycles of reset.
const RESET_CYCLES: u32 = 4;
/// Most cycles without a report.
const PATIENCE_CYCLES: u64 = 400_000;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Pins {
    load_data: u64,
    mem_resp_data: u64,
    txn_block: u32,
    mem_resp_tag: u32,
    load_at: u16,
    load_valid: u8,
    load_kind: u8,
    batch_max: u8,
    in_flight_max: u8,
    txn_valid: u8,
    txn_program: u8,
    done_ready: u8,
    mem_req_ready: u8,
    mem_resp_valid: u8,
    mem_resp_error: u8,
    reset: u8,
    mem_req_data: u64,
    mem_req_addr: u32,
    mem_req_tag: u32,
    done_block: u32,
    txn_ready: u8,
    done_valid: u8,
    mem_req_valid: u8,
    mem_req_write: u8,
    events: u8,
}

/// The simulation behind the shim.
#[repr(C)]
struct Simulation {
    _private: [u8; 0],
}

type Step = unsafe extern "C" fn(*mut Simulation, *mut Pins) -> c_int;
type Free = unsafe extern "C" fn(*mut Simulation);
type New = unsafe extern "C" fn(u32) -> *mut Simulation;

macro_rules! models {
    ($($(#[doc = $doc:literal])+ $name:ident: $new:ident, $free:ident, $step:ident;)+) => {
        unsafe extern "C" {
            $(
                fn $new(seed: u32) -> *mut Simulation;
                fn $free(simulation: *mut Simulation);
                fn $step(simulation: *mut Simulation, pins: *mut Pins) -> c_int;
            )+
        }

        /// The worker, or one without one of its protections.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum WorkerModel {
            $($(#[doc = $doc])+ $name,)+
        }

        impl WorkerModel {
            fn functions(self) -> (New, Free, Step) {
                match self {
                    $(WorkerModel::$name => ($new as New, $free as Free, $step as Step),)+
                }
            }
        }
    };
}

models! {
    /// 64 slots in the index, 64 transactions in a batch.
    Whole: weft_worker_new, weft_worker_free, weft_worker_step;
    /// RET takes what is there.
    WithoutResults: weft_worker_results_new, weft_worker_results_free, weft_worker_results_step;
    /// Reads do not wait for writes.
    WithoutWrites: weft_worker_writes_new, weft_worker_writes_free, weft_worker_writes_step;
    /// All transactions have the same registers.
    WithoutRenaming: weft_worker_renaming_new, weft_worker_renaming_free, weft_worker_renaming_step;
    /// A batch takes transactions for which it has no registers.
    WithoutClosing: weft_worker_closing_new, weft_worker_closing_free, weft_worker_closing_step;
    /// Transactions are reported while their writes are on the way.
    WithoutDraining: weft_worker_draining_new, weft_worker_draining_free, weft_worker_draining_step;
}

/// Cycles since the unit was made, by what the core did in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// All.
    pub cycles: u64,
    /// Instructions that ended.
    pub instructions: u64,
    /// RET waited for a result.
    pub result_cycles: u64,
    /// A DB instruction waited for the index to take it.
    pub index_cycles: u64,
    /// A read, write or move was under way.
    pub memory_cycles: u64,
    /// Between two transactions.
    pub switch_cycles: u64,
    /// Batches that were closed because registers or contexts ran out.
    pub closed_full: u64,
}

impl Activity {
    /// What was done since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Activity) -> Activity {
        Activity {
            cycles: self.cycles - earlier.cycles,
            instructions: self.instructions - earlier.instructions,
            result_cycles: self.result_cycles - earlier.result_cycles,
            index_cycles: self.index_cycles - earlier.index_cycles,
            memory_cycles: self.memory_cycles - earlier.memory_cycles,
            switch_cycles: self.switch_cycles - earlier.switch_cycles,
            closed_full: self.closed_full - earlier.closed_full,
        }
    }
}

/// A worker, its memory, and what the host knows of it.
pub struct WorkerUnit {
    simulation: NonNull<Simulation>,
    free: Free,
    step: Step,
    pins: Pins,
    /// The memory; the host may use it while nothing runs.
    pub memory: Memory,
    /// Tables and programs.
    pub card: Card,
    activity: Activity,
    held_request: Option<Request>,
    held_done: Option<u32>,
}

impl WorkerUnit {
    /// A worker after reset. Registers that no reset reaches begin with random values.
    pub fn new(model: WorkerModel, memory: Memory, seed: u64) -> WorkerUnit {
        let (new, free, step) = model.functions();
        // SAFETY: the function makes an object or ends the process when there is no memory.
        let simulation = unsafe { new(seed as u32) };
        let Some(simulation) = NonNull::new(simulation) else {
            std::process::abort();
        };
        let mut unit = WorkerUnit {
            simulation,
            free,
            step,
            pins: Pins {
                in_flight_max: SLOTS,
                batch_max: CONTEXTS as u8,
                ..Pins::default()
            },
            memory,
            card: Card::new(),
            activity: Activity::default(),
            held_request: None,
            held_done: None,
        };
        unit.reset();
        unit.set_clock(0);
        unit
    }

    /// Transactions of a batch, at most.
    pub fn set_batch_max(&mut self, count: u8) {
        self.pins.batch_max = count.clamp(1, CONTEXTS as u8);
    }

    /// Operations in flight in the index, at most.
    pub fn set_in_flight_max(&mut self, count: u8) {
        self.pins.in_flight_max = count.clamp(1, SLOTS);
    }

    /// The timestamp of the last transaction: the next one has the following.
    pub fn set_clock(&mut self, timestamp: u64) {
        self.load(&[LoadWord {
            kind: 3,
            at: 0,
            data: timestamp,
        }]);
    }

    /// What the core did.
    pub fn activity(&self) -> Activity {
        self.activity
    }

    /// Resets the worker: a batch that runs is lost, with the marks that it left on tuples. Answers of the
    /// memory that are still to come are dropped.
    pub fn reset(&mut self) {
        self.pins.reset = 1;
        self.pins.load_valid = 0;
        self.pins.txn_valid = 0;
        self.pins.done_ready = 0;
        self.pins.mem_resp_valid = 0;
        self.pins.mem_req_ready = 0;
        for _ in 0..RESET_CYCLES {
            self.clock();
        }
        while self.memory.outstanding() > 0 {
            let _lost = self.memory.response();
            self.memory.end_cycle();
            self.clock();
        }
        self.pins.reset = 0;
        self.held_request = None;
        self.held_done = None;
    }

    fn clock(&mut self) -> c_int {
        self.activity.cycles += 1;
        // SAFETY: the simulation is alive until `drop` and has one owner; the shim declares the same `Pins`.
        unsafe { (self.step)(self.simulation.as_ptr(), &raw mut self.pins) }
    }

    fn load(&mut self, words: &[LoadWord]) {
        for word in words {
            self.pins.load_valid = 1;
            self.pins.load_kind = word.kind;
            self.pins.load_at = word.at;
            self.pins.load_data = word.data;
            self.clock();
        }
        self.pins.load_valid = 0;
    }

    /// Forgets tables and programs, after a reset.
    pub fn clear(&mut self) {
        self.reset();
        self.card = Card::new();
        self.set_clock(0);
    }

    /// Places an empty table; see [`Card::place_table`].
    ///
    /// # Errors
    /// It cannot be placed.
    pub fn place_empty(
        &mut self,
        shape: &TableShape,
        text_bytes: impl Fn(usize) -> usize,
        row_count: u64,
    ) -> Result<(), Refused> {
        let words = self
            .card
            .place_table(&mut self.memory, shape, text_bytes, row_count)?;
        self.load(&words);
        Ok(())
    }

    /// Changes a row of a table; see [`Card::change_row`].
    ///
    /// # Errors
    /// The row has no form on the device, or there is no room.
    pub fn change_row(
        &mut self,
        table: TableId,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> Result<(), Refused> {
        self.card.change_row(&mut self.memory, table, before, after)
    }

    /// Places a table with rows of the host.
    ///
    /// # Errors
    /// It cannot be placed, or one of its rows.
    pub fn place_table<'r>(
        &mut self,
        shape: &TableShape,
        text_bytes: impl Fn(usize) -> usize,
        rows: impl ExactSizeIterator<Item = &'r [u8]>,
    ) -> Result<(), Refused> {
        self.place_empty(shape, text_bytes, rows.len() as u64)?;
        for row in rows {
            self.change_row(shape.id, None, Some(row))?;
        }
        Ok(())
    }

    /// Loads a program and gives its number.
    ///
    /// # Errors
    /// It does not fit.
    pub fn load_program(&mut self, program: &Program) -> Result<usize, LoadError> {
        let (number, words) = self.card.load_program(program)?;
        self.load(&words);
        Ok(number)
    }

    /// Writes a word of code over another one; for tests, which plant faults.
    pub fn patch(&mut self, at: u16, word: u64) {
        self.load(&[LoadWord {
            kind: 0,
            at,
            data: word,
        }]);
    }

    /// One cycle: offers a transaction (block, program), and takes a report if `ready`. Says whether the
    /// transaction was taken, and which block was reported.
    ///
    /// # Errors
    /// The circuit did what it must not do.
    pub fn step(&mut self, txn: Option<(u32, u8)>, ready: bool) -> Result<(bool, Option<u32>), UnitError> {
        self.pins.txn_valid = u8::from(txn.is_some());
        if let Some((block, program)) = txn {
            (self.pins.txn_block, self.pins.txn_program) = (block, program);
        }
        self.pins.done_ready = u8::from(ready);
        self.pins.mem_req_ready = u8::from(self.memory.is_ready());
        let response = self.memory.response();
        self.pins.mem_resp_valid = u8::from(response.is_some());
        let Response { error, data, tag } = response.unwrap_or_default();
        self.pins.mem_resp_error = u8::from(error);
        self.pins.mem_resp_data = data;
        self.pins.mem_resp_tag = tag;
        if self.clock() > 0 {
            return Err(UnitError::Assertion(self.activity.cycles));
        }
        self.request()?;
        self.memory.end_cycle();
        self.count();
        let taken = txn.is_some() && self.pins.txn_ready != 0;
        Ok((taken, self.report(ready)?))
    }

    fn count(&mut self) {
        let event = |bit: u32| u64::from(self.pins.events >> bit & 1);
        self.activity.instructions += event(0);
        self.activity.result_cycles += event(1);
        self.activity.index_cycles += event(2);
        self.activity.memory_cycles += event(3);
        self.activity.switch_cycles += event(4);
        self.activity.closed_full += event(5);
    }

    fn request(&mut self) -> Result<(), UnitError> {
        let request = (self.pins.mem_req_valid != 0).then_some(Request {
            write: self.pins.mem_req_write != 0,
            addr: self.pins.mem_req_addr,
            data: self.pins.mem_req_data,
            tag: self.pins.mem_req_tag,
        });
        if self.held_request.is_some() && self.held_request != request {
            return Err(UnitError::UnstableRequest(self.activity.cycles));
        }
        self.held_request = None;
        if let Some(request) = request {
            if self.pins.mem_req_ready != 0 {
                self.memory.take(request);
            } else {
                self.held_request = Some(request);
            }
        }
        Ok(())
    }

    fn report(&mut self, ready: bool) -> Result<Option<u32>, UnitError> {
        let done = (self.pins.done_valid != 0).then_some(self.pins.done_block);
        if self.held_done.is_some() && self.held_done != done {
            return Err(UnitError::UnstableResult(self.activity.cycles));
        }
        self.held_done = if ready { None } else { done };
        Ok(done.filter(|_| ready))
    }

    /// Runs transactions, offered one after the other as fast as they are taken, and reads how they ended.
    /// One that the device cannot run is not offered.
    ///
    /// # Errors
    /// The circuit did what it must not do, or nothing.
    pub fn run(&mut self, calls: &[Call<'_>]) -> Result<Vec<Result<Ended, Refused>>, UnitError> {
        self.run_with(calls, |_| (true, true))
    }

    /// The same; `pauses` says of each cycle whether a transaction may be offered and a report taken.
    ///
    /// # Errors
    /// See [`WorkerUnit::run`].
    pub fn run_with(
        &mut self,
        calls: &[Call<'_>],
        mut pauses: impl FnMut(u64) -> (bool, bool),
    ) -> Result<Vec<Result<Ended, Refused>>, UnitError> {
        let mut offset = 0;
        let blocks: Vec<Result<u32, Refused>> = calls
            .iter()
            .map(|call| {
                let (at, end) = self.card.write_block(&mut self.memory, *call, offset)?;
                offset = end;
                Ok(at)
            })
            .collect();
        let offers: Vec<(u32, u8)> = blocks
            .iter()
            .zip(calls)
            .filter_map(|(block, call)| Some((*block.as_ref().ok()?, call.program as u8)))
            .collect();
        let (mut next, mut done, mut offered) = (0, Vec::new(), false);
        let mut last = self.activity.cycles;
        while done.len() < offers.len() {
            let (may_offer, ready) = pauses(self.activity.cycles);
            // A transaction that is offered stays so until it is taken.
            offered |= may_offer;
            let offer = if offered { offers.get(next).copied() } else { None };
            let (taken, block) = self.step(offer, ready)?;
            if taken {
                next += 1;
                offered = false;
            }
            if let Some(block) = block {
                done.push(block);
                last = self.activity.cycles;
            } else if self.activity.cycles - last > PATIENCE_CYCLES {
                return Err(UnitError::Stuck(self.activity.cycles));
            }
        }
        // Reports come in the order of the transactions.
        if done
            .iter()
            .zip(&offers)
            .any(|(block, (offered, _))| block != offered)
        {
            return Err(UnitError::UnstableResult(self.activity.cycles));
        }
        let read = |(block, call): (Result<u32, Refused>, &Call<'_>)| {
            block.map(|at| self.card.read_block(&self.memory, call.program, at))
        };
        Ok(blocks.into_iter().zip(calls).map(read).collect())
    }
}

// SAFETY: the simulation has a context of its own (`shim.cpp`) and one owner; nothing of it is bound to the
// thread that made it. The engine's tests run it on other threads (`crates/workload/tests/device.rs`).
unsafe impl Send for WorkerUnit {}

impl Drop for WorkerUnit {
    fn drop(&mut self) {
        // SAFETY: made by the model's own function, freed here alone.
        unsafe { (self.free)(self.simulation.as_ptr()) }
    }
}
