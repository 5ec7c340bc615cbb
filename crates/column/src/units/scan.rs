//! The operation: task and result, their encodings, and the look at an answer.
//!
//! ```text
//! task     magic "WSC1" | width u32 | codes u32 | result u8 (0 bitmap, 1 row ids)
//!          | 0 u8 | low u32 | high u32                        range, both ends included
//!          | 1 u8 | words u32 | words u64                     set, a bit for each code
//! result   matches u32 | bitmap, u64 for each 64 codes   or   row ids, u32 each
//! ```
//!
//! Numbers are little endian. The codes themselves are the task's one buffer. Nothing in a result tells
//! whether it is right, unlike in a merge. So the look at an answer counts its matches and computes
//! [`WORDS_CHECKED`] words drawn at random again: a result with a share `p` of wrong words passes with a
//! probability of `(1 - p)^16`. What is wrong in few words is left to comparing whole results
//! ([`weft_offload::SchedulerConfig::compare_per_million`]).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use weft_base::Prng;
use weft_base::codec::{ByteReader, ByteWriter, CodecError};
use weft_offload::{Buffer, Job, Operation, job::Shape};
use weft_ops::packed::code_at;
use weft_ops::{crc32c, hash64};

use crate::packed::{Codes, Form, Predicate, row_ids};

const MAGIC: [u8; 4] = *b"WSC1";

/// Words of an answer that are computed again.
const WORDS_CHECKED: usize = 16;

/// Part of a job: bits of a code.
pub const WIDTH: &str = "width";
/// Part of a job: words of a set.
pub const SET_WORDS: &str = "set_words";

/// Finds the codes that satisfy a predicate.
#[derive(Debug)]
pub struct Scan;

/// What is scanned for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScanPredicate {
    /// Codes of this range, both ends included.
    Range(u32, u32),
    /// Codes of a set: a bit for each, as many as there are words for.
    Set(Arc<[u64]>),
}

impl ScanPredicate {
    /// For the scans of this process.
    #[must_use]
    pub fn as_codes(&self) -> Predicate<'_> {
        match self {
            ScanPredicate::Range(low, high) => Predicate::Range(*low, *high),
            ScanPredicate::Set(set) => Predicate::Set(set),
        }
    }
}

/// The form of a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Matches {
    /// A bit for each code.
    Bitmap,
    /// The positions of the codes, ascending.
    RowIds,
}

/// Codes as a task has them.
#[derive(Clone, Debug)]
pub enum ScannedCodes {
    /// Registered, by a requester.
    Registered(Buffer),
    /// The contents of a unit's buffer.
    Here(Bytes),
}

impl ScannedCodes {
    fn bytes(&self) -> &Bytes {
        match self {
            ScannedCodes::Registered(buffer) => buffer.bytes(),
            ScannedCodes::Here(bytes) => bytes,
        }
    }
}

/// A scan of one column's codes.
#[derive(Clone, Debug)]
pub struct ScanTask {
    /// Packed as `weft_ops::packed` says.
    pub codes: ScannedCodes,
    /// Bits of a code.
    pub width: u32,
    /// How many codes.
    pub count: u32,
    /// What is scanned for.
    pub predicate: ScanPredicate,
    /// What comes out.
    pub matches: Matches,
}

/// Fewer bytes than so many codes of this width have, or a width that there is not. Codes of no bits are not
/// scanned: they are all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanError;

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not so many codes of this width")
    }
}

/// What a scan found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanResult {
    /// The hash of the task that it belongs to.
    task: u64,
    /// The number of codes that satisfy the predicate.
    pub count: u32,
    /// Which.
    pub found: Found,
}

/// A result in either form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// See [`Matches::Bitmap`].
    Bitmap(Vec<u64>),
    /// See [`Matches::RowIds`].
    RowIds(Vec<u32>),
}

impl ScanTask {
    /// The codes, if there are as many bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn codes(&self) -> Result<Codes<'_>, ScanError> {
        if self.width == 0 {
            return Err(ScanError);
        }
        Codes::new(self.codes.bytes(), self.width, self.count as usize).map_err(|_| ScanError)
    }

    pub(super) fn bytes(&self) -> &Bytes {
        self.codes.bytes()
    }

    /// Whether a code satisfies the predicate.
    fn accepts(&self, code: u32) -> bool {
        match &self.predicate {
            ScanPredicate::Range(low, high) => (*low..=*high).contains(&code),
            ScanPredicate::Set(set) => {
                let word = set.get(code as usize / 64);
                word.is_some_and(|word| word >> (code % 64) & 1 == 1)
            }
        }
    }

    /// 64 codes as the predicate finds them, each looked at by itself.
    fn word(&self, at: usize) -> u64 {
        let first = 64 * at;
        let end = (first + 64).min(self.count as usize);
        (first..end).fold(0, |word, code| {
            let accepted = self.accepts(code_at(self.codes.bytes(), self.width, code));
            word | u64::from(accepted) << (code - first)
        })
    }

    fn words(&self) -> usize {
        (self.count as usize).div_ceil(64)
    }

    fn hash(&self) -> u64 {
        let mut bytes = Scan::encode(self);
        if let ScannedCodes::Registered(buffer) = &self.codes {
            bytes.put_u64(buffer.id().handle);
            bytes.put_u64(buffer.id().generation);
        }
        hash64(&bytes)
    }

    fn result(&self, found: Found) -> ScanResult {
        let count = match &found {
            Found::Bitmap(words) => words.iter().map(|word| word.count_ones()).sum(),
            Found::RowIds(rows) => u32::try_from(rows.len()).unwrap_or(u32::MAX),
        };
        ScanResult {
            task: self.hash(),
            count,
            found,
        }
    }
}

impl ScanResult {
    /// As a unit sends it.
    pub(super) fn encode(found: &Found, count: u32) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(count);
        match found {
            Found::Bitmap(words) => words.iter().for_each(|word| out.put_u64(*word)),
            Found::RowIds(rows) => rows.iter().for_each(|row| out.put_u32(*row)),
        }
        out
    }

    fn decode(bytes: &[u8], matches: Matches) -> Result<(u32, Found), CodecError> {
        let mut reader = ByteReader::new(bytes);
        let count = reader.u32()?;
        let found = match matches {
            Matches::Bitmap => {
                let mut words = Vec::with_capacity(reader.remaining() / 8);
                while reader.remaining() > 0 {
                    words.push(reader.u64()?);
                }
                Found::Bitmap(words)
            }
            Matches::RowIds => {
                let mut rows = Vec::with_capacity(reader.remaining() / 4);
                while reader.remaining() > 0 {
                    rows.push(reader.u32()?);
                }
                Found::RowIds(rows)
            }
        };
        Ok((count, found))
    }
}

/// The 64 bits from code `64 * at` on of a list of ascending rows.
fn word_of_rows(rows: &[u32], at: usize) -> u64 {
    let first = 64 * at as u64;
    let start = rows.partition_point(|row| u64::from(*row) < first);
    let inside = rows.get(start..).unwrap_or_default().iter();
    let inside = inside.take_while(|row| u64::from(**row) < first + 64);
    inside.fold(0, |word, row| word | 1 << (u64::from(*row) - first))
}

fn decode_task(payload: &[u8], codes: &Bytes) -> Result<ScanTask, CodecError> {
    let mut reader = ByteReader::new(payload);
    if reader.array::<4>()? != MAGIC {
        return Err(CodecError::new(0, "not a frame of this kind"));
    }
    let (width, count) = (reader.u32()?, reader.u32()?);
    let matches = match reader.u8()? {
        0 => Matches::Bitmap,
        1 => Matches::RowIds,
        _ => return Err(CodecError::new(12, "a form of results that there is not")),
    };
    let predicate = match reader.u8()? {
        0 => ScanPredicate::Range(reader.u32()?, reader.u32()?),
        1 => {
            let words = reader.u32()? as usize;
            if words > reader.remaining() / 8 {
                return Err(CodecError::new(14, "a set of more words than follow"));
            }
            let words: Result<Vec<u64>, CodecError> = (0..words).map(|_| reader.u64()).collect();
            ScanPredicate::Set(words?.into())
        }
        _ => return Err(CodecError::new(13, "a kind of predicates that there is not")),
    };
    if reader.remaining() > 0 {
        return Err(CodecError::new(14, "bytes behind the task"));
    }
    Ok(ScanTask {
        codes: ScannedCodes::Here(codes.clone()),
        width,
        count,
        predicate,
        matches,
    })
}

impl Operation for Scan {
    const CODE: u8 = 3;
    const NAME: &'static str = "scan";

    type Task = ScanTask;
    type Output = ScanResult;
    type Error = ScanError;

    fn task_bytes(task: &ScanTask) -> u64 {
        task.codes.bytes().len() as u64
    }

    fn encode(task: &ScanTask) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_bytes(&MAGIC);
        out.put_u32(task.width);
        out.put_u32(task.count);
        out.put_u8(match task.matches {
            Matches::Bitmap => 0,
            Matches::RowIds => 1,
        });
        match &task.predicate {
            ScanPredicate::Range(low, high) => {
                out.put_u8(0);
                out.put_u32(*low);
                out.put_u32(*high);
            }
            ScanPredicate::Set(set) => {
                out.put_u8(1);
                out.put_u32(u32::try_from(set.len()).unwrap_or(u32::MAX));
                set.iter().for_each(|word| out.put_u64(*word));
            }
        }
        out
    }

    fn buffers(task: &ScanTask) -> Vec<Buffer> {
        match &task.codes {
            ScannedCodes::Registered(buffer) => vec![buffer.clone()],
            ScannedCodes::Here(_) => Vec::new(),
        }
    }

    fn decode(payload: &Bytes, buffers: &[Bytes]) -> Result<ScanTask, String> {
        let [codes] = buffers else {
            return Err("a scan has one buffer".to_owned());
        };
        decode_task(payload, codes).map_err(|error| error.to_string())
    }

    fn golden(task: &ScanTask) -> Result<ScanResult, ScanError> {
        let predicate = task.predicate.as_codes();
        let (form, mut words) = (Form::best(), Vec::new());
        task.codes()?.matching(form, predicate, &mut words);
        Ok(task.result(match task.matches {
            Matches::Bitmap => Found::Bitmap(words),
            Matches::RowIds => {
                let mut rows = Vec::new();
                row_ids(form, &words, 0, &mut rows);
                Found::RowIds(rows)
            }
        }))
    }

    fn output_to_bytes(output: &ScanResult) -> Bytes {
        ScanResult::encode(&output.found, output.count).into()
    }

    fn output_bytes(output: &ScanResult) -> u64 {
        match &output.found {
            Found::Bitmap(words) => 8 * words.len() as u64,
            Found::RowIds(rows) => 4 * rows.len() as u64,
        }
    }

    fn look(task: &ScanTask, answer: Bytes) -> Option<ScanResult> {
        task.codes().ok()?;
        let (count, found) = ScanResult::decode(&answer, task.matches).ok()?;
        let words = task.words();
        let is_whole = match &found {
            Found::Bitmap(bits) => bits.len() == words,
            Found::RowIds(rows) => {
                rows.is_sorted_by(|a, b| a < b) && rows.last().is_none_or(|last| *last < task.count)
            }
        };
        if !is_whole {
            return None;
        }
        // Drawn anew for each answer, and the same for the same one.
        let mut draw = Prng::new(u64::from(crc32c(&answer)) ^ task.hash());
        let agrees = |at: usize| {
            let word = match &found {
                Found::Bitmap(bits) => bits.get(at).copied(),
                Found::RowIds(rows) => Some(word_of_rows(rows, at)),
            };
            word == Some(task.word(at))
        };
        // The last word has the bits behind the last code.
        let is_right = words == 0
            || (agrees(words - 1) && (0..WORDS_CHECKED).all(|_| agrees(draw.below(words as u64) as usize)));
        let result = task.result(found);
        (is_right && result.count == count).then_some(result)
    }

    fn is_of(task: &ScanTask, output: &ScanResult) -> bool {
        output.task == task.hash()
    }
}

impl ScanTask {
    /// The scan as a job.
    #[must_use]
    pub fn job(mut self) -> Job {
        if let ScannedCodes::Here(bytes) = &self.codes {
            self.codes = ScannedCodes::Registered(Buffer::new(bytes.clone()));
        }
        let set_words = match &self.predicate {
            ScanPredicate::Range(..) => 0,
            ScanPredicate::Set(set) => set.len() as u64,
        };
        let output_bytes_max = match self.matches {
            Matches::Bitmap => 8 * self.words() as u64 + 4,
            Matches::RowIds => 4 * u64::from(self.count) + 4,
        };
        let shape = Shape::new(output_bytes_max)
            .with(WIDTH, u64::from(self.width))
            .with(SET_WORDS, set_words);
        Job::of::<Scan>(self, shape)
    }
}
