//! Readers during batches, two workers inside a batch, collection in between; and that none of it shows in
//! the digest.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_base::{Prng, SimDisk};
use weft_store::checkpoint::Changes;
use weft_store::columns::ColumnKeeper;
use weft_store::{
    BatchWriter, Evictor, Locator, MemberWriter, ReadView, Refilled, Refiller, Snapshot, Store,
};
use weft_types::Value;

use crate::checkpoint;
use crate::fixture::{self, ITEMS, ITEMS_KIND, ITEMS_PKEY};

const ACCOUNTS: i64 = 64;
const BALANCE: i32 = 1_000;
const BATCHES: u64 = 400;

/// Moves money between accounts of one half, and moves one account's key away or back: every index changes.
fn transfer(member: &mut MemberWriter<'_>, half: i64, random: &mut Prng) {
    let mut probe = member.begin_probe(ITEMS, ITEMS_PKEY, &fixture::id_key(half));
    while member.advance_probe(&mut probe) {}
    let account = |random: &mut Prng| random.below(ACCOUNTS as u64 / 2) as i64 * 2 + half;
    let (from, to) = (account(random), account(random));
    let amount = random.below(50) as i32;
    for (id, change) in [(from, -amount), (to, amount)] {
        let find = |id| member.locate(ITEMS, &Locator::Key(fixture::id_key(id))).unwrap();
        let (slot, id) = match find(id) {
            Some(slot) => (slot, id),
            None => (find(id + ACCOUNTS).unwrap(), id + ACCOUNTS),
        };
        let (_, balance, _) = fixture::decode(&member.get(ITEMS, slot).unwrap().unwrap());
        let moved = if id < ACCOUNTS {
            id + ACCOUNTS
        } else {
            id - ACCOUNTS
        };
        let new_id = if random.chance(1, 4) { moved } else { id };
        let name = format!("account {}", new_id % ACCOUNTS);
        let row = fixture::item(new_id, Some(balance.unwrap() + change), Some(&name));
        if random.chance(1, 5) {
            member.remove(ITEMS, slot).unwrap();
            member.insert(ITEMS, &row).unwrap();
        } else {
            member.update(ITEMS, slot, &row).unwrap();
        }
    }
}

/// Two workers of three members each.
fn transfers(batch: &BatchWriter<'_>, number: u64) {
    std::thread::scope(|workers| {
        for half in 0..2 {
            workers.spawn(move || {
                let mut random = Prng::new(number * 2 + half as u64);
                for turn in 0..3 {
                    let mut member = batch.member(half as u32 * 3 + turn);
                    transfer(&mut member, half, &mut random);
                    if random.chance(1, 4) {
                        member.rollback()
                    } else {
                        member.commit()
                    }
                }
            });
        }
    });
}

fn check_view(view: ReadView<'_>) {
    let all = Bound::Unbounded;
    let mut sum = 0;
    let mut count = 0;
    view.scan(ITEMS, |row| {
        sum += i64::from(fixture::decode(&row).1.unwrap());
        count += 1;
    })
    .unwrap();
    assert_eq!(
        (count, sum),
        (ACCOUNTS, ACCOUNTS * i64::from(BALANCE)),
        "at {:?}",
        view.batch()
    );
    let rows = view
        .range(ITEMS, ITEMS_PKEY, all, all, false, usize::MAX)
        .unwrap();
    let ids: Vec<i64> = rows.iter().map(|row| fixture::decode(row).0).collect();
    assert!(ids.is_sorted_by(|one, other| one < other));
    let mut accounts: Vec<i64> = ids.iter().map(|id| id % ACCOUNTS).collect();
    accounts.sort_unstable();
    assert_eq!(accounts, (0..ACCOUNTS).collect::<Vec<_>>());
    let mut probe = view.begin_range_probe(ITEMS, ITEMS_KIND, &[]);
    while view.advance_probe(&mut probe) {}
    let reverse = view.range(ITEMS, ITEMS_KIND, all, all, true, usize::MAX).unwrap();
    assert!(reverse.is_sorted_by(|one, other| fixture::decode(one).1 >= fixture::decode(other).1));
    assert_eq!(reverse.len(), ACCOUNTS as usize);
    let key = fixture::id_key(7);
    let mut probe = view.begin_probe(ITEMS, ITEMS_PKEY, &key);
    while view.advance_probe(&mut probe) {}
    assert!(!view.advance_probe(&mut probe), "a finished probe stays so");
    let found = view.lookup_one(ITEMS, ITEMS_PKEY, &key).unwrap();
    assert_eq!(found.is_some(), ids.contains(&7));
}

/// As [`check_view`], through the columns beside the rows.
fn check_columns(snapshot: &Snapshot) {
    let columns = [0, 1];
    let rows = fixture::read_columns(snapshot, &columns, &(0, None, None));
    let sum: i64 = rows.iter().map(|row| i64::from(row.1.unwrap())).sum();
    assert_eq!(sum, ACCOUNTS * i64::from(BALANCE), "at {:?}", snapshot.batch());
    let mut accounts: Vec<i64> = rows.iter().map(|row| row.0 % ACCOUNTS).collect();
    accounts.sort_unstable();
    assert_eq!(accounts, (0..ACCOUNTS).collect::<Vec<_>>());
}

fn fill(store: &std::sync::Arc<weft_store::Store>) {
    fixture::member(store, |member| {
        for id in 0..ACCOUNTS {
            member
                .insert(
                    ITEMS,
                    &fixture::item(id, Some(BALANCE), Some(&format!("account {id}"))),
                )
                .unwrap();
        }
    });
}

#[test]
fn readers_see_whole_batches_only() {
    run(false);
}

/// The same while checkpoints are written and rows leave memory all the time.
#[test]
fn readers_see_whole_batches_of_rows_that_come_and_go() {
    run(true);
}

/// Writes checkpoints, takes rows out of memory, and brings some of their regions back.
fn evict(store: &Arc<Store>, stop: &AtomicBool) {
    let disk = SimDisk::new(3);
    let mut checkpoints = checkpoint::open_with(&disk, &checkpoint::tiny()).unwrap();
    let mut evictor = Evictor::default();
    let mut refiller = Refiller::default();
    let (mut evicted, mut refilled) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        // A batch may be finished and not yet published.
        if let Some(changes) = Changes::take(store) {
            let written = checkpoints.write(changes, &mut |_| ControlFlow::Continue(()));
            written.unwrap();
            checkpoints.merge().unwrap();
        }
        for _ in 0..8 {
            evicted += evictor.step(store, true).map_or(0, |step| step.rows);
        }
        for _ in 0..3 {
            let step = refiller.step(store, u64::MAX);
            refilled += usize::from(step == Some(Refilled::Region));
        }
    }
    assert!(refilled > 1, "{refilled}");
    assert!(evicted > ACCOUNTS as usize, "{evicted}");
    // Whoever reads from here on finds its rows in memory.
    let all = Bound::Unbounded;
    let rows = store.snapshot();
    rows.range(ITEMS, ITEMS_PKEY, all, all, false, usize::MAX)
        .unwrap();
}

fn run(evicts: bool) {
    let store = fixture::store();
    fill(&store);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                let mut reader = store.reader();
                let mut held = store.snapshot();
                let mut rounds = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    check_view(reader.pin().view());
                    check_columns(&store.snapshot());
                    if rounds.is_multiple_of(3 + number) {
                        check_view(held.view());
                        assert_eq!(held.verify_digest().unwrap(), held.digest());
                        held = if rounds.is_multiple_of(2) {
                            store.snapshot()
                        } else {
                            held.clone()
                        };
                    }
                    rounds += 1;
                }
                assert!(rounds > 0);
            });
        }
        {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                let mut keeper = ColumnKeeper::new(u64::MAX, fixture::EAGER);
                let mut made = 0;
                let has_read = || store.column_stats().rows_from_columns > 0;
                // At the end nobody makes holes any more.
                while made == 0 || !has_read() || !stop.load(Ordering::Relaxed) {
                    let before = store.snapshot();
                    check_columns(&before);
                    made += keeper.keep(store, &mut || true);
                    check_columns(&store.snapshot());
                    // A copy may be newer than this one.
                    check_columns(&before);
                }
                let stats = store.column_stats();
                assert!(
                    made > 0 && stats.rows_from_columns > 0 && stats.rows_from_slots > 0,
                    "{stats:?}"
                );
            });
        }
        if evicts {
            scope.spawn(|| evict(&store, &stop));
        }
        for number in 0..BATCHES {
            fixture::batch(&store, |batch| transfers(batch, number));
            store.collect_garbage(random_budget(number));
        }
        stop.store(true, Ordering::Relaxed);
    });
    check_view(store.snapshot().view());
    fixture::settle(&store);
    let stats = store.memory_stats();
    assert_eq!(
        (stats.superseded_rows, stats.unlinked_versions, stats.readers),
        (0, 0, 0)
    );
    assert_eq!(stats.ordered_entries, 3 * ACCOUNTS as u64);
}

fn random_budget(number: u64) -> usize {
    Prng::new(number).below(40) as usize
}

#[test]
fn digests_do_not_depend_on_workers() {
    let (one, two) = (fixture::store(), fixture::store());
    fill(&one);
    fill(&two);
    for number in 0..60 {
        let run = |half: i64, turn: u32, member: &mut MemberWriter<'_>| {
            let mut random = Prng::new(number * 100 + half as u64 * 10 + u64::from(turn));
            transfer(member, half, &mut random);
        };
        // One worker, members in another order; two workers.
        let first = fixture::batch(&one, |batch| {
            for half in [1, 0] {
                for turn in 0..4 {
                    let mut member = batch.member(half as u32 * 4 + turn);
                    run(half, turn, &mut member);
                    member.commit();
                }
            }
        });
        let second = fixture::batch(&two, |batch| {
            let (batch, run) = (&*batch, &run);
            std::thread::scope(|workers| {
                for half in 0..2 {
                    workers.spawn(move || {
                        for turn in 0..4 {
                            // A rolled back attempt leaves no trace.
                            let mut attempt = batch.member(half as u32 * 4 + turn);
                            run(half, turn, &mut attempt);
                            drop(attempt);
                            let mut member = batch.member(half as u32 * 4 + turn);
                            run(half, turn, &mut member);
                            member.commit();
                        }
                    });
                }
            });
        });
        assert_eq!(first, second, "batch {number}");
        two.collect_garbage(usize::MAX);
    }
    assert_eq!(one.snapshot().verify_digest().unwrap(), two.state_digest());
}

#[test]
fn a_held_snapshot_outlives_everything_done_to_its_rows() {
    let store = fixture::store();
    fill(&store);
    let held = store.snapshot();
    let bytes = held
        .lookup_one(ITEMS, ITEMS_PKEY, &fixture::id_key(5))
        .unwrap()
        .unwrap()
        .bytes;
    let copy = bytes.to_vec();
    for number in 0..50 {
        fixture::member(&store, |member| {
            let slot = member
                .locate(ITEMS, &Locator::Key(fixture::id_key(5)))
                .unwrap()
                .unwrap();
            if number % 2 == 0 {
                member
                    .update(ITEMS, slot, &fixture::item(5, Some(number), None))
                    .unwrap();
            } else {
                member.remove(ITEMS, slot).unwrap();
                member
                    .insert(ITEMS, &fixture::item(5, Some(number), None))
                    .unwrap();
            }
        });
        store.collect_garbage(usize::MAX);
        assert_eq!(store.oldest_snapshot(), held.batch());
    }
    assert_eq!(bytes, copy);
    assert_eq!(
        store
            .snapshot()
            .range(
                ITEMS,
                ITEMS_KIND,
                Bound::Included(fixture::key(&[Value::Int4(49)]).as_slice()),
                Bound::Unbounded,
                false,
                1,
            )
            .unwrap()
            .len(),
        1
    );
    assert_eq!(held.verify_digest().unwrap(), held.digest());
}
