//! A placed device: its mirror, its programs, its health.
//!
//! ```text
//!   absent --load--> of boundary N --batch N + 1 runs--> ahead, of N + 1 --published--> of N + 1
//!     ^                   |                                    |
//!     +--- a batch that changes definitions; a change that the device does not take;
//!          a batch that was not logged; a fault (then the device is out of service)
//! ```
//!
//! Invariant: while the mirror is of a boundary, each placed table has the rows there that the host has. A
//! mirror that was lost is loaded again by the next batch that has a member for the device.

use std::time::Instant;

use hashbrown::HashMap;
use weft_base::{BatchId, CatalogVersion, TableId};
use weft_program::{Program, ProgramHash};
use weft_store::{BatchWriter, Locator, ReadView, RowChange};
use weft_types::SqlError;

use super::answers::key_of;
use super::{DeviceExecutor, DeviceFault, DeviceSettings, DeviceStats};
use crate::executor::Work;
use crate::write_set::{self, RowPosition, WriteOp};
use std::sync::Arc;

/// Refused programs that are listed.
const REFUSED_PROGRAMS_MAX: usize = 64;
/// Characters of a program's hash in that list.
const HASH_CHARS: usize = 12;

/// What the device's rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mirror {
    /// Nothing.
    Absent,
    /// Those of a boundary.
    Of(BatchId),
    /// Those of an open batch, or one that is not published yet.
    Ahead(BatchId),
}

/// A device and what the engine knows of it.
pub(crate) struct PlacedDevice {
    pub(super) executor: Box<dyn DeviceExecutor>,
    pub(super) settings: DeviceSettings,
    pub(super) mirror: Mirror,
    /// The catalog that tables and programs are of.
    catalog_version: CatalogVersion,
    /// Tables in the mirror.
    tables: Vec<TableId>,
    /// Programs that were offered, with their numbers if they were taken.
    programs: HashMap<ProgramHash, Option<usize>>,
    pub(super) stats: DeviceStats,
}

impl PlacedDevice {
    /// A device with nothing on it.
    pub fn new(executor: Box<dyn DeviceExecutor>, settings: DeviceSettings) -> PlacedDevice {
        PlacedDevice {
            executor,
            settings,
            mirror: Mirror::Absent,
            catalog_version: CatalogVersion::default(),
            tables: Vec::new(),
            programs: HashMap::new(),
            stats: DeviceStats::default(),
        }
    }

    /// What it did.
    pub fn stats(&self) -> &DeviceStats {
        &self.stats
    }

    /// The batch is published.
    pub fn published(&mut self, batch: BatchId) {
        if self.mirror == Mirror::Ahead(batch) {
            self.mirror = Mirror::Of(batch);
        }
    }

    /// Takes the device out of service.
    pub(super) fn fail(&mut self, batch: BatchId, DeviceFault(reason): DeviceFault) {
        self.mirror = Mirror::Absent;
        self.stats.failure.get_or_insert((batch, reason));
    }

    pub(super) fn is_out_of_service(&self) -> bool {
        self.stats.failure.is_some()
    }

    /// The next group is one that the CPU runs as well.
    pub(super) fn is_next_checked(&self) -> bool {
        match self.settings.check {
            super::DeviceCheck::Every => true,
            super::DeviceCheck::OneIn(n) => self.stats.groups.is_multiple_of(n.get().into()),
        }
    }

    /// Fills the mirror with the rows of a view, which is of this boundary. Tables that the device does not
    /// take are left out.
    ///
    /// # Errors
    /// A row could not be read.
    pub fn load(&mut self, view: ReadView<'_>, boundary: BatchId) -> Result<(), SqlError> {
        if self.catalog_version != view.catalog().version() {
            self.catalog_version = view.catalog().version();
            self.stats.refused_tables.clear();
            self.stats.refused_programs.clear();
        }
        let began = Instant::now();
        // A table may turn out to be too large, or to have a row that does not fit, when others are there.
        let loaded = loop {
            let refused = self.stats.refused_tables.len();
            let loaded = self.load_tables(view);
            if loaded.is_err() || self.stats.refused_tables.len() == refused {
                break loaded;
            }
        };
        self.stats.loading.time += began.elapsed();
        loaded.map(|()| self.mirror = Mirror::Of(boundary))
    }

    /// Begins with an empty device; ends early if it refuses a table.
    fn load_tables(&mut self, view: ReadView<'_>) -> Result<(), SqlError> {
        self.mirror = Mirror::Absent;
        self.executor.clear();
        self.tables.clear();
        self.programs.clear();
        for id in self.settings.tables.clone() {
            if self
                .stats
                .refused_tables
                .iter()
                .any(|(refused, _)| *refused == id)
            {
                continue;
            }
            let placed = match view.catalog().table_by_id(id) {
                Some(def) if def.primary_key.is_none() => Err("it has no primary key".to_owned()),
                Some(def) => self.executor.place_table(def, view.row_count_estimate(id)),
                None => Err("it does not exist".to_owned()),
            };
            let mut loaded = placed;
            view.scan(id, |row| {
                if loaded.is_ok() {
                    let change = RowChange {
                        member: 0,
                        table: id,
                        before: None,
                        after: Some(row.bytes),
                    };
                    loaded = self.executor.change_row(&change);
                    self.stats.loading.add(row.bytes.len());
                }
            })?;
            if let Err(reason) = loaded {
                self.stats.refused_tables.push((id, reason));
                return Ok(());
            }
            self.tables.push(id);
        }
        Ok(())
    }

    /// The number of a program, if the device takes it.
    pub(super) fn program(&mut self, program: &Arc<Program>) -> Option<usize> {
        let hash = program.hash();
        if let Some(number) = self.programs.get(&hash) {
            return *number;
        }
        let missing = |program: &Program| {
            let mut shapes = program.tables.iter();
            shapes
                .find(|shape| !self.tables.contains(&shape.id))
                .map(|shape| shape.id)
        };
        let loaded = match missing(program) {
            Some(TableId(id)) => Err(format!("table {id} is not on the device")),
            None => self.executor.load_program(program),
        };
        let number = match loaded {
            Ok(number) => Some(number),
            Err(reason) => {
                let refused = &mut self.stats.refused_programs;
                if refused.len() < REFUSED_PROGRAMS_MAX {
                    let name = hash.to_string().chars().take(HASH_CHARS).collect();
                    refused.push((name, reason));
                }
                None
            }
        };
        self.programs.insert(hash, number);
        number
    }

    /// Whether a batch with these members needs the mirror at all.
    pub(super) fn has_candidates(&self, members: &[Work<'_>]) -> bool {
        let is_candidate = |work: &Work<'_>| match work {
            Work::Program { program, .. } => program
                .tables
                .iter()
                .all(|shape| self.settings.tables.contains(&shape.id)),
            Work::WriteSet(_) => false,
        };
        members.iter().any(is_candidate)
    }

    /// Brings what members since the mark changed into the mirror, except those of `in_place`, which the
    /// device has.
    pub(super) fn mirror_changes(&mut self, writer: &BatchWriter<'_>, mark: usize, in_place: &[usize]) {
        if self.mirror == Mirror::Absent || writer.committed_members() == mark {
            return;
        }
        let began = Instant::now();
        let mut refused = None;
        writer.changes_since(mark, |change| {
            let is_there = in_place.binary_search(&(change.member as usize)).is_ok();
            if refused.is_none() && !is_there && self.tables.contains(&change.table) {
                self.stats.mirrored.add(change.after.map_or(0, <[u8]>::len));
                let changed = self.executor.change_row(&change);
                refused = changed.err().map(|reason| (change.table, reason));
            }
        });
        self.stats.mirrored.time += began.elapsed();
        self.lose_table(refused);
    }

    /// A table that cannot stay is left out when the mirror is loaded again.
    fn lose_table(&mut self, refused: Option<(TableId, String)>) {
        if let Some(refused) = refused {
            self.stats.refused_tables.push(refused);
            self.mirror = Mirror::Absent;
        }
    }

    /// Gives the mirror the host's rows again where a device has changed them and its changes do not count.
    pub(super) fn restore_rows(&mut self, view: ReadView<'_>, write_set: &[u8]) -> Result<(), SqlError> {
        let mut refused = None;
        for op in write_set::operations(write_set).flatten() {
            let (table, key, row) = match op {
                WriteOp::Insert { table, row } => (table, None, Some(row)),
                WriteOp::Update { table, place, row } => (table, Some(place), Some(row)),
                WriteOp::Delete { table, place } => (table, Some(place), None),
            };
            let key = match (key, row, view.catalog().table_by_id(table)) {
                (Some(RowPosition::Located(Locator::Key(key))), _, _) => key,
                (None, Some(row), Some(def)) => key_of(def, row),
                _ => continue,
            };
            let slot = view.locate(table, &Locator::Key(key))?;
            let host = match slot {
                Some(slot) => view.get(table, slot)?,
                None => None,
            };
            let change = RowChange {
                member: 0,
                table,
                before: row,
                after: host.as_ref().map(|row| row.bytes),
            };
            if let Err(reason) = self.executor.change_row(&change) {
                refused = Some((table, reason));
            }
        }
        self.lose_table(refused);
        Ok(())
    }
}
