//! NAT64 tests: addresses by RFC 6052's table, headers compared with those of an independent library, damaged packets.

use braid_nf::packet::IpAddress;
use braid_nf::state::StateBuilder;
use braid_nf::{Instance, Stage};
use braid_testkit::{Bench, Frame, assert_checksums};
use etherparse::PacketBuilder;
use proptest::prelude::*;

use super::header::{self, Untranslatable};
use super::icmp::{self, Mtus};
use super::prefix::Prefix64;
use super::{Config, Nat64};
use crate::catalog::FromConfig;
use crate::config::parse;
use crate::parts::testing::injective;

fn build(text: &str) -> impl FnOnce(&mut StateBuilder) -> Box<dyn Stage> {
    let config: Config = parse(text.parse().unwrap()).unwrap();
    move |builder| {
        let nat = Nat64::from_config(config, builder.scope("nat64"), 2).expect("a configuration that works");
        Box::new(Instance::new("nat64", nat))
    }
}

fn bench(text: &str) -> Bench {
    Bench::with_sets(2, 1024, build(text))
}

const HOST: &str = "[2001:db8:1::5]:1100";
const SERVER: &str = "[64:ff9b::192.0.2.9]:80";
const EXTERNAL: &str = "198.51.100.1:1100";

#[track_caller]
fn check_address(prefix: &str, expected: &str) {
    let prefix = Prefix64::check(prefix.parse().unwrap()).unwrap();
    let (address, expected) = ([192, 0, 2, 33], expected.parse::<IpAddress>().unwrap());
    assert_eq!(prefix.embed(address), expected);
    assert_eq!(prefix.extract(expected), Some(address));
}

/// The table of RFC 6052 section 2.4.
#[test]
fn addresses_stand_where_the_table_of_the_rfc_has_them() {
    check_address("2001:db8::/32", "2001:db8:c000:221::");
    check_address("2001:db8:100::/40", "2001:db8:1c0:2:21::");
    check_address("2001:db8:122::/48", "2001:db8:122:c000:2:2100::");
    check_address("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::");
    check_address("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::");
    check_address("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33");
    check_address("64:ff9b::/96", "64:ff9b::192.0.2.33");
}

/// A datagram as an independent library writes it, over IPv6 and over IPv4.
fn both(payload: &[u8], hops: (u8, u8), id: u16) -> (Vec<u8>, Vec<u8>) {
    let link = || PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let (host, server) = (address("2001:db8:1::5"), address("64:ff9b::192.0.2.9"));
    let (mut v6, mut v4) = (Vec::new(), Vec::new());
    link().ipv6(host, server, hops.0).udp(1100, 80).write(&mut v6, payload).unwrap();
    let mut ip =
        etherparse::Ipv4Header::new(0, hops.1, etherparse::IpNumber::UDP, [198, 51, 100, 1], [192, 0, 2, 9]).unwrap();
    ip.dont_fragment = payload.len() + 28 > 1260;
    ip.identification = id;
    link().ip(etherparse::IpHeaders::Ipv4(ip, Default::default())).udp(1100, 80).write(&mut v4, payload).unwrap();
    (v6, v4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any payload a datagram leaves as an independent library would write it over IPv4, and its answer as over IPv6.
    /// The identification is the translator's own.
    #[test]
    fn headers_are_those_that_another_library_writes(payload in prop::collection::vec(any::<u8>(), 0..1440), hops in 2u8..) {
        let mut nat = bench("");
        let (v6, _) = both(&payload, (hops, hops - 1), 0);
        let sent = nat.send(0, 0, &v6);
        let (port, bytes) = sent.only();
        prop_assert_eq!(port, 1);
        let id = u16::from_be_bytes([bytes[18], bytes[19]]);
        let (_, expected) = both(&payload, (hops, hops - 1), id);
        prop_assert_eq!(bytes, &expected[..]);
        // In the other direction: addresses and ports are exchanged, which preserves the checksum. The TTL must not run
        // out, and longer packets that may be fragmented have a test of their own.
        let mut answer = expected;
        for at in 0..4 {
            answer.swap(26 + at, 30 + at);
        }
        for at in 0..2 {
            answer.swap(34 + at, 36 + at);
        }
        if hops > 2 && (answer[20] & 0x40 != 0 || payload.len() + 48 <= 1280) {
            let sent = nat.send(1, 0, &answer);
            let (port, bytes) = sent.only();
            prop_assert_eq!(port, 0);
            let (mut expected, _) = both(&payload, (hops - 2, 1), 0);
            for at in 0..16 {
                expected.swap(22 + at, 38 + at);
            }
            for at in 0..2 {
                expected.swap(54 + at, 56 + at);
            }
            prop_assert_eq!(bytes, &expected[..]);
        }
    }

    /// Whatever inside endpoints send in any order: no two share an external endpoint, each keeps its own, and a reply to
    /// it reaches the sender.
    #[test]
    fn mappings_are_injective_and_replies_come_back(sends in injective::sends()) {
        injective::check(&mut bench("first_port = 1024\nlast_port = 1279"), sends, |host, port, server| {
            let inside = format!("[2001:db8:1::{:x}]:{}", host + 1, 1030 + port);
            [inside, format!("[64:ff9b::c000:20{server}]:80"), format!("192.0.2.{server}:80")]
        })?;
    }

    /// Bytes that are not packets, and packets that are altered or truncated, are forwarded or dropped; nothing panics.
    #[test]
    fn damaged_packets_do_no_harm(flips in prop::collection::vec((0usize..120, any::<u8>()), 0..6), cut in 0usize..130) {
        let mut nat = bench("router_v6 = '2001:db8::1'");
        let sent = nat.send(0, 0, &Frame::udp(HOST, SERVER).payload(&[1; 20]).bytes());
        let back = Frame::udp("192.0.2.9:80", EXTERNAL).payload(&[2; 20]).bytes();
        let received = nat.send(1, 0, &back);
        let frames = [
            (0, Frame::tcp(HOST, SERVER).flags("S").bytes()),
            (0, Frame::udp(HOST, SERVER).payload(&[1; 20]).bytes()),
            (0, Frame::udp(HOST, SERVER).payload(&[1; 8]).fragment(3, 0, true).bytes()),
            (0, Frame::unreachable("2001:db8:1::5", "64:ff9b::192.0.2.9", received.only().1).bytes()),
            (0, Frame::echo_request("2001:db8:1::5", "64:ff9b::192.0.2.9", 5, 6).bytes()),
            (1, Frame::unreachable("203.0.113.9", "198.51.100.1", sent.only().1).bytes()),
            (1, back),
        ];
        for (port, mut frame) in frames {
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

#[test]
fn long_datagrams_that_may_be_cut_reach_the_smallest_links() {
    let mut nat = bench("");
    nat.send(0, 0, &Frame::udp(HOST, SERVER).bytes());
    let mut frame =
        Frame::udp("192.0.2.9:80", EXTERNAL).payload(&(0..1400u16).map(|n| n as u8).collect::<Vec<_>>()).bytes();
    // Clear the don't-fragment bit.
    frame[20] = 0;
    let sum = braid_nf::packet::checksum::ipv4_header(&[&frame[14..24], &[0, 0], &frame[26..34]].concat());
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let outcome = nat.send(1, 0, &frame);
    assert_eq!(outcome.ports(), [0, 0]);
    let mut datagram = Vec::<u8>::new();
    let mut pieces: Vec<_> = outcome.sent.iter().map(|(_, bytes)| bytes).collect();
    pieces.sort_by_key(|bytes| u16::from_be_bytes([bytes[56], bytes[57]]));
    for piece in &pieces {
        assert!(piece.len() - 14 <= 1280);
        assert_checksums(piece);
        let fields = u16::from_be_bytes([piece[56], piece[57]]);
        assert_eq!(usize::from(fields & !7), datagram.len());
        assert_eq!(piece[20], 44, "a fragment header");
        datagram.extend(&piece[62..]);
    }
    assert_eq!(pieces[0][57] & 1, 1, "more follow");
    assert_eq!(pieces[1][57] & 1, 0, "none follows");
    assert_eq!(datagram.len(), 1408);
    assert_eq!(&datagram[8..], &frame[42..]);
}

/// The offset of its last part would wrap to 0: a datagram of its own, to any port, which hosts take by itself (RFC 6946 section 4).
#[test]
fn no_piece_reaches_beyond_the_longest_datagram() {
    let mut nat = bench("");
    nat.send(0, 0, &Frame::udp(HOST, SERVER).bytes());
    let first = Frame::udp("203.0.113.66:7777", EXTERNAL).payload(&[1; 792]).fragment(9, 0, true).bytes();
    assert_eq!(nat.send(1, 0, &first).ports(), [0]);
    let later = |offset, len| {
        Frame::ip("203.0.113.66", "198.51.100.1", 17).payload(&vec![2; len]).fragment(9, offset, false).bytes()
    };
    let outcome = nat.send(1, 0, &later(64304 / 8, 1280));
    assert_eq!((outcome.ports(), outcome.dropped), (vec![], Some("malformed")));
    assert_eq!(nat.send(1, 0, &later(64304 / 8, 1211)).ports(), [0], "the end of the longest datagram");
}

#[test]
fn a_checksum_covers_what_a_datagram_says_that_it_has() {
    let mut nat = bench("");
    nat.send(0, 0, &Frame::udp(HOST, SERVER).bytes());
    let datagram = [&[0, 80, 4, 76, 0, 20, 0, 0][..], b"hello world!", b"SURPLUS!"].concat();
    let sent = nat.send(1, 0, &Frame::ip("192.0.2.9", "198.51.100.1", 17).payload(&datagram).bytes());
    let frame = sent.only().1;
    let address = |at: usize| IpAddress::from_v6(<[u8; 16]>::try_from(&frame[at..at + 16]).unwrap());
    assert_eq!(frame.len(), 54 + 28);
    assert!(braid_nf::packet::checksum::transport_ok(address(22), address(38), 17, &frame[54..74]));
}

/// An IPv6 header, extension headers of which `first` is the first, and a UDP header.
fn with_extensions(first: u8, extensions: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0, 0, (extensions.len() + 8) as u8, first, 64];
    ip.extend([0; 32]);
    ip.extend(extensions);
    ip.extend([4, 76, 0, 53, 0, 8, 0, 0]);
    ip
}

#[test]
fn untranslatable_headers_are_refused() {
    let ends = ([198, 51, 100, 1], [192, 0, 2, 9]);
    let to_v4 = |first, extensions: &[u8]| header::to_v4(&with_extensions(first, extensions), ends, 1, 0);
    let options = [17, 0, 1, 4, 0, 0, 0, 0];
    assert_eq!(to_v4(60, &options).unwrap().replaces, 48, "destination options are left out");
    assert_eq!(to_v4(43, &[17, 0, 0, 0, 0, 0, 0, 0]).unwrap().replaces, 48, "a route that was gone to its end");
    assert_eq!(to_v4(43, &[17, 0, 0, 1, 0, 0, 0, 0]).unwrap_err(), Untranslatable::SourceRoute(43));
    assert_eq!(to_v4(51, &[17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap_err(), Untranslatable::Extension);
    assert_eq!(to_v4(44, &[[60, 0, 0, 1, 0, 0, 0, 1], options].concat()).unwrap_err(), Untranslatable::Extension);
    let with_option = |option: [u8; 4]| {
        let mut ip = vec![0x46, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 9, 198, 51, 100, 1];
        ip.extend(option);
        ip.extend([0; 8]);
        let ends = (IpAddress::UNSPECIFIED, IpAddress::UNSPECIFIED);
        header::to_v6(&ip, ends, 1, 1280).map(|header| (header.replaces, header.carried))
    };
    assert_eq!(with_option([148, 4, 0, 0]), Ok((24, 8)), "a router alert is left out");
    assert_eq!(with_option([131, 3, 4, 0]), Ok((24, 8)), "a route that was gone to its end");
    assert_eq!(with_option([131, 3, 3, 0]), Err(Untranslatable::SourceRoute(0)));
    assert_eq!(with_option([137, 3, 2, 0]), Err(Untranslatable::SourceRoute(0)));
}

/// RFC 7915 figures 3 and 6.
#[test]
fn pointers_are_those_of_the_tables() {
    let mtus = Mtus { v4: 1500, v6: 1500 };
    let to_v6 = |pointer: u32| icmp::to_v6((12, 0, pointer << 24), 100, mtus).map(|(_, _, pointer)| pointer);
    let expected = [(0, 0), (1, 1), (2, 4), (3, 4), (8, 7), (9, 6), (12, 8), (15, 8), (16, 24), (19, 24)];
    for pointer in 0..24 {
        let found = expected
            .iter()
            .find(|(from, _)| *from == pointer || matches!((*from, pointer), (12, 13 | 14) | (16, 17 | 18)));
        assert_eq!(to_v6(pointer), found.map(|(_, to)| *to), "{pointer}");
    }
    let to_v4 = |pointer: u32| icmp::to_v4((4, 0, pointer), mtus).map(|(_, _, word)| word >> 24);
    for (range, expected) in
        [(0..1, Some(0)), (1..2, Some(1)), (2..4, None), (4..6, Some(2)), (6..7, Some(9)), (7..8, Some(8))]
    {
        assert!(range.clone().all(|pointer| to_v4(pointer) == expected), "{range:?}");
    }
    for (range, expected) in [(8..24, Some(12)), (24..40, Some(16)), (40..99, None)] {
        assert!(range.clone().all(|pointer| to_v4(pointer) == expected), "{range:?}");
    }
    // A router that reports no MTU: the next lower plateau applies (RFC 1191 section 7).
    assert_eq!(icmp::to_v6((3, 4, 0), 1500, mtus), Some((2, 0, 1500)));
    assert_eq!(icmp::to_v6((3, 4, 0), 1492, mtus), Some((2, 0, 1280)));
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    let mut found = String::new();
    Bench::new(2, |builder| {
        let made =
            parse(text.parse().unwrap()).and_then(|config| Nat64::from_config(config, builder.scope("nat64"), 2));
        found = made.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let nat = made.or_else(|_| Nat64::from_config(Config::default(), builder.scope("default"), 2)).unwrap();
        Box::new(Instance::new("nat64", nat))
    });
    assert!(found.starts_with(expected), "{found}");
}

#[test]
fn configurations_that_cannot_work_are_refused_with_what_to_write() {
    check_error(
        "prefix = '2001:db8::/80'",
        "`prefix`: 2001:db8::/80 can hold no IPv4 addresses; write an IPv6 prefix of 32",
    );
    check_error("prefix = '2001:db8:0:0:100::/96'", "`prefix`: 2001:db8:0:0:100::/96 has bits from 64 to 71");
    check_error(
        "prefix = '64:ff9b:1::/96'\nprivate = 'pass'",
        "`private`: behind another prefix than 64:ff9b::/96 private addresses are reached anyway; leave it out",
    );
    check_error("inside = ['10.0.0.0/8']", "`inside`: 10.0.0.0/8 is not IPv6");
    check_error("inside = ['64:ff9b::/96']", "`inside`: all of it lies behind the prefix, and nobody sends from there");
    check_error("router_v6 = '64:ff9b::1'", "`router_v6`: 64:ff9b::1 lies behind the prefix");
    let fixed = "static = [{ protocol = 'tcp', external = '198.51.100.1:8080', inside = '[2001:db8::5]:0' }]";
    check_error(fixed, "`static[0]`: [2001:db8::5]:0 has no port");
    let nobody =
        "`for_router`: `router`, 192.0.0.8, is no external address, so nothing comes for it here; write as `router`";
    check_error("for_router = ['echo']", nobody);
    check_error("allocation = 'deterministic'", "`allocation`: IPv6 hosts are too many");
    check_error("inside = ['2001:db8::/32', '2001:db8:1::/48']", "`inside`: 2001:db8:1::/48 lies in 2001:db8::/32");
    check_error("mtu_v6 = 576", "`mtu_v6`: 576 is out of range; write 1280 to 9216");
    check_error("subscriber_bits = 0", "`subscriber_bits`: 0 is no length of a prefix");
    check_error("external = []", "`external`: names no address");
    let fixed = "static = [{ protocol = 'tcp', external = '198.51.100.1:8080', inside = '[64:ff9b::1]:80' }]";
    check_error(fixed, "`static[0]`: 64:ff9b::1 is not inside");
    check_error("prefix = 'ff00::/96'", "`prefix`: ff00::/96 is no prefix of hosts; write one that is routed");
    check_error("inside = []", "`inside`: names no range; write for example");
    check_error("lowest_mtu_v6 = 1500\nmtu_v6 = 1400", "`lowest_mtu_v6`: 1500 is more than `mtu_v6`, 1400; write");
    check_error("router_v6 = '::1'", "`router_v6`: ::1 is no host's address beyond its link");
    check_error("block_size = 64", "`block_size`: says nothing as ports are given to hosts");
    check_error("prefx = 1", "`prefx`: no such key; did you mean `prefix`?");
}

#[test]
fn a_mapping_takes_as_much_as_one_of_nat() {
    use braid_nf::Declare;
    use braid_nf::state::{Domain, HugePages, StateBuilder};
    let mut builder = StateBuilder::new(&Domain::new(2), HugePages::Never);
    let nat = Nat64::from_config(Config::default(), builder.scope("nat64"), 2).unwrap();
    let mappings = nat.objects().into_iter().find(|object| object.name() == "nat64.mappings").unwrap();
    assert_eq!(mappings.memory_bytes() / mappings.capacity(), 96, "what the README says");
    assert_eq!(size_of::<super::Session>(), 48);
}

#[test]
fn hosts_that_are_inside_no_more_lose_their_mappings_and_others_keep_theirs() {
    let text = |ranges: &str| format!("first_port = 1024\nlast_port = 1279\nmappings_max = 2000\ninside = [{ranges}]");
    let mut nat = bench(&text("'2001:db8:1::/48', '2001:db8:2::/48'"));
    let host = |n: u8| format!("[2001:db8:{n}::5]:1100");
    let to = |bench: &mut Bench, ms: u64, n: u8| {
        let sent = bench.send(0, ms, &Frame::udp(&host(n), SERVER).bytes());
        sent.dropped.map_or_else(|| u16::from_be_bytes([sent.only().1[34], sent.only().1[35]]), |_| 0)
    };
    let ports = [1, 2].map(|n| to(&mut nat, 0, n));
    let mut nat = nat.succeeded(build(&text("'2001:db8:2::/48'")));
    for n in 1..=250 {
        nat.send(0, 10 * n, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    }
    let mut answer =
        |port: u16| nat.send(1, 2600, &Frame::udp("192.0.2.9:80", &format!("198.51.100.1:{port}")).bytes());
    assert_eq!(answer(ports[0]).dropped, Some("no_mapping"));
    assert_eq!(answer(ports[1]).ports(), [0]);
    // A flow checks its mapping again within `refresh_ms`.
    assert_eq!([1, 2].map(|n| to(&mut nat, 31_000, n)), [0, ports[1]]);
}
