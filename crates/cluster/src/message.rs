//! What agents and servers send each other, in one slot of a mailbox each.
//!
//! ```text
//! request   1 lock       txn u64 | life u32 | number u32 | count u8 | (lock u64, mode u8) each
//!           2 prepare    txn u64 | life u32 | staged u32 | crc u32
//!           3 finish     txn u64 | life u32 | staged u32 | crc u32        one server: no vote
//!           4 end        txn u64 | committed u8
//!           5 finished?  txn u64
//! answer    1 locked     txn u64 | number u32 | refusal u8 (0: granted)
//!           2 finished   txn u64 | committed u8
//!           3 ended      txn u64                                       the server needs no answer any more
//!           4 outcome?   txn u64
//!           5 wounded    txn u64
//!           6 lost       txn u64                        a message of its agent was damaged
//! ```
//!
//! Numbers are little endian. `life` is the server's incarnation in which the transaction took its locks;
//! answers to a request for locks carry it in the mailbox's head. Votes are no messages: see
//! [`crate::server`].
//!
//! Source: Barthels 5.2.1 (lock request, response, end of transaction); the rest follows from logs and
//! deaths.

use weft_base::TxnId;
use weft_base::codec::{ByteReader, ByteWriter, CodecError};
use weft_lock::{LockMode, LockRequest, ResourceId};

use crate::error::Refusal;

/// Changes with every message.
pub const VERSION: u32 = 2;
/// Locks in one request.
pub const LOCKS_MAX: usize = 24;
/// The longest message in bytes.
pub const BYTES_MAX: u32 = 18 + 9 * LOCKS_MAX as u32;

/// From an agent to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// All of these locks, in order.
    Lock {
        /// For whom.
        txn: TxnId,
        /// The server's life in which it took its first lock there; `u32::MAX` if this is the first.
        life: u32,
        /// Which request of the transaction this is.
        number: u32,
        /// What.
        wants: Vec<LockRequest>,
    },
    /// Its writes are staged: vote.
    Prepare {
        /// Who.
        txn: TxnId,
        /// As above.
        life: u32,
        /// What was staged.
        staged: Staged,
    },
    /// Its writes are staged, and no other server is concerned: commit.
    Finish {
        /// Who.
        txn: TxnId,
        /// As above.
        life: u32,
        /// What was staged.
        staged: Staged,
    },
    /// It has ended: release its locks.
    End {
        /// Who.
        txn: TxnId,
        /// How it ended.
        committed: bool,
    },
    /// Whether the server has finished it.
    WasFinished {
        /// Who.
        txn: TxnId,
    },
}

/// Writes in a staging area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Staged {
    /// Bytes; none if nothing was written.
    pub bytes: u32,
    /// CRC-32C of them.
    pub crc: u32,
}

/// From a server to an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// All locks of a request were granted, or one was refused.
    Locked {
        /// Who.
        txn: TxnId,
        /// Which request.
        number: u32,
        /// Why not.
        refusal: Option<Refusal>,
    },
    /// Answers [`Request::Finish`] and [`Request::WasFinished`].
    Finished {
        /// Who.
        txn: TxnId,
        /// Whether it is committed, on the disk.
        committed: bool,
    },
    /// What the agent told of its end is on the disk.
    Ended {
        /// Who.
        txn: TxnId,
    },
    /// How did it end? Answered by [`Request::End`].
    Ask {
        /// Who.
        txn: TxnId,
    },
    /// It must abort.
    Wounded {
        /// Who.
        txn: TxnId,
    },
    /// A message of its agent was damaged on its way, and is lost. Whoever waits for an answer must abort; of
    /// another transaction than the one that runs, the server wants to know how it ended.
    Lost {
        /// One that is open there; if none is, number 0 of the agent.
        txn: TxnId,
    },
}

const MODES: [LockMode; 6] = [
    LockMode::NL,
    LockMode::IS,
    LockMode::IX,
    LockMode::S,
    LockMode::SIX,
    LockMode::X,
];

const REFUSALS: [Refusal; 5] = [
    Refusal::Timeout,
    Refusal::Conflict,
    Refusal::Deadlock,
    Refusal::Wounded,
    Refusal::Lost,
];

/// The bytes of a lock mode and back.
pub(crate) fn put_lock(out: &mut Vec<u8>, lock: &LockRequest) {
    out.put_u64(lock.resource.0);
    out.put_u8(lock.mode as u8);
}

pub(crate) fn read_lock(reader: &mut ByteReader<'_>) -> Result<LockRequest, CodecError> {
    let (resource, at) = (ResourceId(reader.u64()?), reader.position());
    let mode = MODES.get(usize::from(reader.u8()?));
    let mode = *mode.ok_or(CodecError::new(at, "no mode of a lock"))?;
    Ok(LockRequest { resource, mode })
}

impl Request {
    /// As it is sent.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(48);
        match self {
            Request::Lock {
                txn,
                life,
                number,
                wants,
            } => {
                out.put_u8(1);
                out.put_u64(txn.0);
                out.put_u32(*life);
                out.put_u32(*number);
                out.put_u8(u8::try_from(wants.len()).unwrap_or(u8::MAX));
                wants.iter().for_each(|lock| put_lock(&mut out, lock));
            }
            Request::Prepare { txn, life, staged } => {
                out.put_u8(2);
                out.put_u64(txn.0);
                out.put_u32(*life);
                out.put_u32(staged.bytes);
                out.put_u32(staged.crc);
            }
            Request::Finish { txn, life, staged } => {
                out.put_u8(3);
                out.put_u64(txn.0);
                out.put_u32(*life);
                out.put_u32(staged.bytes);
                out.put_u32(staged.crc);
            }
            Request::End { txn, committed } => {
                out.put_u8(4);
                out.put_u64(txn.0);
                out.put_bool(*committed);
            }
            Request::WasFinished { txn } => {
                out.put_u8(5);
                out.put_u64(txn.0);
            }
        }
        out
    }

    /// The request of a message.
    ///
    /// # Errors
    /// There is none like that.
    pub fn decode(bytes: &[u8]) -> Result<Request, CodecError> {
        let mut reader = ByteReader::new(bytes);
        let kind = reader.u8()?;
        let txn = TxnId(reader.u64()?);
        let request = match kind {
            1 => {
                let (life, number, count) = (reader.u32()?, reader.u32()?, reader.u8()?);
                let wants = (0..count).map(|_| read_lock(&mut reader));
                Request::Lock {
                    txn,
                    life,
                    number,
                    wants: wants.collect::<Result<_, _>>()?,
                }
            }
            2 => Request::Prepare {
                txn,
                life: reader.u32()?,
                staged: Staged::decode(&mut reader)?,
            },
            3 => Request::Finish {
                txn,
                life: reader.u32()?,
                staged: Staged::decode(&mut reader)?,
            },
            4 => Request::End {
                txn,
                committed: reader.bool()?,
            },
            5 => Request::WasFinished { txn },
            _ => return Err(CodecError::new(0, "no kind of a request")),
        };
        reader.finish()?;
        Ok(request)
    }
}

impl Staged {
    fn decode(reader: &mut ByteReader<'_>) -> Result<Staged, CodecError> {
        Ok(Staged {
            bytes: reader.u32()?,
            crc: reader.u32()?,
        })
    }
}

impl Answer {
    /// As it is sent.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        match self {
            Answer::Locked { txn, number, refusal } => {
                out.put_u8(1);
                out.put_u64(txn.0);
                out.put_u32(*number);
                let place = REFUSALS.iter().position(|other| Some(*other) == *refusal);
                out.put_u8(place.map_or(0, |place| place as u8 + 1));
            }
            Answer::Finished { txn, committed } => {
                out.put_u8(2);
                out.put_u64(txn.0);
                out.put_bool(*committed);
            }
            Answer::Ended { txn } | Answer::Ask { txn } | Answer::Wounded { txn } | Answer::Lost { txn } => {
                out.put_u8(match self {
                    Answer::Ended { .. } => 3,
                    Answer::Ask { .. } => 4,
                    Answer::Wounded { .. } => 5,
                    _ => 6,
                });
                out.put_u64(txn.0);
            }
        }
        out
    }

    /// The answer of a message.
    ///
    /// # Errors
    /// There is none like that.
    pub fn decode(bytes: &[u8]) -> Result<Answer, CodecError> {
        let mut reader = ByteReader::new(bytes);
        let kind = reader.u8()?;
        let txn = TxnId(reader.u64()?);
        let answer = match kind {
            1 => {
                let (number, at) = (reader.u32()?, reader.position());
                let refusal = match reader.u8()? {
                    0 => None,
                    place => {
                        let refusal = REFUSALS.get(usize::from(place) - 1);
                        Some(*refusal.ok_or(CodecError::new(at, "no reason to refuse"))?)
                    }
                };
                Answer::Locked { txn, number, refusal }
            }
            2 => Answer::Finished {
                txn,
                committed: reader.bool()?,
            },
            3 => Answer::Ended { txn },
            4 => Answer::Ask { txn },
            5 => Answer::Wounded { txn },
            6 => Answer::Lost { txn },
            _ => return Err(CodecError::new(0, "no kind of an answer")),
        };
        reader.finish()?;
        Ok(answer)
    }

    /// Whom it is about.
    pub(crate) const fn txn(&self) -> TxnId {
        match self {
            Answer::Locked { txn, .. }
            | Answer::Finished { txn, .. }
            | Answer::Ended { txn }
            | Answer::Ask { txn }
            | Answer::Wounded { txn }
            | Answer::Lost { txn } => *txn,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn staged() -> impl Strategy<Value = Staged> {
        (any::<u32>(), any::<u32>()).prop_map(|(bytes, crc)| Staged { bytes, crc })
    }

    fn requests() -> impl Strategy<Value = Request> {
        let txn = any::<u64>().prop_map(TxnId);
        let wants = proptest::collection::vec((any::<u64>(), 0..6_usize), 0..LOCKS_MAX + 1);
        (txn, any::<u32>(), any::<u32>(), wants, staged(), 0..5).prop_map(
            |(txn, life, number, wants, staged, kind)| match kind {
                0 => Request::Lock {
                    txn,
                    life,
                    number,
                    wants: wants
                        .into_iter()
                        .map(|(resource, mode)| LockRequest {
                            resource: ResourceId(resource),
                            mode: MODES[mode],
                        })
                        .collect(),
                },
                1 => Request::Prepare { txn, life, staged },
                2 => Request::Finish { txn, life, staged },
                3 => Request::End {
                    txn,
                    committed: life % 2 == 0,
                },
                _ => Request::WasFinished { txn },
            },
        )
    }

    proptest! {
        #[test]
        fn requests_come_back(request in requests()) {
            let bytes = request.encode();
            prop_assert!(bytes.len() <= BYTES_MAX as usize);
            prop_assert_eq!(Request::decode(&bytes), Ok(request));
            for end in 0..bytes.len() {
                prop_assert!(Request::decode(&bytes[..end]).is_err());
            }
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes: Vec<u8>) {
            if let Ok(request) = Request::decode(&bytes) {
                prop_assert_eq!(request.encode(), bytes.clone());
            }
            if let Ok(answer) = Answer::decode(&bytes) {
                prop_assert_eq!(answer.encode(), bytes);
            }
        }

        #[test]
        fn answers_come_back(txn: u64, number: u32, kind in 0..11_usize) {
            let txn = TxnId(txn);
            let answer = match kind {
                0..5 => Answer::Locked { txn, number, refusal: Some(REFUSALS[kind]) },
                5 => Answer::Locked { txn, number, refusal: None },
                6 => Answer::Finished { txn, committed: number % 2 == 0 },
                7 => Answer::Ended { txn },
                8 => Answer::Ask { txn },
                9 => Answer::Lost { txn },
                _ => Answer::Wounded { txn },
            };
            prop_assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
    }
}
