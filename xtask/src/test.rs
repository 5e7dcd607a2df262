//! Runs all tests and reports those that could not run.
//!
//! A test that lacks a capability appends its name and the reason to the file named by `BRAID_SKIPS` and
//! passes, unless `BRAID_NO_SKIP` is 1: then it fails. So all tests pass on a bare laptop, while continuous
//! integration cannot pass by skipping tests.

use std::collections::BTreeMap;

use crate::{capability, shell};

/// Prepares the machine, runs the tests of the whole workspace, and prints what was skipped.
pub fn run() -> Result<(), String> {
    capability::install();
    for missing in capability::missing() {
        eprintln!("   missing: {missing}");
    }
    let skips = shell::root().join("target/skips.txt");
    let _ = std::fs::remove_file(&skips); // may not exist
    let outcome = shell::cargo(&["test", "--workspace"], &[("BRAID_SKIPS", &skips.to_string_lossy())]);
    let skipped = std::fs::read_to_string(&skips).unwrap_or_default();
    // After a failure some tests may not have run at all, so an empty list means nothing.
    if outcome.is_ok() || !skipped.is_empty() {
        print!("{}", report(&skipped));
    }
    outcome
}

/// Builds and tests DPDK ports, which no other task builds.
pub fn dpdk() -> Result<(), String> {
    capability::install_dpdk();
    let words = |line: &'static str| line.split(' ').collect::<Vec<_>>();
    let lint = words("clippy --no-deps -p braid-io -p braid-cli --features braid-cli/dpdk -- -D warnings");
    shell::cargo(&lint, &[])?;
    // The other live tests do not involve a DPDK driver.
    shell::cargo(&words("test -p braid-cli --features dpdk --test live dpdk -- --test-threads 2"), &[])
}

/// Summarises the skips: every reason once, with its tests.
fn report(skips: &str) -> String {
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (test, reason) in skips.lines().filter_map(|line| line.split_once('\t')) {
        by_reason.entry(reason).or_default().push(test);
    }
    if by_reason.is_empty() {
        return "nothing was skipped\n".to_owned();
    }
    by_reason.iter().map(|(reason, tests)| format!("skipped ({reason}): {}\n", tests.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_are_reported_by_reason() {
        assert_eq!(
            report("a\tnot root\nb\tnot root\nc\tno tshark\n"),
            "skipped (no tshark): c\nskipped (not root): a, b\n"
        );
        assert_eq!(report(""), "nothing was skipped\n");
    }
}
