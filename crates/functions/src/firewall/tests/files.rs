//! Rule files in the style of distributions, wikis and generators: what is accepted of them, and what each decides about
//! some packets.

use super::around::policy as policy_of;
use super::tables::{ICMP, IN, OUT, TCP, UDP, check, policy};
use crate::firewall::rule_file::Hooks;
use crate::firewall::rules::Action::{Allow, Deny, Reject};

/// As a router's generator writes it: helpers, zones, masquerading, MSS clamping.
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

/// Chains before the routing decision come first, whatever their priority; datagrams have been reassembled by then.
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
}

/// As a daemon keeps its table: the plan gives the networks and what is forwarded.
#[test]
fn the_table_of_a_daemon_is_taken_whole() {
    let plan =
        "networks = [['192.168.1.0/24', '2001:db8:1::/64'], ['0.0.0.0/0', '::/0']]\nforwards = ['192.168.1.5:443']";
    let policy = policy_of(include_str!("daemon.nft"), plan);
    check(&policy, (IN, "192.168.1.7", "203.0.113.9", TCP, 443), Allow);
    check(&policy, (IN, "192.168.1.7", "203.0.113.9", TCP, 25), Reject);
    check(&policy, (IN, "2001:db8:1::7", "2002:a00::1", TCP, 443), Reject);
    check(&policy, (IN, "2001:db8:1::7", "2001:db8:9::1", TCP, 443), Allow);
    check(&policy, (IN, "2001:db8:2::7", "2001:db8:9::1", TCP, 443), Deny);
    check(&policy, (OUT, "2001:db8:1::7", "2001:db8:1::8", TCP, 443), Deny);
    check(&policy, (OUT, "203.0.113.9", "192.168.1.5", TCP, 443), Allow);
    check(&policy, (OUT, "203.0.113.9", "192.168.1.5", TCP, 22), Reject);
    check(&policy, (OUT, "203.0.113.9", "192.168.1.5", ICMP, 8 << 8), Allow);
    let mut notes: Vec<_> = policy.notes.iter().map(|note| note.text.split(':').next().unwrap_or_default()).collect();
    notes.sort_unstable();
    let expected = [
        "chain filter_input is not asked",
        "chain nat_postrouting is not asked",
        "marks are not set",
        "no helper reads along",
        "packets of known connections come to this rule, as in nftables",
    ];
    assert_eq!(notes, expected);
}

#[test]
fn a_hosts_chains_know_what_is_for_the_hosts() {
    let policy = policy_of(include_str!("host.nft"), "rules_hook = 'host'");
    check(&policy, (OUT, "203.0.113.9", "10.0.0.1", TCP, 22), Allow);
    check(&policy, (OUT, "203.0.113.9", "10.0.0.1", TCP, 80), Reject);
    check(&policy, (OUT, "203.0.113.9", "224.0.0.251", UDP, 5353), Allow);
    check(&policy, (OUT, "203.0.113.9", "255.255.255.255", TCP, 22), Allow);
    check(&policy, (IN, "10.0.0.1", "203.0.113.9", TCP, 80), Allow);
    check(&policy, (IN, "224.0.0.1", "203.0.113.9", TCP, 80), Deny);
}
