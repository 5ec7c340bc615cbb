//! Where a phase of a join gets its tuples from, a morsel at a time: a caller's source, parts of a partition
//! in memory, or blocks on disk.

use crate::error::JoinError;
use crate::tuple::{MORSEL_TUPLES, Source, Tuple};

/// Inputs by morsel.
pub(crate) trait Feed: Sync {
    /// A tuple, or an item of a form.
    type Item: Copy + Send;

    /// How many inputs there are.
    fn len(&self) -> usize;

    /// How many morsels they come in.
    fn morsels(&self) -> usize;

    /// Whether reading everything several times costs little.
    fn is_cheap(&self) -> bool {
        true
    }

    /// One morsel: a slice of the feed's own, or what was put into `space`.
    fn read<'a>(
        &'a self,
        morsel: usize,
        space: &'a mut Vec<Self::Item>,
    ) -> Result<&'a [Self::Item], JoinError>;
}

/// A caller's tuples, from one position to another.
#[derive(Clone, Copy)]
pub(crate) struct Raw<'a> {
    source: &'a dyn Source,
    first: usize,
    end: usize,
}

impl<'a> Raw<'a> {
    pub(crate) fn new(source: &'a dyn Source) -> Raw<'a> {
        let end = source.len();
        Raw {
            source,
            first: 0,
            end,
        }
    }

    /// Visits so many tuples, evenly spread over all.
    pub(crate) fn sample(&self, count: usize, mut visit: impl FnMut(&Tuple)) -> Result<(), JoinError> {
        let len = self.end - self.first;
        let count = count.min(len);
        let mut space = Vec::new();
        for number in 0..count {
            let at = self.first + (len as u128 * number as u128 / count as u128) as usize;
            match self.source.read(at, 1, &mut space) {
                [tuple] => visit(tuple),
                _ => return Err(JoinError::Source),
            }
        }
        Ok(())
    }

    /// One of so many nearly equal parts.
    pub(crate) fn part(&self, number: usize, parts: usize) -> Raw<'a> {
        let len = (self.end - self.first) as u128;
        let bound = |at: usize| self.first + (len * at as u128 / parts.max(1) as u128) as usize;
        Raw {
            source: self.source,
            first: bound(number),
            end: bound(number + 1),
        }
    }
}

impl Feed for Raw<'_> {
    type Item = Tuple;

    fn len(&self) -> usize {
        self.end - self.first
    }

    fn morsels(&self) -> usize {
        self.len().div_ceil(MORSEL_TUPLES)
    }

    fn read<'a>(&'a self, morsel: usize, space: &'a mut Vec<Tuple>) -> Result<&'a [Tuple], JoinError> {
        let first = self.end.min(self.first + morsel * MORSEL_TUPLES);
        let count = MORSEL_TUPLES.min(self.end - first);
        let tuples = self.source.read(first, count, space);
        match tuples.len() == count {
            true => Ok(tuples),
            false => Err(JoinError::Source),
        }
    }
}

/// Items in memory, in any number of pieces.
pub(crate) struct Pieces<'a, I> {
    morsels: Vec<&'a [I]>,
    len: usize,
}

impl<'a, I> Pieces<'a, I> {
    pub(crate) fn new(pieces: impl Iterator<Item = &'a [I]>) -> Pieces<'a, I> {
        let morsels: Vec<&[I]> = pieces.flat_map(|piece| piece.chunks(MORSEL_TUPLES)).collect();
        let len = morsels.iter().map(|morsel| morsel.len()).sum();
        Pieces { morsels, len }
    }
}

impl<I: Copy + Send + Sync> Feed for Pieces<'_, I> {
    type Item = I;

    fn len(&self) -> usize {
        self.len
    }

    fn morsels(&self) -> usize {
        self.morsels.len()
    }

    fn read<'a>(&'a self, morsel: usize, _: &'a mut Vec<I>) -> Result<&'a [I], JoinError> {
        Ok(self.morsels.get(morsel).copied().unwrap_or_default())
    }
}
