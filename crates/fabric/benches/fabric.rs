//! Latencies and bandwidth of the fabric between two ranks, on each form, in one run.
//!
//! ```text
//! cargo bench -p weft-fabric                    threads and processes
//! cargo bench -p weft-fabric --features mpi     MPI too, beside its two-sided messages; `mpirun` must be
//! there
//! ```
//!
//! `WEFT_BENCH_TRIPS=1` measures round trips alone.
//!
//! | row | what is timed |
//! |---|---|
//! | mailbox of n | n slots for the sender: rank 0 sends 16 bytes, rank 1 answers with 16, rank 0 has them: each trip alone |
//! | to itself | a message that does not travel: what one trip costs in instructions |
//! | two-sided | the same by MPI_Send and MPI_Recv |
//! | put and flush, fetch_add, compare_and_swap | at the other rank, which waits: means of 32 |
//! | vote | one run of a small protocol in the simulation, its start included |
//! | bandwidth | puts of one size, a flush after each 1 MiB at least |
//!
//! Medians hold on a busy machine; the upper percentiles are those of the moment. With fewer processors than
//! ranks everything is the scheduler's time.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use weft_fabric::sim::Simulation;
use weft_fabric::{Error, Mailbox, MailboxSpec, Rank, Threads, Window, WindowSpec, processes};

const TRIPS: usize = 200_000;
const BATCHES: usize = 10_000;
const BATCH: u32 = 32;
const PART_BYTES: u64 = 4 << 20;
const BANDWIDTH_BYTES: u64 = 512 << 20;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let is_child = |name: &str| arguments.iter().any(|argument| argument == name);
    let result = if is_child("--process") {
        processes::from_environment().and_then(|rank| rank.map_or(Ok(()), |rank| measure("processes", &rank)))
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
    Threads::run(2, |rank| measure("threads", &rank))?
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
    measure(&form, &rank)?;
    let mut bytes = [7; 16];
    let trips = trips(&rank, |is_first| {
        if is_first {
            mpi::send_two_sided(1, &bytes)?;
            mpi::receive_two_sided(1, &mut bytes)
        } else {
            mpi::receive_two_sided(0, &mut bytes)?;
            mpi::send_two_sided(0, &bytes)
        }
    })?;
    if rank.number() == 0 {
        print_latency(&form, "two-sided", 16, trips);
    }
    rank.barrier()
}

/// Keeps this thread on the processor of its rank's number, as mpirun does: the system may put two threads
/// that wait for each other on one processor.
fn pin(rank: &Rank) {
    // SAFETY: the set is plain data of our own, and the call changes only where this thread runs.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(rank.number() as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// All rows for one form; rank 0 prints them.
fn measure(form: &str, rank: &Rank) -> Result<(), Error> {
    pin(rank);
    for slots in [1, 8] {
        let mailbox = Mailbox::open(rank, &MailboxSpec::uniform("bench", 48, 2, slots))?;
        let (message, mut payload) = ([3; 16], Vec::new());
        let trips = trips(rank, |is_first| {
            if is_first {
                mailbox.send(1, &message)?;
                mailbox.receive(&mut payload).map(|_| ())
            } else {
                mailbox.receive(&mut payload)?;
                mailbox.send(0, &message)
            }
        })?;
        if rank.number() == 0 {
            print_latency(form, &format!("mailbox of {slots}"), 16, trips);
        }
        if rank.number() == 0 && slots > 1 {
            let times = batches(|| {
                mailbox.send(0, &message)?;
                mailbox.receive(&mut payload).map(|_| ())
            })?;
            print_latency(form, "to itself", 16, times);
        }
        mailbox.close()?;
    }
    let window = rank.create_window(&WindowSpec {
        name: "bench",
        bytes: PART_BYTES,
        is_uniform: true,
        config: 0,
    })?;
    rank.barrier()?;
    if rank.number() == 0 && std::env::var_os("WEFT_BENCH_TRIPS").is_none() {
        operations(form, &window)?;
        bandwidth(form, &window)?;
    }
    // The other rank waits here, in a loop that lets the library run, for longer than a collective may.
    rank.set_timeout(Duration::from_secs(300));
    rank.barrier()?;
    window.close()
}

/// Nanoseconds of each round trip, on rank 0.
fn trips(rank: &Rank, mut trip: impl FnMut(bool) -> Result<(), Error>) -> Result<Vec<u64>, Error> {
    let is_first = rank.number() == 0;
    let mut times = Vec::with_capacity(TRIPS);
    rank.barrier()?;
    for number in 0..TRIPS + TRIPS / 10 {
        let start = Instant::now();
        trip(is_first)?;
        if number >= TRIPS / 10 {
            times.push(start.elapsed().as_nanos() as u64);
        }
    }
    Ok(times)
}

fn batches(mut operation: impl FnMut() -> Result<(), Error>) -> Result<Vec<u64>, Error> {
    let mut times = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..BATCH {
            operation()?;
        }
        times.push(start.elapsed().as_nanos() as u64 / u64::from(BATCH));
    }
    Ok(times)
}

fn operations(form: &str, window: &Window) -> Result<(), Error> {
    let bytes = [1; 64];
    let times = batches(|| window.put(1, 64, &bytes).and_then(|()| window.flush(1)))?;
    print_latency(form, "put and flush", 64, times);
    let times = batches(|| window.fetch_add(1, 0, 1).map(|_| ()))?;
    print_latency(form, "fetch_add", 8, times);
    let mut expected = window.load(1, 0)?;
    let times = batches(|| {
        window.compare_and_swap(1, 0, expected, expected + 1)?;
        expected += 1;
        Ok(())
    })?;
    print_latency(form, "compare_and_swap", 8, times);
    Ok(())
}

fn bandwidth(form: &str, window: &Window) -> Result<(), Error> {
    for shift in [6, 8, 10, 12, 14, 16, 18, 20, 22] {
        let size = 1_u64 << shift;
        let bytes = vec![5; size as usize];
        let puts = (BANDWIDTH_BYTES / size).min(500_000);
        let start = Instant::now();
        let (mut at, mut unflushed) = (0, 0);
        for _ in 0..puts {
            window.put(1, at, &bytes)?;
            at = (at + size) % PART_BYTES;
            unflushed += size;
            if unflushed >= 1 << 20 {
                window.flush(1)?;
                unflushed = 0;
            }
        }
        window.flush(1)?;
        let mib_per_s = (puts * size) as f64 / start.elapsed().as_secs_f64() / f64::from(1 << 20);
        println!("{form},bandwidth,{size},,,,{mib_per_s:.0}");
    }
    Ok(())
}

fn print_latency(form: &str, row: &str, size: u32, mut times: Vec<u64>) {
    times.sort_unstable();
    let at = |share: f64| {
        let index = (times.len() as f64 * share) as usize;
        times.get(index).copied().unwrap_or(0)
    };
    println!("{form},{row},{size},{},{},{},", at(0.5), at(0.99), at(0.999));
}
