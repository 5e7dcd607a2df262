//! Tests of several next hops to one destination: by weight, past silent neighbours, by addresses or by ports.

use braid_testkit::{Bench, Frame};

use super::{HOST, OURS, bench};

/// Two next hops with weights 1 and 3, on port 1.
const TWO_WAYS: &str = "[[interface]]\nport = 0\nmac = '02:00:00:00:0f:00'\naddresses = ['10.0.0.1/8']
    [[interface]]\nport = 1\nmac = '02:00:00:00:0f:01'\naddresses = ['192.0.2.1/24']
    [[route]]\nto = '0.0.0.0/0'\nhops = [{ via = '192.0.2.2' }, { via = '192.0.2.3', weight = 3 }]\n";
const FIRST: &str = "[[neighbour]]\naddress = '192.0.2.2'\nmac = '02:00:00:00:00:02'\nport = 1\n";
const SECOND: &str = "[[neighbour]]\naddress = '192.0.2.3'\nmac = '02:00:00:00:00:03'\nport = 1\n";

fn from(host: u32) -> Vec<u8> {
    let [_, b, c, d] = host.to_be_bytes();
    Frame::udp(&format!("10.{b}.{c}.{d}:1"), "198.51.100.9:2").mac(HOST, OURS[0]).bytes()
}

#[test]
fn pairs_are_spread_by_weight() {
    let mut bench = bench(10, &format!("{TWO_WAYS}{FIRST}{SECOND}"));
    let mut by_second = 0;
    for host in 2..2002 {
        let sent = bench.send(0, 0, &from(host)).sent;
        let [(1, frame)] = &sent[..] else { panic!("{sent:?}") };
        assert!(matches!(frame[5], 2 | 3));
        by_second += u32::from(frame[5] == 3);
    }
    assert!((1400..1600).contains(&by_second), "{by_second} of 2000");
}

#[test]
fn a_next_hop_that_is_silent_is_passed_over() {
    let mut bench = bench(100, &format!("{TWO_WAYS}{SECOND}"));
    // One of these hosts is assigned to the silent neighbour.
    let silent = (2..100).find(|host| bench.send(0, 0, &from(*host)).dropped == Some("waits_for_neighbour"));
    let host = silent.expect("one of a hundred");
    let after = |bench: &mut Bench, ms| bench.send(0, ms, &from(host));
    // It is asked once more, and is then known to be silent.
    assert_eq!(after(&mut bench, 5_000).dropped, Some("waits_for_neighbour"));
    let by_second = after(&mut bench, 5_050);
    assert_eq!(by_second.sent.iter().filter(|(port, frame)| *port == 1 && frame[5] == 3).count(), 1, "{by_second:?}");
    // A neighbour that asks reveals where it is.
    bench.send(1, 5_100, &Frame::arp("192.0.2.2", "192.0.2.1").bytes());
    let by_first = after(&mut bench, 5_200);
    assert_eq!(by_first.sent.iter().map(|(port, frame)| (*port, frame[5])).collect::<Vec<_>>(), [(1, 1)]);
}

#[test]
fn a_next_hop_behind_a_lost_link_is_passed_over_at_once() {
    let mut bench = bench(100, TWO_WAYS);
    for (hop, mac) in [("192.0.2.2", 2), ("192.0.2.3", 3)] {
        bench.send(1, 9_000, &Frame::arp(hop, "192.0.2.1").mac([2, 0, 0, 0, 0, mac], [0xff; 6]).bytes());
    }
    let by = |bench: &mut Bench, ms, host| {
        let sent = bench.send(0, ms, &from(host)).sent;
        sent.iter()
            .filter(|(_, frame)| frame[12..14] == [8, 0])
            .map(|(port, frame)| (*port, frame[11]))
            .collect::<Vec<_>>()
    };
    assert_eq!(by(&mut bench, 9_001, 2), [(1, 1)]);
    bench.link_down(0);
    assert_eq!(by(&mut bench, 9_002, 2), [(1, 1)], "its neighbours are at another port");
    bench.link_down(1);
    let outcome = bench.send(0, 9_003, &from(2));
    assert_eq!(outcome.dropped, Some("neighbour_absent"), "both are behind it: {outcome:?}");
    // It has its link again, and the first neighbour speaks.
    bench.send(1, 9_010, &Frame::arp("192.0.2.2", "192.0.2.1").mac([2, 0, 0, 0, 0, 2], [0xff; 6]).bytes());
    for host in 2..50 {
        assert_eq!(
            by(&mut bench, 9_011, host),
            [(1, 1)],
            "host {host}: none waits for the other one, which is still silent"
        );
    }
}

/// A packet of a connection from 10.0.0.2, whole or fragmented: the first fragment (`Some(0)`) has ports, the others have none.
fn of_connection(port: u16, piece: Option<u16>) -> Vec<u8> {
    let whole = Frame::udp(&format!("10.0.0.2:{port}"), "198.51.100.9:2").payload(&[7; 16]);
    let frame = match piece {
        None => whole,
        Some(0) => whole.fragment(9, 0, true),
        Some(at) => Frame::ip("10.0.0.2", "198.51.100.9", 17).payload(&[7; 16]).fragment(9, at, false),
    };
    frame.mac(HOST, OURS[0]).bytes()
}

/// With `hash = "ports"` connections between two hosts are spread, and each keeps its next hop; all fragments are spread by
/// addresses.
#[test]
fn connections_are_spread_by_ports_and_pieces_by_addresses() {
    let mut bench = bench(10, &format!("hash = 'ports'\n{TWO_WAYS}{FIRST}{SECOND}"));
    let mut way = |port, piece| {
        let sent = bench.send(0, 0, &of_connection(port, piece)).sent;
        let [(1, frame)] = &sent[..] else { panic!("{sent:?}") };
        frame[5]
    };
    let of_pieces = way(1, Some(3));
    let (mut by_second, mut apart) = (0, 0);
    for port in 1..2001 {
        let of_connection = way(port, None);
        by_second += u32::from(of_connection == 3);
        apart += u32::from(of_connection != of_pieces);
        assert_eq!(
            [way(port, Some(0)), way(port, Some(3)), way(port, None)],
            [of_pieces, of_pieces, of_connection],
            "port {port}"
        );
    }
    assert!((1400..1600).contains(&by_second), "{by_second} of 2000");
    assert!(apart > 0, "some connections go another way than their pieces");
}
