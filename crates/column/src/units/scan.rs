//! The operation: task and result, their encodings, and the look at an answer.
//!
//! ```text
//! task     magic "WSC2" | result u8 (0 bitmap, 1 row ids) | parts u32, of each:
//!          width u32 | codes u32
//!          | 0 u8 | low u32 | high u32                        range, both ends included
//!          | 1 u8 | words u32 | words u64                     set, a bit for each code
//! result   matches u32 | bitmap, u64 for each 64 codes   or   row ids, u32 each
//! ```
//!
//! Numbers are little endian. A part is a column of one region or segment: it has codes of its own width, and
//! a predicate of its own, because a value has another code in each. Its codes are the buffer of its number.
//! In a result the parts follow each other, each from a multiple of 64 on.
//!
//! Nothing in a result tells whether it is right, unlike in a merge. So the look at an answer counts its
//! matches and computes [`WORDS_CHECKED`] words drawn at random again: a result with a share `p` of wrong
//! words passes with a probability of `(1 - p)^16`. What is wrong in few words is left to comparing whole
//! results ([`weft_offload::SchedulerConfig::compare_per_million`]).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use weft_base::Prng;
use weft_base::codec::{ByteReader, ByteWriter, CodecError};
use weft_offload::{Buffer, Job, Operation, Urgency, job::Shape};
use weft_ops::packed::code_at;
use weft_ops::{crc32c, hash64};

use crate::packed::{Codes, Form, Predicate, row_ids};

const MAGIC: [u8; 4] = *b"WSC1";

/// Words of an answer that are computed again.
const WORDS_CHECKED: usize = 16;

/// Limit of a job: bits of a code.
pub const WIDTH: &str = "width";
/// Limit of a job: words of a set.
pub const SET_WORDS: &str = "set_words";
/// Limit of a job: parts.
pub const PARTS: &str = "parts";

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
    /// A bit for each code, each part from a word of its own on.
    Bitmap,
    /// The positions of the codes' bits in such a bitmap, ascending.
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

/// Codes of one column that are scanned for one predicate.
#[derive(Clone, Debug)]
pub struct ScanPart {
    /// Packed as `weft_ops::packed` says.
    pub codes: ScannedCodes,
    /// Bits of a code.
    pub width: u32,
    /// How many codes.
    pub count: u32,
    /// What is scanned for.
    pub predicate: ScanPredicate,
}

/// A scan of any number of parts.
#[derive(Clone, Debug)]
pub struct ScanTask {
    /// What is scanned, in the order of the result.
    pub parts: Vec<ScanPart>,
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

impl ScanPart {
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

    /// Words of its bitmap.
    pub(super) fn words(&self) -> usize {
        (self.count as usize).div_ceil(64)
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

    /// Bits of its last word that stand for no code.
    fn behind(&self) -> u64 {
        match self.count % 64 {
            0 => 0,
            used => u64::MAX << used,
        }
    }
}

impl From<ScanPart> for ScanTask {
    fn from(part: ScanPart) -> ScanTask {
        ScanTask {
            parts: vec![part],
            matches: Matches::Bitmap,
        }
    }
}

impl ScanTask {
    /// Words of the bitmap of all parts.
    pub(super) fn words(&self) -> usize {
        self.parts.iter().map(ScanPart::words).sum()
    }

    fn hash(&self) -> u64 {
        let mut bytes = Scan::encode(self);
        for part in &self.parts {
            if let ScannedCodes::Registered(buffer) = &part.codes {
                bytes.put_u64(buffer.id().handle);
                bytes.put_u64(buffer.id().generation);
            }
        }
        hash64(&bytes)
    }

    /// How many codes its parts have.
    #[must_use]
    pub fn codes(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.count)).sum()
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

    /// Whether these words are those of the result: their number, none of the bits behind a part's last code,
    /// and those that `draw` chooses.
    fn has_words(&self, word: impl Fn(usize) -> Option<u64>, draw: &mut Prng) -> bool {
        let mut starts = Vec::with_capacity(self.parts.len());
        let mut end = 0;
        for part in &self.parts {
            starts.push(end);
            end += part.words();
            if part.behind() != 0 && word(end - 1).is_none_or(|last| last & part.behind() != 0) {
                return false;
            }
        }
        let is_right = |at: usize| {
            // The last that begins here or before it: those before this one may have no words.
            let number = starts.partition_point(|start| *start <= at).checked_sub(1)?;
            let (part, start) = (self.parts.get(number)?, starts.get(number)?);
            Some(word(at)? == part.word(at - start))
        };
        end == 0 || (0..WORDS_CHECKED).all(|_| is_right(draw.below(end as u64) as usize) == Some(true))
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

fn decode_task(payload: &[u8], buffers: &[Bytes]) -> Result<ScanTask, CodecError> {
    let mut reader = ByteReader::new(payload);
    if reader.array::<4>()? != MAGIC {
        return Err(CodecError::new(0, "not a frame of this kind"));
    }
    let matches = match reader.u8()? {
        0 => Matches::Bitmap,
        1 => Matches::RowIds,
        _ => return Err(CodecError::new(4, "a form of results that there is not")),
    };
    if reader.u32()? as usize != buffers.len() {
        return Err(CodecError::new(5, "another number of parts than of buffers"));
    }
    let parts = buffers.iter().map(|codes| decode_part(&mut reader, codes));
    let parts = parts.collect::<Result<Vec<ScanPart>, CodecError>>()?;
    reader.finish()?;
    Ok(ScanTask { parts, matches })
}

fn decode_part(reader: &mut ByteReader<'_>, codes: &Bytes) -> Result<ScanPart, CodecError> {
    let (width, count) = (reader.u32()?, reader.u32()?);
    let at = reader.position();
    let predicate = match reader.u8()? {
        0 => ScanPredicate::Range(reader.u32()?, reader.u32()?),
        1 => {
            let words = reader.u32()? as usize;
            if words > reader.remaining() / 8 {
                return Err(CodecError::new(at, "a set of more words than follow"));
            }
            let words: Result<Vec<u64>, CodecError> = (0..words).map(|_| reader.u64()).collect();
            ScanPredicate::Set(words?.into())
        }
        _ => return Err(CodecError::new(at, "a kind of predicates that there is not")),
    };
    Ok(ScanPart {
        codes: ScannedCodes::Here(codes.clone()),
        width,
        count,
        predicate,
    })
}

impl Operation for Scan {
    const CODE: u8 = 3;
    const NAME: &'static str = "scan";
    const URGENCY: Urgency = Urgency::Urgent;

    type Task = ScanTask;
    type Output = ScanResult;
    type Error = ScanError;

    fn task_bytes(task: &ScanTask) -> u64 {
        task.parts.iter().map(|part| part.bytes().len() as u64).sum()
    }

    fn encode(task: &ScanTask) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_bytes(&MAGIC);
        out.put_u8(match task.matches {
            Matches::Bitmap => 0,
            Matches::RowIds => 1,
        });
        out.put_u32(u32::try_from(task.parts.len()).unwrap_or(u32::MAX));
        for part in &task.parts {
            out.put_u32(part.width);
            out.put_u32(part.count);
            match &part.predicate {
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
        }
        out
    }

    fn buffers(task: &ScanTask) -> Vec<Buffer> {
        let buffers = task.parts.iter().filter_map(|part| match &part.codes {
            ScannedCodes::Registered(buffer) => Some(buffer.clone()),
            ScannedCodes::Here(_) => None,
        });
        buffers.collect()
    }

    fn decode(payload: &Bytes, buffers: &[Bytes]) -> Result<ScanTask, String> {
        decode_task(payload, buffers).map_err(|error| error.to_string())
    }

    fn golden(task: &ScanTask) -> Result<ScanResult, ScanError> {
        let (form, mut words, mut of_part) = (Form::best(), Vec::new(), Vec::new());
        for part in &task.parts {
            part.codes()?
                .matching(form, part.predicate.as_codes(), &mut of_part);
            words.extend_from_slice(&of_part);
        }
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
        for part in &task.parts {
            part.codes().ok()?;
        }
        let (count, found) = ScanResult::decode(&answer, task.matches).ok()?;
        let words = task.words();
        // Drawn anew for each answer, and the same for the same one.
        let mut draw = Prng::new(u64::from(crc32c(&answer)) ^ task.hash());
        let is_right = match &found {
            Found::Bitmap(bits) => {
                bits.len() == words && task.has_words(|at| bits.get(at).copied(), &mut draw)
            }
            Found::RowIds(rows) => {
                rows.is_sorted_by(|a, b| a < b)
                    && rows.last().is_none_or(|last| (*last as usize) < 64 * words)
                    && task.has_words(|at| Some(word_of_rows(rows, at)), &mut draw)
            }
        };
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
        for part in &mut self.parts {
            if let ScannedCodes::Here(bytes) = &part.codes {
                part.codes = ScannedCodes::Registered(Buffer::new(bytes.clone()));
            }
        }
        let set_words = |part: &ScanPart| match &part.predicate {
            ScanPredicate::Range(..) => 0,
            ScanPredicate::Set(set) => set.len() as u64,
        };
        let most = |of: &dyn Fn(&ScanPart) -> u64| self.parts.iter().map(of).max().unwrap_or(0);
        let output_bytes_max = match self.matches {
            Matches::Bitmap => 8 * self.words() as u64 + 4,
            Matches::RowIds => 4 * self.parts.iter().map(|part| u64::from(part.count)).sum::<u64>() + 4,
        };
        let shape = Shape::new(output_bytes_max)
            .with(WIDTH, most(&|part| u64::from(part.width)))
            .with(SET_WORDS, most(&set_words))
            .with(PARTS, self.parts.len() as u64);
        Job::of::<Scan>(self, shape)
    }
}
