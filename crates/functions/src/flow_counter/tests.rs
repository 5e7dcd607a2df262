//! What makes a flow, which bytes count, and what happens to packets that cannot be counted.

use braid_nf::packet::FrameInfo;
use braid_testkit::{Bench, Frame};

use super::*;
use crate::find;

fn bench(sets: usize, config: &str) -> Bench {
    let build = find("flow_counter").unwrap().build;
    Bench::with_sets(2, sets, |builder| build("count", config.parse().unwrap(), builder, 2).unwrap())
}

fn totals(bench: &Bench) -> Totals {
    Totals::read_from_bytes(&bench.object("count.totals")).unwrap()
}

/// Checks how many flows some frames make, per direction and with both directions joined. All frames pass unchanged.
#[track_caller]
fn check(frames: &[Frame], flows: u64, biflows: u64) {
    for (config, expected) in [("", flows), ("symmetric = true", biflows)] {
        let mut bench = bench(100, config);
        for (n, frame) in frames.iter().enumerate() {
            let bytes = frame.clone().bytes();
            assert_eq!(bench.send(0, n as u64, &bytes).only(), (1, &bytes[..]));
        }
        assert_eq!(bench.counters().sets_created, expected, "`{config}`");
    }
}

#[test]
fn a_flow_is_one_way_unless_symmetric() {
    let there = Frame::tcp("10.0.0.1:1000", "10.0.0.2:80");
    let back = Frame::tcp("10.0.0.2:80", "10.0.0.1:1000");
    check(&[there.clone(), back.clone(), there, back], 2, 1);
}

#[test]
fn protocol_ports_and_family_tell_flows_apart() {
    let udp = |from: &str, to: &str| Frame::udp(from, to);
    check(&[Frame::tcp("10.0.0.1:1", "10.0.0.2:2"), udp("10.0.0.1:1", "10.0.0.2:2")], 2, 2);
    check(&[udp("10.0.0.1:1", "10.0.0.2:2"), udp("10.0.0.1:1", "10.0.0.2:3")], 2, 2);
    check(&[udp("[2001:db8::1]:1", "[2001:db8::2]:2"), udp("[2001:db8::2]:2", "[2001:db8::1]:1")], 2, 1);
}

#[test]
fn icmp_and_later_fragments_have_no_ports() {
    check(
        &[Frame::echo_request("10.0.0.1", "10.0.0.2", 1, 1), Frame::echo_request("10.0.0.1", "10.0.0.2", 2, 1)],
        1,
        1,
    );
    let first = Frame::udp("10.0.0.1:1", "10.0.0.2:2").payload(&[0; 16]).fragment(7, 0, true);
    let later = Frame::ip("10.0.0.1", "10.0.0.2", 17).payload(&[0; 16]).fragment(7, 3, false);
    check(&[first, later.clone(), later], 2, 2);
}

#[test]
fn vlan_tags_are_skipped_and_what_is_not_ip_belongs_to_no_flow() {
    let frame = Frame::udp("10.0.0.1:1", "10.0.0.2:2");
    check(&[frame.clone(), frame.clone().vlan(5), frame.vlan(6).vlan(7)], 1, 1);
    check(&[Frame::arp("10.0.0.1", "10.0.0.2"), Frame::ethernet(0x88cc)], 0, 0);
}

#[test]
fn bytes_are_those_on_the_wire() {
    let mut bench = bench(100, "totals = true");
    let frame = Frame::udp("10.0.0.1:1", "10.0.0.2:2").len(1000).bytes();
    bench.send_info(FrameInfo { wire_len: 1000, ..FrameInfo::default() }, &frame[..96]);
    bench.send_info(FrameInfo { wire_len: 1000, ..FrameInfo::default() }, &frame);
    bench.send(0, 0, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    let expected =
        Totals { flows: 1, counted: Count { packets: 2, bytes: 2000 }, others: Count { packets: 1, bytes: 42 } };
    assert_eq!(totals(&bench), expected);
}

#[test]
fn without_totals_nothing_is_shared() {
    let mut bench = bench(100, "");
    bench.send(0, 0, &Frame::udp("10.0.0.1:1", "10.0.0.2:2").bytes());
    assert_eq!(bench.counters().commits, 0);
}

#[test]
fn a_full_table_counts_no_further_flow_but_every_packet_passes() {
    let mut bench = bench(2, "totals = true");
    for port in 1..=5 {
        let frame = Frame::udp(&format!("10.0.0.1:{port}"), "10.0.0.2:2").bytes();
        assert_eq!(bench.send(0, 0, &frame).ports(), [1]);
    }
    let totals = totals(&bench);
    assert_eq!((totals.flows, totals.counted.packets, totals.others.packets), (2, 2, 3));
    assert_eq!(bench.counters().sets_live, 2);
}

#[test]
fn flows_never_end_unless_a_timeout_is_given() {
    let frame = Frame::udp("10.0.0.1:1", "10.0.0.2:2").bytes();
    for (config, expected) in [("", 1), ("idle_timeout_s = 10", 2)] {
        let mut bench = bench(100, config);
        for ms in [0, 10_000, 20_001] {
            bench.send(0, ms, &frame);
        }
        assert_eq!(bench.counters().sets_created, expected, "`{config}`");
    }
}

#[test]
fn cut_frames_are_counted_somewhere() {
    let mut bench = bench(100, "totals = true");
    let frame = Frame::tcp("[2001:db8::1]:1", "[2001:db8::2]:2").bytes();
    for cut in 1..=frame.len() {
        assert_eq!(bench.send(0, 0, &frame[..cut]).ports(), [1]);
    }
    let totals = totals(&bench);
    assert_eq!(totals.counted.packets + totals.others.packets, frame.len() as u64);
}
