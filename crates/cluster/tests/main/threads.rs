//! The same on threads: real interleavings, no deaths.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weft_base::{Disk, SimDisk};
use weft_cluster::journal::{Entry, Journal};
use weft_cluster::{Agent, ClusterConfig, Error, Server};
use weft_fabric::{Rank, Threads};
use weft_lock::{LockMode, LockRequest, ResourceId};

use crate::lab::Lab;

#[test]
fn agents_and_servers_on_threads() {
    for servers in 1..4 {
        let config = ClusterConfig {
            servers,
            records: 12,
            wait_max: Duration::from_millis(5),
            ..ClusterConfig::default()
        };
        let ranks = servers + 3;
        let lab = Lab::new(u64::from(servers), config, ranks, 60);
        Threads::run(ranks, |rank| lab.run(rank)).unwrap();
        lab.check().unwrap();
        let [committed, aborted, unknown] = lab.counts();
        assert_eq!(unknown, 0);
        assert!(committed > aborted, "{committed} {aborted}");
    }
}

/// Agents in more than one group of senders, on threads.
#[test]
fn ten_agents_and_two_servers_on_threads() {
    let config = ClusterConfig {
        servers: 2,
        records: 40,
        wait_max: Duration::from_millis(50),
        ..ClusterConfig::default()
    };
    let lab = Lab::new(7, config, 12, 20);
    Threads::run(12, |rank| lab.run(rank)).unwrap();
    lab.check().unwrap();
    let [committed, aborted, unknown] = lab.counts();
    assert_eq!(unknown, 0);
    assert!(committed > aborted, "{committed} {aborted}");
}

/// As many locks at one server as nobody counted on: the log takes them, and is read again.
#[test]
fn many_locks_of_one_transaction() {
    let disks: Vec<SimDisk> = (0..3).map(SimDisk::new).collect();
    let (over, config) = (
        AtomicBool::new(false),
        ClusterConfig {
            servers: 2,
            ..ClusterConfig::default()
        },
    );
    let open = |rank: Rank| -> Result<(), Error> {
        let disk: Arc<dyn Disk> = Arc::new(disks[rank.number() as usize].clone());
        if rank.number() < 2 {
            let mut server = Server::open(&rank, config, disk, Path::new("/server"))?;
            return server.serve(|_| over.load(Ordering::SeqCst));
        }
        let mut agent = Agent::open(&rank, config, disk, Path::new("/agent"))?;
        let mut transaction = agent.begin()?;
        let wants = (0..66_000).map(|n| LockRequest::new(ResourceId::other(2 * n + 4), LockMode::S));
        transaction.lock(&wants.collect::<Vec<_>>())?.unwrap();
        transaction.write(0, vec![1; 64])?.unwrap();
        transaction.write(1, vec![1; 64])?.unwrap();
        transaction.commit()?.unwrap();
        over.store(true, Ordering::SeqCst);
        Ok(())
    };
    Threads::run(3, |rank| open(rank).unwrap()).unwrap();
    let mut locks = 0;
    let each = |entry| {
        if let Entry::Prepared { locks: held, .. } = entry {
            locks = held.len();
        }
        Ok(())
    };
    Journal::open(Arc::new(disks[0].clone()), Path::new("/server"), 9, each).unwrap();
    assert_eq!(locks, 66_001);
}
