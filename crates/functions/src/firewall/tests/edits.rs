//! Changes that rules make to packets that pass.

use braid_nf::Instance;
use braid_nf::packet::checksum;
use braid_testkit::{Bench, Frame};

use super::known::{bench_of, made};
use super::rules::{PORTS, named, read_text};
use crate::firewall::{When, explain};

fn table(rules: &str) -> String {
    format!(
        "table inet t {{\nchain wash {{\nip dscp set cs0\nip6 dscp set cs0\n}}\nchain f {{\ntype filter hook forward priority 0; \
         policy accept;\n{rules}\n}}\n}}\n"
    )
}

fn udp(port: u16) -> Frame {
    Frame::udp("10.0.0.1:7", &format!("192.0.2.9:{port}"))
}

fn back(port: u16) -> Frame {
    Frame::udp(&format!("192.0.2.9:{port}"), "10.0.0.1:7")
}

fn udp6(port: u16) -> Frame {
    Frame::udp("[2001:db8::1]:7", &format!("[2001:db8::9]:{port}"))
}

/// Code point, congestion bits and TTL of the packet that leaves; `None` if none does. The IPv4 checksum must be correct.
fn leaves(fw: &mut Bench, port: u16, frame: &[u8]) -> Option<(u8, u8, u8)> {
    let outcome = fw.send(port, 0, frame);
    let (_, sent) = outcome.sent.into_iter().next()?;
    let (class, hops) = match sent[14] >> 4 {
        4 => {
            assert!(checksum::ipv4_header_ok(&sent[14..34]));
            (sent[15], sent[22])
        }
        _ => (sent[14] << 4 | sent[15] >> 4, sent[21]),
    };
    Some((class >> 2, class & 3, hops))
}

#[test]
fn code_points_and_hops_are_those_that_rules_set() {
    let udp = |port| udp(port).bytes();
    for (rules, expected) in [
        ("ip dscp set ef", Some((46, 0, 64))),
        ("ip dscp set 0x3f accept", Some((63, 0, 64))),
        ("ip ttl set 7", Some((0, 0, 7))),
        ("ip ttl set 255 ip dscp set cs1 accept", Some((8, 0, 255))),
        ("ip dscp set cs1\nip dscp set cs2", Some((16, 0, 64))),
        ("ip dscp set cs1 jump wash", Some((0, 0, 64))),
        ("udp dport 54 ip dscp set cs1", Some((0, 0, 64))),
        ("ip6 dscp set cs1\nip dscp set cs2", Some((16, 0, 64))),
        ("ip dscp set udp dport map { 52 : cs1, 53 : af11 }", Some((10, 0, 64))),
        ("ip dscp set udp dport map { 52 : cs1 } drop", Some((0, 0, 64))),
        ("ip ttl set udp dport . ip saddr map { 53 . 10.0.0.1 : 9 }", Some((0, 0, 9))),
        ("ip dscp set cs1 drop", None),
        // Conditions before the change are not evaluated again, and an accepted packet is past the rules.
        ("ip dscp cs0 ip dscp set cs1 udp dport 53 accept\ndrop", Some((8, 0, 64))),
        ("udp dport 53 ip dscp set cs1 accept\nip dscp cs0 drop", Some((8, 0, 64))),
        ("limit rate 1/day burst 1 packets ip dscp set cs3", Some((24, 0, 64))),
    ] {
        assert_eq!(leaves(&mut bench_of(&table(rules)), 0, &udp(53)), expected, "{rules}");
    }
    let mut fw = bench_of(&table("ip6 dscp set cs6 ip6 hoplimit set 3"));
    assert_eq!(leaves(&mut fw, 0, &udp6(53).bytes()), Some((48, 0, 3)));
    assert_eq!(leaves(&mut fw, 0, &udp(53)), Some((0, 0, 64)));
}

/// Each packet that a rule matches is changed, in known connections too, and the congestion bits stay.
#[test]
fn packets_of_known_connections_are_written_as_well() {
    let mut fw = bench_of(&table("iifname lan ip dscp set af41\niifname wan ip ttl set 9"));
    let marked = |frame: Frame| {
        let mut bytes = frame.bytes();
        bytes[15] |= 1;
        bytes[24..26].fill(0);
        let sum = checksum::ipv4_header(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        bytes
    };
    for _ in 0..3 {
        assert_eq!(leaves(&mut fw, 0, &marked(udp(53))), Some((34, 1, 64)));
        assert_eq!(leaves(&mut fw, 1, &marked(back(53))), Some((0, 1, 9)));
    }
    let mut fw = bench_of(&table("ct state established ip dscp set cs1"));
    assert_eq!(leaves(&mut fw, 0, &udp(53).bytes()), Some((0, 0, 64)));
    assert_eq!(leaves(&mut fw, 1, &back(53).bytes()), Some((8, 0, 64)));
    assert_eq!(leaves(&mut fw, 0, &udp(53).bytes()), Some((8, 0, 64)));
}

/// As in a forwarding kernel: the TTL is decremented before rules are asked, and a packet whose TTL is used up is
/// dropped.
#[test]
fn hops_are_set_behind_the_one_that_is_counted() {
    let config = format!("{}# counted", table("ip ttl set 64"));
    let mut fw = Bench::with_sets(2, 64, |builder| {
        let mut firewall = made(&config, builder).expect("rules that can be read");
        firewall.settings.ttl = crate::firewall::Ttl::Decrement;
        Box::new(Instance::new("fw", firewall))
    });
    assert_eq!(leaves(&mut fw, 0, &udp(53).bytes()), Some((0, 0, 64)));
    let mut last = udp(54).bytes();
    last[22] = 1;
    assert_eq!(fw.send(0, 0, &last).dropped, Some("ttl_exceeded"));
}

/// `ip_forward` decrements the TTL behind prerouting: what a chain there sets is decremented, in chains of priority raw too.
#[test]
fn hops_are_counted_behind_those_that_are_set_before() {
    for priority in ["raw", "mangle"] {
        let hook = format!("hook prerouting priority {priority}");
        let rules = table("ip ttl set 64").replace("hook forward priority 0", &hook);
        let config = format!("{rules}# counted");
        let mut fw = Bench::with_sets(2, 64, |builder| {
            let mut firewall = made(&config, builder).expect("rules that can be read");
            firewall.settings.ttl = crate::firewall::Ttl::Decrement;
            Box::new(Instance::new("fw", firewall))
        });
        assert_eq!(leaves(&mut fw, 0, &udp(53).bytes()), Some((0, 0, 63)), "{priority}");
    }
}

#[test]
fn who_asks_is_told_what_is_set() {
    let text = table("udp dport 53 ip dscp set ef ip ttl set 9 accept");
    let mut config = named();
    read_text(&text, &mut config, PORTS).expect("rules");
    let page = explain(config, 2, (0, &udp(53).bytes()), When::Utc(0)).expect("a packet");
    assert!(page.contains("sets the code point to 46") && page.contains("sets the hops left to 9: accept"), "{page}");
}

#[test]
fn what_cannot_be_set_is_refused() {
    let refused = |text: &str, expected: &str| {
        let error = read_text(text, &mut named(), PORTS).expect_err(text);
        let said = format!("line {}: {}; {}", error.line, error.reason, error.instead);
        assert!(said.contains(expected), "{said}");
    };
    refused(&table("ip dscp set 64"), "`64` is not a code point");
    refused(&table("ip dscp set"), "is not a code point");
    refused(&table("ip ttl set 0"), "nobody takes on a packet that has no hops left");
    refused(&table("ip ttl set 256"), "`256` is not a number of hops");
    refused(&table("ip hoplimit set 9"), "`hoplimit` of a packet is not set; write dscp, ttl or hoplimit");
    refused(&table("ip6 dscp set cs1 ip dscp set cs2"), "no address fits all that the rule says");
    refused(&table("ip saddr set 10.0.0.1"), "`saddr` of a packet is not set");
    refused("udp dport 53 ip dscp set cs1 accept\n", "lines without a table are about packets that would open");
    // Rules see packets as they arrived.
    let asks = "it asks for what line 8 of the rule file has set: rules are asked about packets as they came";
    refused(&table("ip dscp set cs1\nip dscp cs1 drop"), &format!("line 9: {asks}"));
    refused(&table("ip ttl set 9\nip dscp cs1 drop\nip ttl < 10 drop"), &format!("line 10: {asks}"));
    refused(&table("ip dscp set cs1\nip checksum 1 drop"), asks);
}
