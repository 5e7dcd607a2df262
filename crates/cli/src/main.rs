//! The binary `braid`: the command line with the functions that come with Braid.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    braid_cli::main(Vec::new())
}
