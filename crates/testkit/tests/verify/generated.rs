//! Generated packets through every function: many more flows than any capture has, in both directions.

use braid_functions::{Entry, catalog};
use braid_io::NullSink;
use braid_io::generate::{Addresses, GenConfig, GeneratorSource, Profile};

use crate::run::Case;

/// Mixes that differ in flows, protocols and packets per flow.
pub const MIXES: [Profile; 3] = [Profile::Campus, Profile::Edge, Profile::Backbone];

/// Balances the four servers of a mix; clients come by port 0.
const BALANCED: &str = "client_ports = [0]\nbackend_ports = [1]\ntable_size = 251
    [[service]]\naddress = '198.18.0.0'\nbackends = [{ address = '192.0.2.10' }, { address = '192.0.2.11' }]
    [[service]]\naddress = '198.18.0.1'\nbackends = [{ address = '192.0.2.12' }, { address = '192.0.2.13' }]
    [[service]]\naddress = '198.18.0.2'\nbackends = [{ address = '192.0.2.14' }, { address = '192.0.2.15' }]
    [[service]]\naddress = '198.18.0.3'\nbackends = [{ address = '192.0.2.16' }]\n";

/// What the functions need to have something to do.
fn config(entry: &Entry) -> &'static str {
    if entry.name == "load_balancer" { BALANCED } else { "" }
}

/// A mix with answers: requests come by port 0, answers by port 1, both from many stations.
pub fn traffic(profile: Profile, packets: u64, seed: u64) -> GeneratorSource {
    let addresses = Addresses { server_bits: 2, client_bits: 20, ..Addresses::default() };
    let config = GenConfig { seed, reverse: 0.4, mac_pairs: 256, addresses, ..profile.config(packets) };
    GeneratorSource::new(profile.name(), config).expect("a mix of the tests")
}

/// So many packets of every mix together through every function with two workers.
fn check(packets: u64, sets: usize) {
    for entry in catalog() {
        for profile in MIXES {
            let share = packets / MIXES.len() as u64;
            let case = Case { sets, ..Case::of(entry, config(entry), 2) };
            let report = case.run(traffic(profile, share, 7), NullSink).expect("it runs");
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
