//! Development tasks: everything that continuous integration does, behind one entry point.
//!
//! `cargo xtask ci` must succeed before a change lands. This program uses only the standard library, so that it builds in a second.
//! It knows the layout of the tree, but not what the crates do.
#![forbid(unsafe_code)]

mod capability;
mod ebpf;
mod fuzz;
mod instructions;
mod metadata;
mod sanitize;
mod shell;
mod test;
mod tidy;
mod verify;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask <task>

  ci                        lint, ebpf, test, instructions: all that continuous integration does
  lint                      formatting, clippy, documentation and tidy, warnings are errors
  tidy                      layers, unsafe code, vocabulary, links and file sizes
  test                      all tests; installs what the comparisons need if it may; names what was skipped
  certify [--seeds N]       every function on captures and mixes under N schedules (default 100) equals one worker
  verify [captures|generated|detectors|figures]
                            every capture, or ten million generated packets, through every function (docs/testing.md)
  dpdk                      builds with DPDK's drivers as ports and tests them (needs libdpdk-dev; installs it if it may)
  ebpf [--write]            compiles the XDP program and compares it with the committed object, or replaces that (needs clang 14)
  instructions [--write]    instructions per packet and stage against benches/instructions.txt (needs valgrind), or a new table
  own                       instructions of a user's own function beside those of the built-in one (needs valgrind)
  profiling                 what is always counted, in instructions, and what a full profile costs, in time (needs valgrind)
  sanitize                  the crates with unsafe code under AddressSanitizer (docs/testing.md)
  metadata                  what a packet's metadata costs, by size, place and batch: ns and first-level misses (docs/metadata.md)
  fuzz <target> [--minutes N]
                            searches for inputs that panic, guided by coverage, on stable Rust";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["ci"] => {
            lint().and_then(|()| ebpf::check()).and_then(|()| test::run()).and_then(|()| instructions::run(false))
        }
        ["lint"] => lint(),
        ["tidy"] => tidy::run(),
        ["test"] => test::run(),
        ["certify"] => verify::certify("100"),
        ["certify", "--seeds", seeds] => verify::certify(seeds),
        ["verify"] => verify::run(&["captures", "generated", "detectors", "figures"]),
        ["verify", what @ ("captures" | "generated" | "detectors" | "figures")] => verify::run(&[what]),
        ["dpdk"] => test::dpdk(),
        ["ebpf"] => ebpf::check(),
        ["ebpf", "--write"] => ebpf::write(),
        ["sanitize"] => sanitize::run(),
        ["instructions"] => instructions::run(false),
        ["instructions", "--write"] => instructions::run(true),
        ["own"] => instructions::own(),
        ["profiling"] => instructions::profiling(),
        ["metadata"] => metadata::run(),
        ["metadata-probe", place, bytes, batch, packets] => metadata::probe(place, [bytes, batch, packets]),
        ["fuzz", target] => fuzz::run(target, fuzz::MINUTES),
        ["fuzz", target, "--minutes", minutes] => fuzz::minutes(minutes).and_then(|minutes| fuzz::run(target, minutes)),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn lint() -> Result<(), String> {
    shell::cargo(&["fmt", "--all", "--check"], &[])?;
    shell::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?;
    shell::cargo(&["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])?;
    tidy::run()
}
