//! Checks every file of a stopped engine.
//!
//! Reads the manifest, every section and every block of every table, every record of the value files that
//! they list, and the logs; changes nothing. Beyond checksums it checks the consistency of the parts: order
//! within and between blocks, index and blocks, bounds, counts, that every key passes the filter, that every
//! pointer leads to its record and tables list what they point to, that the tables of a sorted level are
//! disjoint.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use weft_base::Disk;
use weft_ops::hash64;
use weft_ops::key::{EntryKind, Stamp};

use crate::batch::{FamilyId, family_of, for_each_operation, user_key};
use crate::engine::{Found, level_dirs, lock_dirs};
use crate::error::{CorruptKind, LsmError, corrupt, io_error};
use crate::log::{log_name, log_number, read_logs};
use crate::options::{LEVEL_COUNT, LsmOptions};
use crate::table::{Opened, Table, TableFiles};
use crate::values::{Pointer, ValueScan};
use crate::version::{ManifestState, ValueFileState, Version, read_manifest};

/// What a check covered, and what it found.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Tables looked at.
    pub tables: u64,
    /// Blocks read.
    pub blocks: u64,
    /// Entries read.
    pub entries: u64,
    /// Value files looked at.
    pub value_files: u64,
    /// Large values read in them, whether anything leads to them or not.
    pub values: u64,
    /// Records of logs read.
    pub log_records: u64,
    /// Everything that is wrong, each with file, offset and kind. At most one for each section or block.
    pub findings: Vec<LsmError>,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Checks the engine in `dir`, which must be stopped; `options` say where its levels lie.
///
/// # Errors
/// `WouldBlock` if the engine is open; other errors of the disk. Corruption is a finding, not an error.
pub fn verify(disk: &Arc<dyn Disk>, dir: &Path, options: &LsmOptions) -> Result<VerifyReport, LsmError> {
    verify_and_show(disk, dir, options, |_, _, _, _| {})
}

/// As [`verify`]; `see` is called with every entry of the valid blocks of all tables: family, key, stamp,
/// value; large values only if they are valid. The entries of a key come from several tables in no particular
/// order; logs are not included.
///
/// # Errors
/// As [`verify`].
pub fn verify_and_show(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    options: &LsmOptions,
    mut see: impl FnMut(FamilyId, &[u8], Stamp, &[u8]),
) -> Result<VerifyReport, LsmError> {
    let dirs = level_dirs(dir, options);
    let distinct = dirs.iter().collect();
    let _locks = lock_dirs(&**disk, dir, &distinct)?;
    let mut report = VerifyReport::default();
    let found = Found::scan(&**disk, dir, &distinct)?;
    let manifest = read_manifest(&**disk, dir).and_then(|manifest| match manifest {
        Some((number, state)) => found.check_against(number, &state).map(|()| state),
        None => found.check_new(&**disk, dir).map(|()| ManifestState::default()),
    });
    let state = match manifest {
        Ok(state) => state,
        Err(error) if error.is_corruption() => {
            // Without it nobody knows which tables count.
            report.findings.push(error);
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    let files = Arc::new(TableFiles::new(Arc::clone(disk), dir, dirs, 0));
    let version = Version::empty().apply(&state.as_edit(), &files);
    for state in version.value_files().values() {
        report.value_files += 1;
        let checked = check_values(state, &mut report);
        report.note(checked)?;
    }
    for (_, table) in version.tables() {
        report.tables += 1;
        let checked = check_table(table, &mut report, &mut see);
        report.note(checked)?;
    }
    for level in 1..LEVEL_COUNT {
        for pair in version.level(level).windows(2) {
            let [a, b] = pair else { continue };
            if !a.properties().upper.is_before(&b.properties().lower) {
                let reason = format!("it overlaps with the table before it in level {level}");
                report
                    .findings
                    .push(corrupt(&b.name(), 0, CorruptKind::File, reason));
            }
        }
    }
    let logs = check_logs(&**disk, dir, &state, &mut report);
    report.note(logs)?;
    Ok(report)
}

impl VerifyReport {
    /// Keeps what is corrupt; other errors go on.
    fn note(&mut self, checked: Result<(), LsmError>) -> Result<(), LsmError> {
        match checked {
            Err(error) if error.is_corruption() => {
                self.findings.push(error);
                Ok(())
            }
            other => other,
        }
    }
}

fn check_logs(
    disk: &dyn Disk,
    dir: &Path,
    state: &ManifestState,
    report: &mut VerifyReport,
) -> Result<(), LsmError> {
    let names = disk.list(dir).map_err(io_error("listing", dir))?;
    let numbers: BTreeSet<u64> = names.iter().filter_map(|name| log_number(name)).collect();
    let numbers: Vec<u64> = numbers.range(state.first_log..).copied().collect();
    if state.first_log > 0 && numbers.first() != Some(&state.first_log) {
        let name = log_name(state.first_log);
        return Err(corrupt(&name, 0, CorruptKind::Log, "the file is missing"));
    }
    let end = read_logs(disk, dir, &numbers, state.flushed, |record| {
        let bad = |reason: String| corrupt(&log_name(record.log_number), 0, CorruptKind::Log, reason);
        match for_each_operation(record.payload, |_| {}) {
            Ok(count) if count == record.count => Ok(()),
            Ok(count) => Err(bad(format!("batch {} has {count} operations", record.first))),
            Err(error) => Err(bad(format!("batch {}: {error}", record.first))),
        }
    })?;
    report.log_records += end.record_count;
    Ok(())
}

fn check_table(
    table: &Table,
    report: &mut VerifyReport,
    see: &mut impl FnMut(FamilyId, &[u8], Stamp, &[u8]),
) -> Result<(), LsmError> {
    let opened = table.opened()?;
    let filter = match opened.filter() {
        Ok(filter) => filter,
        Err(error) => {
            report.findings.push(error);
            None
        }
    };
    let mut last: Option<(Vec<u8>, Stamp)> = None;
    let (mut entries, mut whole) = (0, true);
    let mut used = BTreeMap::new();
    for (number, entry) in opened.index().iter().enumerate() {
        report.blocks += 1;
        let checked = check_block(table, &opened, entry.offset, entry.bytes as usize, |stored| {
            let block = opened.check_stored(entry, stored)?;
            block
                .check()
                .map_err(|error| opened.bad_block(entry.offset, error))?;
            let wrong = |reason: &str| corrupt(opened.name(), entry.offset, CorruptKind::Block, reason);
            let mut cursor = block.cursor();
            cursor
                .first()
                .map_err(|error| opened.bad_block(entry.offset, error))?;
            while cursor.valid() {
                let (key, stamp) = (cursor.key(), cursor.stamp());
                let before = |(k, s): &(Vec<u8>, Stamp)| k.as_slice().cmp(key).then(stamp.cmp(s)).is_lt();
                if !last.as_ref().is_none_or(before) {
                    return Err(wrong("it does not stand behind the block before it"));
                }
                if !table.covers(key) || stamp.seqno() > table.properties().last_seqno {
                    return Err(wrong("an entry lies outside of the table's bounds"));
                }
                if filter.is_some_and(|filter| !filter.may_contain(hash64(key))) {
                    return Err(wrong("the filter does not know a key"));
                }
                let (last_key, last_stamp) = last.get_or_insert_with(|| (Vec::new(), stamp));
                last_key.clear();
                last_key.extend_from_slice(key);
                *last_stamp = stamp;
                entries += 1;
                let large = if stamp.kind() == EntryKind::LargeValue {
                    let place = (key, cursor.value());
                    check_pointer(table, number, place, &mut used, report)?
                } else {
                    Some(cursor.value_bytes())
                };
                if let Some(value) = large {
                    see(family_of(key), user_key(key), stamp, &value);
                }
                cursor
                    .forward()
                    .map_err(|error| opened.bad_block(entry.offset, error))?;
            }
            if last.as_ref().is_some_and(|(key, _)| *key != entry.last_key) {
                return Err(wrong("the index names another last key"));
            }
            Ok(())
        });
        whole &= checked.is_ok();
        report.note(checked)?;
    }
    report.entries += entries;
    if whole && entries != table.properties().entry_count {
        let reason = format!(
            "{entries} entries where the properties name {}",
            table.properties().entry_count
        );
        return Err(corrupt(opened.name(), 0, CorruptKind::Properties, reason));
    }
    let listed = table.properties().value_files.iter();
    if whole && !listed.map(|file| (file.number, file.used_bytes)).eq(used) {
        let reason = "it lists other value files, or bytes in them, than its entries point to";
        return Err(corrupt(opened.name(), 0, CorruptKind::Properties, reason));
    }
    Ok(())
}

/// Reads all of a value file.
fn check_values(state: &ValueFileState, report: &mut VerifyReport) -> Result<(), LsmError> {
    let mut scan = ValueScan::begin(&state.file, state.file_bytes)?;
    loop {
        match scan.next() {
            Ok(None) => return Ok(()),
            Ok(Some(_)) => report.values += 1,
            Err(error) => report.note(Err(error))?,
        }
    }
}

/// Reads the large value of an entry; `None` if it is corrupt, which is a finding. Counts what is pointed to.
fn check_pointer(
    table: &Table,
    block: usize,
    (key, pointer): (&[u8], &[u8]),
    used: &mut BTreeMap<u64, u64>,
    report: &mut VerifyReport,
) -> Result<Option<Bytes>, LsmError> {
    if let Ok(pointer) = Pointer::decode(pointer) {
        let bytes = used.entry(pointer.file).or_insert(0);
        *bytes = bytes.saturating_add(pointer.record_bytes(key.len()));
    }
    match table.large_value(block, key, pointer) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_corruption() => {
            // Reading the whole value file has usually found it already.
            let text = error.to_string();
            if report.findings.iter().all(|finding| finding.to_string() != text) {
                report.findings.push(error);
            }
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Reads a block as it is stored and has it checked.
fn check_block(
    table: &Table,
    opened: &Opened,
    offset: u64,
    bytes: usize,
    check: impl FnOnce(&Bytes) -> Result<(), LsmError>,
) -> Result<(), LsmError> {
    if offset + bytes as u64 > table.meta().file_bytes {
        return Err(corrupt(
            opened.name(),
            offset,
            CorruptKind::Index,
            "a block lies behind the end",
        ));
    }
    check(&opened.read_stored(offset, bytes)?)
}

impl Table {
    /// The file's name.
    fn name(&self) -> String {
        let path = self.path();
        path.file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }
}
