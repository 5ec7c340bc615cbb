//! The access guard: refuses a DB instruction that the declared accesses do not cover, before it happens.
//!
//! The lock manager admitted the program by its declared accesses; anything outside of them is not protected.
//! So before each DB instruction the guard looks for an access that covers it:
//!
//! | instruction         | covered by                                                                     |
//! |---------------------|--------------------------------------------------------------------------------|
//! | SEARCH, primary key | READ/WRITE/INSERT ROW of the key, READ/WRITE RANGE around it, READ/WRITE TABLE |
//! | SEARCH, other index | READ/WRITE TABLE (the row's primary key is not known beforehand); or           |
//! |                     | READ/WRITE RANGE of a prefix that both keys begin with, see below              |
//! | SCAN, primary key   | READ/WRITE RANGE around both bounds, READ/WRITE TABLE                          |
//! | SCAN, other index   | as SEARCH                                                                      |
//! | INSERT              | WRITE/INSERT ROW of the new key or WRITE RANGE around it, and WRITE VALUE of   |
//! |                     | each unique value; or WRITE TABLE                                              |
//! | UPDATE              | the same of old and new key, and of old and new unique values that differ      |
//! | REMOVE              | the same of the old key and values                                             |
//!
//! An index whose first columns are the primary key's first columns only finds rows whose primary keys begin
//! with the same values. So a declared range with a prefix of those columns covers lookups in such an index
//! with keys that have the prefix.
//!
//! A unique value with a NULL in it conflicts with nothing and needs no access. In a table without primary
//! key INSERT is covered by INSERT ROW with an empty key; changing a row there needs WRITE TABLE.
//!
//! Source: DESIGN.md, "Programs"; Hobbes 3.3 (access sets known before execution).

use weft_base::{IndexId, TableId};
use weft_types::{KeyColumns, RowLayout, SqlError, SqlState};

use crate::access_keys::{AccessKey, AccessKeys, upper_prefix_within};
use crate::interpreter::KeyImage;
use crate::program::{Access, AccessKind, TableShape};
use crate::resolve::TableKeys;

/// State of a refusal: class XX, internal error.
pub const UNDECLARED_ACCESS: SqlState = SqlState("XXW01");

/// True if the error is the guard's: the program tried to access what it had not declared.
pub fn is_refusal(error: &SqlError) -> bool {
    error.state == UNDECLARED_ACCESS
}

#[cold]
fn refuse(what: &str, table: TableId) -> SqlError {
    SqlError::new(
        UNDECLARED_ACCESS,
        format!("program {what} in table {} without having declared it", table.0),
    )
}

/// The encoded keys of one run's accesses, and what the guard needs to compare with them. The caller passes
/// the accesses themselves, which are the program's.
#[derive(Clone, Debug, Default)]
pub(crate) struct GuardKeys {
    pub keys: AccessKeys,
    /// Where the last match was: accesses are usually declared in the order in which they happen.
    hint: usize,
    old: Vec<u8>,
    new: Vec<u8>,
}

impl GuardKeys {
    /// Resets for another run, whose keys follow.
    pub fn reset(&mut self) {
        self.hint = 0;
    }

    /// The key of an access; `None` if it equals nothing or there is no such access.
    #[inline]
    pub fn key_of(&self, access: u32) -> Option<&[u8]> {
        self.keys.key_of(access as usize)
    }

    /// Bytes of the key of an access, whether it equals nothing or not.
    #[inline]
    pub fn key_bytes(&self, access: u32) -> usize {
        let entry = self.keys.entries.get(access as usize);
        entry.map_or(0, |entry| self.keys.key(entry).len())
    }

    /// Whether some access on the table satisfies a rule; remembers where.
    #[inline]
    fn any(
        &mut self,
        (accesses, table): (&[Access], TableId),
        covers: impl Fn(&AccessKeys, &Access, &AccessKey) -> bool,
    ) -> bool {
        let count = self.keys.entries.len();
        let mut at = self.hint;
        for _ in 0..count {
            if at >= count {
                at = 0;
            }
            if let Some((access, entry)) = accesses.get(at).zip(self.keys.entries.get(at))
                && access.table == table
                && covers(&self.keys, access, entry)
            {
                self.hint = at;
                return true;
            }
            at += 1;
        }
        false
    }

    /// SEARCH.
    #[inline]
    pub fn search(
        &mut self,
        accesses: &[Access],
        table: &TableShape,
        index: usize,
        key: &[u8],
    ) -> Result<(), SqlError> {
        let primary = table.primary == Some(index);
        let covered = self.any((accesses, table.id), |keys, access, entry| match access.kind {
            AccessKind::ReadTable | AccessKind::WriteTable => true,
            AccessKind::ReadRow | AccessKind::WriteRow | AccessKind::InsertRow => {
                primary && keys.key(entry) == key
            }
            AccessKind::ReadRange | AccessKind::WriteRange if primary => in_range(keys, entry, key),
            AccessKind::ReadRange | AccessKind::WriteRange => {
                covers_prefix(keys, (access, entry), shared_columns(table, index), (key, key))
            }
            AccessKind::WriteValue(_) => false,
        });
        if covered {
            Ok(())
        } else {
            Err(refuse("searches", table.id))
        }
    }

    /// SCAN from the prefix `lo` to the prefix `hi`; `hi_exclusive` excludes keys with the prefix `hi`.
    /// Returns the access that covers everything that may be found.
    pub fn scan(
        &mut self,
        accesses: &[Access],
        (table, index): (&TableShape, usize),
        (lo, hi): (&[u8], &[u8]),
        hi_exclusive: bool,
    ) -> Result<u32, SqlError> {
        let primary = table.primary == Some(index);
        let covered = self.any((accesses, table.id), |keys, access, entry| match access.kind {
            AccessKind::ReadTable | AccessKind::WriteTable => true,
            AccessKind::ReadRange | AccessKind::WriteRange if !primary => {
                covers_prefix(keys, (access, entry), shared_columns(table, index), (lo, hi))
            }
            AccessKind::ReadRange | AccessKind::WriteRange => {
                let bound = keys.hi(entry);
                let hi_within = match hi_exclusive {
                    true => hi <= bound || hi.starts_with(bound),
                    false => upper_prefix_within(hi, bound),
                };
                lo >= keys.key(entry) && (bound.is_empty() || hi_within)
            }
            _ => false,
        });
        if covered {
            Ok(self.hint as u32)
        } else {
            Err(refuse("scans", table.id))
        }
    }

    fn write_row(&mut self, at: (&[Access], TableId), key: &[u8], inserts: bool) -> bool {
        self.any(at, |keys, access, entry| match access.kind {
            AccessKind::WriteTable => true,
            AccessKind::WriteRange => !key.is_empty() && in_range(keys, entry, key),
            AccessKind::WriteRow => !key.is_empty() && keys.key(entry) == key,
            AccessKind::InsertRow => (inserts || !key.is_empty()) && keys.key(entry) == key,
            _ => false,
        })
    }

    fn write_value(&mut self, at: (&[Access], TableId), index: IndexId, key: &[u8]) -> bool {
        self.any(at, |keys, access, entry| match access.kind {
            AccessKind::WriteTable => true,
            AccessKind::WriteValue(id) => id == index && keys.key(entry) == key,
            _ => false,
        })
    }

    /// Puts the key of an access into a key buffer.
    pub fn copy_key(&self, access: u32, image: &mut KeyImage) {
        image.bytes.clear();
        if let Some(entry) = self.keys.entries.get(access as usize) {
            image.bytes.extend_from_slice(self.keys.key(entry));
            image.unmatchable = entry.equals_nothing;
        }
    }

    /// UPDATE of a row that was found by the key or in the range of `source`; true if the row keeps its
    /// unique keys, and so those by which it was found. Such an update needs no further check if the access
    /// may write.
    #[inline]
    pub fn update(
        &mut self,
        at: (&[Access], TableId),
        (keys, layout): (&TableKeys, &RowLayout),
        source: Option<u32>,
        (old, new): (&[u8], &[u8]),
    ) -> Result<bool, SqlError> {
        let same = |columns: &KeyColumns| columns.same(layout, old, new);
        let keeps_keys =
            keys.primary.as_ref().is_none_or(same) && keys.unique.iter().all(|(_, columns)| same(columns));
        let source = source.and_then(|access| at.0.get(access as usize));
        if !keeps_keys || !source.is_some_and(is_row_write) {
            self.write(at, (keys, layout), Some(old), Some(new))?;
        }
        Ok(keeps_keys)
    }

    /// INSERT (`old` is `None`), UPDATE (both), REMOVE (`new` is `None`).
    pub fn write(
        &mut self,
        at: (&[Access], TableId),
        (keys, layout): (&TableKeys, &RowLayout),
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<(), SqlError> {
        let mut old_key = std::mem::take(&mut self.old);
        let mut new_key = std::mem::take(&mut self.new);
        let result = self.check_write(at, keys, (layout, old, new), &mut old_key, &mut new_key);
        (self.old, self.new) = (old_key, new_key);
        result
    }

    #[inline(always)]
    fn check_write(
        &mut self,
        at: (&[Access], TableId),
        keys: &TableKeys,
        (layout, old, new): (&RowLayout, Option<&[u8]>, Option<&[u8]>),
        old_key: &mut Vec<u8>,
        new_key: &mut Vec<u8>,
    ) -> Result<(), SqlError> {
        let both = old.zip(new);
        // The same bytes mean the same key; different bytes may, too.
        let keeps = |columns: &KeyColumns| both.is_some_and(|(old, new)| columns.same(layout, old, new));
        let primary = keys.primary.as_ref();
        encode(old_key, layout, old.or(new), primary);
        if !self.write_row(at, old_key, old.is_none()) {
            let what = if old.is_some() {
                "changes a row"
            } else {
                "writes a row"
            };
            return Err(refuse(what, at.1));
        }
        if both.is_some() && !primary.is_none_or(keeps) {
            encode(new_key, layout, new, primary);
            if old_key != new_key && !self.write_row(at, new_key, false) {
                return Err(refuse("writes a row", at.1));
            }
        }
        for (index, columns) in &keys.unique {
            if keeps(columns) {
                continue;
            }
            encode(old_key, layout, old, Some(columns));
            encode(new_key, layout, new, Some(columns));
            if both.is_some() && old_key == new_key {
                continue;
            }
            for (row, key) in [(old, &*old_key), (new, &*new_key)] {
                let matters = row.is_some_and(|row| !columns.has_null(layout, row));
                if matters && !self.write_value(at, *index, key) {
                    return Err(refuse("writes a value", at.1));
                }
            }
        }
        Ok(())
    }
}

/// The key lies in the range that an entry declares.
#[inline]
fn in_range(keys: &AccessKeys, entry: &AccessKey, key: &[u8]) -> bool {
    let (lo, hi) = (keys.key(entry), keys.hi(entry));
    // A key with the range's single prefix is not below it.
    match key.starts_with(hi) {
        true => entry.is_prefix || key >= lo,
        false => key >= lo && key <= hi,
    }
}

/// Whether everything between two keys of an index that shares its first columns with the primary key is in
/// the range that an access declares.
fn covers_prefix(
    keys: &AccessKeys,
    (access, entry): (&Access, &AccessKey),
    shared: usize,
    (lo, hi): (&[u8], &[u8]),
) -> bool {
    let prefix = keys.key(entry);
    let one_prefix = entry.is_prefix && !prefix.is_empty();
    one_prefix && access.key.len() <= shared && lo.starts_with(prefix) && hi.starts_with(prefix)
}

/// The access allows changing the rows that it covers.
fn is_row_write(access: &Access) -> bool {
    matches!(
        access.kind,
        AccessKind::WriteRow | AccessKind::InsertRow | AccessKind::WriteRange | AccessKind::WriteTable
    )
}

/// How many first columns an index shares with the primary key.
fn shared_columns(table: &TableShape, index: usize) -> usize {
    let primary = table.primary_index().map_or(&[][..], |index| &index.columns);
    let other = table
        .indexes
        .get(index)
        .map_or(&[][..], |index| index.columns.as_slice());
    primary
        .iter()
        .zip(other)
        .take_while(|(left, right)| left == right)
        .count()
}

fn encode(key: &mut Vec<u8>, layout: &RowLayout, row: Option<&[u8]>, columns: Option<&KeyColumns>) {
    key.clear();
    if let (Some(row), Some(columns)) = (row, columns) {
        columns.encode(key, layout, row);
    }
}
