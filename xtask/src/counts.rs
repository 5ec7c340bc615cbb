//! Adds up test results from what test programs print.
//!
//! Understood are cargo's `test result: ok. 5 passed; 0 failed; ...` and the plain `5 passed, 0 failed`
//! with which the programs in tests/ end.

use std::ops::AddAssign;

/// Tests that passed and that failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl Counts {
    /// The result of one check that either holds or does not.
    pub fn of_check(holds: bool) -> Self {
        Self {
            passed: u64::from(holds),
            failed: u64::from(!holds),
        }
    }

    /// The counts that one line of output states, if it is a summary.
    pub fn from_line(line: &str) -> Option<Self> {
        let line = line.trim();
        let numbers = match line.strip_prefix("test result: ") {
            Some(rest) => rest.split_once(". ")?.1,
            None => line,
        };
        let mut words = numbers.split([' ', ',', ';']).filter(|word| !word.is_empty());
        let passed = words.next()?.parse().ok()?;
        let passed_word = words.next()?;
        let failed = words.next()?.parse().ok()?;
        let failed_word = words.next()?;
        (passed_word == "passed" && failed_word == "failed").then_some(Self { passed, failed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_read_and_other_lines_are_not() {
        let cargo = "test result: FAILED. 5 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out";
        assert_eq!(Counts::from_line(cargo), Some(Counts { passed: 5, failed: 2 }));
        assert_eq!(
            Counts::from_line("17 passed, 0 failed"),
            Some(Counts {
                passed: 17,
                failed: 0
            })
        );
        for line in [
            "running 5 tests",
            "test a ... ok",
            "5 passed",
            "passed 5, failed 1",
            "",
        ] {
            assert_eq!(Counts::from_line(line), None, "{line}");
        }
    }

    #[test]
    fn counts_add_up() {
        let mut sum = Counts::of_check(true);
        sum += Counts::of_check(false);
        sum += Counts { passed: 3, failed: 0 };
        assert_eq!(sum, Counts { passed: 4, failed: 1 });
    }
}
