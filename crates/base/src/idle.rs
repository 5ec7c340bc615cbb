//! What threads do before they sleep: give memory back, if the process's allocator wants to be asked for it.
//!
//! An allocator keeps what a thread has allocated with that thread, also when others have freed it, until the
//! thread asks for memory again. A thread that sleeps for a long time would keep it as long.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// At most this often: what was freed since then stays until the next time.
const EVERY: Duration = Duration::from_millis(200);

static HOOK: OnceLock<fn(Amount)> = OnceLock::new();
static RESTING: AtomicBool = AtomicBool::new(false);

/// How much a thread gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// What costs little, now and likely later: the thread will soon have work again.
    Some,
    /// All it can: the process has no work.
    All,
}

thread_local! {
    static LAST: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// What threads call before they sleep, now and then. The first call decides.
pub fn set_hook(hook: fn(Amount)) {
    let _ = HOOK.set(hook);
}

/// Tells whether the process rests, as a server does without connections: threads that are woken then give
/// back all they can before they sleep again.
pub fn set_resting(resting: bool) {
    RESTING.store(resting, Ordering::Relaxed);
}

/// For threads whose sleep is short as a rule: gives back memory only while the process rests.
pub fn about_to_rest() {
    if RESTING.load(Ordering::Relaxed)
        && let Some(hook) = HOOK.get()
    {
        hook(Amount::All);
    }
}

/// Tells that this thread is about to sleep, perhaps for a long time. Cheap.
pub fn about_to_sleep() {
    let Some(hook) = HOOK.get() else { return };
    if RESTING.load(Ordering::Relaxed) {
        return hook(Amount::All);
    }
    let is_due = LAST.with(|last| {
        let now = Instant::now();
        let is_due = last.get().is_none_or(|last| now.duration_since(last) >= EVERY);
        if is_due {
            last.set(Some(now));
        }
        is_due
    });
    if is_due {
        hook(Amount::Some);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static CALLS: AtomicU32 = AtomicU32::new(0);
    const ALL: u32 = 1000;

    #[test]
    fn each_thread_calls_the_hook_now_and_then() {
        about_to_sleep();
        set_hook(|amount| {
            let calls = if amount == Amount::All { ALL } else { 1 };
            CALLS.fetch_add(calls, Ordering::Relaxed);
        });
        for thread in 1..=2 {
            std::thread::spawn(|| (0..1000).for_each(|_| about_to_sleep()))
                .join()
                .unwrap();
            let calls = CALLS.load(Ordering::Relaxed);
            assert!((thread..thread + 10).contains(&calls), "{calls}");
        }
        std::thread::sleep(EVERY);
        about_to_sleep();
        about_to_rest();
        assert!((3..100).contains(&CALLS.load(Ordering::Relaxed)));
        set_resting(true);
        about_to_rest();
        about_to_sleep();
        set_resting(false);
        about_to_rest();
        let calls = CALLS.load(Ordering::Relaxed);
        assert!((2 * ALL..3 * ALL).contains(&calls), "{calls}");
    }
}
