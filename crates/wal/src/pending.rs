//! Appended records that were not yet written, and where the next one goes.
//!
//! A leader writes and syncs one group: runs of bytes, each within one segment. A group ends on a sector
//! boundary, so that the next group never writes a sector of this one (invariant 3 of the crate). All methods
//! are called under the log's latch.

use crate::format::{
    RecordFields, SECTOR_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader, align_to_sector, put_record,
    record_bytes,
};

/// Bytes of one segment that follow each other.
#[derive(Debug)]
pub(crate) struct Run {
    /// The segment to make first, if the run is the first of its segment.
    pub new_segment: Option<NewSegment>,
    /// Position of the first byte; a multiple of the sector size.
    pub start_lsn: u64,
    /// Whole records and padding.
    pub bytes: Vec<u8>,
}

/// A segment that is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewSegment {
    pub header: SegmentHeader,
    /// Length of the file, if space is to be reserved.
    pub file_bytes: u64,
}

/// What a leader takes.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub runs: Vec<Run>,
}

/// The segment that the next record goes to, unless it does not fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenSegment {
    pub header: SegmentHeader,
    /// Length of the file up to which records may go.
    pub file_bytes: u64,
}

/// Space that the next record needs and that is not reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MissingSpace {
    /// The open segment, which has no record, needs a file of this length.
    InOpenSegment(u64),
    /// A segment is to be made, with a file of this length.
    Segment(u64),
}

fn end_of_record(open: OpenSegment, lsn: u64, payload_bytes: usize) -> u64 {
    let used = lsn - open.header.start_lsn;
    align_to_sector(SEGMENT_HEADER_BYTES + used + record_bytes(payload_bytes) as u64)
}

/// Where the next record goes.
#[derive(Debug)]
pub(crate) struct Pending {
    group: Group,
    /// Bytes in the group.
    pub bytes: usize,
    /// Position of the next record.
    pub next_lsn: u64,
    /// The batch that is due; `None` before the first record of a new log, which may be any.
    pub next_batch: Option<u64>,
    segment: Option<OpenSegment>,
    segment_bytes: u64,
    salt: u64,
    /// A written-out buffer, to be filled again.
    spare: Vec<u8>,
}

impl Pending {
    pub(crate) fn new(
        segment: Option<OpenSegment>,
        next_lsn: u64,
        next_batch: Option<u64>,
        segment_bytes: u64,
        salt: u64,
    ) -> Self {
        let (group, spare) = (Group::default(), Vec::new());
        Self {
            group,
            bytes: 0,
            next_lsn,
            next_batch,
            segment,
            segment_bytes,
            salt,
            spare,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether a record with this payload fits into the open segment.
    pub(crate) fn fits(&self, payload_bytes: usize) -> bool {
        self.segment
            .is_some_and(|open| end_of_record(open, self.next_lsn, payload_bytes) <= open.file_bytes)
    }

    /// What space a batch's record of this length still needs, whether or not a group is taken before it is
    /// appended.
    pub(crate) fn missing_space(&self, payload_bytes: usize) -> Option<MissingSpace> {
        let from = align_to_sector(self.next_lsn);
        match self.segment {
            Some(open) if end_of_record(open, from, payload_bytes) <= open.file_bytes => None,
            Some(open) if Some(open.header.first_batch) == self.next_batch => Some(
                MissingSpace::InOpenSegment(end_of_record(open, from, payload_bytes)),
            ),
            _ => Some(MissingSpace::Segment(self.new_file_bytes(payload_bytes))),
        }
    }

    /// Records that the open segment's file has become longer.
    pub(crate) fn lengthen_segment(&mut self, file_bytes: u64) {
        if let Some(open) = &mut self.segment {
            open.file_bytes = open.file_bytes.max(file_bytes);
        }
    }

    /// Whether a segment has to be created for what is pending.
    pub(crate) fn opens_segment(&self) -> bool {
        self.group.runs.iter().any(|run| run.new_segment.is_some())
    }

    /// Length of the file of a segment that begins with a record of this length.
    fn new_file_bytes(&self, payload_bytes: usize) -> u64 {
        let needed = align_to_sector(SEGMENT_HEADER_BYTES + record_bytes(payload_bytes) as u64);
        needed.max(self.segment_bytes)
    }

    /// Appends a record. A batch's record that does not fit opens a new segment, unless the open one has no
    /// batch yet: then the segment becomes longer than usual.
    pub(crate) fn push(&mut self, fields: &RecordFields<'_>) {
        let payload_bytes = fields.payload.len();
        let next_batch = self.next_batch.unwrap_or(fields.batch);
        let salt = match self.segment {
            Some(open) if open.header.first_batch == next_batch || self.fits(payload_bytes) => {
                self.continue_segment();
                open.header.salt
            }
            _ => {
                self.open_segment(next_batch, payload_bytes);
                self.salt
            }
        };
        let Some(run) = self.group.runs.last_mut() else {
            return;
        };
        let before = run.bytes.len();
        put_record(&mut run.bytes, fields, self.next_lsn, salt);
        let added = run.bytes.len() - before;
        self.bytes += added;
        self.next_lsn += added as u64;
    }

    /// Makes sure that there is a run of the open segment.
    fn continue_segment(&mut self) {
        if self.group.runs.is_empty() {
            let bytes = std::mem::take(&mut self.spare);
            self.group.runs.push(Run {
                new_segment: None,
                start_lsn: self.next_lsn,
                bytes,
            });
        }
    }

    fn open_segment(&mut self, first_batch: u64, payload_bytes: usize) {
        self.pad();
        let header = SegmentHeader {
            first_batch,
            start_lsn: self.next_lsn,
            salt: self.salt,
        };
        let file_bytes = self.new_file_bytes(payload_bytes);
        self.segment = Some(OpenSegment { header, file_bytes });
        let bytes = std::mem::take(&mut self.spare);
        let new_segment = Some(NewSegment { header, file_bytes });
        self.group.runs.push(Run {
            new_segment,
            start_lsn: self.next_lsn,
            bytes,
        });
    }

    fn pad(&mut self) {
        if let Some(run) = self.group.runs.last_mut() {
            let padded = run.bytes.len().next_multiple_of(SECTOR_BYTES as usize);
            self.bytes += padded - run.bytes.len();
            run.bytes.resize(padded, 0);
        }
        self.next_lsn = align_to_sector(self.next_lsn);
    }

    /// Takes everything, padded to a sector.
    pub(crate) fn take(&mut self) -> Group {
        self.pad();
        self.bytes = 0;
        std::mem::take(&mut self.group)
    }

    /// Reuses a written group's memory, up to `bytes_max` of it.
    pub(crate) fn recycle(&mut self, group: Group, bytes_max: usize) {
        let largest = group
            .runs
            .into_iter()
            .map(|run| run.bytes)
            .max_by_key(Vec::capacity);
        if let Some(mut bytes) = largest
            && bytes.capacity() <= bytes_max
            && bytes.capacity() > self.spare.capacity()
        {
            bytes.clear();
            self.spare = bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::RecordKind;
    use proptest::prelude::*;
    use weft_ops::crc32c;

    fn push(pending: &mut Pending, batch: u64, payload: &[u8]) {
        let payload_crc = crc32c(payload);
        pending.push(&RecordFields {
            kind: RecordKind::Batch,
            batch,
            durable_to: 0,
            payload,
            payload_crc,
        });
        pending.next_batch = Some(batch + 1);
    }

    proptest! {
        /// Groups start and end on sectors and follow each other without a gap; so do the runs in them, and a
        /// segment is as long as said.
        #[test]
        fn groups_are_whole_sectors_in_a_row(
            lengths in proptest::collection::vec((0_usize..3000, any::<bool>()), 1..60)
        ) {
            let mut pending = Pending::new(None, 0, None, 4096, 1);
            let mut expected_lsn = 0;
            let mut segment = None;
            for (batch, (length, take)) in (1..).zip(lengths) {
                push(&mut pending, batch, &vec![1; length]);
                if !take {
                    continue;
                }
                let group = pending.take();
                prop_assert!(pending.is_empty());
                for run in &group.runs {
                    prop_assert_eq!(run.start_lsn, expected_lsn);
                    prop_assert!(!run.bytes.is_empty() && run.bytes.len().is_multiple_of(512));
                    expected_lsn += run.bytes.len() as u64;
                    if let Some(new) = run.new_segment {
                        prop_assert_eq!(new.header.start_lsn, run.start_lsn);
                        segment = Some(new);
                    }
                    let segment = segment.unwrap();
                    prop_assert!(512 + expected_lsn - segment.header.start_lsn <= segment.file_bytes);
                }
                prop_assert_eq!(pending.next_lsn, expected_lsn);
                pending.recycle(group, 1 << 20);
            }
        }
    }
}
