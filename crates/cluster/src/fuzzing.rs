//! What fuzzing calls: any bytes as messages, entries and traces. See [`weft_base::fuzzing`].

use weft_base::TxnId;
use weft_base::fuzzing::Target;
use weft_lock::{LockMode, LockRequest};

use crate::config::record_lock;
use crate::error::Refusal;
use crate::journal::{Entry, Write};
use crate::message::{Answer, BYTES_MAX, Request, Staged};
use crate::trace::LockTrace;

/// All targets.
pub const TARGETS: [Target; 2] = [
    Target {
        name: "cluster_message",
        run: cluster_message,
        seeds,
    },
    Target {
        name: "lock_trace",
        run: lock_trace,
        seeds: trace_seeds,
    },
];

/// What is read is written as the same bytes, and fits into a slot of a mailbox.
pub fn cluster_message(data: &[u8]) {
    if let Ok(request) = Request::decode(data) {
        assert_eq!(request.encode(), data);
    }
    if let Ok(answer) = Answer::decode(data) {
        assert_eq!(answer.encode(), data);
        assert!(data.len() <= BYTES_MAX as usize);
    }
    if let Ok(entry) = Entry::decode(data) {
        assert_eq!(entry.encode(), data);
    }
}

/// A trace that is read is written as the same bytes. The CRC is made right first, so that what stands behind
/// it is reached.
pub fn lock_trace(data: &[u8]) {
    let mut bytes = data.to_vec();
    if let Some((body, crc)) = bytes.split_last_chunk_mut::<4>() {
        *crc = crc32c::crc32c(body).to_le_bytes();
    }
    if let Ok(trace) = LockTrace::decode(&bytes) {
        assert_eq!(trace.encode().as_ref(), Ok(&bytes));
    }
}

fn trace_seeds() -> Vec<Vec<u8>> {
    let traces = [
        LockTrace::synthetic(1, 1, 1, 2, 0.0),
        LockTrace::synthetic(2, 3, 4, 5, 0.5),
    ];
    traces.iter().filter_map(|trace| trace.encode().ok()).collect()
}

fn seeds() -> Vec<Vec<u8>> {
    let (txn, life, number) = (TxnId(0x0001_0002), 3, 4);
    let staged = Staged { bytes: 5, crc: 6 };
    let lock = LockRequest::new(record_lock(7), LockMode::X);
    let writes = vec![Write {
        record: 7,
        bytes: vec![8; 9],
    }];
    let refusal = Some(Refusal::Deadlock);
    let requests = [
        Request::Lock {
            txn,
            life,
            number,
            wants: vec![lock; 3],
        },
        Request::Prepare { txn, life, staged },
        Request::Finish { txn, life, staged },
        Request::End { txn, committed: true },
        Request::WasFinished { txn },
    ];
    let answers = [
        Answer::Locked { txn, number, refusal },
        Answer::Finished { txn, committed: true },
        Answer::Ended { txn },
        Answer::Lost { txn },
    ];
    let entries = [
        Entry::Prepared {
            txn,
            locks: vec![lock; 2],
            writes,
        },
        Entry::Numbers { end: 10 },
        Entry::Decided {
            txn,
            committed: true,
            servers: vec![0, 1],
        },
    ];
    let requests = requests.iter().map(Request::encode);
    let answers = answers.iter().map(Answer::encode);
    requests
        .chain(answers)
        .chain(entries.iter().map(Entry::encode))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_targets_stand_mutated_seeds() {
        weft_base::fuzzing::run_changed_seeds(&TARGETS, 2_000);
    }
}
