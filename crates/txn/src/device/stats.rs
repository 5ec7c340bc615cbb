//! What a device did, and what the CPU did in its place.

use std::fmt;
use std::time::Duration;

use weft_base::{BatchId, TableId};

/// Why the CPU ran a member while a device was placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CpuReason {
    /// It is a transaction's commit, not a program.
    Commit,
    /// The device does not take its program ([`DeviceStats::refused_programs`]).
    Program,
    /// An input has no form on the device, or a key is NULL.
    Inputs,
    /// The device's concurrency control rejected it, as one that changes a row which it meets twice.
    Rejected,
    /// What it wrote breaks a condition of its table, which the CPU reports.
    Condition,
    /// A read: the mirror is not of the boundary that it reads.
    Boundary,
    /// A read: another thread used the device.
    Busy,
    /// The device is out of service.
    OutOfService,
    /// The device failed with its group.
    Redone,
}

impl CpuReason {
    /// All of them.
    pub const ALL: [CpuReason; 9] = [
        CpuReason::Commit,
        CpuReason::Program,
        CpuReason::Inputs,
        CpuReason::Rejected,
        CpuReason::Condition,
        CpuReason::Boundary,
        CpuReason::Busy,
        CpuReason::OutOfService,
        CpuReason::Redone,
    ];
}

impl fmt::Display for CpuReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CpuReason::Commit => "a transaction's commit",
            CpuReason::Program => "a program that the device does not take",
            CpuReason::Inputs => "inputs without a form on the device",
            CpuReason::Rejected => "rejected by the device",
            CpuReason::Condition => "a condition of the table",
            CpuReason::Boundary => "the mirror is of another boundary",
            CpuReason::Busy => "the device was in use",
            CpuReason::OutOfService => "the device is out of service",
            CpuReason::Redone => "redone after a fault",
        })
    }
}

/// Rows that were moved between host and device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowsMoved {
    /// How many.
    pub rows: u64,
    /// Their bytes, as the host has them.
    pub bytes: u64,
    /// How long it took the host.
    pub time: Duration,
}

impl RowsMoved {
    pub(super) fn add(&mut self, bytes: usize) {
        self.rows += 1;
        self.bytes += bytes as u64;
    }
}

/// What a device did since it was placed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceStats {
    /// Groups that were given to it.
    pub groups: u64,
    /// Members that it ran: those whose answers counted, or were found equal to the CPU's.
    pub members: u64,
    /// Of them, those that were compared with the CPU's.
    pub checked_members: u64,
    /// Members that the CPU alone ran, by [`CpuReason`].
    pub cpu_members: [u64; CpuReason::ALL.len()],
    /// Filling the mirror: at the beginning, and after it was lost.
    pub loading: RowsMoved,
    /// Rows that the host changed, brought into the mirror.
    pub mirrored: RowsMoved,
    /// Rows that the device changed, written to the host's rows.
    pub written_back: RowsMoved,
    /// Programs that it does not take, as prefixes of their hashes, with the reasons; the first few.
    pub refused_programs: Vec<(String, String)>,
    /// Tables that it does not take, with the reasons.
    pub refused_tables: Vec<(TableId, String)>,
    /// Why it is out of service, and the batch in which that was found.
    pub failure: Option<(BatchId, String)>,
}

impl DeviceStats {
    /// Members that the CPU ran for this reason.
    pub fn cpu_members(&self, reason: CpuReason) -> u64 {
        self.cpu_members.get(reason as usize).copied().unwrap_or_default()
    }

    pub(crate) fn count_cpu(&mut self, reason: CpuReason, members: usize) {
        if let Some(count) = self.cpu_members.get_mut(reason as usize) {
            *count += members as u64;
        }
    }
}
