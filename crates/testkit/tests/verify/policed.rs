//! Limits are one for all workers: what a policer's admit together stays within burst + rate × time, and comes near it; a
//! connection limiter's admit as many connections as one would.

use braid_functions::find;
use braid_io::generate::{GenConfig, Generator, Profile};
use braid_io::{FrameStream, Next, NullSink};

use crate::generated::traffic;
use crate::run::Case;

const PACKETS: u64 = 60_000;
const SEED: u64 = 3;
const CONFIG: &str = "packets_per_s = 1000000000\nburst_packets = 1000000\nlink = { per_s = 50000, burst = 100 }";

/// Nanoseconds from the first packet to the last.
fn span_ns(mut stream: impl FrameStream) -> u64 {
    let (mut first, mut last) = (None, 0);
    while stream.advance() == Next::Frame {
        last = stream.frame().1.timestamp_ns;
        first.get_or_insert(last);
    }
    last - first.unwrap_or(0)
}

#[test]
fn workers_together_admit_what_one_would() {
    let entry = find("policer").expect("a function of the catalogue");
    let source = || traffic(Profile::Backbone, PACKETS, SEED);
    let same = GenConfig { seed: SEED, ..Profile::Backbone.config(PACKETS) };
    let span = u128::from(span_ns(Generator::new(same).expect("a mix of the tests")));
    let most = 100 + (50_000 * span / 1_000_000_000) as u64;
    assert!(most * 3 < PACKETS, "more is offered than the rate allows: {most}");
    for workers in [1, 2, 4] {
        let report = Case::of(entry, CONFIG, workers).run(source(), NullSink).expect("it runs");
        let passed = report.total.packets_out;
        assert!(passed <= most + 1, "{workers} workers admit {passed} of at most {most}");
        assert!(passed * 1000 >= most * 999, "{workers} workers admit {passed} of {most}");
    }
}

/// All hosts of a family are one owner, and no connection ends by time; in a flood of SYNs none is closed.
const ONE_OWNER: &str = "connections_max = 100\nprefix = { v4 = 0, v6 = 0 }
    opening_s = 86400\nclosing_s = 86400\nudp_s = 86400\ntcp_s = 86400";

#[test]
fn workers_together_admit_no_more_connections() {
    let entry = find("connection_limiter").expect("a function of the catalogue");
    for workers in [1, 2, 4] {
        let report = Case::of(entry, ONE_OWNER, workers)
            .run(traffic(Profile::SynFlood, 20_000, SEED), NullSink)
            .expect("it runs");
        let refused = report.total.drops.iter().filter(|(_, reason, _)| *reason == "too_many_connections");
        assert!(refused.map(|(.., count)| count).sum::<u64>() > 1000, "many more are opened");
        assert!([100, 200].contains(&report.total.sets_created), "{workers}: {}", report.total.sets_created);
    }
}

#[test]
fn what_waits_in_a_shaper_leaves_in_the_end_whatever_the_number_of_workers() {
    let entry = find("shaper").expect("a function of the catalogue");
    let config =
        "bytes_per_s = 100000000\nqueue_packets = 40000\nlink = { bytes_per_s = 1000000, burst_bytes = 10000 }";
    for workers in [1, 2, 4] {
        let report =
            Case::of(entry, config, workers).run(traffic(Profile::Backbone, 20_000, SEED), NullSink).expect("it runs");
        let waited = report.total.drops.iter().filter(|(_, reason, _)| *reason == "waits_for_credit");
        let waited: u64 = waited.map(|(.., count)| count).sum();
        assert_eq!(report.total.drops.total(), waited, "nothing else is dropped: {:?}", report.total.drops);
        assert!(waited > 10_000 && report.total.packets_copied == waited, "{workers} workers: {waited} waited");
        assert_eq!(report.total.packets_out, 20_000);
    }
}
