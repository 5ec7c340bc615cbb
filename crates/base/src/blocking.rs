//! Saying that the calling thread is about to wait.
//!
//! A server that answers many clients with few threads must know when one of them goes to sleep on behalf of
//! its client (for a lock, for the disk, for a query's next rows), so that another thread takes over the
//! rest. Whoever waits calls [`section`]; whoever runs threads for others installs a [`Watcher`] on them.
//! Without one, a section costs one look at a thread-local.

use std::cell::RefCell;
use std::sync::Arc;

/// Is told when the thread it watches begins and ends to wait. Calls are paired and do not nest.
pub trait Watcher {
    /// The thread may be away for long.
    fn begin(&self);
    /// It is back.
    fn end(&self);
}

struct Watched {
    watcher: Arc<dyn Watcher>,
    depth: u32,
}

thread_local! {
    static WATCHED: RefCell<Option<Watched>> = const { RefCell::new(None) };
}

/// From now on `watcher` hears of the waits of this thread.
pub fn watch(watcher: Arc<dyn Watcher>) {
    WATCHED.with_borrow_mut(|watched| *watched = Some(Watched { watcher, depth: 0 }));
}

/// The watcher, if this step changes whether the thread waits.
fn step(enter: bool) -> Option<Arc<dyn Watcher>> {
    WATCHED.with_borrow_mut(|watched| {
        let watched = watched.as_mut()?;
        if enter {
            watched.depth += 1;
        } else {
            watched.depth -= 1;
        }
        (watched.depth == u32::from(enter)).then(|| watched.watcher.clone())
    })
}

/// Ends the section, by a panic too.
struct Section;

impl Drop for Section {
    fn drop(&mut self) {
        if let Some(watcher) = step(false) {
            watcher.end();
        }
    }
}

/// Runs `wait`, which may block. Sections may nest; the outermost one counts.
pub fn section<T>(wait: impl FnOnce() -> T) -> T {
    if let Some(watcher) = step(true) {
        watcher.begin();
    }
    let _section = Section;
    wait()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

    use super::*;

    #[derive(Default)]
    struct Log {
        begun: AtomicI64,
        ended: AtomicI64,
    }

    impl Watcher for Log {
        fn begin(&self) {
            self.begun.fetch_add(1, SeqCst);
        }
        fn end(&self) {
            self.ended.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn the_outermost_section_counts_and_a_panic_ends_it() {
        let log = Arc::new(Log::default());
        assert_eq!(section(|| 1), 1, "without a watcher");
        watch(log.clone());
        let depth = section(|| section(|| (log.begun.load(SeqCst), log.ended.load(SeqCst))));
        assert_eq!(depth, (1, 0));
        assert_eq!(log.ended.load(SeqCst), 1);
        let caught = std::panic::catch_unwind(|| section(|| std::panic::resume_unwind(Box::new(()))));
        assert!(caught.is_err());
        assert_eq!((log.begun.load(SeqCst), log.ended.load(SeqCst)), (2, 2));
    }

    #[test]
    fn threads_are_watched_one_by_one() {
        let log = Arc::new(Log::default());
        let here = log.clone();
        std::thread::spawn(move || {
            watch(here);
            section(|| ());
        })
        .join()
        .unwrap();
        section(|| ());
        assert_eq!(log.begun.load(SeqCst), 1);
    }
}
