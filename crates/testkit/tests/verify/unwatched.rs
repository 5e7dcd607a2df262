//! A run that nobody watches goes ways of its own (`NetworkFunction::steady`, reads outside of any transaction, commits without a
//! log). On one worker it must do to every packet what the recorded run does, of which certificates speak.

use braid_control::frames::Frames;
use braid_functions::catalog;
use braid_io::memory::{CollectedPacket, MemorySink};
use braid_runtime::Control;

use crate::certify::{busy, inputs, others};
use crate::run::Case;

const TEST: &str = "what_nobody_watches_is_what_certificates_speak_of";

/// What leaves, what is dropped for which reason, and how many sets were live how long.
fn outcome(case: &Case, frames: &Frames, record: bool) -> (Vec<CollectedPacket>, Vec<(&'static str, u64)>, [u64; 2]) {
    let (sink, collected) = MemorySink::new();
    let control = Control { record, ..Control::default() };
    let report = case.run_with(frames.source(TEST), sink, &control).expect("it runs");
    let total = &report.total;
    let drops = total.drops.iter().map(|(_, reason, count)| (reason, count)).collect();
    (collected.packets(), drops, [total.sets_created, total.sets_live])
}

#[test]
fn what_nobody_watches_is_what_certificates_speak_of() {
    for entry in catalog() {
        let inputs = inputs(entry, TEST, 0, 2000);
        for config in ["", busy(entry.name)].into_iter().chain(others(entry.name).iter().copied()) {
            let case = Case { sets: 2048, ..Case::of(entry, config, 1) };
            for (name, frames) in &inputs {
                let (free, watched) = (outcome(&case, frames, false), outcome(&case, frames, true));
                assert!(!frames.is_empty() && free == watched, "{} on {name} under\n{config}", entry.name);
            }
        }
    }
}
