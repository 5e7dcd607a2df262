//! Configurations that are refused, for tests.

use braid_nf::state::{Domain, HugePages, StateBuilder};

/// Builds a function of the catalogue for a plan with two ports, and compares the configuration error with `expected`.
#[track_caller]
pub fn refuse(function: &str, config: &str, expected: &str) {
    let build = crate::find(function).expect("a function of the catalogue").build;
    let mut builder = StateBuilder::new(&Domain::new(1), HugePages::Never);
    let refused = build(function, config.parse().expect("TOML"), &mut builder, 2).err();
    assert_eq!(refused.expect("a configuration that makes no function").to_string(), expected);
}
