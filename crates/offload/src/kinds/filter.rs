//! Building a filter. The task as bytes:
//!
//! ```text
//! magic "WFT1" | bits per key u32 | hashes, u64 each
//! ```
//!
//! Numbers are little endian. The frame has no checksum of its own: [`crate::wire`] puts one around it. The
//! output is the stored filter.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use weft_base::codec::{ByteReader, ByteWriter, CodecError};
use weft_ops::filter::CheckedFilter;

use crate::job::{Job, Shape};
use crate::operation::Operation;

const FILTER_MAGIC: [u8; 4] = *b"WFT1";

/// The most bits per key that a filter's task may ask for.
pub const BITS_PER_KEY_MAX: u32 = 64;

/// Builds a Bloom filter from hashes of keys.
#[derive(Debug)]
pub struct BuildFilter;

/// Hashes of keys, and bits for each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterTask {
    /// In any order.
    pub hashes: Arc<[u64]>,
    /// At most [`BITS_PER_KEY_MAX`].
    pub bits_per_key: u32,
}

/// More bits per key than [`BITS_PER_KEY_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyBits;

impl fmt::Display for TooManyBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TOO_MANY_BITS)
    }
}

const TOO_MANY_BITS: &str = "too many bits per key";

impl FilterTask {
    /// The task of a frame.
    ///
    /// # Errors
    /// A frame of another kind, a number of bits that is not allowed, half a hash; and where.
    pub fn decode(frame: &[u8]) -> Result<FilterTask, CodecError> {
        let mut reader = ByteReader::new(frame);
        if reader.array::<4>()? != FILTER_MAGIC {
            return Err(CodecError::new(0, "not a frame of this kind"));
        }
        let bits_per_key = reader.u32()?;
        if bits_per_key > BITS_PER_KEY_MAX {
            return Err(CodecError::new(4, TOO_MANY_BITS));
        }
        let mut hashes = Vec::with_capacity(reader.remaining() / 8);
        while reader.remaining() > 0 {
            hashes.push(reader.u64()?);
        }
        Ok(FilterTask {
            hashes: hashes.into(),
            bits_per_key,
        })
    }
}

impl Operation for BuildFilter {
    const CODE: u8 = 2;
    const NAME: &'static str = "build_filter";

    type Task = FilterTask;
    type Output = CheckedFilter;
    type Error = TooManyBits;

    fn task_bytes(task: &FilterTask) -> u64 {
        8 * task.hashes.len() as u64
    }

    fn encode(task: &FilterTask) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + 8 * task.hashes.len());
        out.put_bytes(&FILTER_MAGIC);
        out.put_u32(task.bits_per_key);
        for hash in task.hashes.iter() {
            out.put_u64(*hash);
        }
        out
    }

    fn decode(payload: &Bytes, _: &[Bytes]) -> Result<FilterTask, String> {
        FilterTask::decode(payload).map_err(|error| error.to_string())
    }

    fn golden(task: &FilterTask) -> Result<CheckedFilter, TooManyBits> {
        match task.bits_per_key {
            0..=BITS_PER_KEY_MAX => Ok(CheckedFilter::build(Arc::clone(&task.hashes), task.bits_per_key)),
            _ => Err(TooManyBits),
        }
    }

    fn output_to_bytes(output: &CheckedFilter) -> Bytes {
        output.stored().clone()
    }

    fn output_bytes(output: &CheckedFilter) -> u64 {
        output.stored().len() as u64
    }

    /// It must contain its hashes and no more bits than they can set ([`CheckedFilter::validate`]).
    fn look(task: &FilterTask, answer: Bytes) -> Option<CheckedFilter> {
        CheckedFilter::validate(answer, Arc::clone(&task.hashes), task.bits_per_key)
    }

    fn is_of(task: &FilterTask, output: &CheckedFilter) -> bool {
        output.is_of(&task.hashes, task.bits_per_key)
    }
}

impl Job {
    /// A filter over the hashes of keys, with at most [`BITS_PER_KEY_MAX`] bits for each.
    #[must_use]
    pub fn build_filter(hashes: impl Into<Arc<[u64]>>, bits_per_key: u32) -> Job {
        let hashes = hashes.into();
        // Lines are complete: at least one, and at most one more than the bits need.
        let shape = Shape::new(hashes.len() as u64 * u64::from(bits_per_key) / 8 + 128);
        let task = FilterTask { hashes, bits_per_key };
        Job::of::<BuildFilter>(task, shape)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Golden, validate};
    use super::*;
    use crate::unit::Engine;
    use crate::wire::ReturnCode;
    use proptest::prelude::*;
    use weft_ops::filter::build_filter;

    proptest! {
        #[test]
        fn a_task_reads_back_and_any_bytes_are_read_or_refused(
            hashes: Vec<u64>,
            bits_per_key in 0..=BITS_PER_KEY_MAX,
            cut: prop::sample::Index,
            noise: Vec<u8>,
        ) {
            let task = FilterTask { hashes: hashes.into(), bits_per_key };
            let frame = BuildFilter::encode(&task);
            prop_assert_eq!(FilterTask::decode(&frame), Ok(task));
            let cut = cut.index(frame.len());
            let whole = cut >= 8 && cut % 8 == 0;
            prop_assert_eq!(FilterTask::decode(&frame[..cut]).is_ok(), whole);
            let _ = FilterTask::decode(&noise);
        }

        #[test]
        fn the_filter_of_a_job_is_that_of_the_golden_model(hashes: Vec<u64>, bits_per_key in 1_u32..20) {
            let job = Job::build_filter(hashes.clone(), bits_per_key);
            let outcome = Golden.run(job.kind, job.payload());
            prop_assert_eq!(outcome.code, ReturnCode::Done);
            let output = outcome.output.to_bytes();
            prop_assert!(output.len() as u64 <= job.shape.output_bytes_max);
            prop_assert_eq!(&output, &build_filter(&hashes, bits_per_key));
            // What was looked through is what the CPU builds.
            let direct = Golden.run_task(job.kind, &job.task);
            prop_assert_eq!((direct.code, Some(direct.output)), (outcome.code, validate(&job, output)));
        }
    }

    #[test]
    fn too_many_bits_are_refused() {
        let job = Job::build_filter([1], BITS_PER_KEY_MAX + 1);
        assert_eq!(Golden.run_task(job.kind, &job.task).code, ReturnCode::Invalid);
        assert_eq!(FilterTask::decode(job.payload()).unwrap_err().position, 4);
    }
}
