//! How threads hand work and answers to each other, under a scheduler that tries orders of their steps:
//! nobody waits for ever, whoever brings work gets one answer, and the relief ends.
//!
//! The files under test are those of the engine (`role`, `ticket`), compiled here over `sync`, whose locks,
//! signals and atomics are points at which the scheduler may switch. A thread that waits for ever is a
//! deadlock, and the scheduler says so, with a schedule that repeats it. `WEFT_SCHEDULES` sets how many
//! orders are tried.

#![allow(dead_code, reason = "not everything of the files is used here")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "../../src/combiner.rs"]
mod combiner;
mod request;
mod sync;
#[path = "../../src/ticket.rs"]
mod ticket;

use std::sync::Arc;

use combiner::Combiner;
use request::Answer;
use shuttle::thread;
use sync::Mutex;
use ticket::{Responder, TicketCell};

type Request = (usize, Responder<usize>);

/// An engine of which nothing is left but its hand-over: answers are the numbers of the requests.
struct Engine {
    queue: Mutex<Vec<Request>>,
    combiner: Combiner<Vec<usize>>,
    /// Turns after which a caller calls the relief.
    time_slice: usize,
    /// The turn that loses its requests, as one that panics does.
    lost_turn: Option<usize>,
}

impl Engine {
    fn new(time_slice: usize, lost_turn: Option<usize>) -> Arc<Engine> {
        Arc::new(Engine {
            queue: Mutex::new(Vec::new()),
            combiner: Combiner::new(Vec::new()),
            time_slice,
            lost_turn,
        })
    }

    fn submit(&self, number: usize) -> Arc<TicketCell<Answer<usize>>> {
        let (ticket, responder) = TicketCell::with_responder();
        self.queue.lock().push((number, responder));
        self.serve();
        ticket
    }

    fn serve(&self) {
        let mut turns = 0;
        let work = |done: &mut Vec<usize>| {
            loop {
                if turns == self.time_slice {
                    return false;
                }
                turns += 1;
                let incoming = std::mem::take(&mut *self.queue.lock());
                if incoming.is_empty() {
                    return true;
                }
                let is_lost = self.lost_turn == Some(done.len());
                for (number, responder) in incoming {
                    done.push(number);
                    if !is_lost {
                        responder.fill(Ok(number));
                    }
                }
            }
        };
        self.combiner.serve(work, || !self.queue.lock().is_empty());
    }
}

/// Runs callers with two requests each, and the relief.
fn all_are_answered(callers: usize, time_slice: usize, lost_turn: Option<usize>) {
    let engine = Engine::new(time_slice, lost_turn);
    let hand_over = {
        let engine = Arc::clone(&engine);
        thread::spawn(move || engine.combiner.run_background(|| engine.serve()))
    };
    let callers: Vec<_> = (0..callers)
        .map(|caller| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                // One after the other, and two under way at once.
                let numbers = [2 * caller, 2 * caller + 1];
                let answer = |ticket: Arc<TicketCell<Answer<usize>>>| ticket.wait().unwrap();
                let answers = if caller == 0 {
                    numbers.map(|number| answer(engine.submit(number)))
                } else {
                    numbers.map(|number| engine.submit(number)).map(answer)
                };
                for (number, answer) in numbers.into_iter().zip(answers) {
                    assert!(lost_turn.is_some() || answer.is_ok());
                    assert!(answer.is_err() || answer.is_ok_and(|told| told == number));
                }
            })
        })
        .collect();
    let count = 2 * callers.len();
    for caller in callers {
        caller.join().unwrap();
    }
    engine.combiner.stop_background();
    hand_over.join().unwrap();
    let mut done = engine.combiner.with_state(|done| done.clone());
    done.sort_unstable();
    assert_eq!(done, (0..count).collect::<Vec<_>>(), "each once");
}

fn schedules() -> usize {
    let set = std::env::var("WEFT_SCHEDULES")
        .ok()
        .and_then(|text| text.parse().ok());
    set.unwrap_or(2_000)
}

fn explore(test: impl Fn() + Send + Sync + Copy + 'static) {
    shuttle::check_random(test, schedules());
    // Few switches at unlikely places: what random orders seldom meet.
    shuttle::check_pct(test, schedules(), 3);
}

#[test]
fn every_caller_gets_its_answer() {
    explore(|| all_are_answered(3, usize::MAX, None));
}

#[test]
fn the_background_sequencer_runs_what_callers_leave() {
    for time_slice in [1, 2] {
        explore(move || all_are_answered(2, time_slice, None));
    }
}

#[test]
fn lost_requests_leave_no_caller_waiting() {
    explore(|| all_are_answered(2, 2, Some(0)));
    explore(|| all_are_answered(2, usize::MAX, Some(2)));
}
