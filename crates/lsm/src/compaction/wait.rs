//! Waits for results of a compaction, unless the engine is being closed.
//!
//! A unit may take as long as its deadline allows, half a second and more; its answer is useless then, since
//! nothing is kept that was not installed.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::error::LsmError;

/// How often the waiting thread checks whether the engine is being closed.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The next answer; `None` if no sender is left.
///
/// # Errors
/// `Closed` if the engine is being closed before there is one.
pub(super) fn receive<T>(
    answers: &Receiver<T>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Option<T>, LsmError> {
    loop {
        match answers.recv_timeout(POLL_INTERVAL) {
            Ok(answer) => return Ok(Some(answer)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) if is_stopped() => return Err(LsmError::Closed),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn ready_answers_are_taken_and_none_is_awaited_at_the_end() {
        let (sender, answers) = channel();
        sender.send(7).unwrap();
        assert_eq!(receive(&answers, &|| true).unwrap(), Some(7));
        assert!(matches!(receive(&answers, &|| true), Err(LsmError::Closed)));
        let late = std::thread::spawn(move || {
            std::thread::sleep(3 * POLL_INTERVAL);
            sender.send(8).unwrap();
        });
        assert_eq!(receive(&answers, &|| false).unwrap(), Some(8));
        late.join().unwrap();
        assert_eq!(receive(&answers, &|| false).unwrap(), None);
    }
}
