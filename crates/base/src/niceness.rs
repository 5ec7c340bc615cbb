//! Letting a thread give way to others.

/// How far a thread gives way. Linux divides a processor among the threads that want it by weights: 1,024 for
/// an ordinary thread, a quarter less for each step of niceness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveWay {
    /// A tenth of an ordinary thread's share.
    Mostly,
    /// A seventieth: it runs when the others leave a processor, more or less.
    Entirely,
}

impl GiveWay {
    fn niceness(self) -> i32 {
        match self {
            GiveWay::Mostly => 10,
            GiveWay::Entirely => 19,
        }
    }
}

/// A thread of this process, as the operating system numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadNumber(libc::pid_t);

impl ThreadNumber {
    /// That of the calling thread.
    #[must_use]
    pub fn current() -> ThreadNumber {
        // SAFETY: no arguments, no effects, never fails.
        ThreadNumber(unsafe { libc::gettid() })
    }

    /// Lowers the thread's share of a processor that others want as well. Usually it cannot be raised again.
    /// Returns whether the system agreed; it does not if the thread has ended.
    pub fn give_way(self, to: GiveWay) -> bool {
        let Ok(number) = libc::id_t::try_from(self.0) else {
            return false;
        };
        // SAFETY: plain numbers; on Linux the priority of a process is that of the thread with this number.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, number, to.niceness()) == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::{GiveWay, ThreadNumber};

    fn niceness() -> i32 {
        // SAFETY: plain numbers; 0 is the calling thread.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    #[test]
    fn one_thread_gives_way_and_the_others_do_not() {
        let before = niceness();
        for (to, expected) in [(GiveWay::Mostly, 10), (GiveWay::Entirely, 19)] {
            let (tell, number) = std::sync::mpsc::channel();
            let (go, wait) = std::sync::mpsc::channel::<()>();
            let thread = std::thread::spawn(move || {
                tell.send(ThreadNumber::current()).unwrap();
                wait.recv().unwrap();
                niceness()
            });
            assert!(number.recv().unwrap().give_way(to));
            go.send(()).unwrap();
            assert_eq!(thread.join().unwrap(), expected);
            assert_eq!(niceness(), before);
        }
    }
}
