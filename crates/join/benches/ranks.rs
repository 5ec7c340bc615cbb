//! Joins over two ranks, phase by phase beside the document's model.
//!
//! ```text
//! cargo bench -p weft-join --bench ranks                     ranks that are threads, and processes
//! cargo bench -p weft-join --features mpi --bench ranks      ranks of mpirun, too, if it is there
//!     -- [--ranks N] [--rounds N] [--build M] [--probe M] [--hot PERCENT] [--only threads|processes|mpi]
//!        [--algorithm radix|sort-merge] [--wide] [--bits N] [--buffer BYTES] [--rounds-of TUPLES]
//!        [--assignment round-robin|sized] [--run-tuples N]
//! ```
//!
//! Sizes are millions (2^20) of tuples of all ranks together. Rates are millions of input tuples of 16 bytes
//! (of both sides, of all ranks) a second, the median of the rounds, from the moment when all ranks are ready
//! until the last one is done. A phase is the mean of the ranks. Windows are opened before.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use weft_fabric::{Rank, Threads, processes};
use weft_join::measure::{Workload, measure};
use weft_join::{Algorithm, Assignment, Compression, RankOptions, Schedule};

#[derive(Clone)]
struct Configuration {
    ranks: u32,
    rounds: usize,
    workload: Workload,
    only: Option<String>,
    options: RankOptions<'static>,
    algorithms: Vec<Algorithm>,
    form: Option<String>,
}

fn arguments() -> Configuration {
    let mut found = Configuration {
        ranks: 2,
        rounds: 5,
        workload: Workload {
            build: 16 << 20,
            probe: 16 << 20,
            hot_percent: 0,
        },
        only: None,
        options: RankOptions::default(),
        algorithms: vec![Algorithm::Radix, Algorithm::SortMerge],
        form: None,
    };
    let mut arguments = std::env::args().skip(1);
    let network = &mut found.options.network;
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().expect("a value");
        let number = |text: String| text.parse::<u64>().expect("a number");
        match name.as_str() {
            "--bench" => {}
            "--ranks" => found.ranks = number(value()) as u32,
            "--rounds" => found.rounds = number(value()) as usize,
            "--build" => found.workload.build = number(value()) << 20,
            "--probe" => found.workload.probe = number(value()) << 20,
            "--hot" => found.workload.hot_percent = number(value()),
            "--only" => found.only = Some(value()),
            "--algorithm" => {
                found.algorithms = match value().as_str() {
                    "radix" => vec![Algorithm::Radix],
                    "sort-merge" => vec![Algorithm::SortMerge],
                    other => panic!("unknown algorithm {other}"),
                };
            }
            "--wide" => found.options.compression = Compression::Never,
            "--bits" => network.bits_max = number(value()) as u32,
            "--buffer" => network.buffer_bytes = number(value()) as usize,
            "--run-tuples" => found.options.tuning.run_tuples = number(value()) as usize,
            "--rounds-of" => {
                network.schedule = Schedule::Rounds {
                    tuples: number(value()) as usize,
                };
            }
            "--assignment" => {
                network.assignment = match value().as_str() {
                    "round-robin" => Assignment::RoundRobin,
                    "sized" => Assignment::Sized,
                    other => panic!("unknown assignment {other}"),
                };
            }
            "--as" => found.form = Some(value()),
            other => panic!("unknown argument {other}"),
        }
    }
    found
}

/// The whole measurement, by every rank; the first one prints.
fn on_rank(form: &str, rank: &Rank, configuration: &Configuration) {
    // Ranks differ in the time that they take to make their tuples.
    rank.set_timeout(Duration::from_secs(120));
    let Configuration {
        algorithms,
        workload,
        options,
        rounds,
        ..
    } = configuration;
    let all = measure(rank, workload, options, algorithms, *rounds).expect("a join");
    if rank.number() != 0 {
        return;
    }
    for measured in all {
        println!(
            "\n{form}, {} ranks, {:?}: {:.1} M tuples/s ({:.3} s); {} bytes a tuple, {:.0} MB in {} puts, \
             {} partitions, {} shared; windows opened in {:.3} s",
            rank.count(),
            measured.algorithm,
            measured.tuples_per_second(workload) / 1e6,
            measured.seconds,
            measured.tuple_bytes,
            measured.sent_bytes as f64 / 1e6,
            measured.puts,
            measured.partitions[0],
            measured.partitions[1],
            measured.window_seconds,
        );
        let (mut sum, mut predicted_sum) = (0.0, 0.0);
        for (name, seconds) in &measured.phases {
            let predicted = measured.model.iter().find(|(phase, _)| phase == name);
            sum += seconds;
            match predicted {
                Some((_, predicted)) => {
                    predicted_sum += predicted;
                    println!(
                        "  {name:16} {seconds:8.3} s   model {predicted:8.3} s   {:+.3}",
                        seconds - predicted
                    );
                }
                None if *seconds > 0.0005 => println!("  {name:16} {seconds:8.3} s   not in the model"),
                None => {}
            }
        }
        println!(
            "  {:16} {sum:8.3} s   model {predicted_sum:8.3} s   {:+.1} %",
            "sum",
            (sum / predicted_sum - 1.0) * 100.0
        );
        println!("  rates (M tuples/s a rank): {:.0?}", measured.rates);
    }
}

fn again(form: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(std::env::args().skip(1)).args(["--as", form]);
    command
}

#[cfg(feature = "mpi")]
fn on_mpi(configuration: &Configuration) {
    let mpirun = std::env::var("WEFT_MPIRUN").unwrap_or_else(|_| "mpirun".to_owned());
    let child = again("mpi");
    let status = Command::new(&mpirun)
        .args(["-n", &configuration.ranks.to_string()])
        .arg(child.get_program())
        .args(child.get_args())
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .status();
    if !status.is_ok_and(|status| status.success()) {
        eprintln!("***** {mpirun} could not run: MPI is not measured *****");
    }
}

#[cfg(not(feature = "mpi"))]
fn on_mpi(_: &Configuration) {}

fn main() {
    let configuration = arguments();
    match configuration.form.as_deref() {
        Some("processes") => {
            let rank = processes::from_environment().expect("a rank").expect("a rank");
            return on_rank("processes", &rank, &configuration);
        }
        #[cfg(feature = "mpi")]
        Some("mpi") => {
            let rank = weft_fabric::mpi::start().expect("MPI");
            return on_rank("MPI", &rank, &configuration);
        }
        _ => {}
    }
    let wants = |form: &str| configuration.only.as_deref().is_none_or(|only| only == form);
    if wants("threads") {
        Threads::run(configuration.ranks, |rank| {
            on_rank("threads", &rank, &configuration)
        })
        .expect("threads");
    }
    if wants("processes") {
        let session = processes::Session::create(Path::new(processes::SHARED_MEMORY), configuration.ranks);
        let session = session.expect("shared memory");
        let children: Vec<_> = (0..configuration.ranks)
            .map(|rank| session.spawn(rank, &mut again("processes")).expect("a process"))
            .collect();
        for mut child in children {
            assert!(child.wait().expect("a process").success());
        }
    }
    if wants("mpi") {
        on_mpi(&configuration);
    }
}
