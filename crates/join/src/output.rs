//! What one worker has found and not handed on yet: chunks being filled.

use std::ops::ControlFlow;

use crate::error::JoinError;
use crate::tuple::{CHUNK_ROWS, Chunk, Consumer, Emit, Pair};

/// Rows of one kind being collected.
#[derive(Default)]
struct Rows {
    rows: Vec<u64>,
    has_begun: bool,
}

/// A worker's results on their way to its consumer.
pub(crate) struct Output<'c, C> {
    consumer: &'c mut C,
    emit: Emit,
    pairs: Box<[Pair; CHUNK_ROWS]>,
    pair_count: usize,
    probe_matched: Rows,
    probe_unmatched: Rows,
    build_matched: Rows,
    build_unmatched: Rows,
    /// Pairs that were handed on.
    handed_on: u64,
}

fn hand_on<C: Consumer>(consumer: &mut C, chunk: Chunk<'_>) -> Result<(), JoinError> {
    match consumer.take(chunk) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(JoinError::Stopped),
    }
}

impl Rows {
    /// Adds a row; a full chunk is handed on first.
    #[inline]
    fn push<C: Consumer>(
        &mut self,
        row: u64,
        consumer: &mut C,
        chunk: for<'a> fn(&'a [u64]) -> Chunk<'a>,
    ) -> Result<(), JoinError> {
        if self.rows.len() >= CHUNK_ROWS {
            self.flush(consumer, chunk)?;
        }
        self.rows.push(row);
        self.has_begun = true;
        Ok(())
    }

    fn flush<C: Consumer>(
        &mut self,
        consumer: &mut C,
        chunk: for<'a> fn(&'a [u64]) -> Chunk<'a>,
    ) -> Result<(), JoinError> {
        let outcome = match self.rows.is_empty() {
            true => Ok(()),
            false => hand_on(consumer, chunk(&self.rows)),
        };
        self.rows.clear();
        outcome
    }
}

impl<'c, C: Consumer> Output<'c, C> {
    pub(crate) fn new(consumer: &'c mut C, emit: Emit) -> Output<'c, C> {
        Output {
            consumer,
            emit,
            pairs: Box::new([Pair::default(); CHUNK_ROWS]),
            pair_count: 0,
            probe_matched: Rows::default(),
            probe_unmatched: Rows::default(),
            build_matched: Rows::default(),
            build_unmatched: Rows::default(),
            handed_on: 0,
        }
    }

    pub(crate) fn emit(&self) -> Emit {
        self.emit
    }

    /// Pairs so far.
    pub(crate) fn pair_total(&self) -> u64 {
        self.handed_on + self.pair_count as u64
    }

    /// Something was found already: the join cannot begin again in another way.
    pub(crate) fn has_begun(&self) -> bool {
        let rows = [
            &self.probe_matched,
            &self.probe_unmatched,
            &self.build_matched,
            &self.build_unmatched,
        ];
        self.pair_total() > 0 || rows.iter().any(|rows| rows.has_begun)
    }

    /// A pair, which must be asked for.
    #[inline(always)]
    pub(crate) fn pair(&mut self, build: u64, probe: u64) -> Result<(), JoinError> {
        if self.pair_count >= CHUNK_ROWS {
            self.flush_pairs()?;
        }
        if let Some(place) = self.pairs.get_mut(self.pair_count) {
            *place = Pair { build, probe };
            self.pair_count += 1;
        }
        Ok(())
    }

    /// A probe row, and whether it has a partner.
    #[inline]
    pub(crate) fn probe(&mut self, row: u64, is_matched: bool) -> Result<(), JoinError> {
        match is_matched {
            true if self.emit.probe_matched => self
                .probe_matched
                .push(row, self.consumer, |rows| Chunk::ProbeMatched(rows)),
            false if self.emit.probe_unmatched => self
                .probe_unmatched
                .push(row, self.consumer, |rows| Chunk::ProbeUnmatched(rows)),
            _ => Ok(()),
        }
    }

    /// A build row, and whether it has a partner.
    #[inline]
    pub(crate) fn build(&mut self, row: u64, is_matched: bool) -> Result<(), JoinError> {
        match is_matched {
            true if self.emit.build_matched => self
                .build_matched
                .push(row, self.consumer, |rows| Chunk::BuildMatched(rows)),
            false if self.emit.build_unmatched => self
                .build_unmatched
                .push(row, self.consumer, |rows| Chunk::BuildUnmatched(rows)),
            _ => Ok(()),
        }
    }

    #[cold]
    fn flush_pairs(&mut self) -> Result<(), JoinError> {
        let pairs = self.pairs.get(..self.pair_count).unwrap_or_default();
        self.handed_on += pairs.len() as u64;
        self.pair_count = 0;
        match pairs.is_empty() {
            true => Ok(()),
            false => hand_on(self.consumer, Chunk::Pairs(pairs)),
        }
    }

    /// Hands on what is left.
    pub(crate) fn finish(&mut self) -> Result<(), JoinError> {
        self.flush_pairs()?;
        let consumer = &mut *self.consumer;
        self.probe_matched
            .flush(consumer, |rows| Chunk::ProbeMatched(rows))?;
        self.probe_unmatched
            .flush(consumer, |rows| Chunk::ProbeUnmatched(rows))?;
        self.build_matched
            .flush(consumer, |rows| Chunk::BuildMatched(rows))?;
        self.build_unmatched
            .flush(consumer, |rows| Chunk::BuildUnmatched(rows))
    }
}
