//! Encoder: chosen pairs into blocks, and blocks to memory.
//!
//! ```text
//! idle --> encoding a pair --> idle
//!              | block has its length       last pair of the task
//!              v                                  v
//!          closing: restart array, checksum --> waits while the packer is busy --> idle
//!
//! packer:  free --> packing (LZ4) --> waits for the write before --> writes; free
//! ```
//!
//! So one block is packed and written while the next is being built. The layout is that of
//! `docs/formats/block.md`, built here from the page and not by the golden model's builder.
//!
//! Source: X-DB, "FPGA-based Compaction", Encoder ("if the data block reaches its maximum size, then the
//! current data block gets flushed to DDR").

use bytes::Bytes;
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use weft_ops::block::{BLOCK_HEADER_BYTES, BLOCK_VERSION, BlockOptions, Compression, FinishedBlock};
use weft_ops::merge::{MergeOutput, MergeTask};
use weft_ops::{crc32c, hash64};

use super::memory::Memory;
use super::ring::{Pair, Ring};
use super::{ModelParams, Stop, cycles_for};

enum State {
    Idle,
    Encoding { left: u64, pair: Pair, shared: usize },
    Closing { left: u64 },
}

/// A block in the packer: cycles it still takes, and its length when stored.
struct Packing {
    left: u64,
    bytes: usize,
}

pub(super) struct Encoder {
    params: ModelParams,
    options: BlockOptions,
    /// Which stream of the memory.
    stream: usize,
    state: State,
    packing: Option<Packing>,
    /// Nothing more will come into the ring.
    pub(super) last: bool,
    entries: Vec<u8>,
    restarts: Vec<u32>,
    entry_count: u32,
    first_key: Vec<u8>,
    /// The key of the pair before, also over the end of a block.
    before: Option<Vec<u8>>,
    wants_hashes: bool,
    hashes: Vec<u64>,
    output_bytes: u64,
    output_bytes_max: u64,
    pub(super) output: MergeOutput,
    pub(super) busy_cycles: u64,
}

impl Encoder {
    pub(super) fn new(params: ModelParams, task: &MergeTask, stream: usize) -> Encoder {
        Encoder {
            params,
            options: task.output,
            stream,
            state: State::Idle,
            packing: None,
            last: false,
            entries: Vec::new(),
            restarts: Vec::new(),
            entry_count: 0,
            first_key: Vec::new(),
            before: None,
            wants_hashes: task.key_hashes,
            hashes: Vec::new(),
            output_bytes: 0,
            output_bytes_max: task.output_bytes_max,
            output: MergeOutput::default(),
            busy_cycles: 0,
        }
    }

    /// All is encoded and has moved to memory.
    pub(super) fn has_ended(&self, ring: &Ring, memory: &Memory) -> bool {
        let idle = matches!(self.state, State::Idle) && self.entry_count == 0 && self.packing.is_none();
        self.last && idle && ring.flags().empty && memory.is_done(self.stream)
    }

    pub(super) fn step(&mut self, ring: &mut Ring, memory: &mut Memory, now: u64) -> Result<(), Stop> {
        self.busy_cycles += u64::from(!matches!(self.state, State::Idle));
        match &mut self.packing {
            Some(packing) if packing.left > 0 => packing.left -= 1,
            Some(packing) if memory.is_done(self.stream) => {
                memory.request(self.stream, packing.bytes, now);
                self.packing = None;
            }
            _ => {}
        }
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => match ring.pop() {
                Some(pair) => self.begin(pair),
                None if self.last && self.entry_count > 0 => self.close(),
                None => State::Idle,
            },
            State::Encoding { left, pair, shared } if left > 1 => State::Encoding {
                left: left - 1,
                pair,
                shared,
            },
            State::Encoding { pair, shared, .. } => self.append(pair, shared),
            State::Closing { left } if left > 1 => State::Closing { left: left - 1 },
            State::Closing { left } if self.packing.is_some() => State::Closing { left },
            State::Closing { .. } => {
                self.packing = Some(self.finish_block()?);
                State::Idle
            }
        };
        Ok(())
    }

    fn interval(&self) -> u32 {
        u32::from(self.options.restart_interval.max(1))
    }

    /// Compares the key with the one before while its head is written.
    fn begin(&mut self, pair: Pair) -> State {
        let before = self.before.as_deref().unwrap_or_default();
        let common = before.iter().zip(&pair.key).take_while(|(a, b)| a == b).count();
        let is_restart = self.entry_count.is_multiple_of(self.interval());
        let shared = if is_restart { 0 } else { common };
        let written = 11 + pair.key.len() - shared + pair.value.len();
        let left = cycles_for(common, self.params.compare_bytes).max(1)
            + cycles_for(written, self.params.encode_bytes);
        State::Encoding { left, pair, shared }
    }

    fn append(&mut self, pair: Pair, shared: usize) -> State {
        if self.entry_count.is_multiple_of(self.interval()) {
            self.restarts.push(self.entries.len() as u32);
        }
        if self.entry_count == 0 {
            self.first_key.clone_from(&pair.key);
        }
        if self.wants_hashes && self.before.as_ref() != Some(&pair.key) {
            self.hashes.push(hash64(&pair.key));
        }
        let suffix = pair.key.get(shared..).unwrap_or_default();
        for number in [shared, suffix.len(), pair.value.len()] {
            put_varint(&mut self.entries, number);
        }
        self.entries.extend_from_slice(&pair.stamp.to_u64().to_le_bytes());
        self.entries.extend_from_slice(suffix);
        self.entries.extend_from_slice(&pair.value);
        self.entry_count += 1;
        self.output.entries_out += 1;
        self.before = Some(pair.key);
        if self.body_bytes() >= self.options.block_bytes as usize {
            self.close()
        } else {
            State::Idle
        }
    }

    fn body_bytes(&self) -> usize {
        self.entries.len() + 4 * self.restarts.len()
    }

    fn close(&self) -> State {
        let array = cycles_for(4 * self.restarts.len(), self.params.encode_bytes);
        State::Closing { left: array + 1 }
    }

    /// Puts the block together, for the packer to take its time over.
    fn finish_block(&mut self) -> Result<Packing, Stop> {
        let mut body = std::mem::take(&mut self.entries);
        for offset in self.restarts.drain(..) {
            body.extend_from_slice(&offset.to_le_bytes());
        }
        let (packed, left) = match self.options.compression {
            Compression::None => (None, 0),
            Compression::Lz4 => (pack(&body), cycles_for(body.len(), self.params.pack_bytes)),
            Compression::Zstd => return Err(Stop::BeyondLimits),
        };
        let codec = packed.as_ref().map_or(Compression::None, |_| Compression::Lz4);
        let mut stored = Vec::with_capacity(BLOCK_HEADER_BYTES + body.len());
        stored.extend_from_slice(&[0, 0, 0, 0, codec as u8, BLOCK_VERSION]);
        stored.extend_from_slice(&(self.interval() as u16).to_le_bytes());
        stored.extend_from_slice(&(body.len() as u32).to_le_bytes());
        stored.extend_from_slice(&self.entry_count.to_le_bytes());
        stored.extend_from_slice(packed.as_ref().unwrap_or(&body));
        let crc = crc32c(stored.get(4..).unwrap_or_default());
        if let Some(place) = stored.first_chunk_mut::<4>() {
            *place = crc.to_le_bytes();
        }
        let bytes = stored.len();
        self.output_bytes += bytes as u64;
        if self.output_bytes > self.output_bytes_max {
            return Err(Stop::Invalid(
                "the output is longer than the task allows".to_owned(),
            ));
        }
        self.output.blocks.push(FinishedBlock {
            bytes: Bytes::from(stored),
            first_key: Bytes::from(std::mem::take(&mut self.first_key)),
            last_key: Bytes::from(self.before.clone().unwrap_or_default()),
            entry_count: std::mem::take(&mut self.entry_count),
        });
        if self.wants_hashes {
            self.output.key_hashes.push(std::mem::take(&mut self.hashes));
        }
        Ok(Packing { left, bytes })
    }
}

/// The LZ4 core: what it makes of a body, if that is at least an eighth shorter.
fn pack(body: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![0; get_maximum_output_size(body.len())];
    let mut table = if body.len() < usize::from(u16::MAX) {
        CompressTable::small()
    } else {
        CompressTable::large()
    };
    let len = compress_into_with_table(body, &mut out, &mut table).ok()?;
    out.truncate(len);
    (len <= body.len() - body.len() / 8).then_some(out)
}

fn put_varint(out: &mut Vec<u8>, number: usize) {
    let mut rest = number;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
