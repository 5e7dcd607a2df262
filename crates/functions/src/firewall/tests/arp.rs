//! ARP packets meet the chains of tables `bridge`, `netdev` and `arp`, if the file speaks of ARP.

use std::fs;

use braid_testkit::{Bench, Frame};

use super::{bench, check};
use crate::firewall::config::Config;
use crate::firewall::explain;
use crate::firewall::rule_file::Hooks;

/// A firewall with this rule file between two ports of a bridge, or as `hook` says.
fn with(name: &str, text: &str, hook: &str) -> Bench {
    let path = std::env::temp_dir().join(format!("braid-arp-{}-{name}.nft", std::process::id()));
    fs::write(&path, text).unwrap();
    let fw = bench(&format!(
        "rules_hook = '{hook}'\ninterfaces = ['lan0', 'wan0']\ninbound = 'allow'\nrules_file = '{}'",
        path.display()
    ));
    fs::remove_file(path).unwrap();
    fw
}

/// An ARP packet with all of its fields, from 02:00:00:00:00:01.
fn arp(operation: u8, sender: ([u8; 6], [u8; 4]), target: ([u8; 6], [u8; 4])) -> Frame {
    let head = [0, 1, 8, 0, 6, 4, 0, operation];
    Frame::arp("0.0.0.0", "0.0.0.0").payload(&[&head[..], &sender.0, &sender.1, &target.0, &target.1].concat())
}

const ONE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const TWO: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Whether 10.0.0.1 at 02:…:01 may answer 10.0.0.2 at 02:…:02, and UDP pass, where packets that fit a rule are dropped.
#[track_caller]
fn drops(rule: &str, of_arp: bool, of_ip: bool) {
    let text = format!(
        "table bridge filter {{
            set hosts {{ type ether_addr . ipv4_addr; elements = {{ 02:00:00:00:00:01 . 10.0.0.1 }} }}
            chain spoken {{ arp operation 77 drop }}
            chain forward {{ type filter hook forward priority 0; policy accept; {rule} drop; }}
        }}"
    );
    let name: String = rule.chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '_' }).collect();
    let mut fw = with(&name, &text, "bridge");
    let reply = arp(2, (ONE, [10, 0, 0, 1]), (TWO, [10, 0, 0, 2]));
    let outcome = fw.send(0, 0, &reply.bytes());
    assert_eq!(outcome.dropped, of_arp.then_some("denied"), "{rule}");
    let outcome = fw.send(0, 0, &Frame::udp("10.0.0.1:1", "10.0.0.2:2").bytes());
    assert_eq!(outcome.dropped, of_ip.then_some("denied"), "{rule}");
}

#[test]
fn conditions_are_about_arp_or_ip_or_both() {
    for rule in [
        "arp operation reply",
        "arp operation != request",
        "arp operation { 2, 9 }",
        "arp saddr ip 10.0.0.1",
        "arp saddr ip 10.0.0.0/24 arp daddr ip 10.0.0.2",
        "arp saddr ip & 0.0.0.3 == 0.0.0.1",
        "arp saddr ether 02:00:00:00:00:01",
        "arp daddr ether & ff:ff:00:00:00:00 == 02:00:00:00:00:00",
        "arp saddr ether . arp saddr ip @hosts",
        "ether saddr . arp saddr ip @hosts",
        "arp daddr ether . arp daddr ip != @hosts",
        "arp htype 1 arp ptype 0x0800 arp hlen 6 arp plen 4",
        "ether type arp",
        "meta protocol arp",
        "ether type 0x0806 ether saddr 02:00:00:00:00:01",
        "arp operation vmap { reply : continue }",
    ] {
        drops(rule, true, false);
    }
    for rule in [
        "arp operation request",
        "arp saddr ip != 10.0.0.1",
        "arp daddr ip 10.0.0.1",
        "arp saddr ether 02:00:00:00:00:02",
        "arp daddr ether . arp daddr ip @hosts",
        "ether saddr . arp saddr ip != @hosts",
        "arp htype 6",
        "arp operation reply ip saddr 10.0.0.1",
    ] {
        drops(rule, false, false);
    }
    for rule in [
        "ip saddr 0.0.0.0/0",
        "ip saddr 10.0.0.1",
        "ether type ip",
        "meta nfproto ipv4",
        "ether type != arp",
        "meta l4proto udp",
        "udp dport 2",
        "meta length > 0",
        "ct state new",
        "ct state != invalid",
        "@nh,0,4 4",
    ] {
        drops(rule, false, true);
    }
    for rule in
        ["", "ether saddr 02:00:00:00:00:01", "iifname lan0", "ether type { arp, ip }", "ether type { arp, ip, ip6 }"]
    {
        drops(rule, true, true);
    }
    // To the kernel an ARP packet is invalid.
    drops("ct state invalid", true, false);
    drops("ct state vmap { established : accept, invalid : drop } ip saddr 10.9.9.9", true, false);
}

#[test]
fn a_file_that_does_not_speak_of_arp_lets_it_pass() {
    let mut fw =
        with("silent", "table bridge f { chain c { type filter hook forward priority 0; policy drop; } }", "bridge");
    check(&mut fw, 0, 0, Frame::arp("10.0.0.1", "10.0.0.2"), "pass");
    check(&mut fw, 0, 0, Frame::udp("10.0.0.1:1", "10.0.0.2:2"), "denied");
    let mut fw = with(
        "of_a_device",
        "table netdev f { chain c { type filter hook ingress device wan0 priority 0; policy drop; arp operation request limit rate 2/second burst 2 packets accept; } }",
        "forward",
    );
    check(&mut fw, 0, 0, Frame::arp("10.0.0.1", "10.0.0.2"), "pass");
    check(&mut fw, 1, 0, Frame::arp("10.0.0.1", "10.0.0.2"), "pass");
    check(&mut fw, 1, 0, Frame::arp("10.0.0.1", "10.0.0.2").vlan(7), "pass");
    check(&mut fw, 1, 0, Frame::arp("10.0.0.1", "10.0.0.2"), "denied");
    check(&mut fw, 1, 0, arp(2, (ONE, [10, 0, 0, 1]), (TWO, [10, 0, 0, 2])), "denied");
    // ARP that is cut off says nothing.
    check(&mut fw, 1, 1, Frame::arp("10.0.0.1", "10.0.0.2").payload(&[0, 1, 8, 0, 6, 4, 0, 1]), "malformed");
}

#[test]
fn a_table_of_arp_is_for_the_hosts_inside() {
    let text = "table arp filter {
        set told { type ipv4_addr; flags dynamic, timeout; timeout 1m; }
        chain input { type filter hook input priority 0; policy drop; arp operation request accept; arp saddr ip @told accept; }
        chain output { type filter hook output priority 0; add @told { arp daddr ip } counter log prefix \"asked \"; }
    }
    table inet filter { chain input { type filter hook input priority 0; policy accept; } }";
    let mut fw = with("hosts", text, "host");
    let answer = || arp(2, (TWO, [10, 0, 0, 2]), (ONE, [10, 0, 0, 1]));
    check(&mut fw, 1, 0, answer(), "denied");
    check(&mut fw, 1, 0, Frame::arp("10.0.0.2", "10.0.0.1"), "pass");
    check(&mut fw, 0, 0, Frame::arp("10.0.0.1", "10.0.0.2"), "pass");
    check(&mut fw, 1, 1, answer(), "pass");
    check(&mut fw, 1, 1, Frame::udp("10.0.0.2:1", "10.0.0.1:2"), "pass");
    check(&mut fw, 1, 62, answer(), "denied");
    let findings = format!("{:?}", fw.findings());
    assert!(findings.contains("asked arp 10.0.0.1 > 10.0.0.2 by port 0"), "{findings}");
    assert!(findings.contains("fitted once, 28 bytes") || findings.contains("logged once, 28 bytes"), "{findings}");
    // Without the hosts nobody is asked, and the report says so.
    let mut fw =
        with("nobody", &text.replace("hook input priority 0; policy accept", "hook forward priority 0"), "forward");
    check(&mut fw, 1, 0, answer(), "pass");
    assert!(format!("{:?}", fw.findings()).contains("to and from the machine itself"));
}

#[test]
fn it_is_explained() {
    let path = std::env::temp_dir().join(format!("braid-arp-{}-explained.nft", std::process::id()));
    fs::write(&path, "table bridge f { chain c { type filter hook forward priority 0; policy drop; arp saddr ip 10.0.0.1 accept; } }")
        .unwrap();
    let config = || Config { rules_hook: Hooks::Bridge, rules_file: Some(path.clone()), ..Config::default() };
    let said =
        |frame: Frame| explain(config(), 2, (1, &frame.bytes()), super::super::When::Utc(0)).expect("an ARP packet");
    let passes = said(Frame::arp("10.0.0.1", "10.0.0.2"));
    assert!(passes.contains("by port 1 and passes.") && passes.contains("line 1 of the rule file decides"), "{passes}");
    assert!(said(Frame::arp("10.0.0.3", "10.0.0.2")).contains("is dropped: denied"));
    fs::remove_file(path).unwrap();
}
