//! Skipping a test in the open: with the missing capability named, and as a failure where nothing may be skipped.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Notes that the test of this name cannot run here, and why; the test then returns.
///
/// The line goes to standard error and to the file named by `BRAID_SKIPS`, which `cargo xtask test` prints at the end.
///
/// # Panics
/// If `BRAID_NO_SKIP` is 1, as in continuous integration.
pub fn skip(test: &str, reason: &dyn Display) {
    assert!(
        std::env::var("BRAID_NO_SKIP").as_deref() != Ok("1"),
        "{test} cannot run and nothing may be skipped: {reason}"
    );
    note(test, reason);
}

/// Notes the same of a test whose data is no part of the project, so that no machine can be made to have it: never a failure.
pub fn note(test: &str, reason: &dyn Display) {
    eprintln!("skipped {test}: {reason}");
    let Some(path) = std::env::var_os("BRAID_SKIPS") else { return };
    let file = OpenOptions::new().create(true).append(true).open(path);
    // one write call per line: tests run side by side
    if let Err(error) = file.and_then(|mut file| file.write_all(format!("{test}\t{reason}\n").as_bytes())) {
        eprintln!("BRAID_SKIPS: {error}");
    }
}
