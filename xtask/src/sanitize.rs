//! `cargo xtask sanitize`: tests the crates with `unsafe` code under AddressSanitizer, with the stable compiler.
//!
//! The sanitizers are unstable options, which `RUSTC_BOOTSTRAP=1` enables for this one command. AddressSanitizer works with the
//! standard library as shipped; it does not see accesses inside that library.
//!
//! ThreadSanitizer is not run, and the command says why. It must see every atomic access, so the standard
//! library would have to be built with it (`-Zbuild-std`, which needs its sources). It also does not
//! understand the fences on which the transactions' reads rely (crates/stm/src/raw/object.rs), so it would
//! report false races. Instead, loom checks the memory orderings (crates/stm/tests/loom.rs).

use crate::shell;

/// Crates whose own code uses `unsafe`, except those for devices.
const CRATES: [&str; 4] = ["braid-memory", "braid-stm", "braid-state", "braid-packet"];
/// With an explicit target, build scripts and macros are built without the sanitizer.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs the tests of these crates.
pub fn run() -> Result<(), String> {
    let mut arguments = vec!["test", "--lib", "--tests", "--target", TARGET, "--target-dir", "target/sanitize"];
    arguments.extend(CRATES.iter().flat_map(|name| ["-p", name]));
    let environment = [
        ("RUSTC_BOOTSTRAP", "1"),
        ("RUSTFLAGS", "-Zsanitizer=address"),
        // In some tests arenas and pools live as long as the process.
        ("ASAN_OPTIONS", "detect_leaks=0"),
    ];
    shell::cargo(&arguments, &environment)?;
    println!(
        "ThreadSanitizer: skipped. It needs a standard library built with it, and does not know fences; loom checks the orders."
    );
    Ok(())
}
