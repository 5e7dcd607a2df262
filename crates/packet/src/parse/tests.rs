//! Tests of the parser against an independent slow one, and against etherparse.

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::testing::{Spec, Transport, Wrap, noise, specs};

/// What `parse` should find according to the conventions for flows: an independent slow parser without eight-bit offsets.
fn oracle(b: &[u8], link: Link) -> Option<(usize, usize, u8, bool)> {
    let half = |at: usize| Some(u16::from(*b.get(at)?) << 8 | u16::from(*b.get(at + 1)?));
    let (mut kind, mut o) = match link {
        Link::Ethernet => (half(12)?, 14),
        Link::RawIp => (if b.first()? >> 4 == 4 { 0x0800 } else { 0x86dd }, 0),
        Link::Cooked1 => (half(14)?, 16),
        Link::Cooked2 => (half(0)?, 20),
        Link::Loopback => match *[b.first()?, b.get(3)?].into_iter().max()? {
            2 => (0x0800, 4),
            10 | 24 | 28 | 30 => (0x86dd, 4),
            _ => return None,
        },
        Link::Ppp => ppp(b, if b.starts_with(&[255, 3]) { 2 } else { 0 })?,
        Link::Hdlc => (half(2)?, 4),
        Link::Other => return None,
    };
    let llc = |kind: u16, o: usize| {
        let snap = kind < 0x600 && b.get(o..o + 6) == Some(&[0xaa, 0xaa, 3, 0, 0, 0]);
        if snap && b.len() >= o + 8 { (u16::from(b[o + 6]) << 8 | u16::from(b[o + 7]), o + 8) } else { (kind, o) }
    };
    (kind, o) = llc(kind, o);
    while [0x8100, 0x88a8, 0x9100].contains(&kind) {
        (kind, o) = (half(o + 2)?, o + 4);
    }
    (kind, o) = llc(kind, o);
    if [0x8847, 0x8848].contains(&kind) {
        loop {
            o += 4;
            if b.get(o - 2)? & 1 == 1 {
                break;
            }
        }
        kind = match b.get(o)? >> 4 {
            4 => 0x0800,
            6 => 0x86dd,
            0 if b.len() > o + 18 => {
                (kind, o) = (half(o + 16)?, o + 18);
                while [0x8100, 0x88a8, 0x9100].contains(&kind) {
                    (kind, o) = (half(o + 2)?, o + 4);
                }
                kind
            }
            _ => return None,
        };
    }
    if kind == 0x8864 {
        (kind, o) = ppp(b, o + 6)?;
    }
    match kind {
        0x0800 => oracle_v4(b, o),
        0x86dd => oracle_v6(b, o),
        _ => None,
    }
}

/// What the PPP protocol number at `o` says comes next, and where.
fn ppp(b: &[u8], o: usize) -> Option<(u16, usize)> {
    let o = if *b.get(o)? == 0 { o + 1 } else { o };
    [(0x21, 0x0800), (0x57, 0x86dd)].into_iter().find(|pair| b.get(o) == Some(&pair.0)).map(|pair| (pair.1, o + 1))
}

fn oracle_v4(b: &[u8], o: usize) -> Option<(usize, usize, u8, bool)> {
    let header = usize::from(b.get(o)? & 15) * 4;
    if b[o] >> 4 != 4 || header < 20 || b.len() < o + 20 {
        return None;
    }
    Some((o, o + header, b[o + 9], b[o + 6] & 0x1f == 0 && b[o + 7] == 0))
}

fn oracle_v6(b: &[u8], o: usize) -> Option<(usize, usize, u8, bool)> {
    if b.get(o)? >> 4 != 6 || b.len() < o + 40 {
        return None;
    }
    let (mut proto, mut h, mut first) = (b[o + 6], o + 40, true);
    while [0, 43, 44, 60, 51, 135, 139, 140].contains(&proto) {
        let next = *b.get(h)?;
        let units = usize::from(*b.get(h + 1)?);
        match proto {
            44 => {
                first = u16::from(*b.get(h + 2)?) << 8 | u16::from(*b.get(h + 3)?) & 0xfff8 == 0;
                h += 8;
            }
            51 => h += (units + 2) * 4,
            _ => h += (units + 1) * 8,
        }
        proto = next;
        // The parser's only limit: it does not reach what is more than 1020 bytes away.
        if h - o > 1020 {
            return Some((o, o, proto, first));
        }
        if !first {
            break;
        }
    }
    Some((o, h, proto, first))
}

#[track_caller]
fn check(wrap: Wrap, src: &str, options: usize) {
    let spec = Spec { wrap, options, ..Spec::new(src, src, (1, 2), Transport::Udp) };
    let (frame, link) = spec.frame();
    let parsed = parse(&frame, link);
    assert!(parsed.flags.has(Flags::IP));
    assert_eq!(parsed.flags.has(Flags::V6), !spec.src.is_v4());
    assert_eq!((parsed.l3 as usize, parsed.proto), (spec.l3(), 17));
    assert_eq!(parsed.l4 as usize * 4, frame.len() - spec.l3() - 8 - 5);
    assert!(!parsed.flags.has(Flags::SHORT | Flags::FRAGMENT));
    assert_eq!(parsed.flags.link(), link);
}

#[test]
fn ip_is_found_behind_every_wrapping() {
    use Wrap::*;
    for wrap in [Plain, Vlan, QinQ, Mpls, Pppoe, Snap, Raw, Cooked1, Cooked2, Loopback, Ppp, Hdlc] {
        for options in [0, 1, 3] {
            check(wrap, "10.0.0.1", options);
            check(wrap, "2001:db8::1", options);
        }
    }
}

fn plain(src: &str) -> Vec<u8> {
    Spec::new(src, src, (1, 2), Transport::Udp).frame().0
}

#[track_caller]
fn check_flags(frame: &[u8], bits: u8) {
    assert_eq!(parse(frame, Link::Ethernet).flags.0 & !7, bits);
}

#[test]
fn fragments_are_told_apart() {
    let mut frame = plain("10.0.0.1");
    for (bytes, bits) in [
        ([0x40, 0], 0),
        ([0x20, 0], Flags::FRAGMENT),
        ([0x20, 1], Flags::FRAGMENT | Flags::LATER_FRAGMENT),
        ([0, 1], Flags::FRAGMENT | Flags::LATER_FRAGMENT),
        ([0x80, 0], 0),
    ] {
        frame[20..22].copy_from_slice(&bytes);
        check_flags(&frame, Flags::IP | bits);
    }
}

#[test]
fn a_later_fragment_of_ipv6_ends_the_walk() {
    let mut frame = plain("2001:db8::1");
    frame[20] = 44;
    // In a first fragment, next header 60 would be walked.
    frame[54..58].copy_from_slice(&[60, 0, 0, 8]);
    let parsed = parse(&frame, Link::Ethernet);
    assert_eq!((parsed.proto, parsed.l4), (60, 12));
    assert!(parsed.flags.has(Flags::LATER_FRAGMENT));
}

#[test]
fn a_fragment_header_around_a_whole_datagram_makes_no_fragment() {
    let mut frame = plain("2001:db8::1");
    frame[20] = 44;
    for (field, flags) in [(0, 0), (1, Flags::FRAGMENT), (8, Flags::FRAGMENT | Flags::LATER_FRAGMENT)] {
        frame[54..58].copy_from_slice(&[17, 0, 0, field]);
        let parsed = parse(&frame, Link::Ethernet);
        assert_eq!((parsed.proto, parsed.l4), (17, 12));
        let found = [Flags::FRAGMENT, Flags::LATER_FRAGMENT].map(|flag| parsed.flags.has(flag));
        assert_eq!(found, [Flags::FRAGMENT, Flags::LATER_FRAGMENT].map(|flag| flags & flag != 0), "{field}");
    }
}

#[test]
fn what_is_cut_is_short() {
    let frame = plain("10.0.0.1");
    check_flags(&frame[..frame.len() - 1], Flags::IP | Flags::SHORT);
    check_flags(&frame[..33], Flags::SHORT);
    check_flags(&frame[..13], Flags::SHORT);
    let frame = plain("2001:db8::1");
    check_flags(&frame[..frame.len() - 1], Flags::IP | Flags::V6 | Flags::SHORT);
    check_flags(&frame[..53], Flags::SHORT);
}

#[test]
fn headers_longer_than_the_packet_says_are_short() {
    let mut frame = Spec { options: 2, ..Spec::new("10.0.0.1", "10.0.0.2", (1, 2), Transport::Udp) }.frame().0;
    frame[16..18].copy_from_slice(&[0, 27]);
    check_flags(&frame, Flags::IP | Flags::SHORT);
    let mut frame = Spec { options: 2, ..Spec::new("2001:db8::1", "2001:db8::2", (1, 2), Transport::Udp) }.frame().0;
    frame[18..20].copy_from_slice(&[0, 15]);
    check_flags(&frame, Flags::IP | Flags::V6 | Flags::SHORT);
    frame[18..20].copy_from_slice(&[0, 16]);
    check_flags(&frame, Flags::IP | Flags::V6);
}

#[test]
fn what_is_not_ip_is_not_short() {
    let mut frame = plain("10.0.0.1");
    frame[13] = 6;
    check_flags(&frame, 0);
    let mut frame = plain("10.0.0.1");
    frame[14] = 0x44;
    check_flags(&frame, 0);
}

#[test]
fn an_ethernet_pseudowire_is_entered() {
    let inner = plain("10.0.0.1");
    let frame = [&inner[..12], &[0x88, 0x47, 0, 1, 1, 64, 0, 0, 0, 0], &inner].concat();
    assert_eq!(parse(&frame, Link::Ethernet).l3, 14 + 4 + 4 + 14);
}

#[test]
fn a_frame_within_a_pseudowire_may_have_tags() {
    let inner = plain("10.0.0.1");
    let tagged = [&inner[..12], &[0x81, 0, 0, 5], &inner[12..]].concat();
    let frame = [&inner[..12], &[0x88, 0x47, 0, 1, 1, 64, 0, 0, 0, 0], &tagged].concat();
    assert_eq!(parse(&frame, Link::Ethernet).l3, 14 + 4 + 4 + 18);
}

#[test]
fn a_ppp_protocol_number_may_have_one_byte() {
    for (source, number) in [("10.0.0.1", 0x21), ("2001:db8::1", 0x57)] {
        let packet = plain(source);
        let session = [&packet[..12], &[0x88, 0x64, 0x11, 0, 0, 1, 0, 0, number], &packet[14..]].concat();
        let parsed = parse(&session, Link::Ethernet);
        assert!(parsed.l3 == 21 && parsed.flags.has(Flags::IP), "{source} within PPPoE");
        for (header, at) in [(&[number][..], 1), (&[0xff, 3, number], 3)] {
            let parsed = parse(&[header, &packet[14..]].concat(), Link::Ppp);
            assert!(parsed.l3 == at && parsed.flags.has(Flags::IP), "{source} behind {header:?}");
        }
    }
}

#[test]
fn an_ip_header_too_far_away_is_not_parsed() {
    let inner = plain("10.0.0.1");
    let frame = [&inner[..12], &[0x81, 0, 0, 1].repeat(61), &inner[12..]].concat();
    assert_eq!(parse(&frame, Link::Ethernet).flags.0 & !7, 0);
    let frame = [&inner[..12], &[0x81, 0, 0, 1].repeat(60), &inner[12..]].concat();
    assert_eq!(parse(&frame, Link::Ethernet).l3, 254);
}

#[test]
fn a_chain_of_extensions_too_long_has_no_transport() {
    let spec = Spec { options: 200, ..Spec::new("2001:db8::1", "2001:db8::2", (1, 2), Transport::Udp) };
    let parsed = parse(&spec.frame().0, Link::Ethernet);
    assert!(parsed.flags.has(Flags::IP));
    assert_eq!((parsed.l4, parsed.proto), (0, 60));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn well_formed_packets_are_parsed_as_they_were_written(spec in specs()) {
        let (frame, link) = spec.frame();
        let parsed = parse(&frame, link);
        prop_assert!(parsed.flags.has(Flags::IP) && !parsed.flags.has(Flags::SHORT));
        prop_assert_eq!(parsed.l3 as usize, spec.l3());
    }

    #[test]
    fn any_bytes_are_parsed_by_the_conventions_for_flows((frame, link) in noise()) {
        let parsed = parse(&frame, link);
        let found = parsed.flags.has(Flags::IP).then(|| {
            let l3 = parsed.l3 as usize;
            (l3, l3 + parsed.l4 as usize * 4, parsed.proto, !parsed.flags.has(Flags::LATER_FRAGMENT))
        });
        prop_assert_eq!(found, oracle(&frame, link));
    }

    #[test]
    fn the_common_way_finds_what_the_long_way_finds(
        frames in prop::collection::vec(prop_oneof![noise(), specs().prop_map(|spec| spec.frame())], 1..8),
    ) {
        let batch = crate::testing::batch(&frames, crate::Layout::bare());
        for ((frame, link), record) in frames.iter().zip(batch.records()) {
            let slowly = parse_any(frame, *link);
            prop_assert_eq!(parse(frame, *link), slowly);
            let in_batch = Parsed { l3: record.l3, l4: record.l4, proto: record.proto, flags: record.flags };
            prop_assert_eq!(in_batch, slowly);
        }
    }

    #[test]
    fn etherparse_finds_the_same_addresses(spec in specs()) {
        let ip = spec.ip_packet();
        let sliced = etherparse::SlicedPacket::from_ip(&ip).unwrap();
        let (src, dst): (IpAddr, IpAddr) = match sliced.net.unwrap() {
            etherparse::NetSlice::Ipv4(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
            etherparse::NetSlice::Ipv6(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
            etherparse::NetSlice::Arp(_) => unreachable!("built as IP"),
        };
        let batch = crate::testing::single(&ip, Link::RawIp);
        let extracted = crate::KeyExtractor::compile(&crate::SetDef::five_tuple()).unwrap().extract(&batch.records()[0], &ip);
        prop_assert!(extracted.is_some());
        prop_assert_eq!((IpAddr::from(spec.src), IpAddr::from(spec.dst)), (src, dst));
    }
}
