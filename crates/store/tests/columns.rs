//! The keeper of columns beside the rows.

use std::time::Duration;

use weft_store::columns::{ColumnKeeper, CopyPolicy};

use crate::fixture::{self, EAGER, ITEMS, NOTES};

/// What was asked of all tables is made in the end, however often the keeper is stopped.
#[test]
fn a_stopped_keeper_goes_on_where_it_was() {
    let store = fixture::store();
    fixture::member(&store, |member| {
        for id in 0..10 {
            member.insert(ITEMS, &fixture::item(id, Some(1), None)).unwrap();
            member.insert(NOTES, &fixture::note("note", id as f64)).unwrap();
        }
    });
    let snapshot = store.snapshot();
    for table in [ITEMS, NOTES] {
        assert!(
            snapshot
                .read_chunk_columns(table, 0, &[0, 1], |_| ())
                .unwrap()
                .is_none()
        );
    }
    let policy = CopyPolicy {
        forget_after: Duration::from_secs(3600),
        ..EAGER
    };
    let mut keeper = ColumnKeeper::new(u64::MAX, policy);
    for _ in 0..3 {
        keeper.keep(&store, &mut || false);
    }
    let snapshot = store.snapshot();
    for table in [ITEMS, NOTES] {
        let read = snapshot.read_chunk_columns(table, 0, &[0, 1], |_| ());
        let columns = read.unwrap().unwrap();
        assert_eq!(columns.mask().count(), 10);
    }
    assert_eq!(store.column_stats().regions, 2);
}
