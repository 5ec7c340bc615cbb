//! Letting a thread whose work nobody waits for give way to all others.

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

    /// Lets the thread run only when the others leave it a processor, more or less: the lowest priority of
    /// ordinary threads. It cannot be raised again. Returns whether the system agreed; it does not if the
    /// thread has ended.
    pub fn give_way(self) -> bool {
        let Ok(number) = libc::id_t::try_from(self.0) else {
            return false;
        };
        // SAFETY: plain numbers; on Linux the priority of a process is that of the thread with this number.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, number, 19) == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::ThreadNumber;

    fn niceness() -> i32 {
        // SAFETY: plain numbers; 0 is the calling thread.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    #[test]
    fn one_thread_gives_way_and_the_others_do_not() {
        let before = niceness();
        let (tell, number) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(ThreadNumber::current()).unwrap();
            wait.recv().unwrap();
            niceness()
        });
        assert!(number.recv().unwrap().give_way());
        go.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), 19);
        assert_eq!(niceness(), before);
    }
}
