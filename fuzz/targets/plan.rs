//! Bytes as a plan file: a plan, or a refusal that names a place in the text. Never a panic.
#![no_main]

use braid_control::plan::file::PlanFile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    if let Err(problem) = PlanFile::parse(&text) {
        if let Some((line, column)) = problem.line_and_column(&text) {
            assert!(
                line <= text.lines().count() + 1 && column <= text.len() + 1,
                "{line}:{column} lies outside the text"
            );
        }
        assert!(!problem.to_string().is_empty());
    }
});
