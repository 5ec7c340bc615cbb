//! Settings that all ranks share, and where locks and records are.

use std::time::Duration;

use weft_lock::{BoundedWait, ConflictPolicy, ResourceId};

use crate::error::Error;

/// Settings of a cluster of lock servers and agents. Those that ranks must agree on are compared when
/// windows are made.
#[derive(Clone, Copy)]
pub struct ClusterConfig {
    /// Ranks `0..servers` serve locks and records; the others run transactions.
    pub servers: u32,
    /// Records of all servers together; record `r` is at server `r % servers`.
    pub records: u64,
    /// Bytes of a record, a multiple of eight.
    pub record_bytes: u32,
    /// Bytes of writes that one transaction may have at one server, its framing included.
    pub staging_bytes: u32,
    /// What happens to a request that cannot be granted at once.
    pub policy: &'static dyn ConflictPolicy,
    /// How long a request may wait before it is refused.
    pub wait_max: Duration,
    /// An abort is not logged by its coordinator: a transaction that it does not know was aborted.
    pub presumes_abort: bool,
    /// How often what is open is asked for or told again.
    pub retry_every: Duration,
    /// How long a request waits before circles are looked for, through all servers; never if there is none.
    pub circles_after: Option<Duration>,
    /// A planted fault, for tests.
    pub planted: Planted,
}

/// A planted fault: tests show with it that they would find the like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Planted {
    /// None.
    #[default]
    Sound,
    /// Coordinators tell decisions before they are on the disk.
    TellsBeforeDisk,
    /// Circles are broken without looking at them again.
    BelievesOneLook,
    /// Every so many messages one is damaged on its way.
    DamagesEvery(u32),
}

impl Default for ClusterConfig {
    /// One server, 1,024 records of 64 bytes, 16 KiB of writes; waits bounded by 100 ms as in the document
    /// (5.2.2), circles looked for after 5 ms.
    fn default() -> Self {
        ClusterConfig {
            servers: 1,
            records: 1024,
            record_bytes: 64,
            staging_bytes: 16 << 10,
            policy: &BoundedWait,
            wait_max: Duration::from_millis(100),
            presumes_abort: true,
            retry_every: Duration::from_millis(10),
            circles_after: Some(Duration::from_millis(5)),
            planted: Planted::Sound,
        }
    }
}

/// The lock of a record.
#[must_use]
pub const fn record_lock(record: u64) -> ResourceId {
    ResourceId::other(record)
}

impl ClusterConfig {
    /// Whether they make sense for so many ranks.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self, ranks: u32) -> Result<(), Error> {
        let wrong = match () {
            () if self.servers == 0 || self.servers >= ranks => {
                "there must be servers, and ranks besides them"
            }
            () if ranks > 1 << AGENT_BITS => "more ranks than a transaction's number has room for",
            () if self.record_bytes == 0 || !self.record_bytes.is_multiple_of(8) => {
                "records must be multiples of 8 bytes"
            }
            () if self.staging_bytes < self.record_bytes + 64 => "less room for writes than one record needs",
            () => return Ok(()),
        };
        Err(Error::Config(wrong))
    }

    /// A number that differs if what ranks must agree on does.
    #[must_use]
    pub fn word(&self) -> u64 {
        let words = [
            u64::from(self.servers),
            self.records,
            u64::from(self.record_bytes),
            u64::from(self.staging_bytes),
            u64::from(crate::message::VERSION),
        ];
        words.iter().fold(0, |word, next| {
            (word ^ next).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        })
    }

    /// Who serves a lock.
    #[must_use]
    pub fn server_of(&self, lock: ResourceId) -> u32 {
        (lock.number() % u64::from(self.servers.max(1))) as u32
    }

    /// Where a record is in its server's window.
    pub(crate) fn record_offset(&self, record: u64) -> u64 {
        record / u64::from(self.servers.max(1)) * u64::from(self.record_bytes)
    }

    /// Records of one server.
    pub(crate) fn records_of(&self, server: u32) -> u64 {
        let servers = u64::from(self.servers.max(1));
        (self.records + servers - 1 - u64::from(server).min(servers - 1)) / servers
    }

    /// Where an agent's staging area is in a server's window.
    pub(crate) fn staging_offset(&self, server: u32, agent: u32) -> u64 {
        let records = self.records_of(server) * u64::from(self.record_bytes);
        records + u64::from(agent.saturating_sub(self.servers)) * u64::from(self.staging_bytes)
    }

    /// Bytes of a rank's part of the window of records.
    pub(crate) fn window_bytes(&self, rank: u32, ranks: u32) -> u64 {
        match rank < self.servers {
            true => self.staging_offset(rank, ranks),
            false => 0,
        }
    }
}

/// Bits of a transaction's number that are its agent's.
pub(crate) const AGENT_BITS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_has_a_place_of_its_own() {
        for servers in 1..5 {
            for records in 0..40 {
                let config = ClusterConfig {
                    servers,
                    records,
                    ..ClusterConfig::default()
                };
                let all: u64 = (0..servers).map(|server| config.records_of(server)).sum();
                assert_eq!(all, records);
                for record in 0..records {
                    let server = config.server_of(record_lock(record));
                    let end = config.record_offset(record) + u64::from(config.record_bytes);
                    assert!(end <= config.staging_offset(server, servers));
                }
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let config = ClusterConfig::default();
        assert!(config.check(2).is_ok());
        for wrong in [
            ClusterConfig { servers: 0, ..config },
            ClusterConfig { servers: 2, ..config },
            ClusterConfig {
                record_bytes: 7,
                ..config
            },
            ClusterConfig {
                staging_bytes: 64,
                ..config
            },
        ] {
            assert!(wrong.check(2).is_err());
        }
        assert_ne!(config.word(), ClusterConfig { records: 1, ..config }.word());
    }
}
