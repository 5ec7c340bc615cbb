//! One input: what a hostile client does, step by step, made from the seed and the input's number alone.

use std::time::Duration;

use weft_base::Prng;

use super::{deep, long, malformed, oversized, slow};

/// What is wrong with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Bytes that are no messages, or messages at the wrong time.
    Malformed,
    /// Statements nested deeply.
    Deep,
    /// Statements with much of everything.
    Long,
    /// Messages, results and sessions near and beyond their bounds.
    Oversized,
    /// Clients that take their time, or do not come back.
    Slow,
}

impl Kind {
    /// All, in the order of the report.
    pub const ALL: [Kind; 5] = [
        Kind::Malformed,
        Kind::Deep,
        Kind::Long,
        Kind::Oversized,
        Kind::Slow,
    ];

    /// What the report calls it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::Malformed => "malformed",
            Kind::Deep => "deep",
            Kind::Long => "long",
            Kind::Oversized => "oversized",
            Kind::Slow => "slow",
        }
    }
}

/// What a client does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It sends bytes.
    Send(Vec<u8>),
    /// It sends bytes in pieces of so many, with a pause after each.
    Trickle(Vec<u8>, usize, Duration),
    /// It reads until so many ReadyForQuery have come, or the connection has ended.
    Await(usize),
    /// It reads until CopyInResponse has come, or ReadyForQuery instead.
    AwaitCopy,
    /// It reads nothing and sends nothing.
    Pause(Duration),
    /// It reads what comes in pieces of so many bytes, with a pause after each, until ReadyForQuery.
    Sip(usize, Duration),
    /// It sends no more, and says so.
    EndSending,
    /// The server must end the connection within this time, with one of these SQLSTATEs; without any, it need
    /// not say why.
    MustEnd(&'static [&'static str], Duration),
    /// The answer before must have had one of these SQLSTATEs.
    MustSay(&'static [&'static str]),
    /// The session must go on: after a ROLLBACK it answers.
    MustGoOn,
    /// A statement on another connection, which must succeed.
    Elsewhere(String),
    /// It is gone, without a word.
    Vanish,
}

/// One input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Which kind it is of.
    pub kind: Kind,
    /// What it does, in words.
    pub name: String,
    /// Whether it logs in before its first step.
    pub logs_in: bool,
    /// What it does.
    pub steps: Vec<Step>,
}

impl Input {
    /// The input of this number.
    #[must_use]
    pub fn new(seed: u64, index: usize) -> Input {
        let mut random = random_of(seed, index);
        match kind_drawn(&mut random) {
            Kind::Malformed => malformed::input(&mut random),
            Kind::Deep => deep::input(&mut random),
            Kind::Long => long::input(&mut random, index),
            Kind::Oversized => oversized::input(&mut random),
            Kind::Slow => slow::input(&mut random, index),
        }
    }

    /// The kind that the input of this number is of.
    #[must_use]
    pub fn kind_of(seed: u64, index: usize) -> Kind {
        kind_drawn(&mut random_of(seed, index))
    }

    /// An input that logs in.
    #[must_use]
    pub fn of_session(kind: Kind, name: impl Into<String>, steps: Vec<Step>) -> Input {
        Input {
            kind,
            name: name.into(),
            logs_in: true,
            steps,
        }
    }
}

fn random_of(seed: u64, index: usize) -> Prng {
    let mut of_seed = Prng::new(seed);
    Prng::new(of_seed.next_u64() ^ (index as u64).wrapping_mul(0x2545_f491_4f6c_dd1d))
}

/// Shares of a thousand.
fn kind_drawn(random: &mut Prng) -> Kind {
    match random.below(1000) {
        0..570 => Kind::Malformed,
        570..700 => Kind::Deep,
        700..810 => Kind::Long,
        810..820 => Kind::Oversized,
        _ => Kind::Slow,
    }
}

/// A count between two, each order of magnitude as likely as another.
#[must_use]
pub fn magnitude(random: &mut Prng, least: u64, most: u64) -> usize {
    let (least, most) = (least as f64, most as f64);
    (least * (most / least).powf(random.unit_f64())).round() as usize
}

/// One of several.
#[must_use]
pub fn one_of<T: Copy>(random: &mut Prng, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_made_from_seed_and_number_alone() {
        let all: Vec<Input> = (0..300).map(|index| Input::new(3, index)).collect();
        for (index, input) in all.iter().enumerate().rev() {
            assert_eq!(input, &Input::new(3, index));
            assert_eq!(input.kind, Input::kind_of(3, index));
        }
        assert_ne!(all[7], Input::new(4, 7));
        for kind in [Kind::Malformed, Kind::Deep, Kind::Long, Kind::Slow] {
            assert!(all.iter().any(|input| input.kind == kind), "{kind:?}");
        }
    }
}
