//! The `weft` command: only the allocator and the exit code. Everything else is in the library.

use std::process::ExitCode;

use clap::Parser;
use weft_cli::arguments::WeftArguments;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match weft_cli::run(WeftArguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("weft: {failure}");
            failure.exit_code()
        }
    }
}
