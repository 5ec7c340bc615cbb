//! What the members of the open batch have changed so far, row by row: for whoever keeps a copy of rows, or
//! compares what two executors did.
//!
//! ```text
//!   mark = committed_members() -> members run and commit -> changes_since(mark)
//! ```
//!
//! The chain of a row has what it was before: as many versions below the newest one as the member wrote.
//! That holds as long as no later member writes the row, so who wants the changes asks after each wave.

use super::{BatchWriter, MemberWrites};
use crate::memory::{Pin, SlotId};
use weft_base::TableId;

/// A row that a member changed. Both forms are in the table's present layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowChange<'b> {
    /// The member's number.
    pub member: u32,
    /// The table.
    pub table: TableId,
    /// The row before the member; `None`: the member inserted it.
    pub before: Option<&'b [u8]>,
    /// The row now; `None`: the member removed it.
    pub after: Option<&'b [u8]>,
}

impl BatchWriter<'_> {
    /// How many members have committed writes: a mark for [`BatchWriter::changes_since`].
    pub fn committed_members(&self) -> usize {
        self.committed.lock().len()
    }

    /// Shows each row that a member changed which committed after the mark, once. The members since the mark
    /// are of one wave, and none is open.
    pub fn changes_since(&self, mark: usize, mut see: impl FnMut(RowChange<'_>)) {
        let committed = self.committed.lock();
        for member in committed.iter().skip(mark) {
            let mut seen: Vec<(u32, SlotId)> = Vec::new();
            for write in &member.writes {
                let row = (write.table, write.slot);
                if !seen.contains(&row) {
                    seen.push(row);
                    self.show_change(member, row, &mut see);
                }
            }
        }
    }

    fn show_change(&self, member: &MemberWrites, row: (u32, SlotId), see: &mut impl FnMut(RowChange<'_>)) {
        let Some(table) = member.tables.get(row.0 as usize).map(|table| &table.data) else {
            return;
        };
        let Some(place) = table.core.slots.resident(row.1) else {
            return;
        };
        let written = member
            .writes
            .iter()
            .filter(|write| (write.table, write.slot) == row);
        let newest = place.at(self.pin(Pin::EVERYTHING));
        let mut before = newest;
        for _ in 0..written.count() {
            before = before.and_then(|version| version.older());
        }
        let (mut buffer, mut other_buffer) = (Vec::new(), Vec::new());
        let before = before.filter(|version| version.is_live());
        let after = newest.filter(|version| version.is_live());
        if before.is_some() || after.is_some() {
            see(RowChange {
                member: member.member,
                table: table.def.id,
                before: before.map(|version| table.row_in(version, &mut buffer)),
                after: after.map(|version| table.row_in(version, &mut other_buffer)),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{CatalogOp, ColumnDef, TableDef};
    use crate::store::Store;
    use weft_base::BatchId;
    use weft_types::{SqlType, Value};

    const TABLE: TableId = TableId(crate::FIRST_OBJECT_ID);
    const NUMBERS: std::ops::Range<i64> = 0..5;

    #[test]
    fn changes_are_shown_once_with_what_was_before() {
        let store = Store::new();
        let mut batch = store.begin_batch(BatchId(1));
        let def = TableDef::new(TABLE, "t", vec![ColumnDef::new("a", SqlType::Int8)]);
        batch.apply_catalog(&CatalogOp::CreateTable(def.clone())).unwrap();
        let row = |a: i64| def.layout.encode(&[Value::Int8(a)]).unwrap();
        let mut member = batch.member(0);
        let slots: Vec<SlotId> = NUMBERS.map(|a| member.insert(TABLE, &row(a)).unwrap()).collect();
        member.commit();
        batch.finish();
        store.publish(BatchId(1));

        let batch = store.begin_batch(BatchId(2));
        let mut earlier = batch.member(0);
        earlier.update(TABLE, slots[4], &row(40)).unwrap();
        earlier.commit();
        let mark = batch.committed_members();
        let mut member = batch.member(7);
        member.update(TABLE, slots[0], &row(10)).unwrap();
        member.update(TABLE, slots[0], &row(20)).unwrap();
        member.remove(TABLE, slots[1]).unwrap();
        let new = member.insert(TABLE, &row(30)).unwrap();
        member.update(TABLE, new, &row(31)).unwrap();
        let gone = member.insert(TABLE, &row(50)).unwrap();
        member.remove(TABLE, gone).unwrap();
        member.savepoint();
        member.update(TABLE, slots[2], &row(60)).unwrap();
        member.rollback_to_savepoint();
        member.commit();
        let mut rolled_back = batch.member(8);
        rolled_back.update(TABLE, slots[3], &row(70)).unwrap();
        rolled_back.rollback();
        let mut next = batch.member(9);
        next.update(TABLE, slots[4], &row(41)).unwrap();
        next.commit();

        let mut seen = Vec::new();
        let value = |row: Option<&[u8]>| row.map(|row| def.layout.fixed_u64(row, 0).unwrap());
        batch.changes_since(mark, |change| {
            assert_eq!(change.table, TABLE);
            seen.push((change.member, value(change.before), value(change.after)));
        });
        assert_eq!(
            seen,
            [
                (7, Some(0), Some(20)),
                (7, Some(1), None),
                (7, None, Some(31)),
                (9, Some(40), Some(41)),
            ]
        );
    }
}
