//! SIMULATION of joins over more ranks than there are processors here: time alone, no tuples.
//!
//! ```text
//! rank: partitions or sorts ---> request queue of its node ---> link out ---> link in of the receiver
//!       (measured rates)         (bounded: full stops the rank)               (one message at a time)
//! ```
//!
//! A rank makes tuples at a measured rate, and a message when a buffer or a run is full. A node's requests
//! that are not complete are bounded; a rank that has one more waits. Links carry one message at a time.
//!
//! - Hash join: buffers fill evenly, so that all buffers of a rank are full at nearly the same time, and
//!   their messages come in bursts (Barthels 4.3.3 sees this as the reason why puts get slower). How far fill
//!   times are apart follows from the number of tuples in a buffer.
//! - Sort-merge join: one run after the other, rank i beginning with receiver i + 1, so that each receiver
//!   has one sender as long as ranks keep pace with each other.
//! - Stragglers are slower by a factor in all that they compute.
//! - Ranks that come or go in the middle of the exchange (6.1.2 says what MPI lacks for it): a plan for the
//!   new number of ranks is agreed on; partitions that change their rank are moved, and so is the input that
//!   was not read yet; the rest of the exchange and what follows run on the new ranks.
//!
//! Simplifications: one level of switches without congestion inside; histograms cost what the model says;
//! the first buffers of every rank are simulated, and their time scaled to all.
//!
//! Everything follows from the seed: times are whole nanoseconds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weft_base::Prng;

use super::model::{Prediction, RankRates, RankShape};
use crate::options::Algorithm;

/// Messages that are simulated, about; the time of more is scaled.
const MESSAGES_MAX: u64 = 4_000_000;

/// What the ranks run on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Ranks.
    pub ranks: u32,
    /// Ranks that share a link and a request queue.
    pub ranks_per_node: u32,
    /// Bytes a second of a node's link, each way.
    pub link_bytes: f64,
    /// Nanoseconds that a message takes beside its bytes.
    pub latency_ns: u64,
    /// Nanoseconds that a link is busy with a message beside its bytes.
    pub request_ns: u64,
    /// Requests of a node that may be open.
    pub requests_max: usize,
    /// Of a thousand ranks so many are slow.
    pub stragglers_per_mille: u32,
    /// How much longer a slow rank takes.
    pub straggler_factor: f64,
}

/// What is joined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedJoin {
    /// Radix or sort-merge.
    pub algorithm: Algorithm,
    /// Build tuples of one rank.
    pub build: u64,
    /// Probe tuples of one rank.
    pub probe: u64,
    /// Bytes of a tuple on its way.
    pub tuple_bytes: u64,
    /// Bytes of a message: a buffer or a run.
    pub message_bytes: u64,
    /// Partitions of the network pass; at least one a rank.
    pub partitions: u64,
    /// d - 1 of the model.
    pub local_passes: f64,
    /// Depth of the merge.
    pub merge_depth: f64,
    /// Measured rates of one rank.
    pub rates: RankRates,
}

/// Ranks that come or go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resize {
    /// After which share of the exchange.
    pub after: f64,
    /// Ranks from then on.
    pub ranks: u32,
}

/// A simulated join.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Simulated {
    /// Seconds of each phase: of the network pass and of what is computed the mean of ranks, beside it what
    /// the slowest one takes longer.
    pub phases: Prediction,
    /// Seconds.
    pub seconds: f64,
    /// Input tuples of both sides and all ranks a second.
    pub tuples_per_second: f64,
    /// Share of the network pass in which a rank waited for the request queue, on average.
    pub queue_share: f64,
}

/// What the equations say of the same join: a rank shares its node's link with the others there, and what it
/// sends inside its node does not travel (3.2 to 3.6).
#[must_use]
pub fn predict(machine: &Machine, join: &SimulatedJoin) -> Prediction {
    let a_node = machine.ranks_per_node.clamp(1, machine.ranks.max(1));
    let nodes = machine.ranks.max(1).div_ceil(a_node);
    let rates = RankRates {
        network: machine.link_bytes / f64::from(a_node) / join.tuple_bytes.max(1) as f64,
        ..join.rates
    };
    let shape = RankShape {
        ranks: nodes,
        build: join.build as f64 * f64::from(nodes),
        probe: join.probe as f64 * f64::from(nodes),
        local_passes: join.local_passes,
        merge_depth: join.merge_depth,
    };
    rates.predict(&shape, join.algorithm)
}

/// Simulates a join.
#[must_use]
pub fn simulate(machine: &Machine, join: &SimulatedJoin, resize: Option<Resize>, seed: u64) -> Simulated {
    let all = (join.build + join.probe) as f64 * f64::from(machine.ranks.max(1));
    let after = resize.map_or(1.0, |resize| resize.after.clamp(0.0, 1.0));
    let mut prng = Prng::new(seed);
    let first = network_pass(machine, join, all * after, &mut prng);
    let mut found = Simulated {
        queue_share: first.waited / first.mean.max(1e-9),
        ..Simulated::default()
    };
    let (mut mean, mut slowest) = (first.mean, first.slowest);
    let mut machine = *machine;
    let mut resized = 0.0;
    if let Some(resize) = resize {
        resized = resize_seconds(&machine, join, all, after, resize.ranks);
        machine.ranks = resize.ranks.max(1);
        let rest = network_pass(&machine, join, all * (1.0 - after), &mut prng);
        mean += rest.mean;
        slowest += rest.slowest;
    }
    let ranks = f64::from(machine.ranks);
    let shape = RankShape {
        ranks: machine.ranks,
        build: join.build as f64 * all / (join.build + join.probe).max(1) as f64,
        probe: join.probe as f64 * all / (join.build + join.probe).max(1) as f64,
        local_passes: join.local_passes,
        merge_depth: join.merge_depth,
    };
    let has_straggler = machine.stragglers_per_mille > 0;
    let mut imbalance = slowest - mean;
    for (name, seconds) in join.rates.predict(&shape, join.algorithm) {
        if name == "network" {
            found.phases.push((name, mean));
            continue;
        }
        let slow = f64::from(machine.stragglers_per_mille) / 1e3 * (machine.straggler_factor - 1.0);
        found.phases.push((name, seconds * (1.0 + slow)));
        if has_straggler {
            imbalance += seconds * (machine.straggler_factor - 1.0 - slow);
        }
    }
    if resized > 0.0 {
        found.phases.push(("resize", resized));
    }
    // Two collectives, by trees.
    let meetings = 4.0 * ranks.log2().max(0.0) * machine.latency_ns as f64 / 1e9;
    found.phases.push(("agree", meetings));
    found.phases.push(("imbalance", imbalance.max(0.0)));
    found.seconds = found.phases.iter().map(|(_, seconds)| seconds).sum();
    found.tuples_per_second = all / found.seconds.max(1e-9);
    found
}

/// Moving what belongs to other ranks after a change of their number: partitions that have arrived, at their
/// size on the way, and input that was not read, at 16 bytes a tuple. The fewer side's links are the limit.
fn resize_seconds(machine: &Machine, join: &SimulatedJoin, all: f64, after: f64, ranks: u32) -> f64 {
    let (few, many) = (machine.ranks.min(ranks).max(1), machine.ranks.max(ranks).max(1));
    let moved = 1.0 - f64::from(few) / f64::from(many);
    let bytes = all * moved * (after * join.tuple_bytes as f64 + (1.0 - after) * 16.0);
    let nodes = |ranks: u32| f64::from(ranks.div_ceil(machine.ranks_per_node.max(1)).max(1));
    let links = nodes(few).min(nodes(many) - nodes(few)).max(1.0);
    let agreed = 4.0 * f64::from(many).log2() * machine.latency_ns as f64 / 1e9;
    bytes / (links * machine.link_bytes) + agreed
}

/// A network pass of all ranks, in seconds.
struct Pass {
    mean: f64,
    slowest: f64,
    /// For the request queue, of a rank on average.
    waited: f64,
}

/// A rank in the network pass.
struct Sender {
    /// Nanoseconds for the tuples of one message.
    message_ns: f64,
    /// When the tuples of a message are there, less what the rank has waited: the rest of a burst.
    times: Vec<(u64, u32)>,
    /// Messages made.
    made: u64,
    waited_ns: u64,
    done_ns: u64,
}

fn network_pass(machine: &Machine, join: &SimulatedJoin, tuples: f64, prng: &mut Prng) -> Pass {
    let ranks = machine.ranks.max(1);
    let a_message = (join.message_bytes / join.tuple_bytes.max(1)).max(1);
    let messages = tuples / f64::from(ranks) / a_message as f64;
    let rate = match join.algorithm {
        Algorithm::SortMerge => join.rates.sort,
        _ => join.rates.partition,
    };
    let burst = match join.algorithm {
        Algorithm::SortMerge => 1,
        _ => join.partitions.max(u64::from(ranks)),
    };
    // Whole bursts; a receiver's turn is what the sort-merge join has of them.
    let affordable = (MESSAGES_MAX / u64::from(ranks)).max(burst) / burst * burst;
    let simulated = (messages.ceil() as u64).clamp(1, affordable);
    let scale = messages / simulated as f64;
    let slow = |prng: &mut Prng| {
        let is_slow = prng.below(1000) < u64::from(machine.stragglers_per_mille);
        if is_slow { machine.straggler_factor } else { 1.0 }
    };
    let mut senders: Vec<Sender> = (0..ranks)
        .map(|_| Sender {
            message_ns: a_message as f64 / rate.max(1.0) * 1e9 * slow(prng),
            times: Vec::new(),
            made: 0,
            waited_ns: 0,
            done_ns: 0,
        })
        .collect();
    let mut network = Links::new(machine);
    let mut next = BinaryHeap::new();
    for (rank, sender) in (0..ranks).zip(&mut senders) {
        sender.fill(rank, ranks, (burst, a_message, simulated), prng);
        if let Some((ready_ns, target)) = sender.times.pop() {
            next.push(Reverse((ready_ns, rank, target)));
        }
    }
    while let Some(Reverse((ready_ns, rank, target))) = next.pop() {
        let Some(sender) = senders.get_mut(rank as usize) else {
            break;
        };
        let (begun_ns, done_ns) = network.send(machine, rank, target, ready_ns, join.message_bytes);
        sender.waited_ns += begun_ns - ready_ns;
        sender.done_ns = sender.done_ns.max(done_ns);
        sender.made += 1;
        if sender.times.is_empty() && sender.made < simulated {
            sender.fill(rank, ranks, (burst, a_message, simulated), prng);
        }
        if let Some((ready_ns, target)) = sender.times.pop() {
            next.push(Reverse((ready_ns + sender.waited_ns, rank, target)));
        }
    }
    let seconds = |ns: u64| ns as f64 / 1e9 * scale;
    let mean = |of: &dyn Fn(&Sender) -> u64| {
        senders.iter().map(|sender| seconds(of(sender))).sum::<f64>() / f64::from(ranks)
    };
    Pass {
        mean: mean(&|sender| sender.done_ns),
        slowest: senders
            .iter()
            .map(|sender| seconds(sender.done_ns))
            .fold(0.0, f64::max),
        waited: mean(&|sender| sender.waited_ns),
    }
}

impl Sender {
    /// The next burst: when each of its messages is ready, the first one last.
    fn fill(&mut self, rank: u32, ranks: u32, (burst, a_message, total): (u64, u64, u64), prng: &mut Prng) {
        if burst == 1 {
            // Run after run; as many for each receiver, beginning with the right neighbour.
            let turn = self.made * u64::from(ranks) / total.max(1);
            let target = (u64::from(rank) + 1 + turn) % u64::from(ranks);
            let ready = (self.made + 1) as f64 * self.message_ns;
            self.times = vec![(ready as u64, u32::try_from(target).unwrap_or(0))];
            return;
        }
        let cycle = self.made / burst;
        let cycle_ns = burst as f64 * self.message_ns;
        let full = (cycle + 1) as f64 * cycle_ns;
        // Tuples come at random: a buffer of b of them is full after a time that differs by 1 / sqrt(b).
        let spread = cycle_ns * ((cycle + 1) as f64 / a_message as f64).sqrt();
        self.times = (0..burst.min(total - self.made))
            .map(|partition| {
                let normal = (0..4).map(|_| prng.unit_f64() - 0.5).sum::<f64>() * 1.732;
                let target = u32::try_from(partition % u64::from(ranks)).unwrap_or(0);
                ((full + normal * spread).max(0.0) as u64, target)
            })
            .collect();
        self.times.sort_unstable_by_key(|time| Reverse(*time));
    }
}

/// When links are free, and which requests are open.
struct Links {
    out_ns: Vec<u64>,
    in_ns: Vec<u64>,
    open: Vec<BinaryHeap<Reverse<u64>>>,
}

impl Links {
    fn new(machine: &Machine) -> Links {
        let nodes = machine.ranks.div_ceil(machine.ranks_per_node.max(1)).max(1) as usize;
        Links {
            out_ns: vec![0; nodes],
            in_ns: vec![0; nodes],
            open: vec![BinaryHeap::new(); nodes],
        }
    }

    /// Sends a message that is ready; when it entered the queue, and when it was complete.
    fn send(&mut self, machine: &Machine, rank: u32, target: u32, ready_ns: u64, bytes: u64) -> (u64, u64) {
        let node = |rank: u32| (rank / machine.ranks_per_node.max(1)) as usize;
        let (from, to) = (node(rank), node(target));
        if from == to {
            // Memory of the node: what partitioning costs is in its rate.
            return (ready_ns, ready_ns);
        }
        let mut now_ns = ready_ns;
        let (Some(open), Some(out_ns)) = (self.open.get_mut(from), self.out_ns.get_mut(from)) else {
            return (ready_ns, ready_ns);
        };
        while open.peek().is_some_and(|Reverse(done)| *done <= now_ns) {
            open.pop();
        }
        while open.len() >= machine.requests_max.max(1) {
            if let Some(Reverse(done)) = open.pop() {
                now_ns = now_ns.max(done);
            }
        }
        let busy_ns = (bytes as f64 / machine.link_bytes.max(1.0) * 1e9) as u64 + machine.request_ns;
        let left_ns = now_ns.max(*out_ns);
        *out_ns = left_ns + busy_ns;
        let Some(in_ns) = self.in_ns.get_mut(to) else {
            return (now_ns, left_ns);
        };
        let done_ns = (left_ns + machine.latency_ns).max(*in_ns) + busy_ns;
        *in_ns = done_ns;
        open.push(Reverse(done_ns));
        (now_ns, done_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLION: f64 = 1e6;

    fn machine(ranks: u32) -> Machine {
        Machine {
            ranks,
            ranks_per_node: 8,
            link_bytes: 10e9,
            latency_ns: 1_500,
            request_ns: 200,
            requests_max: 64,
            stragglers_per_mille: 0,
            straggler_factor: 1.5,
        }
    }

    fn join(algorithm: Algorithm) -> SimulatedJoin {
        SimulatedJoin {
            algorithm,
            build: 4_000_000,
            probe: 4_000_000,
            tuple_bytes: 8,
            message_bytes: 64 << 10,
            partitions: 64,
            local_passes: 1.0,
            merge_depth: 1.0,
            rates: RankRates {
                scan: 225.0 * MILLION,
                partition: 120.0 * MILLION,
                network: 1e9,
                local_partition: 120.0 * MILLION,
                build: 210.0 * MILLION,
                probe: 210.0 * MILLION,
                range_scan: 225.0 * MILLION,
                range_partition: 120.0 * MILLION,
                sort: 45.0 * MILLION,
                merge: 90.0 * MILLION,
                matching: 370.0 * MILLION,
            },
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_times() {
        let run = |seed| simulate(&machine(64), &join(Algorithm::Radix), None, seed);
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn the_model_divides_a_link_among_the_ranks_of_its_node() {
        let network = |ranks, link_bytes| {
            let machine = Machine {
                link_bytes,
                ..machine(ranks)
            };
            let found = predict(&machine, &join(Algorithm::Radix));
            let network = found.iter().find(|(name, _)| *name == "network");
            network.map(|(_, seconds)| *seconds).unwrap()
        };
        let tuples = 8.0 * MILLION;
        // 8 ranks are one node: nothing travels. 16 are two: half does, and has an eighth of a link.
        let computing = tuples / (120.0 * MILLION);
        assert!((network(8, 1e6) - computing).abs() < 1e-9);
        let sending = tuples * (0.5 / (120.0 * MILLION) + 0.5 / (1e9 / 8.0 / 8.0));
        assert!((network(16, 1e9) - sending).abs() < 1e-9);
        assert!((network(16, 1e12) - computing).abs() < 1e-9);
    }

    #[test]
    fn with_a_fast_network_the_model_comes_out() {
        for algorithm in [Algorithm::Radix, Algorithm::SortMerge] {
            let fast = Machine {
                link_bytes: 1e15,
                latency_ns: 0,
                request_ns: 0,
                ..machine(32)
            };
            let join = join(algorithm);
            let found = simulate(&fast, &join, None, 1);
            let shape = RankShape {
                ranks: 32,
                build: 32.0 * 4.0 * MILLION,
                probe: 32.0 * 4.0 * MILLION,
                local_passes: 1.0,
                merge_depth: 1.0,
            };
            let predicted: f64 = join.rates.predict(&shape, algorithm).iter().map(|(_, s)| s).sum();
            let difference = found.seconds / predicted - 1.0;
            assert!(difference.abs() < 0.1, "{algorithm:?}: {difference} {found:?}");
        }
    }

    /// What the document explains its figures by (4.3.3, 4.5): bursts fill the queue of the hash join, not of
    /// the sort-merge join; a slow network is the limit; a straggler is.
    #[test]
    fn bursts_slow_links_and_stragglers_cost_what_they_should() {
        let hash = simulate(&machine(256), &join(Algorithm::Radix), None, 1);
        let sorted = simulate(&machine(256), &join(Algorithm::SortMerge), None, 1);
        assert!(
            hash.queue_share > 4.0 * sorted.queue_share.max(0.005),
            "{hash:?} {sorted:?}"
        );
        let slow = Machine {
            link_bytes: 1e9,
            ..machine(256)
        };
        let slow = simulate(&slow, &join(Algorithm::Radix), None, 1);
        // 8 ranks put 64 MB each through a link of 1 GB/s.
        let network = slow.phases.iter().find(|(name, _)| *name == "network").unwrap().1;
        assert!((0.4..0.7).contains(&network), "{network}");
        let late = Machine {
            stragglers_per_mille: 10,
            ..machine(256)
        };
        let late = simulate(&late, &join(Algorithm::SortMerge), None, 1);
        assert!(late.seconds > 1.2 * sorted.seconds, "{late:?}");
    }

    #[test]
    fn ranks_that_come_help_and_ranks_that_go_cost() {
        let run = |resize| simulate(&machine(64), &join(Algorithm::SortMerge), resize, 1).seconds;
        let same = run(None);
        let resized = |ranks, after| run(Some(Resize { after, ranks }));
        assert!(resized(128, 0.1) < same && same < resized(32, 0.1));
        assert!(resized(128, 0.1) < resized(128, 0.9));
    }
}
