//! Compares a user's own function with the built-in function that does the same, to show that neither is privileged.

use super::{by_stage, can_count, per_packet};
use crate::shell;

/// The user's function, the built-in one, and the maximum ratio of their instructions.
const OWN: &str = "own_counter";
const BUILT_IN: &str = "flow_counter";
const MOST: f64 = 1.1;

/// Counts both functions.
pub fn run() -> Result<(), String> {
    if !can_count()? {
        return Ok(());
    }
    shell::cargo(&["build", "--release", "--package", "braid-cli", "--example", OWN], &[])?;
    let program = format!("examples/{OWN}");
    let all = |chain: &str| per_packet(&program, chain, 1, by_stage).map(|counts| counts.values().sum::<f64>());
    let (own, built_in) = (all(OWN)?, all(BUILT_IN)?);
    let times = own / built_in;
    println!(
        "{OWN} {own:.1}, {BUILT_IN} {built_in:.1} instructions a packet: {times:.3} times as many (at most {MOST})"
    );
    if times <= MOST { Ok(()) } else { Err(format!("{OWN} takes {times:.3} times the instructions of {BUILT_IN}")) }
}
