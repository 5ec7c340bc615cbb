//! What ranks tell each other before and while they join: sizes, bounds, options, and whether one gave up.
//!
//! A rank that fails by itself (its budget, its input, its caller) goes on to take part in what the others
//! wait for, and tells them at the next status, which all ranks reach. So nobody waits for a rank that has
//! left, and all agree on which joins ended how.

use weft_fabric::Rank;

use super::error::{RankJoinError, Reason};
use super::options::RankOptions;
use crate::error::JoinError;
use crate::options::Compression;
use crate::tuple::Ranges;

/// Raised whenever ranks of another version could not join with these.
const VERSION: u64 = 1;
/// Words that a rank may give to one collective.
pub(super) const WORDS_MAX: usize = 512;
/// Words of a survey.
const SURVEY_WORDS: usize = 11;
/// Joins that may be run at once.
pub(crate) const JOINS_MAX: usize = WORDS_MAX / SURVEY_WORDS;

/// What one rank has for a join.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// Tuples, by side.
    pub(super) tuples: [u64; 2],
    /// Bounds, by side; `None` where they are not known or not wanted.
    pub(super) ranges: [Option<Ranges>; 2],
}

/// What all ranks have for a join.
#[derive(Clone, Copy, Debug)]
pub(super) struct Survey {
    /// Tuples of all ranks, by side.
    pub(super) tuples: [u64; 2],
    /// Most tuples that one rank has, by side.
    pub(super) tuples_max: [u64; 2],
    /// Bounds of all ranks' tuples; `None` if one rank does not know its own.
    pub(super) ranges: [Option<Ranges>; 2],
}

/// A word that is the same for the same options. FNV-1a of their text.
fn fingerprint(options: &RankOptions<'_>) -> u64 {
    let text = format!(
        "{VERSION} {:?} {:?} {:?} {:?} {:?}",
        options.algorithm, options.compression, options.emit, options.tuning, options.network
    );
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Surveys several joins in one collective.
pub(super) fn survey(rank: &Rank, joins: &[(&RankOptions<'_>, Share)]) -> Result<Vec<Survey>, RankJoinError> {
    let mut words = Vec::with_capacity(joins.len() * SURVEY_WORDS);
    for (options, share) in joins {
        words.push(fingerprint(options));
        words.extend(share.tuples);
        for ranges in share.ranges {
            let (keys, rows) = match ranges {
                Some(ranges) => (ranges.keys, ranges.rows),
                // No bounds are like this: an empty side has both ends the other way round.
                None => ((u64::MAX, 1), (u64::MAX, 1)),
            };
            words.extend([keys.0, keys.1, rows.0, rows.1]);
        }
    }
    let all = rank.all_gather(&words)?;
    let mut found: Vec<Survey> = joins.iter().map(|_| Survey::EMPTY).collect();
    let mut other_options = None;
    for (other, theirs) in (0_u32..).zip(&all) {
        if theirs.len() != words.len() {
            other_options = other_options.or(Some(other));
            continue;
        }
        let mine = words.as_chunks::<SURVEY_WORDS>().0;
        let theirs = theirs.as_chunks::<SURVEY_WORDS>().0;
        for ((survey, theirs), mine) in found.iter_mut().zip(theirs).zip(mine) {
            if theirs.first() != mine.first() {
                other_options = other_options.or(Some(other));
            }
            survey.add(theirs);
        }
    }
    // Ranks that agree with each other must not wait for one that does not: all end here.
    let statuses = rank.all_gather(&[u64::from(other_options.is_some())])?;
    let other = (0_u32..)
        .zip(&statuses)
        .find(|(_, words)| words.first() != Some(&0));
    match other_options.or(other.map(|(rank, _)| rank)) {
        Some(rank) => Err(RankJoinError::Disagreement { rank }),
        None => Ok(found),
    }
}

impl Survey {
    const EMPTY: Survey = Survey {
        tuples: [0; 2],
        tuples_max: [0; 2],
        ranges: [Some(Ranges::EMPTY); 2],
    };

    fn add(&mut self, words: &[u64; SURVEY_WORDS]) {
        let [_, build, probe, bounds @ ..] = *words;
        let sides = self.tuples.iter_mut().zip(&mut self.tuples_max);
        for ((all, most), tuples) in sides.zip([build, probe]) {
            *all = all.saturating_add(tuples);
            *most = tuples.max(*most);
        }
        for (all, words) in self.ranges.iter_mut().zip(bounds.as_chunks::<4>().0) {
            let [low, high, row_low, row_high] = *words;
            let theirs = Ranges {
                keys: (low, high),
                rows: (row_low, row_high),
            };
            match all {
                Some(all) if (low, high) != (u64::MAX, 1) => all.unite(&theirs),
                _ => *all = None,
            }
        }
    }
}

/// The bounds that a rank tells of a side.
pub(super) fn own_ranges(
    compression: Compression,
    len: usize,
    told: Option<Ranges>,
    find: impl FnOnce() -> Result<Ranges, JoinError>,
) -> Result<Option<Ranges>, JoinError> {
    match (compression, told) {
        (Compression::Never, _) => Ok(None),
        _ if len == 0 => Ok(Some(Ranges::EMPTY)),
        (_, Some(ranges)) => Ok(Some(ranges)),
        (Compression::WhereKnown, None) => Ok(None),
        (Compression::Always, None) => find().map(Some),
    }
}

/// Tells the others whether this rank can go on, and hears whether they can. Returns when all have come.
pub(super) fn status(rank: &Rank, own: Result<(), JoinError>) -> Result<(), RankJoinError> {
    let word = own.as_ref().err().map_or(0, |error| Reason::of(error).word());
    let all = rank.all_gather(&[word])?;
    own?;
    let gave_up = (0_u32..)
        .zip(&all)
        .map(|(rank, words)| (rank, words.first().copied().unwrap_or(u64::MAX)))
        .find(|(_, word)| *word != 0);
    match gave_up {
        Some((rank, word)) => Err(RankJoinError::Peer {
            rank,
            reason: Reason::from_word(word),
        }),
        None => Ok(()),
    }
}

/// What all ranks gave, one after the other, in the order of ranks: any number of words each.
pub(super) fn gather(rank: &Rank, words: &[u64]) -> Result<Vec<u64>, RankJoinError> {
    let lengths = rank.all_gather(&[words.len() as u64])?;
    let most = lengths.iter().flatten().copied().max().unwrap_or(0);
    let rounds = usize::try_from(most).unwrap_or(usize::MAX).div_ceil(WORDS_MAX);
    let mut all: Vec<Vec<u64>> = vec![Vec::new(); rank.count() as usize];
    let mut rest = words;
    for _ in 0..rounds {
        let (now, later) = rest.split_at(rest.len().min(WORDS_MAX));
        rest = later;
        for (all, words) in all.iter_mut().zip(rank.all_gather(now)?) {
            all.extend(words);
        }
    }
    Ok(all.concat())
}

/// Sends each rank words of its own, any number; returns what each rank sent here.
pub(super) fn exchange(rank: &Rank, words: &[Vec<u64>]) -> Result<Vec<Vec<u64>>, RankJoinError> {
    let longest = words.iter().map(Vec::len).max().unwrap_or(0) as u64;
    let most = rank.all_gather(&[longest])?;
    let most = most.iter().flatten().copied().max().unwrap_or(0);
    let rounds = usize::try_from(most).unwrap_or(usize::MAX).div_ceil(WORDS_MAX);
    let mut all: Vec<Vec<u64>> = vec![Vec::new(); words.len()];
    for round in 0..rounds {
        let piece = |words: &Vec<u64>| {
            let rest = words.chunks(WORDS_MAX).nth(round);
            rest.unwrap_or_default().to_vec()
        };
        let pieces: Vec<Vec<u64>> = words.iter().map(piece).collect();
        for (all, words) in all.iter_mut().zip(rank.all_to_all(&pieces)?) {
            all.extend(words);
        }
    }
    Ok(all)
}
