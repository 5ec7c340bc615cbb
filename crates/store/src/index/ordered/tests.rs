//! The ordered index against a sorted set, and under readers and writers at once.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;
use weft_base::{BatchId, Prng};

use super::*;

/// How often a writer adds and removes its keys.
const TURNS: u64 = if cfg!(miri) { 1 } else { 10 };

type Model = BTreeSet<(Vec<u8>, u64)>;

fn index() -> OrderedIndex {
    OrderedIndex::new(&Arc::default())
}

/// The entries of a range, at most so many at a time, for a reader who passes over nothing.
fn read(
    index: &OrderedIndex,
    lo: Bound<&[u8]>,
    hi: Bound<&[u8]>,
    reverse: bool,
    most: usize,
) -> Vec<(Vec<u8>, u64)> {
    read_at(index, (lo, hi), reverse, most, BatchId(0))
}

/// The same for a reader who sees batches up to `horizon`.
fn read_at(
    index: &OrderedIndex,
    (lo, hi): (Bound<&[u8]>, Bound<&[u8]>),
    reverse: bool,
    most: usize,
    horizon: BatchId,
) -> Vec<(Vec<u8>, u64)> {
    let mut cursor = index.range(lo, hi, reverse, horizon);
    let mut batch = Batch::default();
    let mut out = Vec::new();
    while cursor.next(&mut batch, most) {
        assert!(!batch.slots().is_empty() && batch.slots().len() <= most);
        out.extend(batch.entries().map(|(key, slot)| (key.to_vec(), slot.0)));
    }
    out
}

fn found(index: &OrderedIndex, key: &[u8]) -> Vec<u64> {
    let mut found = Candidates::new();
    index.candidates(key, &mut found);
    found.iter().map(|slot| slot.0).collect()
}

fn is_inside(key: &Vec<u8>, lo: Bound<&[u8]>, hi: Bound<&[u8]>) -> bool {
    let above = match lo {
        Bound::Included(lo) => key.as_slice() >= lo,
        Bound::Excluded(lo) => key.as_slice() > lo,
        Bound::Unbounded => true,
    };
    let below = match hi {
        Bound::Included(hi) => key.as_slice() <= hi,
        Bound::Excluded(hi) => key.as_slice() < hi,
        Bound::Unbounded => true,
    };
    above && below
}

fn check_range(index: &OrderedIndex, model: &Model, lo: Bound<&[u8]>, hi: Bound<&[u8]>) {
    let inside = model.iter().filter(|(key, _)| is_inside(key, lo, hi));
    let mut expected: Vec<(Vec<u8>, u64)> = inside.cloned().collect();
    for most in [usize::MAX, 7, 1] {
        assert_eq!(
            read(index, lo, hi, false, most),
            expected,
            "{lo:?} {hi:?} by {most}"
        );
    }
    expected.reverse();
    for most in [usize::MAX, 7, 1] {
        let entries = read(index, lo, hi, true, most);
        assert_eq!(entries, expected, "{lo:?} {hi:?} in reverse by {most}");
    }
}

fn check_all(index: &OrderedIndex, model: &Model) {
    assert_eq!(index.len(), model.len());
    check_range(index, model, Bound::Unbounded, Bound::Unbounded);
    check_shape(index);
}

/// Every node obeys the invariants: order, separators, counts, prefixes, links. Nobody else is about.
fn check_shape(index: &OrderedIndex) {
    fn walk<'i>(
        index: &'i OrderedIndex,
        node: &'i Node,
        low: Option<(Vec<u8>, u64)>,
        high: Option<(Vec<u8>, u64)>,
        leaves: &mut Vec<&'i Node>,
    ) {
        let (version, meta) = (node.read(), node.meta());
        let entries: Vec<(Vec<u8>, u64)> = (0..meta.count())
            .map(|at| {
                let mut key = Vec::new();
                node.key_into(at, version, &mut key).unwrap();
                (key, node.entry_slot(at, meta.level))
            })
            .collect();
        assert!(entries.is_sorted_by(|one, other| one < other), "{entries:?}");
        assert!(low.is_none() || entries.first().is_none_or(|first| *first >= low.clone().unwrap()));
        assert!(high.is_none() || entries.last().is_none_or(|last| *last < high.clone().unwrap()));
        let first = entries.first().map(|(key, _)| key.clone()).unwrap_or_default();
        assert!(
            entries
                .iter()
                .all(|(key, _)| key.starts_with(&first[..meta.prefix_len()]))
        );
        if meta.level == 0 {
            if meta.continues {
                assert!(high.is_some_and(|(_, slot)| slot != 0));
            }
            leaves.push(node);
            return;
        }
        for at in 0..=meta.count() {
            let low = if at == 0 {
                low.clone()
            } else {
                entries.get(at - 1).cloned()
            };
            let high = entries.get(at).cloned().or_else(|| high.clone());
            let child = index.child_of(node, version, at).unwrap();
            assert_eq!(child.meta().level + 1, meta.level);
            walk(index, child, low, high, leaves);
        }
    }
    let mut leaves = Vec::new();
    walk(index, index.root(), None, None, &mut leaves);
    let null = ptr::null::<Node>();
    for (at, leaf) in leaves.iter().enumerate() {
        let right = leaves.get(at + 1).map_or(null, |leaf| ptr::from_ref(*leaf));
        let left = at.checked_sub(1).map_or(null, |at| ptr::from_ref(leaves[at]));
        assert!(ptr::eq(leaf.neighbour(Side::Right), right));
        assert!(ptr::eq(leaf.neighbour(Side::Left), left));
    }
}

/// Kinds of keys: short ones of few bytes, long shared beginnings, equal heads, integers.
fn make_key(random: &mut Prng, kind: u64) -> Vec<u8> {
    match kind % 6 {
        0 => (0..random.below(6)).map(|_| random.below(3) as u8).collect(),
        1 => {
            let mut key = vec![b'p'; 100];
            key.extend((0..random.below(30)).map(|_| b'a' + random.below(3) as u8));
            key
        }
        2 => {
            let mut key = b"same head".to_vec();
            key.extend_from_slice(&(random.below(3_000) as u32).to_be_bytes());
            key.extend(vec![0; random.below(20) as usize]);
            key
        }
        3 => [&[1], (random.below(100_000) as i64).to_be_bytes().as_slice()].concat(),
        4 => vec![0; random.below(40) as usize],
        _ => vec![u8::MAX; random.below(90) as usize],
    }
}

/// Adds a key that nobody has; where the index cannot tell nothing happens.
fn add_alone(index: &OrderedIndex, model: &mut Model, entry: (Vec<u8>, u64)) {
    let is_taken = model
        .range((entry.0.clone(), 0)..=(entry.0.clone(), u64::MAX))
        .next();
    let is_taken = is_taken.is_some();
    let is_added = index.add_alone(&entry.0, SlotId(entry.1));
    assert!(!(is_taken && is_added), "{entry:?}");
    if is_added {
        model.insert(entry);
    }
}

#[test]
fn a_single_writer_is_seldom_refused() {
    let index = index();
    let mut random = Prng::new(9);
    let keys = 5_000;
    let added = (0..keys).filter(|number| {
        let key = random.next_u64().to_be_bytes();
        let slot = SlotId(*number);
        index.add_alone(&key, slot) || !index.add(&key, slot)
    });
    assert!(added.count() as u64 > keys * 9 / 10);
    assert!(index.add_alone(&[0], SlotId(1)) && !index.add_alone(&[0], SlotId(0)));
}

#[test]
fn behaves_as_a_sorted_set_over_many_operations() {
    let operations = if cfg!(miri) { 3_000 } else { 150_000 };
    for (seed, kinds) in [(1, 0..1), (2, 1..2), (3, 2..3), (4, 3..4), (5, 0..6)] {
        let mut random = Prng::new(seed);
        let index = index();
        let mut model = Model::new();
        for step in 0..operations / 5 {
            // Waves of growth and of shrinking.
            let adds = if step / 6_000 % 2 == 0 { 70 } else { 25 };
            let kind = kinds.start + random.below(kinds.end - kinds.start);
            if random.below(100) < adds {
                let entry = (make_key(&mut random, kind), random.below(40));
                if step % 3 == 0 {
                    add_alone(&index, &mut model, entry);
                } else {
                    let is_new = index.add(&entry.0, SlotId(entry.1));
                    assert_eq!(model.insert(entry), is_new);
                }
            } else {
                let near = (make_key(&mut random, kind), random.below(40));
                let entry = model.range(near.clone()..).next().cloned().unwrap_or(near);
                index.remove(&entry.0, SlotId(entry.1));
                model.remove(&entry);
            }
            if step % 64 == 0 {
                let (one, other) = (make_key(&mut random, kind), make_key(&mut random, kind));
                let slots: Vec<u64> = model
                    .iter()
                    .filter(|(key, _)| *key == one)
                    .map(|(_, slot)| *slot)
                    .collect();
                assert_eq!(found(&index, &one), slots);
                if step % 512 == 0 {
                    check_range(&index, &model, Bound::Included(&one), Bound::Excluded(&other));
                    check_range(&index, &model, Bound::Excluded(&one), Bound::Included(&other));
                }
            }
            if step % 8_192 == 0 {
                check_all(&index, &model);
            }
        }
        check_all(&index, &model);
        for (key, slot) in &model {
            index.remove(key, SlotId(*slot));
            index.remove(key, SlotId(*slot));
        }
        check_all(&index, &Model::new());
        assert_nothing_is_lost(&index);
    }
}

/// An emptied index holds its root and one leaf; everything else can be used again.
fn assert_nothing_is_lost(index: &OrderedIndex) {
    assert_eq!(index.root().meta().level, 1);
    let (free_nodes, used_nodes, blocks_in_use) = index.pool.counts();
    assert_eq!((used_nodes, blocks_in_use), (2, 0), "{free_nodes} free");
}

proptest! {
    #[test]
    fn ranges_are_those_of_a_sorted_set(
        keys in proptest::collection::vec(proptest::collection::vec(0u8..3, 0..40), 0..120),
        lo in proptest::collection::vec(0u8..3, 0..20),
        hi in proptest::collection::vec(0u8..3, 0..20),
    ) {
        let index = index();
        let mut model = Model::new();
        for (slot, key) in keys.into_iter().enumerate() {
            index.add(&key, SlotId(slot as u64));
            model.insert((key, slot as u64));
        }
        for lo in [Bound::Included(lo.as_slice()), Bound::Excluded(lo.as_slice()), Bound::Unbounded] {
            for hi in [Bound::Included(hi.as_slice()), Bound::Excluded(hi.as_slice()), Bound::Unbounded] {
                check_range(&index, &model, lo, hi);
            }
        }
    }
}

#[test]
fn ascending_and_descending_keys_fill_leaves() {
    let entries = if cfg!(miri) { 600 } else { 100_000u64 };
    for descending in [false, true] {
        let index = index();
        let mut model = Model::new();
        for number in 0..entries {
            let number = if descending { entries - number } else { number };
            let key = [&[1], number.to_be_bytes().as_slice()].concat();
            index.add(&key, SlotId(number));
            model.insert((key, number));
        }
        check_all(&index, &model);
        let bytes_max = if descending { 64 } else { 32 };
        assert!(
            cfg!(miri) || index.size_bytes() < entries as usize * bytes_max,
            "{}",
            index.size_bytes()
        );
    }
}

/// Many rows with one key: separators need slots, and lookups go on from leaf to leaf.
#[test]
fn equal_keys_continue_across_leaves() {
    let index = index();
    let mut model = Model::new();
    for slot in 0..500u64 {
        for key in [
            &b"a"[..],
            b"b",
            b"a longer key than fits into any node's head or rest",
        ] {
            index.add(key, SlotId(slot * 7 % 500));
            model.insert((key.to_vec(), slot * 7 % 500));
        }
    }
    check_all(&index, &model);
    assert_eq!(found(&index, b"b"), (0..500).collect::<Vec<_>>());
    assert!(found(&index, b"").is_empty() && found(&index, b"aa").is_empty());
    for slot in (0..500).filter(|slot| slot % 50 != 0) {
        index.remove(b"b", SlotId(slot));
        model.remove(&(b"b".to_vec(), slot));
    }
    check_all(&index, &model);
    assert_eq!(found(&index, b"b").len(), 10);
}

/// A descent names the entry of a key; one of another index leads nowhere.
#[test]
fn descents_lead_to_entries() {
    let (index, other) = (index(), index());
    let count = if cfg!(miri) { 300 } else { 60_000u64 };
    for number in 0..count {
        index.add(&number.to_be_bytes(), SlotId(number));
        if number % 100 == 0 {
            other.add(&number.to_be_bytes(), SlotId(number));
        }
    }
    for number in (0..count).step_by(17) {
        let key = number.to_be_bytes();
        let mut descent = index.begin_descent(&key);
        assert!(matches!(other.step(descent, &key), Step::Nothing));
        let slot = loop {
            assert!(!descent.address().0.is_null());
            match index.step(descent, &key) {
                Step::Down(next) => descent = next,
                Step::Entry(slot) => break Some(slot),
                Step::Nothing => break None,
            }
        };
        assert_eq!(slot, Some(SlotId(number)));
    }
}

/// Keys that are never removed are found all the time and stand in every range once, in order, while others
/// come and go around them, so that nodes are split, joined, freed and used again.
#[test]
fn readers_find_what_stays() {
    let (rounds, stay, churn) = if cfg!(miri) { (1, 60, 120) } else { (4, 400, 1_200) };
    for round in 0..rounds {
        let index = index();
        let stop = AtomicBool::new(false);
        let key_of = |number: u64| {
            let mut key = weft_ops::mix64(number).to_be_bytes().to_vec();
            if round % 2 == 1 {
                // Blocks come and go as well.
                key.splice(
                    0..0,
                    *b"a beginning that all keys share, longer than a node's prefix may be: no end",
                );
                key.extend_from_slice(&[0; 20]);
            }
            key
        };
        let mut stable: Vec<(Vec<u8>, u64)> = (0..stay).map(|number| (key_of(number), number)).collect();
        for (key, slot) in &stable {
            index.add(key, SlotId(*slot));
        }
        stable.sort();
        std::thread::scope(|scope| {
            for reader in 0..2 {
                let (index, stop, stable) = (&index, &stop, &stable);
                scope.spawn(move || {
                    node::races::provoke(round * 4 + reader);
                    let mut random = Prng::new(round * 2 + reader);
                    while !stop.load(Ordering::Relaxed) {
                        for _ in 0..50 {
                            let (key, slot) = &stable[random.below(stay) as usize];
                            assert!(found(index, key).contains(slot));
                            let mut descent = index.begin_descent(key);
                            while let Step::Down(next) = index.step(descent, key) {
                                descent = next;
                            }
                        }
                        let (one, other) = (random.below(stay) as usize, random.below(stay) as usize);
                        let (lo, hi) = (one.min(other), one.max(other));
                        let mut range = read(
                            index,
                            Bound::Included(&stable[lo].0),
                            Bound::Excluded(&stable[hi].0),
                            reader == 1,
                            random.below(60) as usize + 1,
                        );
                        if reader == 1 {
                            range.reverse();
                        }
                        assert!(range.is_sorted_by(|one, other| one < other));
                        range.retain(|(_, slot)| *slot < stay);
                        assert_eq!(range, stable[lo..hi]);
                    }
                });
            }
            let writers: Vec<_> = (0..2)
                .map(|writer| {
                    let (index, key_of) = (&index, &key_of);
                    scope.spawn(move || {
                        node::races::provoke(round * 4 + 2 + writer);
                        for turn in 0..TURNS {
                            let numbers = (0..churn).map(|number| stay + (number * 2 + writer));
                            for number in numbers.clone() {
                                index.add(&key_of(number), SlotId(number));
                            }
                            let keep = |number: &u64| turn == TURNS - 1 && number.is_multiple_of(10);
                            for number in numbers.filter(|number| !keep(number)) {
                                index.remove(&key_of(number), SlotId(number));
                            }
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            stop.store(true, Ordering::Relaxed);
        });
        let mut model: Model = stable.into_iter().collect();
        let kept = (stay..stay + churn * 2).filter(|number| number.is_multiple_of(10));
        model.extend(kept.map(|number| (key_of(number), number)));
        check_all(&index, &model);
        for (key, slot) in &model {
            index.remove(key, SlotId(*slot));
        }
        assert_nothing_is_lost(&index);
    }
}

/// Runs of neighbours, as who adds at his hint likes them, in turns with removals and with other indexes; the
/// keys share long beginnings, are the beginnings of others, or have no bytes at all.
#[test]
fn runs_of_neighbours_are_inserted_in_order() {
    let runs = if cfg!(miri) { 60 } else { 3_000 };
    let mut random = Prng::new(3);
    // So many that some share a hint.
    let mut indexes: Vec<(OrderedIndex, Model)> = (0..9).map(|_| (index(), Model::new())).collect();
    for run in 0..runs {
        let (kind, group) = (random.below(5), random.below(4) as u8);
        let chosen = random.below(3) as usize * 4;
        let base = random.below(400) as u32;
        for number in 0..1 + random.below(30) as u32 {
            let mut key = match kind {
                0 => vec![1, group, 1],
                1 => vec![b'q'; 90],
                2 => [vec![group; 60], vec![0; 4]].concat(),
                _ => Vec::new(),
            };
            match kind {
                // Each is the beginning of the next.
                4 => key.extend(vec![0; number as usize]),
                _ => key.extend_from_slice(&(base * 10 + number).to_be_bytes()),
            }
            let (index, model) = &mut indexes[chosen];
            let entry = (key, random.below(3));
            if random.below(2) == 0 {
                add_alone(index, model, entry.clone());
            } else {
                let is_new = index.add(&entry.0, SlotId(entry.1));
                assert_eq!(model.insert(entry.clone()), is_new);
            }
            if random.below(12) == 0 {
                let gone = model.range(..=entry).next_back().cloned();
                if let Some(gone) = gone {
                    index.remove(&gone.0, SlotId(gone.1));
                    model.remove(&gone);
                }
            }
            if random.below(8) == 0 {
                let (other, model) = &mut indexes[(chosen + 4) % 12 / 4 * 4];
                let entry = ((base + number).to_be_bytes().to_vec(), 0);
                assert_eq!(other.add(&entry.0, SlotId(0)), model.insert(entry));
            }
        }
        if run % 100 == 0 {
            indexes.iter().for_each(|(index, model)| check_all(index, model));
        }
    }
    for (index, model) in &indexes {
        check_all(index, model);
        for (key, slot) in model {
            index.remove(key, SlotId(*slot));
        }
        assert_nothing_is_lost(index);
    }
}

/// Threads add runs side by side into the same leaves, and remove earlier ones, so that leaves which others
/// hold hints at are split, joined, freed and used again: nothing goes into a wrong leaf or gets lost.
#[test]
fn hints_at_leaves_that_others_change() {
    let (rounds, runs) = if cfg!(miri) { (1, 12) } else { (6, 1_500) };
    for round in 0..rounds {
        let index = index();
        let next: [AtomicU64; 3] = std::array::from_fn(|_| AtomicU64::new(0));
        let keys_of = |group: usize, run: u64| {
            (0..6).map(move |line: u8| {
                let mut key = vec![1, group as u8];
                key.extend_from_slice(&(run as u32).to_be_bytes());
                key.push(line);
                key.resize(if round % 2 == 0 { 7 } else { 40 }, 0);
                key
            })
        };
        let left: Vec<Model> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3u64)
                .map(|writer| {
                    let (index, next, keys_of) = (&index, &next, &keys_of);
                    scope.spawn(move || {
                        node::races::provoke(round * 3 + writer);
                        let mut random = Prng::new(round * 3 + writer);
                        let (mut model, mut own) = (Model::new(), Vec::new());
                        for _ in 0..runs {
                            let group = random.below(3) as usize;
                            let run = next[group].fetch_add(1, Ordering::Relaxed);
                            for key in keys_of(group, run) {
                                assert!(index.add_alone(&key, SlotId(writer)));
                                model.insert((key, writer));
                            }
                            own.push((group, run));
                            // Mostly the last one, whose leaf others are at.
                            while own.len() > 3 && random.below(2) == 0 {
                                let place = own.len() - 1 - random.below(own.len().min(4) as u64) as usize;
                                let (group, run) = own.swap_remove(place);
                                for key in keys_of(group, run) {
                                    index.remove(&key, SlotId(writer));
                                    model.remove(&(key, writer));
                                }
                            }
                        }
                        model
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let model: Model = left.into_iter().flatten().collect();
        check_all(&index, &model);
        for (key, slot) in &model {
            index.remove(key, SlotId(*slot));
        }
        assert_nothing_is_lost(&index);
    }
}

/// The root grows between a descent and the look at the separator right of its leaf.
#[test]
fn a_hint_made_while_the_root_grows() {
    let index = std::rc::Rc::new(index());
    let key = |number: u32| number.to_be_bytes();
    for number in 0..26 * 26 {
        assert!(index.add_alone(&key(number * 10), SlotId(u64::from(number))));
    }
    assert_eq!((index.root().meta().level, index.root().meta().count()), (1, 25));
    // Room at the end of the sixth leaf.
    for number in 5 * 26 + 20..6 * 26 {
        index.remove(&key(number * 10), SlotId(u64::from(number)));
    }
    let other = std::rc::Rc::clone(&index);
    node::races::interrupt(move || {
        for number in 26 * 26..26 * 26 + 60 {
            other.add(&key(number * 10), SlotId(u64::from(number)));
        }
    });
    let free = (5 * 26 + 20) * 10;
    assert!(index.add_alone(&key(free), SlotId(9000)));
    assert_eq!(index.root().meta().level, 2);
    let taken = 6 * 26 * 10;
    assert_eq!(found(&index, &key(taken)), [6 * 26]);
    assert!(!index.add_alone(&key(taken), SlotId(9001)), "a unique key twice");
    check_shape(&index);
}

/// Threads add so that the root grows and inner nodes are split while others make hints.
#[test]
fn hints_while_the_tree_grows() {
    let rounds = if cfg!(miri) { 1 } else { 400u64 };
    for round in 0..rounds {
        let index = index();
        std::thread::scope(|scope| {
            for writer in 0..3u64 {
                let index = &index;
                scope.spawn(move || {
                    node::races::provoke(round * 3 + writer);
                    let mut random = Prng::new(round * 3 + writer);
                    let mut next = [0u32; 4];
                    for _ in 0..600 {
                        let group = random.below(4) as usize;
                        next[group] += 1 + random.below(3) as u32;
                        let number = (group as u32 * 10_000 + next[group] * 4) + writer as u32;
                        index.add_alone(&number.to_be_bytes(), SlotId(u64::from(number)));
                    }
                });
            }
        });
        check_shape(&index);
    }
}

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

/// Marks entries, as a reader does that finds their rows removed.
fn mark(index: &OrderedIndex, since: u64, is_gone: impl Fn(u64) -> bool) {
    let mut cursor = index.range(ALL.0, ALL.1, false, BatchId(0));
    let mut batch = Batch::default();
    while cursor.next(&mut batch, usize::MAX) {
        let slots = batch.slots().iter().enumerate();
        let gone: Vec<usize> = slots
            .filter(|(_, slot)| is_gone(slot.0))
            .map(|(at, _)| at)
            .collect();
        if !gone.is_empty() {
            cursor.mark_gone(&batch, gone.into_iter(), BatchId(since));
        }
    }
}

/// Every key with a slot of its own.
fn numbered(keys: u64, make: impl Fn(u64) -> Vec<u8>) -> (OrderedIndex, Model) {
    let (index, mut model) = (index(), Model::new());
    for number in 0..keys {
        let key = make(number);
        index.add(&key, SlotId(number));
        model.insert((key, number));
    }
    (index, model)
}

#[test]
fn marked_entries_are_passed_over_by_later_readers_only() {
    let short = |number: u64| number.to_be_bytes().to_vec();
    let long = |number: u64| [&[7; 40], number.to_be_bytes().as_slice(), &[1; 30]].concat();
    let makers: [&dyn Fn(u64) -> Vec<u8>; 2] = [&short, &long];
    for make in makers {
        let (index, model) = numbered(600, make);
        mark(&index, 7, |slot| slot < 400);
        check_all(&index, &model);
        let rest: Vec<(Vec<u8>, u64)> = (400..600).map(|number| (make(number), number)).collect();
        for most in [usize::MAX, 7, 1] {
            for horizon in [7, 8, u64::MAX] {
                let read = read_at(&index, ALL, false, most, BatchId(horizon));
                assert_eq!(read, rest, "{most} {horizon}");
                let mut backwards = read_at(&index, ALL, true, most, BatchId(horizon));
                backwards.reverse();
                assert_eq!(backwards, rest, "{most} {horizon} in reverse");
            }
            let all: Vec<_> = model.iter().cloned().collect();
            assert_eq!(read_at(&index, ALL, false, most, BatchId(6)), all);
        }
        // Nobody may rely on an entry being passed over, but none that is not marked is.
        mark(&index, 9, |slot| slot == 450);
        let seen = read_at(&index, ALL, false, usize::MAX, BatchId(8));
        assert!(rest.iter().all(|entry| seen.contains(entry)));
        assert!(!read_at(&index, ALL, false, usize::MAX, BatchId(9)).contains(&(make(450), 450)));
        // The first of many is found at once.
        let mut cursor = index.range(ALL.0, ALL.1, false, BatchId(9));
        let mut batch = Batch::default();
        assert!(cursor.next(&mut batch, 1));
        assert_eq!(batch.slots(), [SlotId(400)]);
    }
}

#[test]
fn a_mark_ends_with_its_entry() {
    let (index, mut model) = numbered(100, |number| number.to_be_bytes().to_vec());
    mark(&index, 3, |_| true);
    assert_eq!(read_at(&index, ALL, false, usize::MAX, BatchId(3)), []);
    // The row is collected, and slot and key are used again.
    for number in (0..100u64).step_by(3) {
        index.remove(&number.to_be_bytes(), SlotId(number));
        assert!(index.add(&number.to_be_bytes(), SlotId(number)));
    }
    let seen = read_at(&index, ALL, false, usize::MAX, BatchId(3));
    assert!(
        (0..100u64)
            .step_by(3)
            .all(|number| seen.contains(&(number.to_be_bytes().to_vec(), number)))
    );
    check_all(&index, &model);
    for (key, slot) in std::mem::take(&mut model) {
        index.remove(&key, SlotId(slot));
    }
    assert_nothing_is_lost(&index);
}

#[test]
fn an_entry_that_is_added_again_is_not_passed_over() {
    let (index, _) = numbered(20, |number| number.to_be_bytes().to_vec());
    mark(&index, 3, |slot| slot < 10);
    assert!(!index.add(&4u64.to_be_bytes(), SlotId(4)), "it is there");
    let seen = read_at(&index, ALL, false, usize::MAX, BatchId(3));
    assert_eq!((seen.len(), seen[0].1), (11, 4));
}

/// A leaf that changes after others were passed over is looked up behind them.
#[test]
fn leaves_that_were_passed_over_are_not_read_again() {
    for reverse in [false, true] {
        let (index, _) = numbered(2000, |number| number.to_be_bytes().to_vec());
        mark(&index, 3, |slot| slot != 1000);
        let mut cursor = index.range(ALL.0, ALL.1, reverse, BatchId(3));
        let mut batch = Batch::default();
        assert!(cursor.next(&mut batch, 1));
        assert_eq!(batch.slots(), [SlotId(1000)]);
        // The leaf where the reader is changes; what it passed over is not marked any more.
        for number in (0..2000u64).filter(|number| *number != 1000) {
            index.add(&number.to_be_bytes(), SlotId(number));
        }
        let mut rest = Vec::new();
        while cursor.next(&mut batch, usize::MAX) {
            rest.extend(batch.slots().iter().map(|slot| slot.0));
        }
        let expected: Vec<u64> = if reverse {
            (0..1000).rev().collect()
        } else {
            (1001..2000).collect()
        };
        assert_eq!(rest, expected);
    }
}

/// A leaf that has changed since it was read is not marked.
#[test]
fn no_mark_is_set_in_a_leaf_that_has_changed() {
    let (index, _) = numbered(20, |number| number.to_be_bytes().to_vec());
    let mut cursor = index.range(ALL.0, ALL.1, false, BatchId(0));
    let mut batch = Batch::default();
    assert!(cursor.next(&mut batch, usize::MAX));
    // What was the first entry is another one.
    index.remove(&0u64.to_be_bytes(), SlotId(0));
    cursor.mark_gone(&batch, std::iter::once(0), BatchId(1));
    assert_eq!(read_at(&index, ALL, false, usize::MAX, BatchId(1)).len(), 19);
    assert!(!cursor.next(&mut batch, usize::MAX), "nothing is read twice");
}

/// Readers mark entries of even slots while writers split and join the leaves: odd slots are always found.
#[test]
fn marks_beside_writers() {
    let (rounds, keys) = if cfg!(miri) { (1, 60) } else { (20, 1_200u64) };
    for round in 0..rounds {
        let index = index();
        let key = |number: u64| weft_ops::mix64(number).to_be_bytes();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2u64)
                .map(|writer| {
                    let (index, key) = (&index, &key);
                    scope.spawn(move || {
                        node::races::provoke(round * 2 + writer);
                        for number in (writer..keys).step_by(2) {
                            index.add(&key(number), SlotId(number));
                            if number % 4 == writer && number >= 40 {
                                index.remove(&key(number - 40), SlotId(number - 40));
                            }
                        }
                    })
                })
                .collect();
            let marker = scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    mark(&index, 5, |slot| slot % 2 == 0);
                    let seen = read_at(&index, ALL, false, 3, BatchId(5));
                    assert!(seen.is_sorted(), "{seen:?}");
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            is_done.store(true, Ordering::Relaxed);
            marker.join().unwrap();
        });
        check_shape(&index);
        let all = read(&index, ALL.0, ALL.1, false, usize::MAX);
        let seen = read_at(&index, ALL, false, usize::MAX, BatchId(5));
        let odd = |entries: &[(Vec<u8>, u64)]| entries.iter().filter(|(_, slot)| slot % 2 == 1).count();
        assert_eq!(odd(&all), odd(&seen));
    }
}
