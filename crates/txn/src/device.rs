//! Devices that run members of waves: what the executor asks of one, and what it answers.
//!
//! ```text
//!             wave: the members that do not conflict
//!                |                         |
//!    programs that the device has      all others
//!                v                         v
//!    start(calls) ... finish()        CPU executor, meanwhile
//!                |  an answer and a write set for each member
//!                v
//!    compared with the CPU's, or tested and written to the host's rows   (`waves`)
//!                |
//!    rows that the host changed -> the device's mirror                   (`placed`)
//! ```
//!
//! The host's rows stay the authority; the device has a mirror of the tables that are placed on it, which is
//! of the state before the wave that it runs. Only one thread at a time uses a device. What it does not run,
//! the CPU runs, and each such member is counted with the reason ([`CpuReason`]).
//!
//! A device that answers wrongly, too few times or never is taken out of service; its group is done on the
//! CPU ([`DeviceStats::failure`] names the batch). Which answers are compared with the CPU's is a setting
//! ([`DeviceCheck`]): with [`DeviceCheck::Every`] no wrong answer becomes state.
//!
//! Nothing here is of one device: `crates/weft` has the adapter to the simulated softcore. Decision 0056.
//!
//! Source: BionicDB 4.2, 4.5 (host and card), DESIGN.md (Executors, Hardware).

mod answers;
mod placed;
mod reads;
mod stats;
mod waves;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use weft_base::TableId;
use weft_program::{Outcome, Program};
use weft_store::{RowChange, TableDef};
use weft_types::SqlError;

pub(crate) use placed::PlacedDevice;
pub use stats::{CpuReason, DeviceStats, RowsMoved};

/// A member for a device: a program by the number that [`DeviceExecutor::load_program`] gave, and its encoded
/// inputs.
#[derive(Debug, Clone, Copy)]
pub struct DeviceCall<'c> {
    /// The program's number.
    pub program: usize,
    /// As the interpreter takes them.
    pub inputs: &'c [u8],
}

/// How a member ended on a device.
#[derive(Debug, Clone)]
pub enum DeviceAnswer {
    /// It committed.
    Committed {
        /// What its statements returned.
        outcome: Outcome,
        /// The rows that it changed (`weft_txn::write_set`).
        write_set: Vec<u8>,
    },
    /// The program's own error; it changed nothing.
    Failed(SqlError),
    /// The device did not run it, or undid it: the CPU has to run it.
    NotRun(NotRun),
}

/// Why a device did not run a member that it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotRun {
    /// An input has no form on the device, or a key is NULL.
    Inputs,
    /// The device's concurrency control rejected it.
    Rejected,
}

/// What is wrong with a device, as a sentence for the log and for figures. It is taken out of service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFault(pub String);

/// Runs groups of members on a mirror of tables. All calls come from one thread at a time.
///
/// Members of a group do not conflict, so the device may run them in any order or at once, and it changes its
/// mirror in place. It answers each of them once, in the order of the calls.
pub trait DeviceExecutor: Send {
    /// Forgets all tables and programs, and what has run. Also the way back after a fault.
    fn clear(&mut self);

    /// Places an empty table with room for about so many rows.
    ///
    /// # Errors
    /// It does not take the table; the reason, for users.
    fn place_table(&mut self, table: &TableDef, row_count: u64) -> Result<(), String>;

    /// Makes a change of the host's rows in the mirror. The table has been placed.
    ///
    /// # Errors
    /// The row has no form on the device, or there is no room for it: the table cannot stay placed.
    fn change_row(&mut self, change: &RowChange<'_>) -> Result<(), String>;

    /// Loads a program. Tables that it uses have been placed.
    ///
    /// # Errors
    /// It does not take the program; the reason, for users.
    fn load_program(&mut self, program: &Arc<Program>) -> Result<usize, String>;

    /// Gives it a group. It copies what it needs and need not have run anything when this returns.
    ///
    /// # Errors
    /// It is out of order.
    fn start(&mut self, calls: &[DeviceCall<'_>]) -> Result<(), DeviceFault>;

    /// Waits for the answers of the group.
    ///
    /// # Errors
    /// It is out of order; no answer is to be trusted.
    fn finish(&mut self) -> Result<Vec<DeviceAnswer>, DeviceFault>;
}

/// Which groups the CPU runs as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceCheck {
    /// All: answers and changed rows are compared before the batch is logged. The CPU's count.
    #[default]
    Every,
    /// The first one and every n-th after it. Of the others, answers are tested for what no correct device
    /// does (a row that the member has not declared, one that does not exist); a wrong value in a right row
    /// is found by the digest when the log is replayed, on a CPU, at the next recovery.
    OneIn(NonZeroU32),
}

/// What is to be placed.
#[derive(Debug, Clone, Default)]
pub struct DeviceSettings {
    /// The tables. One that the device does not take is left out; see [`DeviceStats::refused_tables`].
    pub tables: Vec<TableId>,
    /// Which of its answers are compared with the CPU's.
    pub check: DeviceCheck,
}

/// The place for a device of an engine.
#[derive(Default)]
pub(crate) struct DeviceSlot {
    /// So that an engine without one pays a load.
    is_used: AtomicBool,
    placed: Mutex<Option<PlacedDevice>>,
}

impl DeviceSlot {
    /// Takes a device in the place of the one before.
    pub fn set(&self, placed: Option<PlacedDevice>) {
        let mut slot = self.placed.lock();
        self.is_used.store(placed.is_some(), Ordering::Release);
        *slot = placed;
    }

    /// The device, once nobody else uses it; `None` if there is none.
    pub fn get(&self) -> Option<MutexGuard<'_, Option<PlacedDevice>>> {
        self.is_used.load(Ordering::Acquire).then(|| self.placed.lock())
    }

    /// The same without waiting; `Some(None)`: somebody uses it.
    #[allow(clippy::option_option, reason = "no device, or one that is in use")]
    pub fn try_get(&self) -> Option<Option<MutexGuard<'_, Option<PlacedDevice>>>> {
        self.is_used
            .load(Ordering::Acquire)
            .then(|| self.placed.try_lock())
    }
}
