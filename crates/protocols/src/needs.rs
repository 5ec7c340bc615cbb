//! The needs of a transaction, as slots of a table of words, for every protocol here.
//!
//! All protocols derive read and write sets in the same way, from the declared accesses of a program and its
//! inputs, so that differences between figures are differences between protocols. The guard of crate
//! `program` refuses undeclared accesses, so the sets are complete.
//!
//! A row access also locks the row's partition and table in an intention mode, for readers of ranges. If no
//! program of the stream accesses a range or a whole table, these intention locks cannot conflict and are
//! omitted: programs are known before the stream runs, as stored procedures are.
//!
//! Source: Hobbes 3.3 (sets known before execution); Barthels 2.3.5 (granularity).

use std::collections::HashSet;
use std::sync::Arc;

use weft_base::TableId;
use weft_lock::{LockMode, LockRequest, ResourceId, join};
use weft_program::{Access, AccessKeys, AccessKind, Program};
use weft_store::Catalog;
use weft_txn::planning::{LockRequests, LockScope, program_locks};
use weft_types::SqlError;

use crate::{Job, Safeguards};

/// The tables of a stream that some program accesses by range or as a whole.
#[derive(Debug, Clone, Default)]
pub struct CoarseTables {
    tables: Vec<TableId>,
    /// Whether some program writes a range or a whole table, which conflicts with intentions to read.
    written_whole: bool,
}

fn is_coarse_access(access: &Access) -> bool {
    matches!(
        access.kind,
        AccessKind::ReadRange | AccessKind::WriteRange | AccessKind::ReadTable | AccessKind::WriteTable
    )
}

/// Whether a program declares a range or a table, so that its rows are unknown.
pub(crate) fn is_coarse(program: &Program) -> bool {
    program.accesses.iter().any(is_coarse_access)
}

impl CoarseTables {
    /// Examines every program of the stream once. About a nanosecond per job if neighbours share a program.
    pub fn of(jobs: &[Job]) -> CoarseTables {
        let mut seen: HashSet<*const Program> = HashSet::new();
        let mut last = std::ptr::null();
        let mut found = CoarseTables::default();
        for job in jobs {
            let program = Arc::as_ptr(&job.program);
            if program == last || !seen.insert(program) {
                last = program;
                continue;
            }
            last = program;
            for access in &job.program.accesses {
                let coarse = is_coarse_access(access);
                if coarse && !found.tables.contains(&access.table) {
                    found.tables.push(access.table);
                }
                found.written_whole |= matches!(access.kind, AccessKind::WriteRange | AccessKind::WriteTable);
            }
        }
        found
    }

    fn concerns(&self, program: &Program) -> bool {
        let coarse = |table: &TableId| self.tables.contains(table);
        !self.tables.is_empty() && program.accesses.iter().any(|access| coarse(&access.table))
    }
}

/// A slot and the mode in which it is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Index into the protocol's table of words.
    pub slot: u32,
    /// The mode.
    pub mode: LockMode,
}

/// Derives lock requests and needs of jobs; reuses its memory.
#[derive(Debug, Default)]
pub struct NeedFinder {
    keys: AccessKeys,
    requests: LockRequests,
}

impl NeedFinder {
    /// The lock requests of a job, in the order of its accesses; only rows if no access to its tables is
    /// coarse. Errors: inputs that do not fit, a table that no longer exists.
    pub fn requests(
        &mut self,
        job: &Job,
        catalog: &Catalog,
        coarse: &CoarseTables,
    ) -> Result<&[LockRequest], SqlError> {
        if coarse.concerns(&job.program) {
            let scope = LockScope::ReadsAndWrites;
            self.requests = program_locks(&job.program, &job.inputs, catalog, scope, &mut self.keys)?;
            if !coarse.written_whole {
                self.requests.retain(|request| request.mode != LockMode::IS);
            }
            return Ok(&self.requests);
        }
        self.requests.clear();
        let requests = &mut self.requests;
        self.keys.prepare(&job.program, &job.inputs)?;
        self.keys.for_each(|number, key| {
            let Some(access) = job.program.accesses.get(number) else {
                return;
            };
            let (resource, mode) = match access.kind {
                AccessKind::ReadRow => (ResourceId::row_hashed(access.table, key.hash), LockMode::S),
                AccessKind::WriteRow | AccessKind::InsertRow if key.bytes.is_empty() => return,
                AccessKind::WriteRow | AccessKind::InsertRow => {
                    (ResourceId::row_hashed(access.table, key.hash), LockMode::X)
                }
                AccessKind::WriteValue(index) => (ResourceId::value_hashed(index, key.hash), LockMode::X),
                // Not reached: their tables are coarse.
                AccessKind::ReadRange
                | AccessKind::WriteRange
                | AccessKind::ReadTable
                | AccessKind::WriteTable => return,
            };
            requests.push(LockRequest { resource, mode });
        });
        Ok(&self.requests)
    }

    /// The needs for protocols with three kinds of access: shared reads (S), changes that are compatible with
    /// each other (IX), exclusive changes (X). If some program writes a whole table, intentions count as the
    /// full mode.
    pub(crate) fn simple_needs(
        &mut self,
        job: &Job,
        catalog: &Catalog,
        coarse: &CoarseTables,
        slot_mask: u32,
        out: &mut Vec<Need>,
    ) -> Result<(), SqlError> {
        self.needs(job, catalog, coarse, slot_mask, out)?;
        for need in out {
            need.mode = match need.mode {
                LockMode::IS => LockMode::S,
                LockMode::IX if coarse.written_whole => LockMode::X,
                LockMode::SIX => LockMode::X,
                mode => mode,
            };
        }
        Ok(())
    }

    /// The requests, without reads if the safeguards do not lock them.
    pub(crate) fn guarded_requests<G: Safeguards>(
        &mut self,
        job: &Job,
        catalog: &Catalog,
        coarse: &CoarseTables,
    ) -> Result<&[LockRequest], SqlError> {
        self.requests(job, catalog, coarse)?;
        if !G::LOCKS_READS {
            self.requests.retain(|request| request.mode != LockMode::S);
        }
        Ok(&self.requests)
    }

    /// The needs, without reads if the safeguards do not lock them.
    pub(crate) fn guarded_needs<G: Safeguards>(
        &mut self,
        job: &Job,
        catalog: &Catalog,
        coarse: &CoarseTables,
        slot_mask: u32,
        out: &mut Vec<Need>,
    ) -> Result<(), SqlError> {
        // Filtered before modes are joined: a transaction that reads a range and writes into it still writes.
        needs_of(self.guarded_requests::<G>(job, catalog, coarse)?, slot_mask, out);
        Ok(())
    }

    /// The requests as slots of a table of `slot_mask + 1` words, without duplicates, in access order. Modes
    /// on one slot are joined, so that a collision can only strengthen a mode.
    pub fn needs(
        &mut self,
        job: &Job,
        catalog: &Catalog,
        coarse: &CoarseTables,
        slot_mask: u32,
        out: &mut Vec<Need>,
    ) -> Result<(), SqlError> {
        needs_of(self.requests(job, catalog, coarse)?, slot_mask, out);
        Ok(())
    }
}

/// See [`NeedFinder::needs`].
pub(crate) fn needs_of(requests: &[LockRequest], slot_mask: u32, out: &mut Vec<Need>) {
    out.clear();
    for request in requests {
        let slot = slot_of(request.resource, slot_mask);
        match out.iter_mut().find(|need| need.slot == slot) {
            Some(need) => need.mode = join(need.mode, request.mode),
            None => out.push(Need {
                slot,
                mode: request.mode,
            }),
        }
    }
}

/// The word of a resource. The id is already a hash; its upper half is folded in because its top bits encode
/// the kind.
#[inline]
pub fn slot_of(resource: ResourceId, slot_mask: u32) -> u32 {
    (resource.0 ^ resource.0 >> 32) as u32 & slot_mask
}

/// The mask for a table of at least `slot_count` words, a power of two from 64 to 2^31.
pub fn slot_mask(slot_count: usize) -> u32 {
    slot_count.clamp(64, 1 << 31).next_power_of_two() as u32 - 1
}
