//! The simulation as a form: every call is a step, before which another rank may run.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::state::{Address, MARK, State};
use super::{Killed, Sim};
use crate::error::Error;
use crate::shared::{Memory, copy_in, copy_out};
use crate::transport::{Presence, RawWindow, Transport};

pub(super) struct SimTransport {
    pub(super) sim: Arc<Sim>,
    pub(super) rank: u32,
    pub(super) rank_count: u32,
    pub(super) incarnation: u32,
}

impl Sim {
    /// One step of the rank that runs: perhaps it dies, perhaps others run first. Returns when it is this
    /// rank's turn again, with the state.
    ///
    /// A death is an unwinding, so that nothing more of the rank's code runs than its destructors, whose
    /// calls get an error.
    fn turn(
        &self,
        rank: u32,
        what: &'static str,
        about: [u64; 3],
        waits: bool,
    ) -> Result<MutexGuard<'_, State>, Error> {
        let dead = || Error::RankDead { rank, during: what };
        if std::thread::panicking() {
            return Err(dead());
        }
        let mut state = self.state.lock();
        if let Some(kill) = state.step(rank, what, about) {
            state.kill(kill);
            drop(state);
            if let Some(hook) = &self.on_kill {
                hook(rank);
            }
            std::panic::resume_unwind(Box::new(Killed));
        }
        if waits {
            state.waits(rank);
        }
        state.stall(rank);
        let next = state.choose(Some(rank));
        self.hand_over(&mut state, rank, next);
        if state.is_stopped {
            drop(state);
            std::panic::resume_unwind(Box::new(Killed));
        }
        Ok(state)
    }

    /// Lets the chosen rank run, and waits until this one is chosen.
    pub(super) fn hand_over(&self, state: &mut MutexGuard<'_, State>, rank: u32, next: Option<u32>) {
        state.running = next;
        if next == Some(rank) {
            return;
        }
        if let Some(wake) = next.and_then(|next| self.wake.get(next as usize)) {
            wake.notify_one();
        }
        self.wait_for_turn(state, rank);
    }

    pub(super) fn wait_for_turn(&self, state: &mut MutexGuard<'_, State>, rank: u32) {
        let Some(wake) = self.wake.get(rank as usize) else {
            return;
        };
        while state.running != Some(rank) {
            wake.wait(state);
        }
    }
}

impl Transport for SimTransport {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn rank_count(&self) -> u32 {
        self.rank_count
    }

    fn presence(&self, rank: u32) -> Presence {
        if rank == self.rank {
            return Presence {
                alive: true,
                incarnation: self.incarnation,
            };
        }
        let state = self.sim.state.lock();
        let member = state.members.get(rank as usize);
        member.map_or(
            Presence {
                alive: false,
                incarnation: 0,
            },
            |member| member.presence,
        )
    }

    fn now_ns(&self) -> u64 {
        self.sim.state.lock().now_ns
    }

    fn clock_turns(&self) -> u32 {
        1
    }

    fn pause(&self, _turn: u32) {
        // An error says that this rank unwinds: it waits for nothing any more.
        self.sim.turn(self.rank, "pause", [0; 3], true).map(drop).ok();
    }

    fn step(&self) {
        self.sim.turn(self.rank, MARK, [0; 3], false).map(drop).ok();
    }

    fn make_part(&self, window: u32, bytes: u64, is_known: bool) -> Result<(), Error> {
        let bytes = usize::try_from(bytes).map_err(|_| Error::misuse("a window larger than memory"))?;
        let about = [u64::from(window), u64::from(self.rank), bytes as u64];
        let mut state = self.sim.turn(self.rank, "make_part", about, false)?;
        state.make_part(window, self.rank, bytes, is_known);
        Ok(())
    }

    fn drop_part(&self, window: u32) {
        self.sim.state.lock().drop_part(window, self.rank);
    }

    fn open(&self, window: u32, bytes: &[u64]) -> Result<Box<dyn RawWindow>, Error> {
        let state = self.sim.state.lock();
        for (rank, _) in (0_u32..).zip(bytes) {
            if state.part(window, rank).is_none() {
                return Err(Error::RankDead {
                    rank,
                    during: "opening a window",
                });
            }
        }
        let own = state
            .part(window, self.rank)
            .ok_or_else(|| Error::misuse("a window without a part of its own rank"))?;
        Ok(Box::new(SimWindow {
            sim: Arc::clone(&self.sim),
            rank: self.rank,
            window,
            own,
        }))
    }
}

struct SimWindow {
    sim: Arc<Sim>,
    rank: u32,
    window: u32,
    own: Arc<Memory>,
}

impl SimWindow {
    /// A step before an operation on a target, which is alive.
    fn turn(&self, what: &'static str, target: u32, offset: usize) -> Result<MutexGuard<'_, State>, Error> {
        let about = [u64::from(self.window), u64::from(target), offset as u64];
        let state = self.sim.turn(self.rank, what, about, false)?;
        let alive = state
            .members
            .get(target as usize)
            .is_some_and(|member| member.presence.alive);
        if alive || target == self.rank {
            Ok(state)
        } else {
            Err(Error::RankDead {
                rank: target,
                during: what,
            })
        }
    }

    fn on_word(
        &self,
        what: &'static str,
        target: u32,
        offset: usize,
        change: impl FnOnce(u64) -> Option<u64>,
    ) -> Result<u64, Error> {
        let mut state = self.turn(what, target, offset)?;
        let part = state.part(self.window, target);
        let word = part.as_ref().and_then(|part| part.get(offset / 8));
        let word = word.ok_or_else(|| Error::misuse("a word outside its window"))?;
        let was = word.load(Ordering::SeqCst);
        if let Some(new) = change(was) {
            word.store(new, Ordering::SeqCst);
            state.change();
        }
        Ok(was)
    }
}

impl RawWindow for SimWindow {
    fn put(&self, target: u32, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let mut state = self.turn("put", target, offset)?;
        state.put(self.rank, target, self.window, offset, bytes);
        Ok(())
    }

    unsafe fn put_in_place(
        &self,
        target: u32,
        offset: usize,
        bytes: *const u8,
        length: usize,
    ) -> Result<(), Error> {
        // SAFETY: the caller keeps the bytes valid for longer than this call.
        self.put(target, offset, unsafe {
            std::slice::from_raw_parts(bytes, length)
        })
    }

    unsafe fn get_in_place(
        &self,
        target: u32,
        offset: usize,
        into: *mut u8,
        length: usize,
    ) -> Result<(), Error> {
        let mut state = self.turn("get", target, offset)?;
        state.get(self.rank, target, self.window, offset, Address(into), length);
        Ok(())
    }

    fn flush(&self, target: u32) -> Result<(), Error> {
        // A step for each part of it: others see what is half there, and a death leaves it so.
        while self.turn("flush", target, 0)?.flush_some(self.rank, Some(target)) {}
        Ok(())
    }

    fn flush_all(&self) -> Result<(), Error> {
        while self.turn("flush_all", self.rank, 0)?.flush_some(self.rank, None) {}
        Ok(())
    }

    fn fetch_add(&self, target: u32, offset: usize, value: u64) -> Result<u64, Error> {
        self.on_word("fetch_add", target, offset, |was| Some(was.wrapping_add(value)))
    }

    fn compare_and_swap(
        &self,
        target: u32,
        offset: usize,
        expected: u64,
        desired: u64,
    ) -> Result<u64, Error> {
        self.on_word("compare_and_swap", target, offset, |was| {
            (was == expected).then_some(desired)
        })
    }

    fn load(&self, target: u32, offset: usize) -> Result<u64, Error> {
        self.on_word("load", target, offset, |_| None)
    }

    fn store(&self, target: u32, offset: usize, value: u64) -> Result<(), Error> {
        self.on_word("store", target, offset, |_| Some(value)).map(|_| ())
    }

    fn local_load(&self, offset: usize) -> u64 {
        // No other rank runs here, but what is on its way may arrive.
        self.sim.state.lock().deliver_some();
        let word = self.own.get(offset / 8);
        word.map_or(0, |word| word.load(Ordering::SeqCst))
    }

    fn local_read(&self, offset: usize, into: &mut [u8]) {
        self.sim.state.lock().deliver_some();
        copy_out(&self.own, offset, into);
    }

    fn local_write(&self, offset: usize, bytes: &[u8]) {
        copy_in(&self.own, offset, bytes);
        self.sim.state.lock().change();
    }

    fn local_pointer(&self) -> *const u8 {
        self.own.as_ptr().cast()
    }
}
