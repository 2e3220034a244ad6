//! The worker alone; see the crate's documentation.

fn main() -> std::process::ExitCode {
    cicada_memory::worker_main(std::env::args().skip(1).skip_while(|a| a != "worker").skip(1))
}
