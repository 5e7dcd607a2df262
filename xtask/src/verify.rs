//! The long verification runs: tests that `cargo xtask test` omits because they take minutes (docs/testing.md).

use crate::{capability, shell};

/// Sends every capture, or generated packets, through every function; `modules` are modules of the test `verify`.
pub fn run(modules: &[&str]) -> Result<(), String> {
    capability::install();
    modules.iter().try_for_each(|module| ignored(module, &[]))
}

/// Certifies all functions with this number of seeds for each input and number of workers.
pub fn certify(seeds: &str) -> Result<(), String> {
    match seeds.parse::<u64>() {
        Ok(1..) => {
            ignored("certify", &[("BRAID_SEEDS", seeds)])?;
            // A crate made by `braid new` builds, passes its test and is certified.
            shell::cargo(&["test", "-p", "braid-cli", "--test", "scaffold", "--", "--ignored"], &[])
        }
        _ => Err(format!("--seeds {seeds}: write a number from 1 on, for example 100")),
    }
}

/// Runs the ignored tests of a module in release mode, one at a time, because each has several workers.
fn ignored(module: &str, environment: &[(&str, &str)]) -> Result<(), String> {
    let tests = format!("{module}::");
    let test = ["test", "--release", "-p", "braid-testkit", "--test", "verify", &tests];
    let how = ["--", "--ignored", "--nocapture", "--test-threads", "1"];
    shell::cargo(&[&test[..], &how[..]].concat(), environment)
}
