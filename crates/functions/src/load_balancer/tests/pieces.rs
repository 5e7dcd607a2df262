//! Fragmented datagrams in any order and any mode: what the backend's kernel reassembles is what the client sent.

use std::collections::BTreeMap;

use braid_nf::packet::checksum;
use braid_testkit::{Bench, Frame};
use proptest::prelude::*;

use super::{WEB, bench, check};

/// Each tunnel mode, with the number of bytes between the IP headers.
const TUNNELS: [(&str, usize); 3] = [("ipip", 0), ("gre", 4), ("gue", 8)];

fn of_mode(mode: &str, more: &str) -> Bench {
    let mac = if mode == "direct" { ", mac = '02:00:00:00:00:01'" } else { "" };
    bench(&format!(
        "router = '192.0.2.254'\nrouter_v6 = '2001:db8::fe'\n{more}
        [[service]]\naddress = '203.0.113.10'\nport = 53\nmode = '{mode}'\nbackends = [{{ address = '10.0.0.1'{mac} }}]
        [[service]]\naddress = '2001:db8::10'\nport = 53\nmode = '{mode}'\nbackends = [{{ address = '2001:db8:1::1'{mac} }}]"
    ))
}

/// A client's datagram from port 700 to port 53, in fragments of `eights` times eight bytes.
fn datagram([client, service]: [&str; 2], data: &[u8], eights: u16) -> Vec<Vec<u8>> {
    let header = [700, 53, 8 + data.len() as u16, 0x1234].map(u16::to_be_bytes).concat();
    let (transport, step) = ([&header, data].concat(), usize::from(eights) * 8);
    let count = transport.len().div_ceil(step) as u16;
    let piece = |(number, part): (u16, &[u8])| {
        let (at, more) = (number * eights, number + 1 < count);
        if !client.contains(':') {
            return Frame::ip(client, service, 17).payload(part).fragment(5, at, more).bytes();
        }
        let [high, low] = (at << 3 | u16::from(more)).to_be_bytes();
        Frame::ip(client, service, 44).payload(&[&[17, 0, high, low, 0, 0, 0, 5], part].concat()).bytes()
    };
    (0..).zip(transport.chunks(step)).map(piece).collect()
}

const V4: [&str; 2] = ["192.0.2.8", "203.0.113.10"];
const V6: [&str; 2] = ["2001:db8:9::8", "2001:db8::10"];

fn data(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ at >> 8) as u8).collect()
}

/// The packets that leave by the backends' port.
#[track_caller]
fn leaving(lb: &mut Bench, pieces: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for piece in pieces {
        let outcome = lb.send(1, 0, piece);
        assert!(outcome.dropped.is_none_or(|reason| reason == "fragment_held"), "{:?}", outcome.dropped);
        assert!(outcome.sent.iter().all(|(port, _)| *port == 0));
        all.extend(outcome.sent.into_iter().map(|(_, frame)| frame));
    }
    all
}

/// Reassembles IPv4 packets by addresses, protocol and identification (RFC 791 section 3.2), and returns their payloads.
#[track_caller]
fn put_together(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut datagrams = BTreeMap::<_, BTreeMap<usize, (&[u8], bool)>>::new();
    let (whole, pieces): (Vec<_>, Vec<_>) = packets.iter().partition(|ip| ip[6] & 0x40 != 0);
    for ip in pieces {
        assert!(checksum::ipv4_header_ok(&ip[..20]));
        let (len, field) = (usize::from(u16::from_be_bytes([ip[2], ip[3]])), u16::from_be_bytes([ip[6], ip[7]]));
        let known = datagrams.entry((&ip[4..6], ip[9], &ip[12..20])).or_default();
        let twice = known.insert(usize::from(field & 0x1fff) * 8, (&ip[20..len], field & 0x2000 != 0));
        assert!(twice.is_none(), "two pieces at one place");
    }
    let join = |pieces: BTreeMap<usize, (&[u8], bool)>| {
        let mut bytes = Vec::new();
        let last = pieces.len();
        for (number, (at, (part, more))) in (1..).zip(pieces) {
            assert_eq!((at, more), (bytes.len(), number < last), "no piece is missing");
            bytes.extend_from_slice(part);
        }
        bytes
    };
    // Packets that must not be fragmented need no identification.
    datagrams.into_values().map(join).chain(whole.iter().map(|ip| ip[20..].to_vec())).collect()
}

fn packets(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    frames.iter().map(|frame| frame[14..].to_vec()).collect()
}

#[test]
fn a_later_piece_waits_for_the_first_one_and_those_of_others_pass() {
    let mut lb = bench(WEB);
    let later = |id| Frame::ip("192.0.2.1", "203.0.113.53", 17).fragment(id, 2, false).payload(&[7; 24]);
    check(&mut lb, 1, 0, later(9), "drop fragment_held");
    let first = Frame::udp("192.0.2.1:9", "203.0.113.53:53").payload(&[7; 8]).fragment(9, 0, true);
    assert_eq!(lb.send(1, 0, &first.bytes()).ports(), [0, 0], "and the one that waited");
    check(&mut lb, 1, 0, later(9), "0: ip 192.0.2.1 > 10.0.0.9 proto 17 ttl 63");
    let others = Frame::ip("192.0.2.1", "192.0.2.2", 17).fragment(9, 2, false).payload(&[7; 24]);
    check(&mut lb, 1, 0, others, "0: ip 192.0.2.1 > 192.0.2.2 proto 17 ttl 64");
}

#[test]
fn without_room_no_piece_waits() {
    let later = || Frame::ip("192.0.2.1", "203.0.113.53", 17).fragment(9, 2, false).payload(&[7; 24]);
    check(&mut bench(&format!("held_max = 0\n{WEB}")), 1, 0, later(), "drop fragment_before_first");
    let tunnel =
        "held_max = 1\n[[service]]\naddress = '203.0.113.53'\nmode = 'ipip'\nbackends = [{ address = '10.0.0.9' }]";
    let mut lb = bench(tunnel);
    check(&mut lb, 1, 0, later(), "drop fragment_held");
    check(&mut lb, 1, 0, later(), "drop fragment_before_first");
}

/// An echo request to a service, a datagram to another port of its address, a backend's own traffic: each fragmented, the
/// last fragment first.
#[test]
fn pieces_of_what_is_no_service_pass_as_they_came() {
    let mut lb = bench(WEB);
    let late = |from: &str, to: &str, protocol| Frame::ip(from, to, protocol).fragment(9, 2, false).payload(&[7; 24]);
    check(&mut lb, 1, 0, late("192.0.2.1", "203.0.113.10", 1), "0: ip 192.0.2.1 > 203.0.113.10 proto 1 ttl 64");
    let ends = [(1, 0, "192.0.2.1:9", "203.0.113.10:9"), (0, 1, "10.0.0.1:9", "192.0.2.1:9")];
    for (port, across, from, to) in ends {
        let [source, destination] = [from, to].map(|end| end.rsplit_once(':').expect("with a port").0);
        check(&mut lb, port, 0, late(source, destination, 17), "drop fragment_held");
        let first = Frame::udp(from, to).fragment(9, 0, true).payload(&[7; 8]).bytes();
        let sent = lb.send(port, 0, &first).sent;
        let as_they_came = [(across, first), (across, late(source, destination, 17).bytes())];
        assert_eq!(sent, as_they_came);
        let expected = format!("{across}: ip {source} > {destination} proto 17 ttl 64");
        check(&mut lb, port, 0, late(source, destination, 17), &expected);
    }
    // Replies of a backend that has the service's address do not concern the balancer, in whatever order.
    let mut lb = of_mode("gre", "");
    check(&mut lb, 0, 0, late("203.0.113.10", "192.0.2.8", 17), "1: ip 203.0.113.10 > 192.0.2.8 proto 17 ttl 64");
}

/// IPv6 fragments cannot be fragmented again: those that fit pass in any order, and the sender is told about the others.
#[test]
fn pieces_of_ipv6_go_as_in_order_whatever_the_order() {
    for mode in ["nat", "ipip", "gre", "gue", "direct"] {
        let pieces = datagram(V6, &data(3000), 150);
        let mut expected = leaving(&mut of_mode(mode, ""), &pieces);
        assert_eq!(expected.len(), 3, "{mode}");
        expected.sort();
        for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut sent = leaving(&mut of_mode(mode, ""), &order.map(|at| pieces[at].clone()));
            sent.sort();
            assert!(sent == expected, "{mode} {order:?}");
        }
    }
}

#[test]
fn the_sender_of_a_piece_that_has_no_room_and_may_not_be_cut_is_told_once() {
    let mut lb = of_mode("gue", "mtu = 1400");
    let pieces = datagram(V6, &data(2700), 170);
    assert_eq!(lb.send(1, 0, &pieces[1]).dropped, Some("fragment_held"));
    let told = lb.send(1, 0, &pieces[0]);
    assert_eq!((told.dropped, told.ports()), (Some("too_big"), vec![1]));
    let error = &told.sent[0].1[54..];
    assert_eq!((error[0], u16::from_be_bytes([error[6], error[7]])), (2, 1352));
}

/// A fragment that would end beyond the maximum length of a datagram is not fragmented again.
#[test]
fn a_piece_beyond_the_end_of_any_datagram_is_not_cut() {
    let mut lb = of_mode("ipip", "mtu = 1400");
    let first = Frame::udp("192.0.2.8:700", "203.0.113.10:53").payload(&[7; 8]).fragment(5, 0, true);
    assert_eq!(lb.send(1, 0, &first.bytes()).sent.len(), 1);
    // The fragment is encapsulated, so only the outer packet is fragmented.
    let last = Frame::ip("192.0.2.8", "203.0.113.10", 17).payload(&[7; 1392]).fragment(5, 8180, false);
    assert_eq!(lb.send(1, 0, &last.bytes()).sent.len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// In tunnels the outer packets are reassembled first, as at the backend's end of the tunnel, and then the inner
    /// ones.
    #[test]
    fn what_arrives_is_what_was_sent_in_whatever_order_and_mode(
        len in 1480usize..9000, mtu in 1328u16..1600, keys in prop::collection::vec(any::<u32>(), 8),
    ) {
        let sent = data(len);
        let mut pieces: Vec<_> = datagram(V4, &sent, 185).into_iter().zip(keys.iter().cycle()).collect();
        pieces.sort_by_key(|(_, key)| **key);
        let pieces: Vec<_> = pieces.into_iter().map(|(piece, _)| piece).collect();
        for (mode, between) in TUNNELS {
            let frames = leaving(&mut of_mode(mode, &format!("mtu = {mtu}")), &pieces);
            prop_assert!(frames.iter().all(|frame| frame.len() <= 14 + usize::from(mtu)), "{mode}");
            let inner: Vec<_> = put_together(&packets(&frames)).into_iter().map(|outer| outer[between..].to_vec()).collect();
            prop_assert_eq!(inner.len(), pieces.len(), "each piece is in a packet of its own: {}", mode);
            let arrived = put_together(&inner);
            prop_assert!(arrived.len() == 1 && arrived[0][8..] == sent, "{mode}");
        }
        for mode in ["nat", "direct"] {
            let arrived = put_together(&packets(&leaving(&mut of_mode(mode, ""), &pieces)));
            prop_assert!(arrived.len() == 1 && arrived[0][8..] == sent, "{mode}");
        }
    }

    /// Altered or truncated fragments, the first one last, are forwarded, held or dropped; nothing panics.
    #[test]
    fn damaged_pieces_do_no_harm(
        flips in prop::collection::vec((14usize..60, any::<u8>()), 0..4), cut in 14usize..1600, is_v6 in any::<bool>(),
    ) {
        for mode in ["nat", "ipip", "gre", "gue", "direct"] {
            let mut lb = of_mode(mode, if matches!(mode, "nat" | "direct") { "" } else { "mtu = 1400" });
            for mut frame in datagram(if is_v6 { V6 } else { V4 }, &data(4000), 180).into_iter().rev() {
                for (at, value) in &flips {
                    frame[*at] = *value;
                }
                frame.truncate(cut);
                let outcome = lb.send(1, 0, &frame);
                prop_assert!(outcome.dropped != Some("handler_panic"), "{mode}");
                prop_assert!(!outcome.sent.is_empty() || outcome.dropped.is_some(), "{mode}");
            }
        }
    }
}
