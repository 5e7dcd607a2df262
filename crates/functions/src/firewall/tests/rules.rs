//! Lines of rule files have the expected meaning.

use braid_nf::packet::IpVersion;
use std::path::Path;

use crate::config::parse;
use crate::firewall::conditions::values::{IcmpKind, NameOrNumber};
use crate::firewall::config::Config;
use crate::firewall::rule_file::{self, Note, Ports, RuleError};
use crate::firewall::rules::Action;
use crate::firewall::{When, explain};
use crate::parts::Sides;
use braid_nf::state::Decided;
use braid_testkit::Frame;

/// A plan with two named ports.
pub(super) const PORTS: Ports =
    Ports { count: 2, sides: Sides::EVEN_INSIDE, decided: [Decided::Nowhere; 2], readdressed: [false; 2] };

/// Reads a rule file that is not on disk.
pub(super) fn read_text(text: &str, config: &mut Config, ports: Ports) -> Result<Vec<Note>, RuleError> {
    rule_file::read(Path::new("edge.nft"), text, config, ports)
}

pub(super) fn named() -> Config {
    Config { interfaces: vec!["lan0".to_owned(), "wan0".to_owned()], ..Config::default() }
}

fn read(text: &str) -> Config {
    let mut config = named();
    read_text(text, &mut config, PORTS).unwrap_or_else(|error| panic!("{error}"));
    config
}

/// Checks that a line of a rule file means the same as a table of a plan.
#[track_caller]
fn check(line: &str, table: &str) {
    let planned: Config = parse(format!("rules = [{{ {table} }}]").parse().unwrap()).unwrap();
    let mut read = read(line).rules;
    (read[0].line, read[0].origin) = (0, 0);
    assert_eq!(read, planned.rules, "{line}");
}

#[test]
fn lines_say_what_tables_say() {
    check("accept", "action = 'allow'");
    check(
        "inbound tcp dport 80 drop",
        "action = 'deny', direction = 'inbound', protocol = 'tcp', destination_ports = 80",
    );
    check("ip saddr 10.0.0.66 reject comment \"him\"", "action = 'reject', source = '10.0.0.66', comment = 'him'");
    check(
        "iif 1 ip6 daddr { 2001:db8::/32, 2001:db9::1 } udp sport 1024-65535 accept # why",
        "action = 'allow', ports = 1, destination = ['2001:db8::/32', '2001:db9::1'], protocol = 'udp', source_ports = '1024-65535'",
    );
    check("meta l4proto { gre, 50 } accept", "action = 'allow', protocol = [47, 50]");
    check("meta l4proto { igmp, ospf, 112 } accept", "action = 'allow', protocol = ['igmp', 'ospf', 'vrrp']");
    check(
        "tcp flags syn / fin,syn,rst,ack accept",
        "action = 'allow', protocol = 'tcp', tcp_flags = 'syn / fin,syn,rst,ack'",
    );
    check("icmp type { echo-request, 3/4 } accept", "action = 'allow', protocol = 'icmp', icmp = [8, '3/4']");
    check("icmpv6 type packet-too-big accept", "action = 'allow', protocol = 'icmpv6', icmp = 2");
    check("ip saddr 10.0.0.1-10.0.0.9 drop", "action = 'deny', source = '10.0.0.1-10.0.0.9'");
    check("ip saddr != 128.0.0.0/1 drop", "action = 'deny', source = '0.0.0.0/1'");
    check(
        "tcp dport { ssh, http-alt } accept",
        "action = 'accept', protocol = 'tcp', destination_ports = ['ssh', 8080]",
    );
    check(
        "meta l4proto { tcp, udp } th dport 53 accept",
        "action = 'allow', protocol = ['tcp', 'udp'], destination_ports = 53",
    );
    check("meta nfproto ipv6 drop", "action = 'deny', source = '::/0'");
    for flags in ["syn / fin,syn,rst,ack", "& (fin|syn|rst|ack) == syn", "& ( fin | syn | rst | ack ) == syn"] {
        let table = "action = 'allow', protocol = 'tcp', tcp_flags = 'syn / fin,syn,rst,ack'";
        check(&format!("tcp flags {flags} accept"), table);
    }
    check(
        "tcp flags & (syn | ack) == (syn | ack) drop",
        "action = 'deny', protocol = 'tcp', tcp_flags = 'syn,ack / syn,ack'",
    );
    check("ct state new tcp dport 22 accept", "action = 'allow', protocol = 'tcp', destination_ports = 22");
    check("ct state { new, established } accept", "action = 'allow'");
    check(
        "ip saddr 10.0.0.66 counter packets 7 bytes 420 drop",
        "action = 'deny', source = '10.0.0.66', counter = true",
    );
    check("tcp dport 23 reject with tcp reset", "action = 'reject', protocol = 'tcp', destination_ports = 23");
    check(
        "tcp flags != syn / fin,syn,rst,ack drop",
        "action = 'deny', protocol = 'tcp', tcp_flags = 'not syn / fin,syn,rst,ack'",
    );
    check(
        "tcp flags & (fin|syn|rst|ack) != syn drop",
        "action = 'deny', protocol = 'tcp', tcp_flags = 'not syn / fin,syn,rst,ack'",
    );
    check("tcp flags & (fin | syn) == 0x0 drop", "action = 'deny', protocol = 'tcp', tcp_flags = 'none / fin,syn'");
    check(
        "tcp flags == syn drop",
        "action = 'deny', protocol = 'tcp', tcp_flags = 'syn / fin,syn,rst,psh,ack,urg,ecn,cwr'",
    );
    check("iifname wan0 drop", "action = 'deny', ports = 1");
    check("oifname \"wan*\" accept", "action = 'allow', ports = 0");
    check(
        "ip saddr 10.0.0.66 log prefix \"him: \" level info flags all drop",
        "action = 'deny', source = '10.0.0.66', log = 'him: '",
    );
    check("tcp dport != { 0-79, 90-65535 } drop", "action = 'deny', protocol = 'tcp', destination_ports = '80-89'");
}

#[test]
fn sets_have_names_and_policies_are_set() {
    let config = read(
        "define admins = { 192.0.2.0/28,\n  192.0.2.99 }\npolicy inbound reject; policy outbound drop\n\nip saddr $admins accept",
    );
    assert_eq!((config.inbound, config.outbound), (Action::Reject, Action::Deny));
    assert_eq!((config.rules[0].line, config.rules[0].source.0.len()), (5, 2));
}

/// All conditions of a rule have to hold, as in nftables.
#[test]
fn what_is_said_twice_has_to_fit_both() {
    check("ip saddr 10.0.0.0/8 ip saddr != 10.128.0.0/9 accept", "action = 'allow', source = '10.0.0.0/9'");
    check(
        "tcp dport 20-30 tcp dport != 22 drop",
        "action = 'deny', protocol = 'tcp', destination_ports = ['20-21', '23-30']",
    );
    check(
        "meta l4proto { tcp, udp } tcp sport 53 tcp dport 53 drop",
        "action = 'deny', protocol = 'tcp', source_ports = 53, destination_ports = 53",
    );
    let nothing = |line: &str, what: &str| {
        let expected =
            format!("line 1: no {what} fits all that the rule says; write two rules, or what can hold together");
        check_error(line, &expected);
    };
    nothing("meta nfproto ipv4 ip6 saddr 2001:db8::1 drop", "address");
    nothing("ip protocol udp tcp dport 53 accept", "protocol");
    nothing("ip6 saddr 2001:db8::1 ip ttl 5 drop", "address");
    check_error(
        "inbound outbound drop",
        "line 1: the rule names two directions; write inbound, or outbound, or neither",
    );
}

#[test]
fn sets_may_be_written_as_nftables_lists_them() {
    let config = read(
        "set admins {\n type ipv4_addr\n flags interval\n elements = { 192.0.2.0/28,\n 192.0.2.99 }\n}\n\
         set web { type inet_service; elements = { http, 443 }; }\n\
         ip saddr @admins tcp dport @web accept",
    );
    assert_eq!((config.rules[0].source.0.len(), config.rules[0].destination_ports.0.len()), (2, 2));
}

/// A line that only confirms the default needs no rule.
#[test]
fn what_lines_say_of_known_connections_has_to_be_so_anyway() {
    for line in [
        "ct state established,related accept",
        "ct state { established, related } counter accept",
        "ct state invalid drop",
    ] {
        assert_eq!(read(line).rules, [], "{line}");
    }
    check_error(
        "ct state established drop",
        "line 1: lines without a table are about packets that would open a connection, the others follow it; write ct state new, \
         or leave it out; or table inet filter { chain forward { … } } around the rules",
    );
    assert!(read_text("ct state invalid accept", &mut named(), PORTS).is_err());
    assert!(read_text("ct label 3 accept", &mut named(), PORTS).is_err());
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    let error = read_text(text, &mut named(), PORTS).unwrap_err();
    assert_eq!(format!("line {}: {}; {}", error.line, error.reason, error.instead), expected);
}

#[test]
fn lines_that_are_no_rules_are_refused_with_what_to_write() {
    check_error("\naccept\ntcp dport 80", "line 3: the rule has no verdict; end with accept, drop or reject");
    check_error(
        "ip saddr 10.0.0/8 drop",
        "line 1: `10.0.0/8` is no address range; write 10.0.0.0/8, 2001:db8::/32, 10.0.0.1, 10.0.0.1-10.0.0.9, or { several, of, them }",
    );
    for backwards in ["ip saddr 10.0.0.9-10.0.0.1", "tcp dport 80-70", "tcp dport { 5, 80-70 }", "meta mark 9-3"] {
        let range = backwards.split([' ', '{', '}']).find(|word| word.contains('-')).unwrap();
        let wrong = format!("line 1: `{range}` ends before it begins; write the smaller end first");
        check_error(&format!("{backwards} drop"), &wrong);
    }
    check_error(
        "ip saddr 2001:db8::1 drop",
        "line 1: 2001:db8::1 is of the other family; write ip for IPv4 and ip6 for IPv6",
    );
    check_error("ip saddr $lan drop", "line 1: `lan` is not defined; write define lan = { … } before");
    check_error("tcp dport { 80, 90 accept", "line 1: a set without its end; write } behind it");
    check_error(
        "tcp dport shh accept",
        "line 1: `shh` is not a port, a range or a name such as 80, 6000-6063 or ssh; write a port, a range or a name such as 80, 6000-6063 or ssh",
    );
    check_error(
        "iif 7 accept",
        "line 1: no port of the plan is named `7`; write its port: interfaces = [\"7\", …] in the plan, a name for each port in their order; or iif 0",
    );
    check_error(
        "udp dport 22 reject with tcp reset",
        "line 1: no protocol fits all that the rule says; write two rules, or what can hold together",
    );
    check_error(
        "set a { type ipv4_addr; timeout 1d; }",
        "line 1: packets change sets of tables only; write table inet filter { … } around it",
    );
    check_error("accept all", "line 1: `all` comes behind the end of the rule; remove it, or begin a new line");
    check_error(
        "ip saddr 10.0.0.1 ip6 daddr 2001:db8::1 drop",
        "line 1: 10.0.0.1 and 2001:db8::1 are of two families, which no packet is; write two rules",
    );
    check_error(
        "iifname wan0.10 accept",
        "line 1: `wan0.10` is a VLAN of a port; write iifname wan0 vlan id 10; by which VLAN a packet leaves is not known",
    );
    check_error(
        "limit rate 0/day accept",
        "line 1: `0/day burst 5 packets` is not possible; write a rate of at least 1",
    );
    check_error("policy forward drop", "line 1: `forward` is no direction; write outbound or inbound");
    check_error(
        "icmp max-delay 3 drop",
        "line 1: `max-delay` is nothing of icmp that is looked at; write icmp and one of type, code, id, sequence, mtu, gateway",
    );
}

#[test]
fn the_deciding_rule_is_explained() {
    let text = "ip saddr 10.0.0.66 drop\ntcp dport { 80, 443 } accept\nmeta l4proto tcp reject";
    let page = |frame: Frame| explain(read(text), 2, (0, &frame.bytes()), When::Utc(0)).unwrap();
    assert_eq!(
        page(Frame::tcp("10.0.0.1:1100", "192.0.2.9:443").flags("S")),
        "The packet is outbound by port 0 and passes, and opens a connection.\n\n\
         line 2 of the rule file decides: protocol tcp, destination ports 80, 443: accept\n  \
         before it, line 1 of the rule file does not fit by its source\n  \
         behind it, line 3 of the rule file would fit too: protocol tcp: reject\n"
    );
    assert!(page(Frame::udp("10.0.0.1:1100", "192.0.2.9:443")).contains("No rule fits: `outbound` decides.\n"));
    let syn = Frame::tcp("10.0.0.1:7", "192.0.2.9:80").flags("S").bytes();
    for (frame, what) in [
        (Frame::tcp("10.0.0.66:7", "192.0.2.9:80"), "is dropped: denied"),
        (Frame::tcp("10.0.0.1:7", "192.0.2.9:80"), "is dropped as not_syn, unless it is of a live connection"),
        (
            Frame::tcp("10.0.0.1:7", "192.0.2.9:80").flags("SF"),
            "is dropped as invalid_tcp_flags: it is invalid, whatever rules say",
        ),
        (Frame::echo_request("10.0.0.1", "192.0.2.9", 7, 1), "passes, and opens a connection"),
        (Frame::echo_reply("10.0.0.1", "192.0.2.9", 7, 1), "is dropped as no_query, unless it answers a live query"),
        (
            Frame::unreachable("10.0.0.1", "192.0.2.9", &syn),
            "is dropped as unrelated, unless it quotes a packet of a live connection or query",
        ),
    ] {
        let said = page(frame);
        assert!(said.contains(&format!("by port 0 and {what}.\n")), "{said}");
    }
    assert!(explain(read(text), 2, (5, &Frame::arp("10.0.0.1", "10.0.0.2").bytes()), When::Utc(0)).is_err());
}

#[test]
fn icmp_types_have_names_of_both_families() {
    let eight: IcmpKind = NameOrNumber::Number(8).try_into().unwrap();
    assert_eq!(IcmpKind::written("echo-request", IpVersion::V4), Some(eight));
    assert_eq!(IcmpKind::written("nd-redirect", IpVersion::V6).map(|kind| kind.first >> 8), Some(137));
    assert_eq!(IcmpKind::written("nd-redirect", IpVersion::V4), None);
}
