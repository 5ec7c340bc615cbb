//! Recovery and replay: from what is on disk to the state after the last durable batch.
//!
//! ```text
//! lock the directory -> marker file -> checkpoint -> log records after it, in order
//!                    -> each applied as it was placed -> digest compared -> boundary published
//! ```
//!
//! Replay never plans: the record has the placements (DESIGN.md, invariant 1). A digest that differs ends
//! recovery with an error that names the batch; a wrong database is never opened.
//!
//! Invariants: 1. Recovering twice gives the same state as recovering once: only the log's torn tail is cut
//! and leftovers of interrupted checkpoints are removed. 2. A directory that contains files of other programs
//! is refused before anything in it is changed.

use crate::config::EngineConfig;
use crate::error::EngineError;
use crate::executor::{self, BatchRun, Execution, Parallelism, Work};
use crate::prepared::PreparedTxn;
use crate::record::{BatchRecord, MemberRecord, PreparedRecord};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use weft_base::codec::ByteReader;
use weft_base::disk::read_file;
use weft_base::{BatchId, DirLock, Disk, OpenMode, Progress, RealDisk, SyncSite, TxnId};
use weft_program::{Program, ProgramHash};
use weft_store::checkpoint::Checkpoints;
use weft_store::{BatchWriter, CatalogOp, Store};
use weft_wal::{Log, LogConfig, LogRecord};

pub(crate) const MARKER_NAME: &str = "WEFT";
/// The marker's name until it is complete.
const UNFINISHED_MARKER_NAME: &str = ".WEFT.partial";
const MARKER_TEXT: &[u8] = b"weft database 2\n";
/// The marker of databases whose checkpoints were single files with all rows.
const OLD_MARKER_TEXT: &[u8] = b"weft database 1\n";

/// The result of recovery.
pub(crate) struct Recovered {
    pub store: Arc<Store>,
    pub log: Log,
    pub checkpoints: Checkpoints,
    /// Bytes of the log after the checkpoint.
    pub replayed_bytes: u64,
    /// Transactions that are prepared, numbered from 1.
    pub prepared: Vec<Arc<PreparedTxn>>,
    pub dir_lock: Box<dyn DirLock>,
}

/// One replayed batch, as `Replay` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayedBatch {
    /// The batch.
    pub batch: BatchId,
    /// The state digest after it.
    pub digest: u64,
    /// How many members it had.
    pub member_count: usize,
}

pub(crate) fn io_error(doing: String) -> impl FnOnce(std::io::Error) -> EngineError {
    move |source| EngineError::Io { doing, source }
}

/// Checks that `dir` is ours, or is empty and becomes ours.
fn claim_dir(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn DirLock>, EngineError> {
    disk.create_dir_all(dir)
        .map_err(io_error(format!("creating {}", dir.display())))?;
    // Checked before it is locked, since a lock may create a file in a directory that is not ours.
    has_marker(disk, dir)?;
    let lock = disk.lock_dir(dir).map_err(io_error(format!(
        "locking {} (is another server running on it?)",
        dir.display()
    )))?;
    if !has_marker(disk, dir)? {
        write_marker(disk, dir).map_err(io_error(format!("writing the marker of {}", dir.display())))?;
    }
    Ok(lock)
}

/// True if `dir` has our marker, false if it is empty; an error if it belongs to something else.
pub(crate) fn has_marker(disk: &dyn Disk, dir: &Path) -> Result<bool, EngineError> {
    let foreign = |found: String| {
        Err(EngineError::Foreign {
            dir: dir.to_path_buf(),
            found,
        })
    };
    let names = disk
        .list(dir)
        .map_err(io_error(format!("listing {}", dir.display())))?;
    if names.iter().any(|name| name == MARKER_NAME) {
        let marker = dir.join(MARKER_NAME);
        let text = read_file(disk, &marker).map_err(io_error(format!("reading {}", marker.display())))?;
        // The marker is renamed into place when it is complete, so a power cut cannot change it.
        return match text.as_slice() {
            MARKER_TEXT => Ok(true),
            OLD_MARKER_TEXT => foreign(
                "a database of format 1, which this version cannot read: copy its tables out with the \
                 version that made it, and into a new directory"
                    .to_string(),
            ),
            _ => foreign(format!("a file {MARKER_NAME} of another version, or damaged")),
        };
    }
    let other = names
        .iter()
        .find(|name| !name.starts_with('.') && *name != RealDisk::LOCK_FILE);
    if let Some(other) = other {
        return foreign(format!("file \"{other}\""));
    }
    // A mistyped path must not put a log between somebody else's folders. `lost+found` only marks a mount
    // point.
    let folders = disk
        .list_dirs(dir)
        .map_err(io_error(format!("listing {}", dir.display())))?;
    let other = folders
        .iter()
        .find(|name| !name.starts_with('.') && *name != "lost+found");
    other.map_or(Ok(false), |other| foreign(format!("folder \"{other}\"")))
}

fn write_marker(disk: &dyn Disk, dir: &Path) -> std::io::Result<()> {
    let unfinished = dir.join(UNFINISHED_MARKER_NAME);
    if disk.exists(&unfinished)? {
        disk.remove(&unfinished)?;
    }
    let file = disk.open(&unfinished, OpenMode::CreateNew)?;
    file.write_at(MARKER_TEXT, 0)?;
    file.sync(SyncSite("database.marker"))?;
    disk.rename(&unfinished, &dir.join(MARKER_NAME))?;
    disk.sync_dir(dir, SyncSite("database.dir"))
}

/// Brings the database in `dir` to the state after its last durable batch; reports to `progress`.
pub(crate) fn recover(
    disk: Arc<dyn Disk>,
    dir: &Path,
    config: &EngineConfig,
    progress: &Progress,
) -> Result<Recovered, EngineError> {
    let mut replay = Replay::open(disk, dir, config, progress)?;
    let behind = replay
        .log
        .appended_batch()
        .0
        .saturating_sub(replay.store.boundary().0);
    progress.begin("replaying the log", "batches", behind);
    while replay.step()?.is_some() {
        progress.add(1, 0);
    }
    replay.finish()
}

/// A replay that can be followed batch by batch.
pub struct Replay {
    store: Arc<Store>,
    log: Log,
    reader: weft_wal::LogReader,
    checkpoints: Checkpoints,
    replayed_bytes: u64,
    /// File and offset of the last record that was replayed.
    replayed_to: Option<(Arc<str>, u64)>,
    dir_lock: Box<dyn DirLock>,
    programs: HashMap<ProgramHash, Arc<Program>>,
    /// Transactions that are prepared at this point of the log.
    prepared: BTreeMap<String, PreparedRecord>,
    workers: usize,
    split_batch_at: usize,
}

impl Replay {
    /// Loads the checkpoint of `dir` and stops before the first batch after it. Reports to `progress`.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: &EngineConfig,
        progress: &Progress,
    ) -> Result<Replay, EngineError> {
        let dir_lock = claim_dir(disk.as_ref(), dir)?;
        let mut checkpoints = Checkpoints::open(Arc::clone(&disk), dir, &config.checkpoints())?;
        let store = checkpoints.load(config.workers, progress)?;
        let salt = config.log_salt;
        let log_config = LogConfig {
            segment_bytes: config.segment_bytes,
            salt,
            ..LogConfig::default()
        };
        let (log, mut reader) = Log::open(disk, dir, log_config)?;
        reader.skip_to(BatchId(store.boundary().0 + 1));
        Ok(Replay {
            store,
            log,
            reader,
            checkpoints,
            replayed_bytes: 0,
            replayed_to: None,
            dir_lock,
            programs: HashMap::new(),
            prepared: BTreeMap::new(),
            workers: config.workers,
            split_batch_at: config.split_batch_at,
        })
    }

    /// The state reached so far.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Replays the next batch; `None` at the end of the log.
    pub fn step(&mut self) -> Result<Option<ReplayedBatch>, EngineError> {
        for record in self.reader.by_ref() {
            let record = record?;
            if record.batch <= self.store.boundary() {
                continue;
            }
            self.count(&record);
            return self.apply(record.batch, &record.payload).map(Some);
        }
        // A checkpoint contains durable batches only, so the log reaches at least as far.
        let (reached, logged) = (self.store.boundary(), self.log.appended_batch());
        if logged < reached {
            let reason = format!(
                "the log ends with batch {}; the checkpoint needs it: files are missing",
                logged.0
            );
            return Err(EngineError::Record {
                batch: reached,
                reason,
            });
        }
        Ok(None)
    }

    /// Adds the bytes between this record and the previous one, padding included.
    fn count(&mut self, record: &LogRecord) {
        let since = self.replayed_to.as_ref().filter(|(file, _)| *file == record.file);
        let between = since.map(|(_, offset)| record.offset.saturating_sub(*offset));
        self.replayed_bytes += between.unwrap_or(record.payload.len() as u64);
        self.replayed_to = Some((Arc::clone(&record.file), record.offset));
    }

    pub(crate) fn finish(self) -> Result<Recovered, EngineError> {
        let mut prepared = Vec::with_capacity(self.prepared.len());
        for (number, record) in (1..).zip(self.prepared.into_values()) {
            let name = record.name.clone();
            let txn = PreparedTxn::recovered(record, TxnId(number)).map_err(|e| EngineError::Record {
                batch: self.store.boundary(),
                reason: format!("prepared transaction \"{name}\": {e}"),
            })?;
            prepared.push(Arc::new(txn));
        }
        Ok(Recovered {
            prepared,
            store: self.store,
            log: self.log,
            checkpoints: self.checkpoints,
            replayed_bytes: self.replayed_bytes,
            dir_lock: self.dir_lock,
        })
    }

    /// Names of the transactions that are prepared at this point of the log.
    pub fn prepared(&self) -> impl Iterator<Item = &str> {
        self.prepared.keys().map(String::as_str)
    }

    pub(crate) fn apply(&mut self, batch: BatchId, payload: &[u8]) -> Result<ReplayedBatch, EngineError> {
        let wrong = |reason: String| EngineError::Record { batch, reason };
        if batch.0 != self.store.boundary().0 + 1 {
            return Err(wrong(format!("expected batch {}", self.store.boundary().0 + 1)));
        }
        let mut record = BatchRecord::decode(payload).map_err(|e| wrong(e.to_string()))?;
        for prepared in std::mem::take(&mut record.prepared) {
            self.prepared.insert(prepared.name.clone(), prepared);
        }
        for bytes in &record.programs {
            let program = Program::decode(bytes).map_err(|e| wrong(format!("program: {e}")))?;
            self.programs.insert(program.hash(), Arc::new(program));
        }
        let mut work = Vec::with_capacity(record.members.len());
        let mut catalog_ops = Vec::new();
        for member in &record.members {
            match member {
                MemberRecord::Program { hash, inputs } => {
                    let program = self
                        .programs
                        .get(hash)
                        .ok_or_else(|| wrong("unknown program".to_string()))?;
                    work.push(Work::Program {
                        program,
                        inputs,
                        keys: None,
                    });
                }
                MemberRecord::Commit {
                    catalog_ops: ops,
                    write_set,
                } => {
                    catalog_ops.extend(ops);
                    work.push(Work::WriteSet(write_set));
                }
                MemberRecord::CommitPrepared { name } => {
                    let prepared = self
                        .prepared
                        .get(name)
                        .ok_or_else(|| wrong(format!("prepared transaction \"{name}\" is unknown")))?;
                    catalog_ops.extend(&prepared.catalog_ops);
                    work.push(Work::WriteSet(&prepared.write_set));
                }
            }
        }
        let wrong_op = |error: &dyn std::fmt::Display| wrong(format!("catalog operation: {error}"));
        let decode = |op: &Vec<u8>| CatalogOp::decode(&mut ByteReader::new(op));
        let ops = catalog_ops.into_iter().map(decode).collect::<Result<Vec<_>, _>>();
        let ops = ops.map_err(|e| wrong_op(&e))?;
        let (before, after) = ops.split_at(CatalogOp::before_writes(&ops));
        let mut writer = self.store.begin_batch(batch);
        let apply = |writer: &mut BatchWriter<'_>, ops: &[CatalogOp]| {
            let applied = ops.iter().try_for_each(|op| writer.apply_catalog(op));
            applied.map_err(|e| wrong_op(&e))
        };
        apply(&mut writer, before)?;
        let ran = executor::run_waves(
            Execution::default(),
            &writer,
            BatchRun {
                batch,
                budget: record.budget,
            },
            &work,
            &record.wave_ends,
            Parallelism {
                workers: self.workers,
                split_at: self.split_batch_at,
            },
        );
        let answers = writer.check_rows().and(ran).map_err(|e| wrong(e.to_string()))?;
        apply(&mut writer, after)?;
        let digest = writer.finish();
        if digest != record.digest {
            return Err(EngineError::DigestMismatch {
                batch,
                logged: record.digest,
                computed: digest,
            });
        }
        self.store.publish(batch);
        for (member, answer) in record.members.iter().zip(&answers) {
            if let (MemberRecord::CommitPrepared { name }, Ok(_)) = (member, answer) {
                self.prepared.remove(name);
            }
        }
        for name in &record.rolled_back {
            self.prepared.remove(name);
        }
        self.store.collect_garbage(usize::MAX);
        Ok(ReplayedBatch {
            batch,
            digest,
            member_count: record.members.len(),
        })
    }
}
