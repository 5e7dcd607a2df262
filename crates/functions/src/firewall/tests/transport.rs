//! Fields of TCP, UDP and echo messages, endpoints of connections, and conditions that exclude each other.

use super::conditions::{SEEN, fits};
use super::rules::{PORTS, named, read_text};
use super::tables::{IN, OUT, TCP, facts, policy};
use crate::firewall::conditions::facts::Facts;
use crate::firewall::connection::states::State;
use crate::firewall::rule_file::Hooks;
use crate::firewall::rules::Action;
use crate::firewall::{When, explain};
use braid_testkit::Frame;

/// Checks whether a rule lets a frame from inside through, as read from its bytes.
#[track_caller]
fn check(condition: &str, frame: &Frame, expected: bool) {
    let text = format!(
        "table inet t {{ chain f {{ type filter hook forward priority 0; policy drop; {condition} accept; }} }}"
    );
    let mut config = named();
    read_text(&text, &mut config, PORTS).unwrap_or_else(|error| panic!("{condition}: {error}"));
    let page = explain(config, 2, (0, &frame.clone().bytes()), When::Utc(0)).expect("a packet");
    assert_eq!(page.contains(": accept\n"), expected, "{condition}: {page}");
}

#[test]
fn numbers_of_tcp_udp_and_echo_messages_are_asked_for() {
    let tcp = Frame::tcp("10.0.0.1:5", "192.0.2.9:80").flags("S").numbers(100_000, 7).window(512);
    let udp = Frame::udp("[2001:db8::1]:5", "[2001:db8::2]:53").payload(b"hello");
    let echo = Frame::echo_request("10.0.0.1", "192.0.2.9", 300, 9);
    for (condition, of_tcp, of_udp, of_echo) in [
        ("tcp sequence 100000 tcp ackseq 0-7", true, false, false),
        ("tcp sequence > 0x1869f tcp window { 0, 500-600 }", true, false, false),
        ("tcp window < 512", false, false, false),
        ("tcp doff 5 tcp urgptr 0", true, false, false),
        ("tcp checksum != 0", true, false, false),
        ("udp checksum != 0 ip6 flowlabel 0", false, true, false),
        ("udp checksum 0", false, false, false),
        ("icmp id 300 icmp sequence < 10", false, false, true),
        ("icmp id . icmp sequence { 1 . 9 }", false, false, false),
        ("icmp type . icmp id { echo-request . 300 }", false, false, true),
        ("icmpv6 id 300", false, false, false),
    ] {
        check(condition, &tcp, of_tcp);
        check(condition, &udp, of_udp);
        check(condition, &echo, of_echo);
    }
    let unreachable = Frame::icmp("10.0.0.1", "192.0.2.9", 3, 1, [1, 44, 0, 9]);
    check("icmp id 300", &unreachable, false);
    let too_long = Frame::icmp("10.0.0.1", "192.0.2.9", 3, 4, [0, 1, 5, 0x14]);
    let redirect = Frame::icmp("10.0.0.1", "192.0.2.9", 5, 1, [10, 0, 0, 9]);
    for (condition, of_too_long, of_redirect) in [
        ("icmp mtu 1300", true, false),
        ("icmp mtu & 0xff == 0x14 icmp code 4", true, false),
        ("icmp mtu < 1300", false, false),
        ("icmp gateway 0x0a000009", false, true),
        ("icmp gateway & 0xff000000 != 0x0a000000", false, false),
        ("icmpv6 mtu > 0", false, false),
    ] {
        check(condition, &too_long, of_too_long);
        check(condition, &redirect, of_redirect);
        check(condition, &echo, false);
    }
    for (rule, reason) in [
        ("udp reserved 0 drop", "`reserved` is nothing of udp that is looked at"),
        (
            "icmp max-delay 1280 drop",
            "`max-delay` is nothing of icmp that is looked at; write icmp and one of type, code",
        ),
        ("ip flowlabel 5 drop", "`flowlabel` of an IP header is not looked at"),
    ] {
        let error = read_text(rule, &mut named(), PORTS).expect_err(rule).to_string();
        assert!(error.contains(reason), "{error}");
    }
}

/// In either direction the endpoints are those of the first packet.
#[test]
fn the_ends_of_a_connection_are_those_of_its_first_packet() {
    let (client, server) = ("203.0.113.9", "10.0.0.5");
    for (condition, there, back) in [
        ("ct original ip saddr 203.0.113.0/24", true, true),
        ("ct original ip saddr != 203.0.113.9", false, false),
        ("ct original ip daddr { 10.0.0.5, 10.0.0.6 }", true, true),
        ("ct original ip daddr 203.0.113.9", false, false),
        ("ct reply ip saddr 10.0.0.5 ct reply ip daddr 203.0.113.9", true, true),
        ("ct reply proto-src 443", true, true),
        ("ct original proto-dst 443", true, true),
        ("ct original proto-src 443", false, false),
        ("ct original ip6 saddr ::/0", false, false),
        ("ct original ip saddr 203.0.113.9 ct direction reply", false, true),
    ] {
        let text = format!(
            "table inet t {{ chain f {{ type filter hook forward priority 0; policy drop; {condition} accept; }} }}"
        );
        let policy = policy(&text, Hooks::Forward);
        let decides = |facts: &Facts<'_>| {
            let Ok((_, action)) = policy.decide(facts, |_| Ok::<_, std::convert::Infallible>(true));
            action == Action::Allow
        };
        let first = facts(OUT, client, server, TCP, 443);
        let answer = Facts {
            source_port: 443,
            destination_port: 1100,
            state: State::Reply,
            ..facts(IN, server, client, TCP, 443)
        };
        let later = Facts { state: State::Original, ..first };
        let of_none = Facts { state: State::Invalid, ..first };
        let seen = [&first, &later, &answer, &of_none].map(decides);
        assert_eq!(seen, [there, there, back, false], "{condition}");
    }
}

#[test]
fn ends_that_are_not_known_are_refused() {
    let translated = "table inet t { chain n { type nat hook postrouting priority 100; masquerade; }
        chain f { type filter hook forward priority 0; ct original ip daddr 198.51.100.1 accept; } }";
    for (text, reason) in [
        (translated, "where the first packet went is not known where something is translated"),
        ("ct reply saddr 10.0.0.1 accept", "`saddr` of no family"),
        ("ct original saddr 10.0.0.1 accept", "`saddr` of no family"),
        ("ct original protocol tcp accept", "`protocol` of a connection is not looked at"),
    ] {
        let error = read_text(text, &mut named(), PORTS).expect_err(text).to_string();
        assert!(error.contains(reason), "{error}");
    }
}

/// A segment from port 1100 to port 80 with a TTL of 64, 100 bytes long and without a tag.
#[test]
fn some_bits_of_a_number_are_asked_for() {
    for (condition, expected) in [
        ("ip ttl & 0x40 == 0x40", true),
        ("ip ttl & 0x41 0x41", false),
        ("ip ttl & (0x40 | 1) != 0x41", true),
        ("ip ttl & 0x0f < 4", true),
        ("ip ttl & 0xf0 { 0x10, 0x40-0x50 }", true),
        ("ip ttl & 0xf0 == 0x40 ip ttl & 1 == 1", false),
        ("ip ttl & 0xf0 vmap { 0x40 : accept, 0x50 : drop }; meta length 1", true),
        ("ip ttl & 0xf0 . tcp dport { 0x40 . 80, 0x50 . 81 }", true),
        ("tcp dport & 0xf0 == 0x50", true),
        ("tcp sport & 1 == 1", false),
        ("tcp sport and 4 == 4", true),
        ("udp dport & 0xf0 == 0x50", false),
        ("meta length & 7 == 4", true),
        ("vlan id & 1 == 0", false),
        ("ip saddr > 10.0.0.0 ip saddr <= 10.0.0.1", true),
        ("ip saddr gt 10.0.0.1", false),
        ("ip daddr >= 10.0.1.1 ip daddr < 10.0.1.2", true),
        ("ip daddr lt 10.0.1.1", false),
        ("ip saddr >= 0.0.0.0 ip saddr <= 255.255.255.255", true),
        ("ip6 saddr > ::", false),
    ] {
        assert_eq!(fits(condition, SEEN), expected, "{condition}");
    }
    for (rule, reason) in [
        ("ip ttl & 256 == 0 drop", "`256` is not a number of hops"),
        ("ip ttl & (1 | 2 == 3 drop", "a parenthesis without its end"),
        ("ip6 length & 1 == 1 drop", "`&` is not a length"),
    ] {
        let error = read_text(rule, &mut named(), PORTS).expect_err(rule).to_string();
        assert!(error.contains(reason), "{error}");
    }
}

/// As in nftables these are accepted, but conditions without effect are reported with their line.
#[test]
fn conditions_that_exclude_each_other_are_told() {
    for (condition, what) in [
        ("ip saddr 10.0.0.1 ip saddr 10.0.0.2", "address"),
        ("tcp dport 53 tcp dport 54", "port"),
        ("ip ttl 5 ip ttl > 9", "time to live"),
        ("icmp type echo-request icmp type 3", "ICMP type"),
        ("tcp dport 22 tcp dport . ip saddr { 80 . 10.0.0.1, 81 . 10.0.0.2 }", "port"),
        ("icmp type destination-unreachable icmp id 5", "ICMP type"),
        ("meta l4proto tcp meta l4proto udp", "protocol"),
        ("ip protocol tcp meta l4proto udp", "protocol"),
        ("meta nfproto ipv4 meta nfproto ipv6", "address"),
    ] {
        let text = format!(
            "table inet t {{\n chain f {{ type filter hook forward priority 0; policy drop;\n  {condition} counter accept\n  tcp dport 80 accept; }}\n}}"
        );
        let mut config = named();
        let notes = read_text(&text, &mut config, PORTS).unwrap_or_else(|error| panic!("{condition}: {error}"));
        let told: Vec<_> = notes.iter().map(|note| (note.line, note.text.as_str())).collect();
        let expected = format!("it is never used: no {what} fits all that the rule says");
        assert_eq!(told, [(3, expected.as_str())], "{condition}");
        assert!(!fits(condition, SEEN) && fits("tcp dport 80", SEEN));
    }
    for condition in [
        "ip ttl < 0",
        "tcp dport > 65535",
        "ip dscp != 0-63",
        "icmp code gt 255",
        "ip saddr > 255.255.255.255",
        "ip daddr < 0.0.0.0",
        "ip saddr != 0.0.0.0/0",
        "ip ttl & 0x0f == 0x10",
        "tcp flags 0x0",
    ] {
        let told = read_text(&format!("{condition} accept"), &mut named(), PORTS).expect(condition);
        assert_eq!(told[0].text, "it is never used: nothing is left that could fit", "{condition}");
        assert!(!fits(condition, SEEN));
    }
    // Map entries that can never be used are fine if others match.
    assert!(fits("tcp dport { 80, 81 } tcp dport . ip saddr { 80 . 10.0.0.1, 22 . 10.0.0.2 }", SEEN));
    assert!(fits("meta l4proto tcp meta l4proto . th dport { udp . 80, tcp . 80 }", SEEN));
    // A typing error is reported even among valid elements.
    for text in [
        "ip saddr . tcp dport { 10.0.0.1 . 22, 10.0.0.x . 80 } accept",
        "tcp dport 22 tcp dport vmap { 22 : accept, 8O : drop }",
        "ip ttl 256 accept",
    ] {
        assert!(read_text(text, &mut named(), PORTS).is_err(), "{text}");
    }
}
