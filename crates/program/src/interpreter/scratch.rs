//! The memory of a run besides program and inputs. The caller keeps it between runs, so that nothing is
//! allocated in steady state.

use weft_store::LookupPlan;
use weft_types::SqlError;

use crate::data_access::RowHandle;
use crate::guard::GuardKeys;
use crate::instr::{COLLECT_REGISTERS, KEY_BUFFERS, REGISTERS, ROW_BUFFERS};
use crate::interpreter::budget::Budget;
use crate::interpreter::handlers::Reports;
use crate::interpreter::row_image::{RowImage, RowTarget};
use crate::outcome::{OutputSize, OutputSizes};
use crate::prefetch::JoinPrefetch;
use crate::program::Program;
use crate::resolve::FrameUse;

/// General registers and their NULL flags.
#[derive(Clone, Debug)]
pub(crate) struct Registers {
    values: [u64; REGISTERS],
    /// Bit n: register n is NULL.
    nulls: u64,
}

impl Default for Registers {
    fn default() -> Self {
        Registers {
            values: [0; REGISTERS],
            nulls: u64::MAX,
        }
    }
}

const REGISTER_MASK: u8 = REGISTERS as u8 - 1;

impl Registers {
    /// Where values and NULL flags are, for machine code.
    ///
    /// # Safety
    /// The registers are live.
    #[cfg(feature = "compiled")]
    pub unsafe fn parts(registers: *mut Self) -> (*mut [u64; REGISTERS], *mut u64) {
        // SAFETY: places inside what the caller promises.
        unsafe { (&raw mut (*registers).values, &raw mut (*registers).nulls) }
    }

    #[inline]
    pub fn bits(&self, register: u8) -> Option<u64> {
        let register = register & REGISTER_MASK;
        if self.nulls >> register & 1 == 1 {
            None
        } else {
            Some(self.values[usize::from(register)])
        }
    }

    #[inline]
    pub fn get(&self, register: u8) -> Option<i64> {
        self.bits(register).map(|bits| bits as i64)
    }

    #[inline]
    pub fn set_bits(&mut self, register: u8, bits: Option<u64>) {
        let register = register & REGISTER_MASK;
        match bits {
            Some(bits) => {
                self.values[usize::from(register)] = bits;
                self.nulls &= !(1 << register);
            }
            None => self.nulls |= 1 << register,
        }
    }

    #[inline]
    pub fn set(&mut self, register: u8, value: Option<i64>) {
        self.set_bits(register, value.map(|value| value as u64));
    }
}

/// A collect register: the result of the last DB instruction on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collected {
    /// Ordinal of the rows' table.
    pub table: u8,
    /// Status that RET gives, once.
    pub status: bool,
    /// The access that covers the rows, by its key or range, while there are any.
    pub access: Option<u32>,
    /// The current row.
    pub row: Option<RowHandle>,
    /// Rows of a SCAN.
    pub rows: Vec<RowHandle>,
    /// The row in `rows` after the current one.
    pub next: usize,
}

impl Collected {
    /// Clears everything; the next rows belong to this table.
    pub fn clear(&mut self, table: u8) {
        self.table = table;
        self.status = false;
        self.access = None;
        self.row = None;
        self.rows.clear();
        self.next = 0;
    }
}

/// A key under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyImage {
    pub bytes: Vec<u8>,
    /// A NULL was appended as a value: the key equals nothing.
    pub unmatchable: bool,
}

/// The state of a suspended run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunState {
    /// The next instruction.
    pub pc: usize,
    /// It is in the abort handler.
    pub is_aborting: bool,
    /// What the instruction at `pc` searches has been prefetched.
    pub is_fetched: bool,
    /// Budget left, of the whole.
    pub left: u32,
    pub budget: Budget,
}

/// The frame of a run, reusable: all of its state between [`crate::begin`] and its end, and memory that the
/// next run reuses. One run at a time.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    pub(crate) registers: Registers,
    pub(crate) collect: [Collected; COLLECT_REGISTERS],
    pub(crate) keys: [KeyImage; KEY_BUFFERS],
    pub(crate) rows: [RowImage; ROW_BUFFERS],
    pub(crate) guard: GuardKeys,
    pub(crate) run: RunState,
    /// Prefetched searches of a loop.
    pub(crate) prefetch: JoinPrefetch,
    /// The expected output sizes of this program and others.
    pub(crate) output_size: OutputSize,
    pub(crate) output_sizes: OutputSizes,
    /// Runs since the last sample was counted.
    pub(crate) uncounted_runs: u32,
    /// How often the current run entered machine code.
    pub(crate) code_entries: u32,
    /// A value being copied from one row buffer to another.
    pub(crate) text: Vec<u8>,
    /// Bounds of a SCAN.
    pub(crate) lo: Vec<u8>,
    pub(crate) hi: Vec<u8>,
    /// Caught errors, and the fields set for the next one.
    pub(crate) reports: Reports,
    /// The first error, while the abort handler runs.
    pub(crate) error: Option<SqlError>,
}

impl Scratch {
    /// Whether machine code executed a part of the last run.
    pub fn ran_compiled(&self) -> bool {
        self.code_entries > 0
    }

    /// How often the last run entered machine code: it leaves it for rare cases, to wait for memory, and at
    /// its end.
    pub fn code_entries(&self) -> u32 {
        self.code_entries
    }

    /// Memory that the next run reuses, approximately, in bytes.
    pub fn kept_bytes(&self) -> usize {
        let rows: usize = self.rows.iter().map(RowImage::kept_bytes).sum();
        let keys: usize = self.keys.iter().map(|key| key.bytes.capacity()).sum();
        let found: usize = self.collect.iter().map(|collect| collect.rows.capacity()).sum();
        rows + keys + found * size_of::<RowHandle>() + self.text.capacity()
    }

    /// After [`crate::begin`]: plans the lookups of single rows and values whose keys the run has declared,
    /// one for each access, and the beginnings of its ranges, as far as they are known before its first
    /// instruction. The caller finishes the plan; the run's searches try the planned places first
    /// ([`crate::DataAccess::search_planned`]).
    pub fn plan_lookups(&mut self, program: &Program, inputs: &[u8], plan: &mut LookupPlan<'_>) {
        let resolved = &program.layouts.resolved;
        let fetch = resolved.row_fetch;
        let keys = &self.guard.keys;
        for (recipe, entry) in resolved.accesses.iter().zip(&keys.entries) {
            match recipe.lookup {
                Some((table, index)) if !entry.equals_nothing => {
                    plan.push_hashed(table, index, (keys.key(entry), entry.hash), fetch);
                }
                _ => plan.push_nothing(),
            }
        }
        for range in &resolved.ranges {
            range.key_into(&program.layouts.inputs, inputs, &mut self.lo);
            plan.push_range(range.table, range.index, &self.lo, fetch);
        }
    }

    /// Drops the rows and keys at hand, because writes are undone. The rows of a SCAN stay: an enclosing loop
    /// continues with the next of them. (Those of a SCAN within the block may be gone; the verifier excludes
    /// their use.)
    pub(crate) fn forget_rows(&mut self, uses: FrameUse) {
        for collect in self.collect.iter_mut().take(uses.collect) {
            match collect.rows.is_empty() {
                true => collect.clear(u8::MAX),
                false => (collect.status, collect.access) = (false, None),
            }
        }
        for key in self.keys.iter_mut().take(uses.keys) {
            key.bytes.clear();
            key.unmatchable = false;
        }
        self.prefetch.reset();
        self.run.is_fetched = false;
    }

    /// Resets what the program uses; the rest keeps its contents.
    pub(crate) fn reset(&mut self, uses: FrameUse) {
        self.registers.nulls = u64::MAX;
        for collect in self.collect.iter_mut().take(uses.collect) {
            // An ordinal that a program with rows to collect does not use before it issued something.
            collect.clear(u8::MAX);
        }
        for key in self.keys.iter_mut().take(uses.keys) {
            key.bytes.clear();
            key.unmatchable = false;
        }
        for row in self.rows.iter_mut().take(uses.rows) {
            row.target = RowTarget::None;
        }
        self.guard.reset();
        self.error = None;
        self.reports.reset();
        self.prefetch.reset();
    }
}
