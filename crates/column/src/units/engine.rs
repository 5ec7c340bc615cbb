//! A model of DBA's device: scan engines that share the channels of the memory next to them, with simulated
//! cycles.
//!
//! ```text
//!   channels of memory ==lines of 64 bytes==> prefetcher -> extractor -> comparators -> results
//!        ^                                    translates    values of    one a value,   bits or row ids,
//!        |                                    each page     any width    or a set's     packed to lines
//!        |                                                               table              |
//!        +============================= lines of results ===================================+
//! ```
//!
//! An engine takes one line a cycle: its comparators are as many as a line has values. A set is a table of
//! bits on the chip with so many ports, and row ids leave by a line's worth a cycle, so both may take longer.
//! The prefetcher asks for so many lines ahead, also across the parts of a scan, whose descriptors came with
//! the task; an address is translated once for each page and each part. Engines take turns at the channels in
//! the order of their requests; lines are spread over the channels one by one.
//!
//! The engine extracts and compares by what its modules do and calls none of the scans of this crate or the
//! golden model, so that equal results are meaningful. Cycles follow from [`ScanEngineParams`] alone; they
//! are *simulated*, and the clock rate is that of DBA's board, not one that a place and route of this design
//! confirmed.
//!
//! Source: DBA 3, figures 3 and 4; 4.1 for the board.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use weft_offload::wire::ReturnCode;
use weft_offload::{Accepts, Engine, JobKind, Limits, Link, Operation, Outcome, UnitSpec, Units};
use weft_ops::packed::{WIDTH_MAX, packed_len};

use super::scan::{
    Found, Matches, PARTS, SET_WORDS, Scan, ScanPart, ScanPredicate, ScanResult, ScanTask, WIDTH,
};

/// Bytes of a line.
const LINE: usize = 64;

/// What a device is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanEngineParams {
    /// Channels of memory.
    pub channels: u32,
    /// Bytes that a channel moves in a microsecond, reads and writes together.
    pub channel_bytes_per_us: u32,
    /// Cycles from a request until its line begins to arrive, in an idle memory.
    pub memory_latency_cycles: u32,
    /// Lines that an engine asks for ahead.
    pub lines_ahead: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Cycles to translate the address of a page.
    pub translation_cycles: u32,
    /// Codes that the table of a set answers for in a cycle.
    pub set_ports: u32,
    /// The most words of 64 bits in the table of a set.
    pub set_words_max: u32,
    /// The most parts of a scan: descriptors on the chip.
    pub parts_max: u32,
    /// Lines of results that wait for the memory before the engine does.
    pub lines_written_behind: u32,
    /// Bytes of memory for codes and results.
    pub memory_bytes_max: u64,
    /// Clock rate, in MHz.
    pub clock_mhz: u32,
}

impl Default for ScanEngineParams {
    /// DBA's board: four channels of DDR4-1866 that give 60 GB/s together, 250 MHz, 256 GB. The document does
    /// not state the other numbers; the table holds the sets of codes of 21 bits.
    fn default() -> Self {
        ScanEngineParams {
            channels: 4,
            channel_bytes_per_us: 15_000,
            memory_latency_cycles: 30,
            lines_ahead: 32,
            page_bytes: 2 << 20,
            translation_cycles: 100,
            set_ports: 64,
            set_words_max: 1 << 15,
            parts_max: 1 << 12,
            lines_written_behind: 8,
            memory_bytes_max: 256 << 30,
            clock_mhz: 250,
        }
    }
}

impl ScanEngineParams {
    /// What a unit with these parameters accepts. It keeps codes, `depth` scans may wait for it, and requests
    /// and answers take `link`.
    #[must_use]
    pub fn spec(&self, name: impl Into<String>, depth: usize, link: Link) -> UnitSpec {
        let limits = Limits::of_memory(self.memory_bytes_max)
            .with(WIDTH, u64::from(WIDTH_MAX))
            .with(SET_WORDS, u64::from(self.set_words_max))
            .with(PARTS, u64::from(self.parts_max));
        UnitSpec {
            name: name.into(),
            accepts: Accepts::Kinds(vec![(JobKind::of::<Scan>(), limits)]),
            depth,
            urgent_depth: 0,
            buffer_bytes_max: self.memory_bytes_max,
            link: Some(link),
            in_process: false,
        }
    }

    /// Nanoseconds of so many cycles.
    #[must_use]
    pub fn ns(&self, cycles: u64) -> u64 {
        cycles.saturating_mul(1000) / u64::from(self.clock_mhz.max(1))
    }

    /// Thousandths of a cycle for which a line occupies a channel.
    fn line_millis(&self) -> u64 {
        let clock = u64::from(self.clock_mhz);
        (LINE as u64 * clock * 1000).div_ceil(u64::from(self.channel_bytes_per_us.max(1)))
    }
}

/// Where the simulated cycles of a scan went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScanCycles {
    /// From its first request until its last result is in memory.
    pub total: u64,
    /// Cycles in which the extractor waited for a line.
    pub waiting_for_memory: u64,
    /// Cycles beyond the first for a line, for a set or many row ids.
    pub comparing: u64,
    /// Cycles in which the engine waited for a line of results to be written.
    pub waiting_for_writes: u64,
    /// Lines read.
    pub lines_read: u64,
    /// Lines written.
    pub lines_written: u64,
}

/// Why a scan is not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanStop {
    /// There are not so many codes of a part's width.
    Invalid,
    /// A set is larger than the table, or there are more parts than descriptors.
    BeyondLimits,
}

/// The channels, shared by engines.
struct Memory {
    /// When each is free, in thousandths of a cycle.
    free_millis: Vec<u64>,
    line_millis: u64,
}

impl Memory {
    /// Moves a line that is asked for at a cycle; the cycle in which it has been moved.
    fn transfer(&mut self, line: u64, asked: u64) -> u64 {
        let channels = self.free_millis.len() as u64;
        let Some(free) = self.free_millis.get_mut((line % channels) as usize) else {
            return asked;
        };
        *free = (*free).max(asked * 1000) + self.line_millis;
        free.div_ceil(1000)
    }
}

/// Splits lines into codes.
#[derive(Default)]
struct Extractor {
    bits: u128,
    held: u32,
}

impl Extractor {
    /// Hands on the codes that are complete once these bytes are there.
    fn each_code(&mut self, line: &[u8], width: u32, mut code: impl FnMut(u32)) {
        for byte in line {
            self.bits |= u128::from(*byte) << self.held;
            self.held += 8;
            while self.held >= width {
                code((self.bits & ((1 << width) - 1)) as u32);
                self.bits >>= width;
                self.held -= width;
            }
        }
    }
}

/// A place in a scan.
#[derive(Clone, Copy, Default)]
struct Position {
    part: usize,
    /// Line within the part.
    line: u64,
}

impl Position {
    /// The same, or where the next part begins that has lines.
    fn next_line(mut self, task: &ScanTask) -> Option<Position> {
        while self.line >= lines_of(task.parts.get(self.part)?) {
            self = Position {
                part: self.part + 1,
                line: 0,
            };
        }
        Some(self)
    }
}

fn lines_of(part: &ScanPart) -> u64 {
    packed_len(part.count as usize, part.width).div_ceil(LINE) as u64
}

/// One engine at work on one scan.
struct Scanning<'t> {
    params: ScanEngineParams,
    task: &'t ScanTask,
    extractor: Extractor,
    /// Lines that were asked for, with the cycle in which each arrives.
    asked: VecDeque<u64>,
    /// The next line to ask for, and the earliest cycle for it.
    next_line: Position,
    next_ask: u64,
    /// Lines that were asked for so far.
    lines_asked: u64,
    /// The next line to take, and the cycle from which on it can be.
    taken: Position,
    now: u64,
    /// Codes of this part that were seen, and words of the bitmap before it.
    codes_seen: u32,
    words_before: usize,
    count: u32,
    bitmap: Vec<u64>,
    rows: Vec<u32>,
    /// Lines of all codes: results lie behind them.
    lines: u64,
    /// Bytes of results that were written as lines.
    written: u64,
    /// When lines of results will have been written.
    writes: VecDeque<u64>,
    cycles: ScanCycles,
}

impl<'t> Scanning<'t> {
    fn new(params: ScanEngineParams, task: &'t ScanTask) -> Result<Scanning<'t>, ScanStop> {
        if task.parts.iter().any(|part| part.codes().is_err()) {
            return Err(ScanStop::Invalid);
        }
        let is_too_large = |part: &ScanPart| match &part.predicate {
            ScanPredicate::Set(set) => set.len() > params.set_words_max as usize,
            ScanPredicate::Range(..) => false,
        };
        if task.parts.len() > params.parts_max as usize || task.parts.iter().any(is_too_large) {
            return Err(ScanStop::BeyondLimits);
        }
        Ok(Scanning {
            params,
            task,
            extractor: Extractor::default(),
            asked: VecDeque::new(),
            next_line: Position::default(),
            next_ask: 0,
            lines_asked: 0,
            taken: Position::default(),
            now: 0,
            codes_seen: 0,
            words_before: 0,
            count: 0,
            bitmap: match task.matches {
                Matches::Bitmap => vec![0; task.words()],
                Matches::RowIds => Vec::new(),
            },
            rows: Vec::new(),
            lines: task.parts.iter().map(lines_of).sum(),
            written: 0,
            writes: VecDeque::new(),
            cycles: ScanCycles::default(),
        })
    }

    /// Asks for the lines that it may.
    fn ask(&mut self, memory: &mut Memory) {
        let lines_of_page = u64::from(self.params.page_bytes).div_ceil(LINE as u64).max(1);
        let ahead = self.params.lines_ahead.max(1) as usize;
        while self.asked.len() < ahead {
            let Some(next) = self.next_line.next_line(self.task) else {
                break;
            };
            let mut asked = self.next_ask.max(self.now);
            if next.line.is_multiple_of(lines_of_page) {
                asked += u64::from(self.params.translation_cycles);
            }
            let moved = memory.transfer(self.lines_asked, asked);
            self.asked
                .push_back(moved + u64::from(self.params.memory_latency_cycles));
            self.lines_asked += 1;
            self.next_ask = asked + 1;
            self.next_line = Position {
                line: next.line + 1,
                ..next
            };
        }
    }

    fn has_ended(&self) -> bool {
        self.taken.next_line(self.task).is_none()
    }

    /// Takes the next line, if there is one left.
    fn step(&mut self, memory: &mut Memory) {
        let task = self.task;
        self.ask(memory);
        let Some((arrives, at)) = self.asked.pop_front().zip(self.taken.next_line(task)) else {
            return;
        };
        self.cycles.waiting_for_memory += arrives.saturating_sub(self.now);
        self.now = self.now.max(arrives);
        if at.line == 0 {
            let before = task.parts.iter().take(at.part);
            self.words_before = before.map(ScanPart::words).sum();
            (self.codes_seen, self.extractor) = (0, Extractor::default());
        }
        let Some(part) = task.parts.get(at.part) else {
            return;
        };
        let (start, bytes) = (at.line as usize * LINE, part.bytes());
        let line = bytes
            .get(start..bytes.len().min(start + LINE))
            .unwrap_or_default();
        let (codes, found) = self.compare(part, line);
        let lookups = match &part.predicate {
            ScanPredicate::Set(_) => u64::from(codes).div_ceil(u64::from(self.params.set_ports.max(1))),
            ScanPredicate::Range(..) => 1,
        };
        let rows_out = match task.matches {
            Matches::RowIds => u64::from(found).div_ceil(LINE as u64 / 4),
            Matches::Bitmap => 1,
        };
        let takes = lookups.max(rows_out).max(1);
        self.cycles.comparing += takes - 1;
        self.now += takes;
        self.taken = Position {
            line: at.line + 1,
            ..at
        };
        self.cycles.lines_read += 1;
        self.write(memory, self.has_ended());
    }

    /// The codes of a line; how many there were, and how many of them were found.
    fn compare(&mut self, part: &ScanPart, line: &[u8]) -> (u32, u32) {
        let (before, matches) = (self.codes_seen, self.task.matches);
        let (mut seen, mut count) = (self.codes_seen, self.count);
        let (bitmap, rows, first) = (&mut self.bitmap, &mut self.rows, self.words_before);
        self.extractor.each_code(line, part.width, |code| {
            if seen == part.count {
                return;
            }
            let is_found = match &part.predicate {
                ScanPredicate::Range(low, high) => *low <= code && code <= *high,
                ScanPredicate::Set(set) => {
                    let word = set.get((code >> 6) as usize).copied().unwrap_or(0);
                    word & 1 << (code & 63) != 0
                }
            };
            if is_found {
                count += 1;
                match matches {
                    Matches::Bitmap => {
                        if let Some(word) = bitmap.get_mut(first + (seen >> 6) as usize) {
                            *word |= 1 << (seen & 63);
                        }
                    }
                    Matches::RowIds => rows.push(64 * first as u32 + seen),
                }
            }
            seen += 1;
        });
        let found = count - self.count;
        (self.codes_seen, self.count) = (seen, count);
        (seen - before, found)
    }

    /// Writes the complete lines of results, or at the end all that is left.
    fn write(&mut self, memory: &mut Memory, is_last: bool) {
        let bytes = match self.task.matches {
            Matches::Bitmap if is_last => 8 * self.bitmap.len() as u64,
            Matches::Bitmap => 8 * self.words_before as u64 + u64::from(self.codes_seen) / 8,
            Matches::RowIds => 4 * self.rows.len() as u64,
        };
        let line = LINE as u64;
        while bytes >= self.written + line || (is_last && bytes > self.written) {
            while self.writes.front().is_some_and(|done| *done <= self.now) {
                self.writes.pop_front();
            }
            if self.writes.len() >= self.params.lines_written_behind.max(1) as usize
                && let Some(done) = self.writes.pop_front()
            {
                self.cycles.waiting_for_writes += done.saturating_sub(self.now);
                self.now = self.now.max(done);
            }
            let number = self.lines + self.written / line;
            self.writes.push_back(memory.transfer(number, self.now));
            self.written += line;
            self.cycles.lines_written += 1;
        }
    }

    fn finish(mut self) -> (Found, u32, ScanCycles) {
        self.cycles.total = self.writes.back().copied().unwrap_or(0).max(self.now);
        let found = match self.task.matches {
            Matches::Bitmap => Found::Bitmap(self.bitmap),
            Matches::RowIds => Found::RowIds(self.rows),
        };
        (found, self.count, self.cycles)
    }
}

/// Scans as engines of one device would that begin together, one for each task; also where their cycles went.
///
/// # Errors
/// The first task that an engine does not do.
pub fn simulate(
    params: ScanEngineParams,
    tasks: &[&ScanTask],
) -> Result<Vec<(Found, u32, ScanCycles)>, ScanStop> {
    let mut memory = Memory {
        free_millis: vec![0; params.channels.max(1) as usize],
        line_millis: params.line_millis(),
    };
    let engines: Result<Vec<Scanning<'_>>, ScanStop> =
        tasks.iter().map(|task| Scanning::new(params, task)).collect();
    let mut engines = engines?;
    // Who is behind goes next.
    while let Some(engine) = engines
        .iter_mut()
        .filter(|engine| !engine.has_ended())
        .min_by_key(|engine| engine.now)
    {
        engine.step(&mut memory);
    }
    Ok(engines.into_iter().map(Scanning::finish).collect())
}

/// One engine as a unit: give it to a [`weft_offload::unit::PoolUnit`] with one thread, or to a
/// [`weft_offload::unit::InlineUnit`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ScanEngine {
    /// What the device is made of.
    pub params: ScanEngineParams,
}

impl ScanEngine {
    /// One engine, simulated by a thread of this process, that keeps so many bytes of codes: what a unit
    /// keeps is memory of this process.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn units(memory_bytes_max: u64) -> io::Result<Units> {
        let params = ScanEngineParams {
            memory_bytes_max,
            ..ScanEngineParams::default()
        };
        let spec = params.spec("scan engine", 2, Link::PCIE_3_X8);
        Units::simulated(spec, Box::new(ScanEngine { params }))
    }
}

impl Engine for ScanEngine {
    fn run(&mut self, kind: JobKind, payload: &Bytes) -> Outcome {
        self.run_over(kind, payload, &[])
    }

    fn run_over(&mut self, kind: JobKind, payload: &Bytes, buffers: &[Bytes]) -> Outcome {
        let refused = |code, why: String| Outcome {
            code,
            output: why.into_bytes().into(),
            cycles: 0,
        };
        if kind != JobKind::of::<Scan>() {
            return refused(ReturnCode::Invalid, "another kind of operation".to_owned());
        }
        let task = match Scan::decode(payload, buffers) {
            Ok(task) => task,
            Err(why) => return refused(ReturnCode::Invalid, why),
        };
        match simulate(self.params, &[&task]).map(|mut done| done.pop()) {
            Ok(Some((found, count, cycles))) => Outcome {
                code: ReturnCode::Done,
                output: ScanResult::encode(&found, count).into(),
                cycles: cycles.total,
            },
            Err(ScanStop::BeyondLimits) => refused(ReturnCode::BeyondLimits, String::new()),
            Ok(None) | Err(ScanStop::Invalid) => {
                refused(ReturnCode::Invalid, "not so many codes of this width".to_owned())
            }
        }
    }
}
