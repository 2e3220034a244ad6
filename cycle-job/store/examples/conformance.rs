//! Tries a store by hand before memories are put into it: the probe of a first cycle, then the whole suite.
//!
//! ```console
//! $ AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=... conformance s3://bucket/trial http://127.0.0.1:8333
//! ```
//! Prints what passed and what did not; ends with 1 if anything did not.

use std::process::ExitCode;

use cicada_store::{AgentStore, conformance, open, parse_url};

#[tokio::main]
async fn main() -> ExitCode {
    match trial().await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Gives the number of checks that did not pass.
async fn trial() -> Result<usize, Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().ok_or("usage: conformance URL [ENDPOINT]")?;
    let store = open(&parse_url(&url, args.next().as_deref(), None)?, None).await?;
    let mut failed = vec![];
    match AgentStore::new(store.clone(), "trial", "probe")?.probe().await {
        Ok(facts) => println!("ok     the probe of a first cycle ({facts:?})"),
        Err(error) => {
            println!("FAILED the probe of a first cycle: {error}");
            failed.push("probe");
        }
    }
    // Each failure is left out of the next round, so that one does not hide the others.
    for round in 0.. {
        match conformance::run_without(store.clone(), &format!("trial-{round}"), &failed).await {
            Ok(passed) => {
                passed.iter().for_each(|check| println!("ok     {check}"));
                break;
            }
            Err(failure) => {
                println!("FAILED {}: {}", failure.check, failure.what);
                failed.push(failure.check);
            }
        }
    }
    Ok(failed.len())
}
