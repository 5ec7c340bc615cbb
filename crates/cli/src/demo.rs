//! `weft demo`: a tour of the main features, as a client sees them.
//!
//! ```text
//! 1 start   `weft serve` as a child process on a fresh directory
//! 2 load    a bank through COPY
//! 3 run     transfers on several connections, half as one message, half in five round trips, while an
//!           analytical query repeats over snapshots; every snapshot must show the same total
//! 4 kill    SIGKILL to the child during the load
//! 5 recover the same directory; every acknowledged transfer must be there exactly once, and no other
//! 6 run     again on the recovered database, and check again
//! 7 report  throughput, latency, recovery time, and how to connect
//! ```
//!
//! All of it uses the `postgres` driver: any program can do what the demo does.

mod load_phase;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use weft_workload::bank::{FIRST_BALANCE, Journal, Status};

use crate::arguments::DemoArguments;
use crate::bank_client;
use crate::failure::Failure;
use crate::server_process::{ServerCommand, ServerProcess};
use load_phase::{LoadPhase, PhaseResult};

/// Maximum time for a server to recover what the demo wrote.
const READY_LIMIT: Duration = Duration::from_secs(300);

/// Runs the demo.
pub(crate) fn run(arguments: &DemoArguments) -> Result<(), Failure> {
    let data = data_dir(arguments)?;
    let binary = std::env::current_exe().map_err(|e| Failure::doing("finding this program", e))?;
    let command = ServerCommand {
        port: arguments.port,
        ..ServerCommand::new(&binary, &data)
    };
    println!("1. starting weft serve on {}", data.display());
    let (server, address, _) = start(&command)?;
    println!("   look in while it runs: {}", psql(address));
    // Reuses the port after the kill, so that clients can reconnect.
    let command = ServerCommand {
        port: address.port(),
        ..command
    };

    println!("2. loading {} accounts", arguments.accounts);
    load(address, arguments.accounts)?;

    let each = Duration::from_millis(arguments.seconds * 500);
    let mut journal = Journal::default();
    println!(
        "3. {} connections make transfers, one asks for analyses",
        arguments.connections
    );
    let first = LoadPhase {
        arguments,
        address,
        first_client: 0,
    }
    .run(each, || {
        println!(
            "4. killing the server (process {}) with SIGKILL while they go on",
            server.pid()
        );
        server.kill()
    })?;
    journal.absorb(first.journal.clone());

    println!("5. recovering");
    let (server, address, recovery) = start(&command)?;
    let in_doubt = journal.count(Status::InDoubt);
    let acknowledged = journal.count(Status::Acknowledged);
    let resolved = check(address, arguments, &mut journal)?;
    println!(
        "   ready after {:.2} s; {} acknowledged transfers all there, once; {} without answer at the kill, \
         {} of them there; the money adds up",
        recovery.as_secs_f64(),
        acknowledged,
        in_doubt,
        resolved
    );

    println!("6. going on with what was recovered");
    let second = LoadPhase {
        arguments,
        address,
        first_client: arguments.connections,
    }
    .run_alive(each)?;
    journal.absorb(second.journal.clone());
    check(address, arguments, &mut journal)?;
    println!(
        "   {} transfers, all there, once; the money adds up",
        journal.count(Status::Acknowledged)
    );

    print_figures(&[&first, &second], recovery);
    finish(arguments, server, address, &data)
}

fn data_dir(arguments: &DemoArguments) -> Result<PathBuf, Failure> {
    let dir = match &arguments.dir {
        Some(dir) => dir.clone(),
        None => std::env::temp_dir().join(format!("weft-demo-{}", std::process::id())),
    };
    let mut entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(dir),
        Err(error) => return Err(Failure::doing(&format!("reading {}", dir.display()), error)),
    };
    if entries.next().is_some() {
        return Err(Failure::Usage(format!(
            "{} is not empty: the demo wants a fresh directory",
            dir.display()
        )));
    }
    Ok(dir)
}

fn start(command: &ServerCommand) -> Result<(ServerProcess, SocketAddr, Duration), Failure> {
    let mut server = command.start()?;
    let (address, took) = server.wait_until_ready(READY_LIMIT)?;
    Ok((server, address, took))
}

fn psql(address: SocketAddr) -> String {
    format!(
        "psql -h {} -p {} -U postgres postgres",
        address.ip(),
        address.port()
    )
}

fn load(address: SocketAddr, accounts: i32) -> Result<(), Failure> {
    let style = ProgressStyle::with_template("   {bar:40} {pos}/{len} accounts");
    let bar = ProgressBar::new(u64::from(accounts.unsigned_abs()));
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let began = Instant::now();
    let loaded = bank_client::connect(address).and_then(|mut client| {
        bank_client::load(&mut client, accounts, |done| {
            bar.set_position(u64::from(done.unsigned_abs()))
        })
    });
    bar.finish_and_clear();
    loaded.map_err(|e| Failure::doing("loading the bank", bank_client::describe(&e)))?;
    println!("   done in {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Checks the books; returns how many transfers in doubt are in the ledger.
fn check(address: SocketAddr, arguments: &DemoArguments, journal: &mut Journal) -> Result<usize, Failure> {
    let failed = |e: postgres::Error| Failure::doing("checking the books", bank_client::describe(&e));
    let mut client = bank_client::connect(address).map_err(failed)?;
    let total = bank_client::total(&mut client).map_err(failed)?;
    let wanted = i64::from(arguments.accounts) * FIRST_BALANCE;
    if total != wanted {
        return Err(Failure::Check(format!(
            "the bank should hold {wanted}, it holds {total}"
        )));
    }
    bank_client::check_books(&mut client, journal)
}

/// Prints the figures as a table.
fn print_figures(phases: &[&PhaseResult], recovery: Duration) {
    let seconds: f64 = phases.iter().map(|phase| phase.elapsed.as_secs_f64()).sum();
    println!(
        "\n{:<30} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "", "per second", "p50 ms", "p95 ms", "p99 ms", "max ms"
    );
    let merged = load_phase::merge(phases);
    for (name, latency_ns) in &merged {
        let ms = |percentile: f64| latency_ns.value_at_percentile(percentile) as f64 / 1e6;
        println!(
            "{name:<30} {:>10.0} {:>10.2} {:>10.2} {:>10.2} {:>10.2}",
            latency_ns.len() as f64 / seconds,
            ms(50.0),
            ms(95.0),
            ms(99.0),
            latency_ns.max() as f64 / 1e6
        );
    }
    let retries: u64 = phases.iter().map(|phase| phase.retries).sum();
    println!(
        "deadlocks resolved by a new attempt: {retries}; recovery: {:.2} s",
        recovery.as_secs_f64()
    );
    println!("every reply waited until its transaction was on disk (synchronous_commit = on)\n");
}

fn finish(
    arguments: &DemoArguments,
    server: ServerProcess,
    address: SocketAddr,
    data: &Path,
) -> Result<(), Failure> {
    if arguments.keep {
        println!(
            "still serving; stop with Ctrl-C. Connect with:\n  {}",
            psql(address)
        );
        server.wait()?;
        return Ok(());
    }
    server.kill()?;
    let binary = std::env::args().next().unwrap_or_else(|| "weft".to_owned());
    println!(
        "the database stays in {}. To serve it again, and connect:",
        data.display()
    );
    println!(
        "  {binary} serve --data {} --listen 127.0.0.1:5433",
        data.display()
    );
    println!("  {}", psql(SocketAddr::from(([127, 0, 0, 1], 5433))));
    Ok(())
}
