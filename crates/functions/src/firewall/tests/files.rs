//! Rule files in the manner of distributions, wikis and generators: what is taken of them, and what each says about some packets.

use super::rules::{PORTS, named, read_text};
use super::tables::{IN, OUT, TCP, UDP, check, policy};
use crate::firewall::rule_file::Hooks;
use crate::firewall::rules::Action::{Allow, Deny, Reject};

/// As a router's generator writes it: helpers, zones, masquerading, sizes of segments.
#[test]
fn a_generated_set_of_zones_is_taken_whole() {
    let policy = policy(include_str!("zones.nft"), Hooks::Forward);
    check(&policy, (IN, "192.168.1.7", "203.0.113.9", TCP, 443), Allow);
    check(&policy, (OUT, "203.0.113.9", "192.168.1.7", TCP, 443), Reject);
    check(&policy, (OUT, "203.0.113.9", "192.168.1.7", UDP, 500), Allow);
    let notes: Vec<_> = policy.notes.iter().map(|note| note.text.split(':').next().unwrap_or_default()).collect();
    let expected = [
        "chain input is not asked",
        "chain output is not asked",
        "chain srcnat is not asked",
        "sizes of segments stay",
        "sizes of segments stay",
    ];
    assert_eq!(notes, expected);
}

/// What stands before the decision where a packet goes comes first, whatever its priority; pieces have been put together.
#[test]
fn chains_of_prerouting_come_before_those_of_forward() {
    let text = "table inet t {
        chain late { type filter hook postrouting priority -150; udp dport 53 drop; }
        chain forward { type filter hook forward priority -160; policy accept; tcp dport 22 accept; tcp dport 23 drop; }
        chain early { type filter hook prerouting priority mangle; policy accept;
            ct state invalid drop; ip frag-off & 0x1fff != 0 drop; ip saddr 203.0.113.9 drop; tcp dport 23 accept; }
    }";
    let policy = policy(text, Hooks::Forward);
    check(&policy, (OUT, "203.0.113.9", "10.0.0.1", TCP, 22), Deny);
    check(&policy, (OUT, "203.0.113.8", "10.0.0.1", TCP, 22), Allow);
    check(&policy, (OUT, "203.0.113.8", "10.0.0.1", TCP, 23), Deny);
    check(&policy, (OUT, "203.0.113.8", "10.0.0.1", UDP, 53), Deny);
    let raw = "table ip t { chain raw { type filter hook prerouting priority raw; ip saddr 10.0.0.66 drop; } }";
    let error = read_text(raw, &mut named(), PORTS).expect_err("refused");
    assert_eq!(error.instead, "write its rules into a chain of priority mangle");
}
