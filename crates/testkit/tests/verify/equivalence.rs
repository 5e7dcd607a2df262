//! The promise under the configurations in which workers share the most, beside those that [`certify`](crate::certify) runs:
//! short time-outs, small tables, refreshes on every packet.

use std::sync::Arc;

use braid_functions::find;
use braid_io::NullSink;
use braid_io::generate::{GeneratorSource, Profile};
use braid_nf::state::Tx;
use braid_runtime::Control;
use braid_runtime::launch::{build, snapshots};
use braid_runtime::replay::Replay;

use crate::run::{Case, split};

/// Runs a function on `workers` workers under the schedule of a seed, and again on one worker in the order of commits.
#[track_caller]
fn check(name: &str, config: &'static str, profile: Profile, workers: usize, seed: u64) -> u64 {
    let entry = find(name).expect("a function");
    let mut traffic = profile.config(1500);
    (traffic.seed, traffic.mac_pairs, traffic.arp, traffic.ipv6) = (seed, 20, 0.05, 0.2);
    traffic.split = Some(split(entry));
    let source = GeneratorSource::new(profile.name(), traffic).expect("traffic");
    let case = Case::of(entry, config, workers);
    let control = Control { record: true, schedule: Some(seed), ..Control::default() };
    let mut report = case.run_with(source, NullSink, &control).expect("a plan that runs");
    let what = format!("{name} {{ {config} }} on {} with {workers} workers, seed {seed}", profile.name());
    assert_eq!(report.total.packets_in, 1500, "{what}");
    let record = report.record.take().expect("it was recorded");
    assert!(record.twice.is_empty(), "{what}: sets on two workers: {:?}", record.twice);
    let plan = case.plan();
    let fresh = build(&plan).expect("builds again");
    let mut tx = Tx::new(&fresh.domain, 0);
    tx.replay(0, Vec::new());
    let replay = Replay::new(Arc::clone(&fresh.chain), tx, plan.sets * 2, plan.ports, 4096).expect("memory");
    let (differences, sets) = replay.run(&record.logs);
    assert!(differences.is_empty(), "{what}: {} differences, first {:#?}", differences.len(), differences[0]);
    assert!(sets == record.sets, "{what}: final packet sets");
    assert_eq!(snapshots(&fresh.chain), record.objects, "{what}: final objects");
    report.total.aborts
}

#[test]
fn every_configuration_that_shares_more_equals_one_worker() {
    let sharing = [
        ("flow_counter", "symmetric = true\ntotals = true\nidle_timeout_s = 1"),
        ("rate_limiter", "packets_per_s = 20\nburst_packets = 2"),
        ("policer", "bytes_per_s = 2000\nburst_bytes = 3000"),
        (
            "shaper",
            "bytes_per_s = 2000\nburst_bytes = 3000\nqueue_packets = 30\nlink = { bytes_per_s = 40000, burst_bytes = 1600 }",
        ),
        ("anti_ddos", "flows_min = 0"),
        ("heavy_hitters", "by = 'pair'\nthreshold = 500\nrows = 2\ncolumns = 12\ninterval_ms = 50"),
        ("connection_limiter", "prefix = { v4 = 0, v6 = 0 }\nconnections_max = 20\nudp_s = 1\nopening_s = 1"),
        ("anti_ddos", "flows_min = 0\nstaleness_us = 100\nidle_timeout_s = 1"),
        ("bridge", "refresh_interval_ms = 0"),
        ("bridge", "capacity = 7"),
        ("bridge", "ageing_s = 10\nvlan_aware = false"),
        ("nat", "last_port = 1100\nrefresh_ms = 1"),
        (
            "nat",
            "filtering = 'address_and_port_dependent'\nudp_s = 1\ntcp_opening_s = 1\ntcp_closing_s = 1\nicmp_s = 1",
        ),
        ("nat", "inside = ['0.0.0.0/1']\nmappings_max = 300"),
        (
            "nat",
            "allocation = 'blocks'\nblock_size = 8\nblocks_per_host = 2\nports_per_host = 12\nrest_s = 0\nudp_s = 1",
        ),
        ("nat", "filtering = 'address_dependent'\nrefresh_ms = 1\nheld_max = 2\ninbound_refresh = true"),
        ("firewall", "loose = true\ninbound = 'reject'\nudp_s = 1\ntcp_opening_s = 1"),
        ("firewall", "connections_max = 100\nqueries_max = 1\nttl = 'decrement'"),
        ("port_scan", "answer_ms = 1\naction = 'drop'\nforget_s = 1\nfalse_alarms = 0.2\nalerts_max = 3"),
        ("dns_tunnel", "orphans = 1\nbytes = 0\nwindow_s = 1\nanswers_max = 40\nalerts_max = 3"),
        ("sidejacking", "session_s = 1\nrefresh_ms = 0\nidle_timeout_s = 1\nsessions_max = 5"),
        ("protocol_classifier", "packets_max = 1\nidle_timeout_s = 1"),
        ("asset_monitor", "refresh_ms = 0\nhosts_max = 20\nservices_max = 5\nidle_timeout_s = 1"),
        ("abacus", "action = 'drop'\nidle_timeout_s = 1\nsubscribers_max = 30"),
    ];
    let mut aborts = 0;
    for (name, config) in sharing {
        for seed in 1..=6 {
            let profile = [Profile::Campus, Profile::Edge, Profile::SynFlood][seed as usize % 3];
            aborts += check(name, config, profile, 2 + seed as usize % 3, seed);
        }
    }
    assert!(aborts > 100, "the schedules provoke conflicts: {aborts}");
}
