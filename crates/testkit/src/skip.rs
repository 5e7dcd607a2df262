//! Skips tests visibly: it names the missing capability, and fails where no test may be skipped.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Reports that the test with this name cannot run here, and why; the test should then return.
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

/// Reports a skip without ever failing, for a test whose data is not part of the project, so that not every machine can have it.
pub fn note(test: &str, reason: &dyn Display) {
    eprintln!("skipped {test}: {reason}");
    let Some(path) = std::env::var_os("BRAID_SKIPS") else { return };
    let file = OpenOptions::new().create(true).append(true).open(path);
    // One write call per line, because tests run in parallel.
    if let Err(error) = file.and_then(|mut file| file.write_all(format!("{test}\t{reason}\n").as_bytes())) {
        eprintln!("BRAID_SKIPS: {error}");
    }
}
