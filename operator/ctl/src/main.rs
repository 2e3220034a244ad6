//! `cicadactl`: all that people type. kubectl finds it as `kubectl cicada` under the name `kubectl-cicada`.

use std::process::ExitCode;

fn main() -> ExitCode {
    cicadactl::entry(std::env::args_os().collect())
}
