//! A unit that computes within the poll, on the injected clock.
//!
//! Under a manual clock a run is a function of its inputs alone: which job is answered when, and which
//! deadline passes. The answer is due a fixed time, plus a time for each byte, after the submission; requests
//! are done one after another, as by a unit with one pipeline.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use weft_base::Clock;

use super::memory::BufferMemory;
use super::{Engine, Refusal, Unit, UnitSpec, Waker, answer};
use crate::wire::{Answer, AttemptId, Request};

/// The simulated duration of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulatedSpeed {
    /// Nanoseconds for each job.
    pub job_ns: u64,
    /// Nanoseconds for each KiB of payload.
    pub kib_ns: u64,
}

/// See the module's head.
pub struct InlineUnit {
    spec: UnitSpec,
    engine: Box<dyn Engine>,
    clock: Arc<dyn Clock>,
    pace: SimulatedSpeed,
    /// Requests with the time at which each is done, ascending.
    line: VecDeque<(u64, Request, Option<Vec<Bytes>>)>,
    memory: BufferMemory,
}

impl InlineUnit {
    /// A unit that is idle.
    #[must_use]
    pub fn new(
        spec: UnitSpec,
        engine: Box<dyn Engine>,
        clock: Arc<dyn Clock>,
        pace: SimulatedSpeed,
    ) -> InlineUnit {
        InlineUnit {
            memory: BufferMemory::new(spec.buffer_bytes_max),
            spec,
            engine,
            clock,
            pace,
            line: VecDeque::new(),
        }
    }
}

impl Unit for InlineUnit {
    fn spec(&self) -> &UnitSpec {
        &self.spec
    }

    fn set_waker(&mut self, _: Waker) {}

    fn submit(&mut self, mut request: Request) -> Result<(), Refusal> {
        if self.line.len() >= self.spec.depth {
            return Err(Refusal::Busy);
        }
        let buffers = self.memory.take_in(&mut request);
        let starts = self.line.back().map_or(0, |(due, ..)| *due);
        let takes = self.pace.job_ns + self.pace.kib_ns * (request.payload.len() as u64).div_ceil(1024);
        let due = starts.max(self.clock.monotonic_nanos()) + takes;
        self.line.push_back((due, request, buffers));
        Ok(())
    }

    fn poll(&mut self, answers: &mut Vec<Answer>) {
        let now = self.clock.monotonic_nanos();
        while self.line.front().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, request, buffers)) = self.line.pop_front() else {
                return;
            };
            answers.push(answer(self.engine.as_mut(), &request, buffers.as_deref()));
        }
    }

    fn forget(&mut self, attempt: AttemptId) {
        self.line.retain(|(_, request, _)| request.attempt != attempt);
    }

    fn withdraw(&mut self, attempt: AttemptId) -> bool {
        // The first is running.
        let mut line = self.line.iter().skip(1);
        let waits = line.any(|(_, request, _)| request.attempt == attempt);
        if waits {
            self.forget(attempt);
        }
        waits
    }

    fn next_event_ns(&self) -> Option<u64> {
        self.line.front().map(|(due, ..)| *due)
    }
}
