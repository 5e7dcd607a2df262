//! The conditions of rule files: every spelling is compared with a model of its meaning, written independently of the
//! reader.

use proptest::prelude::*;

use super::rules::{PORTS, named, read_text};
use crate::firewall::When;
use crate::firewall::conditions::facts::Facts;
use crate::firewall::conditions::fields::{Field, UNTAGGED, Values};
use crate::firewall::conditions::values::Addresses;
use crate::firewall::config::Config;
use crate::firewall::connection::states::State;
use crate::firewall::policy::Policy;
use crate::firewall::rules::Action;
use crate::parts::Side;
use braid_testkit::Frame;

/// The properties of a test packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) v4: bool,
    pub(super) protocol: u8,
    pub(super) ports: (u16, u16),
    pub(super) flags: u8,
    pub(super) fields: Values,
}

pub(super) const SEEN: Seen = Seen { v4: true, protocol: 6, ports: (1100, 80), flags: 2, fields: FIELDS };

const FIELDS: Values = Values::NONE
    .with(Field::Length, 100)
    .with(Field::Ttl, 64)
    .with(Field::NextHeader, 6)
    .with(Field::SourcePort, 1100)
    .with(Field::DestinationPort, 80);

/// Whether a condition matches a packet.
pub(super) fn fits(condition: &str, seen: Seen) -> bool {
    let text = format!(
        "table inet t {{ chain f {{ type filter hook forward priority 0; policy drop; {condition} accept; }} }}"
    );
    let mut config = Config { ..named() };
    read_text(&text, &mut config, PORTS).unwrap_or_else(|error| panic!("{condition}: {error}"));
    let policy = Policy::check(&mut config, PORTS).expect("rules that were checked");
    let [source, destination] = if seen.v4 { ["10.0.0.1", "10.0.1.1"] } else { ["2001:db8::1", "2001:db8::2"] };
    let fields = seen.fields.with(Field::TcpFlags, seen.flags.into());
    let address = |text: &str| text.parse::<Addresses>().expect("an address").first;
    let facts = Facts {
        source: address(source),
        destination: address(destination),
        source_port: seen.ports.0,
        destination_port: seen.ports.1,
        protocol: seen.protocol,
        flags: seen.flags,
        port: 0,
        side: Side::Inside,
        state: State::New,
        opening: [0; 2],
        fields: &fields,
    };
    let Ok((_, action)) = policy.decide(&facts, |_| Ok::<_, std::convert::Infallible>(true));
    action == Action::Allow
}

/// The TCP flags that each spelling lets through, as translated by `nft --debug=netlink` 1.0.6.
#[test]
fn tcp_flags_mean_what_nftables_means_by_each_spelling() {
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const ACK: u8 = 16;
    type Meaning = fn(u8) -> bool;
    let spellings: [(&str, Meaning); 38] = [
        ("syn", |flags| flags & SYN != 0),
        ("syn,ack", |flags| flags & (SYN | ACK) != 0),
        ("syn | ack", |flags| flags & (SYN | ACK) != 0),
        ("0x02", |flags| flags & SYN != 0),
        ("{ syn, syn | ack }", |flags| flags == SYN || flags == SYN | ACK),
        ("{ syn, ack }", |flags| flags == SYN || flags == ACK),
        ("== { syn, fin }", |flags| flags == SYN || flags == FIN),
        ("!= { syn, ack }", |flags| flags != SYN && flags != ACK),
        ("== syn", |flags| flags == SYN),
        ("eq syn", |flags| flags == SYN),
        ("== syn,ack", |flags| flags == SYN | ACK),
        ("== syn | ack", |flags| flags == SYN | ACK),
        ("!= syn", |flags| flags != SYN),
        ("!= syn,ack", |flags| flags != SYN | ACK),
        ("! syn", |flags| flags & SYN == 0),
        ("! syn,ack", |flags| flags & (SYN | ACK) == 0),
        ("! 0x2", |flags| flags & SYN == 0),
        ("& (syn|ack) != 0", |flags| flags & (SYN | ACK) != 0),
        ("& (fin|syn) == 0x0", |flags| flags & (FIN | SYN) == 0),
        ("& 0x3 == 0", |flags| flags & (FIN | SYN) == 0),
        ("& syn == syn", |flags| flags & SYN == SYN),
        ("& (fin | syn | rst | ack) == syn", |flags| flags & (FIN | SYN | RST | ACK) == SYN),
        ("& (fin|syn) == syn | fin", |flags| flags & (FIN | SYN) == FIN | SYN),
        ("& (fin|syn) { fin, syn }", |flags| matches!(flags & (FIN | SYN), FIN | SYN)),
        ("& (fin|syn) != { fin, syn }", |flags| !matches!(flags & (FIN | SYN), FIN | SYN)),
        ("syn / syn,ack", |flags| flags & (SYN | ACK) == SYN),
        ("!= syn / syn,ack", |flags| flags & (SYN | ACK) != SYN),
        ("< 16", |flags| flags < 16),
        ("> syn | fin", |flags| flags > 3),
        ("2-18", |flags| (2..=18).contains(&flags)),
        ("!= 2-18", |flags| !(2..=18).contains(&flags)),
        ("{ 2-18, urg }", |flags| (2..=18).contains(&flags) || flags == 32),
        ("& (fin | syn) > 1", |flags| flags & (FIN | SYN) > 1),
        ("& (fin|syn|rst|psh|ack|urg) < fin", |flags| flags & 0x3f < FIN),
        ("| syn == syn | ack", |flags| flags | SYN == SYN | ACK),
        ("^ syn == ack", |flags| flags ^ SYN == ACK),
        ("& (syn | ack) ^ syn == ack", |flags| flags & (SYN | ACK) ^ SYN == ACK),
        ("& syn | ack == ack", |flags| flags & SYN | ACK == ACK),
    ];
    for (spelling, meaning) in spellings {
        for flags in 0..=255 {
            let seen = Seen { flags, ..SEEN };
            assert_eq!(
                fits(&format!("tcp flags {spelling}"), seen),
                meaning(flags),
                "tcp flags {spelling}: {flags:#x}"
            );
        }
    }
    for (flags, expected) in [(SYN, true), (FIN | SYN, true), (SYN | ACK, true), (FIN, false), (ACK, false)] {
        let maps = "tcp flags & (fin | syn | rst) vmap { syn : accept, fin | syn : accept, rst : drop } ip ttl 1";
        let map = maps.trim_end_matches(" ip ttl 1");
        let text = format!("{map}; tcp flags . ip ttl {{ fin . 1 }}");
        assert_eq!(fits(&text, Seen { flags, ..SEEN }), expected, "{flags:#x}");
    }
}

/// How a number is transformed before the comparison, as translated by `nft --debug=netlink` 1.0.6: bits that a final `^`
/// inverts are inverted in the operand, at both ends of a range too. The segment goes from 10.0.0.1:1100 to 10.0.1.1:80
/// with a TTL of 64.
#[test]
fn numbers_are_compared_once_they_are_masked_and_turned_over() {
    for (condition, expected) in [
        ("ip ttl ^ 1 == 65", true),
        ("ip ttl xor 1 != 65", false),
        ("ip ttl | 3 == 67", true),
        ("ip ttl or 3 > 66", true),
        ("ip ttl | 3 < 67", false),
        ("ip ttl & 0x60 ^ 1 == 65", true),
        ("ip ttl & 0x60 | 2 { 1, 66 }", true),
        ("ip ttl ^ 1 & 3 == 65", true),
        ("ip ttl ^ (1 | 2) == 67", true),
        ("ip ttl ^ 1 > 64", false),
        ("ip ttl 64 | 1", false),
        ("ip ttl != 64 & 0x40", false),
        ("ip dscp ^ 1 == 1", true),
        ("tcp dport ^ 1 == 81", true),
        ("tcp dport ^ 1 80-90", false),
        ("tcp dport ^ 1 { 80, 81 }", true),
        ("tcp dport & 0xff00 | 1 == 1", true),
        ("tcp dport 64 | 16", true),
        ("meta l4proto & 0x0f == tcp", true),
        ("meta l4proto ^ 1 { 7, 9 }", true),
        ("meta l4proto & 0x0f . tcp dport { 6 . 80 }", true),
        ("meta l4proto & 1 vmap { 0 : accept };", true),
        ("ip protocol | 1 == 6", false),
        ("ip protocol & 6 == 6 meta l4proto > 5", true),
        ("ip saddr ^ 0.0.0.1 == 10.0.0.0", true),
        ("ip saddr ^ 0.0.0.1 { 10.0.0.1, 10.0.0.2 }", false),
        ("ip saddr | 0.0.0.255 == 10.0.0.255", true),
        ("ip saddr & 255.0.0.0 | 0.0.0.9 == 10.0.0.9", true),
        ("ip saddr & 0.0.0.255 { 0.0.0.1, 0.0.0.7 }", true),
        ("ip saddr & 0.0.0.255 != { 0.0.0.1, 0.0.0.7 }", false),
        ("ip daddr & 0.0.255.255 > 0.0.1.0", true),
        ("ip daddr & 0.0.255.255 0.0.1.2-0.0.1.9", false),
        ("ip6 saddr | ::ff == 2001:db8::ff", false),
        ("ip version != 4", false),
        ("ip frag-off 0 ip frag-off & 0x4000 == 0", true),
    ] {
        assert_eq!(fits(condition, SEEN), expected, "{condition}");
    }
    for (condition, expected) in [
        ("icmp type & 7 == 0", [true, false, false]),
        ("icmp type > 3", [true, false, true]),
        ("icmp type <= 3", [false, true, false]),
        ("icmp type ^ 1 == 9", [true, false, false]),
        ("icmp type | 1 == 13", [false, false, true]),
        ("icmp type & 1 { 1 }", [false, true, true]),
        ("icmp type 0x8", [true, false, false]),
        ("icmp type { 0x3, 0xd-0xe }", [false, true, true]),
    ] {
        let of = |kind: u8| Seen { protocol: 1, ports: (0, u16::from(kind) << 8), ..SEEN };
        assert_eq!([of(8), of(3), of(13)].map(|seen| fits(condition, seen)), expected, "{condition}");
    }
    for (condition, reason) in [
        ("ip ttl << 1 == 4", "numbers are not shifted here"),
        ("tcp dport & 0xff >> 1 == 4", "numbers are not shifted here"),
        ("ip dscp >> 2 . ip saddr { ef . 10.0.0.1 }", "leave the shift out: so nft 1.0.6 lists"),
        ("ip saddr . ip dscp >> 2 @s", "leave the shift out"),
        ("ip ttl & (1 | 2 == 2", "a parenthesis without its end"),
        ("tcp dport ^ ip == 2", "`ip` is not a port"),
    ] {
        let error = read_text(&format!("{condition} accept"), &mut named(), PORTS).expect_err(condition).to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn states_of_connections_may_be_written_in_all_ways() {
    let always = [
        "ct state new",
        "ct state new,established",
        "ct state new | established",
        "ct state { new, untracked }",
        "ct state == new",
        "ct state & (new | related) != 0",
        "ct state & new == new",
        "ct state ! related ct direction original",
        "ct state != invalid",
        "ct state ! invalid ct state ! established,related",
        // As `nft -n` prints them.
        "ct state 0x8",
        "ct state 0x8,0x2",
        "ct state { 0x8, 0x40 }",
        "ct state ! 0x1",
        "ct state != 0x1 ct state & 0x8 == 0x8",
    ];
    for condition in always {
        assert!(fits(condition, SEEN), "{condition}");
    }
    for condition in [
        "ct state established",
        "ct state ! new ct state { established, related }",
        "ct state untracked",
        "ct state 0x2,0x4",
        "ct state ! 0x8",
    ] {
        assert!(!fits(condition, SEEN), "{condition}");
    }
}

#[test]
fn families_and_types_are_known_by_several_names() {
    for (condition, v4, v6) in [
        ("meta nfproto ipv4", true, false),
        ("meta nfproto != ipv4", false, true),
        ("meta nfproto { ipv4, ipv6 }", true, true),
        ("meta protocol { ip, arp }", true, false),
        ("meta protocol arp", false, false),
        ("ether type ip6", false, true),
        ("ether type { ip, ip6 }", true, true),
        ("ip version 4", true, false),
        ("ip6 version 6", false, true),
        ("ip protocol != 7-255", true, false),
        ("meta l4proto < 17", true, true),
        ("tcp dport > 79 tcp dport le http", true, true),
        ("tcp dport ne 81", true, true),
    ] {
        assert_eq!((fits(condition, SEEN), fits(condition, Seen { v4: false, ..SEEN })), (v4, v6), "{condition}");
    }
}

#[test]
fn codes_and_types_of_icmp_may_be_ranges() {
    let icmp = |kind: u8, code: u8| Seen {
        protocol: 1,
        ports: (0, u16::from_be_bytes([kind, code])),
        fields: FIELDS.with(Field::IcmpCode, code.into()),
        ..SEEN
    };
    for (condition, expected) in [
        ("icmp code port-unreachable", [false, true, false]),
        ("icmp type destination-unreachable icmp code { 3, frag-needed }", [false, true, false]),
        ("icmp code != 1-3", [true, false, false]),
        ("icmp type != echo-request", [false, true, true]),
        ("icmp type 3-8", [true, true, false]),
        ("icmp type . icmp code { 3 . 3, 9 . 2 }", [false, true, false]),
    ] {
        let seen = [icmp(8, 0), icmp(3, 3), icmp(13, 1)].map(|seen| fits(condition, seen));
        assert_eq!(seen, expected, "{condition}");
    }
}

/// A condition as text, and its meaning.
#[derive(Clone, Debug)]
struct Said {
    text: String,
    v4: Option<bool>,
    field: Field,
    /// Added to a value before the comparison.
    offset: u64,
    fits: Vec<(u64, u64)>,
    is_negated: bool,
}

fn said() -> impl Strategy<Value = Said> {
    let fields = vec![
        ("ip length", Some(true), Field::Length, 0, 130),
        ("ip6 length", Some(false), Field::Length, 40, 130),
        ("meta length", None, Field::Length, 0, 130),
        ("ip ttl", Some(true), Field::Ttl, 0, 255),
        ("ip6 hoplimit", Some(false), Field::Ttl, 0, 255),
        ("ip dscp", Some(true), Field::Dscp, 0, 63),
        ("ip6 dscp", Some(false), Field::Dscp, 0, 63),
        ("ip ecn", Some(true), Field::Ecn, 0, 3),
        ("ip6 ecn", Some(false), Field::Ecn, 0, 3),
        ("vlan id", None, Field::Vlan, 0, 4095),
    ];
    let range = (any::<prop::sample::Index>(), any::<prop::sample::Index>());
    (prop::sample::select(fields), prop::collection::vec(range, 1..4), 0usize..8).prop_map(
        |((name, v4, field, offset, last), picks, form)| {
            let number = |pick: &prop::sample::Index| pick.index(last as usize + 1) as u64;
            let ranges: Vec<_> =
                picks.iter().map(|(a, b)| (number(a).min(number(b)), number(a).max(number(b)))).collect();
            let (first, end) = ranges[0];
            let written = |ranges: &[(u64, u64)]| {
                ranges.iter().map(|(first, end)| format!("{first}-{end}")).collect::<Vec<_>>().join(", ")
            };
            let (value, fits, is_negated) = match form {
                0 => (format!("{first}"), vec![(first, first)], false),
                1 => (format!("!= {first:#x}"), vec![(first, first)], true),
                2 => (format!("{first}-{end}"), vec![(first, end)], false),
                3 => (format!("< {}", first.max(1)), vec![(0, first.max(1) - 1)], false),
                4 => (format!("ge {first}"), vec![(first, u64::MAX)], false),
                5 => (format!("{{ {} }}", written(&ranges)), ranges.clone(), false),
                6 => (format!("!= {{ {} }}", written(&ranges)), ranges.clone(), true),
                _ => (format!("<= {end}"), vec![(0, end)], false),
            };
            Said { text: format!("{name} {value}"), v4, field, offset, fits, is_negated }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn numbers_of_a_packet_are_compared_as_written(
        said in said(),
        v4 in any::<bool>(),
        values in (0u64..140, 0u64..256, 0u64..64, 0u64..4, 0u64..=UNTAGGED),
    ) {
        let fields = FIELDS.with(Field::Length, values.0).with(Field::Ttl, values.1).with(Field::Dscp, values.2);
        let fields = fields.with(Field::Ecn, values.3).with(Field::Vlan, values.4);
        let value = fields.of(said.field).checked_sub(said.offset);
        let is_within = value.is_some_and(|value| said.fits.iter().any(|(first, end)| (*first..=*end).contains(&value)));
        let is_tagged = said.field != Field::Vlan || values.4 < UNTAGGED;
        let has_value = value.is_some() && said.v4.is_none_or(|wanted| wanted == v4) && is_tagged;
        let mut config = named();
        let is_possible = read_text(&format!("{} accept", said.text), &mut config, PORTS).is_ok();
        prop_assert!(is_possible || said.is_negated, "{}", said.text);
        if is_possible {
            let seen = Seen { v4, fields, ..SEEN };
            prop_assert_eq!(fits(&said.text, seen), has_value && is_within != said.is_negated, "{} of {:?}", said.text, fields);
        }
    }
}

/// A frame's own fields, as the plan's reader takes them from its bytes.
#[test]
fn rules_see_what_stands_in_the_frame() {
    let rules = "ip length 33 ip ttl 9 ip dscp ef ip ecn ce vlan id 7 accept\nip6 length 13 ip6 hoplimit 5 ip6 dscp af11 vlan type ip6 accept";
    let explained = |frame: Frame| {
        let mut config = named();
        read_text(rules, &mut config, PORTS).expect("rules");
        let mut bytes = frame.bytes();
        match bytes[14] >> 4 {
            // Type of service: EF and congestion experienced.
            4 => bytes[15] = 46 << 2 | 3,
            _ => bytes[14..16].copy_from_slice(&(0x6000u16 | 10 << 6).to_be_bytes()),
        }
        if bytes[14] >> 4 == 4 {
            let sum = super::headers::sum(&bytes);
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        // A tag with VLAN 7 and priority 3.
        bytes.splice(12..12, [0x81, 0x00, 0x60, 0x07]);
        crate::firewall::explain(config, 2, (0, &bytes), When::Utc(0)).expect("a packet")
    };
    let page = explained(Frame::udp("10.0.0.1:5", "192.0.2.9:6").ttl(9).payload(b"hello"));
    assert!(
        page.contains("line 1 of the rule file decides: from 0.0.0.0/0, length 33, time to live 9, code point 46, congestion notification 3, VLAN 7: accept"),
        "{page}"
    );
    let page = explained(Frame::udp("10.0.0.1:5", "192.0.2.9:6").ttl(8).payload(b"hello"));
    assert!(page.contains("line 1 of the rule file does not fit by its time to live"), "{page}");
    let page = explained(Frame::udp("[2001:db8::1]:5", "[2001:db8::2]:6").ttl(5).payload(b"hello"));
    assert!(page.contains("line 2 of the rule file decides"), "{page}");
}

/// A network mask is a prefix in another notation.
#[test]
fn addresses_under_a_mask_are_a_network() {
    let v6 = Seen { v4: false, ..SEEN };
    for (condition, expected) in [
        ("ip saddr & 255.255.255.0 == 10.0.0.0", true),
        ("ip saddr & 255.255.255.0 == 10.0.1.0", false),
        ("ip saddr and 255.0.0.0 != 10.0.0.0", false),
        ("ip saddr & 255.255.0.0 { 10.0.0.0, 10.1.0.0 }", true),
        ("ip saddr & 255.255.255.255 == 10.0.0.1", true),
        ("ip saddr & 0.0.0.0 == 0.0.0.0", true),
        // A value with bits outside of the mask never matches.
        ("ip saddr & 255.255.255.0 == 10.0.0.1", false),
        ("ip saddr & 255.255.255.0 != 10.0.0.1", true),
    ] {
        assert_eq!(fits(condition, SEEN), expected, "{condition}");
    }
    assert!(fits("ip6 saddr & ffff:ffff:: == 2001:db8::", v6) && !fits("ip6 saddr & ffff:ffff:: == 2001:db9::", v6));
    // Other masks, such as a host part under any prefix.
    assert!(fits("ip saddr & 0.0.0.255 == 0.0.0.1", SEEN) && !fits("ip saddr & 0.0.0.255 == 0.0.0.2", SEEN));
    assert!(!fits("ip saddr & 0.0.0.255 != 0.0.0.1", SEEN) && fits("ip daddr & 255.0.255.0 == 10.0.1.0", SEEN));
    assert!(
        fits("ip6 saddr & ::ffff:ffff:ffff:ffff == ::1", v6) && !fits("ip6 daddr & ::ffff:ffff:ffff:ffff == ::1", v6)
    );
    assert!(!fits("ip6 saddr & ::ffff == ::1", SEEN), "of the other family");
    // There is nothing beyond the first and the last address.
    let ends =
        |saddr: &str, signs: [&str; 4]| signs.map(|sign| fits(&format!("ip6 saddr & ::ff00 {sign} {saddr}"), v6));
    assert_eq!(ends("::", ["<", "<=", ">", ">="]), [false, true, false, true]);
    assert_eq!(ends("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ["<", "<=", ">", ">="]), [true, true, false, false]);
    assert!(!fits("ip saddr & 0.255.0.0 < 0.0.0.0", SEEN) && !fits("ip saddr & 0.0.0.255 > 255.255.255.255", SEEN));
    for (text, reason) in [
        ("ip saddr & eth0 == 10.0.0.1 accept", "`eth0` is no mask"),
        ("ip6 saddr & ::ffff > ::/64 accept", "`::/64` is not one address"),
    ] {
        let error = read_text(text, &mut named(), PORTS).expect_err("no mask");
        assert!(error.reason.contains(reason), "{error}");
    }
}

#[test]
fn protocols_and_types_have_the_names_of_debian_and_nftables() {
    let of = |protocol| Seen { protocol, ..SEEN };
    for (name, number) in [("igmp", 2), ("ospf", 89), ("vrrp", 112), ("esp", 50), ("ipv6-icmp", 58)] {
        assert!(
            fits(&format!("meta l4proto {name}"), of(number)) && !fits(&format!("meta l4proto {name}"), SEEN),
            "{name}"
        );
    }
    let v6 = |kind: u16| Seen { v4: false, protocol: 58, ports: (0, kind << 8), ..SEEN };
    let types = "icmpv6 type { mld-listener-reduction, ind-neighbor-solicit, router-renumbering }";
    assert_eq!([132, 138, 141, 142].map(|kind| fits(types, v6(kind))), [true, true, true, false]);
    assert!(fits("udp dport mdns", Seen { ports: (5353, 5353), ..of(17) }));
    assert!(fits("meta pkttype unicast", SEEN) && !fits("meta pkttype multicast", SEEN));
    assert!(fits("meta pkttype 0", SEEN) && !fits("meta pkttype { 1, 2 }", SEEN) && fits("meta pkttype != 2", SEEN));
}

/// A packet never leaves by the port it arrived on; statements that set classes, traces and helpers decide nothing.
#[test]
fn what_says_nothing_here_is_passed_over() {
    assert!(!fits("iifname lan0 oifname lan0", SEEN) && fits("iifname lan0 oifname wan0", SEEN));
    for words in ["meta nftrace set 1", "meta priority set 1:2", "meta pkttype set host", "ct helper set \"ftp\""] {
        assert!(fits(words, SEEN), "{words}");
    }
    assert!(fits("meta priority set ip dscp map { cs0 : 1:2, ef : 1:3 }", SEEN));
    assert!(fits("ct helper set tcp dport map { 80 : \"web\" }", SEEN));
    // As in nftables, a map that lacks the key ends the rule.
    assert!(!fits("meta priority set ip dscp map { ef : 1:3 }", SEEN));
}
