//! A bank on a cluster of processes: the launcher, its ranks, and signals to one of them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;
use tempfile::TempDir;
use weft_cli::bank_client;

/// Longest time for ranks to be ready; an unoptimised build on a busy machine included.
pub const READY_LIMIT: Duration = Duration::from_secs(120);

pub struct Cluster {
    launcher: Child,
    pub addresses: Vec<SocketAddr>,
    /// The process of each rank, as the launcher tells.
    processes: Arc<Mutex<BTreeMap<u32, u32>>>,
    _dir: TempDir,
}

/// The first of so many free ports in a row. Others may take them until the cluster does: the caller tries
/// again.
fn free_ports(count: u16) -> u16 {
    // Below the range from which the system takes ports for connections.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let at = NEXT.fetch_add(1, Ordering::Relaxed) + std::process::id();
        let first = 20_000 + u16::try_from(at % 1_200).unwrap() * 8;
        let bind = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if (first..first + count).all(bind) {
            return first;
        }
    }
}

/// Sends a signal to a process that this test has started, directly or by its launcher.
fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args([name, &process.to_string()]).status();
    assert!(sent.unwrap().success(), "kill {name} {process}");
}

impl Cluster {
    pub fn start(rank_count: u16) -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let first = free_ports(rank_count);
        let mut launcher = Command::new(Path::new(env!("CARGO_BIN_EXE_weft")))
            .args(["cluster", "serve", "--ranks", &rank_count.to_string(), "--data"])
            .arg(dir.path().join("data"))
            .args(["--listen", &format!("127.0.0.1:{first}"), "--checkpoint-mb", "1"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let processes = Arc::<Mutex<BTreeMap<u32, u32>>>::default();
        let (told, lines) = (
            Arc::clone(&processes),
            BufReader::new(launcher.stderr.take().unwrap()),
        );
        thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let words: Vec<&str> = line.split(' ').collect();
                if let ["rank", rank, "is", "process", process] = words.as_slice() {
                    told.lock()
                        .unwrap()
                        .insert(rank.parse().unwrap(), process.parse().unwrap());
                }
            }
        });
        let cluster = Cluster {
            launcher,
            addresses: (first..first + rank_count)
                .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
                .collect(),
            processes,
            _dir: dir,
        };
        cluster.wait_until_ready();
        cluster
    }

    /// A connection to a rank, once it serves.
    pub fn client(&self, rank: usize) -> Client {
        let until = Instant::now() + READY_LIMIT;
        loop {
            match bank_client::connect(self.addresses[rank]) {
                Ok(client) => return client,
                Err(error) if Instant::now() > until => panic!("rank {rank}: {error}"),
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Waits until every rank answers, of all ranks.
    pub fn wait_until_ready(&self) {
        let until = Instant::now() + READY_LIMIT;
        for rank in 0..self.addresses.len() {
            while let Err(error) = self.client(rank).simple_query("select count(*) from pg_class") {
                assert!(Instant::now() < until, "rank {rank}: {error}");
                thread::sleep(Duration::from_millis(50));
            }
        }
    }

    pub fn process(&self, rank: u32) -> u32 {
        self.processes.lock().unwrap()[&rank]
    }

    /// Kills a rank; the launcher starts it again.
    pub fn kill(&self, rank: u32) {
        let process = self.process(rank);
        signal("-KILL", process);
        let until = Instant::now() + READY_LIMIT;
        while self.process(rank) == process {
            assert!(Instant::now() < until, "rank {rank} was not started again");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops a rank's process, which does not know it.
    pub fn pause(&self, rank: u32) {
        signal("-STOP", self.process(rank));
    }

    pub fn resume(&self, rank: u32) {
        signal("-CONT", self.process(rank));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.processes.lock().unwrap().values() {
            // One that was paused could not stop.
            let _ = Command::new("kill")
                .args(["-CONT", &process.to_string()])
                .status();
        }
        let _ = Command::new("kill")
            .args(["-TERM", &self.launcher.id().to_string()])
            .status();
        let _ = self.launcher.wait();
    }
}
