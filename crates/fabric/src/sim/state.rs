//! The state of a simulation: memory, operations on their way, who runs, what time it is.
//!
//! Everything here is a function of the seed and of the calls made, in their order.

use std::sync::Arc;
use std::time::Duration;

use weft_base::Prng;

use super::{Kill, Planted, Stall};
use crate::shared::{Memory, copy_in, copy_out};
use crate::transport::Presence;

/// Simulated time of one step, at most.
const STEP_NS_MAX: u64 = 1_000;
/// The longest jump of time while every rank waits.
const JUMP_NS_MAX: u64 = 50_000_000;

/// The kind of a step that is no operation.
pub(super) const MARK: &str = "mark";

/// What a rank is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// It can run.
    Ready,
    /// It found nothing to do when so many changes had happened; it can run after the next.
    Waiting(u64),
    /// It is dead until that time.
    Away(u64),
    /// It hangs until that time.
    Stalled(u64),
    /// It will not run any more.
    Ended,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) status: Status,
    pub(super) presence: Presence,
    pub(super) steps: u64,
    /// The first step that the rank's code marked.
    pub(super) first_mark: Option<u64>,
}

/// A piece of an operation that has not happened yet.
struct Pending {
    issuer: u32,
    target: u32,
    window: u32,
    offset: usize,
    effect: Effect,
}

enum Effect {
    Put(Vec<u8>),
    /// Into a buffer of the issuer: its address, as the issuer gave it, and its length.
    Get(Address, usize),
}

/// The address of a buffer that its owner does not touch until a flush.
#[derive(Clone, Copy)]
pub(super) struct Address(pub(super) *mut u8);

// SAFETY: whoever made it (`get_in_place`) promised that nobody else uses the buffer until a flush has
// returned or the issuer is dead; the state drops the operation at either moment.
unsafe impl Send for Address {}

pub(super) struct State {
    prng: Prng,
    pub(super) members: Vec<Member>,
    pub(super) running: Option<u32>,
    pub(super) is_stopped: bool,
    pub(super) now_ns: u64,
    pub(super) trace: u64,
    pub(super) lines: Option<Vec<String>>,
    steps: u64,
    steps_max: u64,
    kills: Vec<Kill>,
    pub(super) stalls: Vec<Stall>,
    planted: Planted,
    windows: Vec<Vec<Option<Arc<Memory>>>>,
    pending: Vec<Pending>,
    /// Changes that a waiting rank may have waited for.
    changes: u64,
    quiet_jumps: u32,
    /// Drawn for each run: how gladly a rank goes on, how fast operations happen; in 64ths.
    stays: u64,
    delivers: u64,
}

impl State {
    pub(super) fn new(seed: u64, ranks: u32, kills: Vec<Kill>, planted: Planted, steps_max: u64) -> Self {
        let mut prng = Prng::new(seed);
        let member = || Member {
            status: Status::Ready,
            presence: Presence {
                alive: true,
                incarnation: 0,
            },
            steps: 0,
            first_mark: None,
        };
        Self {
            stays: prng.below(60),
            // Often slow, so that what is half there is seen; sometimes fast.
            delivers: 1 << prng.below(6),
            prng,
            members: (0..ranks).map(|_| member()).collect(),
            running: None,
            is_stopped: false,
            now_ns: 0,
            trace: 0,
            lines: None,
            steps: 0,
            steps_max,
            kills,
            stalls: Vec::new(),
            planted,
            windows: Vec::new(),
            pending: Vec::new(),
            changes: 0,
            quiet_jumps: 0,
        }
    }

    /// One step of a rank: counts it, lets time pass, and says whether the rank dies here.
    pub(super) fn step(&mut self, rank: u32, what: &'static str, about: [u64; 3]) -> Option<Kill> {
        self.steps += 1;
        self.is_stopped |= self.steps >= self.steps_max;
        let member = self.members.get_mut(rank as usize)?;
        member.steps += 1;
        let steps = member.steps;
        if what == MARK {
            member.first_mark.get_or_insert(steps);
        }
        self.now_ns += 50 + self.prng.below(STEP_NS_MAX);
        for part in [u64::from(rank), what.len() as u64, self.now_ns]
            .into_iter()
            .chain(about)
        {
            self.trace = (self.trace ^ part)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(23);
        }
        if let Some(lines) = &mut self.lines {
            let [window, target, offset] = about;
            lines.push(format!(
                "{:>10} ns rank {rank} step {steps}: {what} window {window} rank {target} offset {offset}",
                self.now_ns
            ));
        }
        let due = self
            .kills
            .iter()
            .position(|kill| kill.rank == rank && kill.at_step == steps);
        due.map(|at| self.kills.swap_remove(at))
    }

    /// A rank dies: its memory goes, and of what it had asked for anything may have happened.
    pub(super) fn kill(&mut self, kill: Kill) {
        let rank = kill.rank;
        let pending = std::mem::take(&mut self.pending);
        for piece in pending {
            if piece.target == rank {
                continue;
            }
            if piece.issuer != rank {
                self.pending.push(piece);
            } else if matches!(piece.effect, Effect::Put(_)) && self.prng.chance(1, 2) {
                self.apply(&piece);
            }
        }
        for part in self.windows.iter().filter_map(|parts| parts.get(rank as usize)) {
            let words = part.iter().flat_map(|part| part.iter());
            words.for_each(|word| word.store(0, std::sync::atomic::Ordering::SeqCst));
        }
        let away = kill.returns_after.map(|after| self.now_ns + nanos(after));
        if let Some(member) = self.members.get_mut(rank as usize) {
            member.presence.alive = false;
            member.status = away.map_or(Status::Ended, Status::Away);
        }
        self.note(|| format!("rank {rank} is killed"));
        self.change();
    }

    /// A rank's code has ended; what it asked for still happens.
    pub(super) fn end(&mut self, rank: u32) {
        if let Some(member) = self.members.get_mut(rank as usize) {
            member.presence.alive = false;
            member.status = Status::Ended;
        }
        self.note(|| format!("rank {rank} ended"));
        self.change();
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        let now_ns = self.now_ns;
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{now_ns:>10} ns {}", line()));
        }
    }

    /// Something happened that others may wait for.
    pub(super) fn change(&mut self) {
        self.changes += 1;
        self.quiet_jumps = 0;
    }

    /// Lets the rank hang if that is due at its present step.
    pub(super) fn stall(&mut self, rank: u32) {
        let Some(member) = self.members.get_mut(rank as usize) else {
            return;
        };
        let due = |stall: &Stall| stall.rank == rank && stall.at_step == member.steps;
        if let Some(at) = self.stalls.iter().position(due) {
            let stall = self.stalls.swap_remove(at);
            member.status = Status::Stalled(self.now_ns + nanos(stall.lasts));
            self.note(|| format!("rank {rank} hangs"));
        }
    }

    pub(super) fn waits(&mut self, rank: u32) {
        let changes = self.changes;
        if let Some(member) = self.members.get_mut(rank as usize) {
            member.status = Status::Waiting(changes);
        }
    }

    /// Chooses who runs next; nobody when all have ended. `now` is the rank that runs.
    pub(super) fn choose(&mut self, now: Option<u32>) -> Option<u32> {
        self.deliver_some();
        loop {
            if self.members.iter().all(|member| member.status == Status::Ended) {
                return None;
            }
            let can_run = |member: &Member| match member.status {
                Status::Ready => true,
                Status::Waiting(changes) => changes != self.changes || self.is_stopped,
                Status::Away(until_ns) | Status::Stalled(until_ns) => {
                    until_ns <= self.now_ns || self.is_stopped
                }
                Status::Ended => false,
            };
            let ready: Vec<u32> = (0_u32..)
                .zip(&self.members)
                .filter(|(_, member)| can_run(member))
                .map(|(rank, _)| rank)
                .collect();
            if ready.is_empty() {
                self.pass_time();
                continue;
            }
            let stays = self.prng.chance(self.stays, 64);
            let chosen = match now.filter(|now| stays && ready.contains(now)) {
                Some(now) => now,
                None => ready.get(self.prng.below(ready.len() as u64) as usize).copied()?,
            };
            self.begin(chosen);
            return Some(chosen);
        }
    }

    /// The chosen rank goes on, or returns.
    fn begin(&mut self, rank: u32) {
        let mut has_returned = false;
        if let Some(member) = self.members.get_mut(rank as usize) {
            if let Status::Away(_) = member.status {
                member.presence.alive = true;
                member.presence.incarnation += 1;
                has_returned = true;
            }
            member.status = Status::Ready;
        }
        if has_returned {
            self.note(|| format!("rank {rank} returns"));
            self.change();
        }
    }

    /// Nobody can run: an operation happens, or time passes until somebody returns or looks at the clock.
    fn pass_time(&mut self) {
        if !self.pending.is_empty() {
            self.deliver_one();
            return;
        }
        let jump = (1_000_u64 << self.quiet_jumps.min(16)).min(JUMP_NS_MAX);
        let returns = self.members.iter().filter_map(|member| match member.status {
            Status::Away(until_ns) | Status::Stalled(until_ns) => Some(until_ns),
            _ => None,
        });
        let to_ns = returns.fold(self.now_ns + jump, u64::min);
        self.now_ns = to_ns.max(self.now_ns);
        self.quiet_jumps += 1;
        self.changes += 1;
    }

    /// Some operations happen, as often as this run likes.
    pub(super) fn deliver_some(&mut self) {
        while !self.pending.is_empty() && self.prng.chance(self.delivers, 64) {
            self.deliver_one();
        }
    }

    fn deliver_one(&mut self) {
        let at = self.prng.below(self.pending.len() as u64) as usize;
        if at < self.pending.len() {
            let piece = self.pending.swap_remove(at);
            self.apply(&piece);
        }
    }

    /// Some operations of a rank on a target, or on all, happen. Whether some are left.
    pub(super) fn flush_some(&mut self, issuer: u32, target: Option<u32>) -> bool {
        if self.planted == Planted::FlushReturnsEarly {
            return false;
        }
        loop {
            let of =
                |piece: &Pending| piece.issuer == issuer && target.is_none_or(|rank| rank == piece.target);
            let matching: Vec<usize> = (0..self.pending.len())
                .filter(|at| self.pending.get(*at).is_some_and(of))
                .collect();
            let chosen = self.prng.below(matching.len() as u64) as usize;
            let Some(at) = matching.get(chosen) else {
                return false;
            };
            let piece = self.pending.swap_remove(*at);
            self.apply(&piece);
            if matching.len() > 1 && self.prng.chance(1, 2) {
                return true;
            }
        }
    }

    fn apply(&mut self, piece: &Pending) {
        let Some(part) = self.part(piece.window, piece.target) else {
            return;
        };
        match &piece.effect {
            Effect::Put(bytes) => copy_in(&part, piece.offset, bytes),
            Effect::Get(into, length) => {
                // SAFETY: the buffer is valid, initialised and untouched while the operation is pending.
                let into = unsafe { std::slice::from_raw_parts_mut(into.0, *length) };
                copy_out(&part, piece.offset, into);
            }
        }
        self.change();
    }

    /// A put goes on its way, in up to four pieces.
    pub(super) fn put(&mut self, issuer: u32, target: u32, window: u32, offset: usize, bytes: &[u8]) {
        for (start, end) in self.pieces(bytes.len()) {
            self.pending.push(Pending {
                issuer,
                target,
                window,
                offset: offset + start,
                effect: Effect::Put(bytes.get(start..end).unwrap_or_default().to_vec()),
            });
        }
    }

    /// A get goes on its way, in up to four pieces.
    pub(super) fn get(
        &mut self,
        issuer: u32,
        target: u32,
        window: u32,
        offset: usize,
        into: Address,
        length: usize,
    ) {
        for (start, end) in self.pieces(length) {
            // SAFETY: the piece is inside the buffer.
            let address = Address(unsafe { into.0.add(start) });
            self.pending.push(Pending {
                issuer,
                target,
                window,
                offset: offset + start,
                effect: Effect::Get(address, end - start),
            });
        }
    }

    fn pieces(&mut self, length: usize) -> Vec<(usize, usize)> {
        let mut cuts = vec![0, length];
        for _ in 0..self.prng.below(4) {
            cuts.push(self.prng.below(length as u64) as usize);
        }
        cuts.sort_unstable();
        cuts.dedup();
        cuts.array_windows().map(|[start, end]| (*start, *end)).collect()
    }

    pub(super) fn part(&self, window: u32, rank: u32) -> Option<Arc<Memory>> {
        let parts = self.windows.get(window as usize)?;
        parts.get(rank as usize).cloned().flatten()
    }

    /// A part of zeros; after a return the one that the others know.
    pub(super) fn make_part(&mut self, window: u32, rank: u32, bytes: usize, is_known: bool) {
        let ranks = self.members.len();
        while self.windows.len() <= window as usize {
            self.windows.push(vec![None; ranks]);
        }
        let slot = self
            .windows
            .get_mut(window as usize)
            .and_then(|parts| parts.get_mut(rank as usize));
        match slot {
            Some(Some(part)) if is_known && part.len() == bytes.div_ceil(8) => {}
            Some(slot) => *slot = Some(Arc::new(Memory::heap(bytes))),
            None => {}
        }
    }

    pub(super) fn drop_part(&mut self, window: u32, rank: u32) {
        if let Some(slot) = self
            .windows
            .get_mut(window as usize)
            .and_then(|parts| parts.get_mut(rank as usize))
        {
            *slot = None;
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2)
}
