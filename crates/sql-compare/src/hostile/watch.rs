//! What the server's process takes, as the system counts it, and what its log says.

use std::fs;
use std::path::PathBuf;

/// Memory, threads and file descriptors of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory.
    pub megabytes: usize,
    /// Threads.
    pub threads: usize,
    /// Open files and sockets.
    pub descriptors: usize,
}

impl Usage {
    /// What the process takes now; nothing when it is gone.
    #[must_use]
    pub fn of(process_id: u32) -> Option<Usage> {
        let status = fs::read_to_string(format!("/proc/{process_id}/status")).ok()?;
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<usize>().ok()
        };
        Some(Usage {
            megabytes: number("VmRSS:")? / 1024,
            threads: number("Threads:")?,
            descriptors: fs::read_dir(format!("/proc/{process_id}/fd")).ok()?.count(),
        })
    }

    /// The larger of each.
    #[must_use]
    pub fn most(self, other: Usage) -> Usage {
        Usage {
            megabytes: self.megabytes.max(other.megabytes),
            threads: self.threads.max(other.threads),
            descriptors: self.descriptors.max(other.descriptors),
        }
    }
}

/// The log, and how much of it was read.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    read: usize,
}

impl Log {
    /// The log of this path.
    #[must_use]
    pub fn new(path: PathBuf) -> Log {
        Log { path, read: 0 }
    }

    /// The lines since the last call that no log should have.
    pub fn complaints(&mut self) -> Vec<String> {
        let all = fs::read(&self.path).unwrap_or_default();
        let fresh = all.get(self.read..).unwrap_or_default();
        let whole = fresh
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        self.read += whole;
        let text = String::from_utf8_lossy(&fresh[..whole]).into_owned();
        let bad = ["panicked", "overflow", "internal error", "abort", "fatal runtime"];
        let lines: Vec<&str> = text.lines().collect();
        let told = |(at, line): (usize, &&str)| {
            let is_bad = bad.iter().any(|word| line.contains(word));
            // The message of a panic is on the line behind.
            is_bad.then(|| format!("{line} {}", lines.get(at + 1).unwrap_or(&"")))
        };
        lines.iter().enumerate().filter_map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory_threads_and_descriptors() {
        let own = Usage::of(std::process::id()).unwrap();
        assert!(
            own.megabytes > 0 && own.threads > 0 && own.descriptors > 2,
            "{own:?}"
        );
        assert_eq!(Usage::of(u32::MAX), None);
    }

    #[test]
    fn a_panic_is_found_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = Log::new(path.clone());
        let panic = "thread 'weft-serve-1' panicked at crates/a.rs:1:1:\nindex out of bounds\nnote: run";
        fs::write(&path, format!("database open\n{panic}")).unwrap();
        let found = log.complaints();
        assert_eq!(found.len(), 1);
        assert!(found[0].ends_with("index out of bounds"), "{found:?}");
        assert_eq!(log.complaints(), [""; 0]);
    }
}
