//! `weft bench tpcb`: the same transaction in four forms, with a check of the books at the end.

use weft::Database;
use weft_workload::driver::{self, Contender};
use weft_workload::embedded::programs::TpcbPrograms;
use weft_workload::embedded::tpcb::TpcbWorkload;
use weft_workload::embedded::{Interactive, OneShot, load, sessions};
use weft_workload::report;
use weft_workload::tpcb::{Scale, TpcbSource, TpcbTransaction};

use super::network::{self, Network, Style};
use super::run::{RowsRead, RunCase, run_cases};
use super::{BenchDatabase, bar, print};
use crate::arguments::TpcbArguments;
use crate::failure::Failure;

/// The baseline of ratios.
const BASELINE: &str = "seven statements";

/// Loads, measures, checks conservation, prints.
pub(crate) fn run(arguments: &TpcbArguments) -> Result<(), Failure> {
    let scale = Scale {
        branches: arguments.scale,
        accounts_per_branch: arguments.accounts_per_branch,
    };
    let bench = BenchDatabase::open(&arguments.load, "tpcb")?;
    let database = &bench.database;
    let loading = bar(scale.accounts(), "loading accounts");
    load::load_tpcb(database, scale, |rows| loading.set_position(rows))?;
    loading.finish_and_clear();

    if !arguments.load.protocol.is_empty() || arguments.load.rate.is_some() {
        let workload = TpcbWorkload::new(database, scale)?;
        // Accounts are nearly all of the rows: 84 bytes of filler, and three numbers.
        let rows_read = RowsRead::declared(&workload, scale.accounts(), 100)?;
        let case = RunCase {
            name: format!("scale={}", scale.branches),
            config: format!("accounts={}", scale.accounts()),
            workload: &workload,
            rows_read: Some(rows_read),
        };
        return run_cases(&arguments.load, &bench, &[case]);
    }
    let programs = TpcbPrograms::compile(database)?;
    let commit = arguments.load.commit();
    let one_shot = OneShot {
        database,
        programs: &programs,
        commit,
        name: "one program",
    };
    let interactive = Interactive {
        database,
        programs: &programs,
        commit,
        name: "two-phase locking",
    };
    let message = sessions::Message { database, commit };
    let steps = sessions::Steps { database, commit };
    let mut contenders: Vec<&dyn Contender<TpcbTransaction>> =
        vec![&steps, &message, &interactive, &one_shot];
    let most_clients = arguments.load.clients.iter().max().copied().unwrap_or(1);
    let server = match arguments.network {
        true => Some(network::serve(database, most_clients)?),
        false => None,
    };
    let over_network = |style| {
        let address = server.as_ref()?.address();
        Some(Network {
            database,
            address,
            style,
        })
    };
    let [network_steps, network_message] = [Style::Steps, Style::Message].map(over_network);
    for contender in [&network_steps, &network_message].into_iter().flatten() {
        contenders.push(contender);
    }

    let mut committed = 0;
    for &clients in &arguments.load.clients {
        let rounds = (arguments.load.rounds * contenders.len()) as u64;
        let running = bar(rounds, "tpcb");
        let source = |seed| {
            let mut source = TpcbSource::new(scale, seed);
            move || source.transaction()
        };
        let load = arguments.load.load(clients);
        let measured = driver::alternate(
            &contenders,
            arguments.load.rounds,
            &load,
            source,
            |name, round| {
                running.inc(1);
                running.set_message(format!("{name}: {:.0}/s", round.throughput()));
            },
        )?;
        running.finish_and_clear();
        committed += measured
            .iter()
            .map(driver::Measured::committed_in_all)
            .sum::<u64>();
        let config = format!(
            "scale={} accounts={} {}",
            scale.branches,
            scale.accounts(),
            arguments.load.config(clients)
        );
        let case = format!("{clients} client(s)");
        let mut records = report::records("tpcb", &case, &config, &measured, BASELINE);
        if arguments.load.durable {
            records.extend(network::sync_shares(&case, &config, clients, &measured));
        }
        print(arguments.load.json, &format!("TPC-B, {config}"), &records)?;
    }
    check_books(database, committed)
}

/// Checks that all sums agree, and that there is a history row for every commit.
fn check_books(database: &Database, committed: u64) -> Result<(), Failure> {
    let sums = load::tpcb_sums(database)?;
    sums.check(committed).map_err(Failure::Check)?;
    eprintln!(
        "books: {} transactions, all balances and the history sum to {}",
        committed, sums.accounts
    );
    Ok(())
}
