//! Loads the engine's rows into a store, with several threads.
//!
//! First the rows: each table is cut into ranges of about equal size ([`Lsm::cuts`](weft_lsm::Lsm::cuts)),
//! and each free thread takes the next one. Then the indexes: those of long tables one after another, each by
//! all threads together (`index/build.rs`), the others one per thread. Slots are assigned in any order, so
//! addresses and index shapes differ between two loads; neither files nor digests depend on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use weft_base::{CodecError, Progress, TableId};
use weft_lsm::{Lsm, Snapshot as LsmSnapshot};

use super::cold::StoredRows;
use super::format::{HEADER_FAMILY, HEADER_KEY, Header, VERSION, family, row_id, split_row_value};
use super::{Boundary, CheckpointError, Checkpoints, image};
use crate::memory::RowMemory;
use crate::store::Store;
use crate::table::{Loaded, RangeLoader, Residence, Schema, Structure, TableLoader};
use crate::table_map::TableMap;

/// Stored bytes of a range that one thread loads at a time.
const RANGE_BYTES: u64 = 8 << 20;
/// Threads that load rows per computing thread: half of them wait for the device, since there is no
/// read-ahead.
const READERS_PER_THREAD: usize = 2;

impl Checkpoints {
    /// Loads and verifies the checkpoint with `threads` threads (rows with twice as many, since some wait for
    /// the device): a store at its boundary, or an empty one if there is no checkpoint yet. Reports to
    /// `progress`.
    ///
    /// # Errors
    /// The disk's; whatever is damaged.
    pub fn load(&mut self, threads: usize, progress: &Progress) -> Result<Arc<Store>, CheckpointError> {
        let loaded = self.lsm.without_compaction(|| self.load_all(threads, progress))?;
        let Some((store, boundary)) = loaded else {
            return Ok(Store::new());
        };
        store.set_saved(boundary.batch, StoredRows::of(&self.lsm));
        self.written = Some(boundary);
        Ok(store)
    }

    /// The tables of a checkpoint, without rows.
    fn empty_tables(&self, header: &Header) -> (Arc<RowMemory>, Loaders) {
        let memory = Arc::<RowMemory>::default();
        memory.set_cold_rows(StoredRows::of(&self.lsm));
        let tables = header.catalog.tables();
        let loaders = tables.map(|def| (def.id, TableLoader::new(def, &memory)));
        let loaders = loaders.collect();
        (memory, loaders)
    }

    fn load_all(
        &self,
        threads: usize,
        progress: &Progress,
    ) -> Result<Option<(Arc<Store>, Boundary)>, CheckpointError> {
        let Some(bytes) = self.lsm.get(HEADER_FAMILY, HEADER_KEY)? else {
            return Ok(None);
        };
        let in_header = |error: CodecError| CheckpointError::Corrupt {
            place: "the header".to_owned(),
            reason: error.to_string(),
        };
        let version = Header::version(&bytes).map_err(in_header)?;
        if version != VERSION {
            return Err(CheckpointError::UnknownVersion { version });
        }
        let header = Header::decode(&bytes).map_err(in_header)?;
        let (mut memory, mut loaders) = self.empty_tables(&header);
        if let Err(error) = self.image.remove_unfinished() {
            eprintln!("weft: an unfinished image of indexes stays: {error}");
        }
        let by_image = || image::restore(&self.image, &header, &loaders, threads, progress);
        let restored = match self.reads_image.then(by_image).transpose() {
            Ok(restored) => restored.flatten(),
            Err(error) => {
                eprintln!(
                    "weft: rows are read one by one, since the image of indexes cannot be used: {error}"
                );
                (memory, loaders) = self.empty_tables(&header);
                None
            }
        };
        let filled = match restored {
            Some(restored) => restored,
            None => {
                let residence = Residence::Within(self.loaded_bytes_max, header.batch);
                let loaded = load_rows(&self.lsm, (&header, residence), &loaders, threads, progress)?;
                let built = build_structures(&loaders, &loaded, threads, progress)?;
                loaded.into_iter().zip(built).collect()
            }
        };
        let mut digest = header.catalog.digest();
        let mut tables = TableMap::default();
        let mut boundary = Boundary {
            batch: header.batch,
            cores: hashbrown::HashMap::default(),
        };
        for ((id, loader), (loaded, built)) in loaders.into_iter().zip(filled) {
            digest = digest.wrapping_add(loaded.digest);
            let table = loader.finish(loaded, built);
            boundary.cores.insert(id, Arc::downgrade(&table.core));
            tables.insert(id, Arc::new(table));
        }
        if digest != header.digest {
            let reason = format!(
                "rows have digest {digest:016x}, the header says {:016x}",
                header.digest
            );
            return Err(CheckpointError::Corrupt {
                place: "the state".to_owned(),
                reason,
            });
        }
        let schema = Schema {
            catalog: Arc::new(header.catalog),
            tables: Arc::new(tables),
        };
        let store = Store::with_state(header.batch, digest, schema, memory);
        Ok(Some((Arc::new(store), boundary)))
    }
}

/// Tables that are being filled.
type Loaders = Vec<(TableId, TableLoader)>;

/// Tables with at least this many rows have their indexes built by several threads each.
const LONG_ROWS: usize = 1 << 16;

/// A part of a table.
struct Range {
    /// Position of the table.
    table: usize,
    start: Vec<u8>,
    /// `None` for the table's end.
    end: Option<Vec<u8>>,
}

/// What was loaded into each table.
fn load_rows(
    lsm: &Lsm,
    (header, residence): (&Header, Residence),
    loaders: &[(TableId, TableLoader)],
    threads: usize,
    progress: &Progress,
) -> Result<Vec<Loaded>, CheckpointError> {
    let mut ranges = Vec::new();
    for (table, (id, _)) in loaders.iter().enumerate() {
        let mut start = Vec::new();
        for cut in lsm.cuts(family(*id), RANGE_BYTES)? {
            let end = Some(cut.clone());
            let start = std::mem::replace(&mut start, cut);
            ranges.push(Range { table, start, end });
        }
        let end = None;
        ranges.push(Range { table, start, end });
    }
    let snapshot = lsm.snapshot();
    progress.begin("loading rows", "parts of about 8 MB", ranges.len() as u64);
    let readers = threads.saturating_mul(READERS_PER_THREAD);
    let load = |number: usize| -> Result<_, CheckpointError> {
        let Some(range) = ranges.get(number) else {
            return Ok((0, Loaded::default()));
        };
        let loaded = load_range(lsm, &snapshot, (header, residence), loaders, range)?;
        progress.add(1, loaded.rows() as u64);
        Ok((range.table, loaded))
    };
    let done = in_parallel(readers, ranges.len(), load)?;
    let mut loaded = vec![Loaded::default(); loaders.len()];
    for (table, part) in done {
        if let Some(sum) = loaded.get_mut(table) {
            sum.add(part);
        }
    }
    Ok(loaded)
}

fn load_range(
    lsm: &Lsm,
    snapshot: &Arc<LsmSnapshot>,
    (header, residence): (&Header, Residence),
    loaders: &[(TableId, TableLoader)],
    range: &Range,
) -> Result<Loaded, CheckpointError> {
    let Some((table, loader)) = loaders.get(range.table) else {
        return Ok(Loaded::default());
    };
    let mut loading = loader.range(residence);
    let mut rows = lsm.iterator_once(family(*table), snapshot, &range.start, range.end.as_deref())?;
    rows.seek(&range.start)?;
    while rows.valid() {
        let pushed = push(&mut loading, header, rows.key(), rows.value());
        pushed.map_err(|error| CheckpointError::Corrupt {
            place: format!("row {:02x?} of table {table}", rows.key()),
            reason: error.to_string(),
        })?;
        rows.forward()?;
    }
    Ok(loading.finish())
}

fn push(loading: &mut RangeLoader<'_>, header: &Header, key: &[u8], value: &[u8]) -> Result<(), CodecError> {
    let Some(row_id) = row_id(key) else {
        return Err(CodecError::new(0, "a key that is no row id"));
    };
    let (batch, row) = split_row_value(value)?;
    if row_id.batch > batch || batch > header.batch {
        return Err(CodecError::new(0, "a row from after the checkpoint"));
    }
    loading.push(row_id, batch, row)
}

/// Indexes and row id maps of each table.
fn build_structures(
    loaders: &[(TableId, TableLoader)],
    loaded: &[Loaded],
    threads: usize,
    progress: &Progress,
) -> Result<Vec<Vec<Structure>>, CheckpointError> {
    let mut work: Vec<(usize, usize)> = loaders
        .iter()
        .enumerate()
        .flat_map(|(table, (_, loader))| (0..loader.structure_count()).map(move |number| (table, number)))
        .collect();
    // The longest tables come first: one at a time, with all threads. Each thread then takes one of the
    // others.
    let row_count = |table: usize| loaded.get(table).map_or(0, Loaded::rows);
    work.sort_by_key(|(table, _)| std::cmp::Reverse(row_count(*table)));
    progress.begin("building indexes", "indexes and maps", work.len() as u64);
    let (long, short) = work.split_at(work.partition_point(|(table, _)| row_count(*table) >= LONG_ROWS));
    let build = |(table, number): (usize, usize), threads| -> Result<_, CheckpointError> {
        let Some((id, loader)) = loaders.get(table) else {
            return Ok(None);
        };
        let built = loader.build(number, row_count(table), threads);
        let built = built.map_err(|error| CheckpointError::Corrupt {
            place: format!("table {id}"),
            reason: error.message.to_string(),
        })?;
        progress.add(1, 0);
        Ok(Some((table, built)))
    };
    let mut done = Vec::with_capacity(work.len());
    for work in long {
        done.push(build(*work, threads)?);
    }
    done.extend(in_parallel(threads, short.len(), |at| {
        short.get(at).map_or(Ok(None), |work| build(*work, 1))
    })?);
    let mut built: Vec<Vec<Structure>> = loaders.iter().map(|_| Vec::new()).collect();
    for (table, structure) in done.into_iter().flatten() {
        if let Some(list) = built.get_mut(table) {
            list.push(structure);
        }
    }
    Ok(built)
}

/// Does `count` pieces of work with `threads` threads, the caller's included; returns the results in any
/// order, or the first error.
pub(super) fn in_parallel<T: Send, E: Send>(
    threads: usize,
    count: usize,
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let serve = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count || has_failed.load(Ordering::Relaxed) {
                return Ok(done);
            }
            match work(number) {
                Ok(result) => done.push(result),
                Err(error) => {
                    has_failed.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    };
    let others = threads.min(count).saturating_sub(1);
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..others).map(|_| scope.spawn(serve)).collect();
        let mut outcomes = vec![serve()];
        for other in others {
            outcomes.push(
                other
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            );
        }
        let mut all = Vec::new();
        for outcome in outcomes {
            all.append(&mut outcome?);
        }
        Ok(all)
    })
}
