//! Processor time stolen by the hypervisor.
//!
//! On a virtual machine, a processor that has work may be given to another machine for a while: nothing
//! runs here then, and a transaction takes that much longer. The system counts that time if the hypervisor
//! reports it, and it is reported next to latencies.
//!
//! Source: proc(5), `/proc/stat`, the eighth number of the line `cpu`.

use std::time::Duration;

/// Length of a tick of `/proc/stat` (`USER_HZ`, a constant of the interface on all supported machines).
const TICK: Duration = Duration::from_millis(10);

/// Processor time for which this machine's processors had work but were not scheduled, in total since boot.
/// `None` if the system does not report it.
pub fn stolen_time() -> Option<Duration> {
    stolen_in(&std::fs::read_to_string("/proc/stat").ok()?)
}

fn stolen_in(stat: &str) -> Option<Duration> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: u32 = all.split_whitespace().nth(7)?.parse().ok()?;
    Some(TICK * ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eighth_number_of_all_processors_counts() {
        let stat = "cpu  1 2 3 4 5 6 7 850 9 10\ncpu0 1 2 3 4 5 6 7 600 9 10\nintr 5\n";
        assert_eq!(stolen_in(stat), Some(Duration::from_millis(8500)));
        assert_eq!(stolen_in("cpu  1 2 3 4 5 6 7\n"), None);
        assert_eq!(stolen_in("cpu  1 2 3 4 5 6 7 x\n"), None);
        assert_eq!(stolen_in("cpu0 1 2 3 4 5 6 7 8\n"), None);
        assert_eq!(stolen_in(""), None);
        let now = stolen_time();
        assert!(stolen_time() >= now);
    }
}
