//! Ethernet addresses, options of TCP and IPv4, and other header fields: as written in rules, and as read from frames.

use braid_testkit::Frame;

use super::conditions::{SEEN, Seen, fits};
use super::rules::{PORTS, named, read_text};
use crate::firewall::When;
use crate::firewall::conditions::fields::{Field, NO_STATION};

const STATIONS: [u64; 5] = [0x0053_0000_0001, 0x0053_0000_0002, 0x0053_0100_0000, 0x0100_5e00_0001, NO_STATION];

/// For the stations above, the last of which is absent: a frame without an Ethernet header matches nothing, as in
/// nftables.
#[test]
fn ethernet_addresses_are_asked_for_in_all_ways() {
    for (condition, expected) in [
        ("00:53:00:00:00:01", [true, false, false, false, false]),
        ("!= 00:53:00:00:00:01", [false, true, true, true, false]),
        ("{ 00:53:00:00:00:01, 0:53:0:0:0:2 }", [true, true, false, false, false]),
        ("!= { 00:53:00:00:00:01, 00:53:00:00:00:02 }", [false, false, true, true, false]),
        ("00:53:00:00:00:00-00:53:00:ff:ff:ff", [true, true, false, false, false]),
        ("& ff:ff:ff:00:00:00 == 00:53:00:00:00:00", [true, true, false, false, false]),
        ("and ff:ff:ff:00:00:00 != 00:53:00:00:00:00", [false, false, true, true, false]),
        ("& 01:00:00:00:00:00 == 00:00:00:00:00:00", [true, true, true, false, false]),
        ("& 01:00:00:00:00:00 == 01:00:00:00:00:00", [false, false, false, true, false]),
        ("& ff:ff:ff:00:00:00 . tcp dport { 00:53:00:00:00:00 . 80 }", [true, true, false, false, false]),
        (
            "& ff:ff:ff:00:00:00 vmap { 00:53:00:00:00:00 : accept, 01:00:5e:00:00:00 : drop };",
            [true, true, false, false, false],
        ),
        ("00:53:00:00:00:00/24", [true, true, false, false, false]),
        ("{ 00:53:01:00:00:00/40, 00:53:00:00:00:00/47 }", [true, false, true, false, false]),
        ("vmap { 00:53:00:00:00:01 : accept, 01:00:5e:00:00:01 : accept };", [true, false, false, true, false]),
        (
            ". ip saddr { 00:53:00:00:00:01 . 10.0.0.1, 00:53:00:00:00:02 . 10.0.0.2 }",
            [true, false, false, false, false],
        ),
        (". ip saddr . tcp dport { 00:53:01:00:00:00 . 10.0.0.0/24 . 80-90 }", [false, false, true, false, false]),
    ] {
        let text = condition
            .strip_suffix(';')
            .map_or(format!("ether saddr {condition}"), |map| format!("ether saddr {map}; meta length 1"));
        let seen =
            STATIONS.map(|from| fits(&text, Seen { fields: SEEN.fields.with(Field::EtherSource, from), ..SEEN }));
        assert_eq!(seen, expected, "{text}");
    }
    let to = Seen { fields: SEEN.fields.with(Field::EtherDestination, STATIONS[0]), ..SEEN };
    assert!(fits("ether daddr 00:53:00:00:00:01", to) && !fits("ether saddr 00:53:00:00:00:01", to));
}

/// As translated by `nft --debug=netlink` 1.0.6: `missing` also holds for packets that are not TCP.
#[test]
fn options_of_tcp_are_there_or_are_not() {
    let with = |kinds: u64| Seen { fields: SEEN.fields.with(Field::TcpOptions, kinds), ..SEEN };
    let udp = Seen { protocol: 17, ..SEEN };
    for (condition, expected) in [
        ("tcp option maxseg exists", [false, true, true, false]),
        ("tcp option mss missing", [true, false, false, true]),
        ("tcp option sack-perm exists", [false, false, true, false]),
        ("tcp option sack-perm exists tcp option maxseg exists", [false, false, true, false]),
        ("tcp option 4 missing tcp option 2 exists", [false, true, false, false]),
        ("tcp option timestamp != exists", [true, true, true, true]),
    ] {
        let seen = [with(0), with(1 << 2), with(1 << 2 | 1 << 4), udp].map(|seen| fits(condition, seen));
        assert_eq!(seen, expected, "{condition}");
    }
    for (condition, expected) in [
        ("tcp option maxseg size < 536", [true, false, false]),
        ("tcp option maxseg size != 1-535", [false, true, false]),
        ("tcp flags syn tcp option mss size { 1460, 8960 }", [false, true, false]),
    ] {
        let of = |size: u64| Seen { fields: SEEN.fields.with(Field::SegmentSize, size), ..SEEN };
        let seen = [of(500), of(1460), SEEN].map(|seen| fits(condition, seen));
        assert_eq!(seen, expected, "{condition}");
    }
}

/// The right checksum of the IPv4 header in a frame.
pub(super) fn sum(frame: &[u8]) -> u16 {
    let mut header = frame[14..14 + usize::from(frame[14] & 15) * 4].to_vec();
    header[10..12].fill(0);
    braid_nf::packet::checksum::ipv4_header(&header)
}

/// Fields as read from frames.
#[test]
fn headers_are_read_as_they_stand() {
    let decides = |rules: &str, bytes: &[u8]| {
        let mut config = named();
        read_text(rules, &mut config, PORTS).expect("rules");
        let mut bytes = bytes.to_vec();
        if bytes[14] >> 4 == 4 {
            let sum = sum(&bytes);
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        let page = crate::firewall::explain(config, 2, (0, &bytes), When::Utc(0)).expect("a packet");
        (1..9).find(|line| page.contains(&format!("line {line} of the rule file decides")))
    };
    let syn = Frame::tcp("10.0.0.1:5", "192.0.2.9:6").flags("S").bytes();
    // 20 more bytes of options: the segment size, the end of the list, an option after it that still counts, and one that
    // exceeds the header.
    let options = [2, 4, 0x05, 0xb4, 0, 4, 2, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 5, 10];
    let mut longer = syn.clone();
    longer.splice(54..54, options);
    longer[46] = 10 << 4;
    longer[16..18].copy_from_slice(&60u16.to_be_bytes());
    let kinds = "tcp option sack exists drop\ntcp option maxseg size 1460 tcp option timestamp exists tcp option sack-perm exists accept\n\
                 tcp option maxseg missing accept";
    assert_eq!(decides(kinds, &longer), Some(2));
    assert_eq!(decides(kinds, &syn), Some(3));

    let udp = Frame::udp("10.0.0.1:5", "192.0.2.9:6").payload(b"hello").bytes();
    assert_eq!(decides("udp length 13 ip hdrlength 5 ip option rr missing accept", &udp), Some(1));
    let mut routed = udp.clone();
    // A loose source route of three bytes, and one byte of padding.
    routed.splice(34..34, [131, 3, 4, 1]);
    routed[14] = 0x46;
    routed[16..18].copy_from_slice(&37u16.to_be_bytes());
    routed[18..20].copy_from_slice(&77u16.to_be_bytes());
    assert_eq!(decides("ip option ssrr exists drop\nip option lsrr exists ip hdrlength > 5 accept", &routed), Some(2));
    let named = format!("ip id 76 drop\nip id 77 ip checksum {} accept", sum(&routed));
    assert_eq!(decides(&named, &routed), Some(2));

    let mut from = udp;
    from[..12].copy_from_slice(&[0x01, 0, 0x5e, 0, 0, 1, 0, 0x53, 0, 0, 0, 1]);
    let stations = "ether daddr & 01:00:00:00:00:00 == 00:00:00:00:00:00 drop\nether saddr 00:53:00:00:00:01 accept";
    assert_eq!(decides(stations, &from), Some(2));
}

/// Packets that have the fields but match no element; a packet that matches one continues with the next rule.
#[test]
fn joined_fields_may_be_other_than_all_of_a_set() {
    let at = |port: u16| Seen { ports: (1100, port), ..SEEN };
    let udp = Seen { protocol: 17, ..SEEN };
    let v6 = Seen { v4: false, ..SEEN };
    for (condition, expected) in [
        ("ip saddr . tcp dport != { 10.0.0.1 . 80, 10.0.0.2 . 443 }", [false, true, false, false]),
        ("ip saddr . tcp dport != { 10.0.0.1 . 1-79, 10.0.0.1 . 443-444 }", [true, false, false, false]),
        ("ip saddr . tcp dport != 10.0.0.1 . 80", [false, true, false, false]),
        ("meta nfproto . tcp dport != { ipv4 . 80 }", [false, true, false, true]),
        ("counter ip saddr . tcp dport != { 10.0.0.1 . 80 } ip ttl 64 counter", [false, true, false, false]),
        ("ip saddr . meta l4proto != { 10.0.0.1 . udp }", [true, true, false, false]),
        ("ip daddr 10.0.1.1 ip saddr . ip daddr != { 10.0.0.1 . 10.0.2.0/24 }", [true, true, true, false]),
    ] {
        let seen = [at(80), at(443), udp, v6].map(|seen| fits(condition, seen));
        assert_eq!(seen, expected, "{condition}");
    }
    let jump = "ip saddr . tcp dport != { 10.0.0.1 . 80 } drop; meta length 100";
    assert!(fits(jump, at(80)) && !fits(jump, at(443)) && fits(jump, udp));
}

#[test]
fn headers_that_are_none_are_refused() {
    for (rule, reason) in [
        ("ether saddr 00:53:00:00:00 drop", "`00:53:00:00:00` is not an Ethernet address"),
        ("ether saddr & 00:53 == 00:53:00:00:00:00 drop", "`00:53` is not an Ethernet address"),
        ("ether length 5 drop", "`length` is nothing of an Ethernet header"),
        ("tcp option 64 exists drop", "`64` is no option of TCP"),
        ("tcp option sack left 5 drop", "`left` is nothing that an option"),
        ("ip option ts exists drop", "`ts` is no option of IPv4"),
        ("ip6 id 5 drop", "`id` of an IP header is not looked at"),
    ] {
        let error = read_text(rule, &mut named(), PORTS).expect_err(rule).to_string();
        assert!(error.contains(reason), "{error}");
    }
}
