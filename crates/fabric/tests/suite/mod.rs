//! One suite for all forms: code that every rank runs, and that panics where something is not as it must be.
//!
//! A form's test starts ranks its own way and runs [`CASES`] on them. Everything random comes from the plan's
//! seed and the rank's number.

#![allow(dead_code, reason = "each test program uses a part of it")]

use weft_base::Prng;
use weft_fabric::{Error, InFlight, Mailbox, MailboxSpec, Rank, Window, WindowSpec};

/// How much to do.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Where random numbers come from.
    pub seed: u64,
    /// Operations of each kind.
    pub rounds: u64,
}

/// What a rank runs.
pub type Case = fn(&Rank, Plan);

/// The suite.
pub const CASES: [(&str, Case); 9] = [
    ("windows_hold_what_was_put", windows_hold_what_was_put),
    (
        "a_flag_stored_after_a_flush_comes_after_the_bytes",
        flag_after_flush,
    ),
    ("atomics_add_up", atomics_add_up),
    (
        "messages_come_once_whole_and_in_order",
        messages_come_once_whole_and_in_order,
    ),
    ("full_slots_push_back", full_slots_push_back),
    ("collectives_are_right", collectives_are_right),
    ("what_is_out_of_range_is_refused", what_is_out_of_range_is_refused),
    ("ranks_that_disagree_are_told", ranks_that_disagree_are_told),
    ("windows_come_and_go", windows_come_and_go),
];

fn prng(rank: &Rank, plan: Plan) -> Prng {
    Prng::new(
        plan.seed
            .wrapping_mul(1_000_003)
            .wrapping_add(u64::from(rank.number())),
    )
}

pub fn window(rank: &Rank, name: &str, bytes: u64) -> Window {
    rank.create_window(&WindowSpec {
        name,
        bytes,
        is_uniform: true,
        config: 1,
    })
    .unwrap()
}

/// Each rank has a stripe in every part, at odd boundaries, so that neighbours share words.
fn windows_hold_what_was_put(rank: &Rank, plan: Plan) {
    const STRIPE: u64 = 1003;
    let (me, count) = (rank.number(), rank.count());
    let window = window(rank, "stripes", STRIPE * u64::from(count));
    let mut prng = prng(rank, plan);
    let mut model = vec![vec![0_u8; STRIPE as usize]; count as usize];
    let mut flying: Vec<InFlight> = Vec::new();
    let mut written: Vec<(u32, u64, u64)> = Vec::new();
    for _ in 0..plan.rounds {
        let target = prng.below(u64::from(count)) as u32;
        let start = prng.below(STRIPE);
        let length_max = if prng.chance(1, 4) {
            STRIPE - start
        } else {
            20.min(STRIPE - start)
        };
        let length = 1 + prng.below(length_max);
        let mut bytes = vec![0; length as usize];
        prng.fill(&mut bytes);
        // Two puts of one epoch to the same bytes have no order: a flush stands between them.
        let overlaps = written
            .iter()
            .any(|(to, from, end)| *to == target && start < *end && *from < start + length);
        if overlaps || prng.chance(1, 8) {
            window.flush(target).unwrap();
            written.retain(|(to, ..)| *to != target);
        }
        let at = u64::from(me) * STRIPE + start;
        if prng.chance(1, 2) {
            window.put(target, at, &bytes).unwrap();
        } else {
            flying.push(window.put_buffer(target, at, bytes.clone()).unwrap());
        }
        model[target as usize][start as usize..(start + length) as usize].copy_from_slice(&bytes);
        written.push((target, start, start + length));
        if prng.chance(1, 4) {
            window.flush(target).unwrap();
            written.retain(|(to, ..)| *to != target);
            let mut stripe = vec![0; STRIPE as usize];
            window.read(target, u64::from(me) * STRIPE, &mut stripe).unwrap();
            assert!(
                stripe == model[target as usize],
                "rank {me}: the stripe at {target}"
            );
        }
        if flying.len() > 5 {
            flying
                .remove(prng.below(flying.len() as u64) as usize)
                .wait()
                .unwrap();
        }
    }
    drop(flying);
    window.flush_all().unwrap();
    let sums: Vec<Vec<u64>> = model.iter().map(|stripe| vec![checksum(stripe)]).collect();
    let sums = rank.all_to_all(&sums).unwrap();
    rank.barrier().unwrap();
    let mut part = vec![0; (STRIPE * u64::from(count)) as usize];
    window.local_read(0, &mut part).unwrap();
    // SAFETY: all have flushed and met since, and nobody puts before the window is closed.
    assert!(part == unsafe { window.local_bytes() });
    for (sender, stripe) in part.chunks(STRIPE as usize).enumerate() {
        assert_eq!(
            vec![checksum(stripe)],
            sums[sender],
            "what {sender} wrote at {me}"
        );
    }
    window.close().unwrap();
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
    })
}

/// Each rank fills a buffer at its neighbour, flushes, and stores a flag; the neighbour looks and answers.
pub fn flag_after_flush(rank: &Rank, plan: Plan) {
    const BYTES: usize = 300;
    let (me, count) = (rank.number(), rank.count());
    let (next, before) = ((me + 1) % count, (me + count - 1) % count);
    let window = window(rank, "flags", 512);
    rank.barrier().unwrap();
    for round in 1..=plan.rounds {
        let pattern = |rank: u32| [(round.wrapping_mul(37) + u64::from(rank)) as u8; BYTES];
        window.put(next, 64, &pattern(me)).unwrap();
        window.flush(next).unwrap();
        window.store(next, 0, round).unwrap();
        wait_for_word(&window, 0, round);
        let mut seen = [0; BYTES];
        window.local_read(64, &mut seen).unwrap();
        assert!(
            seen == pattern(before),
            "the flag of round {round} came before its bytes"
        );
        window.store(before, 8, round).unwrap();
        wait_for_word(&window, 8, round);
    }
    window.close().unwrap();
}

fn wait_for_word(window: &Window, offset: u64, value: u64) {
    let rank = window.rank();
    rank.wait_for("a flag", None, || {
        Ok((window.local_load(offset)? >= value).then_some(()))
    })
    .unwrap();
}

fn atomics_add_up(rank: &Rank, plan: Plan) {
    let (me, count) = (rank.number(), rank.count());
    let window = window(rank, "counters", 24);
    let mut prng = prng(rank, plan);
    let mut added = vec![0_u64; count as usize];
    let mut swapped = vec![0_u64; count as usize];
    rank.barrier().unwrap();
    for _ in 0..plan.rounds {
        let target = prng.below(u64::from(count)) as u32;
        if prng.chance(1, 2) {
            let value = prng.below(1 << 40);
            window.fetch_add(target, 0, value).unwrap();
            added[target as usize] += value;
        } else {
            let mut expected = window.load(target, 8).unwrap();
            loop {
                let was = window
                    .compare_and_swap(target, 8, expected, expected + 1)
                    .unwrap();
                if was == expected {
                    break;
                }
                expected = was;
                rank.pause(0);
            }
            swapped[target as usize] += 1;
        }
    }
    // A vote word, as in section 5.2.1: yes in the lower half, no in the upper.
    window
        .fetch_add(0, 16, if me.is_multiple_of(2) { 1 } else { 1 << 32 })
        .unwrap();
    rank.all_reduce_sum(&mut added).unwrap();
    rank.all_reduce_sum(&mut swapped).unwrap();
    assert_eq!(window.load(me, 0).unwrap(), added[me as usize]);
    assert_eq!(window.local_load(8).unwrap(), swapped[me as usize]);
    if me == 0 {
        let (yes, no) = (u64::from(count.div_ceil(2)), u64::from(count / 2));
        assert_eq!(window.load(0, 16).unwrap(), no << 32 | yes);
    }
    rank.barrier().unwrap();
    window.store(me, 0, 5).unwrap();
    assert_eq!(window.local_load(0).unwrap(), 5);
    window.close().unwrap();
}

/// The bytes of message `number` from one rank to another: of every length, and nothing that another has.
fn message(sender: u32, receiver: u32, number: u64) -> Vec<u8> {
    let mut prng = Prng::new(number << 16 | u64::from(sender) << 8 | u64::from(receiver));
    let mut bytes = vec![0; prng.below(101) as usize];
    prng.fill(&mut bytes);
    bytes
}

pub fn messages_come_once_whole_and_in_order(rank: &Rank, plan: Plan) {
    let (me, count) = (rank.number(), rank.count());
    let spec = MailboxSpec::uniform("messages", 100, count, 1 + (plan.seed % 3) as u16);
    let mailbox = Mailbox::open(rank, &spec).unwrap();
    exchange_all(&mailbox, plan);
    rank.barrier().unwrap();
    let mut payload = Vec::new();
    assert_eq!(
        mailbox.poll(&mut payload).unwrap(),
        None,
        "more came to {me} than was sent"
    );
    mailbox.close().unwrap();
}

/// Every rank sends so many messages to every rank, itself included, and takes what comes.
pub fn exchange_all(mailbox: &Mailbox, plan: Plan) {
    let rank = mailbox.rank();
    let (me, count) = (rank.number(), rank.count());
    let mut prng = prng(rank, plan);
    let mut sent = vec![0; count as usize];
    let mut received = vec![0; count as usize];
    let mut payload = Vec::new();
    let (mut turn, start_ns) = (0, rank.now_ns());
    while sent.iter().chain(&received).any(|number| *number < plan.rounds) {
        let mut is_idle = true;
        let target = prng.below(u64::from(count)) as u32;
        let next = &mut sent[target as usize];
        if *next < plan.rounds && mailbox.try_send(target, &message(me, target, *next)).unwrap() {
            *next += 1;
            is_idle = false;
        }
        if prng.chance(3, 4)
            && let Some(from) = mailbox.poll(&mut payload).unwrap()
        {
            let number = &mut received[from.sender as usize];
            assert!(
                payload == message(from.sender, me, *number),
                "message {number} of {} at {me} is another",
                from.sender
            );
            *number += 1;
            is_idle = false;
        }
        turn = if is_idle { turn + 1 } else { 0 };
        if is_idle {
            rank.pause(turn);
        }
        let waited_ns = rank.now_ns() - start_ns;
        assert!(
            waited_ns < 60_000_000_000,
            "rank {me}: sent {sent:?}, received {received:?}"
        );
    }
}

/// Rank 0 sends to its neighbour, which does not look before it is told that its slots are full.
fn full_slots_push_back(rank: &Rank, plan: Plan) {
    let (me, count) = (rank.number(), rank.count());
    for slots in [1_u16, 2, 5] {
        let mut spec = MailboxSpec::uniform("narrow", 40, count, 0);
        if me == 1 {
            spec.accepts[0] = slots;
        }
        let mailbox = Mailbox::open(rank, &spec).unwrap();
        for _ in 0..plan.rounds.min(4) {
            if me == 0 {
                for number in 0..slots {
                    assert!(mailbox.try_send(1, &number.to_le_bytes()).unwrap());
                }
                assert!(!mailbox.try_send(1, b"no room").unwrap());
                assert!(matches!(
                    mailbox.try_send(0, b""),
                    Err(Error::NotAccepted { rank: 0 })
                ));
            }
            rank.barrier().unwrap();
            if me == 1 {
                let mut payload = Vec::new();
                for number in 0..slots {
                    assert_eq!(mailbox.receive(&mut payload).unwrap().sender, 0);
                    assert_eq!(payload, number.to_le_bytes());
                }
                assert_eq!(mailbox.poll(&mut payload).unwrap(), None);
            }
            rank.barrier().unwrap();
            // With half of the slots free at least, the sender can go on although it never reads.
            if me == 0 {
                mailbox.send(1, b"there is room again").unwrap();
            } else if me == 1 {
                let mut payload = Vec::new();
                mailbox.receive(&mut payload).unwrap();
                assert_eq!(payload, b"there is room again");
            }
            rank.barrier().unwrap();
            // Less than half of the slots may still wait for credit: the next round begins with empty ones.
            if slots > 1 {
                break;
            }
        }
        mailbox.close().unwrap();
    }
}

fn collectives_are_right(rank: &Rank, plan: Plan) {
    let (me, count) = (rank.number(), rank.count());
    let given = |rank: u32, at: usize| u64::from(rank + 1) * 1_000_000_007 + (at as u64) * 31;
    for length in [0, 1, 7, 512, 513, 3000] {
        let mine: Vec<u64> = (0..length).map(|at| given(me, at)).collect();
        let mut sums = mine.clone();
        rank.all_reduce_sum(&mut sums).unwrap();
        let mut scan = mine.clone();
        rank.exclusive_scan_sum(&mut scan).unwrap();
        for at in 0..length {
            assert_eq!(sums[at], (0..count).map(|rank| given(rank, at)).sum::<u64>());
            assert_eq!(scan[at], (0..me).map(|rank| given(rank, at)).sum::<u64>());
        }
        let root = (length as u32) % count;
        let mut bytes = if me == root {
            vec![me as u8; length * 5]
        } else {
            vec![9; 3]
        };
        rank.broadcast(root, &mut bytes).unwrap();
        assert_eq!(bytes, vec![root as u8; length * 5]);
    }
    for round in 0..plan.rounds.min(20) {
        let array = |from: u32, to: u32| vec![u64::from(from) << 32 | round; (from + to) as usize % 5];
        let mine: Vec<Vec<u64>> = (0..count).map(|to| array(me, to)).collect();
        let all = rank.all_to_all(&mine).unwrap();
        assert_eq!(all, (0..count).map(|from| array(from, me)).collect::<Vec<_>>());
        let all = rank.all_gather(&array(me, me)).unwrap();
        assert_eq!(all, (0..count).map(|from| array(from, from)).collect::<Vec<_>>());
        rank.barrier().unwrap();
    }
    assert!(matches!(rank.all_gather(&[0; 513]), Err(Error::Misuse { .. })));
    assert!(matches!(
        rank.broadcast(count, &mut Vec::new()),
        Err(Error::NoSuchRank { .. })
    ));
    assert!(matches!(rank.all_to_all(&[]), Err(Error::Misuse { .. })));
}

fn what_is_out_of_range_is_refused(rank: &Rank, _plan: Plan) {
    let count = rank.count();
    let window = rank
        .create_window(&WindowSpec {
            name: "small",
            bytes: 16 * u64::from(rank.number() + 1),
            is_uniform: false,
            config: 0,
        })
        .unwrap();
    assert_eq!(window.bytes_of(count - 1), 16 * u64::from(count));
    let beyond = [(16, 1), (15, 2), (0, 17), (u64::MAX, 1), (u64::MAX - 3, 8)];
    for (offset, length) in beyond {
        let bytes = vec![1; length];
        let refused = [
            window.put(0, offset, &bytes).unwrap_err(),
            window.put_buffer(0, offset, bytes.clone()).err().unwrap(),
            window.get(0, offset, bytes).err().unwrap(),
        ];
        for error in refused {
            let expected = Error::OutOfRange {
                window: "small".into(),
                rank: 0,
                offset,
                length: length as u64,
                window_bytes: 16,
            };
            assert_eq!(error, expected);
        }
    }
    assert!(matches!(
        window.fetch_add(0, 16, 1),
        Err(Error::OutOfRange { .. })
    ));
    assert!(matches!(window.load(0, 9), Err(Error::OutOfRange { .. })));
    assert!(matches!(
        window.store(0, 4, 1),
        Err(Error::Unaligned { offset: 4, .. })
    ));
    assert!(matches!(window.put(count, 0, b""), Err(Error::NoSuchRank { .. })));
    assert!(matches!(window.flush(u32::MAX), Err(Error::NoSuchRank { .. })));
    assert!(matches!(rank.presence(count), Err(Error::NoSuchRank { .. })));
    window.put(count - 1, 16 * u64::from(count) - 1, b"x").unwrap();
    window.put(0, 16, b"").unwrap();
    window.close().unwrap();
    let mailbox = Mailbox::open(rank, &MailboxSpec::uniform("m", 8, count, 1)).unwrap();
    assert!(matches!(
        mailbox.try_send(0, &[0; 9]),
        Err(Error::MessageTooLong {
            length: 9,
            length_max: 8
        })
    ));
    assert!(matches!(
        mailbox.try_send(count, b""),
        Err(Error::NoSuchRank { .. })
    ));
    mailbox.close().unwrap();
    let too_many = MailboxSpec::uniform("m", 8, count + 1, 1);
    assert!(matches!(
        Mailbox::open(rank, &too_many),
        Err(Error::Misuse { .. })
    ));
}

fn ranks_that_disagree_are_told(rank: &Rank, _plan: Plan) {
    let odd_one = rank.number() == 1;
    let spec = WindowSpec {
        name: "same",
        bytes: 64,
        is_uniform: true,
        config: 7,
    };
    let others = [
        WindowSpec { bytes: 72, ..spec },
        WindowSpec { config: 8, ..spec },
        WindowSpec {
            name: "other",
            ..spec
        },
    ];
    for other in others {
        let error = rank.create_window(if odd_one { &other } else { &spec });
        let Err(Error::Disagreement { rank: with, what, .. }) = error else {
            panic!("rank {} was not told", rank.number());
        };
        assert!(with == 1 || odd_one, "{with}: {what}");
    }
    let mut words = vec![1; if odd_one { 3 } else { 4 }];
    assert!(matches!(
        rank.all_reduce_sum(&mut words),
        Err(Error::Disagreement { .. })
    ));
    // Nothing is left of it: the next window is an ordinary one.
    let window = rank.create_window(&spec).unwrap();
    window.close().unwrap();
}

fn windows_come_and_go(rank: &Rank, plan: Plan) {
    let (me, count) = (rank.number(), rank.count());
    let keeps = window(rank, "keeps", 8);
    keeps.local_write(0, &7_u64.to_ne_bytes()).unwrap();
    for round in 0..plan.rounds.min(30) {
        let comes = window(rank, "comes", 8 * (1 + round % 3));
        assert_eq!(comes.local_load(0).unwrap(), 0, "a new window is empty");
        rank.barrier().unwrap();
        comes.fetch_add((me + 1) % count, 0, round).unwrap();
        rank.barrier().unwrap();
        assert_eq!(comes.local_load(0).unwrap(), round);
        comes.close().unwrap();
    }
    assert_eq!(keeps.local_load(0).unwrap(), 7);
    keeps.close().unwrap();
}
