//! The translator at work: one worker, capture time, frames built and read by another library.

use std::collections::{HashMap, HashSet};

use braid_nf::state::{Domain, HugePages, StateBuilder};
use braid_nf::{Declare, Instance, SetTables};
use braid_testkit::{Bench, Frame, Outcome};
use proptest::prelude::*;

mod addresses;
mod census;
mod mtu;

use super::{Config, Filtering, Nat, Networks, Session};
use crate::catalog::FromConfig;
use crate::config::parse;
use crate::parts::show;

/// Few ports, so that one tick sweeps them all.
fn small() -> Config {
    Config { first_port: 1024, last_port: 1279, ..Config::default() }
}

fn bench(config: Config) -> Bench {
    bench_with(config, 2, 1024)
}

fn bench_with(config: Config, ports: u16, sets: usize) -> Bench {
    Bench::with_sets(ports, sets, |builder| {
        let nat = Nat::from_config(config, builder.scope("nat"), ports).expect("a configuration that works");
        Box::new(Instance::new("nat", nat))
    })
}

/// A packet by a port at a second, and what becomes of it.
#[track_caller]
fn check(bench: &mut Bench, port: u16, seconds: u64, frame: Frame, expected: &str) -> Outcome {
    let outcome = bench.send(port, seconds * 1000, &frame.bytes());
    assert_eq!(show::outcome(&outcome), expected);
    outcome
}

const HOST: &str = "10.0.0.1:1100";
const OTHER: &str = "10.0.0.2:1100";
const SERVER: &str = "192.0.2.9:80";
const EXTERNAL: &str = "198.51.100.1:1100";

#[test]
fn a_request_goes_out_by_the_external_address_and_its_reply_comes_back() {
    let mut nat = bench(Config::default());
    for second in 0..3 {
        check(&mut nat, 0, second, Frame::udp(HOST, SERVER), "1: udp 198.51.100.1:1100 > 192.0.2.9:80 ttl 63");
        check(&mut nat, 1, second, Frame::udp(SERVER, EXTERNAL), "0: udp 192.0.2.9:80 > 10.0.0.1:1100 ttl 63");
    }
    let tcp = |flags| Frame::tcp("10.0.0.1:2000", SERVER).flags(flags);
    check(&mut nat, 0, 3, tcp("S"), "1: tcp 198.51.100.1:2000 > 192.0.2.9:80 S ttl 63");
    let reply = Frame::tcp(SERVER, "198.51.100.1:2000").flags("SA");
    check(&mut nat, 1, 3, reply, "0: tcp 192.0.2.9:80 > 10.0.0.1:2000 SA ttl 63");
    check(&mut nat, 0, 3, tcp("A"), "1: tcp 198.51.100.1:2000 > 192.0.2.9:80 A ttl 63");
}

#[test]
fn a_port_that_is_taken_is_replaced_by_another_and_protocols_do_not_share() {
    let mut nat = bench(small());
    check(&mut nat, 0, 0, Frame::udp(HOST, SERVER), "1: udp 198.51.100.1:1100 > 192.0.2.9:80 ttl 63");
    let second = nat.send(0, 0, &Frame::udp(OTHER, SERVER).bytes());
    assert_ne!(show::outcome(&second), "1: udp 198.51.100.1:1100 > 192.0.2.9:80 ttl 63");
    let tcp = Frame::tcp(OTHER, SERVER).flags("S");
    check(&mut nat, 0, 0, tcp, "1: tcp 198.51.100.1:1100 > 192.0.2.9:80 S ttl 63");
}

#[test]
fn the_mapping_does_not_depend_on_whom_one_talks_to() {
    let mut nat = bench(Config::default());
    check(&mut nat, 0, 0, Frame::udp(HOST, SERVER), "1: udp 198.51.100.1:1100 > 192.0.2.9:80 ttl 63");
    check(&mut nat, 0, 0, Frame::udp(HOST, "192.0.2.7:9"), "1: udp 198.51.100.1:1100 > 192.0.2.7:9 ttl 63");
    check(&mut nat, 1, 0, Frame::udp("203.0.113.5:7", EXTERNAL), "0: udp 203.0.113.5:7 > 10.0.0.1:1100 ttl 63");
}

#[test]
fn filtering_by_address_and_port_admits_only_whom_one_talks_to() {
    let config = Config { filtering: Filtering::AddressAndPortDependent, ..Config::default() };
    let mut nat = bench(config);
    check(&mut nat, 0, 0, Frame::udp(HOST, SERVER), "1: udp 198.51.100.1:1100 > 192.0.2.9:80 ttl 63");
    check(&mut nat, 1, 0, Frame::udp("192.0.2.9:81", EXTERNAL), "drop filtered");
    check(&mut nat, 1, 0, Frame::udp("192.0.2.8:80", EXTERNAL), "drop filtered");
    check(&mut nat, 1, 0, Frame::udp(SERVER, EXTERNAL), "0: udp 192.0.2.9:80 > 10.0.0.1:1100 ttl 63");
    // The host keeps its mapping by talking to another; the first one is forgotten when its set is.
    check(&mut nat, 0, 290, Frame::udp(HOST, "192.0.2.7:9"), "1: udp 198.51.100.1:1100 > 192.0.2.7:9 ttl 63");
    check(&mut nat, 1, 580, Frame::udp("192.0.2.7:9", EXTERNAL), "0: udp 192.0.2.7:9 > 10.0.0.1:1100 ttl 63");
    check(&mut nat, 1, 610, Frame::udp(SERVER, EXTERNAL), "drop filtered");
}

#[test]
fn nobody_reaches_an_external_port_that_is_nobodys() {
    let mut nat = bench(Config::default());
    check(&mut nat, 1, 0, Frame::udp(SERVER, EXTERNAL), "drop no_mapping");
    check(&mut nat, 1, 0, Frame::tcp(SERVER, EXTERNAL).flags("S"), "drop no_mapping");
    check(&mut nat, 1, 0, Frame::udp(SERVER, "198.51.100.1:80"), "drop no_mapping");
    check(&mut nat, 1, 0, Frame::udp(SERVER, HOST), "drop no_mapping");
    check(&mut nat, 1, 0, Frame::echo_request("192.0.2.9", "198.51.100.1", 7, 1), "drop no_mapping");
    check(&mut nat, 0, 0, Frame::tcp(HOST, SERVER).flags("RA"), "drop no_mapping");
    check(&mut nat, 0, 0, Frame::tcp(HOST, SERVER).flags("FA"), "drop no_mapping");
}

#[test]
fn pings_are_translated_by_their_identifier() {
    let mut nat = bench(small());
    let ping = |id| Frame::echo_request("10.0.0.1", "192.0.2.9", id, 1);
    check(&mut nat, 0, 0, ping(1030), "1: ping 198.51.100.1 > 192.0.2.9 id 1030 ttl 63");
    let pong = Frame::echo_reply("192.0.2.9", "198.51.100.1", 1030, 1);
    check(&mut nat, 1, 0, pong.clone(), "0: pong 192.0.2.9 > 10.0.0.1 id 1030 ttl 63");
    // Its identifier is out of the range of ports, so it gets another.
    let other = nat.send(0, 0, &ping(7).bytes());
    assert!(!show::outcome(&other).contains("id 7 "));
}

#[test]
fn udp_mappings_end_after_five_minutes_and_their_port_is_free_again() {
    let mut nat = bench(small());
    check(&mut nat, 0, 0, Frame::udp(HOST, SERVER), "1: udp 198.51.100.1:1100 > 192.0.2.9:80 ttl 63");
    check(&mut nat, 1, 299, Frame::udp(SERVER, EXTERNAL), "0: udp 192.0.2.9:80 > 10.0.0.1:1100 ttl 63");
    // What comes in prolongs nothing.
    check(&mut nat, 1, 331, Frame::udp(SERVER, EXTERNAL), "drop no_mapping");
    let rests = nat.send(0, 332_000, &Frame::udp(OTHER, SERVER).bytes());
    assert_ne!(show::outcome(&rests), "1: udp 198.51.100.1:1100 > 192.0.2.9:80 ttl 63");
    check(&mut nat, 0, 333, Frame::udp(HOST, SERVER), "1: udp 198.51.100.1:1100 > 192.0.2.9:80 ttl 63");
    let third = Frame::udp("10.0.0.3:1100", SERVER);
    check(&mut nat, 0, 1000, third, "1: udp 198.51.100.1:1100 > 192.0.2.9:80 ttl 63");
}

#[test]
fn tcp_mappings_end_four_minutes_after_the_close_and_two_hours_without_one() {
    let mut nat = bench(small());
    let (to, from) = (Frame::tcp(HOST, SERVER), Frame::tcp(SERVER, EXTERNAL));
    nat.send(0, 0, &to.clone().flags("S").bytes());
    nat.send(1, 0, &from.clone().flags("SA").bytes());
    nat.send(0, 0, &to.clone().flags("A").bytes());
    nat.send(1, 0, &from.clone().flags("A").bytes());
    check(&mut nat, 1, 7439, from.clone().flags("A"), "0: tcp 192.0.2.9:80 > 10.0.0.1:1100 A ttl 63");
    nat.send(0, 7_440_000, &to.clone().flags("FA").bytes());
    nat.send(1, 7_440_000, &from.clone().flags("FA").bytes());
    check(&mut nat, 0, 7441, to.clone().flags("A"), "1: tcp 198.51.100.1:1100 > 192.0.2.9:80 A ttl 63");
    check(&mut nat, 1, 7679, from.clone().flags("A"), "0: tcp 192.0.2.9:80 > 10.0.0.1:1100 A ttl 63");
    for second in [7920, 7921, 7922] {
        nat.send(0, second * 1000, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    }
    check(&mut nat, 1, 7923, from.flags("A"), "drop no_mapping");
    assert!(nat.object("nat.ports").iter().all(|byte| *byte == 0), "no port is taken");
    assert_eq!(nat.object("nat.mappings").len(), 0, "no mapping is left");
}

#[test]
fn when_all_ports_are_taken_new_flows_are_dropped_and_old_ones_go_on() {
    let mut nat = bench(small());
    for host in 0..256u32 {
        let outcome = nat.send(0, 0, &Frame::udp(&format!("10.1.{}.1:5000", host), SERVER).bytes());
        assert_eq!(outcome.dropped, None);
    }
    let refused = |to: &str, port, reason| {
        format!("0: unreachable 192.0.0.8 > {to} [udp {to}:{port} > {SERVER}] ttl 64, drop {reason}")
    };
    check(&mut nat, 0, 0, Frame::udp(HOST, SERVER), &refused("10.0.0.1", 1100, "no_free_port"));
    assert_eq!(nat.send(0, 0, &Frame::udp("10.1.7.1:5000", SERVER).bytes()).ports(), [1]);
    assert_eq!(nat.send(0, 0, &Frame::tcp(HOST, SERVER).flags("S").bytes()).ports(), [1], "TCP has ports of its own");
    assert_eq!(nat.send(0, 500_000, &Frame::udp(HOST, SERVER).bytes()).ports(), [1], "old mappings make room");
}

#[test]
fn as_many_mappings_as_configured() {
    let mut nat = bench(Config { mappings_max: 1, ..Config::default() });
    check(&mut nat, 0, 0, Frame::udp(HOST, SERVER), "1: udp 198.51.100.1:1100 > 192.0.2.9:80 ttl 63");
    assert_eq!(nat.send(0, 0, &Frame::udp(OTHER, SERVER).bytes()).dropped, Some("mapping_table_full"));
}

#[test]
fn packets_without_room_for_a_set_are_translated_all_the_same() {
    let mut nat = bench_with(Config::default(), 2, 1);
    for second in 0..3 {
        check(&mut nat, 0, second, Frame::udp(HOST, SERVER), "1: udp 198.51.100.1:1100 > 192.0.2.9:80 ttl 63");
        check(&mut nat, 1, second, Frame::udp(SERVER, EXTERNAL), "0: udp 192.0.2.9:80 > 10.0.0.1:1100 ttl 63");
    }
}

#[test]
fn inside_hosts_reach_each_other_by_their_external_endpoints() {
    let mut nat = bench(Config::default());
    check(&mut nat, 0, 0, Frame::udp("10.0.0.2:2200", SERVER), "1: udp 198.51.100.1:2200 > 192.0.2.9:80 ttl 63");
    let hairpin = Frame::udp(HOST, "198.51.100.1:2200");
    check(&mut nat, 0, 0, hairpin, "0: udp 198.51.100.1:1100 > 10.0.0.2:2200 ttl 63");
    let back = Frame::udp("10.0.0.2:2200", EXTERNAL);
    check(&mut nat, 0, 0, back, "0: udp 198.51.100.1:2200 > 10.0.0.1:1100 ttl 63");
    // Directly, they are not translated.
    check(&mut nat, 0, 0, Frame::udp(HOST, "10.0.0.2:2200"), "0: udp 10.0.0.1:1100 > 10.0.0.2:2200 ttl 63");
}

#[test]
fn icmp_errors_are_translated_with_the_packet_that_they_quote() {
    let mut nat = bench(Config::default());
    let sent = nat.send(0, 0, &Frame::udp(HOST, SERVER).payload(b"question").bytes());
    let router = Frame::unreachable("203.0.113.9", "198.51.100.1", sent.only().1);
    let expected = "0: unreachable 203.0.113.9 > 10.0.0.1 [udp 10.0.0.1:1100 > 192.0.2.9:80] ttl 63";
    check(&mut nat, 1, 0, router, expected);
    let sent = nat.send(1, 0, &Frame::udp(SERVER, EXTERNAL).payload(b"answer").bytes());
    let host = Frame::unreachable("10.0.0.1", "192.0.2.9", sent.only().1);
    let expected = "1: unreachable 198.51.100.1 > 192.0.2.9 [udp 192.0.2.9:80 > 198.51.100.1:1100] ttl 63";
    check(&mut nat, 0, 0, host, expected);
    let sent = nat.send(0, 0, &Frame::echo_request("10.0.0.1", "192.0.2.9", 4000, 1).bytes());
    let unreachable = Frame::unreachable("192.0.2.9", "198.51.100.1", sent.only().1);
    check(
        &mut nat,
        1,
        0,
        unreachable,
        "0: unreachable 192.0.2.9 > 10.0.0.1 [ping 10.0.0.1 > 192.0.2.9 id 4000] ttl 63",
    );
}

#[test]
fn icmp_errors_about_hairpins_are_translated_at_both_ends() {
    let mut nat = bench(Config::default());
    nat.send(0, 0, &Frame::udp("10.0.0.2:2200", SERVER).bytes());
    let sent = nat.send(0, 0, &Frame::udp(HOST, "198.51.100.1:2200").bytes());
    let error = Frame::unreachable("10.0.0.2", "198.51.100.1", sent.only().1);
    let expected = "0: unreachable 198.51.100.1 > 10.0.0.1 [udp 10.0.0.1:1100 > 198.51.100.1:2200] ttl 63";
    check(&mut nat, 0, 0, error, expected);
}

#[test]
fn icmp_errors_about_nothing_are_dropped() {
    let mut nat = bench(Config::default());
    let quoted = Frame::udp(EXTERNAL, SERVER).bytes();
    check(&mut nat, 1, 0, Frame::unreachable("203.0.113.9", "198.51.100.1", &quoted), "drop no_mapping");
    let quoted = Frame::udp(SERVER, HOST).bytes();
    check(&mut nat, 0, 0, Frame::unreachable("10.0.0.1", "192.0.2.9", &quoted), "drop no_mapping");
}

#[test]
fn icmp_errors_with_wrong_checksums_are_dropped() {
    let mut nat = bench(Config::default());
    let sent = nat.send(0, 0, &Frame::udp(HOST, SERVER).payload(b"question").bytes());
    let good = Frame::unreachable("203.0.113.9", "198.51.100.1", sent.only().1).bytes();
    assert_eq!(nat.send(1, 0, &good).ports(), [0]);
    // The code of the message, its own checksum, the hops of the quoted header: the last one with the message's sum put right.
    for at in [35, 36] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert_eq!(nat.send(1, 0, &bad).dropped, Some("bad_checksum"));
    }
    let mut quoted = sent.only().1.to_vec();
    quoted[22] ^= 1;
    let bad = Frame::unreachable("203.0.113.9", "198.51.100.1", &quoted).bytes();
    assert_eq!(nat.send(1, 0, &bad).dropped, Some("bad_checksum"));
}

#[test]
fn a_session_takes_at_most_128_bytes_with_its_share_of_eight_addresses() {
    let config = Config { external: vec!["198.51.100.0/29".parse().unwrap()], ..Config::default() };
    let mut builder = StateBuilder::new(&Domain::new(2), HugePages::Never);
    let nat = Nat::from_config(config, builder.scope("nat"), 2).unwrap();
    let bytes = |name: &str| {
        let object = nat.objects().into_iter().find(|object| object.name() == name).expect(name);
        (object.memory_bytes(), object.capacity())
    };
    let (mappings, capacity) = bytes("nat.mappings");
    assert_eq!(capacity, 1 << 20);
    assert_eq!(mappings / capacity, 64, "what the README says is mapped for one");
    // For each eighth entry a bucket in which others overflow, with its place on a free list: nobody touches them.
    let used = mappings as f64 / capacity as f64 - (64.0 + 12.0) / 8.0;
    assert!(used <= 55.0, "{used} bytes a mapping: what the README says");
    let ports = bytes("nat.ports").0 + bytes("nat.full_ports").0;
    assert_eq!((ports * 10).div_ceil(3 * 8 * 64512), 46, "tenths of a byte: what the README says");
    assert_eq!(SetTables::record_bytes(size_of::<Session>()), [32, 64]);
    assert!(2.0 * 32.0 + used + 4.6 <= 124.0, "what the README says of a session");
}

#[test]
fn later_fragments_follow_the_first() {
    let mut nat = bench(Config::default());
    let later = |id| Frame::ip("10.0.0.1", "192.0.2.9", 17).fragment(id, 2, false).payload(&[7; 24]);
    let first = Frame::udp(HOST, SERVER).payload(&[7; 8]).fragment(9, 0, true);
    check(&mut nat, 0, 0, later(9), "drop fragment_held");
    assert_eq!(nat.send(0, 0, &first.clone().bytes()).ports(), [1, 1], "the one that waited goes on");
    check(&mut nat, 0, 1, later(9), "1: ip 198.51.100.1 > 192.0.2.9 proto 17 ttl 63");
    check(&mut nat, 0, 1, later(8), "drop fragment_held");
    check(&mut nat, 0, 40, later(9), "drop fragment_held");
    assert_eq!(nat.send(0, 80_000, &first.bytes()).ports(), [1], "what waited for too long is gone");
    let back = |id| Frame::ip("192.0.2.9", "198.51.100.1", 17).fragment(id, 2, false).payload(&[7; 24]);
    let first = Frame::udp(SERVER, EXTERNAL).payload(&[7; 8]).fragment(5, 0, true);
    assert_eq!(nat.send(1, 41_000, &first.bytes()).ports(), [0]);
    check(&mut nat, 1, 41, back(5), "0: ip 192.0.2.9 > 10.0.0.1 proto 17 ttl 63");
}

#[test]
fn fragments_that_find_no_place_to_wait_are_dropped() {
    let later = |id| Frame::ip("10.0.0.1", "192.0.2.9", 17).fragment(id, 2, false).payload(&[7; 24]);
    let mut nat = bench(Config { held_max: 1, ..Config::default() });
    check(&mut nat, 0, 0, later(1), "drop fragment_held");
    check(&mut nat, 0, 0, later(2), "drop fragment_before_first");
    let mut nat = bench(Config { held_max: 0, ..Config::default() });
    check(&mut nat, 0, 0, later(1), "drop fragment_before_first");
}

#[test]
fn fragments_that_find_no_room_are_dropped() {
    let mut nat = bench(Config { fragments_max: 1, ..Config::default() });
    let first = |id| Frame::udp(HOST, SERVER).payload(&[7; 8]).fragment(id, 0, true);
    assert_eq!(nat.send(0, 0, &first(1).bytes()).ports(), [1]);
    check(&mut nat, 0, 0, first(2), "drop fragment_table_full");
}

#[test]
fn the_last_hop_is_told_to_the_sender() {
    let mut nat = bench(Config::default());
    let expected = "0: exceeded 192.0.0.8 > 10.0.0.1 [udp 10.0.0.1:1100 > 192.0.2.9:80] ttl 64, drop ttl_exceeded";
    check(&mut nat, 0, 0, Frame::udp(HOST, SERVER).ttl(1), expected);
    check(&mut nat, 0, 0, Frame::udp(HOST, SERVER).ttl(2), "1: udp 198.51.100.1:1100 > 192.0.2.9:80 ttl 1");
    check(&mut nat, 0, 0, Frame::udp(HOST, SERVER).ttl(0), expected);
    let expected = "1: exceeded 192.0.0.8 > 192.0.2.9 [udp 192.0.2.9:80 > 198.51.100.1:1100] ttl 64, drop ttl_exceeded";
    check(&mut nat, 1, 0, Frame::udp(SERVER, EXTERNAL).ttl(1), expected);
}

#[test]
fn what_is_not_ipv4_passes_or_is_dropped_as_configured() {
    let mut nat = bench(Config::default());
    check(&mut nat, 0, 0, Frame::arp("10.0.0.1", "10.0.0.9"), "1: not ip");
    let v6 = Frame::udp("[2001:db8::1]:5", "[2001:db8:1::2]:6");
    check(&mut nat, 0, 0, v6.clone(), "1: udp [2001:db8::1]:5 > [2001:db8:1::2]:6 ttl 63");
    let discovery = Frame::echo_request("fe80::1", "ff02::1", 1, 1).ttl(255);
    check(&mut nat, 1, 0, discovery, "0: ping fe80::1 > ff02::1 id 1 ttl 255");
    let mut nat = bench(parse("ipv6 = 'drop'\nnon_ip = 'drop'".parse().unwrap()).unwrap());
    check(&mut nat, 0, 0, Frame::arp("10.0.0.1", "10.0.0.9"), "drop unwanted");
    check(&mut nat, 0, 0, v6, "drop unwanted");
}

#[test]
fn what_cannot_be_translated_is_dropped_and_foreign_addresses_are_routed() {
    let mut nat = bench(Config::default());
    check(&mut nat, 0, 0, Frame::ip("10.0.0.1", "192.0.2.9", 47).payload(&[0; 8]), "drop not_translatable");
    check(&mut nat, 0, 0, Frame::udp("10.0.0.1:5353", "224.0.0.251:5353"), "drop not_unicast");
    check(&mut nat, 0, 0, Frame::udp("0.0.0.0:68", "255.255.255.255:67"), "drop not_unicast");
    let foreign = Frame::udp("203.0.113.4:5", SERVER);
    check(&mut nat, 0, 0, foreign, "1: udp 203.0.113.4:5 > 192.0.2.9:80 ttl 63");
    check(&mut nat, 1, 0, Frame::udp(SERVER, "203.0.113.4:5"), "0: udp 192.0.2.9:80 > 203.0.113.4:5 ttl 63");
}

#[test]
fn a_udp_packet_without_checksum_keeps_none() {
    let mut nat = bench(Config::default());
    let mut frame = Frame::udp(HOST, SERVER).payload(b"x").bytes();
    frame[40..42].fill(0);
    let outcome = nat.send(0, 0, &frame);
    assert_eq!(outcome.only().1[40..42], [0, 0]);
    assert_eq!(show::outcome(&outcome), "1: udp 198.51.100.1:1100 > 192.0.2.9:80 ttl 63");
}

#[test]
fn vlan_tags_stay() {
    let mut nat = bench(Config::default());
    let outcome = nat.send(0, 0, &Frame::udp(HOST, SERVER).vlan(7).bytes());
    assert_eq!(outcome.only().1[12..16], [0x81, 0, 0, 7]);
}

#[test]
fn replies_find_the_port_of_the_plan_behind_which_their_host_is() {
    let config = parse("inside_ports = [0, 1]\noutside_ports = [2]".parse().unwrap()).unwrap();
    let mut nat = bench_with(config, 4, 64);
    check(&mut nat, 1, 0, Frame::udp(HOST, SERVER), "2: udp 198.51.100.1:1100 > 192.0.2.9:80 ttl 63");
    check(&mut nat, 2, 0, Frame::udp(SERVER, EXTERNAL), "1: udp 192.0.2.9:80 > 10.0.0.1:1100 ttl 63");
    check(&mut nat, 3, 0, Frame::udp(SERVER, EXTERNAL), "drop no_side");
}

#[test]
fn a_host_uses_one_external_address() {
    let config = parse("external = ['198.51.100.1', '198.51.100.2', '198.51.100.3']".parse().unwrap()).unwrap();
    let mut nat = bench(config);
    let mut used = HashMap::<u8, HashSet<[u8; 4]>>::new();
    for host in 1..=40 {
        for port in [2000, 3000] {
            let sent = nat.send(0, 0, &Frame::udp(&format!("10.0.0.{host}:{port}"), SERVER).bytes());
            used.entry(host).or_default().insert(sent.only().1[26..30].try_into().unwrap());
        }
    }
    assert!(used.values().all(|addresses| addresses.len() == 1));
    assert_eq!(used.values().flatten().collect::<HashSet<_>>().len(), 3);
}

#[test]
fn blocks_are_logged_when_they_are_assigned_and_released() {
    let log = |log_max: u32| {
        let text = format!(
            "allocation = 'blocks'\nblock_size = 2\nblocks_per_host = 2\nfirst_port = 1024\nlast_port = 1031\nblock_log_max = {log_max}"
        );
        let mut nat = bench(parse(text.parse().unwrap()).unwrap());
        for port in [1024, 1025, 5000] {
            nat.send(0, 0, &Frame::udp(&format!("10.0.0.1:{port}"), SERVER).bytes());
        }
        nat.send(0, 1000, &Frame::udp("10.0.0.2:9", SERVER).bytes());
        for second in [600, 601, 602] {
            nat.send(0, second * 1000, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
        }
        nat.findings()
    };
    let findings = log(100);
    let lines: Vec<_> = findings.list().iter().map(|found| format!("{} {}", found.subject, found.detail)).collect();
    let count = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert_eq!((count("assigned"), count("released")), (3, 3), "{lines:?}");
    assert_eq!((count("10.0.0.1 198.51.100.1 ports"), count("10.0.0.2 198.51.100.1 ports")), (4, 2), "{lines:?}");
    assert_eq!((count("assigned at 0.000 s"), count("assigned at 1.000 s")), (2, 1), "{lines:?}");
    assert_eq!(log(1).sums().get("blocks for which the log had no room"), Some(&5));
    assert_eq!(log(0), braid_nf::Findings::default());
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    let mut bench = Err(String::new());
    Bench::new(2, |builder| {
        let made = parse(text.parse().unwrap()).and_then(|config| Nat::from_config(config, builder.scope("nat"), 2));
        bench = made.as_ref().map(|_| ()).map_err(|error| error.to_string());
        let nat = made.or_else(|_| Nat::from_config(Config::default(), builder.scope("default"), 2)).unwrap();
        Box::new(Instance::new("nat", nat))
    });
    let error = bench.unwrap_err();
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn configurations_that_cannot_work_are_refused_with_what_to_write() {
    check_error("inside = []", "`inside`: names no range; write");
    check_error("inside = ['fd00::/8']", "`inside`: fd00::/8 is not IPv4");
    check_error("external = []", "`external`: names no address; write");
    check_error("external = ['10.0.0.1']", "`external`: 10.0.0.1 lies in the inside range 10.0.0.0/8");
    check_error("external = ['192.0.2.1', '192.0.2.1']", "`external`: 192.0.2.1 stands there twice");
    check_error("first_port = 9000\nlast_port = 8000", "`first_port`: 9000 to 8000 is no range");
    check_error("external = ['10.0.0.0/24']", "`external`: 10.0.0.0 lies in the inside range 10.0.0.0/8");
    check_error("external = ['198.18.0.0/15']", "`external`: 198.18.0.0/15 makes more than 4096 addresses");
    check_error("external = ['2001:db8::1']", "`external`: 2001:db8::1/128 is not IPv4");
    check_error("allocation = 'blocks'\nblock_size = 0", "`block_size`: 0 makes no block; write 1 to 64512");
    check_error("allocation = 'blocks'\nblocks_per_host = 5", "`blocks_per_host`: 5 is out of range; write 1 to 4");
    check_error("allocation = 'deterministic'", "`block_size`: 22085632 inside addresses, but 126 blocks of 512 ports");
    let fixed = |external: &str, inside: &str| {
        format!("static = [{{ protocol = 'tcp', external = '{external}', inside = '{inside}' }}]")
    };
    check_error(&fixed("198.51.100.2:80", "10.0.0.1:80"), "`static`: 198.51.100.2 is no external address");
    check_error(&fixed("198.51.100.1:80", "10.0.0.1:80"), "`static`: 80 is no external port");
    check_error(&fixed("198.51.100.1:8080", "9.0.0.1:80"), "`static`: 9.0.0.1 is not inside");
    check_error(&fixed("198.51.100.1", "10.0.0.1:80"), "`static.external`: ");
    check_error("udp_s = 0", "`udp_s`: 0ns is out of range");
    check_error("mapings_max = 5", "`mapings_max`: no such key; did you mean `mappings_max`?");
    check_error(
        "inside = ['10.0.0.0/25']\nnetworks = 'by_vlan'\nvlans = ['1-4']\nallocation = 'deterministic'",
        "`block_size`: 512 inside addresses in 4 networks, but 126 blocks of 512 ports; write smaller blocks",
    );
    check_error("vlans = [10]", "`vlans`: says nothing: networks are not told by VLAN; add networks = \"by_vlan\"");
    check_error("networks = 'by_vlan'\nvlans = ['10-12', 11]", "`vlans`: vlan 11 stands there twice; write it once");
    check_error("networks = 'by_vlan'\nvlans = [4095]", "`vlans`: \"4095\" is no VLAN: write one from 1 to 4094 as 10");
    check_error("networks = 'by_vlan'\nvlans = [true]", "`vlans`: ");
    check_error("networks = 'by_vlan'\nvlans = ['1-4.1-4094']", "`vlans`: more than 12287 networks; name fewer");
    check_error("networks = 'by_vlan'\noutside_vlan = '1-2'", "`outside_vlan`: names several; write one");
    let hop = |list: &str| format!("networks = 'by_vlan'\nvlans = [10]\nnext_hops = [{list}]");
    check_error(&hop("{ vlan = 11, mac = '02:00:00:00:00:01' }"), "`next_hops`: vlan 11 is no network; name some of");
    let twice = "{ vlan = 10, mac = '02:00:00:00:00:01' }, { vlan = 10, mac = '02:00:00:00:00:02' }";
    check_error(&hop(twice), "`next_hops`: 02:00:00:00:00:01 and 02:00:00:00:00:02 are of one network; write one");
    let by_vlan = |network: &str| {
        let (external, inside) = ("external = '198.51.100.1:8080'", "inside = '10.0.0.1:80'");
        format!("networks = 'by_vlan'\nvlans = [10]\nstatic = [{{ protocol = 'tcp', {external}, {inside}{network} }}]")
    };
    check_error(&by_vlan(""), "`static`: 10.0.0.1:80 is in no network; name one of `vlans`: vlan = 10");
    check_error(&by_vlan(", vlan = 11"), "`static`: there is no such VLAN; name one of `vlans`");
    check_error(&by_vlan(", network = 0"), "`static`: there is no network 0; name one of `vlans`");
    let by_port = format!("networks = 'by_port'\n{}", fixed("198.51.100.1:8080", "10.0.0.1:80"));
    check_error(&by_port, "`static`: 10.0.0.1:80 is in no network; name an inside port");
    check_error("outside_ports = [1]", "`inside_ports`: missing");
    check_error("outer_tag = '802.1q'", "`outer_tag`: says nothing: networks are not told by VLAN");
    for external in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255"] {
        check_error(&format!("external = ['{external}']"), &format!("`external`: {external} is no host's address"));
        check_error(&format!("router = '{external}'"), &format!("`router`: {external} is no host's address"));
    }
    check_error("outside_router_v6 = 'ff02::1'", "`outside_router_v6`: ff02::1 is no host's address beyond its link");
}

#[test]
fn keys_that_say_nothing_as_ports_are_given_are_refused() {
    let check = |text: &str, key: &str, wanted: &str| {
        let instead = format!("`{key}`: says nothing as ports are given to hosts; write allocation = \"{wanted}\"");
        check_error(text, &instead);
    };
    check("block_size = 64", "block_size", "blocks");
    check("blocks_per_host = 2", "blocks_per_host", "blocks");
    check("block_log_max = 7", "block_log_max", "blocks");
    let ends =
        "from = '10.9.0.1:514', to = '10.9.0.9:514', from_mac = '02:00:00:00:00:01', to_mac = '02:00:00:00:00:09'";
    check(&format!("block_syslog = {{ port = 1, {ends} }}"), "block_syslog", "blocks");
    check("pooling = 'arbitrary'\nallocation = 'blocks'", "pooling", "shared");
    let few = "inside = ['10.0.0.0/24']\nallocation = 'deterministic'\nblock_size = 64";
    check(&format!("{few}\nblocks_per_host = 2"), "blocks_per_host", "blocks");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever inside endpoints send in whatever order: no two of them share an external endpoint at a time, each keeps its
    /// own, and a reply to it comes back to the one who sent.
    #[test]
    fn mappings_are_injective_and_replies_come_back(
        sends in prop::collection::vec((0u8..12, 0u16..6, 0u8..3, any::<bool>()), 1..120),
    ) {
        let mut nat = bench(small());
        let mut external = HashMap::<(String, bool), String>::new();
        for (n, (host, port, server, tcp)) in sends.into_iter().enumerate() {
            let inside = format!("10.0.0.{}:{}", host + 1, 1030 + port);
            let server = format!("192.0.2.{}:80", server + 1);
            let make = |from: &str, to: &str| if tcp { Frame::tcp(from, to) } else { Frame::udp(from, to) };
            let sent = show::outcome(&nat.send(0, n as u64 * 10, &make(&inside, &server).bytes()));
            let mapped = sent.split(' ').nth(2).unwrap().to_owned();
            let before = external.insert((inside.clone(), tcp), mapped.clone());
            prop_assert!(before.is_none_or(|before| before == mapped));
            let back = show::outcome(&nat.send(1, n as u64 * 10, &make(&server, &mapped).bytes()));
            prop_assert!(back.contains(&format!("{server} > {inside} ")), "{}", back);
        }
        for tcp in [false, true] {
            let mapped: Vec<_> = external.iter().filter(|((_, kind), _)| *kind == tcp).map(|(_, mapped)| mapped).collect();
            prop_assert_eq!(mapped.iter().collect::<HashSet<_>>().len(), mapped.len());
        }
    }

    /// Hosts of several networks with one address: to the outside they are as many, and each answer has the tags of whom it is for.
    #[test]
    fn networks_share_the_external_ports_and_nothing_else(
        sends in prop::collection::vec((0usize..4, 0u8..3, 0u16..3, any::<bool>(), any::<bool>()), 1..80),
    ) {
        let vlans = ["untagged", "5", "5.6", "6.5"].map(|text| text.parse().unwrap()).to_vec();
        let config = Config { networks: Networks::ByVlan, vlans, outside_vlan: "9".parse().ok(), ..small() };
        let tags: [&[u16]; 4] = [&[], &[5], &[5, 6], &[6, 5]];
        let tagged = |frame: Frame, tags: &[u16]| tags.iter().fold(frame, |frame, tag| frame.vlan(*tag)).bytes();
        let mut nat = bench(config);
        let mut external = HashMap::<(usize, String, bool), String>::new();
        for (n, (network, host, port, tcp, again)) in sends.into_iter().enumerate() {
            let (inside, server) = (format!("10.0.0.{}:{}", host + 1, 1030 + port), "192.0.2.1:80");
            let make = |from: &str, to: &str| if tcp { Frame::tcp(from, to) } else { Frame::udp(from, to) };
            for at in 0..=u64::from(again) {
                let sent = nat.send(0, n as u64 * 10 + at, &tagged(make(&inside, server), tags[network]));
                let mapped = show::outcome(&sent).split(' ').nth(2).unwrap().to_owned();
                // Byte by byte what a host outside would have sent, but for the Ethernet addresses, which stay.
                prop_assert_eq!(&sent.sent[0].1[12..], &tagged(make(&mapped, server).ttl(63), &[9])[12..]);
                let before = external.insert((network, inside.clone(), tcp), mapped.clone());
                prop_assert!(before.is_none_or(|before| before == mapped));
                let back = nat.send(1, n as u64 * 10 + at, &tagged(make(server, &mapped), &[9]));
                prop_assert_eq!(&back.sent[0].1[12..], &tagged(make(server, &inside).ttl(63), tags[network])[12..]);
            }
        }
        for tcp in [false, true] {
            let mapped: Vec<_> = external.iter().filter(|((.., kind), _)| *kind == tcp).map(|(_, mapped)| mapped).collect();
            prop_assert_eq!(mapped.iter().collect::<HashSet<_>>().len(), mapped.len());
        }
    }

    /// Bytes that are no packets, and packets with bytes changed or cut, are forwarded or dropped; nothing panics.
    #[test]
    fn damaged_packets_do_no_harm(flips in prop::collection::vec((0usize..80, any::<u8>()), 0..6), cut in 0usize..90, port in 0u16..2) {
        let mut nat = bench(small());
        let quoted = Frame::udp(EXTERNAL, SERVER).bytes();
        let frames = [
            Frame::tcp(HOST, SERVER).flags("S").bytes(),
            Frame::udp(HOST, SERVER).payload(&[1; 20]).bytes(),
            Frame::udp(HOST, SERVER).payload(&[1; 8]).fragment(3, 0, true).bytes(),
            Frame::unreachable("192.0.2.9", "198.51.100.1", &quoted).bytes(),
            Frame::echo_request("10.0.0.1", "192.0.2.9", 5, 6).bytes(),
            Frame::udp("[2001:db8::1]:5", "[2001:db8:1::2]:6").bytes(),
        ];
        for mut frame in frames {
            for (at, value) in &flips {
                if let Some(byte) = frame.get_mut(*at) {
                    *byte = *value;
                }
            }
            frame.truncate(cut.max(1));
            let outcome = nat.send(port, 0, &frame);
            prop_assert!(outcome.dropped != Some("handler_panic"));
            prop_assert!(!outcome.sent.is_empty() || outcome.dropped.is_some());
        }
    }
}
