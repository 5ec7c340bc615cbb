//! Tickets on real threads; `tests/handover` steps them. A file of its own, since that compiles `ticket` too.

use crate::request::Answer;
use crate::ticket::TicketCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;
use weft_types::SqlState;

#[test]
fn the_first_answer_is_final() {
    let cell = TicketCell::new();
    cell.fill(1);
    cell.fill(2);
    assert!(cell.is_done());
    assert_eq!(cell.wait(), Some(1));
}

#[test]
fn a_request_that_is_lost_is_answered_with_an_error() {
    let (cell, responder) = TicketCell::<Answer<u8>>::with_responder();
    drop(responder);
    let refused = cell.wait().unwrap().unwrap_err();
    assert_eq!(refused.error.state, SqlState::INTERNAL_ERROR);
    let (cell, responder) = TicketCell::<Answer<u8>>::with_responder();
    responder.fill(Ok(3));
    drop(responder);
    assert_eq!(cell.wait().unwrap().unwrap(), 3);
}

#[test]
fn a_waiter_is_woken_from_another_thread() {
    let cell = TicketCell::new();
    let other = Arc::clone(&cell);
    let thread = std::thread::spawn(move || other.wait());
    std::thread::sleep(Duration::from_millis(5));
    cell.fill(7);
    assert_eq!(thread.join().unwrap(), Some(7));
}

#[test]
fn a_waker_is_called_once_the_answer_is_there() {
    struct Count(std::sync::atomic::AtomicUsize);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let count = Arc::new(Count(Default::default()));
    let waker = Waker::from(Arc::clone(&count));
    let cell = TicketCell::new();
    assert_eq!(cell.poll(&waker), None);
    assert_eq!(
        cell.poll(&waker),
        None,
        "the later waker replaces the earlier one"
    );
    cell.fill(3);
    cell.fill(4);
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert_eq!(cell.poll(&waker), Some(3));
    assert_eq!(cell.poll(&waker), None, "taken");
}

#[test]
fn a_bounded_wait_ends_without_an_answer() {
    let cell: Arc<TicketCell<u8>> = TicketCell::new();
    assert_eq!(cell.wait_for(Duration::from_millis(1)), None);
}
