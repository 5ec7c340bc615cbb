//! Mailboxes against what they must not believe: torn puts, and garbage from other ranks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use weft_base::Prng;

use super::*;
use crate::shared::threads::Threads;
use crate::sim::Simulation;

/// Rank 0 sends so many messages of changing lengths to rank 1, which compares them.
fn stream(rank: &Rank, accepts_torn: bool) {
    let mut mailbox = Mailbox::open(rank, &MailboxSpec::uniform("stream", 64, 2, 2)).unwrap();
    mailbox.accepts_torn = accepts_torn;
    let message = |number: u64| vec![number as u8 | 1; 1 + (number as usize * 7) % 64];
    let mut payload = Vec::new();
    for number in 0..30 {
        if rank.number() == 0 {
            mailbox.send(1, &message(number)).unwrap();
        } else {
            mailbox.receive(&mut payload).unwrap();
            assert_eq!(payload, message(number), "message {number}");
        }
    }
    rank.barrier().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "long; the threads' suite is interpreted")]
fn without_the_crc_torn_messages_are_delivered_and_the_test_sees_it() {
    let mut found = 0;
    for seed in 0..30 {
        Simulation::new(seed, 2).run(|rank| stream(&rank, false));
        let planted = || Simulation::new(seed, 2).run(|rank| stream(&rank, true));
        found += usize::from(catch_unwind(AssertUnwindSafe(planted)).is_err());
    }
    assert!(found >= 8, "only {found} of 30 seeds saw the planted fault");
}

#[test]
fn threads_stream() {
    Threads::run(2, |rank| stream(&rank, false)).unwrap();
}

#[test]
fn garbage_in_a_mailbox_is_never_a_message_and_never_a_panic() {
    let rounds = if cfg!(miri) { 30 } else { 3_000 };
    Threads::run(2, |rank| {
        let mailbox = Mailbox::open(&rank, &MailboxSpec::uniform("hostile", 40, 2, 2)).unwrap();
        rank.set_timeout(Duration::from_millis(20));
        let mut payload = Vec::new();
        if rank.number() == 0 {
            let mut prng = Prng::new(11);
            let bytes = mailbox.window.bytes_of(1);
            for round in 0..rounds {
                let at = prng.below(bytes / 8) * 8;
                // A flag that is awaited, with any head behind it; lengths far outside among them.
                let mut words = [flag(0, round % 3 + 1), prng.next_u64()];
                if prng.chance(1, 2) {
                    words = [words[0], words[1] & 0xffff_ffff_0000_003f];
                }
                let garbage: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                let length = garbage.len().min((bytes - at) as usize);
                mailbox.window.put(1, at, &garbage[..length]).unwrap();
            }
            mailbox.window.flush(1).unwrap();
        } else {
            let mut damaged = 0;
            for turn in 0..rounds {
                match mailbox.poll(&mut payload) {
                    Ok(None) => rank.pause(turn as u32),
                    Ok(Some(from)) => panic!("garbage of {} is a message", from.sender),
                    Err(Error::Damaged { rank: 0 | 1, .. }) => damaged += 1,
                    Err(error) => panic!("{error}"),
                }
                // Its own way may be described wrongly now: an error, or a message that goes astray.
                let _ = mailbox.try_send(0, b"answer");
            }
            assert!(damaged <= rounds);
        }
        rank.set_timeout(Duration::from_secs(10));
        rank.barrier().unwrap();
    })
    .unwrap();
}

/// A damaged message is lost, once, and nothing else is: neither its sender's later ones, nor others'.
#[test]
fn a_damaged_message_is_lost_alone() {
    for slots in [1, 2, 5] {
        Threads::run(3, |rank| {
            let mailbox = Mailbox::open(&rank, &MailboxSpec::uniform("damaged", 40, 3, slots)).unwrap();
            if rank.number() > 0 {
                for number in 0..20_u8 {
                    if rank.number() == 1 && number % 7 == 3 {
                        mailbox.damage_next(0);
                    }
                    mailbox.send(0, &[number]).unwrap();
                }
                rank.barrier().unwrap();
                return;
            }
            rank.set_timeout(Duration::from_millis(40));
            let (mut payload, mut lost) = (Vec::new(), 0);
            let mut received = [Vec::new(), Vec::new(), Vec::new()];
            while received[1].len() + received[2].len() + lost < 40 {
                match mailbox.poll(&mut payload) {
                    Ok(None) => rank.pause(40),
                    Ok(Some(from)) => received[from.sender as usize].push(payload[0]),
                    Err(Error::Damaged { rank: 1, .. }) => lost += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            let whole: Vec<u8> = (0..20).collect();
            let damaged: Vec<u8> = (0..20).filter(|number| number % 7 != 3).collect();
            assert_eq!((lost, &received[1], &received[2]), (3, &damaged, &whole));
            rank.set_timeout(Duration::from_secs(10));
            rank.barrier().unwrap();
        })
        .unwrap();
    }
}

#[test]
fn a_description_outside_the_part_is_refused() {
    Threads::run(2, |rank| {
        let mailbox = Mailbox::open(&rank, &MailboxSpec::uniform("described", 40, 2, 1)).unwrap();
        if rank.number() == 1 {
            let directory = mailbox.window.bytes_of(1) - 32;
            let start = (directory - 8).to_ne_bytes();
            mailbox.window.local_write(directory + 8, &start).unwrap();
        }
        rank.barrier().unwrap();
        if rank.number() == 0 {
            assert!(matches!(
                mailbox.try_send(1, b"x"),
                Err(Error::Damaged { rank: 1, .. })
            ));
        }
        rank.barrier().unwrap();
    })
    .unwrap();
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_a_slot_panic(word: u64, flag: u64, payload: Vec<u8>) {
        let head = Head::decode(word);
        let _ = head.fits(flag, &payload);
    }
}
