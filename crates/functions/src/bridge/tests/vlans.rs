//! Tests that frames stay in their VLAN, that tags are added and removed, and that each VLAN has its own number of stations.

use super::*;

/// Two access ports and two trunks: VLAN 10 on ports 0 (access), 2 and 3; VLAN 20 on ports 1 (access), 2, 3 (native).
const FILTERED: &str = "[[port]]\nport = 0\naccess = 10\n[[port]]\nport = 1\naccess = 20
    [[port]]\nport = 2\ntrunk = ['10-20']\n[[port]]\nport = 3\ntrunk = ['10']\nnative = 20\n";

/// A frame with a tag of this type and control information, or without a tag.
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

/// Port, source, destination, tag; and the ports by which it leaves, each with its tag.
type FormRow<'a> = (Port, [u8; 6], [u8; 6], Tag, &'a [(Port, Tag)]);

#[track_caller]
fn check_forms(rows: &[FormRow]) {
    for sets in [1000, 1] {
        let mut bench = bench(sets, FILTERED);
        for (n, (port, from, to, came, expected)) in rows.iter().enumerate() {
            // Twice: the second time the decision is remembered.
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
    // Only port 2 carries VLAN 11.
    assert_eq!(bench.send(2, 0, &formed(q(11), A, B)).dropped, Some("nowhere_to_flood"));
}

#[test]
fn ports_that_are_not_named_carry_vlan_1() {
    let mut bench = bench(10, "[[port]]\nport = 0\naccess = 5");
    assert_eq!(bench.send(1, 0, &frame(A, B)).ports(), [3, 2]);
    assert_eq!(bench.send(0, 0, &frame(A, B)).dropped, Some("nowhere_to_flood"));
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
    let used = <[u32; 8]>::read_from_prefix(&bench.object("br.stations_of_vlan")).unwrap().0;
    assert_eq!(used[4..8], [0, 2, 1, 0], "it may be limited later");
    // There is room once the old ones are gone.
    (0..40).for_each(|n| drop(bench.send(0, 11_000 + n * 100, &frame(A, MULTICAST))));
    bench.send(0, 16_000, &tagged(5, C, MULTICAST));
    assert_eq!(asked(&mut bench, 16_000, C), [0]);
}

/// The search makes room, not the sweep, which takes a quarter of the ageing time.
#[test]
fn a_full_vlan_makes_room_at_once_where_stations_are_over() {
    let config = "ageing_s = 10\nrefresh_interval_ms = 0\ncapacity = 8192\n[[vlan]]\nid = 5\nstations_max = 2";
    let mut bench = bench(10, config);
    let mut station = 0;
    let mut learns = |bench: &mut Bench, ms| {
        let before = events(bench).learnt;
        station += 1;
        bench.send(0, ms, &tagged(5, [2, 0, 0, 0, 1, station], MULTICAST));
        events(bench).learnt - before
    };
    // The table consists of two pieces.
    assert_eq!([0, 0, 1, 1].map(|ms| learns(&mut bench, ms)), [1, 1, 0, 0]);
    bench.send(0, 5_000, &tagged(5, [2, 0, 0, 0, 1, 1], MULTICAST));
    assert_eq!((0..3).map(|_| learns(&mut bench, 10_000)).sum::<u64>(), 0, "nobody is too old");
    assert_eq!((0..3).map(|_| learns(&mut bench, 10_001)).sum::<u64>(), 1, "one has gone and one has come");
    assert_eq!((0..3).map(|_| learns(&mut bench, 15_000)).sum::<u64>(), 0);
    assert_eq!((0..3).map(|_| learns(&mut bench, 15_001)).sum::<u64>(), 1);
    let used = <[u32; 8]>::read_from_prefix(&bench.object("br.stations_of_vlan")).unwrap().0;
    assert_eq!(used[5], 2);
    assert_eq!((0..5).map(|_| learns(&mut bench, 60_000)).sum::<u64>(), 2, "both");
}

#[test]
fn tags_are_declared_where_they_change() {
    let rewrites = |config: &str| {
        let mut fields = None;
        Bench::with_sets(4, 10, |builder| {
            let bridge = (find("bridge").unwrap().build)("br", config.parse().unwrap(), builder, 4).unwrap();
            fields = Some(bridge.rewrites());
            bridge
        });
        fields.expect("it was built")
    };
    assert_eq!(rewrites(FILTERED), Rewrites::of(&[FieldId::VlanId, FieldId::Segment]));
    let trunks = (0..4).map(|port| format!("[[port]]\nport = {port}\ntrunk = ['10-20']\n")).collect::<String>();
    assert_eq!([rewrites(""), rewrites(&trunks)], [Rewrites::default(); 2], "each keeps the tag with which it came");
}
