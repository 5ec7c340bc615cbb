//! A server's log messages while its database is being opened.
//!
//! Opening loads all rows and builds all indexes, which takes time in proportion to the rows. A
//! line every few seconds shows the progress, so that a busy server is not mistaken for one that
//! hangs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use weft_base::Progress;

use crate::failure::Failure;

/// Interval between lines; a database that opens faster prints none.
pub(crate) const LINE_EVERY: Duration = Duration::from_secs(2);

/// Does the work while periodically reporting `progress`.
pub(crate) fn with_progress<T>(
    progress: &Progress,
    every: Duration,
    say: impl Fn(&str) + Send,
    work: impl FnOnce() -> T,
) -> T {
    let began = Instant::now();
    thread::scope(|scope| {
        let (working, is_over) = mpsc::channel::<()>();
        scope.spawn(move || {
            while is_over.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let words = progress.reached().map(|reached| reached.to_string());
                let words = words.unwrap_or_else(|| "looking at its files".to_owned());
                say(&format!(
                    "opening, {:.0} s: {words}",
                    began.elapsed().as_secs_f64()
                ));
            }
        });
        let done = work();
        drop(working);
        done
    })
}

/// Lets nobody but its owner into a database's directory: rows and verifiers of passwords are there.
///
/// # Errors
/// The directory is another user's.
pub(crate) fn keep_private(dir: &Path) -> Result<(), Failure> {
    fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(|error| {
        let dir = dir.display();
        Failure::Environment(format!("cannot keep other users out of {dir}: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const EVERY: Duration = Duration::from_millis(5);

    /// Waits until a reported line contains these words.
    fn until(said: &Mutex<Vec<String>>, words: &str) {
        for _ in 0..10_000 {
            if said.lock().unwrap().iter().any(|line| line.contains(words)) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("{words:?} is not in {:?}", said.lock().unwrap());
    }

    #[test]
    fn only_the_owner_enters_a_database() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        keep_private(dir.path()).unwrap();
        assert_eq!(
            fs::metadata(dir.path()).unwrap().permissions().mode() & 0o777,
            0o700
        );
    }

    #[test]
    fn progress_is_printed_until_the_work_is_done() {
        let (progress, said) = (Progress::default(), Mutex::new(Vec::new()));
        let say = |line: &str| said.lock().unwrap().push(line.to_owned());
        let result = with_progress(&progress, EVERY, say, || {
            until(&said, "looking at its files");
            progress.begin("loading rows", "parts", 10);
            progress.add(4, 77);
            until(&said, "loading rows: 4 of 10 parts, 77 rows");
            progress.begin("replaying the log", "batches", 3);
            until(&said, "replaying the log: 0 of 3 batches");
            "opened"
        });
        assert_eq!(result, "opened");
        let lines = said.lock().unwrap().len();
        thread::sleep(4 * EVERY);
        assert_eq!(said.lock().unwrap().len(), lines, "nothing is said afterwards");
    }

    #[test]
    fn quick_or_failed_work_prints_nothing() {
        let progress = Progress::default();
        let say = |line: &str| panic!("{line}");
        assert_eq!(
            with_progress(&progress, Duration::from_secs(600), say, || Err::<(), _>(7)),
            Err(7)
        );
    }
}
