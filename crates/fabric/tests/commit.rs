//! A small two-phase commit on the simulated fabric, with the coordinator or a participant killed at every
//! step: all that are told an outcome are told the same one. It shows how protocols are tested here; the
//! product's commit is not in this crate.
//!
//! Presumed abort: participants that have prepared ask until they are told; a coordinator without a decision
//! on its disk says abort. A planted fault, a decision that is told before it is on disk, must be caught.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::sync::Mutex;
use std::time::Duration;

use weft_fabric::sim::{Kill, Simulation};
use weft_fabric::{Error, Mailbox, MailboxSpec, Rank};

const COORDINATOR: u32 = 0;
const RANKS: u32 = 3;
const PREPARE: u8 = 1;
const YES: u8 = 2;
const COMMIT: u8 = 3;
const ABORT: u8 = 4;
const ASK: u8 = 5;
const END_NS: u64 = 400_000_000;
const PATIENCE: Duration = Duration::from_millis(5);

/// What survives a death.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Disk {
    prepared: bool,
    outcome: Option<u8>,
}

struct Member<'a> {
    rank: Rank,
    mailbox: Mailbox,
    disk: &'a Mutex<Disk>,
    tells_first: bool,
}

impl Member<'_> {
    fn send(&self, to: u32, word: u8) {
        // A message that finds no room or a dead rank is lost, as on any network: the protocol asks again.
        let _ = self.mailbox.try_send(to, &[word]);
    }

    /// A write that is durable; a death may come before it or after it.
    fn write(&self, change: impl FnOnce(&mut Disk)) {
        self.rank.step();
        change(&mut self.disk.lock().unwrap());
        self.rank.step();
    }

    fn outcome(&self) -> Option<u8> {
        self.disk.lock().unwrap().outcome
    }

    fn tell_all(&self, word: u8) {
        (1..RANKS).for_each(|to| self.send(to, word));
    }

    fn coordinate(&self) {
        let mut payload = Vec::new();
        let mut votes = [false; RANKS as usize];
        if self.rank.incarnation() == 0 {
            self.tell_all(PREPARE);
        } else if self.outcome().is_none() {
            self.write(|disk| disk.outcome = Some(ABORT));
        }
        let asked_ns = self.rank.now_ns();
        while self.rank.now_ns() < END_NS {
            let received = self.mailbox.receive_within(PATIENCE, None, &mut payload);
            // Not by the silence since the last message: participants that ask are never silent.
            let is_late = self.rank.now_ns() - asked_ns > PATIENCE.as_nanos() as u64;
            if self.outcome().is_none() && is_late {
                self.write(|disk| disk.outcome = Some(ABORT));
            }
            let Ok(from) = received else { continue };
            if payload == [YES] && self.outcome().is_none() {
                votes[from.sender as usize] = true;
                if votes[1..].iter().all(|vote| *vote) {
                    if self.tells_first {
                        self.tell_all(COMMIT);
                    }
                    self.write(|disk| disk.outcome = Some(COMMIT));
                    self.tell_all(COMMIT);
                }
            } else if let Some(outcome) = self.outcome() {
                self.send(from.sender, outcome);
            }
        }
    }

    fn participate(&self) {
        let mut payload = Vec::new();
        while self.rank.now_ns() < END_NS {
            let received = self.mailbox.receive_within(PATIENCE, None, &mut payload);
            let disk = *self.disk.lock().unwrap();
            match (received, payload.as_slice()) {
                (Ok(_), [PREPARE]) if disk.outcome.is_none() => {
                    self.write(|disk| disk.prepared = true);
                    self.send(COORDINATOR, YES);
                }
                (Ok(_), [word @ (COMMIT | ABORT)]) if disk.outcome.is_none() => {
                    let outcome = *word;
                    self.write(|disk| disk.outcome = Some(outcome));
                }
                (Err(_), _) if disk.prepared && disk.outcome.is_none() => self.send(COORDINATOR, ASK),
                _ => {}
            }
        }
    }
}

/// One run; what is on the disks at its end, and how far each rank's steps went.
fn run(seed: u64, kill: Option<Kill>, tells_first: bool) -> ([Disk; 3], Vec<u64>, Vec<Option<u64>>) {
    let disks: [Mutex<Disk>; 3] = Default::default();
    let code = |rank: Rank| -> Result<(), Error> {
        rank.set_timeout(Duration::from_millis(20));
        let number = rank.number();
        let mailbox = Mailbox::open(&rank, &MailboxSpec::uniform("commit", 8, RANKS, 2))?;
        rank.step();
        let disk = &disks[number as usize];
        let member = Member {
            rank,
            mailbox,
            disk,
            tells_first,
        };
        if number == COORDINATOR {
            member.coordinate();
        } else {
            member.participate();
        }
        Ok(())
    };
    let simulation = Simulation::new(seed, RANKS);
    let simulation = match kill {
        Some(kill) => simulation.kill(kill),
        None => simulation,
    };
    let report = simulation.run(code);
    assert!(!report.is_stopped());
    (
        disks.map(|disk| disk.into_inner().unwrap()),
        report.steps,
        report.first_marks,
    )
}

/// Runs with a death at every step of a rank; how many ended with two outcomes, and how many there were.
fn splits(seed: u64, victim: u32, tells_first: bool) -> (u64, u64) {
    let (disks, steps, marks) = run(seed, None, tells_first);
    assert!(disks.iter().all(|disk| disk.outcome == Some(COMMIT)), "{disks:?}");
    let first = marks[victim as usize].unwrap();
    let last = steps[victim as usize].min(first + 60);
    let (mut split, mut runs) = (0, 0);
    for at_step in first..last {
        let kill = Kill {
            rank: victim,
            at_step,
            returns_after: Some(Duration::from_millis(20)),
        };
        let (disks, ..) = run(seed, Some(kill), tells_first);
        let said = |word| disks.iter().any(|disk| disk.outcome == Some(word));
        split += u64::from(said(COMMIT) && said(ABORT));
        let is_open = disks[1..]
            .iter()
            .any(|disk| disk.prepared && disk.outcome.is_none());
        assert!(!is_open, "seed {seed}, rank {victim} at {at_step}: {disks:?}");
        runs += 1;
    }
    (split, runs)
}

/// `WEFT_FABRIC_SEEDS` for more of them.
fn seeds() -> u64 {
    let seeds = std::env::var("WEFT_FABRIC_SEEDS").ok();
    seeds.and_then(|text| text.parse().ok()).unwrap_or(8)
}

#[test]
fn no_death_splits_an_outcome() {
    let mut all = 0;
    for seed in 0..seeds() {
        for victim in 0..RANKS {
            let (split, runs) = splits(seed, victim, false);
            assert_eq!(split, 0, "seed {seed}, rank {victim}");
            all += runs;
        }
    }
    assert!(all > seeds() * 60, "{all}");
    eprintln!("{all} runs with a death");
}

#[test]
fn a_decision_told_before_it_is_on_disk_is_caught() {
    let split: u64 = (0..8).map(|seed| splits(seed, COORDINATOR, true).0).sum();
    assert!(split > 0);
}
