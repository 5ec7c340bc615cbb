//! Opening: from manifest and logs to a running engine.
//!
//! ```text
//! newest manifest, made durable ──► tables, and which logs count
//! files that it does not name are removed
//! logs replayed into memtables, flushed as they fill ──► new log ──► new manifest
//!                                                                     older logs are removed ◄──┘
//! ```
//!
//! When the engine runs, everything from the logs is in tables, so a torn log end is never appended to. No
//! file is removed before the manifest that does not name it is durable. What earlier processes left
//! unfinished, including failed openings, is removed before anything is written: a nearly full disk gets that
//! space back, and repeated openings do not fill it. An opening that fails removes what it made.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weft_base::{Clock, DirLock, Disk, OpenMode};
use weft_ops::key::SeqNo;

use super::background::BackgroundStatus;
use super::flush::{FlushContext, write_memtable};
use super::pressure::Pressure;
use super::stats::Counters;
use super::write::{SyncState, Writer};
use super::{Engine, View, sync_names};
use crate::batch::for_each_operation;
use crate::error::{CorruptKind, LsmError, bad_directory, corrupt, io_error};
use crate::log::{LogEnd, LogFile, log_name, log_number, read_logs};
use crate::memtable::{Memtable, PagePool};
use crate::options::LsmOptions;
use crate::snapshot::Readers;
use crate::sync::{Condvar, Mutex, RwLock};
use crate::table::{TableFiles, TableMeta, table_number};
use crate::values::{values_name, values_number};
use crate::version::{
    AppendError, Edit, Manifest, ManifestState, Version, manifest_name, manifest_number, read_manifest,
    settle_manifest,
};

impl Engine {
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: LsmOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LsmError> {
        let dirs = level_dirs(dir, &options);
        let distinct: BTreeSet<&PathBuf> = dirs.iter().collect();
        for each in std::iter::once(dir).chain(distinct.iter().map(|each| each.as_path())) {
            disk.create_dir_all(each).map_err(io_error("creating", each))?;
        }
        let locks = lock_dirs(&*disk, dir, &distinct)?;
        settle_manifest(&*disk, dir)?;
        let manifest = read_manifest(&*disk, dir)?;
        let found = Found::scan(&*disk, dir, &distinct)?;
        if manifest.is_none() {
            found.check_new(&*disk, dir)?;
        }
        let (last_manifest, state) = manifest.unwrap_or_default();
        let logs = found.logs_from(state.first_log);
        if state.first_log > 0 && logs.first() != Some(&state.first_log) {
            let reason = "the file is missing";
            return Err(corrupt(&log_name(state.first_log), 0, CorruptKind::Log, reason));
        }
        found.check_against(last_manifest, &state)?;
        let next_number = AtomicU64::new(found.last_number.max(last_manifest).max(state.first_log) + 1);
        let level_io = options.levels.iter().map(|level| level.io).collect();
        let files = TableFiles::new(Arc::clone(&disk), dir, dirs, options.block_cache_bytes);
        let files = Arc::new(files.with_level_io(level_io));
        let version = Version::empty().apply(&state.as_edit(), &files);
        let number = || next_number.fetch_add(1, Ordering::Relaxed);
        // As much as one memtable: one fills while another one is flushed and freed.
        let pool = Arc::new(PagePool::new(options.memtable_bytes));
        let context = FlushContext {
            disk: &*disk,
            files: &files,
            pool: &pool,
            options: &options,
            snapshots: Vec::new(),
            next_number: &number,
        };
        files.obsolete.add(found.unnamed(dir, &state));
        files.obsolete.remove_all();
        let recovered = recover_or_clean(&context, dir, &logs, &state)?;
        let Recovered {
            edit,
            end,
            log,
            manifest,
        } = recovered;
        files
            .obsolete
            .add(logs.iter().map(|&number| dir.join(log_name(number))));
        files.obsolete.remove_all();
        let version = version.apply(&edit, &files);
        let view = View {
            active: Arc::new(Memtable::new(log.number(), end.last, &pool)),
            frozen: Vec::new(),
            version: Arc::new(version),
        };
        Ok(Self {
            dir: dir.to_owned(),
            clock,
            writer: Mutex::new(Writer {
                log,
                unsynced: Vec::new(),
                next_seqno: SeqNo(end.last.0 + 1),
                last_logged: end.last,
                refused: None,
                suspect: false,
                is_being_ended: false,
            }),
            sync: Mutex::new(SyncState {
                durable: end.last,
                syncing: false,
            }),
            sync_done: Condvar::new(),
            readers: Arc::new(Readers::new(end.last, locks)),
            view: RwLock::new(Arc::new(view)),
            manifest: Mutex::new(manifest),
            flush_turn: Mutex::new(()),
            compaction_turn: Mutex::default(),
            compaction_ended: Condvar::new(),
            uncertain_files: Mutex::default(),
            collected: Mutex::default(),
            next_number,
            work: Mutex::new(BackgroundStatus::default()),
            work_changed: Condvar::new(),
            pressure: Pressure::default(),
            counters: Counters::default(),
            is_poisoned: AtomicBool::new(false),
            disk,
            options,
            files,
            pool,
        })
    }
}

/// Locks the engine's directory and those of its levels; a locked one belongs to an engine whose tables this
/// one does not know.
///
/// # Errors
/// `WouldBlock` for a directory in use; a level's directory that holds an engine of its own.
pub(crate) fn lock_dirs(
    disk: &dyn Disk,
    dir: &Path,
    dirs: &BTreeSet<&PathBuf>,
) -> Result<Vec<Box<dyn DirLock>>, LsmError> {
    let mut locks = vec![disk.lock_dir(dir).map_err(io_error("locking", dir))?];
    for &level_dir in dirs.iter().filter(|level_dir| level_dir.as_path() != dir) {
        let lock = disk.lock_dir(level_dir).map_err(io_error("locking", level_dir))?;
        locks.push(lock);
        let names = disk.list(level_dir).map_err(io_error("listing", level_dir))?;
        if let Some(name) = names.iter().find(|name| manifest_number(name).is_some()) {
            return Err(bad_directory(
                level_dir,
                format!("it is a level's, and {name} shows that it holds an engine of its own"),
            ));
        }
    }
    Ok(locks)
}

/// Directory of each level.
pub(crate) fn level_dirs(dir: &Path, options: &LsmOptions) -> Vec<PathBuf> {
    let levels = options.levels.iter();
    levels
        .map(|level| level.dir.clone().unwrap_or_else(|| dir.to_owned()))
        .collect()
}

/// The result of a recovery.
struct Recovered {
    edit: Edit,
    end: LogEnd,
    log: LogFile,
    manifest: Manifest,
}

/// As `recover`, and leaves no files behind if that fails.
fn recover_or_clean(
    context: &FlushContext<'_>,
    dir: &Path,
    logs: &[u64],
    state: &ManifestState,
) -> Result<Recovered, LsmError> {
    recover(context, dir, logs, state).map_err(|unwritten| {
        let files = context.files;
        let dirs = files.dirs.iter().collect();
        if let (false, Ok(found)) = (unwritten.may_count, Found::scan(context.disk, dir, &dirs)) {
            files.obsolete.add(found.unnamed(dir, state));
            files.obsolete.remove_all();
        }
        unwritten.error
    })
}

/// Puts the contents of the logs into tables, begins a new log, and makes both durable in a new manifest.
fn recover(
    context: &FlushContext<'_>,
    dir: &Path,
    logs: &[u64],
    state: &ManifestState,
) -> Result<Recovered, AppendError> {
    let (tables, end) = replay(context, dir, logs, state.flushed)?;
    let mut edit = Edit {
        added: tables.into_iter().map(|table| (0, table)).collect(),
        flushed: Some(end.last),
        ..Edit::default()
    };
    sync_names(context.files, &edit)?;
    let number = context.next_number;
    let log = LogFile::create(context.disk, dir, number())?;
    edit.first_log = Some(log.number());
    let mut next = state.clone();
    next.apply(&edit);
    let manifest = Manifest::create(context.disk, dir, number(), next).inspect_err(|unwritten| {
        if !unwritten.may_count {
            context.files.obsolete.add([dir.join(log_name(log.number()))]);
        }
    })?;
    Ok(Recovered {
        edit,
        end,
        log,
        manifest,
    })
}

/// Puts the contents of the logs into tables of level 0; their names are not durable yet.
fn replay(
    context: &FlushContext<'_>,
    dir: &Path,
    logs: &[u64],
    flushed: SeqNo,
) -> Result<(Vec<TableMeta>, LogEnd), LsmError> {
    let mut tables = Vec::new();
    let mut memtable = Arc::new(Memtable::new(0, flushed, context.pool));
    let end = read_logs(context.disk, dir, logs, flushed, |record| {
        let mut seqno = record.first;
        let read = for_each_operation(record.payload, |operation| {
            memtable.apply(seqno, operation);
            seqno.0 += 1;
        });
        let count = read.map_err(|error| {
            let name = log_name(record.log_number);
            corrupt(
                &name,
                0,
                CorruptKind::Log,
                format!("batch {}: {error}", record.first),
            )
        })?;
        if count != record.count {
            let name = log_name(record.log_number);
            let reason = format!(
                "batch {} has {count} operations, not {}",
                record.first, record.count
            );
            return Err(corrupt(&name, 0, CorruptKind::Log, reason));
        }
        if memtable.is_full(context.options.memtable_bytes) {
            tables.extend(write_memtable(context, &memtable)?);
            memtable = Arc::new(Memtable::new(0, memtable.last_seqno(), context.pool));
        }
        Ok(())
    })?;
    tables.extend(write_memtable(context, &memtable)?);
    Ok((tables, end))
}

/// The files in the engine's directories.
pub(crate) struct Found {
    logs: Vec<u64>,
    tables: Vec<(PathBuf, u64)>,
    values: Vec<u64>,
    last_number: u64,
}

impl Found {
    pub(crate) fn scan(disk: &dyn Disk, dir: &Path, dirs: &BTreeSet<&PathBuf>) -> Result<Self, LsmError> {
        let names = disk.list(dir).map_err(io_error("listing", dir))?;
        let mut logs: Vec<u64> = names.iter().filter_map(|name| log_number(name)).collect();
        logs.sort_unstable();
        let manifests = names.iter().filter_map(|name| manifest_number(name));
        let values: Vec<u64> = names.iter().filter_map(|name| values_number(name)).collect();
        let numbers = logs.iter().chain(&values).copied();
        let mut last_number = numbers.chain(manifests).max().unwrap_or(0);
        let mut tables = Vec::new();
        for &level_dir in dirs {
            for name in disk.list(level_dir).map_err(io_error("listing", level_dir))? {
                if let Some(number) = table_number(&name) {
                    last_number = last_number.max(number);
                    tables.push((level_dir.join(name), number));
                }
            }
        }
        Ok(Self {
            logs,
            tables,
            values,
            last_number,
        })
    }

    /// Logs that count, ascending.
    fn logs_from(&self, first: u64) -> Vec<u64> {
        self.logs
            .iter()
            .copied()
            .filter(|&number| number >= first)
            .collect()
    }

    /// Refuses to treat a directory without a manifest as new if it contains files of an engine: the manifest
    /// is written first, and without it the state is unknown.
    pub(crate) fn check_new(&self, disk: &dyn Disk, dir: &Path) -> Result<(), LsmError> {
        let mut left = self.tables.first().map(|(path, _)| path.clone());
        left = left.or_else(|| Some(dir.join(values_name(*self.values.first()?))));
        for &number in &self.logs {
            // An interrupted opening leaves an empty one.
            let path = dir.join(log_name(number));
            let log = disk
                .open(&path, OpenMode::Read)
                .map_err(io_error("opening", &path))?;
            if !log.is_empty().map_err(io_error("reading", &path))? {
                left.get_or_insert(path);
            }
        }
        let Some(left) = left else {
            return Ok(());
        };
        let reason = format!(
            "there is no manifest, and without it nobody knows whether {} counts",
            left.display()
        );
        Err(corrupt("manifest", 0, CorruptKind::Manifest, reason))
    }

    /// Refuses a manifest that names missing tables while unnamed tables exist: then its last record is not
    /// torn but lost, and the unnamed files are the ones that count.
    pub(crate) fn check_against(&self, manifest: u64, state: &ManifestState) -> Result<(), LsmError> {
        let here = |number: &u64| self.tables.iter().any(|(_, found)| found == number);
        let gone = state.tables.keys().find(|number| !here(number));
        let unnamed = self
            .tables
            .iter()
            .find(|(_, number)| !state.tables.contains_key(number));
        let (Some(gone), Some((unnamed, _))) = (gone, unnamed) else {
            return Ok(());
        };
        let reason = format!(
            "it names table {gone}, which is gone, and not {}: its last record is lost",
            unnamed.display()
        );
        Err(corrupt(
            &manifest_name(manifest),
            0,
            CorruptKind::Manifest,
            reason,
        ))
    }

    /// The files that a manifest of this state does not mention.
    fn unnamed(&self, dir: &Path, state: &ManifestState) -> Vec<PathBuf> {
        let logs = self.logs.iter().filter(|&&number| number < state.first_log);
        let tables = self
            .tables
            .iter()
            .filter(|(_, number)| !state.tables.contains_key(number));
        let logs = logs.map(|&number| dir.join(log_name(number)));
        let named = state
            .tables
            .values()
            .flat_map(|(_, meta)| &meta.properties.value_files);
        let named: BTreeSet<u64> = named.map(|file| file.number).collect();
        let values = self.values.iter().filter(|number| !named.contains(number));
        let values = values.map(|&number| dir.join(values_name(number)));
        let tables = tables.map(|(path, _)| path.clone());
        logs.chain(values).chain(tables).collect()
    }
}
