//! NAT tests: one worker, capture time, frames built and decoded by an independent library.

use std::collections::{HashMap, HashSet};

use braid_nf::packet::FrameInfo;
use braid_nf::state::{Domain, HugePages, StateBuilder};
use braid_nf::{Declare, Instance, SetTables};
use braid_testkit::{Bench, Frame, Outcome};
use proptest::prelude::*;

mod addresses;
mod census;
mod fragments;
mod icmp;
mod mtu;
mod properties;
mod refusals;

use super::{Config, Filtering, Nat, Networks, Session};
use crate::catalog::FromConfig;
use crate::config::parse;
use crate::parts::SECOND;
use crate::parts::testing::show;

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

/// Sends a packet on a port at a given second, and checks what becomes of it.
#[track_caller]
fn check(bench: &mut Bench, port: u16, seconds: u64, frame: Frame, expected: &str) -> Outcome {
    let outcome = bench.send(port, seconds * 1000, &frame.bytes());
    assert_eq!(show::outcome(&outcome), expected);
    outcome
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    let mut bench = Err(String::new());
    Bench::new(2, |builder| {
        let made = parse(text.parse().unwrap()).and_then(|config| Nat::from_config(config, builder.scope("nat"), 4));
        bench = made.as_ref().map(|_| ()).map_err(|error| error.to_string());
        let nat = made.or_else(|_| Nat::from_config(Config::default(), builder.scope("default"), 4)).unwrap();
        Box::new(Instance::new("nat", nat))
    });
    let error = bench.unwrap_err();
    assert!(error.starts_with(expected), "{error}");
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
    // The host prolongs its mapping by sending to another peer; the first peer is forgotten with its set.
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
    // Its identifier is outside of the port range, so it gets another one.
    let other = nat.send(0, 0, &ping(7).bytes());
    assert!(!show::outcome(&other).contains("id 7 "));
}

#[test]
fn udp_mappings_end_after_five_minutes_and_their_port_is_free_again() {
    let mut nat = bench(small());
    check(&mut nat, 0, 0, Frame::udp(HOST, SERVER), "1: udp 198.51.100.1:1100 > 192.0.2.9:80 ttl 63");
    check(&mut nat, 1, 299, Frame::udp(SERVER, EXTERNAL), "0: udp 192.0.2.9:80 > 10.0.0.1:1100 ttl 63");
    // Inbound packets prolong nothing.
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
fn a_flood_of_flows_that_are_refused_looks_for_ports_once_in_a_while() {
    let mut nat = bench(Config { icmp_errors_per_s: 0, ..small() });
    for host in 0..256u32 {
        nat.send(0, 0, &Frame::udp(&format!("10.1.{}.1:5000", host), SERVER).bytes());
    }
    let flow = |port| Frame::udp(&format!("10.0.0.1:{port}"), SERVER).bytes();
    let dropped = |nat: &mut Bench, ms, port| nat.send(0, ms, &flow(port)).dropped;
    assert_eq!(dropped(&mut nat, 0, 30_000), Some("no_free_port"));
    let known = nat.object("nat.searched");
    for port in 30_001..30_200 {
        assert_eq!(dropped(&mut nat, 0, port), Some("no_free_port"));
    }
    assert_eq!(nat.object("nat.searched"), known, "nobody has looked again");
    assert_eq!(dropped(&mut nat, 2, 30_300), Some("no_free_port"));
    assert_ne!(nat.object("nat.searched"), known, "a moment later somebody has");
    assert_eq!(dropped(&mut nat, 500_000, 30_400), None, "old mappings make room");
}

#[test]
fn as_many_mappings_as_configured() {
    let mut nat = bench(Config { mappings_max: 1, ..Config::default() });
    check(&mut nat, 0, 0, Frame::udp(HOST, SERVER), "1: udp 198.51.100.1:1100 > 192.0.2.9:80 ttl 63");
    assert_eq!(nat.send(0, 0, &Frame::udp(OTHER, SERVER).bytes()).dropped, Some("mapping_table_full"));
}

#[test]
fn where_all_entries_are_in_use_those_that_are_over_make_room_at_once() {
    const MOST: u32 = 2000;
    // With blocks the table of hosts is full before that of mappings.
    for blocks in ["", "allocation = 'blocks'\nblock_size = 16"] {
        let config = parse::<Config>(blocks.parse().unwrap()).unwrap();
        make_room_at_once(Config { mappings_max: MOST, icmp_errors_per_s: 0, ..config }, MOST);
    }
}

#[track_caller]
fn make_room_at_once(config: Config, most: u32) {
    let mut nat = bench_with(config, 2, 16_384);
    let mut begun = |second: u64, net: u8| {
        let frames = (0..most).map(|n| {
            let host = format!("10.{net}.{}.{}:1100", n >> 8, n & 255);
            let info = FrameInfo { timestamp_ns: second * SECOND, ..FrameInfo::default() };
            (info, Frame::udp(&host, SERVER).bytes())
        });
        nat.send_batch(frames).len()
    };
    assert_eq!([begun(0, 1), begun(0, 2)], [most as usize, 0]);
    // A sweep removes some hundred mappings; new ones reclaim the others, except for the last few.
    let again = begun(500, 3);
    assert!(again > 1700, "{again}");
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
    // Sent to their inside addresses directly, packets are not translated.
    check(&mut nat, 0, 0, Frame::udp(HOST, "10.0.0.2:2200"), "0: udp 10.0.0.1:1100 > 10.0.0.2:2200 ttl 63");
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
    // There is an overflow bucket for each eighth entry, with its place on a free list, which are never touched here.
    let used = mappings as f64 / capacity as f64 - (64.0 + 12.0) / 8.0;
    assert!(used <= 55.0, "{used} bytes a mapping: what the README says");
    let ports = bytes("nat.ports").0 + bytes("nat.full_ports").0;
    assert_eq!((ports * 10).div_ceil(3 * 8 * 64512), 46, "tenths of a byte: what the README says");
    assert_eq!(SetTables::record_bytes(size_of::<Session>()), [32, 64]);
    assert!(2.0 * 32.0 + used + 4.6 <= 124.0, "what the README says of a session");
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
    check(&mut nat, 0, 0, Frame::ip("10.0.0.1", "192.0.2.9", 51).payload(&[0; 20]), "drop not_translatable");
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
