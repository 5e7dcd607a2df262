//! The binary `braid`: the command line over the functions that come with it.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    braid_cli::main(Vec::new())
}
