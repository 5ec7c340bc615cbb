//! Runs a command so that its output is seen as it comes, and counted.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::counts::Counts;

/// How a command ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// True when its exit status was 0.
    pub success: bool,
    /// The sum of every test summary that it printed.
    pub counts: Counts,
}

/// Prints what is about to happen, so that a log of a run can be searched.
pub fn announce(what: &str) {
    println!("\n==> {what}");
}

/// A message that nobody should overlook, on stderr and stdout alike.
pub fn loud(message: &str) {
    let frame = "!".repeat(100);
    for line in [frame.as_str(), message, frame.as_str()] {
        println!("{line}");
        eprintln!("{line}");
    }
}

/// Runs `command`, passing its stdout on line by line; stderr goes straight through.
pub fn run(command: &mut Command) -> io::Result<Ended> {
    run_into(command, &mut io::stdout())
}

/// The same with the lines of stdout going to `out`.
pub fn run_into(command: &mut Command, out: &mut impl Write) -> io::Result<Ended> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut counts = Counts::default();
    if let Some(stdout) = child.stdout.take() {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            out.write_all(&line)?;
            out.flush()?;
            if let Some(found) = Counts::from_line(&String::from_utf8_lossy(&line)) {
                counts += found;
            }
            line.clear();
        }
    }
    Ok(Ended {
        success: child.wait()?.success(),
        counts,
    })
}

/// True when `command` starts and ends with status 0; its output is dropped.
pub fn succeeds(command: &mut Command) -> bool {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_counted_and_the_status_kept() {
        let mut out = Vec::new();
        let ended = run_into(
            Command::new("sh").args(["-c", "echo '3 passed, 1 failed'; exit 1"]),
            &mut out,
        )
        .unwrap();
        assert_eq!(out, b"3 passed, 1 failed\n");
        assert!(!ended.success);
        assert_eq!(ended.counts, Counts { passed: 3, failed: 1 });
    }

    #[test]
    fn a_missing_program_does_not_succeed() {
        assert!(!succeeds(&mut Command::new("no-such-program-anywhere")));
        assert!(succeeds(Command::new("sh").args(["-c", "true"])));
    }
}
