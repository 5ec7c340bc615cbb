//! The suite on threads, on processes that share memory, and in the simulation; deaths on all three; planted
//! faults that the suite must find.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod suite;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use suite::{CASES, Plan};
use weft_fabric::sim::{Kill, Outcome, Planted, Simulation, Stall};
use weft_fabric::{Error, Mailbox, MailboxSpec, Rank, Threads, processes};

/// The case that a started process runs, and for how long.
const CASE_VARIABLE: &str = "WEFT_FABRIC_CASE";

#[test]
fn threads_pass_the_suite() {
    for ranks in [2, 3, 5] {
        for (name, case) in CASES {
            eprintln!("{name} on {ranks} threads");
            let plan = Plan {
                seed: u64::from(ranks),
                rounds: 300,
            };
            Threads::run(ranks, |rank| case(&rank, plan)).unwrap();
        }
    }
}

/// `WEFT_FABRIC_SEEDS` for more of them.
#[test]
fn the_simulation_passes_the_suite() {
    let seeds = std::env::var("WEFT_FABRIC_SEEDS").ok();
    let seeds = seeds.and_then(|text| text.parse().ok()).unwrap_or(60);
    for seed in 0..seeds {
        let ranks = 2 + (seed % 3) as u32;
        for (name, case) in CASES {
            let plan = Plan { seed, rounds: 20 };
            let report = Simulation::new(seed, ranks).run(|rank| case(&rank, plan));
            assert!(!report.is_stopped(), "{name} with seed {seed}");
        }
    }
}

/// More than eight senders: messages are found by counts.
#[test]
fn many_senders_are_found_by_their_counts() {
    Threads::run(11, |rank| {
        suite::messages_come_once_whole_and_in_order(&rank, Plan { seed: 1, rounds: 40 });
    })
    .unwrap();
    for seed in 0..10 {
        Simulation::new(seed, 10).run(|rank| {
            suite::messages_come_once_whole_and_in_order(&rank, Plan { seed, rounds: 5 });
        });
    }
}

#[test]
fn the_same_seed_takes_the_same_steps() {
    let run = |seed| {
        let report = Simulation::new(seed, 3).run(|rank| {
            suite::messages_come_once_whole_and_in_order(&rank, Plan { seed: 1, rounds: 10 });
            rank.now_ns()
        });
        (report.trace, report.steps, report.now_ns, report.outcomes)
    };
    for seed in 0..10 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(0).0, run(1).0);
}

#[test]
fn a_form_that_delivers_the_flag_before_the_bytes_fails_the_suite() {
    let failures = (0..40).filter(|seed| {
        let run = || {
            Simulation::new(*seed, 2)
                .planted(Planted::FlushReturnsEarly)
                .run(|rank| suite::flag_after_flush(&rank, Plan { seed: 0, rounds: 20 }))
        };
        catch_unwind(AssertUnwindSafe(run)).is_err()
    });
    let failures = failures.count();
    assert!(failures >= 10, "only {failures} of 40 seeds found it");
}

/// A rank starts as processes do in [`processes_pass_the_suite`]; without the variables this is no test.
#[test]
#[ignore = "started by other tests"]
fn as_a_process() {
    let Some(rank) = processes::from_environment().unwrap() else {
        return;
    };
    let wanted = std::env::var(CASE_VARIABLE).unwrap();
    if wanted == "dies" {
        return survive_a_death(&rank, || std::process::abort());
    }
    let (_, case) = CASES.iter().find(|(name, _)| *name == wanted).unwrap();
    case(&rank, Plan { seed: 5, rounds: 200 });
}

fn start(session: &processes::Session, rank: u32, case: &str) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["as_a_process", "--exact", "--ignored", "--nocapture"])
        .env(CASE_VARIABLE, case)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    session.spawn(rank, &mut command).unwrap()
}

#[test]
fn processes_pass_the_suite() {
    for (ranks, cases) in [(2, &CASES[..]), (4, &CASES[..4])] {
        for (name, _) in cases {
            eprintln!("{name} on {ranks} processes");
            let session = processes::Session::create(Path::new(processes::SHARED_MEMORY), ranks).unwrap();
            let children: Vec<_> = (0..ranks).map(|rank| start(&session, rank, name)).collect();
            for (rank, mut child) in children.into_iter().enumerate() {
                assert!(child.wait().unwrap().success(), "{name}: rank {rank}");
            }
        }
    }
}

/// The last rank dies once, by `die`, after all have met, and returns; the others notice and go on with it.
fn survive_a_death(rank: &Rank, die: impl FnOnce()) {
    let victim = rank.count() - 1;
    let mailbox = Mailbox::open(rank, &MailboxSpec::uniform("after", 64, rank.count(), 2)).unwrap();
    rank.set_timeout(Duration::from_secs(8));
    if rank.number() == victim && rank.incarnation() == 0 {
        mailbox.send(0, b"before").unwrap();
        rank.barrier().unwrap();
        die();
        return;
    }
    let mut payload = Vec::new();
    if rank.number() != victim {
        rank.barrier().unwrap();
        let start_ns = rank.now_ns();
        let error = rank.barrier().unwrap_err();
        assert!(
            matches!(error, Error::RankDead { rank, .. } if rank == victim),
            "{error}"
        );
        assert!(rank.now_ns() - start_ns < 8_000_000_000);
        let returned = || {
            let presence = rank.probe(victim)?;
            match mailbox.try_send(victim, b"lost") {
                Err(Error::RankDead { rank, .. }) if rank == victim => {}
                Ok(_) if presence.incarnation == 1 || rank.presence(victim)?.incarnation == 1 => {}
                other => panic!("{other:?}"),
            }
            Ok((rank.presence(victim)?.incarnation == 1).then_some(()))
        };
        rank.wait_for("the return", None, returned).unwrap();
        if rank.number() == 0 {
            let from = mailbox.receive(&mut payload);
            // Sent before the death, and taken after it or never.
            if let Ok(from) = from
                && from.incarnation == 0
            {
                assert_eq!(payload, b"before");
            }
        }
    } else {
        rank.wait_for("the others", None, || {
            mailbox.send(0, b"I am back")?;
            Ok(Some(()))
        })
        .unwrap();
    }
    rank.barrier().unwrap();
    let mut sum = [u64::from(rank.number()) + 1];
    rank.all_reduce_sum(&mut sum).unwrap();
    let ranks = u64::from(rank.count());
    assert_eq!(sum, [ranks * (ranks + 1) / 2]);
    // A window that is new to all is made by all, the one that has returned too.
    let window = suite::window(rank, "after the return", 8);
    window
        .fetch_add((rank.number() + 1) % rank.count(), 0, 1)
        .unwrap();
    rank.barrier().unwrap();
    assert_eq!(window.local_load(0).unwrap(), 1);
    window.close().unwrap();
}

#[test]
fn a_process_that_dies_is_found_and_returns() {
    for ranks in [2, 3] {
        let session = processes::Session::create(Path::new(processes::SHARED_MEMORY), ranks).unwrap();
        let mut children: Vec<_> = (0..ranks).map(|rank| start(&session, rank, "dies")).collect();
        let mut victim = children.pop().unwrap();
        assert!(!victim.wait().unwrap().success());
        std::thread::sleep(Duration::from_millis(300));
        children.push(start(&session, ranks - 1, "dies"));
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
    }
}

#[test]
fn a_thread_that_dies_is_found_and_returns() {
    for ranks in [2_u32, 3] {
        let fabric = Threads::new(ranks);
        let handles: Vec<Rank> = (0..ranks).map(|rank| fabric.join(rank).unwrap()).collect();
        std::thread::scope(|scope| {
            let mut threads: Vec<_> = handles
                .into_iter()
                .map(|rank| scope.spawn(move || survive_a_death(&rank, || ())))
                .collect();
            threads.pop().unwrap().join().unwrap();
            std::thread::sleep(Duration::from_millis(20));
            let back = fabric.rejoin(ranks - 1).unwrap();
            assert!(matches!(fabric.rejoin(ranks - 1), Err(Error::Misuse { .. })));
            scope.spawn(move || survive_a_death(&back, || ()));
        });
    }
}

/// A rank may have several threads: two send and add at the same time, one of the other rank receives.
#[test]
fn threads_of_one_rank_share_its_ways() {
    const MESSAGES: u64 = 2_000;
    Threads::run(2, |rank| {
        let other = 1 - rank.number();
        let mailbox = Mailbox::open(&rank, &MailboxSpec::uniform("shared", 48, 2, 4)).unwrap();
        let window = suite::window(&rank, "shared too", 8);
        std::thread::scope(|scope| {
            for thread in 0..2_u64 {
                let (mailbox, window) = (&mailbox, &window);
                scope.spawn(move || {
                    for number in 0..MESSAGES {
                        let words = [thread, number].map(u64::to_le_bytes);
                        mailbox.send(other, words.as_flattened()).unwrap();
                        window.fetch_add(other, 0, 1).unwrap();
                    }
                });
            }
            let (mut next, mut payload) = ([0; 2], Vec::new());
            while next.iter().sum::<u64>() < 2 * MESSAGES {
                mailbox.receive(&mut payload).unwrap();
                let words = payload.as_chunks::<8>().0;
                let [thread, number] = [words[0], words[1]].map(u64::from_le_bytes);
                assert_eq!(number, next[thread as usize]);
                next[thread as usize] += 1;
            }
        });
        rank.barrier().unwrap();
        assert_eq!(window.local_load(0).unwrap(), 2 * MESSAGES);
    })
    .unwrap();
}

#[test]
fn a_rank_that_never_comes_costs_a_deadline() {
    let fabric = Threads::new(2);
    let (rank, _other) = (fabric.join(0).unwrap(), fabric.join(1).unwrap());
    rank.set_timeout(Duration::from_millis(100));
    let start = Instant::now();
    let error = rank.barrier().unwrap_err();
    assert!(matches!(error, Error::Deadline { rank: Some(1), .. }), "{error}");
    assert!((90..5000).contains(&start.elapsed().as_millis()));
    assert!(
        matches!(rank.barrier(), Err(Error::Misuse { .. })),
        "ranks are in different rounds"
    );
}

/// A kill at each step of the victim: the others always end in time, with the death or without having met it.
#[test]
fn a_death_at_any_step_is_found_in_the_simulation() {
    let code = |rank: Rank| -> Result<u64, Error> {
        rank.set_timeout(Duration::from_millis(100));
        let mailbox = Mailbox::open(&rank, &MailboxSpec::uniform("m", 48, rank.count(), 1))?;
        let mut payload = Vec::new();
        for number in 0..3_u64 {
            mailbox.send((rank.number() + 1) % rank.count(), &number.to_le_bytes())?;
            mailbox.receive(&mut payload)?;
            rank.barrier()?;
        }
        Ok(rank.now_ns())
    };
    let whole = Simulation::new(3, 3).run(code);
    assert_eq!(whole.ended().filter(|result| result.is_ok()).count(), 3);
    let (mut deaths, mut runs) = (0, 0);
    for at_step in 1..=whole.steps[1] {
        let kill = Kill {
            rank: 1,
            at_step,
            returns_after: None,
        };
        let report = Simulation::new(3, 3).kill(kill).run(code);
        assert!(!report.is_stopped());
        assert!(report.now_ns < 2_000_000_000, "{} ns", report.now_ns);
        assert_eq!(report.outcomes[1], [Outcome::Killed], "at {at_step}");
        for result in report.ended() {
            match result {
                Err(Error::RankDead { rank: 1, .. }) => deaths += 1,
                // A rank that was told first has gone; the next one misses that one.
                Ok(_) | Err(Error::RankDead { .. } | Error::Deadline { .. }) => {}
                Err(other) => panic!("at {at_step}: {other}"),
            }
        }
        runs += 1;
    }
    assert!(deaths >= runs, "{deaths} of {runs}");
}

/// A rank dies at each step after the start and returns: the service goes on, and no answer is a wrong one.
#[test]
fn a_server_returns_at_any_step_in_the_simulation() {
    const SERVER: u32 = 0;
    let code = |rank: Rank| -> u64 {
        rank.set_timeout(Duration::from_millis(20));
        let spec = MailboxSpec::uniform("requests", 48, rank.count(), 1);
        let mailbox = match Mailbox::open(&rank, &spec) {
            Ok(mailbox) => mailbox,
            // All whom it could ask have gone.
            Err(Error::RankDead { .. }) if rank.incarnation() > 0 => return 0,
            Err(error) => panic!("{error}"),
        };
        rank.step();
        let mut payload = Vec::new();
        let mut answered = 0;
        let end_ns = rank.now_ns() + 3_000_000_000;
        if rank.number() == SERVER {
            // Answers until nobody has asked for a long time.
            while let Ok(from) = mailbox.receive_within(Duration::from_millis(400), None, &mut payload) {
                let asked = u64::from_le_bytes(*payload.first_chunk().unwrap());
                let _ = mailbox.send(from.sender, &(asked * 2).to_le_bytes());
            }
            return 0;
        }
        while answered < 6 {
            assert!(rank.now_ns() < end_ns, "rank {} has {answered}", rank.number());
            let sent = mailbox.send(SERVER, &u64::to_le_bytes(answered));
            if sent.is_err() {
                rank.pause(0);
                continue;
            }
            while mailbox
                .receive_within(Duration::from_millis(5), None, &mut payload)
                .is_ok()
            {
                let answer = u64::from_le_bytes(*payload.first_chunk().unwrap());
                assert!(answer <= answered * 2, "an answer to what was never asked");
                if answer == answered * 2 {
                    answered += 1;
                    break;
                }
            }
        }
        answered
    };
    let mut killed = 0;
    for seed in 0..15 {
        let whole = Simulation::new(seed, 3).run(code);
        // Once all have their mailboxes; before that the start as a whole has failed.
        let opened = whole.first_marks[0].unwrap() + 1;
        for at_step in (opened..whole.steps[0].min(opened + 150)).step_by(7) {
            let kill = Kill {
                rank: SERVER,
                at_step,
                returns_after: Some(Duration::from_millis(1)),
            };
            let report = Simulation::new(seed, 3).kill(kill).run(code);
            assert!(!report.is_stopped(), "seed {seed}, step {at_step}");
            assert_eq!(report.ended().filter(|answered| **answered == 6).count(), 2);
            assert_eq!(report.outcomes[0].first(), Some(&Outcome::Killed));
            killed += 1;
        }
    }
    assert!(killed > 100, "{killed}");
}

/// A rank that hangs is not dead: who waits for it gets a deadline that names it, and later it goes on.
#[test]
fn a_rank_that_hangs_costs_a_deadline_in_the_simulation() {
    let code = |rank: Rank| -> (Result<(), Error>, u64) {
        rank.set_timeout(Duration::from_millis(50));
        rank.barrier().unwrap();
        rank.step();
        let met = rank.barrier();
        (met, rank.now_ns())
    };
    for seed in 0..20 {
        let whole = Simulation::new(seed, 2).run(code);
        let stall = Stall {
            rank: 1,
            at_step: whole.first_marks[1].unwrap(),
            lasts: Duration::from_secs(1),
        };
        let report = Simulation::new(seed, 2).stall(stall).run(code);
        let Outcome::Ended((met, at_ns)) = &report.outcomes[0][0] else {
            panic!("rank 0 did not end");
        };
        assert!(
            matches!(met, Err(Error::Deadline { rank: Some(1), .. })),
            "{met:?}"
        );
        assert!((50_000_000..200_000_000).contains(at_ns), "{at_ns}");
        let Outcome::Ended((_, at_ns)) = &report.outcomes[1][0] else {
            panic!("rank 1 did not go on");
        };
        assert!(*at_ns >= 1_000_000_000);
    }
}
