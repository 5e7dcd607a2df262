//! Tables of rule files also apply to packets of known connections, as far as they have something to say about them.

use std::sync::Arc;

use braid_nf::prelude::*;
use braid_nf::state::{StateBuilder, StateObject};
use braid_nf::{Declare, Instance};
use braid_testkit::{Bench, Frame};

use super::{SERVER, back, check, to};
use crate::catalog::FromConfig;
use crate::config::{ConfigError, parse};
use crate::firewall::connection::permit::Permit;
use crate::firewall::rules::{Action, Rule};
use crate::firewall::{Config, Connection, Firewall, ends_of};
use crate::parts::Side;

/// A chain of the forward hook with these rules and policy accept; or drop, if they contain a policy of their own.
fn table(rules: &str) -> String {
    format!("table inet t {{\nchain f {{\ntype filter hook forward priority 0; policy accept;\n{rules}\n}}\n}}\n")
}

/// A firewall with this rule file, or the reason why it is refused.
pub(super) fn made(text: &str, builder: &mut StateBuilder) -> Result<Firewall, ConfigError> {
    let name = format!("braid-known-{}-{:x}.nft", std::process::id(), text.as_ptr() as usize);
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, text).expect("room for a test");
    let config = format!("rules_file = {path:?}\ninterfaces = ['lan', 'wan']");
    let config: Config = parse(config.parse().expect("TOML")).expect("a configuration");
    let firewall = Firewall::from_config(config, builder.scope("fw"), 2);
    std::fs::remove_file(&path).expect("it is there");
    firewall
}

fn bench(rules: &str) -> Bench {
    bench_of(&table(rules))
}

/// A bench with a firewall for this rule file.
pub(super) fn bench_of(text: &str) -> Bench {
    Bench::with_sets(2, 1024, |builder| {
        Box::new(Instance::new("fw", made(text, builder).expect("rules that can be read")))
    })
}

/// A firewall with an established TCP connection from inside.
fn connected(rules: &str) -> Bench {
    let mut fw = bench(rules);
    check(&mut fw, 0, 0, to("S"), "pass");
    check(&mut fw, 1, 0, back("SA"), "pass");
    check(&mut fw, 0, 0, to("A"), "pass");
    check(&mut fw, 1, 0, back("A"), "pass");
    fw
}

fn asks(port: u16) -> Frame {
    Frame::udp(&format!("10.0.0.1:{port}"), SERVER)
}

fn answers(port: u16) -> Frame {
    Frame::udp(SERVER, &format!("10.0.0.1:{port}"))
}

/// What is reported about each rule.
fn told(fw: Bench) -> Vec<String> {
    let told = fw.findings();
    let of_rules = told.list().iter().filter(|told| told.subject.ends_with("rule file"));
    of_rules.map(|told| format!("{} {}", told.subject, told.detail)).collect()
}

#[test]
fn without_established_accept_answers_are_for_the_rules() {
    let mut fw = bench("iifname wan drop");
    check(&mut fw, 0, 0, asks(1), "pass");
    check(&mut fw, 1, 0, answers(1), "denied");
    check(&mut fw, 0, 0, asks(1), "pass");
    let mut fw = bench("ct state established drop");
    check(&mut fw, 0, 0, to("S"), "pass");
    check(&mut fw, 1, 0, back("SA"), "denied");
    // The answer was dropped, but the connection counts as answered.
    check(&mut fw, 0, 0, to("S"), "denied");
}

#[test]
fn what_stands_before_established_accept_drops_answers_and_what_goes_on() {
    let guard = "ct state established,related accept";
    let mut fw = connected(&format!("ip saddr 192.0.2.66 drop\n{guard}\nct state ! new drop"));
    check(&mut fw, 1, 0, back("PA"), "pass");
    check(&mut fw, 0, 0, Frame::udp("10.0.0.1:5", "192.0.2.66:5"), "pass");
    check(&mut fw, 1, 0, Frame::udp("192.0.2.66:5", "10.0.0.1:5"), "denied");
    check(&mut fw, 1, 0, Frame::udp("192.0.2.66:5", "10.0.0.1:5"), "denied");
    // After the guard no rule is asked.
    let mut fw = connected(&format!("{guard}\nip saddr 192.0.2.9 drop"));
    check(&mut fw, 1, 0, back("PA"), "pass");
}

#[test]
fn what_differs_from_packet_to_packet_is_asked_of_each() {
    let guard = "ct state established,related accept";
    let mut fw = connected(&format!("meta length > 500 drop\n{guard}"));
    for _ in 0..2 {
        check(&mut fw, 0, 0, to("PA").payload(&[1; 400]), "pass");
        check(&mut fw, 0, 0, to("PA").payload(&[1; 500]), "denied");
        check(&mut fw, 1, 0, back("A"), "pass");
    }
    let mut fw = connected(&format!("tcp flags psh tcp dport 80 drop\n{guard}"));
    check(&mut fw, 0, 0, to("PA"), "denied");
    check(&mut fw, 1, 0, back("PA"), "pass");
    check(&mut fw, 0, 0, to("A"), "pass");
    // A rule about segments that a connection in steady state does not send costs it nothing, but still applies.
    let mut fw = connected(&format!("tcp flags rst drop\n{guard}"));
    check(&mut fw, 0, 0, to("A"), "pass");
    check(&mut fw, 1, 0, back("R"), "denied");
}

#[test]
fn rules_count_and_limit_packets_of_known_connections() {
    let mut fw = connected("counter\nct state established counter accept\nct state new accept");
    check(&mut fw, 0, 0, to("PA"), "pass");
    assert_eq!(
        told(fw),
        ["line 4 of the rule file fitted 5 times, 200 bytes", "line 5 of the rule file decided 4 times, 160 bytes"]
    );
    let mut fw = connected("tcp flags psh limit rate over 1/second burst 1 packets drop\nct state established accept");
    check(&mut fw, 0, 0, to("PA"), "pass");
    check(&mut fw, 0, 0, to("PA"), "denied");
    check(&mut fw, 1, 0, back("A"), "pass");
    check(&mut fw, 0, 1, to("PA"), "pass");
}

#[test]
fn errors_and_answers_of_icmp_meet_the_rules_too() {
    let mut fw = bench("icmp type { destination-unreachable, echo-reply } drop\nct state established,related accept");
    check(&mut fw, 0, 0, asks(1), "pass");
    check(&mut fw, 1, 0, Frame::unreachable("203.0.113.9", "10.0.0.1", &asks(1).bytes()), "denied");
    check(&mut fw, 0, 0, Frame::echo_request("10.0.0.1", "192.0.2.9", 5, 1), "pass");
    check(&mut fw, 1, 0, Frame::echo_reply("192.0.2.9", "10.0.0.1", 5, 1), "denied");
    let mut fw = bench("ct state related drop\nicmp type echo-request ct state established drop");
    check(&mut fw, 0, 0, asks(1), "pass");
    check(&mut fw, 1, 0, Frame::unreachable("203.0.113.9", "10.0.0.1", &asks(1).bytes()), "denied");
    check(&mut fw, 0, 0, Frame::echo_request("10.0.0.1", "192.0.2.9", 5, 1), "pass");
    check(&mut fw, 1, 0, Frame::echo_reply("192.0.2.9", "10.0.0.1", 5, 1), "pass");
    check(&mut fw, 0, 0, Frame::echo_request("10.0.0.1", "192.0.2.9", 5, 2), "denied");
}

#[test]
fn what_is_invalid_meets_the_rules_and_passes_if_they_say_so() {
    let mut fw = bench("");
    check(&mut fw, 1, 0, back("A"), "pass");
    check(&mut fw, 1, 0, back("SF"), "pass");
    check(&mut fw, 1, 0, Frame::echo_reply("192.0.2.9", "10.0.0.1", 5, 1), "pass");
    check(&mut fw, 0, 0, to("A"), "pass");
    let mut fw = bench("ct state invalid counter drop\nct state new counter accept");
    check(&mut fw, 1, 0, back("A"), "not_syn");
    check(&mut fw, 1, 0, back("SF"), "invalid_tcp_flags");
    check(&mut fw, 1, 0, Frame::echo_reply("192.0.2.9", "10.0.0.1", 5, 1), "no_query");
    check(&mut fw, 1, 0, Frame::unreachable("203.0.113.9", "10.0.0.1", &asks(1).bytes()), "unrelated");
    check(&mut fw, 0, 0, to("S"), "pass");
    let counted =
        ["line 4 of the rule file decided 4 times, 164 bytes", "line 5 of the rule file decided once, 40 bytes"];
    assert_eq!(told(fw), counted);
    // A segment beyond its window passes if the rules allow it, but is not believed.
    let mut fw = connected("ct state established accept");
    check(&mut fw, 0, 0, to("PA").numbers(9_000_000, 0).payload(&[1; 10]), "pass");
    check(&mut fw, 1, 0, back("A").numbers(0, 9_000_010), "pass");
    let mut fw = connected("ct state invalid drop");
    check(&mut fw, 0, 0, to("PA").numbers(9_000_000, 0).payload(&[1; 10]), "out_of_window");
}

#[test]
fn datagrams_that_nobody_answers_are_new_however_many() {
    let mut fw =
        bench("ct state new udp dport 80 limit rate over 1/second burst 2 packets drop\nct state established drop");
    check(&mut fw, 0, 0, asks(1), "pass");
    check(&mut fw, 0, 0, asks(1), "pass");
    check(&mut fw, 0, 0, asks(1), "denied");
    check(&mut fw, 1, 0, answers(1), "denied");
    check(&mut fw, 0, 5, asks(1), "denied");
}

/// An error to a connection's opener has the direction of a reply, and the connection's endpoints, whichever router sends
/// it.
#[test]
fn rules_ask_of_icmp_errors_what_they_ask_of_their_connections() {
    let (opener, asked) = ("10.0.0.1", "192.0.2.9");
    for (condition, to_opener, to_asked) in [
        ("ct direction reply", true, false),
        ("ct direction original", false, true),
        ("ct original ip saddr 10.0.0.0/24", true, true),
        ("ct original ip saddr != 10.0.0.1", false, false),
        ("ct original ip daddr { 192.0.2.8, 192.0.2.9 }", true, true),
        ("ct original ip daddr 10.0.0.1", false, false),
        ("ct reply ip saddr 192.0.2.9 ct reply ip daddr 10.0.0.1", true, true),
        ("ct reply ip saddr 10.0.0.1", false, false),
        ("ct original ip saddr 10.0.0.1 ct direction reply", true, false),
    ] {
        // From inside and from outside, for UDP and for pings: the result must be what the rule says about each.
        for (from, swapped) in [(0, false), (1, true)] {
            let condition = match swapped {
                true => condition
                    .replace("10.0.0", "x.x.x")
                    .replace("192.0.2.8, ", "10.0.0.8, ")
                    .replace("192.0.2.9", "10.0.0.1"),
                false => condition.to_owned(),
            };
            let condition = condition.replace("x.x.x.1", asked).replace("x.x.x.0/24", "192.0.2.0/24");
            let (opener, asked) = if swapped { (asked, opener) } else { (opener, asked) };
            let mut fw = bench(&format!("ct state related {condition} drop"));
            let said = |drops| if drops { "denied" } else { "pass" };
            let ports = |address: &str, port: u16| format!("{address}:{port}");
            let pairs = [
                [Frame::udp(&ports(opener, 7), &ports(asked, 53)), Frame::udp(&ports(asked, 53), &ports(opener, 7))],
                [Frame::echo_request(opener, asked, 5, 1), Frame::echo_reply(asked, opener, 5, 1)],
            ];
            for [asks, answers] in pairs {
                let (asks_again, answered) = (asks.clone().bytes(), answers.clone().bytes());
                check(&mut fw, from, 0, asks, "pass");
                check(&mut fw, 1 - from, 0, answers, "pass");
                let error = Frame::unreachable("203.0.113.9", opener, &asks_again);
                check(&mut fw, 1 - from, 0, error, said(to_opener));
                let error = Frame::unreachable("10.0.0.254", asked, &answered);
                check(&mut fw, from, 0, error, said(to_asked));
            }
        }
    }
    let mut fw = bench("ct state related ct original proto-dst 80 ct original proto-src != 80 counter drop");
    check(&mut fw, 0, 0, to("S"), "pass");
    check(&mut fw, 1, 0, Frame::unreachable("203.0.113.9", opener, &to("S").bytes()), "denied");
    check(&mut fw, 0, 0, Frame::udp("10.0.0.1:80", "192.0.2.9:90"), "pass");
    let quoted = Frame::udp("10.0.0.1:80", "192.0.2.9:90").bytes();
    check(&mut fw, 1, 0, Frame::unreachable("203.0.113.9", opener, &quoted), "pass");
    check(&mut fw, 0, 0, Frame::echo_request(opener, asked, 80, 1), "pass");
    let quoted = Frame::echo_request(opener, asked, 80, 1).bytes();
    check(&mut fw, 1, 0, Frame::unreachable("203.0.113.9", opener, &quoted), "pass");
}

/// A firewall that stores connections as older versions did: all as if opened from inside. Everything else is done by the
/// current one, so it finds what a snapshot of an older version contains.
struct Older(Firewall);

impl Declare for Older {
    fn objects(&self) -> Vec<Arc<dyn StateObject>> {
        self.0.objects()
    }
}

impl NetworkFunction for Older {
    type Set = Connection;
    const NAME: &'static str = "firewall";

    fn packet_set(&self) -> Option<SetDef> {
        self.0.packet_set()
    }

    fn timeout_ns(&self, connection: &Connection) -> u64 {
        self.0.timeout_ns(connection)
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Connection>) -> Handled {
        let verdict = self.0.first(cx, packet, set)?;
        let ends = ends_of(packet, Side::Outside);
        if self.0.connections.leave(cx, &ends.opened_from(Side::Outside as u8))? {
            assert!(self.0.connections.enter(cx, &ends.opened_from(Side::Inside as u8), &())?);
        }
        Ok(verdict)
    }

    fn expired(&self, cx: &mut Cx<'_>, key: &SetKey, connection: &Connection) -> Result<(), Conflict> {
        self.0.expired(cx, key, connection)
    }
}

#[test]
fn connections_that_older_versions_have_noted_leave_too() {
    let older = Bench::with_sets(2, 1024, |builder| {
        Box::new(Instance::new("fw", Older(made(&table(""), builder).expect("rules that can be read"))))
    });
    for mut fw in [bench(""), older] {
        let noted = |fw: &Bench| ["fw.connections", "fw.connections_v6"].map(|name| fw.object(name).len());
        for (port, source, destination) in [
            (1, "192.0.2.9:53", "10.0.0.1:7"),
            (1, "[2001:db8:1::9]:53", "[2001:db8::1]:7"),
            (0, "10.0.0.1:8", "192.0.2.9:53"),
        ] {
            check(&mut fw, port, 0, Frame::udp(source, destination), "pass");
        }
        assert_eq!(noted(&fw), [32, 40]);
        // Long after the connections are over.
        check(&mut fw, 0, 1000, Frame::udp("10.0.0.1:9", "192.0.2.9:53"), "pass");
        assert_eq!(noted(&fw), [16, 0]);
    }
}

/// Connections that old rules let in meet the new rules, whatever was stored about them.
#[test]
fn what_old_rules_have_said_of_a_connection_does_not_count() {
    let rules = |action| vec![Rule { line: 3, ..Rule::new(action) }];
    let (old, new) = (Permit::of(&rules(Action::Allow)), Permit::of(&rules(Action::Deny)));
    assert_ne!(old, new);
    assert!(!old.is_of(new) && old.is_of(old) && old.asked().is_of(old) && old.asked() != old);
    assert!(!Permit::default().is_of(old) && Permit::default().is_of(Permit::default()));
    for (permit, side) in [(old, 0), (old.asked(), 1), (new, 1)] {
        let bytes = permit.beside(side);
        assert_eq!((Permit::of_bytes(bytes), bytes[2] & 1), (permit, side));
    }
}
