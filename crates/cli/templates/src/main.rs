//! All of `braid`, with `{name}` among its functions: `cargo run --release -- run --nf {name} --in capture.pcap`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    braid_cli::main(vec![braid_cli::catalog::own::<{name}::{Type}>("limits the flows of each source address", 2)])
}
