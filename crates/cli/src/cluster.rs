//! `weft cluster serve`: ranks of one machine as processes over shared memory, or, under mpirun, one rank a
//! process.
//!
//! The command that a user starts is the launcher: it makes the shared memory, starts itself once for each
//! rank, and starts a rank that died again, which then returns. A rank stops when its standard input ends:
//! when the launcher is told to stop, or is gone.
//!
//! ```text
//! rank r     data  DIR/rank-r      address  HOST:PORT+r
//! ```

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use weft_fabric::{Rank, processes};

use crate::arguments::{ClusterServeArguments, ServeArguments};
use crate::failure::Failure;
use crate::serve::{self, Order, Orders};

/// How often the launcher looks at its ranks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The wait before a rank that died is started again.
const RESTART_AFTER: Duration = Duration::from_millis(500);
/// Starts after which a rank that dies each time is given up.
const STARTS_MAX: u32 = 20;

/// Runs the launcher, or the rank that this process was started as.
pub(crate) fn run(arguments: &ClusterServeArguments) -> Result<(), Failure> {
    let failed = |error: weft_fabric::Error| Failure::Environment(error.to_string());
    if let Some(rank) = processes::from_environment().map_err(failed)? {
        return run_rank(arguments, rank, &Orders::by_input()?);
    }
    #[cfg(feature = "mpi")]
    if weft_fabric::mpi::is_started_by_mpirun() {
        let rank = weft_fabric::mpi::start().map_err(failed)?;
        return run_rank(arguments, rank, &Orders::by_signal()?);
    }
    launch(arguments)
}

/// The arguments of one rank.
fn of_rank(arguments: &ClusterServeArguments, rank: u32) -> Result<ServeArguments, Failure> {
    let mut serve = arguments.serve.clone();
    serve.data = arguments.serve.data.join(format!("rank-{rank}"));
    serve.listen = address_of(arguments, rank)?;
    Ok(serve)
}

fn address_of(arguments: &ClusterServeArguments, rank: u32) -> Result<SocketAddr, Failure> {
    let first = arguments.serve.listen;
    let port = u16::try_from(rank)
        .ok()
        .filter(|_| first.port() > 0)
        .and_then(|rank| first.port().checked_add(rank));
    match port {
        Some(port) => Ok(SocketAddr::new(first.ip(), port)),
        None => Err(Failure::Usage(format!(
            "rank {rank} has no port: give --listen a first port, not 0, after which there are enough"
        ))),
    }
}

fn run_rank(arguments: &ClusterServeArguments, rank: Rank, orders: &Orders) -> Result<(), Failure> {
    let serve = of_rank(arguments, rank.number())?;
    serve::run_as(&serve, Some(rank), orders)
}

/// A rank's process; its standard input ends with this.
struct RankProcess {
    rank: u32,
    child: Child,
    starts: u32,
}

fn start(session: &processes::Session, rank: u32) -> Result<Child, Failure> {
    let binary = std::env::current_exe().map_err(|e| Failure::doing("finding this program", e))?;
    let mut command = Command::new(binary);
    command.args(std::env::args_os().skip(1)).stdin(Stdio::piped());
    session
        .spawn(rank, &mut command)
        .map_err(|error| Failure::Environment(error.to_string()))
}

fn launch(arguments: &ClusterServeArguments) -> Result<(), Failure> {
    let ranks = arguments.ranks;
    for rank in 0..ranks {
        serve::check_address(&of_rank(arguments, rank)?, true)?;
    }
    let orders = Orders::by_signal()?;
    let session = processes::Session::create(Path::new(processes::SHARED_MEMORY), ranks)
        .map_err(|error| Failure::Environment(error.to_string()))?;
    let mut processes = Vec::new();
    for rank in 0..ranks {
        let child = start(&session, rank)?;
        eprintln!("rank {rank} is process {}", child.id());
        processes.push(RankProcess {
            rank,
            child,
            starts: 1,
        });
    }
    let mut result = Ok(());
    while result.is_ok() {
        match orders.wait(LOOK_EVERY) {
            Some(Order::Stop) => break,
            Some(Order::Reload) => reload(&mut processes),
            None => {}
        }
        for process in &mut processes {
            if let Ok(Some(status)) = process.child.try_wait() {
                result = restart(&session, process, &status.to_string());
                if result.is_err() {
                    break;
                }
            }
        }
    }
    for mut process in processes {
        drop(process.child.stdin.take());
        // It may have ended already.
        let _ = process.child.wait();
    }
    result
}

/// Has all ranks read their certificate and key again.
fn reload(processes: &mut [RankProcess]) {
    for process in processes {
        if let Some(input) = &mut process.child.stdin {
            // A rank that died reads them when it is started again.
            let _ = input.write_all(b"r");
        }
    }
}

fn restart(session: &processes::Session, process: &mut RankProcess, how: &str) -> Result<(), Failure> {
    let rank = process.rank;
    if process.starts >= STARTS_MAX {
        return Err(Failure::Environment(format!(
            "rank {rank} ended ({how}) again and again"
        )));
    }
    eprintln!("rank {rank} ended ({how}) and is started again");
    thread::sleep(RESTART_AFTER);
    process.child = start(session, rank)?;
    process.starts += 1;
    eprintln!("rank {rank} is process {}", process.child.id());
    Ok(())
}

/// Passes on what the launcher tells by standard input.
pub(crate) fn watch_input(order: Sender<Order>) {
    thread::spawn(move || {
        let mut bytes = [0; 64];
        // The receiver lives as long as the rank.
        while matches!(std::io::stdin().read(&mut bytes), Ok(1..)) {
            let _ = order.send(Order::Reload);
        }
        let _ = order.send(Order::Stop);
    });
}
