//! A bank on a server that is killed and started again.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use weft_base::Prng;
use weft_cli::bank_client::{self, ClientReport, Shared, Style};
use weft_cli::server_process::{ServerCommand, ServerProcess};
use weft_workload::bank::{Journal, TransferSource};

/// Every reply waits for the disk.
pub const SYNC_ON: [&str; 2] = ["--synchronous-commit", "on"];
/// Replies do not wait for the disk.
pub const SYNC_OFF: [&str; 2] = ["--synchronous-commit", "off"];

/// Clients of one round.
const CLIENTS: u32 = 4;
/// Longest time for a server to be ready; an unoptimised build on a busy machine included.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// When the server is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kill {
    /// Under load.
    Once,
    /// Under load, and again on its next start before it is ready.
    InRecoveryToo,
}

/// The bank, its server and what its clients remember.
pub struct Bank {
    // Before the directory: the server must be gone when the directory is removed.
    server: Option<ServerProcess>,
    address: SocketAddr,
    command: ServerCommand,
    _dir: TempDir,
    accounts: i32,
    next_client: u32,
    /// What clients remember.
    pub journal: Journal,
    /// How long the last start took.
    pub last_recovery: Duration,
}

fn command_on(dir: &Path) -> ServerCommand {
    ServerCommand::new(Path::new(env!("CARGO_BIN_EXE_weft")), dir)
}

/// What a server says that must refuse to start on `dir`.
pub fn refusal_on(dir: &Path) -> String {
    command_on(dir)
        .start()
        .unwrap()
        .wait_until_ready(READY_LIMIT)
        .unwrap_err()
        .to_string()
}

impl Bank {
    /// A new bank on a fresh directory. A small log makes checkpoints frequent.
    pub fn open(accounts: i32, switches: &[&str]) -> Bank {
        let dir = tempfile::tempdir().unwrap();
        let mut command = command_on(&dir.path().join("data"));
        command.extra = switches.iter().map(OsString::from).collect();
        command.extra.extend(["--checkpoint-mb", "1"].map(OsString::from));
        let mut bank = Bank {
            server: None,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            command,
            _dir: dir,
            accounts,
            next_client: 0,
            journal: Journal::default(),
            last_recovery: Duration::ZERO,
        };
        bank.start();
        let mut client = bank_client::connect(bank.address).unwrap();
        bank_client::load(&mut client, accounts, |_| {}).unwrap();
        // The load itself must be on disk before the first kill, whatever the switches say.
        client
            .batch_execute("SET synchronous_commit = on; CREATE TABLE loaded (id int PRIMARY KEY)")
            .unwrap();
        bank
    }

    fn start(&mut self) {
        let mut server = self.command.start().unwrap();
        let (address, took) = server.wait_until_ready(READY_LIMIT).unwrap();
        (self.address, self.last_recovery, self.server) = (address, took, Some(server));
    }

    /// Another server on the same directory, not ready yet.
    pub fn start_another(&self) -> ServerProcess {
        self.command.start().unwrap()
    }

    /// One round: load for `length`, kill, perhaps kill during recovery, start again. How many times the
    /// server was killed before it was ready.
    pub fn run_and_kill(&mut self, length: Duration, kill: Kill, random: &mut Prng) -> usize {
        let shared = Arc::new(Shared::default());
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| self.client(&shared, random.next_u64()))
            .collect();
        thread::sleep(length);
        let mut server = self.server.take().unwrap();
        assert!(server.is_running(), "the server ended by itself");
        server.kill().unwrap();
        // Those who have not noticed yet are still connected to nothing.
        shared.stop.store(true, Ordering::Relaxed);
        for client in clients {
            self.journal.absorb(client.join().unwrap().journal);
        }
        let mut killed = 0;
        if kill == Kill::InRecoveryToo {
            let longest = self.last_recovery.max(Duration::from_millis(20));
            killed = (0..3).filter(|_| self.kill_in_recovery(longest, random)).count();
        }
        self.start();
        killed
    }

    fn client(&mut self, shared: &Arc<Shared>, seed: u64) -> thread::JoinHandle<ClientReport> {
        let number = self.next_client;
        self.next_client += 1;
        let style = if number.is_multiple_of(2) {
            Style::Message
        } else {
            Style::Steps
        };
        let source = TransferSource::new(self.accounts, number, seed);
        let (address, shared) = (self.address, Arc::clone(shared));
        thread::spawn(move || bank_client::run_client(address, style, source, &shared).unwrap())
    }

    /// Starts the server and kills it at a random moment of about the time that a start takes. True if it was
    /// killed before it was ready.
    fn kill_in_recovery(&self, longest: Duration, random: &mut Prng) -> bool {
        let mut server = self.command.start().unwrap();
        let nanos = u64::try_from(longest.as_nanos()).unwrap();
        let early = server
            .wait_until_ready(Duration::from_nanos(random.below(nanos)))
            .is_err();
        server.kill().unwrap();
        early
    }

    /// Puts acknowledged transfers in doubt, as one who did not wait for the disk must; only a tail of each
    /// client's may be gone.
    pub fn forgive_lost_tail(&mut self) {
        let mut client = bank_client::connect(self.address).unwrap();
        let (ledger, _) = bank_client::books(&mut client).unwrap();
        self.journal.allow_lost_tail(&ledger).unwrap();
    }

    /// Compares the books with the clients' journal; how many transfers in doubt are there.
    pub fn check(&mut self) -> usize {
        let mut client = bank_client::connect(self.address).unwrap();
        bank_client::check_books(&mut client, &mut self.journal).unwrap()
    }
}
