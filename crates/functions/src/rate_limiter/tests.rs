//! Flows held to their rates in bytes and in packets, and contradictory configurations.

use braid_nf::packet::FrameInfo;
use braid_testkit::{Bench, Frame};

use super::*;
use crate::find;

fn bench(sets: usize, config: &str) -> Bench {
    let build = find("rate_limiter").unwrap().build;
    Bench::with_sets(2, sets, |builder| build("limit", config.parse().unwrap(), builder, 2).unwrap())
}

fn flow(port: u16) -> Vec<u8> {
    Frame::udp(&format!("10.0.0.1:{port}"), "10.0.0.2:2").len(100).bytes()
}

/// Sends a frame of 100 bytes at each time (in milliseconds), and checks which pass.
#[track_caller]
fn check(config: &str, times: &[u64], expected: &str) {
    let mut bench = bench(100, config);
    let passed: String =
        times.iter().map(|ms| if bench.send(0, *ms, &flow(1)).dropped.is_none() { '+' } else { '-' }).collect();
    assert_eq!(passed, expected, "{config}");
}

#[test]
fn a_burst_passes_then_the_rate() {
    check("bytes_per_s = 1000\nburst_bytes = 300", &[0, 0, 0, 0, 99, 100, 100, 300, 300, 300], "+++--+-++-");
    check("packets_per_s = 10\nburst_packets = 2", &[0, 0, 0, 99, 100, 1000, 1000, 1000], "++--+++-");
}

#[test]
fn every_flow_has_a_bucket_of_its_own() {
    let mut bench = bench(100, "packets_per_s = 1\nburst_packets = 1");
    for port in 1..=3 {
        assert_eq!(bench.send(0, 0, &flow(port)).ports(), [1]);
    }
    for port in 1..=3 {
        assert_eq!(bench.send(0, 0, &flow(port)).dropped, Some("rate_exceeded"));
    }
    let v6 = Frame::tcp("[2001:db8::1]:1", "[2001:db8::2]:2").vlan(4).bytes();
    assert_eq!(bench.send(0, 0, &v6).ports(), [1]);
    assert_eq!(bench.send(0, 0, &v6).dropped, Some("rate_exceeded"));
}

#[test]
fn bytes_are_those_on_the_wire() {
    let mut bench = bench(100, "bytes_per_s = 100\nburst_bytes = 1000");
    let cut = FrameInfo { wire_len: 1001, ..FrameInfo::default() };
    assert_eq!(bench.send_info(cut, &flow(1)).dropped, Some("larger_than_burst"));
    assert_eq!(bench.send_info(FrameInfo { wire_len: 1000, ..cut }, &flow(1)).ports(), [1]);
}

#[test]
fn forgetting_a_flow_changes_nothing() {
    // The bucket takes 10 s to fill and is forgotten after 11 s: never before it is full.
    let config = "bytes_per_s = 100\nburst_bytes = 1000\nidle_timeout_s = 11";
    let mut bench = bench(100, config);
    (0..10).for_each(|_| assert_eq!(bench.send(0, 0, &flow(1)).dropped, None));
    assert_eq!(bench.send(0, 0, &flow(1)).dropped, Some("rate_exceeded"));
    let passed = (0..20).filter(|_| bench.send(0, 12_000, &flow(1)).dropped.is_none()).count();
    assert_eq!(passed, 10);
}

#[test]
fn a_full_table_drops_new_flows_and_keeps_old_ones() {
    let mut bench = bench(1, "packets_per_s = 1000\nburst_packets = 10");
    assert_eq!(bench.send(0, 0, &flow(1)).ports(), [1]);
    assert_eq!(bench.send(0, 0, &flow(2)).dropped, Some("set_table_full"));
    assert_eq!(bench.send(0, 0, &flow(1)).ports(), [1]);
}

#[test]
fn what_is_not_ip_passes() {
    let mut bench = bench(1, "packets_per_s = 1\nburst_packets = 1");
    for _ in 0..3 {
        assert_eq!(bench.send(0, 0, &Frame::arp("10.0.0.1", "10.0.0.2").bytes()).ports(), [1]);
        // What says that it is IP, and is not, evades nothing.
        assert_eq!(bench.send(0, 0, &flow(1)[..20]).dropped, Some("malformed"));
    }
}

#[track_caller]
fn refuse(config: &str, expected: &str) {
    let error = crate::parse::<Config>(config.parse().unwrap()).and_then(|config| {
        let (limit, _) = config.limit()?;
        config.idle_timeout_ns(&limit)
    });
    assert_eq!(error.unwrap_err().to_string(), expected);
}

#[test]
fn contradictions_are_refused() {
    refuse(
        "burst_packets = 5",
        "`burst_packets`: there is no `packets_per_s`; add `packets_per_s`, or write `burst_bytes`",
    );
    refuse(
        "packets_per_s = 5\nbytes_per_s = 5",
        "`packets_per_s`: packets and bytes are limited at once; keep either the keys with bytes or those with packets; \
         two functions in a row do both",
    );
    refuse("bytes_per_s = 1\nburst_bytes = 100", "`idle_timeout_s`: 60 is out of range; write 101 to 2073600 seconds");
    refuse(
        "bytes_per_s = 100\nburst_bytes = 9",
        "`burst_bytes`: every packet is longer than a burst of 9, so none would pass; \
         write at least 20, and 1514 for full frames of Ethernet",
    );
    refuse("bytes_per_s = 0", "`bytes_per_s`: a rate of 0 lets nothing pass; write a number of at least 1");
}
