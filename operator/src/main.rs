//! Entry point of the operator.

use std::process::ExitCode;

use cicada_crds::generate;
use cicada_operator::{
    args::{Cli, Command},
    check, run, telemetry, uninstall,
};
use clap::Parser as _;

fn main() -> anyhow::Result<ExitCode> {
    // Two providers may be linked into one build; rustls refuses to choose between them.
    let _already_set = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match Cli::parse().command {
        Command::Crds => {
            print!("{}", generate::files().iter().map(|f| f.yaml.as_str()).collect::<Vec<_>>().join("---\n"));
            Ok(ExitCode::SUCCESS)
        }
        Command::Uninstall(args) => {
            telemetry::start(args.log_format, &args.log)?;
            Ok(telemetry::ended(uninstall::run(&args.instance)))
        }
        Command::Check(args) => {
            telemetry::start(args.log_format, &args.log)?;
            Ok(telemetry::ended(check::run(&args.instance)))
        }
        Command::Run(args) => {
            telemetry::start(args.log_format, &args.log)?;
            Ok(telemetry::ended(run::run(args)))
        }
    }
}
