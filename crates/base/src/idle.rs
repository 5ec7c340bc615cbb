//! What threads do before they sleep: give memory back, if the process's allocator wants to be asked for it.
//!
//! An allocator keeps what a thread has allocated with that thread, also when others have freed it, until the
//! thread asks for memory again. A thread that sleeps for a long time would keep it as long.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// At most this often: what was freed since then stays until the next time.
const EVERY: Duration = Duration::from_millis(200);

static HOOK: OnceLock<fn()> = OnceLock::new();

thread_local! {
    static LAST: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// What threads call before they sleep, now and then. The first call decides.
pub fn set_hook(hook: fn()) {
    let _ = HOOK.set(hook);
}

/// Tells that this thread is about to sleep, perhaps for a long time. Cheap.
pub fn about_to_sleep() {
    let Some(hook) = HOOK.get() else { return };
    let is_due = LAST.with(|last| {
        let now = Instant::now();
        let is_due = last.get().is_none_or(|last| now.duration_since(last) >= EVERY);
        if is_due {
            last.set(Some(now));
        }
        is_due
    });
    if is_due {
        hook();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static CALLS: AtomicU32 = AtomicU32::new(0);

    #[test]
    fn each_thread_calls_the_hook_now_and_then() {
        about_to_sleep();
        set_hook(|| {
            CALLS.fetch_add(1, Ordering::Relaxed);
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
        assert!(CALLS.load(Ordering::Relaxed) >= 3);
    }
}
