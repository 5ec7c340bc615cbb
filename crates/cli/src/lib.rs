//! The `weft` command as a library, so that the crash tests can use the same server process and
//! bank client as the demo.
//!
//! ```text
//! arguments        the command line's arguments
//! allocator        what the allocator is asked to do
//! serve            the server in the foreground, until a signal
//! cluster          ranks that serve together
//! server_process   a `weft serve` child: start, wait until it is ready, kill
//! bank_client      the bank of `weft_workload::bank` over a PostgreSQL connection
//! demo             the tour: load, run, kill, recover, check
//! bench            benchmarks of the embedded database, its parts and its peers
//! replay           the log, batch by batch
//! verify           checks of every file of a stopped database
//! failure          errors that end a command: message and exit code
//! ```

mod allocator;
pub mod arguments;
pub mod bank_client;
mod bench;
mod cluster;
mod demo;
pub mod failure;
mod init;
mod opening;
mod replay;
mod serve;
pub mod server_process;
mod verify;

use arguments::{BenchCommand, ClusterCommand, Command, WeftArguments};
use failure::Failure;

/// Runs the command given by the arguments.
pub fn run(arguments: WeftArguments) -> Result<(), Failure> {
    weft::install_check_language();
    match arguments.command {
        Command::Demo(demo) => demo::run(&demo),
        Command::Init(init) => init::run(&init),
        Command::Serve(serve) => serve::run(&serve),
        Command::Cluster(ClusterCommand::Serve(serve)) => cluster::run(&serve),
        Command::Bench(BenchCommand::Ycsb(ycsb)) => bench::ycsb::run(&ycsb),
        Command::Bench(BenchCommand::Tpcb(tpcb)) => bench::tpcb::run(&tpcb),
        Command::Bench(BenchCommand::Smallbank(smallbank)) => bench::smallbank::run(&smallbank),
        #[cfg(feature = "fpga")]
        Command::Bench(BenchCommand::Bionicdb(bionicdb)) => bench::bionicdb::run(&bionicdb),
        Command::Bench(BenchCommand::Tpcc(tpcc)) => bench::tpcc::run(&tpcc),
        Command::Bench(BenchCommand::Tpch(tpch)) => bench::tpch::run(&tpch),
        Command::Bench(BenchCommand::Stall(stall)) => bench::stall::run(&stall),
        Command::Bench(BenchCommand::Htap(htap)) => bench::htap::run(&htap),
        Command::Bench(BenchCommand::Cold(cold)) => bench::cold::run(&cold),
        Command::Bench(BenchCommand::Fabric(fabric)) => bench::fabric::run(&fabric),
        Command::Bench(BenchCommand::Join(join)) => bench::join::run(&join),
        Command::Bench(BenchCommand::Locks(locks)) => bench::locks::run(&locks),
        Command::Bench(BenchCommand::Scan(scan)) => bench::scan::run(&scan),
        Command::Bench(BenchCommand::Limits(limits)) => bench::limits::run(&limits),
        Command::Bench(BenchCommand::Index(index)) => bench::index::run(&index),
        Command::Bench(BenchCommand::Compaction(compaction)) => bench::compaction::run(&compaction),
        Command::Bench(BenchCommand::Lsm(lsm)) => bench::lsm::run(&lsm),
        Command::Replay(replay) => replay::run(&replay),
        Command::Verify(verify) => verify::run(&verify),
    }
}
