//! A session's private writes, until its commit makes them a write set.
//!
//! For each table the overlay holds the rows that the transaction changed (by row id), the rows it inserted,
//! and for each index of the table the keys of both, so that the transaction's own statements find them.
//! Nobody else sees any of it. Besides this state there is the list of operations in the order in which they
//! were made: commit sends this list (see `write_set`), and ROLLBACK TO SAVEPOINT truncates it.
//!
//! Invariants: 1. `keys` holds exactly the keys of the live rows in `base` and `own`. 2. Undoing back to a
//! mark restores rows, keys and operations as they were at the mark.

use crate::write_set::{self, RowPosition};
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use weft_base::{IndexId, RowId, TableId};
use weft_store::{IndexDef, Locator, TableDef};
use weft_types::encode_key_from_row;

/// How the overlay names a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum OverlayRow {
    /// A row that others see too, changed here.
    Base(RowId),
    /// The n-th row that this transaction inserted into the table.
    Own(u32),
}

/// A shared row image; `None` is a deleted row.
pub(crate) type Image = Option<Arc<[u8]>>;

#[derive(Debug, Clone)]
struct OwnRow {
    /// Position among all inserts of the write set.
    ordinal: u32,
    image: Image,
}

/// A key; most fit without an allocation.
type Key = SmallVec<[u8; 24]>;
type Keys = BTreeMap<Key, SmallVec<[OverlayRow; 1]>>;

/// Space for a key under construction.
const KEY_BYTES: usize = 32;
/// Memory of one operation beside its row image: what is done, what undoes it, the row's place and its keys.
const OP_MEMORY_BYTES: usize = 384;
/// Up to this number of rows, operations and tables an overlay's memory is reused by the next transaction.
const KEPT_MAX: usize = 64;

/// One table's part of the overlay.
#[derive(Debug, Clone, Default)]
pub(crate) struct TableOverlay {
    /// The table was truncated or created by this transaction: the snapshot's rows are hidden.
    base_hidden: bool,
    /// Indexes that hold the keys of every row, since the snapshot's rows are hidden.
    complete_indexes: Vec<IndexId>,
    /// Operations before this position are void for this table: a TRUNCATE or DROP came later.
    void_ops: usize,
    base: HashMap<RowId, Image>,
    own: Vec<OwnRow>,
    keys: SmallVec<[(IndexId, Keys); 1]>,
}

#[derive(Debug, Clone)]
enum Op {
    Insert {
        table: TableId,
        row: Arc<[u8]>,
    },
    Update {
        table: TableId,
        place: RowPosition,
        row: Arc<[u8]>,
    },
    Delete {
        table: TableId,
        place: RowPosition,
    },
}

#[derive(Debug, Clone)]
enum Undo {
    /// A base row was first changed here.
    ForgetBase { table: Arc<TableDef>, row_id: RowId },
    /// An own row was inserted here.
    ForgetOwn { table: Arc<TableDef> },
    /// A row had this image before.
    Restore {
        table: Arc<TableDef>,
        row: OverlayRow,
        image: Image,
    },
    /// The table's overlay before a TRUNCATE.
    Table {
        table: TableId,
        before: Box<TableOverlay>,
    },
}

/// A point to roll back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverlayMark {
    undo_len: usize,
    op_len: usize,
    own_inserts: u32,
    byte_count: usize,
}

/// All private writes of one transaction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overlay {
    tables: HashMap<TableId, TableOverlay>,
    ops: Vec<Op>,
    undo: Vec<Undo>,
    own_inserts: u32,
    byte_count: usize,
}

impl TableOverlay {
    /// True when the snapshot's rows of this table are hidden.
    pub(crate) fn base_hidden(&self) -> bool {
        self.base_hidden
    }

    /// True when `find` and `range` alone answer for this index.
    pub(crate) fn is_complete(&self, index: IndexId) -> bool {
        self.base_hidden && self.complete_indexes.contains(&index)
    }

    /// What this transaction made of a base row: `None` if it did not change it.
    pub(crate) fn base_image(&self, row_id: RowId) -> Option<&Image> {
        self.base.get(&row_id)
    }

    /// True if this transaction inserted, changed or deleted rows.
    pub(crate) fn has_rows(&self) -> bool {
        !self.base.is_empty() || self.own.iter().any(|own| own.image.is_some())
    }

    /// True when no row differs from the snapshot.
    pub(crate) fn is_empty(&self) -> bool {
        !self.base_hidden && self.base.is_empty() && self.own.is_empty()
    }

    /// The live image of a row.
    pub(crate) fn image(&self, row: OverlayRow) -> Option<&Arc<[u8]>> {
        match row {
            OverlayRow::Base(row_id) => self.base.get(&row_id)?.as_ref(),
            OverlayRow::Own(n) => self.own.get(n as usize)?.image.as_ref(),
        }
    }

    /// All live rows made by this transaction.
    pub(crate) fn own_rows(&self) -> impl Iterator<Item = (u32, &Arc<[u8]>)> {
        self.own
            .iter()
            .enumerate()
            .filter_map(|(n, own)| Some((n as u32, own.image.as_ref()?)))
    }

    /// Live rows whose key in `index` is `key`.
    pub(crate) fn find(&self, index: IndexId, key: &[u8]) -> &[OverlayRow] {
        self.keys_of(index)
            .and_then(|keys| keys.get(key))
            .map_or(&[], |rows| rows.as_slice())
    }

    /// Live rows whose key in `index` lies in the range, with their keys, ascending.
    pub(crate) fn range(
        &self,
        index: IndexId,
        lo: Bound<&[u8]>,
        hi: Bound<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&[u8], OverlayRow)> {
        // An empty or inverted range holds no rows; `BTreeMap` would panic on it.
        let keys = self.keys_of(index).filter(|_| !is_empty_range(lo, hi));
        keys.into_iter()
            .flat_map(move |keys| keys.range::<[u8], _>((lo, hi)))
            .flat_map(|(key, rows)| rows.iter().map(move |row| (key.as_ref(), *row)))
    }

    fn set_image(&mut self, def: &TableDef, row: OverlayRow, image: Image) -> Option<Image> {
        let before = match row {
            OverlayRow::Base(row_id) => self.base.insert(row_id, image.clone()),
            OverlayRow::Own(n) => self
                .own
                .get_mut(n as usize)
                .map(|own| std::mem::replace(&mut own.image, image.clone())),
        };
        self.rekey(
            def,
            row,
            before.as_ref().and_then(|b| b.as_deref()),
            image.as_deref(),
        );
        before
    }

    fn keys_of(&self, index: IndexId) -> Option<&Keys> {
        let (_, keys) = self.keys.iter().find(|(id, _)| *id == index)?;
        Some(keys)
    }

    fn keys_of_mut(&mut self, index: IndexId) -> Option<&mut Keys> {
        let place = self.keys.iter().position(|(id, _)| *id == index);
        let place = place.unwrap_or_else(|| {
            self.keys.push((index, Keys::new()));
            self.keys.len() - 1
        });
        self.keys.get_mut(place).map(|(_, keys)| keys)
    }

    fn rekey(&mut self, def: &TableDef, row: OverlayRow, old: Option<&[u8]>, new: Option<&[u8]>) {
        for index in &def.indexes {
            let old_key = old.map(|old| key_of(def, old, &index.columns));
            let new_key = new.map(|new| key_of(def, new, &index.columns));
            if old_key == new_key {
                continue;
            }
            let Some(keys) = self.keys_of_mut(index.id) else {
                continue;
            };
            if let Some(old_key) = old_key
                && let Some(rows) = keys.get_mut(old_key.as_slice())
            {
                rows.retain(|r| *r != row);
                if rows.is_empty() {
                    keys.remove(old_key.as_slice());
                }
            }
            if let Some(new_key) = new_key {
                keys.entry(Key::from_slice(&new_key)).or_default().push(row);
            }
        }
    }

    /// Clears everything but the memory.
    fn clear(&mut self) {
        let TableOverlay {
            base_hidden,
            complete_indexes,
            void_ops,
            base,
            own,
            keys,
        } = self;
        (*base_hidden, *void_ops) = (false, 0);
        complete_indexes.clear();
        base.clear();
        own.clear();
        // Usually inline; keys on the heap may belong to indexes that are gone.
        match keys.spilled() {
            true => keys.clear(),
            false => keys.iter_mut().for_each(|(_, keys)| keys.clear()),
        }
    }
}

/// The key of a row in an index of these columns.
fn key_of(def: &TableDef, row: &[u8], columns: &[usize]) -> Vec<u8> {
    let mut key = Vec::with_capacity(KEY_BYTES);
    encode_key_from_row(&mut key, &def.layout, row, columns);
    key
}

impl Overlay {
    /// The table's part, if this transaction wrote to it. It may be empty: left by an earlier transaction.
    pub(crate) fn table(&self, table: TableId) -> Option<&TableOverlay> {
        self.tables.get(&table)
    }

    /// True when the transaction wrote nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Clears everything; false if its memory is too large to be reused.
    pub(crate) fn clear(&mut self) -> bool {
        let Overlay {
            tables,
            ops,
            undo,
            own_inserts,
            byte_count,
        } = self;
        let is_large = |table: &TableOverlay| table.base.capacity().max(table.own.capacity()) > KEPT_MAX;
        if tables.len().max(ops.capacity()).max(undo.capacity()) > KEPT_MAX || tables.values().any(is_large) {
            return false;
        }
        tables.values_mut().for_each(TableOverlay::clear);
        ops.clear();
        undo.clear();
        (*own_inserts, *byte_count) = (0, 0);
        true
    }

    /// Bytes of row images written so far; what the bound of a write set counts.
    pub(crate) fn byte_count(&self) -> usize {
        self.byte_count
    }

    /// About how many bytes of memory this takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.byte_count + self.ops.len() * OP_MEMORY_BYTES
    }

    /// Adds a row.
    pub(crate) fn insert(&mut self, def: &Arc<TableDef>, row: Arc<[u8]>) -> OverlayRow {
        self.byte_count += row.len();
        let ordinal = self.own_inserts;
        self.own_inserts += 1;
        let table = self.tables.entry(def.id).or_default();
        let n = table.own.len() as u32;
        table.own.push(OwnRow { ordinal, image: None });
        table.set_image(def, OverlayRow::Own(n), Some(Arc::clone(&row)));
        self.undo.push(Undo::ForgetOwn {
            table: Arc::clone(def),
        });
        self.ops.push(Op::Insert { table: def.id, row });
        OverlayRow::Own(n)
    }

    /// Changes a row; `current` is its image as the transaction sees it now.
    pub(crate) fn update(&mut self, def: &Arc<TableDef>, row: OverlayRow, current: &[u8], new: Arc<[u8]>) {
        self.byte_count += new.len();
        let place = self.place(def, row, current);
        self.change(def, row, current, Some(Arc::clone(&new)));
        self.ops.push(Op::Update {
            table: def.id,
            place,
            row: new,
        });
    }

    /// Deletes a row; `current` is its image as the transaction sees it now.
    pub(crate) fn delete(&mut self, def: &Arc<TableDef>, row: OverlayRow, current: &[u8]) {
        let place = self.place(def, row, current);
        self.change(def, row, current, None);
        self.ops.push(Op::Delete { table: def.id, place });
    }

    /// Hides all rows of a table: TRUNCATE, or a table created by this transaction. The catalog operation
    /// itself is sent with the write set and runs before it, so what this transaction did to the table before
    /// is void.
    pub(crate) fn hide_base(&mut self, table: TableId, indexes: &[Arc<IndexDef>]) {
        let void_ops = self.ops.len();
        let complete_indexes = indexes.iter().map(|index| index.id).collect();
        let after = TableOverlay {
            base_hidden: true,
            complete_indexes,
            void_ops,
            ..TableOverlay::default()
        };
        let before = self.tables.insert(table, after);
        self.undo.push(Undo::Table {
            table,
            before: Box::new(before.unwrap_or_default()),
        });
    }

    fn place(&self, def: &TableDef, row: OverlayRow, current: &[u8]) -> RowPosition {
        if let OverlayRow::Own(n) = row {
            let own = self.tables.get(&def.id).and_then(|t| t.own.get(n as usize));
            return RowPosition::Own(own.map_or(u32::MAX, |own| own.ordinal));
        }
        RowPosition::Located(locator_of(def, row, current))
    }

    fn change(&mut self, def: &Arc<TableDef>, row: OverlayRow, current: &[u8], image: Image) {
        let table = self.tables.entry(def.id).or_default();
        let undo = match (table.set_image(def, row, image), row) {
            (Some(before), _) => Undo::Restore {
                table: Arc::clone(def),
                row,
                image: before,
            },
            (None, OverlayRow::Base(row_id)) => Undo::ForgetBase {
                table: Arc::clone(def),
                row_id,
            },
            (None, OverlayRow::Own(_)) => Undo::Restore {
                table: Arc::clone(def),
                row,
                image: Some(current.into()),
            },
        };
        self.undo.push(undo);
    }

    /// A point to roll back to.
    pub(crate) fn mark(&self) -> OverlayMark {
        OverlayMark {
            undo_len: self.undo.len(),
            op_len: self.ops.len(),
            own_inserts: self.own_inserts,
            byte_count: self.byte_count,
        }
    }

    /// Undoes everything since the mark.
    pub(crate) fn rollback_to(&mut self, mark: OverlayMark) {
        while self.undo.len() > mark.undo_len {
            match self.undo.pop() {
                Some(Undo::ForgetBase { table, row_id }) => {
                    if let Some(overlay) = self.tables.get_mut(&table.id) {
                        overlay.set_image(&table, OverlayRow::Base(row_id), None);
                        overlay.base.remove(&row_id);
                    }
                }
                Some(Undo::ForgetOwn { table }) => {
                    if let Some(overlay) = self.tables.get_mut(&table.id) {
                        let last = overlay.own.len().saturating_sub(1) as u32;
                        overlay.set_image(&table, OverlayRow::Own(last), None);
                        overlay.own.pop();
                    }
                }
                Some(Undo::Restore { table, row, image }) => {
                    if let Some(overlay) = self.tables.get_mut(&table.id) {
                        overlay.set_image(&table, row, image);
                    }
                }
                Some(Undo::Table { table, before }) => {
                    self.tables.insert(table, *before);
                }
                None => break,
            }
        }
        self.ops.truncate(mark.op_len);
        self.own_inserts = mark.own_inserts;
        self.byte_count = mark.byte_count;
    }

    /// The operations as a write set, without those that a later TRUNCATE or DROP made void.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.byte_count + self.ops.len() * 16);
        let mut sent_inserts = 0;
        let mut sent_ordinal = Vec::new();
        for (n, op) in self.ops.iter().enumerate() {
            let void = self
                .tables
                .get(&op.table())
                .is_some_and(|table| n < table.void_ops);
            if matches!(op, Op::Insert { .. }) {
                sent_ordinal.push(sent_inserts);
                sent_inserts += u32::from(!void);
            }
            if void {
                continue;
            }
            let renumber = |place: &RowPosition| match place {
                RowPosition::Own(ordinal) => {
                    RowPosition::Own(sent_ordinal.get(*ordinal as usize).copied().unwrap_or(u32::MAX))
                }
                located => located.clone(),
            };
            match op {
                Op::Insert { table, row } => write_set::put_insert(&mut out, *table, row),
                Op::Update { table, place, row } => {
                    write_set::put_update(&mut out, *table, &renumber(place), row)
                }
                Op::Delete { table, place } => write_set::put_delete(&mut out, *table, &renumber(place)),
            }
        }
        out
    }
}

impl Op {
    fn table(&self) -> TableId {
        match self {
            Op::Insert { table, .. } | Op::Update { table, .. } | Op::Delete { table, .. } => *table,
        }
    }
}

fn is_empty_range(lo: Bound<&[u8]>, hi: Bound<&[u8]>) -> bool {
    match (lo, hi) {
        (Bound::Included(lo), Bound::Included(hi)) => lo > hi,
        (Bound::Included(lo) | Bound::Excluded(lo), Bound::Excluded(hi))
        | (Bound::Excluded(lo), Bound::Included(hi)) => lo >= hi,
        _ => false,
    }
}

/// How to locate a base row: by primary key if there is one, else by row id.
pub(crate) fn locator_of(def: &TableDef, row: OverlayRow, current: &[u8]) -> Locator {
    if let Some(primary) = def.primary_index() {
        return Locator::Key(key_of(def, current, &primary.columns));
    }
    match row {
        OverlayRow::Base(row_id) => Locator::RowId(row_id),
        OverlayRow::Own(_) => Locator::RowId(RowId::default()),
    }
}
