//! Learning, moving, ageing, flooding and refusing, row by row; a hash map as the model of a bridge.

use braid_nf::packet::FrameInfo;
use braid_testkit::{Bench, Frame};
use proptest::prelude::*;

use super::*;
use crate::find;

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const C: [u8; 6] = [2, 0, 0, 0, 0, 0xc];
const BROADCAST: [u8; 6] = [0xff; 6];
const MULTICAST: [u8; 6] = [0x01, 0x00, 0x5e, 0, 0, 1];

fn bench(sets: usize, config: &str) -> Bench {
    let build = find("bridge").unwrap().build;
    Bench::with_sets(4, sets, |builder| build("br", config.parse().unwrap(), builder, 4).unwrap())
}

fn frame(from: [u8; 6], to: [u8; 6]) -> Vec<u8> {
    Frame::ethernet(0x88b5).mac(from, to).bytes()
}

fn tagged(vlan: u16, from: [u8; 6], to: [u8; 6]) -> Vec<u8> {
    Frame::ethernet(0x88b5).mac(from, to).vlan(vlan).bytes()
}

fn events(bench: &Bench) -> Events {
    Events::read_from_bytes(&bench.object("br.events")).unwrap()
}

/// Everywhere but where it came from.
fn flood(from: Port) -> Vec<Port> {
    (0..4).filter(|port| *port != from).collect()
}

/// A frame and what becomes of it: milliseconds, port, source, destination, the ports by which it leaves.
type Row<'a> = (u64, Port, [u8; 6], [u8; 6], &'a [Port]);

#[track_caller]
fn check(config: &str, frames: &[Row]) {
    // Once with room for packet sets and once without any to speak of: the same in either case.
    for sets in [1000, 1] {
        let mut bench = bench(sets, config);
        for (n, (ms, port, from, to, expected)) in frames.iter().enumerate() {
            let outcome = bench.send(*port, *ms, &frame(*from, *to));
            assert_eq!(outcome.ports(), *expected, "frame {n}, {sets} sets, dropped: {:?}", outcome.dropped);
            assert!(outcome.sent.iter().all(|(_, bytes)| *bytes == frame(*from, *to)));
        }
    }
}

#[test]
fn it_learns_where_stations_are() {
    check("", &[(0, 0, A, B, &[1, 2, 3]), (1, 2, B, A, &[0]), (2, 0, A, B, &[2]), (3, 1, C, A, &[0])]);
}

#[test]
fn groups_are_flooded_and_never_learnt() {
    check("", &[(0, 0, A, BROADCAST, &[1, 2, 3]), (1, 3, B, MULTICAST, &[0, 1, 2]), (2, 1, C, A, &[0])]);
    let mut bench = bench(10, "");
    for source in [BROADCAST, MULTICAST, [0; 6]] {
        assert_eq!(bench.send(0, 0, &frame(source, A)).dropped, Some("bad_source"));
    }
    assert_eq!(events(&bench).learnt, 0);
    assert_eq!(bench.send(1, 1, &frame(A, MULTICAST)).ports(), flood(1));
}

#[test]
fn a_frame_does_not_return_to_where_it_came_from() {
    let mut bench = bench(10, "");
    bench.send(0, 0, &frame(A, B));
    bench.send(0, 0, &frame(B, C));
    assert_eq!(bench.send(0, 1, &frame(A, B)).dropped, Some("same_port"));
}

#[test]
fn a_station_that_moves_is_followed_at_once_by_every_packet_set() {
    check(
        "",
        &[
            (0, 0, A, B, &[1, 2, 3]),
            (0, 1, B, A, &[0]),
            (1, 2, A, C, &[0, 1, 3]), // A speaks from port 2, to somebody else
            (2, 1, B, A, &[2]),       // B's set knew A at port 0
            (3, 0, A, B, &[1]),       // and back, by a set that had seen A at port 0 before
            (4, 1, B, A, &[0]),
        ],
    );
    let mut bench = bench(10, "");
    (0..4).for_each(|n| drop(bench.send(n % 2, 0, &frame(A, B))));
    assert_eq!((events(&bench).learnt, events(&bench).moved), (1, 3));
}

#[test]
fn a_station_that_was_forgotten_and_comes_back_elsewhere_is_followed() {
    let mut bench = bench(10, "capacity = 2\nageing_s = 10\nrefresh_interval_ms = 0");
    bench.send(0, 0, &frame(A, C));
    assert_eq!(bench.send(1, 0, &frame(B, A)).ports(), [0]);
    (0..20).for_each(|second| drop(bench.send(1, second * 1000, &frame(B, C))));
    assert_eq!(bench.send(1, 20_000, &frame(B, A)).ports(), flood(1));
    bench.send(2, 20_000, &frame(A, C));
    assert_eq!(bench.send(1, 20_000, &frame(B, A)).ports(), [2]);
}

#[test]
fn stations_age() {
    let config = "ageing_s = 10\nrefresh_interval_ms = 1000";
    check(config, &[(0, 0, A, B, &[1, 2, 3]), (11_000, 1, B, A, &[0])]);
    check(config, &[(0, 0, A, B, &[1, 2, 3]), (11_001, 1, B, A, &[0, 2, 3])]);
    check("ageing_s = 10\nrefresh_interval_ms = 0", &[(0, 0, A, B, &[1, 2, 3]), (10_001, 1, B, A, &[0, 2, 3])]);
}

#[test]
fn a_station_that_speaks_does_not_age_whatever_the_refresh_interval() {
    for interval in [0, 1000, 10_000] {
        let mut bench = bench(10, &format!("ageing_s = 10\nrefresh_interval_ms = {interval}"));
        for ms in (0..60_000).step_by(999) {
            bench.send(0, ms, &frame(A, C));
            assert_eq!(bench.send(1, ms, &frame(B, A)).ports(), [0], "at {ms} ms, interval {interval} ms");
        }
        let before = 59_940 + 10_000;
        assert_eq!(bench.send(1, before, &frame(B, A)).ports(), [0], "interval {interval} ms");
        assert_eq!(bench.send(1, before + interval + 1, &frame(B, A)).ports(), flood(1));
    }
}

#[test]
fn an_entry_is_written_once_per_refresh_interval() {
    for (interval, writes) in [(1000, 11), (0, 101)] {
        let mut bench = bench(10, &format!("refresh_interval_ms = {interval}"));
        let (mut last, mut seen) = (Vec::new(), 0);
        for ms in (0..=10_000).step_by(100) {
            bench.send(0, ms, &frame(A, B));
            let now = bench.object("br.stations");
            seen += u32::from(now != last);
            last = now;
        }
        assert_eq!(seen, writes);
    }
}

#[test]
fn a_full_table_still_forwards_and_floods() {
    let mut bench = bench(10, "capacity = 1");
    assert_eq!(bench.send(0, 0, &frame(A, B)).ports(), flood(0));
    assert_eq!(bench.send(1, 0, &frame(B, A)).ports(), [0]);
    assert_eq!(bench.send(0, 0, &frame(A, B)).ports(), flood(0));
    assert_eq!(bench.send(1, 0, &frame(B, A)).ports(), [0]);
    assert_eq!((events(&bench).learnt, events(&bench).table_full), (1, 2));
}

#[test]
fn old_entries_make_room_a_few_at_a_time() {
    let mut bench = bench(10, "capacity = 1000\nageing_s = 10");
    for n in 0..1000u16 {
        let [high, low] = n.to_be_bytes();
        bench.send(0, 0, &frame([2, 0, 0, 1, high, low], B));
    }
    assert_eq!(bench.object("br.stations").len(), 1000 * (size_of::<Station>() + size_of::<Entry>()));
    let mut sizes = Vec::new();
    for ms in (20_000..30_000).step_by(100) {
        bench.send(1, ms, &frame(A, B));
        sizes.push(bench.object("br.stations").len() / (size_of::<Station>() + size_of::<Entry>()));
    }
    assert!(sizes.windows(2).all(|pair| pair[0] <= pair[1] + SWEEP as usize), "{sizes:?}");
    assert_eq!(sizes.last(), Some(&1));
    assert_eq!(bench.send(2, 30_000, &frame(C, A)).ports(), [1]);
}

#[test]
fn every_vlan_has_its_own_stations_unless_told_otherwise() {
    let mut aware = bench(10, "");
    aware.send(0, 0, &tagged(5, A, B));
    assert_eq!(aware.send(1, 0, &tagged(5, C, A)).ports(), [0]);
    assert_eq!(aware.send(1, 0, &tagged(6, C, A)).ports(), flood(1));
    assert_eq!(aware.send(1, 0, &frame(C, A)).ports(), flood(1));
    aware.send(2, 0, &tagged(0, A, B));
    assert_eq!(aware.send(1, 0, &frame(C, A)).ports(), [2], "VLAN 0 is a priority alone");
    let mut shared = bench(10, "vlan_aware = false");
    shared.send(0, 0, &tagged(5, A, B));
    assert_eq!(shared.send(1, 0, &tagged(6, C, A)).ports(), [0]);
    assert_eq!(shared.send(1, 0, &frame(C, A)).ports(), [0]);
}

#[test]
fn reserved_addresses_go_no_further_but_their_source_is_learnt() {
    let mut bench = bench(100, "");
    for last in 0..=0x0f {
        let outcome = bench.send(0, 0, &frame(A, [0x01, 0x80, 0xc2, 0, 0, last]));
        assert_eq!(outcome.dropped, Some("reserved_address"), "{last:02x}");
    }
    assert_eq!(bench.send(0, 0, &frame(A, [0x01, 0x80, 0xc2, 0, 0, 0x10])).ports(), flood(0));
    assert_eq!(bench.send(0, 0, &frame(A, [0x01, 0x80, 0xc2, 0, 1, 0])).ports(), flood(0));
    assert_eq!(bench.send(3, 0, &frame(B, A)).ports(), [0]);
}

#[test]
fn static_stations_neither_move_nor_age() {
    let config = "ageing_s = 10\n[[static]]\nmac = '02:00:00:00:00:0a'\nport = 3";
    check(config, &[(0, 1, B, A, &[3]), (0, 0, A, B, &[1]), (1, 1, B, A, &[3]), (100_000, 1, B, A, &[3])]);
}

#[test]
fn what_is_not_ethernet_is_dropped_with_its_reason() {
    let mut bench = bench(10, "");
    let raw = FrameInfo { link: braid_nf::packet::Link::RawIp, ..FrameInfo::default() };
    let packet = &Frame::udp("10.0.0.1:1", "10.0.0.2:2").bytes()[14..];
    assert_eq!(bench.send_info(raw, packet).dropped, Some("not_ethernet"));
    let whole = tagged(7, A, B);
    for cut in 1..14 {
        assert_eq!(bench.send(0, 0, &whole[..cut]).dropped, Some("not_ethernet"), "{cut} bytes");
    }
    for cut in 14..18 {
        assert_eq!(bench.send(0, 0, &whole[..cut]).dropped, Some("malformed"), "{cut} bytes");
    }
    assert_eq!(bench.send(0, 0, &whole[..18]).ports(), flood(0));
}

/// Two access ports and two trunks: VLAN 10 at ports 0 (access), 2 and 3; VLAN 20 at ports 1 (access), 2, 3 (native).
const FILTERED: &str = "[[port]]\nport = 0\naccess = 10\n[[port]]\nport = 1\naccess = 20
    [[port]]\nport = 2\ntrunk = ['10-20']\n[[port]]\nport = 3\ntrunk = ['10']\nnative = 20\n";

/// A frame with a tag of this control information and type, or without.
fn formed(tag: Tag, from: [u8; 6], to: [u8; 6]) -> Vec<u8> {
    let mut bytes = frame(from, to);
    if let Some((kind, control)) = tag {
        bytes.splice(12..12, [kind.to_be_bytes(), control.to_be_bytes()].concat());
    }
    bytes
}

/// Type and control information.
type Tag = Option<(u16, u16)>;
const NONE: Tag = None;

fn q(control: u16) -> Tag {
    Some((0x8100, control))
}

/// Port, source, destination, tag; and the ports by which it leaves with which tag.
type FormRow<'a> = (Port, [u8; 6], [u8; 6], Tag, &'a [(Port, Tag)]);

#[track_caller]
fn check_forms(rows: &[FormRow]) {
    for sets in [1000, 1] {
        let mut bench = bench(sets, FILTERED);
        for (n, (port, from, to, came, expected)) in rows.iter().enumerate() {
            // Twice: the second time it is known.
            for time in 0..2 {
                let outcome = bench.send(*port, 0, &formed(*came, *from, *to));
                let expected: Vec<_> = expected.iter().map(|(port, tag)| (*port, formed(*tag, *from, *to))).collect();
                let mut sent = outcome.sent;
                sent.sort();
                assert_eq!(sent, expected, "frame {n}, {sets} sets, time {time}, dropped: {:?}", outcome.dropped);
            }
        }
    }
}

#[test]
fn frames_stay_in_their_vlan_and_get_and_lose_tags() {
    check_forms(&[
        (0, A, B, NONE, &[(2, q(10)), (3, q(10))]),
        (1, C, B, NONE, &[(2, q(20)), (3, NONE)]),
        (2, B, A, q(10), &[(0, NONE)]),
        (0, A, B, NONE, &[(2, q(10))]),
        (3, B, C, NONE, &[(1, NONE)]),
        (1, C, B, NONE, &[(3, NONE)]),
        (0, A, C, NONE, &[(2, q(10)), (3, q(10))]),
        (2, A, BROADCAST, q(20), &[(1, NONE), (3, NONE)]),
    ]);
}

#[test]
fn a_tag_keeps_its_priority_and_vlan_0_is_a_priority_alone() {
    check_forms(&[
        (0, A, B, q(0xa000), &[(2, q(0xa00a)), (3, q(0xa00a))]),
        (2, B, A, q(0xf00a), &[(0, NONE)]),
        (0, A, B, q(0xa000), &[(2, q(0xa00a))]),
        (0, A, B, NONE, &[(2, q(10))]),
        (2, C, B, q(0x7014), &[(1, NONE), (3, NONE)]),
    ]);
}

#[test]
fn another_tag_is_what_the_vlan_carries() {
    let service = Some((0x88a8, 10));
    let mut bench = bench(10, FILTERED);
    let mut sent = bench.send(0, 0, &formed(service, A, B)).sent;
    sent.sort();
    let mut expected = formed(service, A, B);
    expected.splice(12..12, [0x81, 0, 0, 10]);
    assert_eq!(sent, [(2, expected.clone()), (3, expected)]);
}

#[test]
fn a_vlan_that_the_port_does_not_carry_is_dropped() {
    let mut bench = bench(10, FILTERED);
    for (port, tag) in [(0, q(20)), (0, q(4095)), (2, NONE), (2, q(0)), (2, q(21)), (3, q(11))] {
        assert_eq!(bench.send(port, 0, &formed(tag, A, B)).dropped, Some("not_a_member"), "{port} {tag:?}");
    }
    assert_eq!(events(&bench).learnt, 0, "nor is its source learnt");
    assert_eq!(bench.send(3, 0, &formed(q(20), A, B)).ports(), [2, 1], "a native VLAN may come with its tag");
    // VLAN 11 is at port 2 alone.
    assert_eq!(bench.send(2, 0, &formed(q(11), A, B)).dropped, Some("nowhere_to_flood"));
}

#[test]
fn a_static_station_beyond_the_vlans_of_its_port_is_not_served() {
    let config = format!("{FILTERED}[[static]]\nmac = '02:00:00:00:00:0b'\nport = 1\nvlan = 10");
    let mut bench = bench(10, &config);
    for _ in 0..3 {
        assert_eq!(bench.send(0, 0, &frame(A, B)).dropped, Some("not_a_member"));
    }
}

#[test]
fn ports_that_are_not_named_carry_vlan_1() {
    let mut bench = bench(10, "[[port]]\nport = 0\naccess = 5");
    assert_eq!(bench.send(1, 0, &frame(A, B)).ports(), [3, 2]);
    assert_eq!(bench.send(0, 0, &frame(A, B)).dropped, Some("nowhere_to_flood"));
}

#[test]
fn a_storm_is_cut_at_each_port_by_its_kind() {
    let mut bench = bench(10, "[storm]\nbroadcast_per_s = 100\nmulticast_per_s = 50\nunknown_per_s = 10");
    let mut storm = |port, ms, to, frames: usize| {
        (0..frames).filter(|_| bench.send(port, ms, &frame(A, to)).dropped.is_none()).count()
    };
    assert_eq!(storm(0, 0, BROADCAST, 30), 10, "a tenth of a second's worth, at least 10");
    assert_eq!(storm(0, 0, MULTICAST, 30), 10);
    assert_eq!(storm(0, 0, B, 30), 10);
    assert_eq!(storm(1, 0, BROADCAST, 30), 10, "another port has its own");
    assert_eq!(storm(0, 50, BROADCAST, 30), 5);
    assert_eq!(storm(0, 50, MULTICAST, 30), 2);
    assert_eq!(bench.send(0, 50, &frame(A, BROADCAST)).dropped, Some("storm_broadcast"));
    assert_eq!(bench.send(0, 50, &frame(A, B)).dropped, Some("storm_unknown"));
    bench.send(2, 50, &frame(B, BROADCAST));
    assert_eq!(bench.send(0, 50, &frame(A, B)).ports(), [2], "what is known is no storm");
}

#[test]
fn a_vlan_has_so_many_stations_and_no_more() {
    let mut bench =
        bench(10, "ageing_s = 10\nrefresh_interval_ms = 0\ncapacity = 64\n[[vlan]]\nid = 5\nstations_max = 2");
    for station in [A, B, C] {
        bench.send(0, 0, &tagged(5, station, MULTICAST));
    }
    let asked = |bench: &mut Bench, ms, to| bench.send(1, ms, &tagged(5, [2, 0, 0, 0, 0, 0xd], to)).ports();
    assert_eq!([A, B, C].map(|to| asked(&mut bench, 0, to).len()), [1, 1, 3]);
    assert_eq!((events(&bench).learnt, events(&bench).vlan_full), (2, 4));
    bench.send(0, 0, &tagged(6, C, MULTICAST));
    assert_eq!(events(&bench).learnt, 3, "another VLAN is not concerned");
    // When the old ones are gone there is room.
    (0..40).for_each(|n| drop(bench.send(0, 11_000 + n * 100, &frame(A, MULTICAST))));
    bench.send(0, 16_000, &tagged(5, C, MULTICAST));
    assert_eq!(asked(&mut bench, 16_000, C), [0]);
}

#[track_caller]
fn refuse(config: &str, expected: &str) {
    let error = crate::parse::<Config>(config.parse().unwrap()).and_then(|config| {
        config.times_ns()?;
        config.filter(4)?;
        config.checked_stations(4)
    });
    assert_eq!(error.unwrap_err().to_string(), expected);
}

#[test]
fn impossible_configurations_are_refused() {
    refuse("ageing_s = 5", "`ageing_s`: 5s is out of range; write what comes to 10s to 1000000s");
    refuse(
        "refresh_interval_ms = 301000",
        "`refresh_interval_ms`: 301s is out of range; write what comes to 0ns to 300s",
    );
    refuse(
        "[[static]]\nmac = '02:00:00:00:00:0a'\nport = 4",
        "`static.port`: the plan has no port 4; write a number from 0 to 3",
    );
    refuse(
        "[[static]]\nmac = 'printer'\nport = 1",
        "`static.mac`: `printer` is no Ethernet address; write six pairs of digits such as 02:00:00:00:00:01",
    );
    refuse(
        "[[static]]\nmac = '01:00:5e:00:00:01'\nport = 1",
        "`static.mac`: 01:00:5e:00:00:01 is a group address; write the address of one station",
    );
    refuse(
        "vlan_aware = false\n[[static]]\nmac = '02:00:00:00:00:0a'\nport = 1\nvlan = 5",
        "`static.vlan`: VLAN 5 is not possible; write 0 (untagged) to 4094, only 0 with `vlan_aware = false`, and not 0 beside \
         `[[port]]`",
    );
    refuse(
        "[[port]]\nport = 1",
        "`port.access`: port 1 is to be an access port or a trunk; write `access`, or `trunk` perhaps with `native`",
    );
    refuse("[[port]]\nport = 1\naccess = 4095", "`port.access`: there is no VLAN 4095; write 1 to 4094");
    refuse(
        "[[port]]\nport = 1\ntrunk = ['ten']",
        "`port.trunk`: `ten` is no VLAN; write a number or a range as in `20-29`",
    );
    refuse(
        "vlan_aware = false\n[[port]]\nport = 1\naccess = 1",
        "`port`: this bridge knows no VLANs; leave it out, or write `vlan_aware = true`",
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Against the shortest description of a bridge there is: a hash map that notes frames when that is due.
    #[test]
    fn a_bridge_equals_a_hash_map(
        sets in 1usize..20,
        refresh in prop::sample::select(vec![0u64, 1000, 10_000]),
        frames in prop::collection::vec((0u64..6000, 0u16..4, 0u8..5, 0u8..6), 1..200),
    ) {
        let mut bench = bench(sets, &format!("ageing_s = 10\nrefresh_interval_ms = {refresh}"));
        let mut model = std::collections::HashMap::new();
        let mut now = 0;
        let mac = |n: u8| if n == 5 { BROADCAST } else { [2, 0, 0, 0, 0, n] };
        for (gap, port, from, to) in frames {
            now += gap;
            let noted = model.entry(mac(from)).or_insert((port, now));
            if noted.0 != port || now - noted.1 >= refresh {
                *noted = (port, now);
            }
            let known = model.get(&mac(to)).filter(|(_, seen)| now - seen <= 10_000 + refresh);
            let expected = match known {
                Some((at, _)) if *at == port => Vec::new(),
                Some((at, _)) => vec![*at],
                None => flood(port),
            };
            prop_assert_eq!(bench.send(port, now, &frame(mac(from), mac(to))).ports(), expected);
        }
    }
}

/// A frame to the Ethernet address of a group, from a station at a port.
fn to_group(port: u16, source: &str, group: &str, protocol: u8, content: &[u8]) -> Vec<u8> {
    let mac = match group.parse::<std::net::IpAddr>().unwrap() {
        std::net::IpAddr::V4(v4) => [1, 0, 0x5e, v4.octets()[1] & 0x7f, v4.octets()[2], v4.octets()[3]],
        std::net::IpAddr::V6(v6) => {
            let [.., a, b, c, d] = v6.octets();
            [0x33, 0x33, a, b, c, d]
        }
    };
    Frame::ip(source, group, protocol).payload(content).mac([2, 0, 0, 0, 1, port as u8], mac).bytes()
}

const SNOOPS: &str = "snooping = { enabled = true }";
const G: &str = "239.1.2.3";

fn igmp(kind: u8, group: [u8; 4]) -> Vec<u8> {
    [&[kind, 0, 0, 0][..], &group].concat()
}

/// By which ports a frame for the group leaves that comes by port 3.
fn reach(bench: &mut Bench, ms: u64) -> Vec<u16> {
    let mut ports = bench.send(3, ms, &to_group(3, "10.0.0.3", G, 17, &[0; 20])).ports();
    ports.sort_unstable();
    ports
}

#[test]
fn a_group_reaches_members_and_routers() {
    let mut bench = bench(10, SNOOPS);
    assert_eq!(reach(&mut bench, 0), [0, 1, 2], "nobody has reported it");
    let query = to_group(0, "10.0.0.254", "224.0.0.1", 2, &igmp(0x11, [0; 4]));
    assert_eq!(bench.send(0, 0, &query).sent.len(), 3, "a query is for all");
    let report = to_group(1, "10.0.0.1", G, 2, &igmp(0x16, [239, 1, 2, 3]));
    assert_eq!(bench.send(1, 0, &report).ports(), [0], "a report is for routers");
    assert_eq!(reach(&mut bench, 0), [0, 1]);
    let local = to_group(3, "10.0.0.3", "224.0.0.251", 17, &[0; 20]);
    assert_eq!(bench.send(3, 0, &local).sent.len(), 3, "what stays on the link is for all");
    let leave = to_group(1, "10.0.0.1", "224.0.0.2", 2, &igmp(0x17, [239, 1, 2, 3]));
    assert_eq!(bench.send(1, 1000, &leave).ports(), [0]);
    assert_eq!([reach(&mut bench, 3000), reach(&mut bench, 4100)], [vec![0, 1], vec![0, 1, 2]]);
}

#[test]
fn a_member_that_does_not_repeat_itself_is_forgotten() {
    let mut bench = bench(10, "snooping = { enabled = true, membership_s = 10 }");
    bench.send(1, 0, &to_group(1, "10.0.0.1", G, 2, &igmp(0x12, [239, 1, 2, 3])));
    assert_eq!([reach(&mut bench, 10_000), reach(&mut bench, 11_000)], [vec![1], vec![0, 1, 2]]);
}

#[test]
fn a_query_without_a_source_is_no_routers() {
    let mut bench = bench(10, "snooping = { enabled = true, unregistered = 'routers' }");
    bench.send(0, 0, &to_group(0, "0.0.0.0", "224.0.0.1", 2, &igmp(0x11, [0; 4])));
    let outcome = bench.send(3, 0, &to_group(3, "10.0.0.3", G, 17, &[0; 20]));
    assert_eq!(outcome.dropped, Some("no_member"));
}

#[test]
fn unregistered_groups_go_as_configured() {
    let mut bench = bench(10, "snooping = { enabled = true, unregistered = 'routers' }");
    bench.send(2, 0, &to_group(2, "10.0.0.254", "224.0.0.1", 2, &igmp(0x11, [0; 4])));
    assert_eq!(reach(&mut bench, 0), [2]);
}

#[test]
fn records_of_igmpv3_and_mldv2_are_read() {
    let record = |kind: u8, sources: u16, group: &[u8]| {
        let sources_of = vec![9; usize::from(sources) * group.len()];
        [&[kind, 0, (sources >> 8) as u8, sources as u8][..], group, &sources_of].concat()
    };
    let mut bench = bench(10, SNOOPS);
    let records = [record(4, 0, &[239, 9, 9, 9]), record(5, 2, &[239, 1, 2, 3])].concat();
    let v3 = [&[0x22, 0, 0, 0, 0, 0, 0, 2][..], &records].concat();
    bench.send(1, 0, &to_group(1, "10.0.0.1", "224.0.0.22", 2, &v3));
    assert_eq!(reach(&mut bench, 0), [1]);
    let blocks = [&[0x22, 0, 0, 0, 0, 0, 0, 1][..], &record(6, 1, &[239, 1, 2, 3])].concat();
    bench.send(1, 0, &to_group(1, "10.0.0.1", "224.0.0.22", 2, &blocks));
    assert_eq!(reach(&mut bench, 5_000), [1], "fewer sources are still some");
    let leaves = [&[0x22, 0, 0, 0, 0, 0, 0, 9][..], &record(3, 0, &[239, 1, 2, 3])].concat();
    bench.send(1, 5_000, &to_group(1, "10.0.0.1", "224.0.0.22", 2, &leaves));
    assert_eq!(reach(&mut bench, 9_000), [0, 1, 2], "a report that is cut short is read as far as it goes");

    let group: [u8; 16] = "ff05::7".parse::<std::net::Ipv6Addr>().unwrap().octets();
    let mld = [&[143, 0, 0, 0, 0, 0, 0, 1][..], &record(2, 0, &group)].concat();
    bench.send(2, 9_000, &to_group(2, "fe80::2", "ff02::16", 58, &mld));
    let to = |group: &str| to_group(3, "2001:db8::3", group, 17, &[0; 20]);
    assert_eq!(bench.send(3, 9_000, &to("ff05::7")).ports(), [2]);
    assert_eq!(bench.send(3, 9_000, &to("ff02::1:ff00:7")).sent.len(), 3, "neighbour discovery is for all");
}

#[test]
fn groups_stay_in_their_vlan_and_a_full_table_floods() {
    let ports =
        "[[port]]\nport = 0\ntrunk = ['10-20']\n[[port]]\nport = 1\naccess = 10\n[[port]]\nport = 2\naccess = 10
        [[port]]\nport = 3\naccess = 10\n";
    let mut bench = bench(10, &format!("snooping = {{ enabled = true, groups_max = 1 }}\n{ports}"));
    let tagged = |vlan: u16| {
        let mut frame = to_group(0, "10.0.0.9", G, 2, &igmp(0x16, [239, 1, 2, 3]));
        frame.splice(12..12, [0x81, 0, 0, vlan as u8]);
        frame
    };
    bench.send(0, 0, &tagged(20));
    assert_eq!(reach(&mut bench, 0), [0, 1, 2], "nobody in VLAN 10 has reported it");
    bench.send(0, 0, &tagged(10));
    assert_eq!(reach(&mut bench, 0), [0, 1, 2], "there was no room");
    let events = Events::read_from_bytes(&bench.object("br.events")).unwrap();
    assert_eq!(events.groups_full, 1);
}
