//! Entry point of the cycle image.

use std::process::ExitCode;

fn main() -> ExitCode {
    cicada_cycle_job::entry(std::env::args_os().collect())
}
