//! What a join must give, from maps, and a consumer that keeps everything.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use weft_join::{CHUNK_ROWS, Chunk, Consumer, Emit, Pair, Tuple};

/// All results of a join, of every kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results {
    pub pairs: Vec<Pair>,
    pub probe_matched: Vec<u64>,
    pub probe_unmatched: Vec<u64>,
    pub build_matched: Vec<u64>,
    pub build_unmatched: Vec<u64>,
}

impl Consumer for Results {
    fn take(&mut self, chunk: Chunk<'_>) -> ControlFlow<()> {
        match chunk {
            Chunk::Pairs(pairs) => {
                assert!((1..=CHUNK_ROWS).contains(&pairs.len()));
                self.pairs.extend_from_slice(pairs);
            }
            Chunk::ProbeMatched(rows) => self.probe_matched.extend_from_slice(rows),
            Chunk::ProbeUnmatched(rows) => self.probe_unmatched.extend_from_slice(rows),
            Chunk::BuildMatched(rows) => self.build_matched.extend_from_slice(rows),
            Chunk::BuildUnmatched(rows) => self.build_unmatched.extend_from_slice(rows),
        }
        ControlFlow::Continue(())
    }
}

impl Results {
    /// The results of all workers, sorted.
    pub fn of(workers: Vec<Results>) -> Results {
        let mut all = Results::default();
        for worker in workers {
            all.pairs.extend(worker.pairs);
            all.probe_matched.extend(worker.probe_matched);
            all.probe_unmatched.extend(worker.probe_unmatched);
            all.build_matched.extend(worker.build_matched);
            all.build_unmatched.extend(worker.build_unmatched);
        }
        all.sort();
        all
    }

    fn sort(&mut self) {
        self.pairs.sort_unstable();
        self.probe_matched.sort_unstable();
        self.probe_unmatched.sort_unstable();
        self.build_matched.sort_unstable();
        self.build_unmatched.sort_unstable();
    }
}

/// The results, by maps from keys to rows.
pub fn expected(build: &[Tuple], probe: &[Tuple], emit: Emit) -> Results {
    let rows = |tuples: &[Tuple]| {
        let mut rows = BTreeMap::<u64, Vec<u64>>::new();
        for tuple in tuples {
            rows.entry(tuple.key).or_default().push(tuple.row);
        }
        rows
    };
    let (builds, probes) = (rows(build), rows(probe));
    let mut results = Results::default();
    for (key, rows) in &probes {
        let partners = builds.get(key);
        for probe in rows {
            if emit.pairs {
                let pair = |build: &u64| Pair {
                    build: *build,
                    probe: *probe,
                };
                results.pairs.extend(partners.into_iter().flatten().map(pair));
            }
        }
        match partners {
            Some(_) if emit.probe_matched => results.probe_matched.extend(rows),
            None if emit.probe_unmatched => results.probe_unmatched.extend(rows),
            _ => {}
        }
    }
    for (key, rows) in &builds {
        match probes.get(key) {
            Some(_) if emit.build_matched => results.build_matched.extend(rows),
            None if emit.build_unmatched => results.build_unmatched.extend(rows),
            _ => {}
        }
    }
    results.sort();
    results
}
