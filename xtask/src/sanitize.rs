//! `cargo xtask sanitize`: the crates with `unsafe` code under AddressSanitizer, on the stable compiler.
//!
//! The sanitizers are behind unstable options, which `RUSTC_BOOTSTRAP=1` allows for this one command. AddressSanitizer works with the
//! standard library as it is shipped: what it does not see are accesses within it.
//!
//! ThreadSanitizer does not run here, and the command says why: it has to see every atomic access, so the standard library must be built
//! with it (`-Zbuild-std`, which needs its sources), and it does not understand the fences on which the transactions' reads stand
//! (crates/stm/src/raw/object.rs), so it would report races that are none. The orders of memory are checked by loom instead
//! (crates/stm/tests/loom.rs).

use crate::shell;

/// Members whose own code has `unsafe`, but for devices.
const CRATES: [&str; 4] = ["braid-memory", "braid-stm", "braid-state", "braid-packet"];
/// With a target named, build scripts and macros are built without the sanitizer.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs the tests of those crates.
pub fn run() -> Result<(), String> {
    let mut arguments = vec!["test", "--lib", "--tests", "--target", TARGET, "--target-dir", "target/sanitize"];
    arguments.extend(CRATES.iter().flat_map(|name| ["-p", name]));
    let environment = [
        ("RUSTC_BOOTSTRAP", "1"),
        ("RUSTFLAGS", "-Zsanitizer=address"),
        // Arenas and pools live as long as the process in some tests.
        ("ASAN_OPTIONS", "detect_leaks=0"),
    ];
    shell::cargo(&arguments, &environment)?;
    println!(
        "ThreadSanitizer: skipped. It needs a standard library built with it, and does not know fences; loom checks the orders."
    );
    Ok(())
}
