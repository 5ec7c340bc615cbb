//! A fabric whose every interleaving, delay and death comes from a seed.
//!
//! # Model
//!
//! Ranks are threads that run ordinary blocking code, one at a time: every call on the fabric is a *step*,
//! and before a step the scheduler draws who runs next. Operations on windows are cut into pieces that happen
//! in any order at any later time, at the latest in the issuer's flush; word operations happen at once. Time
//! is simulated: a step takes up to a microsecond, and when all ranks wait, time jumps.
//!
//! ```text
//! rank's thread:  put -> step -> [others run] -> pieces wait ...... flush -> step -> pieces happen -> goes
//! on
//! ```
//!
//! A rank can be killed at each of its steps, which are counted from 1 over all its lives: the thread
//! unwinds, its memory is zeros, pieces on their way to it are lost, and of those it had issued any may
//! happen. If it returns, its code is called again with a rank of the next incarnation. To kill at every
//! step: run once without a kill, read [`Report::steps`], run again for each number.
//!
//! # Invariants
//!
//! 1. Same seed, kills and code: the same steps, the same times, the same memory ([`Report::trace`]).
//! 2. Only the rank whose turn it is runs. Code of a rank must not wait for another rank by other means than
//!    the fabric.
//! 3. Until its flush, anything that the order in `transport` allows can happen to a put.
//!
//! Source: the method is that of `base`'s simulated disk, for the passive target rules of MPI-3 (Barthels,
//! section 2.2.5; chapter 6.1.2 names the missing notion of failures). Decision 0035.

mod state;
mod transport;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::collective::Layout;
use crate::rank::Rank;
use crate::transport::Transport;
use state::{State, Status};
use transport::SimTransport;

/// Steps of all ranks together after which a run is stopped, if nothing else is said.
pub const STEPS_MAX: u64 = 5_000_000;

/// A death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// Who dies.
    pub rank: u32,
    /// Before the operation of which of its steps, counted from 1 over all its lives.
    pub at_step: u64,
    /// After how much simulated time it returns, if it does.
    pub returns_after: Option<Duration>,
}

/// A rank that hangs: it is alive, and does nothing for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// Who.
    pub rank: u32,
    /// Before the operation of which of its steps.
    pub at_step: u64,
    /// For how much simulated time.
    pub lasts: Duration,
}

/// A planted fault: tests show with it that they would find the like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Planted {
    /// None.
    #[default]
    Sound,
    /// A flush returns before the bytes are there: a flag stored after it arrives before them.
    FlushReturnsEarly,
}

/// What became of one life of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T> {
    /// Its code returned.
    Ended(T),
    /// It was killed.
    Killed,
    /// The run had more steps than it may have.
    Stopped,
}

/// What a run did.
#[derive(Debug)]
pub struct Report<T> {
    /// By rank, by life.
    pub outcomes: Vec<Vec<Outcome<T>>>,
    /// Steps of each rank over all its lives.
    pub steps: Vec<u64>,
    /// Which step of each rank was its first call of [`Rank::step`]: a mark that its start is over.
    pub first_marks: Vec<Option<u64>>,
    /// A number that two runs share if they did the same.
    pub trace: u64,
    /// Simulated time at the end.
    pub now_ns: u64,
    /// Every step as text, if that was asked for.
    pub lines: Vec<String>,
}

impl<T> Report<T> {
    /// What the ranks' code returned, by rank and life.
    pub fn ended(&self) -> impl Iterator<Item = &T> {
        self.outcomes
            .iter()
            .flatten()
            .filter_map(|outcome| match outcome {
                Outcome::Ended(value) => Some(value),
                Outcome::Killed | Outcome::Stopped => None,
            })
    }

    /// Whether the run had to be stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let mut all = self.outcomes.iter().flatten();
        all.any(|outcome| matches!(outcome, Outcome::Stopped))
    }
}

/// A simulation that is to run.
pub struct Simulation {
    seed: u64,
    rank_count: u32,
    kills: Vec<Kill>,
    stalls: Vec<Stall>,
    planted: Planted,
    steps_max: u64,
    keeps_lines: bool,
    on_kill: Option<Hook>,
}

type Hook = Box<dyn Fn(u32) + Send + Sync>;

/// With what a killed rank's thread unwinds.
struct Killed;

struct Sim {
    state: Mutex<State>,
    wake: Vec<Condvar>,
    on_kill: Option<Hook>,
}

impl Simulation {
    /// So many ranks, with everything drawn from this seed.
    #[must_use]
    pub fn new(seed: u64, rank_count: u32) -> Self {
        Self {
            seed,
            rank_count,
            kills: Vec::new(),
            stalls: Vec::new(),
            planted: Planted::Sound,
            steps_max: STEPS_MAX,
            keeps_lines: false,
            on_kill: None,
        }
    }

    /// Adds a death.
    #[must_use]
    pub fn kill(mut self, kill: Kill) -> Self {
        self.kills.push(kill);
        self
    }

    /// Adds a time in which a rank hangs.
    #[must_use]
    pub fn stall(mut self, stall: Stall) -> Self {
        self.stalls.push(stall);
        self
    }

    /// Calls this at the moment of a death, with the rank: to cut the power of its disk.
    #[must_use]
    pub fn on_kill(mut self, hook: impl Fn(u32) + Send + Sync + 'static) -> Self {
        self.on_kill = Some(Box::new(hook));
        self
    }

    /// Plants a fault.
    #[must_use]
    pub fn planted(mut self, planted: Planted) -> Self {
        self.planted = planted;
        self
    }

    /// Stops the run after so many steps.
    #[must_use]
    pub fn steps_max(mut self, steps_max: u64) -> Self {
        self.steps_max = steps_max;
        self
    }

    /// Keeps every step as text.
    #[must_use]
    pub fn keep_lines(mut self) -> Self {
        self.keeps_lines = true;
        self
    }

    /// Runs the code on every rank, and again for each return, until all have ended. If the code of a rank
    /// panics the rank is dead; when all have ended the seed is printed and the panic goes on here.
    pub fn run<T: Send>(self, code: impl Fn(Rank) -> T + Sync) -> Report<T> {
        let ranks = self.rank_count;
        let mut state = State::new(self.seed, ranks, self.kills, self.planted, self.steps_max);
        state.stalls = self.stalls;
        let bytes = Layout::new(ranks).bytes();
        for rank in 0..ranks {
            state.make_part(0, rank, bytes, false);
        }
        state.lines = self.keeps_lines.then(Vec::new);
        state.running = state.choose(None);
        let sim = Arc::new(Sim {
            state: Mutex::new(state),
            wake: (0..ranks).map(|_| Condvar::new()).collect(),
            on_kill: self.on_kill,
        });
        let code = &code;
        let lives = thread::scope(|scope| {
            let threads: Vec<_> = (0..ranks)
                .map(|rank| {
                    let sim = Arc::clone(&sim);
                    scope.spawn(move || sim.live(rank, ranks, code))
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect::<Vec<_>>()
        });
        let mut outcomes = Vec::with_capacity(lives.len());
        let mut panic = None;
        for life in lives {
            outcomes.push(life.outcomes);
            panic = panic.or(life.panic);
        }
        if let Some(panic) = panic {
            eprintln!("a rank panicked in the simulation of seed {}", self.seed);
            resume_unwind(panic);
        }
        let mut state = sim.state.lock();
        Report {
            outcomes,
            steps: state.members.iter().map(|member| member.steps).collect(),
            first_marks: state.members.iter().map(|member| member.first_mark).collect(),
            trace: state.trace,
            now_ns: state.now_ns,
            lines: state.lines.take().unwrap_or_default(),
        }
    }
}

/// The lives of one rank.
struct Lives<T> {
    outcomes: Vec<Outcome<T>>,
    panic: Option<Box<dyn std::any::Any + Send>>,
}

impl Sim {
    fn live<T>(self: &Arc<Self>, rank: u32, rank_count: u32, code: &impl Fn(Rank) -> T) -> Lives<T> {
        let mut lives = Lives {
            outcomes: Vec::new(),
            panic: None,
        };
        loop {
            let incarnation = {
                let mut state = self.state.lock();
                self.wait_for_turn(&mut state, rank);
                let member = state.members.get(rank as usize);
                member.map_or(0, |member| member.presence.incarnation)
            };
            let ended = catch_unwind(AssertUnwindSafe(|| {
                self.rank(rank, rank_count, incarnation).map(code)
            }));
            let mut state = self.state.lock();
            match ended {
                Ok(Some(value)) => {
                    lives.outcomes.push(Outcome::Ended(value));
                    state.end(rank);
                }
                Ok(None) => state.end(rank),
                Err(payload) if payload.is::<Killed>() => {
                    if state.is_stopped {
                        lives.outcomes.push(Outcome::Stopped);
                        state.end(rank);
                    } else {
                        lives.outcomes.push(Outcome::Killed);
                    }
                }
                Err(payload) => {
                    lives.panic = Some(payload);
                    state.end(rank);
                }
            }
            let is_over = state
                .members
                .get(rank as usize)
                .is_none_or(|member| member.status == Status::Ended);
            let next = state.choose(None);
            state.running = next;
            if let Some(wake) = next.and_then(|next| self.wake.get(next as usize)) {
                wake.notify_one();
            }
            if is_over {
                return lives;
            }
        }
    }

    /// The handle for one life. The control window is there from the start.
    fn rank(self: &Arc<Self>, rank: u32, rank_count: u32, incarnation: u32) -> Option<Rank> {
        let transport = SimTransport {
            sim: Arc::clone(self),
            rank,
            rank_count,
            incarnation,
        };
        let bytes = Layout::new(rank_count).bytes() as u64;
        let control = transport.open(0, &vec![bytes; rank_count as usize]).ok()?;
        Some(Rank::new(Box::new(transport), control))
    }
}
