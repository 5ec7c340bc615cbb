//! The same on threads: real interleavings, no deaths.

use std::time::Duration;

use weft_cluster::ClusterConfig;
use weft_fabric::Threads;

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
