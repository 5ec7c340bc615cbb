//! Latencies and bandwidth of the fabric between two ranks, on each form, in one run.
//!
//! ```text
//! cargo bench -p weft-fabric                    threads and processes
//! cargo bench -p weft-fabric --features mpi     MPI too, beside its two-sided messages; `mpirun` must be
//! there
//! ```
//!
//! `weft_fabric::measure` says what is timed; two more rows are here: two-sided, the round trip by MPI_Send
//! and MPI_Recv, and vote, one run of a small protocol in the simulation, its start included. `weft bench
//! fabric` measures threads and processes, too.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use weft_fabric::measure::{Amount, Latency, measure};
use weft_fabric::sim::Simulation;
use weft_fabric::{Error, Mailbox, MailboxSpec, Rank, Threads, WindowSpec, processes};

const AMOUNT: Amount = Amount {
    trips: 200_000,
    operations: 10_000,
    bytes: 512 << 20,
};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let is_child = |name: &str| arguments.iter().any(|argument| argument == name);
    let result = if is_child("--process") {
        processes::from_environment().and_then(|rank| rank.map_or(Ok(()), |rank| rows("processes", &rank)))
    } else if is_child("--mpi") {
        mpi_rank()
    } else {
        println!("form,row,size_bytes,median_ns,p99_ns,p999_ns,mib_per_s");
        on_threads().and_then(|()| on_processes()).map(|()| {
            on_mpi();
            simulated_votes();
        })
    };
    if let Err(error) = result {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn on_threads() -> Result<(), Error> {
    Threads::run(2, |rank| rows("threads", &rank))?
        .into_iter()
        .collect()
}

/// What a test of a protocol pays: a vote among three ranks, simulated, each run on threads of its own.
fn simulated_votes() {
    let vote = |rank: Rank| -> Result<u64, Error> {
        let mailbox = Mailbox::open(&rank, &MailboxSpec::uniform("votes", 48, 3, 1))?;
        let word = rank.create_window(&WindowSpec {
            name: "word",
            bytes: 8,
            is_uniform: true,
            config: 0,
        })?;
        rank.barrier()?;
        let mut payload = Vec::new();
        if rank.number() > 0 {
            mailbox.receive(&mut payload)?;
            word.fetch_add(0, 0, 1)?;
            return mailbox.receive(&mut payload).map(|_| 0);
        }
        mailbox.send(1, b"prepare")?;
        mailbox.send(2, b"prepare")?;
        let votes = rank.wait_for("votes", None, || {
            Ok(Some(word.local_load(0)?).filter(|word| *word == 2))
        })?;
        mailbox.send(1, b"commit")?;
        mailbox.send(2, b"commit").map(|()| votes)
    };
    let (mut steps, runs, start) = (0, 2_000, Instant::now());
    for seed in 0..runs {
        steps += Simulation::new(seed, 3).run(vote).steps.iter().sum::<u64>();
    }
    let per_run_ns = start.elapsed().as_nanos() as u64 / runs;
    println!(
        "simulation,vote of 3 ranks ({} steps),,{per_run_ns},,,",
        steps / runs
    );
}

fn this_program() -> std::path::PathBuf {
    std::env::current_exe().unwrap_or_default()
}

fn on_processes() -> Result<(), Error> {
    let session = processes::Session::create(Path::new(processes::SHARED_MEMORY), 2)?;
    let mut children = Vec::new();
    for rank in 0..2 {
        let mut command = Command::new(this_program());
        children.push(session.spawn(rank, command.arg("--process").stdout(Stdio::inherit()))?);
    }
    for mut child in children {
        let _ = child.wait();
    }
    Ok(())
}

#[cfg(not(feature = "mpi"))]
fn on_mpi() {}

#[cfg(not(feature = "mpi"))]
fn mpi_rank() -> Result<(), Error> {
    Ok(())
}

#[cfg(feature = "mpi")]
fn on_mpi() {
    let mpirun = std::env::var("WEFT_MPIRUN").unwrap_or_else(|_| "mpirun".to_owned());
    let status = Command::new(&mpirun)
        .args(["-n", "2"])
        .arg(this_program())
        .arg("--mpi")
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .status();
    if !status.is_ok_and(|status| status.success()) {
        eprintln!("***** {mpirun} could not run: MPI is not measured *****");
    }
}

#[cfg(feature = "mpi")]
fn mpi_rank() -> Result<(), Error> {
    use weft_fabric::mpi;
    let rank = mpi::start()?;
    let form = std::env::var("WEFT_MPICC").map_or("mpi".to_owned(), |wrapper| format!("mpi ({wrapper})"));
    rows(&form, &rank)?;
    let mut bytes = [7; 16];
    let trips = weft_fabric::measure::trips(&rank, AMOUNT.trips, |is_first| {
        if is_first {
            mpi::send_two_sided(1, &bytes)?;
            mpi::receive_two_sided(1, &mut bytes)
        } else {
            mpi::receive_two_sided(0, &mut bytes)?;
            mpi::send_two_sided(0, &bytes)
        }
    })?;
    if rank.number() == 0 {
        print_latency(&form, "two-sided", 16, Latency::of(trips));
    }
    rank.barrier()
}

/// All rows for one form; rank 0 prints them.
fn rows(form: &str, rank: &Rank) -> Result<(), Error> {
    let found = measure(rank, &AMOUNT)?;
    for (row, size, latency) in &found.latencies {
        print_latency(form, row, *size, *latency);
    }
    for of_size in &found.bandwidths {
        let mib_per_s = of_size.bytes_per_second / f64::from(1 << 20);
        println!("{form},bandwidth,{},,,,{mib_per_s:.0}", of_size.put_bytes);
    }
    Ok(())
}

fn print_latency(form: &str, row: &str, size: u32, latency: Latency) {
    let Latency {
        median_ns,
        p99_ns,
        p999_ns,
    } = latency;
    println!("{form},{row},{size},{median_ns},{p99_ns},{p999_ns},");
}
