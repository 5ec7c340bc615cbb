//! Workers of one join: scoped threads, a phase at a time, and how they stop together.
//!
//! A phase runs one function on every worker and ends when all have returned. Work is claimed morsel by
//! morsel, or task by task, from a counter. The first error stops the others at their next claim.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

use crate::error::JoinError;

/// Asked now and then whether the join is still wanted.
pub type Interrupt<'a> = &'a (dyn Fn() -> bool + Sync);

/// What the workers of a join share.
pub(crate) struct Control<'a> {
    interrupt: Option<Interrupt<'a>>,
    is_stopped: AtomicBool,
    failure: Mutex<Option<JoinError>>,
}

/// Numbers to claim, each once.
pub(crate) struct Claims {
    next: AtomicUsize,
    end: usize,
}

impl Claims {
    /// The numbers below `end`.
    pub(crate) fn new(end: usize) -> Claims {
        let next = AtomicUsize::new(0);
        Claims { next, end }
    }

    /// The next number, or none.
    pub(crate) fn claim(&self) -> Option<usize> {
        // A counter only: what a number stands for was there before the phase began.
        Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < self.end)
    }
}

impl<'a> Control<'a> {
    pub(crate) fn new(interrupt: Option<Interrupt<'a>>) -> Control<'a> {
        Control {
            interrupt,
            is_stopped: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// An error if this worker should end: another one failed, or the caller interrupts.
    pub(crate) fn check(&self) -> Result<(), JoinError> {
        if self.is_stopped.load(Ordering::Relaxed) || self.interrupt.is_some_and(|interrupt| interrupt()) {
            return Err(JoinError::Interrupted);
        }
        Ok(())
    }

    fn fail(&self, error: JoinError) {
        // The first error is the reason; those after it are workers that saw the stop.
        self.failure.lock().get_or_insert(error);
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Runs `work` on every worker, each on a thread of its own but the first, which has the caller's.
    ///
    /// The next phase may begin after an error of this one (with less memory, for one).
    pub(crate) fn phase<W: Send>(
        &self,
        workers: &mut [W],
        work: impl Fn(usize, &mut W) -> Result<(), JoinError> + Sync,
    ) -> Result<(), JoinError> {
        let run = |number: usize, worker: &mut W| {
            if let Err(error) = work(number, worker) {
                self.fail(error);
            }
        };
        let run = &run;
        let Some((first, others)) = workers.split_first_mut() else {
            return Err(JoinError::NoConsumer);
        };
        thread::scope(|scope| {
            // A worker for which the system has no thread runs after the first one, on the same thread.
            let mut without_thread = Vec::new();
            for (at, worker) in others.iter_mut().enumerate() {
                let slot = Mutex::new(Some(worker));
                let slot = std::sync::Arc::new(slot);
                let on_thread = std::sync::Arc::clone(&slot);
                let started = thread::Builder::new()
                    .name("join".into())
                    .spawn_scoped(scope, move || {
                        let worker = on_thread.lock().take();
                        if let Some(worker) = worker {
                            run(at + 1, worker);
                        }
                    });
                if started.is_err() {
                    without_thread.push((at + 1, slot));
                }
            }
            run(0, first);
            for (number, slot) in without_thread {
                let worker = slot.lock().take();
                if let Some(worker) = worker {
                    run(number, worker);
                }
            }
        });
        self.is_stopped.store(false, Ordering::Relaxed);
        match self.failure.lock().take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_claimed_once_and_the_first_error_stops_all() {
        let control = Control::new(None);
        let claims = Claims::new(1000);
        let mut seen = vec![Vec::new(); 3];
        let claim_all = |_: usize, seen: &mut Vec<usize>| {
            while let Some(number) = claims.claim() {
                control.check()?;
                seen.push(number);
            }
            Ok(())
        };
        control.phase(&mut seen, claim_all).unwrap();
        let mut all = seen.concat();
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());

        let outcome = control.phase(&mut [0, 1, 2], |number, _| match number {
            1 => Err(JoinError::Source),
            _ => loop {
                control.check()?;
            },
        });
        assert!(matches!(outcome, Err(JoinError::Source)), "{outcome:?}");
        assert!(control.check().is_ok(), "the next phase may begin");
        assert!(matches!(
            control.phase(&mut [0; 0], |_, _| Ok(())),
            Err(JoinError::NoConsumer)
        ));
    }

    #[test]
    fn an_interrupt_ends_every_worker() {
        let interrupt = || true;
        let control = Control::new(Some(&interrupt));
        let outcome = control.phase(&mut [0; 2], |_, _| control.check());
        assert!(matches!(outcome, Err(JoinError::Interrupted)));
    }
}
