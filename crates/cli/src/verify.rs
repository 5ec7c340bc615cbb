//! `weft verify`: checks every file of a database that is not open, and lists all defects.
//!
//! Prints one line per finding: file, offset, kind, reason. `crates/txn/src/verify.rs` says what is
//! checked. Exit codes are those of `failure.rs`: 0 sound, 1 in use or the directory itself unreadable, 4 a
//! defect (including a file that cannot be read), or no database.

use std::io::Write;
use std::sync::Arc;

use weft_base::{Disk, RealDisk};

use crate::arguments::VerifyArguments;
use crate::failure::Failure;

/// Prints what was checked, then the defects.
pub(crate) fn run(arguments: &VerifyArguments) -> Result<(), Failure> {
    let dir = &arguments.dir;
    if !dir.is_dir() {
        return Err(Failure::Environment(format!(
            "{} is not a directory",
            dir.display()
        )));
    }
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let checked = weft_txn::verify(&disk, dir)?;
    let mut out = std::io::stdout().lock();
    let findings = checked.findings.iter().map(ToString::to_string);
    for line in checked.looked_at.iter().cloned().chain(findings) {
        writeln!(out, "{line}").map_err(|error| Failure::doing("writing to stdout", error))?;
    }
    match checked.findings.len() {
        0 => Ok(()),
        1 => Err(Failure::Corrupt("1 thing is wrong".to_owned())),
        count => Err(Failure::Corrupt(format!("{count} things are wrong"))),
    }
}
