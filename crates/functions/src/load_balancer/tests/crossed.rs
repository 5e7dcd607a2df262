//! Tunnels whose outer and inner IP versions differ: IPv4 services with IPv6 backends, and the reverse.

use braid_testkit::{Bench, Frame, Outcome, assert_checksums};

use super::{bench, show};

const CLIENT: &str = "192.0.2.8:1031";
const CLIENT_V6: &str = "[2001:db8:9::9]:1031";
/// The mode, the bytes between the IP headers, and the protocol in an outer IPv4 and an outer IPv6 header.
const MODES: [(&str, usize, [u8; 2]); 3] = [("ipip", 0, [4, 41]), ("gre", 4, [47, 47]), ("gue", 8, [17, 17])];

fn crossed(mode: &str, more: &str) -> Bench {
    bench(&format!(
        "router = '192.0.2.254'\nrouter_v6 = '2001:db8::fe'\n{more}
        [[service]]\naddress = '203.0.113.10'\nmode = '{mode}'\nbackends = [{{ address = '2001:db8:1::1' }}]
        [[service]]\naddress = '2001:db8::10'\nmode = '{mode}'\nbackends = [{{ address = '10.0.0.1' }}]"
    ))
}

/// A client's segment with `len` bytes of payload.
fn segment(is_v6: bool, len: usize) -> Frame {
    let (client, service) = if is_v6 { (CLIENT_V6, "[2001:db8::10]:80") } else { (CLIENT, "203.0.113.10:80") };
    Frame::tcp(client, service).flags("A").payload(&vec![7; len])
}

/// Decapsulates a frame: a description of its outer header, and the inner frame.
#[track_caller]
fn unwrap(bytes: &[u8], between: usize) -> (String, Vec<u8>) {
    assert_checksums(bytes);
    let outer = etherparse::SlicedPacket::from_ethernet(bytes).expect("a whole frame");
    let (said, header) = match outer.net.expect("IP") {
        etherparse::NetSlice::Ipv4(ip) => {
            let ip = ip.header().to_header();
            assert_eq!((usize::from(ip.total_len), ip.time_to_live), (bytes.len() - 14, 64));
            let (from, to) = (std::net::Ipv4Addr::from(ip.source), std::net::Ipv4Addr::from(ip.destination));
            (format!("{from} > {to} proto {} df {}", ip.protocol.0, ip.dont_fragment), 20)
        }
        etherparse::NetSlice::Ipv6(ip) => {
            let ip = ip.header().to_header();
            assert_eq!((usize::from(ip.payload_length), ip.hop_limit), (bytes.len() - 54, 64));
            let (from, to) = (std::net::Ipv6Addr::from(ip.source), std::net::Ipv6Addr::from(ip.destination));
            (format!("{from} > {to} proto {}", ip.next_header.0), 40)
        }
        _ => panic!("not IP"),
    };
    let within = &bytes[14 + header + between..];
    let kind = if within[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    (said, [&bytes[..12], &kind, within].concat())
}

#[test]
fn packets_of_one_family_go_within_the_other() {
    for (mode, between, [v4, v6]) in MODES {
        let mut lb = crossed(mode, "");
        let (outer, inner) = unwrap(lb.send(1, 0, &segment(false, 9).bytes()).only().1, between);
        assert_eq!(outer, format!("2001:db8::fe > 2001:db8:1::1 proto {v4}"));
        assert_eq!(show::frame(&inner), "tcp 192.0.2.8:1031 > 203.0.113.10:80 A ttl 63");
        let (outer, inner) = unwrap(lb.send(1, 0, &segment(true, 9).bytes()).only().1, between);
        assert_eq!(outer, format!("192.0.2.254 > 10.0.0.1 proto {v6} df true"));
        assert_eq!(show::frame(&inner), "tcp [2001:db8:9::9]:1031 > [2001:db8::10]:80 A ttl 63");
    }
}

#[test]
fn headers_say_what_they_carry_and_the_class_of_it() {
    let bytes = |mode, frame: Frame| crossed(mode, "").send(1, 0, &frame.bytes()).only().1.to_vec();
    // RFC 2784 section 2.4: the inner packet's protocol type, not that of the outer header.
    assert_eq!(bytes("gre", segment(false, 0))[54..58], [0, 0, 8, 0]);
    assert_eq!(bytes("gre", segment(true, 0))[34..38], [0, 0, 0x86, 0xdd]);
    // UDP needs a checksum over IPv6 (RFC 8200 section 8.1), and none over IPv4.
    let gue = bytes("gue", segment(false, 5));
    assert_ne!(gue[60..62], [0, 0]);
    assert_checksums(&gue);
    assert_eq!(bytes("gue", segment(true, 5))[40..42], [0, 0]);
    // The traffic class is copied (RFC 6040 section 4.1).
    let marked = bytes("ipip", segment(false, 0).tos(0x2e));
    assert_eq!((marked[14] & 15) << 4 | marked[15] >> 4, 0x2e);
}

/// Type, code and MTU of the error that the client gets.
fn told(outcome: &Outcome) -> (u8, u8, u16) {
    let (port, frame) = outcome.only();
    assert_checksums(frame);
    let icmp = if frame[14] >> 4 == 4 { &frame[34..] } else { &frame[54..] };
    assert_eq!((port, icmp[8] >> 4), (1, frame[14] >> 4), "an error of the client's family about its packet");
    (icmp[0], icmp[1], u16::from_be_bytes([icmp[6], icmp[7]]))
}

#[test]
fn what_has_no_room_in_the_other_family_is_told_with_what_has() {
    for (mode, between, _) in MODES {
        let mut lb = crossed(mode, "mtu = 1400");
        let fits = 1400 - 40 - between - 40;
        assert_eq!(lb.send(1, 0, &segment(false, fits).bytes()).only().1.len(), 14 + 1400, "{mode}");
        let outcome = lb.send(1, 0, &segment(false, fits + 1).bytes());
        assert_eq!((outcome.dropped, told(&outcome)), (Some("too_big"), (3, 4, (1400 - 40 - between) as u16)));
        let fits = 1400 - 20 - between - 60;
        assert_eq!(lb.send(1, 0, &segment(true, fits).bytes()).only().1.len(), 14 + 1400, "{mode}");
        let outcome = lb.send(1, 0, &segment(true, fits + 1).bytes());
        assert_eq!((outcome.dropped, told(&outcome)), (Some("too_big"), (2, 0, (1400 - 20 - between) as u16)));
    }
}

#[test]
fn what_may_be_cut_is_cut_before_it_goes_into_ipv6() {
    for (mode, between, _) in MODES {
        let mut lb = crossed(mode, "mtu = 1400");
        let whole = Frame::udp(CLIENT, "203.0.113.10:53").payload(&[7; 3000]).may_be_fragmented().bytes();
        let sent = lb.send(1, 0, &whole).sent;
        assert_eq!(sent.len(), 3, "{mode}");
        let mut carried = vec![0; 3008];
        for (port, piece) in &sent {
            assert!(*port == 0 && piece.len() <= 14 + 1400, "{mode}");
            let (outer, inner) = unwrap(piece, between);
            assert!(outer.starts_with("2001:db8::fe > 2001:db8:1::1"), "{outer}");
            let from = usize::from(u16::from_be_bytes([inner[20], inner[21]]) & 0x1fff) * 8;
            carried[from..from + inner.len() - 34].copy_from_slice(&inner[34..]);
        }
        assert_eq!(carried, whole[34..], "{mode}");
    }
}

/// The error that a router on the tunnel's path sends about a tunnelled frame; `mtu` 0: unreachable.
fn error(tunnelled: &[u8], mtu: u16) -> Vec<u8> {
    let [high, low] = mtu.to_be_bytes();
    let (between, own, kind, code) = match tunnelled[14] >> 4 {
        4 => ("10.0.9.9", "192.0.2.254", 3, 4),
        _ => ("2001:db8:5::1", "2001:db8::fe", 2, 0),
    };
    let (kind, code) = if mtu == 0 { if kind == 3 { (3, 1) } else { (1, 3) } } else { (kind, code) };
    let quoted = &tunnelled[14..tunnelled.len().min(14 + 400)];
    Frame::icmp(between, own, kind, code, [0, 0, high, low]).payload(quoted).bytes()
}

#[test]
fn what_routers_say_of_the_outer_packet_is_told_of_the_inner_one_in_its_family() {
    for (mode, between, _) in MODES {
        let mut lb = crossed(mode, "");
        // IPv4 in IPv6.
        let tunnelled = lb.send(1, 0, &segment(false, 1300).bytes()).only().1.to_vec();
        assert_eq!(told(&lb.send(0, 1, &error(&tunnelled, 1320))), (3, 4, (1320 - 40 - between) as u16), "{mode}");
        assert_eq!(told(&lb.send(0, 1, &error(&tunnelled, 0))), (3, 1, 0), "{mode}");
        assert_eq!(lb.send(1, 2, &segment(false, 1320 - 40 - between - 40).bytes()).ports(), [0], "{mode}");
        assert_eq!(lb.send(1, 2, &segment(false, 1320 - 40 - between - 39).bytes()).dropped, Some("too_big"), "{mode}");
        // An MTU below IPv6's minimum is not believed.
        lb.send(0, 3, &error(&tunnelled, 900));
        assert_eq!(lb.send(1, 4, &segment(false, 1280 - 40 - between - 40).bytes()).ports(), [0], "{mode}");
        // IPv6 in IPv4.
        let tunnelled = lb.send(1, 5, &segment(true, 1360).bytes()).only().1.to_vec();
        assert_eq!(told(&lb.send(0, 6, &error(&tunnelled, 1400))), (2, 0, (1400 - 20 - between) as u16), "{mode}");
        assert_eq!(told(&lb.send(0, 6, &error(&tunnelled, 0))), (1, 3, 0), "{mode}");
        assert_eq!(told(&lb.send(0, 7, &error(&tunnelled, 600))), (2, 0, 1280), "{mode}: nobody sends less");
    }
}

/// RFC 4213 section 3.2.2: over an IPv4 path that carries less than 1,300 bytes, packets of up to 1,280 bytes are
/// fragmented, and the senders of longer ones are told.
#[test]
fn every_packet_that_ipv6_promises_goes_over_any_way_of_ipv4() {
    for (mode, between, _) in MODES {
        let mut lb = crossed(mode, "");
        let tunnelled = lb.send(1, 0, &segment(true, 1220).bytes()).only().1.to_vec();
        // The packet has 1,280 bytes: its sender cannot send less, and is not told.
        assert_eq!(lb.send(0, 1, &error(&tunnelled, 600)).dropped, Some("error_about_tunnel"), "{mode}");
        let sent = lb.send(1, 2, &segment(true, 1220).bytes()).sent;
        assert_eq!(sent.len(), 3, "{mode}");
        let mut carried = vec![0; between + 1280];
        for (port, piece) in &sent {
            assert!(*port == 0 && piece.len() <= 14 + 600, "{mode}");
            let from = usize::from(u16::from_be_bytes([piece[20], piece[21]]) & 0x1fff) * 8;
            let end = 14 + usize::from(u16::from_be_bytes([piece[16], piece[17]]));
            carried[from..from + end - 34].copy_from_slice(&piece[34..end]);
        }
        // Unchanged except for the hop limit.
        let client = segment(true, 1220).bytes();
        assert_eq!(
            (&carried[between..between + 7], &carried[between + 8..]),
            (&client[14..21], &client[22..]),
            "{mode}"
        );
        let outcome = lb.send(1, 3, &segment(true, 1221).bytes());
        assert_eq!((outcome.dropped, told(&outcome)), (Some("too_big"), (2, 0, 1280)), "{mode}");
    }
}

#[test]
fn pieces_and_errors_take_the_same_tunnel() {
    let mut lb = crossed("ipip", "mtu = 1400");
    // A piece that exceeds the tunnel's MTU and precedes the first fragment is fragmented again when it is released.
    let piece = |at: u16, more: bool, len: usize| {
        Frame::ip("192.0.2.8", "203.0.113.10", 17).fragment(9, at, more).payload(&vec![7; len]).bytes()
    };
    assert_eq!(lb.send(1, 0, &piece(175, false, 1400)).dropped, Some("fragment_held"));
    let first = Frame::udp(CLIENT, "203.0.113.10:53").payload(&[7; 1392]).fragment(9, 0, true).bytes();
    let sent = lb.send(1, 0, &first).sent;
    let ends: Vec<_> = sent
        .iter()
        .map(|(_, frame)| {
            let (outer, inner) = unwrap(frame, 0);
            assert_eq!(outer, "2001:db8::fe > 2001:db8:1::1 proto 4");
            let field = u16::from_be_bytes([inner[20], inner[21]]);
            (field & 0x1fff, field & 0x2000 != 0, inner.len() - 34)
        })
        .collect();
    let mut ends = ends;
    ends.sort();
    assert_eq!(ends, [(0, true, 1336), (167, true, 64), (175, true, 1336), (342, false, 64)]);
    let answer = Frame::tcp("203.0.113.10:80", CLIENT).bytes();
    let sent = lb.send(1, 1, &Frame::unreachable("198.18.0.9", "203.0.113.10", &answer).bytes());
    let (outer, inner) = unwrap(sent.only().1, 0);
    assert_eq!(outer, "2001:db8::fe > 2001:db8:1::1 proto 4");
    assert!(show::frame(&inner).starts_with("unreachable 198.18.0.9 > 203.0.113.10"));
}

/// One backend for services of both IP versions: they share its path MTU, each within its own minimum.
#[test]
fn a_backend_may_have_services_of_both_families() {
    let mut lb = bench(
        "router = '192.0.2.254'\nrouter_v6 = '2001:db8::fe'
        [[service]]\naddress = '203.0.113.10'\nmode = 'ipip'\nbackends = [{ address = '2001:db8:1::1' }]
        [[service]]\naddress = '2001:db8::10'\nmode = 'ipip'\nbackends = [{ address = '2001:db8:1::1' }]",
    );
    let tunnelled = lb.send(1, 0, &segment(false, 1300).bytes()).only().1.to_vec();
    lb.send(0, 1, &error(&tunnelled, 1280));
    assert_eq!(lb.send(1, 2, &segment(false, 1201).bytes()).dropped, Some("too_big"));
    assert_eq!(lb.send(1, 2, &segment(true, 1220).bytes()).ports(), [0], "1,280 bytes have room whatever is said");
    assert_eq!(lb.send(1, 2, &segment(true, 1221).bytes()).dropped, Some("too_big"));
}
