//! The long proofs: tests that are left out of `cargo xtask test` because they take minutes.

use crate::{capability, shell};

/// Runs the ignored tests of these modules of the test `verify` in release mode; one at a time, for each has several workers.
pub fn run(modules: &[&str]) -> Result<(), String> {
    capability::install();
    modules.iter().try_for_each(|module| {
        let tests = format!("{module}::");
        let test = ["test", "--release", "-p", "braid-testkit", "--test", "verify", &tests];
        let how = ["--", "--ignored", "--nocapture", "--test-threads", "1"];
        shell::cargo(&[&test[..], &how[..]].concat(), &[])
    })
}
