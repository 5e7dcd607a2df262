//! The long proofs: tests that are left out of `cargo xtask test` because they take minutes (docs/testing.md).

use crate::{capability, shell};

/// Every capture, or generated packets, through every function; named by the module of the test `verify`.
pub fn run(modules: &[&str]) -> Result<(), String> {
    capability::install();
    modules.iter().try_for_each(|module| ignored(module, &[]))
}

/// Certificates for all functions, so many seeds for each input and number of workers.
pub fn certify(seeds: &str) -> Result<(), String> {
    match seeds.parse::<u64>() {
        Ok(1..) => {
            ignored("certify", &[("BRAID_SEEDS", seeds)])?;
            // A crate as `braid new` makes it: it builds, passes its test and is certified.
            shell::cargo(&["test", "-p", "braid-cli", "--test", "scaffold", "--", "--ignored"], &[])
        }
        _ => Err(format!("--seeds {seeds}: write a number from 1 on, for example 100")),
    }
}

/// Runs the ignored tests of a module in release mode, one at a time, for each has several workers.
fn ignored(module: &str, environment: &[(&str, &str)]) -> Result<(), String> {
    let tests = format!("{module}::");
    let test = ["test", "--release", "-p", "braid-testkit", "--test", "verify", &tests];
    let how = ["--", "--ignored", "--nocapture", "--test-threads", "1"];
    shell::cargo(&[&test[..], &how[..]].concat(), environment)
}
