//! Ports in pairs, every packet through, TTL and addresses.

use braid_testkit::{Bench, Frame, assert_checksums};

use super::*;
use crate::find;

fn bench(ports: u16, config: &str) -> Bench {
    Bench::new(ports, |builder| {
        (find("forward").unwrap().build)("fwd", config.parse().unwrap(), builder, ports).unwrap()
    })
}

/// Checks that a frame received on port `from` leaves unchanged by port `to`.
#[track_caller]
fn check(ports: u16, from: Port, to: Port) {
    let frame = Frame::udp("10.0.0.1:53", "10.0.0.2:53").bytes();
    let outcome = bench(ports, "").send(from, 0, &frame);
    assert_eq!(outcome.only(), (to, &frame[..]));
}

#[test]
fn ports_are_pairs() {
    check(2, 0, 1);
    check(2, 1, 0);
    check(4, 2, 3);
    check(4, 3, 2);
}

#[test]
fn a_port_without_a_partner_sends_back() {
    check(1, 0, 0);
    check(3, 2, 2);
}

#[test]
fn everything_passes_whatever_it_is() {
    let mut bench = bench(2, "");
    let whole = Frame::tcp("[2001:db8::1]:1", "[2001:db8::2]:2").vlan(5).bytes();
    for frame in [Frame::arp("10.0.0.1", "10.0.0.2").bytes(), Frame::ethernet(0x88cc).bytes(), whole.clone()] {
        assert_eq!(bench.send(0, 0, &frame).only(), (1, &frame[..]));
    }
    for cut in 1..whole.len() {
        assert_eq!(bench.send(0, 0, &whole[..cut]).only(), (1, &whole[..cut]));
    }
}

#[test]
fn ttl_counts_one_hop_and_keeps_checksums_right() {
    let mut bench = bench(2, "ttl = true");
    let v4 = |ttl| Frame::tcp("10.0.0.1:1", "10.0.0.2:2").vlan(9).ttl(ttl);
    let v6 = |ttl| Frame::udp("[2001:db8::1]:1", "[2001:db8::2]:2").ttl(ttl);
    for (before, after) in [(v4(64), v4(63)), (v4(2), v4(1)), (v4(255), v4(254)), (v6(64), v6(63))] {
        let outcome = bench.send(0, 0, &before.bytes());
        assert_eq!(outcome.only().1, after.bytes());
        assert_checksums(outcome.only().1);
    }
    for gone in [v4(1), v4(0), v6(1), v6(0)] {
        assert_eq!(bench.send(0, 0, &gone.bytes()).dropped, Some("ttl_exceeded"));
    }
    let arp = Frame::arp("10.0.0.1", "10.0.0.2").bytes();
    assert_eq!(bench.send(0, 0, &arp).only(), (1, &arp[..]));
}

#[test]
fn swap_mac_exchanges_both_addresses_and_nothing_else() {
    let (a, b) = ([2, 0, 0, 0, 0, 0xa], [2, 0, 0, 0, 0, 0xb]);
    let frame = |from, to| Frame::udp("10.0.0.1:53", "10.0.0.2:53").vlan(3).mac(from, to).bytes();
    let mut bench = bench(2, "swap_mac = true");
    assert_eq!(bench.send(0, 0, &frame(a, b)).only(), (1, &frame(b, a)[..]));
    assert_eq!(bench.send(0, 0, &frame(a, b)[..13]).only(), (1, &frame(a, b)[..13]));
}

#[test]
fn it_shares_nothing_and_knows_no_sets() {
    let mut bench = bench(2, "ttl = true");
    bench.send(0, 0, &Frame::udp("10.0.0.1:53", "10.0.0.2:53").bytes());
    let counters = bench.counters();
    assert_eq!((counters.sets_created, counters.commits, counters.aborts), (0, 0, 0));
}
