//! Latches and condition variables at which a step ends. For threads outside of a run they behave like
//! `parking_lot`'s.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::{ThreadStatus, me, pause};

/// The address of something, as its identity.
fn place<T>(of: &T) -> usize {
    std::ptr::from_ref(of) as usize
}

/// Acquires a latch: tries, and lets other threads run until it succeeds.
fn take<T>(place: usize, mut try_take: impl FnMut() -> Option<T>, wait: impl FnOnce() -> T) -> T {
    let Some((steps, me)) = me() else {
        return wait();
    };
    steps.end_step(me, ThreadStatus::Ready);
    loop {
        if let Some(guard) = try_take() {
            return guard;
        }
        steps.end_step(me, ThreadStatus::Before(place));
    }
}

/// A latch was released: threads that wait for it can try again.
fn released(place: usize) {
    if let Some((steps, me)) = me() {
        steps.ready_again(|stands| stands == ThreadStatus::Before(place));
        if !std::thread::panicking() {
            steps.end_step(me, ThreadStatus::Ready);
        }
    }
}

#[derive(Default)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

pub(crate) struct MutexGuard<'a, T> {
    latch: &'a Mutex<T>,
    held: Option<parking_lot::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let held = take(place(self), || self.0.try_lock(), || self.0.lock());
        MutexGuard {
            latch: self,
            held: Some(held),
        }
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        pause();
        let held = self.0.try_lock()?;
        Some(MutexGuard {
            latch: self,
            held: Some(held),
        })
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().unwrap()
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.held = None;
        released(place(self.latch));
    }
}

pub(crate) struct RwLock<T>(parking_lot::RwLock<T>);

/// A guard of either kind.
pub(crate) struct RwGuard<G> {
    held: Option<G>,
    place: usize,
}

impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(parking_lot::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> RwGuard<parking_lot::RwLockReadGuard<'_, T>> {
        let place = place(self);
        let held = Some(take(place, || self.0.try_read(), || self.0.read()));
        RwGuard { held, place }
    }

    pub(crate) fn write(&self) -> RwGuard<parking_lot::RwLockWriteGuard<'_, T>> {
        let place = place(self);
        let held = Some(take(place, || self.0.try_write(), || self.0.write()));
        RwGuard { held, place }
    }
}

impl<G: Deref> Deref for RwGuard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        self.held.as_ref().unwrap()
    }
}

impl<G: DerefMut> DerefMut for RwGuard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        self.held.as_mut().unwrap()
    }
}

impl<G> Drop for RwGuard<G> {
    fn drop(&mut self) {
        self.held = None;
        released(self.place);
    }
}

pub(crate) struct Condvar(parking_lot::Condvar);

/// How a wait with a timeout ended.
pub(crate) struct Waited(bool);

impl Waited {
    pub(crate) const fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if self.wait_in_steps(guard, false).is_none() {
            self.0.wait(guard.held.as_mut().unwrap());
        }
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, most: Duration) -> Waited {
        Waited(match self.wait_in_steps(guard, true) {
            Some(timed_out) => timed_out,
            None => self.0.wait_for(guard.held.as_mut().unwrap(), most).timed_out(),
        })
    }

    /// `None` outside of a run.
    fn wait_in_steps<T>(&self, guard: &mut MutexGuard<'_, T>, timed: bool) -> Option<bool> {
        let (steps, me) = me()?;
        guard.held = None;
        let latch = guard.latch;
        steps.ready_again(|stands| stands == ThreadStatus::Before(place(latch)));
        let at = place(self);
        let timed_out = steps.end_step(me, ThreadStatus::Waits { at, timed });
        guard.held = Some(take(place(latch), || latch.0.try_lock(), || latch.0.lock()));
        Some(timed_out)
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
        if let Some((steps, _)) = me() {
            let at = place(self);
            steps
                .ready_again(|stands| matches!(stands, ThreadStatus::Waits { at: other, .. } if other == at));
        }
    }
}
