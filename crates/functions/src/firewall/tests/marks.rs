//! Marks of packets and connections, set and tested by rules.

use braid_testkit::{Bench, Frame};

use super::check;
use super::known::bench_of;
use super::rules::{PORTS, named, read_text};
use super::tables::{IN, TCP, check as decides, policy};
use crate::firewall::effects::marks::{Asked, Given, Marks, Value, Whose};
use crate::firewall::rule_file::Hooks;
use crate::firewall::rules::Action::Allow;

fn table(rules: &str) -> String {
    format!(
        "table inet t {{\nchain side {{\nmeta mark set 9\nmeta mark 9 return\ndrop\n}}\nchain f {{\ntype filter hook forward priority 0; \
         policy drop;\n{rules}\n}}\n}}\n"
    )
}

fn bench(rules: &str) -> Bench {
    bench_of(&table(rules))
}

fn asks(port: u16, to: u16) -> Frame {
    Frame::udp(&format!("10.0.0.1:{port}"), &format!("192.0.2.9:{to}"))
}

fn answers(port: u16, from: u16) -> Frame {
    Frame::udp(&format!("192.0.2.9:{from}"), &format!("10.0.0.1:{port}"))
}

/// A connection keeps its mark in both directions, and other connections have none.
#[test]
fn a_connection_keeps_the_mark_that_its_first_packet_was_given() {
    let mut fw = bench("ct state new udp dport 53 ct mark set 0x10 accept\nudp dport 123 accept\nct mark 0x10 accept");
    check(&mut fw, 0, 0, asks(7, 53), "pass");
    check(&mut fw, 1, 0, answers(7, 53), "pass");
    check(&mut fw, 0, 0, asks(7, 53), "pass");
    check(&mut fw, 0, 0, asks(7, 123), "pass");
    check(&mut fw, 1, 0, answers(7, 123), "denied");
    // The mark is forgotten with its connection.
    let mut fw = bench(
        "ct state new limit rate 1/day burst 1 packets ct mark set 1 accept\nct state new accept\nct mark 1 accept",
    );
    let segment = |back: bool, flags: &str, numbers: (u32, u32)| {
        let (host, server) = ("10.0.0.1:1100", "192.0.2.9:80");
        let (from, to) = if back { (server, host) } else { (host, server) };
        Frame::tcp(from, to).flags(flags).numbers(numbers.0, numbers.1)
    };
    check(&mut fw, 0, 0, segment(false, "S", (100, 0)), "pass");
    check(&mut fw, 1, 0, segment(true, "SA", (500, 101)), "pass");
    check(&mut fw, 0, 0, segment(false, "A", (101, 501)), "pass");
    check(&mut fw, 0, 0, segment(false, "R", (101, 0)), "pass");
    check(&mut fw, 0, 1, segment(false, "S", (9000, 0)), "pass");
    check(&mut fw, 1, 1, segment(true, "SA", (700, 9001)), "denied");
}

#[test]
fn pings_and_errors_about_a_connection_have_its_mark() {
    let mut fw = bench(
        "ct state new ct mark set 7 accept\nct state related ct mark 7 accept\nct mark 7 icmp type echo-reply accept",
    );
    let sent = asks(7, 53);
    check(&mut fw, 0, 0, sent.clone(), "pass");
    check(&mut fw, 1, 0, Frame::unreachable("203.0.113.9", "10.0.0.1", &sent.clone().bytes()), "pass");
    check(&mut fw, 0, 0, Frame::echo_request("10.0.0.1", "192.0.2.9", 5, 1), "pass");
    check(&mut fw, 1, 0, Frame::echo_reply("192.0.2.9", "10.0.0.1", 5, 1), "pass");
    let mut fw = bench("ct state new accept\nct mark 7 accept");
    check(&mut fw, 0, 0, sent.clone(), "pass");
    check(&mut fw, 1, 0, Frame::unreachable("203.0.113.9", "10.0.0.1", &sent.clone().bytes()), "denied");
}

/// A packet of no connection has no connection mark: no condition on the mark holds, not even an inequality.
#[test]
fn what_is_of_no_connection_has_no_mark() {
    let mut fw = bench("ct mark != 1 counter accept\nct mark set 1\nmeta mark set ct mark accept");
    check(&mut fw, 0, 0, Frame::tcp("10.0.0.1:1", "192.0.2.9:80").flags("A"), "not_syn");
    check(&mut fw, 0, 0, Frame::tcp("10.0.0.1:1", "192.0.2.9:80").flags("S"), "pass");
}

#[test]
fn a_packet_has_its_mark_for_one_way_through_the_rules() {
    for (rules, expected) in [
        ("meta mark 0 meta mark set 1 accept", "pass"),
        ("meta mark set 1\nmeta mark 1 accept", "pass"),
        ("meta mark set 1\nmeta mark != 1 accept", "denied"),
        ("mark set 1\nmark { 3, 1-2 } accept", "pass"),
        // A map on marks is looked up once, and what it does not hold goes on to the next rule.
        ("meta mark set 1\nct mark set meta mark map { 1 : 10, 2 : 20 }\nct mark 10 accept", "pass"),
        ("meta mark set 1\nmeta mark set meta mark map { 1 : 2, 2 : 3 }\nmeta mark 2 accept", "pass"),
        ("meta mark set 0x21\nct mark set meta mark & 0xf map { 1-4 : 10, 5 : 20 } accept", "pass"),
        ("ct mark set meta mark map { 1 : 10, 2 : 20 } accept", "denied"),
        (
            "counter ct mark set meta mark map { 1 : 10 } accept comment \"b\"\nmeta mark set ct mark map { 0 : 5 }\nmeta mark 5 accept",
            "pass",
        ),
        ("meta mark set ct mark map { 0x00000000 : 0x00000005 comment \"c\" } continue\nmeta mark 5 accept", "pass"),
        ("ip saddr 10.9.9.9 meta mark set ct mark map { 0 : 5 } accept", "denied"),
        // Conditions before the change are not evaluated again.
        ("meta mark 0 meta mark set 1 udp dport 53 accept", "pass"),
        ("meta mark 1 meta mark set 0 udp dport 53 accept", "denied"),
        ("meta mark 0 jump side\nmeta mark 9 accept", "pass"),
        ("meta mark 1 jump side\nmeta mark 0 accept", "pass"),
        ("meta mark set 0x1234\nmeta mark & 0xff == 0x34 meta mark & 0xff00 != 0x3400 accept", "pass"),
        ("meta mark set 0x1234\nmeta mark and 0xff > 0x34 accept", "denied"),
        ("meta mark set 6\nmeta mark set meta mark & 0xc | 0x3\nmeta mark 7 accept", "pass"),
        ("meta mark set 6\nct mark set (meta mark | 0x1) ^ 0x2\nct mark 5 accept", "pass"),
        ("meta mark vmap { 1 : accept, 0 : goto side, 2-9 : drop }", "denied"),
        ("meta mark set 2\nmeta mark vmap { 1 : drop, 2-9 : accept }", "pass"),
        ("meta mark set 2\nmeta mark vmap { 1 : jump side, 3 : drop }\naccept", "pass"),
        ("meta mark set udp dport map { 52 : 1, 53-54 : 2 } meta mark 2 accept", "pass"),
        ("meta mark set udp dport map { 52 : 1, 55 : 2 } accept", "denied"),
        ("meta mark set ip saddr . udp dport map { 10.0.0.1 . 53 : 3 }\nmeta mark 3 accept", "pass"),
        ("meta mark set 1 counter limit rate 1/day burst 1 packets\nmeta mark 1 accept", "pass"),
    ] {
        check(&mut bench(rules), 0, 0, asks(7, 53), expected);
    }
    // The next packet has no mark.
    let mut fw = bench("meta mark 0 counter meta mark set 1\nmeta mark 1 accept");
    (0..3).for_each(|_| check(&mut fw, 0, 0, asks(7, 53), "pass"));
}

/// If no rule tests a mark none is kept, and rules need not be asked about known connections.
#[test]
fn marks_that_nobody_asks_for_are_not_set() {
    let notes = |rules: &str| {
        let policy = policy(&table(rules).replace("meta mark 9 return\n", ""), Hooks::Forward);
        assert!(policy.rules.iter().all(|rule| rule.gives.is_empty()));
        policy
            .notes
            .iter()
            .filter(|note| note.text.starts_with("marks are not set"))
            .map(|note| note.line)
            .collect::<Vec<_>>()
    };
    assert_eq!(notes("ct state established,related accept\nmeta mark set 1\nct mark set meta mark accept"), [9, 10]);
    let known = policy(&table("ct mark set 1\naccept").replace("meta mark 9 return\n", ""), Hooks::Forward);
    assert!(!known.asks_established());
    let asked = policy(&table("ct mark set 1\nct mark 1 accept"), Hooks::Forward);
    assert!(asked.asks_established() && asked.notes.iter().all(|note| !note.text.starts_with("marks are not set")));
    decides(&known, (IN, "10.0.0.1", "192.0.2.9", TCP, 80), Allow);
}

#[test]
fn what_cannot_be_said_of_marks_is_refused() {
    let refused = |rules: &str| read_text(&table(rules), &mut named(), PORTS).expect_err(rules);
    for (rules, reason) in [
        ("meta mark set ct mark | meta mark", "two marks in one"),
        ("meta mark set eth0", "`eth0` is no mark"),
        ("ct mark set meta mark map { 1 : 2 } counter accept", "a map of marks ends its rule"),
        ("ct mark set meta mark map { 1 : 2, 1 : 3 }", "another value before"),
        ("ip saddr . meta mark { 10.0.0.1 . 1 } accept", "marks cannot be concatenated"),
        ("meta mark . ip saddr { 1 . 10.0.0.1 } accept", "marks cannot be concatenated"),
        ("meta mark vmap { 1 }", "`` is no verdict"),
        ("meta mark > 0xffffffff accept", "nothing is left that could fit"),
        ("ct label 1 accept", "nothing is known of `ct label`"),
    ] {
        let error = refused(rules);
        assert!(error.reason.contains(reason) && error.line == 9, "{error}");
    }
}

/// A value of at most one mark and some numbers reduces to a mask and inverted bits.
#[test]
fn values_are_made_of_a_mark_and_numbers() {
    let mut marks = Marks::NEW;
    let set = |marks: &mut Marks, whose, value| assert!(marks.set(&Given { whose, value }));
    set(&mut marks, Whose::Packet, Value { from: None, mask: 0, bits: 0x1234 });
    set(&mut marks, Whose::Connection, Value { from: Some(Whose::Packet), mask: 0xff, bits: 0x8001 });
    let whole = |whose| Value { from: Some(whose), mask: u32::MAX, bits: 0 };
    let is = |whose, mark| Asked { made: whole(whose), ranges: vec![(mark, mark)] };
    assert!(marks.fit(&is(Whose::Packet, 0x1234)) && marks.fit(&is(Whose::Connection, 0x8035)));
    assert!(!marks.fit(&is(Whose::Connection, 0x8034)) && !Marks::default().fit(&is(Whose::Connection, 0)));
    assert!(
        !Marks::default()
            .set(&Given { whose: Whose::Packet, value: Value { from: Some(Whose::Connection), mask: 1, bits: 0 } })
    );
}
