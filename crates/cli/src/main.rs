//! The `weft` command. Everything is in the library beside it; here are the allocator and the exit code.

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
