//! `weft bench locks --simulate-ranks N`: the lock protocol at thousands of ranks, SIMULATED with costs that
//! are measured here, beside the equations and the document's figures 5.5 to 5.7 and table 5.1.
//!
//! What one machine cannot measure is a message between machines: it takes longer than one inside by what
//! table 5.1 implies, unless `--remote-extra-us` says something else. The same simulation with the
//! document's own costs shows how far the model of a machine, not our costs, is from its measurements.

use weft_cluster::measure::Parts;
use weft_cluster::measure::simulate::{Costs, NODE_RANKS, Simulated, simulate};
use weft_cluster::trace::{Isolation, LockTrace};
use weft_workload::Record;

/// Remote shares in percent, and the document's measured throughput in millions a second with 1,260 and 2,520
/// agents (table 5.1).
const TABLE: [(u32, [f64; 2]); 6] = [
    (0, [19.70, 39.39]),
    (1, [18.03, 36.26]),
    (5, [14.91, 30.19]),
    (10, [12.66, 26.47]),
    (25, [8.81, 19.94]),
    (50, [6.36, 13.99]),
];
/// Transactions a second at 5,040 ranks (5.4.2), by isolation level.
const DOCUMENT_TPCC: [f64; 2] = [13.6e6, 24.5e6];
/// Ranks of table 5.1's columns, and of the figure.
const DOCUMENT_RANKS: [u32; 2] = [2_520, 5_040];
/// Simulated time of a run.
const RUN_NS: f64 = 2e6;
const QUICK_NS: f64 = 1e5;

/// What is simulated.
pub(super) struct Ranks<'a> {
    pub(super) ranks: u32,
    pub(super) remote_extra_ns: f64,
    pub(super) quick: bool,
    pub(super) tpcc: &'a LockTrace,
    pub(super) config: &'a str,
}

impl Ranks<'_> {
    /// Runs everything and says what came of it.
    pub(super) fn records(&self, parts: &Parts, lock_ns: f64) -> Vec<Record> {
        let [round_trip, _] = parts.round_trip_ns;
        let local_ns = round_trip / 2.0;
        let measured = Costs {
            local_ns,
            remote_ns: local_ns + self.remote_extra_ns,
            // What a lock takes more than its messages is its server's.
            serve_ns: (lock_ns - round_trip).max(parts.table_ns),
            send_ns: parts.send_ns,
        };
        let mut all = self.costs(&measured);
        for (name, costs) in [
            ("measured costs", measured),
            ("the document's costs", Costs::of_the_document()),
        ] {
            all.extend(self.scales(name, costs));
            all.extend(self.shares(name, costs));
        }
        all
    }

    /// Figures 5.5 and 5.6.
    fn scales(&self, name: &str, costs: Costs) -> Vec<Record> {
        let mut all = Vec::new();
        for (isolation, document) in Isolation::ALL.into_iter().zip(DOCUMENT_TPCC) {
            for ranks in self.steps() {
                let simulated = self.simulate(self.tpcc, isolation, ranks, costs);
                let case = format!(
                    "SIMULATION {name} tpcc {} ranks={}",
                    isolation.name(),
                    simulated.ranks
                );
                all.extend(self.figure(&case, &simulated));
                if simulated.ranks == DOCUMENT_RANKS[1] {
                    all.push(self.beside(&case, simulated.throughput, document));
                }
            }
        }
        all
    }

    /// Figure 5.7 and table 5.1.
    fn shares(&self, name: &str, costs: Costs) -> Vec<Record> {
        let mut all = Vec::new();
        let mut local_ns = None;
        for (percent, measured) in TABLE {
            let share = f64::from(percent) / 100.0;
            let trace = LockTrace::synthetic(1, 1_000, 10_000, 10, share);
            let simulated = self.simulate(&trace, Isolation::Serializable, self.ranks, costs);
            let case = format!(
                "SIMULATION {name} synthetic remote={percent}% ranks={}",
                simulated.ranks
            );
            all.extend(self.figure(&case, &simulated));
            let local_ns = *local_ns.get_or_insert(simulated.txn_ns);
            let [(_, local), ..] = TABLE;
            // Figure 5.7b: execution time, 1 if all is local.
            let slower = self.record(&case, "normalized time", simulated.txn_ns / local_ns, "1");
            all.push(slower.versus(Some(("the document", local[1] / measured[1]))));
            for (ranks, millions) in DOCUMENT_RANKS.into_iter().zip(measured) {
                if ranks == simulated.ranks {
                    all.push(self.beside(&case, simulated.throughput, millions * 1e6));
                }
            }
        }
        all
    }

    fn simulate(&self, trace: &LockTrace, isolation: Isolation, ranks: u32, costs: Costs) -> Simulated {
        let ns = if self.quick { QUICK_NS } else { RUN_NS };
        // So long that each agent ends some transactions.
        let length = costs.local_ns / 500.0;
        simulate(trace, isolation, ranks, costs, ns * length.max(1.0))
    }

    /// A node, and halves of all ranks.
    fn steps(&self) -> Vec<u32> {
        let mut steps: Vec<u32> = [8, 4, 2, 1].map(|part| self.ranks / part).to_vec();
        steps.push(NODE_RANKS);
        for ranks in &mut steps {
            *ranks = (*ranks).max(NODE_RANKS) / NODE_RANKS * NODE_RANKS;
        }
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    fn costs(&self, costs: &Costs) -> Vec<Record> {
        let figures = [
            ("message in a node", costs.local_ns),
            ("message between nodes", costs.remote_ns),
            ("server, a message", costs.serve_ns),
            ("agent, a message sent", costs.send_ns),
        ];
        figures
            .map(|(metric, value)| self.record("SIMULATION costs", metric, value, "ns"))
            .to_vec()
    }

    fn figure(&self, case: &str, simulated: &Simulated) -> Vec<Record> {
        let throughput = self.record(case, "transactions", simulated.throughput, "1/s");
        vec![
            throughput.versus(Some(("equation 5.4", simulated.predicted))),
            self.record(case, "locks", simulated.locks, "1/s"),
            self.record(case, "transaction", simulated.txn_ns, "ns"),
            self.record(case, "lock", simulated.lock_ns, "ns"),
            self.record(case, "votes of a transaction", simulated.vote_ns, "ns"),
        ]
    }

    fn beside(&self, case: &str, value: f64, document: f64) -> Record {
        let record = self.record(case, "transactions beside the document's", value, "1/s");
        record.versus(Some(("the document", document)))
    }

    fn record(&self, case: &str, metric: &str, value: f64, unit: &str) -> Record {
        Record::new("locks", case, self.config, metric, value, unit)
    }
}
