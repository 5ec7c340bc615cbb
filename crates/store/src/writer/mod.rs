//! Writing: the open batch, its members, and the digest of their changes.
//!
//! Members of one wave may run on several threads at once, since no two of them touch the same row or unique
//! value (guaranteed by the lock manager above). A member's writes are new versions of batch N at the heads
//! of chains, immediately in place and visible to later members; its rollback removes them again. Readers see
//! none of them: their boundary is below N.
//!
//! Each write changes the state digest by the term of the version that it links less the term of the one that
//! it found, both computed from stored bytes while these are in the cache. Only committed members' changes
//! count; of several writes to one row in a batch the intermediate terms cancel out. Sums do not depend on
//! order, so neither member order within a wave nor the number of threads matters; and a stored bit that has
//! flipped makes the digest differ from that of a replay or a replica.

mod changes;
mod definition;
mod member;
pub(crate) mod violation;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use smallvec::SmallVec;
use weft_base::{BatchId, RowId};
use weft_types::SqlError;

use crate::catalog::Catalog;
use crate::garbage::RowPlace;
use crate::index::prepare::Prepared;
use crate::memory::{Pin, ReadContext, Slot, SlotId};
use crate::probe::Probe;
use crate::read::ReadView;
use crate::store::{Finished, GateGuard, Store};
use crate::table::{Schema, TableCore, TableData};
pub use changes::RowChange;
pub use member::MemberWriter;

/// One write of a member: a version that it linked.
#[derive(Clone, Copy)]
struct Write {
    slot: SlotId,
    /// Position in the member's tables.
    table: u32,
    /// From this write on the chain has something to collect, once readers below this batch are gone.
    supersedes: bool,
    /// This write removes the row.
    removes: bool,
}

/// What a member did to a table.
struct TableWrites {
    data: Arc<TableData>,
    /// How many rows it gained.
    row_change: i64,
    /// By how much its part of the state digest changed.
    digest_change: u64,
    /// Bytes of the versions that were superseded.
    superseded_bytes: u64,
}

/// What a member wrote, in order.
struct MemberWrites {
    /// Its number.
    member: u32,
    tables: SmallVec<[TableWrites; 4]>,
    writes: Writes,
}

/// Most members write one row, and allocate nothing for it.
type Writes = SmallVec<[Write; 2]>;

/// The open batch. Dropping it without [`BatchWriter::finish`] undoes it.
pub struct BatchWriter<'s> {
    store: &'s Store,
    batch: BatchId,
    /// The published schema, and the one that this batch has made of it.
    before: Arc<Schema>,
    schema: Arc<Schema>,
    committed: Mutex<Vec<MemberWrites>>,
    /// Whether all cold rows that its members needed could be read; rows that they read in another layout.
    context: ReadContext,
    /// For catalog operations to come.
    prepared: Mutex<Vec<Prepared>>,
    is_finished: bool,
    /// Dropped last, when the batch is finished or undone.
    _gate: GateGuard<'s>,
}

impl<'s> BatchWriter<'s> {
    pub(crate) fn new(store: &'s Store, gate: GateGuard<'s>, batch: BatchId, schema: Arc<Schema>) -> Self {
        BatchWriter {
            store,
            batch,
            before: Arc::clone(&schema),
            schema,
            committed: Mutex::new(Vec::new()),
            context: ReadContext::default(),
            prepared: Mutex::default(),
            is_finished: false,
            _gate: gate,
        }
    }

    /// The batch's number.
    pub fn batch(&self) -> BatchId {
        self.batch
    }

    /// The catalog as changed by this batch so far.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.schema.catalog
    }

    /// What a member sees, for a [`LookupPlan`](crate::LookupPlan); any thread.
    pub fn view(&self) -> ReadView<'_> {
        let before = BatchId(self.batch.0.saturating_sub(1));
        ReadView::new(&self.schema, self.pin(Pin::EVERYTHING), before, 0)
    }

    /// Reads what the probe prefetched and prefetches what comes next; false if nothing is left.
    pub fn advance_probe(&self, probe: &mut Probe) -> bool {
        probe.advance(&self.schema, self.pin(Pin::EVERYTHING))
    }

    /// Starts a member. Conflicting members must not be open at the same time; any thread.
    pub fn member(&self, member: u32) -> MemberWriter<'_> {
        MemberWriter::new(self, member)
    }

    /// Fails if a row that a member needed could not be read from disk. What the members did is then not
    /// what they should have done: the batch is to be undone. Members wait for such rows, and so does whoever
    /// waits for the batch.
    pub fn check_rows(&self) -> Result<(), SqlError> {
        self.context.check()
    }

    /// Closes the batch and returns the new state digest; [`Store::publish`] makes it visible. Do not publish
    /// it if [`Store::is_damaged`] says that a row it replaced was not what had been written.
    ///
    /// Panics if [`BatchWriter::check_rows`] fails: a bug of the caller.
    pub fn finish(mut self) -> u64 {
        assert!(
            self.check_rows().is_ok(),
            "a batch that could not read a row is undone"
        );
        self.is_finished = true;
        #[cfg(any(test, feature = "faults"))]
        self.store.panic_if_asked(crate::store::PanicAt::Finish);
        let committed = std::mem::take(self.committed.get_mut());
        let mut digest = self
            .store
            .state_digest()
            .wrapping_add(self.digest_of_definitions());
        let all_writes = committed.iter().flat_map(|member| &member.writes);
        let mut superseded = Vec::with_capacity(all_writes.filter(|write| write.supersedes).count());
        let (mut superseded_bytes, mut writes) = (0, 0);
        for member in &committed {
            for table in &member.tables {
                if self.kept(&table.data.core) == (true, true) {
                    digest = digest.wrapping_add(table.digest_change);
                    let sum = &table.data.core.terms_sum;
                    sum.fetch_add(table.digest_change, Ordering::Relaxed);
                    superseded_bytes += table.superseded_bytes;
                }
            }
            writes += member.writes.len();
            for write in &member.writes {
                if !(write.supersedes || write.removes) {
                    continue;
                }
                let table = member.tables.get(write.table as usize);
                let Some(core) = table
                    .map(|table| &table.data.core)
                    .filter(|core| self.kept(core).1)
                else {
                    continue;
                };
                if write.supersedes {
                    superseded.push(RowPlace::new(core, write.slot));
                }
                if write.removes {
                    self.note_removed(core, write.slot);
                }
            }
        }
        let schema = (!Arc::ptr_eq(&self.before, &self.schema)).then(|| Arc::clone(&self.schema));
        self.store.set_finished(Finished {
            batch: self.batch,
            digest,
            schema,
            superseded,
            superseded_bytes,
            writes,
        });
        digest
    }

    /// Records for the next checkpoint that a row was removed which an earlier one may contain. (The row's
    /// slot may belong to another row by then.)
    fn note_removed(&self, core: &TableCore, slot: SlotId) {
        let row_id = core.slots.resident(slot).map(Slot::row_id);
        let may_be_there = |row_id: &RowId| row_id.batch <= self.store.checkpoint_begun();
        core.removed.lock().extend(row_id.filter(may_be_there));
    }

    /// Undoes everything that the batch did, catalog changes included. The same batch number may be opened
    /// again.
    pub fn abort(self) {}

    /// What this change of definitions adds to the digest: the catalog's term, tables that were removed,
    /// tables that were added.
    fn digest_of_definitions(&self) -> u64 {
        let (before, after) = (&self.before, &self.schema);
        let mut change = after.catalog.digest().wrapping_sub(before.catalog.digest());
        if Arc::ptr_eq(&before.tables, &after.tables) {
            return change;
        }
        for table in before.tables.values().filter(|table| !self.kept(&table.core).1) {
            change = change.wrapping_sub(table.core.terms_sum.load(Ordering::Relaxed));
        }
        for table in after.tables.values().filter(|table| !self.kept(&table.core).0) {
            // Its rows were written in this batch, so all of them are in memory.
            let terms = table.core.digest(self.pin(Pin::EVERYTHING));
            debug_assert!(terms.is_ok(), "no row of a new table is cold");
            let terms = terms.unwrap_or_default();
            table.core.terms_sum.store(terms, Ordering::Relaxed);
            change = change.wrapping_add(terms);
        }
        change
    }

    /// Whether these rows existed before the batch, and exist after it.
    #[inline]
    fn kept(&self, core: &Arc<TableCore>) -> (bool, bool) {
        if Arc::ptr_eq(&self.before, &self.schema) {
            return (true, true);
        }
        let holds = |schema: &Schema| {
            schema
                .tables
                .get(&core.table)
                .is_some_and(|table| Arc::ptr_eq(&table.core, core))
        };
        (holds(&self.before), holds(&self.schema))
    }

    fn pin(&self, horizon: u64) -> Pin<'_> {
        // SAFETY: the store's gate is closed while this batch is open, so the collector frees nothing.
        unsafe { Pin::new(horizon) }.with_context(&self.context)
    }

    /// Removes the versions of some writes, last first, and the index entries that only they needed.
    fn undo<'d>(&self, table_of: impl Fn(usize) -> Option<&'d Arc<TableData>>, writes: &[Write]) {
        let boundary = BatchId(self.batch.0 - 1);
        let mut retired = Vec::with_capacity(writes.len());
        for write in writes.iter().rev() {
            let Some(table) = table_of(write.table as usize) else {
                continue;
            };
            let core = &table.core;
            let Some(place) = core.slots.resident(write.slot) else {
                continue;
            };
            let Some(version) = place.pop() else {
                continue;
            };
            let remaining = place.at(self.pin(Pin::EVERYTHING));
            if !version.view().keeps_keys() {
                table.remove_entries(write.slot, version.view(), remaining, self.batch);
            }
            core.slots.unlinked(version.view().size_bytes());
            if remaining.is_none() {
                table.remove_row_id(write.slot, place.row_id());
                core.slots.release(write.slot);
            }
            retired.push((RowPlace::new(core, write.slot), version));
        }
        let mut garbage = self.store.garbage().lock();
        for (place, version) in retired {
            garbage.retire(boundary, place, version);
        }
    }
}

impl Drop for BatchWriter<'_> {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        for member in std::mem::take(self.committed.get_mut()).iter().rev() {
            for table in &member.tables {
                let row_count = &table.data.core.row_count;
                row_count.fetch_sub(table.row_change, Ordering::Relaxed);
            }
            self.undo(
                |at| member.tables.get(at).map(|table| &table.data),
                &member.writes,
            );
        }
    }
}

const _: () = {
    const fn is_sync<T: Sync>() {}
    const fn is_send<T: Send>() {}
    is_sync::<BatchWriter<'_>>();
    is_send::<MemberWriter<'_>>();
};

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use weft_base::SimDisk;
    use weft_types::{SqlType, Value};

    use super::*;
    use crate::catalog::{CatalogOp, ColumnDef, TableDef};
    use crate::checkpoint::{Changes, CheckpointConfig, CheckpointError, Checkpoints};
    use weft_base::{IndexId, TableId};

    const TABLE: TableId = TableId(crate::FIRST_OBJECT_ID);

    fn three_rows() -> Arc<Store> {
        let store = Store::new();
        let mut batch = store.begin_batch(BatchId(1));
        let def = TableDef::new(TABLE, "t", vec![ColumnDef::new("a", SqlType::Int8)]);
        batch.apply_catalog(&CatalogOp::CreateTable(def.clone())).unwrap();
        let mut member = batch.member(0);
        for a in 0..3 {
            member
                .insert(TABLE, &def.layout.encode(&[Value::Int8(a)]).unwrap())
                .unwrap();
        }
        member.commit();
        batch.finish();
        store.publish(BatchId(1));
        store
    }

    /// Overwrites the second row.
    fn next_digest(store: &Arc<Store>) -> u64 {
        let batch = store.begin_batch(BatchId(2));
        let mut member = batch.member(0);
        let row = store
            .catalog()
            .table("t")
            .unwrap()
            .layout
            .encode(&[Value::Int8(9)])
            .unwrap();
        member.update(TABLE, SlotId(1), &row).unwrap();
        member.commit();
        let digest = batch.finish();
        store.publish(BatchId(2));
        digest
    }

    #[test]
    fn a_flipped_bit_is_detected() {
        let good = three_rows();
        for bit in [0, 8, 13, 71] {
            // Row 1 is written next: its old term comes from the damaged bytes, so the digest differs from
            // a replay's.
            let bad = three_rows();
            assert_eq!(bad.state_digest(), good.state_digest());
            assert!(bad.corrupt_row_for_test(TABLE, 1, bit));
            assert_ne!(bad.snapshot().verify_digest().unwrap(), bad.state_digest());
            assert_ne!(next_digest(&bad), next_digest(&three_rows()));
            // Row 2 is not touched: the full check shows it, and no checkpoint is made of it.
            let bad = three_rows();
            assert!(bad.corrupt_row_for_test(TABLE, 2, bit));
            next_digest(&bad);
            assert_ne!(bad.snapshot().verify_digest().unwrap(), bad.state_digest());
            let disk = Arc::new(SimDisk::new(1));
            let mut checkpoints =
                Checkpoints::open(disk, "/".as_ref(), &CheckpointConfig::default()).unwrap();
            let changes = Changes::take(&bad).unwrap();
            let written = checkpoints.write(changes, &mut |_| ControlFlow::Continue(()));
            assert!(
                matches!(written, Err(CheckpointError::DamagedMemory { .. })),
                "{written:?}"
            );
        }
        assert!(!good.corrupt_row_for_test(TABLE, 3, 0));
    }

    /// Damage to a row that is written, or was replaced, since the last checkpoint; damage elsewhere stays in
    /// memory.
    #[test]
    fn damaged_memory_does_not_become_a_checkpoint() {
        for (nth, is_replaced) in [(1, false), (1, true), (2, false)] {
            let store = three_rows();
            let disk = Arc::new(SimDisk::new(1));
            let mut checkpoints =
                Checkpoints::open(disk, "/".as_ref(), &CheckpointConfig::default()).unwrap();
            let mut checkpoint = || {
                let changes = Changes::take(&store).unwrap();
                checkpoints.write(changes, &mut |_| ControlFlow::Continue(()))
            };
            checkpoint().unwrap();
            if !is_replaced {
                next_digest(&store);
            }
            assert!(store.corrupt_row_for_test(TABLE, nth, 8));
            if is_replaced {
                next_digest(&store);
            }
            let written = checkpoint();
            let is_refused = matches!(written, Err(CheckpointError::DamagedMemory { .. }));
            assert_eq!(is_refused, nth == 1, "{nth} {is_replaced}: {written:?}");
        }
    }

    /// Nor an image, though the checkpoint has the row as it was.
    #[test]
    fn damaged_memory_does_not_become_an_image() {
        let store = three_rows();
        let disk = Arc::new(SimDisk::new(1));
        let mut checkpoints = Checkpoints::open(disk, "/".as_ref(), &CheckpointConfig::default()).unwrap();
        let changes = Changes::take(&store).unwrap();
        checkpoints
            .write(changes, &mut |_| ControlFlow::Continue(()))
            .unwrap();
        assert!(store.corrupt_row_for_test(TABLE, 1, 8));
        assert!(!checkpoints.write_image(&store).unwrap());
        assert!(store.corrupt_row_for_test(TABLE, 1, 8));
        assert!(checkpoints.write_image(&store).unwrap());
    }

    /// Several members of a batch write one row, one of them takes its writes back: the digest is that of the
    /// rows as they are stored, and nothing older stays.
    #[test]
    fn writes_to_one_row_in_a_batch_add_up() {
        let store = three_rows();
        let row = |a| {
            let def = Arc::clone(store.catalog().table("t").unwrap());
            def.layout.encode(&[Value::Int8(a)]).unwrap()
        };
        let batch = store.begin_batch(BatchId(2));
        let mut member = batch.member(0);
        let new = member.insert(TABLE, &row(10)).unwrap();
        member.update(TABLE, SlotId(0), &row(11)).unwrap();
        member.commit();
        let mut member = batch.member(1);
        member.update(TABLE, new, &row(12)).unwrap();
        member.update(TABLE, SlotId(0), &row(13)).unwrap();
        member.remove(TABLE, SlotId(2)).unwrap();
        member.rollback();
        let mut member = batch.member(2);
        member.update(TABLE, new, &row(14)).unwrap();
        member.update(TABLE, new, &row(15)).unwrap();
        member.remove(TABLE, SlotId(1)).unwrap();
        member.insert(TABLE, &row(16)).unwrap();
        member.commit();
        let digest = batch.finish();
        store.publish(BatchId(2));
        assert_eq!(store.snapshot().verify_digest().unwrap(), digest);
        for number in 3..6 {
            store.begin_batch(BatchId(number)).finish();
            store.publish(BatchId(number));
            store.collect_garbage(1_000);
        }
        let stats = store.memory_stats();
        assert_eq!(
            (stats.superseded_rows, stats.unlinked_versions, stats.block_bytes),
            (0, 0, 0)
        );
        assert_eq!(stats.version_bytes, 4 * (24 + row(0).len() as u64));
        assert_eq!(store.snapshot().verify_digest().unwrap(), digest);
    }

    /// Two unique indexes, each with a hash and an order, and one with neither.
    fn indexed() -> Arc<Store> {
        use crate::catalog::{IndexDef, IndexMethod};
        let store = Store::new();
        let mut batch = store.begin_batch(BatchId(1));
        let columns = ["k", "u", "o"].map(|name| ColumnDef::new(name, SqlType::Int8));
        let index = |number: u32, method| IndexDef {
            id: IndexId(TABLE.0 + 1 + number),
            name: format!("i{number}"),
            table: TABLE,
            columns: vec![number as usize],
            unique: number < 2,
            primary: number == 0,
            method,
        };
        let def = TableDef::new(TABLE, "t", columns.to_vec())
            .with_index(index(0, IndexMethod::Both))
            .with_index(index(1, IndexMethod::Both))
            .with_index(index(2, IndexMethod::Ordered));
        batch.apply_catalog(&CatalogOp::CreateTable(def)).unwrap();
        batch.finish();
        store.publish(BatchId(1));
        store
    }

    fn row(batch: &BatchWriter<'_>, values: [i64; 3]) -> Vec<u8> {
        let table = batch.schema.table(TABLE).unwrap();
        table.def.layout.encode(&values.map(Value::Int8)).unwrap()
    }

    /// Entries of each index: of its hash and of its order.
    fn entries(batch: &BatchWriter<'_>) -> Vec<[usize; 2]> {
        let table = batch.schema.table(TABLE).unwrap();
        let indexes = table.indexes.iter().map(|index| {
            let hash = index.data.hash.as_ref().map_or(0, |hash| hash.len());
            [
                hash,
                index.data.ordered.as_ref().map_or(0, |ordered| ordered.len()),
            ]
        });
        indexes.collect()
    }

    #[test]
    fn failed_or_undone_writes_leave_no_entries() {
        let store = indexed();
        let batch = store.begin_batch(BatchId(2));
        let mut member = batch.member(0);
        let first = member.insert(TABLE, &row(&batch, [1, 10, 5])).unwrap();
        member.insert(TABLE, &row(&batch, [2, 20, 5])).unwrap();
        let before = entries(&batch);
        assert_eq!(before, [[2, 2], [2, 2], [0, 2]]);
        // By the first index, and by the second when the first has its entry already.
        member.insert(TABLE, &row(&batch, [2, 30, 6])).unwrap_err();
        assert_eq!(entries(&batch), before);
        member.insert(TABLE, &row(&batch, [3, 20, 6])).unwrap_err();
        assert_eq!(entries(&batch), before);
        member.update(TABLE, first, &row(&batch, [7, 20, 7])).unwrap_err();
        assert_eq!(entries(&batch), before);
        // Undone by a savepoint: rows, changes of keys, and removals.
        member.savepoint();
        member.insert(TABLE, &row(&batch, [3, 30, 6])).unwrap();
        member.update(TABLE, first, &row(&batch, [8, 11, 7])).unwrap();
        assert_ne!(entries(&batch), before);
        member.savepoint();
        member.remove(TABLE, first).unwrap();
        member.insert(TABLE, &row(&batch, [9, 90, 9])).unwrap();
        member.rollback_to_savepoint();
        assert!(member.get(TABLE, first).unwrap().is_some());
        member.rollback_to_savepoint();
        assert_eq!(entries(&batch), before);
        // The keys are free again.
        member.insert(TABLE, &row(&batch, [3, 30, 6])).unwrap();
        member.commit();
        let mut other = batch.member(1);
        other.insert(TABLE, &row(&batch, [4, 40, 6])).unwrap();
        other.rollback();
        assert_eq!(entries(&batch), [[3, 3], [3, 3], [0, 3]]);
        let digest = batch.finish();
        store.publish(BatchId(2));
        assert_eq!(store.snapshot().verify_digest().unwrap(), digest);
        assert_eq!(store.snapshot().row_count_estimate(TABLE), 3);
    }

    /// What is undone by savepoints is as if it had never been: memory, digest and garbage.
    #[test]
    fn savepoints_account_for_what_they_undo() {
        let (undone, plain) = (indexed(), indexed());
        for store in [&undone, &plain] {
            let batch = store.begin_batch(BatchId(2));
            let mut member = batch.member(0);
            let slot = member.insert(TABLE, &row(&batch, [1, 1, 1])).unwrap();
            if Arc::ptr_eq(store, &undone) {
                member.savepoint();
                for n in 2..40 {
                    member.insert(TABLE, &row(&batch, [n, n, n])).unwrap();
                    member.update(TABLE, slot, &row(&batch, [1, 1, n])).unwrap();
                }
                member.rollback_to_savepoint();
                member.savepoint();
                member.release_savepoint();
            }
            member.update(TABLE, slot, &row(&batch, [1, 1, 2])).unwrap();
            member.commit();
            batch.finish();
            store.publish(BatchId(2));
            for number in 3..6 {
                store.begin_batch(BatchId(number)).finish();
                store.publish(BatchId(number));
                store.collect_garbage(1_000);
            }
        }
        assert_eq!(undone.state_digest(), plain.state_digest());
        let sizes = |store: &Arc<Store>| {
            let stats = store.memory_stats();
            (
                stats.version_bytes,
                stats.unlinked_versions,
                stats.superseded_rows,
                stats.ordered_entries,
            )
        };
        assert_eq!(sizes(&undone), sizes(&plain));
    }

    #[test]
    #[should_panic(expected = "consecutive")]
    fn batches_are_consecutive() {
        drop(Store::new().begin_batch(BatchId(2)));
    }

    #[test]
    fn an_unfinished_batch_undoes_itself() {
        let store = three_rows();
        let digest = store.state_digest();
        let batch = store.begin_batch(BatchId(2));
        let mut member = batch.member(0);
        member.remove(TABLE, SlotId(0)).unwrap();
        member.commit();
        let mut other = batch.member(1);
        other.remove(TABLE, SlotId(1)).unwrap();
        drop(other);
        drop(batch);
        assert_eq!(store.snapshot().verify_digest().unwrap(), digest);
        store.collect_garbage(100);
        assert_eq!(
            store.memory_stats().unlinked_versions,
            2,
            "still at the boundary of the unlinking"
        );
        next_digest(&store);
        store.collect_garbage(100);
        assert_eq!(
            store.memory_stats().unlinked_versions,
            1,
            "the version that batch 2 superseded"
        );
    }
}
