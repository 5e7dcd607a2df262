//! What shared state costs per packet, compared with no synchronisation at all: the table of `docs/profiling.md`.

use std::fmt::Write;

use braid_control::machine::Machine;
use braid_testkit::cost::{Cost, Pair, Scaling, Work, gigahertz};

/// Batch sizes.
const BATCHES: [usize; 2] = [64, 128];
/// What a packet may do, and the goal for its additional cost in nanoseconds.
const WORK: [(Work, &str, f64); 5] = [
    (Work::Own, "no shared state", 0.0),
    (Work::ReadAlone, "reads one object alone", 1.0),
    (Work::ReadOne, "reads one object", 1.0),
    (Work::UpdateOne, "updates one object", 5.0),
    (Work::UpdateThree, "updates three objects", 12.0),
];
/// Transactions in the first-level cache, and the goal for each in cycles.
const IN_CACHE: [(&str, &str); 3] = [("empty", "2"), ("reads one object", ""), ("writes one object", "40")];

/// Measures and formats the table; every figure is the best of `100 * repeats` short rounds.
pub fn table(repeats: usize) -> Result<String, String> {
    let mut cost = Cost::new(100 * repeats).map_err(|error| error.to_string())?;
    let mut out = format!(
        "{}\nmeasured on one worker of two: 2,000,000 objects of a line each, ns of processor time a packet\n  {:<24} {:>5}  {:>10} {:>10} {:>8} {:>8}\n",
        Machine::here(),
        "a packet",
        "batch",
        "without",
        "with",
        "more",
        "wished"
    );
    for (work, name, wished) in WORK {
        for batch in BATCHES {
            let pair = cost.packet(work, batch);
            let Pair { without, with } = pair;
            let _ = writeln!(
                out,
                "  {name:<24} {batch:>5}  {without:>10.1} {with:>10.1} {:>+8.1} {:>8}",
                pair.more(),
                format!("≤ {wished:.0}")
            );
        }
    }
    let ghz = gigahertz();
    let _ = writeln!(out, "\na transaction for each packet, objects in the first-level cache, cycles at {ghz:.2} GHz");
    for ((name, wished), pair) in IN_CACHE.into_iter().zip(cost.in_cache()) {
        let [without, with, more] = [pair.without, pair.with, pair.more()].map(|ns| ns * ghz);
        let wished = if wished.is_empty() { String::new() } else { format!("≤ {wished}") };
        let _ = writeln!(out, "  {name:<24} {:>5}  {without:>10.1} {with:>10.1} {more:>+8.1} {wished:>8}", 1);
    }
    let _ = writeln!(
        out,
        "\ntwo workers, each updating objects of its own: times the rate of one\n{:>24}  by processor time  by the wall",
        ""
    );
    for ((name, wished), scaling) in [("without", ""), ("with", "≥ 1.9")].into_iter().zip(cost.scaling(BATCHES[0])) {
        let Scaling { by_processor, by_wall } = scaling;
        let _ = writeln!(out, "  {name:<22}  {by_processor:>17.2}  {by_wall:>11.2}  {wished}");
    }
    Ok(out)
}
