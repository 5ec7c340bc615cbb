//! Why a job was not done by a unit alone: failures, and jobs that go directly to the CPU. Each is counted by
//! its name.

use std::fmt;

use crate::job::Excess;

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $kind:ident;)*) => {
        /// Why the CPU did a job, or did it again.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Reason {
            $($(#[$doc])* $variant,)*
        }

        impl Reason {
            /// All reasons, in the order of their declaration.
            pub const ALL: [Reason; reasons!(@count $($variant)*)] = [$(Reason::$variant,)*];

            /// The name in counters and reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Reason::$variant => $name,)* }
            }

            /// What the reason says about the unit.
            #[must_use]
            pub const fn blame(self) -> Blame {
                match self { $(Reason::$variant => Blame::$kind,)* }
            }
        }
    };
    (@count $($variant:ident)*) => { [$(stringify!($variant)),*].len() };
}

/// Whom a reason blames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blame {
    /// The unit or the connection to it: counts toward taking it out.
    Unit,
    /// Undecided: whether the unit was slow or failed is known when the attempt ends, and counted then.
    Open,
    /// Nobody: the job is not suited for units, or there is none for it.
    Nobody,
}

reasons! {
    /// The unit did not take the request, although it should have had space.
    Refused = "refused", Unit;
    /// No answer came before the deadline: lost on the way in, inside, or on the way out, or late.
    Late = "late", Unit;
    /// The unit did not receive the bytes that were sent.
    InputDamaged = "input_damaged", Unit;
    /// The answer's checksum does not match its bytes.
    OutputDamaged = "output_damaged", Unit;
    /// The answer is not as long as it says.
    Truncated = "truncated", Unit;
    /// The answer is complete, but is no valid result of the job.
    Malformed = "malformed", Unit;
    /// The unit reports that the task is invalid.
    CalledInvalid = "called_invalid", Unit;
    /// The unit reports an internal failure.
    Broken = "broken", Unit;
    /// The unit does not have a registered buffer that it was sent before.
    BufferLost = "buffer_lost", Unit;
    /// Two executors gave different results.
    Mismatch = "mismatch", Unit;
    /// A part of the job is larger than any unit for this kind takes.
    PartTooLarge = "part_too_large", Nobody;
    /// Task and result need more memory than any unit for this kind has.
    TooMuchMemory = "too_much_memory", Nobody;
    /// The stated shape was within the limits, the task itself was not.
    LimitsFoundExceeded = "limits_found_exceeded", Nobody;
    /// The unit had not answered long after its usual time, and the CPU finished first. The outcome of the
    /// unit's attempt is counted when it ends: slow if it was right after all, otherwise as the failure that
    /// it is.
    Slow = "slow", Open;
    /// No unit does this kind.
    NoUnit = "no_unit", Nobody;
    /// Every unit that would accept it is out at the moment.
    UnitsOut = "units_out", Nobody;
    /// Everything that its units have is unusually slow, perhaps lost, and the CPU was idle. Whether they
    /// were slow or failed is counted when those attempts end.
    UnitsOverdue = "units_overdue", Nobody;
}

impl From<Excess> for Reason {
    fn from(excess: Excess) -> Reason {
        match excess {
            Excess::Part(_) => Reason::PartTooLarge,
            Excess::Memory => Reason::TooMuchMemory,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often each reason occurred.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReasonCounts([u64; Reason::ALL.len()]);

impl ReasonCounts {
    /// Counts one.
    pub fn add(&mut self, reason: Reason) {
        if let Some(count) = self.0.get_mut(reason as usize) {
            *count += 1;
        }
    }

    /// How often `reason` occurred.
    #[must_use]
    pub fn get(&self, reason: Reason) -> u64 {
        self.0.get(reason as usize).copied().unwrap_or(0)
    }

    /// All that occurred, with their counts.
    pub fn nonzero(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL
            .into_iter()
            .map(|reason| (reason, self.get(reason)))
            .filter(|(_, count)| *count > 0)
    }

    /// The sum over the reasons with this blame.
    #[must_use]
    pub fn total(&self, blame: Blame) -> u64 {
        self.nonzero()
            .filter(|(reason, _)| reason.blame() == blame)
            .map(|(_, count)| count)
            .sum()
    }
}

impl fmt::Display for ReasonCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (reason, count)) in self.nonzero().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{reason} {count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_know_their_reasons() {
        let mut counts = ReasonCounts::default();
        assert_eq!(counts.to_string(), "");
        for reason in Reason::ALL {
            counts.add(reason);
            counts.add(reason);
        }
        assert!(Reason::ALL.iter().all(|reason| counts.get(*reason) == 2));
        assert_eq!(counts.total(Blame::Unit), 20);
        assert_eq!(counts.total(Blame::Open), 2);
        assert_eq!(counts.total(Blame::Nobody), 12);
        assert!(counts.to_string().starts_with("refused 2, late 2, "));
        assert_eq!(Reason::from(Excess::Part("ways")).name(), "part_too_large");
    }
}
