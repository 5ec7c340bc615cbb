//! Runs one program inside a transaction: acquires its locks, then reads and writes over a snapshot and the
//! overlay.

use super::Transaction;
use crate::locks;
use crate::record::BUDGET;
use crate::session_access::{SessionAccess, StatementContext};
use crate::view;
use std::cell::Cell;
use std::sync::Arc;
use std::task::Waker;
use weft_program::{AccessKeys, DataAccess, Outcome, Program, Scratch};
use weft_types::SqlError;

/// Memory for the run of a program; a thread runs one at a time.
#[derive(Default)]
struct RunMemory {
    scratch: Scratch,
    keys: AccessKeys,
    images: Vec<u8>,
}

/// Bytes of one kind that a thread keeps between runs.
const KEPT_BYTES: usize = 256 << 10;

thread_local! {
    static RUN_MEMORY: Cell<Option<Box<RunMemory>>> = const { Cell::new(None) };
}

impl Transaction {
    /// As [`Self::run`], but where it would wait for a lock it returns an error for which
    /// [`super::is_parked`] holds. `waker` is called when the lock is granted or refused, but not when the
    /// statement is cancelled or times out: that shows when it is run again.
    pub fn run_or_park(
        &mut self,
        program: &Arc<Program>,
        inputs: &[u8],
        waker: &Waker,
    ) -> Result<Outcome, SqlError> {
        self.waker = Some(waker.clone());
        let result = self.run(program, inputs);
        self.waker = None;
        result
    }

    /// Runs a program inside the transaction; it must have been compiled for `catalog()`. On an error the
    /// statement's own writes are undone.
    pub fn run(&mut self, program: &Arc<Program>, inputs: &[u8]) -> Result<Outcome, SqlError> {
        // Taken out: if a waker runs another transaction's program in the meantime, that gets memory of its
        // own.
        let mut memory = RUN_MEMORY.take().unwrap_or_default();
        let result = self.run_with(program, inputs, &mut memory);
        if memory.images.capacity() <= KEPT_BYTES && memory.scratch.kept_bytes() <= KEPT_BYTES {
            RUN_MEMORY.set(Some(memory));
        }
        result
    }

    fn run_with(
        &mut self,
        program: &Arc<Program>,
        inputs: &[u8],
        memory: &mut RunMemory,
    ) -> Result<Outcome, SqlError> {
        if !program.read_only {
            self.refuse_writes_in_excess()?;
        }
        let scope = self.lock_scope();
        // The definitions that the program was compiled for will do; whether they are still the newest is
        // checked under the locks.
        let known = self
            .known
            .take()
            .filter(|known| known.version() == program.catalog_version);
        let known = known.unwrap_or_else(|| self.catalog());
        let requests = locks::program_locks(program, inputs, &known, scope, &mut memory.keys)?;
        self.known = Some(known);
        self.lock(requests)?;
        // Not a view: it would share the overlay, which is about to change, and force a copy.
        let snapshot = self.statement_snapshot()?;
        if program.catalog_version
            != self
                .private_catalog
                .as_ref()
                .unwrap_or(snapshot.catalog())
                .version()
        {
            return Err(locks::stale_program());
        }
        if !program.read_only {
            self.check_definitions()?;
        }
        if !self.catalog_ops.is_empty() {
            let unusable = self.unusable_tables();
            if program
                .accesses
                .iter()
                .any(|access| unusable.contains(&access.table))
            {
                return Err(view::without_key());
            }
        }
        let mark = self.overlay.mark();
        let mut outcome = Outcome::default();
        let newest = self.pinned.as_ref().map(|_| self.seen(self.engine.snapshot()));
        let snapshot = self.seen(snapshot);
        let context = StatementContext {
            snapshot: &snapshot,
            newest: newest.as_ref().unwrap_or(&snapshot),
            catalog: self.private_catalog.as_ref().unwrap_or(snapshot.catalog()),
            overlay: Arc::make_mut(&mut self.overlay),
            first_updater_wins: newest.is_some(),
            locks_only: program.read_only && program.accesses.iter().any(|access| access.kind.is_write()),
        };
        let mut access = SessionAccess::new(context, &mut memory.images);
        let result = weft_program::run_with_keys(
            program,
            (inputs, &memory.keys),
            &mut access,
            BUDGET,
            &mut memory.scratch,
            &mut outcome,
        );
        let observed = access.observed();
        drop(access);
        self.observe(observed);
        match result.and_then(|()| self.reserve_writes()) {
            Ok(()) => Ok(outcome),
            Err(error) => {
                self.overlay_mut().rollback_to(mark);
                Err(error)
            }
        }
    }
}
