//! Generated packets through every function: many more flows than any capture has, in both directions.

use braid_functions::{Entry, catalog};
use braid_io::NullSink;
use braid_io::generate::{GenConfig, GeneratorSource, Profile};

use crate::run::{Case, split};

/// Mixes that differ in flows, protocols and packets per flow.
pub const MIXES: [Profile; 3] = [Profile::Campus, Profile::Edge, Profile::Backbone];

/// A mix with answers, split to ports as the function wants it.
pub fn traffic(entry: &Entry, profile: Profile, packets: u64, seed: u64) -> GeneratorSource {
    let config = GenConfig { seed, reverse: 0.4, split: Some(split(entry)), ..profile.config(packets) };
    GeneratorSource::new(profile.name(), config).expect("a mix of the tests")
}

/// So many packets of every mix together through every function with two workers.
fn check(packets: u64, sets: usize) {
    for entry in catalog() {
        for profile in MIXES {
            let share = packets / MIXES.len() as u64;
            let case = Case { sets, ..Case::of(entry, "", 2) };
            let report = case.run(traffic(entry, profile, share, 7), NullSink).expect("it runs");
            assert_eq!(report.total.packets_in, share, "{} on {profile}", entry.name);
            eprintln!(
                "{} on {profile}: {share} packets, {} out, {} copies, {} dropped, {} sets",
                entry.name,
                report.total.packets_out,
                report.total.packets_copied,
                report.total.drops.total(),
                report.total.sets_created
            );
        }
    }
}

#[test]
fn two_hundred_thousand_packets_come_through_every_function() {
    check(200_000, 1 << 16);
}

#[test]
#[ignore = "minutes: cargo xtask verify generated"]
fn ten_million_packets_come_through_every_function() {
    check(10_000_002, 1 << 21);
}
