//! A server beset by hostile clients: malformed, deep, long, oversized and slow inputs over many connections,
//! with a canary beside that must not notice.
//!
//! ```text
//! seed, number -> input (malformed, deep, long, oversized, slow: steps of a client)
//!                   | some at once of each kind
//!                   v
//!                client (does the steps; replies: well-formed? what SQLSTATE?) ---> tally
//! canary (insert, select, update, delete; each answer within its limit)        ---> tally
//! watch (memory, threads, descriptors, log of the server's process)            ---> tally
//! ```
//!
//! A failure names the input that reproduces it alone, or those that were under way when the canary or the
//! watch met something. A leak is found when it outlasts its clients: descriptors and threads exactly, memory
//! beyond what caches may keep.

mod canary;
mod client;
mod deep;
mod input;
mod long;
mod malformed;
mod messages;
mod oversized;
mod replies;
mod slow;
mod startups;
mod tally;
mod watch;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use self::input::{Input, Kind};
use self::tally::Tally;
use self::watch::{Log, Usage};
use crate::server::Server;
use crate::wire::Connection;

/// What the hostile clients read and change, beside the canary's table.
const SETUP: &[&str] = &[
    canary::SETUP,
    "CREATE TABLE prey (id int PRIMARY KEY, a int, b text)",
    "INSERT INTO prey SELECT g, g % 100, 'text of ' || g FROM generate_series(1, 1000) g",
    "CREATE TABLE caught (id int, a int, t text)",
    "CREATE TABLE locked (id int PRIMARY KEY, a int)",
    "CREATE PROCEDURE nothing(n int) LANGUAGE sql AS 'UPDATE prey SET a = a WHERE id = n'",
];
/// How often the process is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// What clients leave behind must be gone after this: a plan that nobody waits for is made to its end, behind
/// all other work.
const SETTLE_MAX: Duration = Duration::from_secs(120);
/// Threads that may stay beyond those there were: whoever served last rests for some seconds.
const THREADS_LEFT: usize = 8;
/// Descriptors that may stay: segments of the log and tables come and go.
const DESCRIPTORS_LEFT: usize = 16;

/// A campaign.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// How many inputs.
    pub inputs: usize,
    /// What they are made of.
    pub seed: u64,
    /// The input of this number alone.
    pub only: Option<usize>,
    /// The server's binary.
    pub weft: PathBuf,
    /// What an answer to the canary may take.
    pub canary_answer_max: Duration,
    /// Resident memory that the server may take at any time: what docs/limits.md lets queries, sessions,
    /// plans and messages have together.
    pub megabytes_max: usize,
    /// Resident memory that may stay beyond what there was before.
    pub megabytes_left_max: usize,
}

/// What all threads of a campaign share.
struct Shared<'a> {
    campaign: &'a Campaign,
    address: SocketAddr,
    process_id: u32,
    tally: Mutex<Tally>,
    under_way: Mutex<BTreeSet<usize>>,
    /// No further inputs.
    stop: AtomicBool,
}

impl Campaign {
    /// Runs it, and prints what is wrong and what was counted; the numbers of passed and failed.
    ///
    /// # Errors
    /// When the server does not start.
    pub fn run(&self) -> Result<(usize, usize), String> {
        let mut server = self.started()?;
        let mut setup =
            Connection::open(server.address, Duration::from_secs(60)).map_err(|e| e.to_string())?;
        for statement in SETUP {
            setup.execute(statement)?;
        }
        drop(setup);
        std::thread::sleep(LOOK);
        let before = Usage::of(server.process_id()).ok_or("the server's process is gone")?;
        let shared = Shared {
            campaign: self,
            address: server.address,
            process_id: server.process_id(),
            tally: Mutex::default(),
            under_way: Mutex::default(),
            stop: AtomicBool::new(false),
        };
        let mut log = Log::new(server.log_path());
        let (canary, most) = shared.beset(&mut log);
        let mut tally = shared.tally.into_inner().unwrap_or_default();
        for (_, why) in &canary.failures {
            tally.fail(format!("canary: {why}"));
        }
        tally.check(
            "the server lives",
            if server.lives() {
                Ok(())
            } else {
                Err(server.last_words())
            },
        );
        if server.lives() {
            let settled = self.settled(server.process_id(), before);
            tally.check("what clients took comes back", settled);
            tally.check("the canary's rows", canary.check(server.address));
            server = server.restarted()?;
            tally.check("the canary's rows after a restart", canary.check(server.address));
        }
        let unread = log.complaints();
        tally.check(
            "the log",
            if unread.is_empty() {
                Ok(())
            } else {
                Err(unread.join("\n"))
            },
        );
        print!("{}", tally.text());
        println!(
            "hostile: canary: {} rounds, answers median {:.1?}, 99 of 100 {:.1?}, slowest {:.1?} (limit {:.0?})",
            canary.rounds,
            canary.percentile(50),
            canary.percentile(99),
            canary.percentile(100),
            self.canary_answer_max
        );
        println!(
            "hostile: server: {} MiB before, {} at most (bound {}); {} threads and {} descriptors at most",
            before.megabytes, most.megabytes, self.megabytes_max, most.threads, most.descriptors
        );
        Ok((tally.passed, tally.failed()))
    }

    fn started(&self) -> Result<Server, String> {
        let locks = slow::LOCKS_SECONDS_MAX.to_string();
        let write = slow::WRITE_SECONDS_MAX.to_string();
        let startup = slow::STARTUP_SECONDS_MAX.to_string();
        let session = oversized::SESSION_MB_MAX.to_string();
        let words = [
            ["--idle-with-locks-timeout", &locks],
            ["--write-timeout", &write],
            ["--startup-timeout", &startup],
            ["--session-mb-max", &session],
        ];
        Server::weft_with(&self.weft, words.as_flattened())
    }

    /// The numbers of the inputs of some kinds.
    fn numbers(&self, kinds: &[Kind]) -> Vec<usize> {
        let of_kinds = |index: &usize| kinds.contains(&Input::kind_of(self.seed, *index));
        match self.only {
            Some(only) => Some(only).into_iter().filter(of_kinds).collect(),
            None => (0..self.inputs).filter(of_kinds).collect(),
        }
    }

    /// Waits until the process has no more than before, as far as it must give back.
    fn settled(&self, process_id: u32, before: Usage) -> Result<(), String> {
        let until = Instant::now() + SETTLE_MAX;
        loop {
            let now = Usage::of(process_id).ok_or("the server's process is gone")?;
            let is_back = now.megabytes <= before.megabytes + self.megabytes_left_max
                && now.threads <= before.threads + THREADS_LEFT
                && now.descriptors <= before.descriptors + DESCRIPTORS_LEFT;
            if is_back {
                println!("hostile: server: {now:?} when all clients have gone");
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!(
                    "{now:?} is left, {SETTLE_MAX:?} after the last client; before: {before:?}"
                ));
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Shared<'_> {
    /// All inputs, with the canary and the watch beside; what the canary saw and what the process took.
    fn beset(&self, log: &mut Log) -> (canary::Report, Usage) {
        let quick = self.campaign.numbers(&[Kind::Malformed, Kind::Deep, Kind::Long]);
        let heavy = self.campaign.numbers(&[Kind::Oversized]);
        let slow = self.campaign.numbers(&[Kind::Slow]);
        let pools = [(quick, 4), (heavy, 1), (slow, 40)];
        let taken: [AtomicUsize; 3] = Default::default();
        let canary_stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let canary =
                scope.spawn(|| canary::run(self.address, self.campaign.canary_answer_max, &canary_stop));
            let mut clients = Vec::new();
            for ((numbers, threads), taken) in pools.iter().zip(&taken) {
                for _ in 0..*threads {
                    clients.push(scope.spawn(move || self.work(numbers, taken)));
                }
            }
            let mut most = Usage::default();
            while !clients.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                std::thread::sleep(LOOK);
                most = most.most(self.watch(log));
                if canary.is_finished() {
                    self.stop.store(true, Ordering::Relaxed);
                }
            }
            canary_stop.store(true, Ordering::Relaxed);
            (canary.join().unwrap_or_default(), most)
        })
    }

    fn work(&self, numbers: &[usize], taken: &AtomicUsize) {
        while !self.stop.load(Ordering::Relaxed) {
            let Some(index) = numbers.get(taken.fetch_add(1, Ordering::Relaxed)) else {
                return;
            };
            let input = Input::new(self.campaign.seed, *index);
            if let Ok(mut under_way) = self.under_way.lock() {
                under_way.insert(*index);
            }
            let outcome = client::run(&input, self.address);
            if let Ok(mut under_way) = self.under_way.lock() {
                under_way.remove(index);
            }
            if let Ok(mut tally) = self.tally.lock() {
                tally.note(self.campaign.seed, *index, &input, &outcome);
            }
        }
    }

    /// Looks at the process and its log. Without the process, or with more memory than it may have, there are
    /// no further inputs.
    fn watch(&self, log: &mut Log) -> Usage {
        let usage = Usage::of(self.process_id);
        let mut wrong = log.complaints();
        let bound = match usage {
            None => Some("the server's process is gone".to_owned()),
            Some(usage) if usage.megabytes > self.campaign.megabytes_max => {
                Some(format!("the server takes {} MiB", usage.megabytes))
            }
            Some(_) => None,
        };
        if let Some(bound) = bound
            && !self.stop.swap(true, Ordering::Relaxed)
        {
            wrong.push(bound);
        }
        for why in wrong {
            let under_way: Vec<usize> = self
                .under_way
                .lock()
                .map(|all| all.iter().copied().collect())
                .unwrap_or_default();
            if let Ok(mut tally) = self.tally.lock() {
                tally.fail(format!("{why} (under way: {under_way:?})"));
            }
        }
        usage.unwrap_or_default()
    }
}
