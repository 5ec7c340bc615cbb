//! What a run needs besides program and inputs. Kept by the caller between runs, so that steady state
//! allocates nothing.

use weft_types::SqlError;

use crate::data_access::RowHandle;
use crate::guard::GuardKeys;
use crate::instr::{COLLECT_REGISTERS, KEY_BUFFERS, REGISTERS, ROW_BUFFERS};
use crate::interpreter::row_image::RowImage;

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

/// A collect register: what the DB instruction issued last on it gave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collected {
    /// Ordinal of the table that rows are of.
    pub table: u8,
    /// Status that RET gives, once.
    pub status: bool,
    /// The current row.
    pub row: Option<RowHandle>,
    /// Rows of a SCAN.
    pub rows: Vec<RowHandle>,
    /// The row in `rows` after the current one.
    pub next: usize,
}

impl Collected {
    /// Forgets everything; rows to come are of a table.
    pub fn clear(&mut self, table: u8) {
        self.table = table;
        self.status = false;
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

/// Reusable memory of [`crate::run`]. One run at a time.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    pub(crate) registers: Registers,
    pub(crate) collect: [Collected; COLLECT_REGISTERS],
    pub(crate) keys: [KeyImage; KEY_BUFFERS],
    pub(crate) rows: [RowImage; ROW_BUFFERS],
    pub(crate) guard: GuardKeys,
    /// A value on its way from one row buffer to another.
    pub(crate) text: Vec<u8>,
    /// Bounds of a SCAN.
    pub(crate) lo: Vec<u8>,
    pub(crate) hi: Vec<u8>,
    /// The first error, while the abort handler runs.
    pub(crate) error: Option<SqlError>,
}

impl Scratch {
    pub(crate) fn reset(&mut self) {
        self.registers.nulls = u64::MAX;
        for collect in &mut self.collect {
            // An ordinal that a program with rows to collect does not use before it issued something.
            collect.clear(u8::MAX);
        }
        for key in &mut self.keys {
            key.bytes.clear();
            key.unmatchable = false;
        }
        for row in &mut self.rows {
            row.target = crate::interpreter::row_image::RowTarget::None;
        }
        self.error = None;
    }
}
