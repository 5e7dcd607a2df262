//! What the network functions of NFOS, the artifact of an earlier system, get wrong: each defect as a test that passes here.
//!
//! The names say what went wrong there; what is asserted is what happens here.

use braid_functions::{catalog, find};
use braid_nf::Stage;
use braid_nf::prelude::*;
use braid_nf::state::Domain;
use braid_packet::FrameInfo;
use braid_testkit::{Bench, Frame, Outcome, assert_checksums};

const HOST: &str = "10.0.0.1:1100";
const SERVER: &str = "192.0.2.9:80";
const EXTERNAL: &str = "198.51.100.1:1100";
const INSIDE: u16 = 0;
const OUTSIDE: u16 = 1;

fn bench(function: &str, config: &str, ports: u16) -> Bench {
    Bench::new(ports, |builder| stage(function, config, builder, ports).expect("a configuration of the tests"))
}

fn stage(function: &str, config: &str, builder: &mut StateBuilder, ports: u16) -> Result<Box<dyn Stage>, String> {
    let entry = find(function).expect("a function of the catalogue");
    (entry.build)(function, config.parse().expect("TOML"), builder, ports).map_err(|error| error.to_string())
}

/// Where a frame goes that comes by a port at a second; its checksums must be right.
#[track_caller]
fn sent(bench: &mut Bench, port: u16, second: u64, frame: &Frame) -> Outcome {
    let outcome = bench.send(port, second * 1000, &frame.clone().bytes());
    outcome.sent.iter().for_each(|(_, bytes)| assert_checksums(bytes));
    assert_eq!(bench.counters().panics, 0);
    outcome
}

#[test]
fn one_frame_that_is_not_ipv4_kills_firewall_and_load_balancer() {
    for entry in catalog() {
        let mut bench = bench(entry.name, "", entry.ports);
        let arp = Frame::arp("10.0.0.1", "10.0.0.2");
        let frames =
            [arp.clone(), Frame::ethernet(0x88cc), Frame::ethernet(0x0800), Frame::udp("[fd00::1]:1", "[fd00::2]:2")];
        for frame in frames {
            let whole = frame.bytes();
            (1..=whole.len()).for_each(|cut| drop(bench.send(0, 0, &whole[..cut])));
        }
        assert_eq!(bench.counters().panics, 0, "{}", entry.name);
        let resolved = sent(&mut bench, 0, 1, &arp);
        // A router answers for itself, and nobody behind it is asked.
        assert!(
            !resolved.sent.is_empty() || entry.name == "router",
            "{} does not let addresses be resolved",
            entry.name
        );
    }
}

#[test]
fn one_packet_from_outside_kills_the_nat() {
    let mut nat = bench("nat", "", 2);
    assert_eq!(sent(&mut nat, OUTSIDE, 0, &Frame::udp(SERVER, EXTERNAL)).dropped, Some("no_mapping"));
    assert_eq!(sent(&mut nat, INSIDE, 0, &Frame::udp(HOST, SERVER)).ports(), [OUTSIDE]);
    assert_eq!(sent(&mut nat, OUTSIDE, 0, &Frame::udp(SERVER, EXTERNAL)).ports(), [INSIDE]);
}

#[test]
fn exhaustion_of_ports_kills_the_nat_and_nothing_ever_expires() {
    let mut nat = bench("nat", "first_port = 2000\nlast_port = 2003", 2);
    let flow = |host: u8| Frame::udp(&format!("10.0.0.{host}:5000"), SERVER);
    for host in 1..=4 {
        assert_eq!(sent(&mut nat, INSIDE, 0, &flow(host)).ports(), [OUTSIDE]);
    }
    assert_eq!(sent(&mut nat, INSIDE, 0, &flow(5)).dropped, Some("no_free_port"));
    assert_eq!(sent(&mut nat, INSIDE, 1, &flow(4)).ports(), [OUTSIDE], "who has a port keeps it");
    assert_eq!(sent(&mut nat, INSIDE, 500, &flow(5)).ports(), [OUTSIDE], "ports come back");
}

#[test]
fn tables_that_cannot_be_are_a_silent_failure_at_the_start() {
    for (function, config, named) in [
        ("bridge", "capacity = 0", "capacity"),
        ("nat", "mappings_max = 0", "mappings_max"),
        ("nat", "first_port = 9\nlast_port = 8", "first_port"),
        ("firewall", "connections_max = 0", "connections_max"),
        ("load_balancer", "table_size = 8", "table_size"),
        ("bridge", "capacity = -1", "capacity"),
        ("policer", "bytes_per_s = 0", "bytes_per_s"),
    ] {
        let mut builder = StateBuilder::new(&Domain::new(2), braid_memory::HugePages::Never);
        let error = stage(function, config, &mut builder, 2).err();
        let error = error.unwrap_or_else(|| panic!("{function} takes `{config}`"));
        assert!(error.contains(named) && error.contains(';'), "it names the key and says what to write: {error}");
    }
}

#[test]
fn time_to_live_is_not_decremented_and_dropping_does_not_drop() {
    for (function, config) in [("nat", ""), ("firewall", "ttl = 'decrement'")] {
        let mut bench = bench(function, config, 2);
        let onward = sent(&mut bench, INSIDE, 0, &Frame::udp(HOST, SERVER).ttl(2));
        assert_eq!((onward.ports(), onward.only().1[22]), (vec![OUTSIDE], 1), "{function}");
        let last = sent(&mut bench, INSIDE, 0, &Frame::udp(HOST, SERVER).ttl(1));
        assert_eq!((last.ports(), last.dropped), (vec![INSIDE], Some("ttl_exceeded")), "{function} tells the sender");
        assert_eq!(last.only().1[34], 11, "time exceeded");
    }
}

#[test]
fn icmp_is_not_translated() {
    let mut nat = bench("nat", "", 2);
    let out = sent(&mut nat, INSIDE, 0, &Frame::udp(HOST, SERVER));
    let error = Frame::unreachable("203.0.113.9", "198.51.100.1", out.only().1);
    let back = sent(&mut nat, OUTSIDE, 0, &error);
    let (port, bytes) = back.only();
    assert_eq!((port, &bytes[30..34]), (INSIDE, &[10, 0, 0, 1][..]));
    assert_eq!(bytes[42 + 12..42 + 16], [10, 0, 0, 1], "the packet that it quotes is the host's again");
    assert_eq!(sent(&mut nat, INSIDE, 0, &Frame::echo_request("10.0.0.1", "192.0.2.9", 2000, 1)).ports(), [OUTSIDE]);
    assert_eq!(sent(&mut nat, OUTSIDE, 0, &Frame::echo_reply("192.0.2.9", "198.51.100.1", 2000, 1)).ports(), [INSIDE]);
}

#[test]
fn payload_of_later_fragments_is_taken_for_ports() {
    let mut nat = bench("nat", "", 2);
    let first = Frame::udp(HOST, SERVER).payload(&[7; 8]).fragment(9, 0, true).bytes();
    let later = Frame::ip("10.0.0.1", "192.0.2.9", 17).payload(&[7; 24]).fragment(9, 2, false).bytes();
    assert_eq!(nat.send(INSIDE, 0, &first).ports(), [OUTSIDE]);
    let followed = nat.send(INSIDE, 0, &later);
    let (port, bytes) = followed.only();
    assert_eq!((port, &bytes[26..30]), (OUTSIDE, &[198, 51, 100, 1][..]));
    assert_eq!(bytes[34..], later[34..], "nothing of the payload is touched");
}

#[test]
fn tagged_frames_are_not_understood() {
    let mut nat = bench("nat", "", 2);
    let outcome = sent(&mut nat, INSIDE, 0, &Frame::udp(HOST, SERVER).vlan(7));
    assert_eq!(outcome.only().1[12..16], [0x81, 0, 0, 7]);
    assert_eq!(outcome.only().1[30..34], [198, 51, 100, 1]);
}

#[test]
fn ipv6_is_not_understood() {
    let mut firewall = bench("firewall", "", 2);
    let (host, server) = ("[fd00::1]:1100", "[2001:db8::9]:80");
    assert_eq!(sent(&mut firewall, OUTSIDE, 0, &Frame::udp(server, host)).dropped, Some("denied"));
    assert_eq!(sent(&mut firewall, INSIDE, 0, &Frame::udp(host, server)).ports(), [OUTSIDE]);
    assert_eq!(sent(&mut firewall, OUTSIDE, 0, &Frame::udp(server, host)).ports(), [INSIDE]);
}

#[test]
fn checksums_are_computed_anew_so_that_damage_is_hidden() {
    let mut nat = bench("nat", "", 2);
    let mut frame = Frame::udp(HOST, SERVER).payload(b"payload").bytes();
    frame[44] ^= 0x10;
    let outcome = nat.send(INSIDE, 0, &frame);
    let damaged = outcome.only().1.to_vec();
    assert!(std::panic::catch_unwind(|| assert_checksums(&damaged)).is_err(), "who gets it still sees the damage");
    frame[40..42].fill(0);
    assert_eq!(nat.send(INSIDE, 0, &frame).only().1[40..42], [0, 0], "no UDP checksum stays none");
}

#[test]
fn every_flow_has_the_same_timeout() {
    let mut firewall = bench("firewall", "", 2);
    let to = |flags| Frame::tcp(HOST, SERVER).flags(flags);
    let back = |flags| Frame::tcp(SERVER, HOST).flags(flags);
    sent(&mut firewall, INSIDE, 0, &to("S"));
    assert_eq!(sent(&mut firewall, OUTSIDE, 121, &back("SA")).dropped, Some("denied"), "an attempt is soon forgotten");
    sent(&mut firewall, INSIDE, 200, &to("S"));
    sent(&mut firewall, OUTSIDE, 200, &back("SA"));
    sent(&mut firewall, INSIDE, 200, &to("A"));
    assert_eq!(sent(&mut firewall, OUTSIDE, 7000, &back("A")).ports(), [INSIDE], "a connection is not");
    sent(&mut firewall, INSIDE, 7000, &to("R"));
    assert_eq!(sent(&mut firewall, OUTSIDE, 7011, &back("A")).dropped, Some("denied"), "a reset one is");
}

#[test]
fn flooding_needs_exactly_two_ports() {
    let mut bridge = bench("bridge", "", 7);
    let [a, b] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
    let frame = |from, to| Frame::ethernet(0x88b5).mac(from, to);
    assert_eq!(sent(&mut bridge, 3, 0, &frame(a, b)).ports(), [0, 1, 2, 4, 5, 6]);
    assert_eq!(bridge.counters().packets_copied, 5);
    assert_eq!(sent(&mut bridge, 6, 0, &frame(b, a)).ports(), [3]);
    assert_eq!(sent(&mut bridge, 5, 0, &frame(a, b)).ports(), [6], "a station that moves is followed at once");
    assert_eq!(sent(&mut bridge, 6, 0, &frame(b, a)).ports(), [5]);
}

#[test]
fn a_full_table_of_addresses_stops_the_bridge() {
    let mut bridge = bench("bridge", "capacity = 1", 3);
    for station in 1..200 {
        let frame = Frame::ethernet(0x88b5).mac([2, 0, 0, 0, 0, station], [2, 0, 0, 0, 1, 1]);
        assert_eq!(sent(&mut bridge, 0, 0, &frame).ports(), [1, 2]);
    }
}

#[test]
fn a_full_table_of_connections_lets_packets_out_without_a_state() {
    let mut firewall = bench("firewall", "connections_max = 1", 2);
    assert_eq!(sent(&mut firewall, INSIDE, 0, &Frame::udp(HOST, SERVER)).ports(), [OUTSIDE]);
    let second = Frame::udp("10.0.0.2:1", SERVER);
    assert_eq!(sent(&mut firewall, INSIDE, 0, &second).dropped, Some("connection_table_full"));
}

network_function! {
    /// Sends every packet back by the port through which it came.
    struct OneArm {}
}

impl NetworkFunction for OneArm {
    type Set = ();
    const NAME: &'static str = "one_arm";

    fn packet(&self, _: &mut Cx<'_>, packet: &mut Packet<'_>, (): &mut ()) -> Handled {
        Ok(Verdict::Forward(packet.port()))
    }

    fn first(&self, _: &mut Cx<'_>, packet: &mut Packet<'_>, _: &mut NewSet<'_, ()>) -> Handled {
        Ok(Verdict::Forward(packet.port()))
    }

    fn orphan(&self, _: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        Ok(Verdict::Forward(packet.port()))
    }
}

#[test]
fn what_is_sent_to_the_port_by_which_it_came_is_lost() {
    let mut one_arm = Bench::new(3, |_| Box::new(braid_nf::Instance::new("one_arm", OneArm {})));
    for port in 0..3 {
        assert_eq!(sent(&mut one_arm, port, 0, &Frame::udp(HOST, SERVER)).ports(), [port]);
    }
    let mut nat = bench("nat", "", 2);
    sent(&mut nat, INSIDE, 0, &Frame::udp("10.0.0.2:2200", SERVER));
    let hairpin = sent(&mut nat, INSIDE, 0, &Frame::udp(HOST, "198.51.100.1:2200"));
    assert_eq!((hairpin.ports(), &hairpin.only().1[30..34]), (vec![INSIDE], &[10, 0, 0, 2][..]));
}

#[test]
fn a_batch_must_hold_packets_of_one_kind() {
    let mut counter = bench("flow_counter", "totals = true", 2);
    let (flow, other) = (Frame::udp(HOST, SERVER).bytes(), Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    let kinds = [&flow, &other, &other, &flow, &flow, &other];
    let batch =
        kinds.iter().map(|frame| (FrameInfo { wire_len: frame.len() as u32, ..FrameInfo::default() }, frame.to_vec()));
    let sent = counter.send_batch(batch.collect::<Vec<_>>());
    assert!(sent.iter().map(|(_, bytes)| bytes).eq(kinds), "in order and unchanged");
    let totals = counter.object("flow_counter.totals");
    let word = |n: usize| u64::from_ne_bytes(totals[8 * n..][..8].try_into().expect("eight bytes"));
    assert_eq!([word(0), word(1), word(3)], [1, 3, 3], "flows, packets of flows, others");
}
