//! `weft replay`: replays the log and prints the state digest after each batch.
//!
//! Each batch's digest is compared with the one in the log; a difference ends the command with exit code 3.
//! So is that of the checkpoint, with all its rows, before that. Two runs with different `--workers` must
//! print the same lines. Only batches that the log still covers can be shown: those before the newest
//! checkpoint are gone.

use std::io::Write;
use std::sync::Arc;

use weft_base::{Progress, RealDisk};
use weft_store::checkpoint::CheckpointConfig;
use weft_txn::{EngineConfig, Replay};

use crate::arguments::ReplayArguments;
use crate::failure::Failure;

/// Prints one line per batch: `batch digest members`.
pub(crate) fn run(arguments: &ReplayArguments) -> Result<(), Failure> {
    if arguments.workers == 0 {
        return Err(Failure::Usage("--workers must be at least 1".to_owned()));
    }
    if !arguments.data.is_dir() {
        return Err(Failure::Environment(format!(
            "{} is not a directory",
            arguments.data.display()
        )));
    }
    let config = EngineConfig {
        workers: arguments.workers,
        // All rows are compared with the digest.
        checkpoint: CheckpointConfig {
            reads_image: false,
            ..CheckpointConfig::default()
        },
        ..EngineConfig::default()
    };
    let mut replay = Replay::open(Arc::new(RealDisk), &arguments.data, &config, &Progress::default())?;
    let first = replay.store().boundary();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let broken_pipe = |e: std::io::Error| Failure::doing("writing to stdout", e);
    writeln!(
        out,
        "{:>12}  {:016x}  checkpoint",
        first.0,
        replay.store().state_digest()
    )
    .map_err(broken_pipe)?;
    let until = arguments.until.unwrap_or(u64::MAX);
    let mut reached = first.0;
    while reached < until {
        let Some(batch) = replay.step()? else { break };
        reached = batch.batch.0;
        writeln!(
            out,
            "{:>12}  {:016x}  {} member(s)",
            batch.batch.0, batch.digest, batch.member_count
        )
        .map_err(broken_pipe)?;
    }
    out.flush().map_err(broken_pipe)?;
    if let Some(until) = arguments.until
        && reached != until
    {
        return Err(Failure::Usage(format!(
            "the log covers batches {} to {reached}, not {until}",
            first.0
        )));
    }
    Ok(())
}
