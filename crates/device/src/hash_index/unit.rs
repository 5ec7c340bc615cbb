//! The unit under Verilator: one cycle a call, with its memory behind it.
//!
//! The driver is also the port's judge: a request that the memory did not take must be the same in the next
//! cycle, and so must a result; a failed assertion of the circuit is an error here.
//!
//! `unsafe`: the C shim (`shim.cpp`). [`Pins`] mirrors its structure field by field; a model is owned by one
//! [`HashIndexUnit`] and freed once. Tests: `tests/hash_index.rs`.

use std::ffi::c_int;
use std::fmt;
use std::ptr::NonNull;

use super::{Code, Op, OpResult};
use crate::memory::{Memory, Request, Response};

/// Most operations that can be in flight in the models with all slots.
const SLOTS: u8 = 64;
/// Cycles of reset.
const RESET_CYCLES: u32 = 4;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Pins {
    op_timestamp: u64,
    mem_resp_data: u64,
    op_base: u32,
    op_mask: u32,
    op_key_addr: u32,
    op_tuple_addr: u32,
    mem_resp_tag: u32,
    op_id: u16,
    in_flight_max: u8,
    op_valid: u8,
    op_kind: u8,
    op_unique: u8,
    op_key_bytes: u8,
    result_ready: u8,
    mem_req_ready: u8,
    mem_resp_valid: u8,
    mem_resp_error: u8,
    reset: u8,
    mem_req_data: u64,
    mem_req_addr: u32,
    mem_req_tag: u32,
    result_addr: u32,
    result_id: u16,
    op_ready: u8,
    result_valid: u8,
    result_code: u8,
    mem_req_valid: u8,
    mem_req_write: u8,
    wait_line: u8,
    wait_slot: u8,
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

        /// The unit with its parameters, or without one of its protections.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Model {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Model {
            fn functions(self) -> (New, Free, Step) {
                match self {
                    $(Model::$name => ($new as New, $free as Free, $step as Step),)+
                }
            }
        }
    };
}

models! {
    /// 64 slots, two traverse stages.
    Whole: weft_hash_index_new, weft_hash_index_free, weft_hash_index_step;
    /// 64 slots, one traverse stage.
    OneTraverse: weft_hash_index_one_traverse_new, weft_hash_index_one_traverse_free,
        weft_hash_index_one_traverse_step;
    /// 16 slots, two traverse stages: what is synthesized.
    SixteenSlots: weft_hash_index_16_slots_new, weft_hash_index_16_slots_free, weft_hash_index_16_slots_step;
    /// Without the table of locked lines.
    Unlocked: weft_hash_index_unlocked_new, weft_hash_index_unlocked_free, weft_hash_index_unlocked_step;
    /// Hashes operations in the order in which their keys arrive.
    Unordered: weft_hash_index_unordered_new, weft_hash_index_unordered_free, weft_hash_index_unordered_step;
    /// Ends operations before their writes are acknowledged.
    Unacknowledged: weft_hash_index_unacknowledged_new, weft_hash_index_unacknowledged_free,
        weft_hash_index_unacknowledged_step;
}

/// What the unit did that it must not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitError {
    /// An assertion of the circuit failed in a cycle.
    Assertion(u64),
    /// A valid request changed before it was taken.
    UnstableRequest(u64),
    /// A valid result changed before it was taken.
    UnstableResult(u64),
    /// A result has a code that does not exist.
    UnknownCode(u8),
    /// Nothing was finished for too many cycles.
    Stuck(u64),
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnitError::Assertion(cycle) => write!(f, "an assertion failed in cycle {cycle}"),
            UnitError::UnstableRequest(cycle) => write!(f, "a request changed in cycle {cycle}"),
            UnitError::UnstableResult(cycle) => write!(f, "a result changed in cycle {cycle}"),
            UnitError::UnknownCode(code) => write!(f, "a result has the unknown code {code}"),
            UnitError::Stuck(cycle) => write!(f, "no result for long before cycle {cycle}"),
        }
    }
}

impl std::error::Error for UnitError {}

/// Cycles in which something waited, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// The hash stage, for a line that another operation holds.
    pub line_cycles: u64,
    /// An operation, for a slot.
    pub slot_cycles: u64,
    /// A request, for the memory to take it.
    pub port_cycles: u64,
}

/// The unit and its memory.
pub struct HashIndexUnit {
    simulation: NonNull<Simulation>,
    free: Free,
    step: Step,
    pins: Pins,
    /// The memory; the host may use it while nothing is in flight.
    pub memory: Memory,
    cycle: u64,
    stalls: Stalls,
    held_request: Option<Request>,
    held_result: Option<(u16, u8, u32)>,
}

impl HashIndexUnit {
    /// A unit after reset. Registers that no reset reaches begin with random values.
    pub fn new(model: Model, memory: Memory, seed: u64) -> HashIndexUnit {
        let (new, free, step) = model.functions();
        // SAFETY: the function makes an object or ends the process when there is no memory.
        let simulation = unsafe { new(seed as u32) };
        let Some(simulation) = NonNull::new(simulation) else {
            std::process::abort();
        };
        let mut unit = HashIndexUnit {
            simulation,
            free,
            step,
            pins: Pins {
                in_flight_max: SLOTS,
                ..Pins::default()
            },
            memory,
            cycle: 0,
            stalls: Stalls::default(),
            held_request: None,
            held_result: None,
        };
        unit.reset();
        unit
    }

    /// Operations that may be in flight, at most the model's slots.
    pub fn set_in_flight_max(&mut self, count: u8) {
        self.pins.in_flight_max = count.min(SLOTS);
    }

    /// Cycles since the unit was made.
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// What waited since the unit was made.
    pub fn stalls(&self) -> Stalls {
        self.stalls
    }

    /// Resets the unit: what is in flight is lost. Answers of the memory that are still to come are dropped,
    /// since the unit would take them for answers to later requests.
    pub fn reset(&mut self) {
        self.pins.reset = 1;
        self.pins.op_valid = 0;
        self.pins.result_ready = 0;
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
        self.held_result = None;
    }

    fn clock(&mut self) -> c_int {
        self.cycle += 1;
        // SAFETY: the simulation is alive until `drop` and has one owner; the shim declares the same `Pins`.
        unsafe { (self.step)(self.simulation.as_ptr(), &raw mut self.pins) }
    }

    /// One cycle: offers an operation, and takes a result if `ready`. Says whether the operation was taken,
    /// and the result.
    pub fn step(&mut self, op: Option<&Op>, ready: bool) -> Result<(bool, Option<OpResult>), UnitError> {
        self.offer(op);
        self.pins.result_ready = u8::from(ready);
        self.pins.mem_req_ready = u8::from(self.memory.is_ready());
        let response = self.memory.response();
        self.pins.mem_resp_valid = u8::from(response.is_some());
        let Response { error, data, tag } = response.unwrap_or_default();
        self.pins.mem_resp_error = u8::from(error);
        self.pins.mem_resp_data = data;
        self.pins.mem_resp_tag = tag;
        if self.clock() > 0 {
            return Err(UnitError::Assertion(self.cycle));
        }
        self.request()?;
        self.memory.end_cycle();
        self.stalls.line_cycles += u64::from(self.pins.wait_line);
        self.stalls.slot_cycles += u64::from(self.pins.wait_slot);
        let taken = op.is_some() && self.pins.op_ready != 0;
        Ok((taken, self.result(ready)?))
    }

    fn offer(&mut self, op: Option<&Op>) {
        self.pins.op_valid = u8::from(op.is_some());
        if let Some(op) = op {
            self.pins.op_kind = op.kind as u8;
            self.pins.op_unique = u8::from(op.unique);
            self.pins.op_base = op.base;
            self.pins.op_mask = op.mask;
            self.pins.op_key_addr = op.key_addr;
            self.pins.op_key_bytes = op.key_bytes;
            self.pins.op_tuple_addr = op.tuple_addr;
            self.pins.op_timestamp = op.timestamp;
            self.pins.op_id = op.id;
        }
    }

    fn request(&mut self) -> Result<(), UnitError> {
        let request = (self.pins.mem_req_valid != 0).then_some(Request {
            write: self.pins.mem_req_write != 0,
            addr: self.pins.mem_req_addr,
            data: self.pins.mem_req_data,
            tag: self.pins.mem_req_tag,
        });
        if self.held_request.is_some() && self.held_request != request {
            return Err(UnitError::UnstableRequest(self.cycle));
        }
        self.held_request = None;
        if let Some(request) = request {
            if self.pins.mem_req_ready != 0 {
                self.memory.take(request);
            } else {
                self.held_request = Some(request);
                self.stalls.port_cycles += 1;
            }
        }
        Ok(())
    }

    fn result(&mut self, ready: bool) -> Result<Option<OpResult>, UnitError> {
        let Pins {
            result_valid,
            result_id,
            result_code,
            result_addr,
            ..
        } = self.pins;
        let result = (result_valid != 0).then_some((result_id, result_code, result_addr));
        if self.held_result.is_some() && self.held_result != result {
            return Err(UnitError::UnstableResult(self.cycle));
        }
        self.held_result = if ready { None } else { result };
        let Some((id, code, addr)) = result.filter(|_| ready) else {
            return Ok(None);
        };
        let code = Code::from_number(code).ok_or(UnitError::UnknownCode(code))?;
        Ok(Some(OpResult { id, code, addr }))
    }
}

impl Drop for HashIndexUnit {
    fn drop(&mut self) {
        // SAFETY: made by the model's own function, freed here alone.
        unsafe { (self.free)(self.simulation.as_ptr()) }
    }
}
