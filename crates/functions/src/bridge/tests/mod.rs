//! Tests of learning, moving, ageing, flooding and refusing, row by row; and against a hash map as the model of a bridge.

use braid_nf::packet::FrameInfo;
use braid_testkit::{Bench, Frame};
use proptest::prelude::*;

mod groups;
mod refusals;
mod switches;
mod vlans;

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

/// All ports except the one on which the frame arrived.
fn flood(from: Port) -> Vec<Port> {
    (0..4).filter(|port| *port != from).collect()
}

#[test]
fn stations_at_a_port_without_a_link_are_forgotten() {
    let mut bench = bench(10, "[[static]]\nmac = '02:00:00:00:00:0c'\nport = 1");
    bench.send(1, 0, &frame(B, A));
    bench.send(2, 0, &frame(A, B));
    assert_eq!(bench.send(2, 1, &frame(A, B)).ports(), [1]);
    bench.link_down(1);
    assert_eq!(bench.send(2, 2, &frame(A, B)).ports(), flood(2), "it may be anywhere now");
    assert_eq!(bench.send(2, 2, &frame(A, C)).ports(), [1], "what is written down stays");
    assert_eq!(bench.send(3, 2, &frame(B, A)).ports(), [2], "others are where they were");
    assert_eq!(bench.send(2, 3, &frame(A, B)).ports(), [3]);
}

/// A frame and its outcome: milliseconds, port, source, destination, and the ports by which it leaves.
type Row<'a> = (u64, Port, [u8; 6], [u8; 6], &'a [Port]);

#[track_caller]
fn check(config: &str, frames: &[Row]) {
    // The results must be the same with and without room for packet sets.
    for sets in [1000, 1] {
        let mut bench = bench(sets, config);
        for (n, (ms, port, from, to, expected)) in frames.iter().enumerate() {
            let outcome = bench.send(*port, *ms, &frame(*from, *to));
            let mut ports = outcome.ports();
            ports.sort_unstable();
            assert_eq!(ports, *expected, "frame {n}, {sets} sets, dropped: {:?}", outcome.dropped);
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Against the simplest model of a bridge: a hash map that records frames when that is due.
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
