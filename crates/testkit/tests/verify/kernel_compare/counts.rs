//! What connections have sent, what is not followed, and what stands in headers, against the kernel: rule sets by chance; compared is what
//! becomes of each packet, and how many packets and bytes each rule has counted.

use super::known::all_agree;
use super::rulesets::Chance;

const STATES: [&str; 8] = [
    "",
    "",
    "",
    "ct state new",
    "ct state established",
    "ct state { established, related }",
    "ct state untracked",
    "ct state ! invalid",
];
const COUNTS: [&str; 16] = [
    "",
    "",
    "ct bytes > 500",
    "ct bytes 100-900",
    "ct original bytes != 0-200",
    "ct reply bytes >= 100",
    "ct packets { 1, 3-5 }",
    "ct original packets > 3",
    "ct reply packets 0",
    "ct avgpkt < 100",
    "ct original avgpkt 40-60",
    "ct reply avgpkt != 0",
    "ct packets > 2 ct reply packets < 4",
    "ct packets > 1 ct original bytes < 400",
    "ct reply bytes > 200 ct packets 2-9",
    "ip daddr 10.1.0.9 ct bytes > 300",
];
const OTHERS: [&str; 16] = [
    "",
    "",
    "",
    "ip saddr 10.1.0.9",
    "tcp dport 22-443",
    "meta l4proto icmp",
    "icmp type destination-unreachable",
    "iifname inside",
    "tcp option maxseg missing",
    "tcp option maxseg exists",
    "ether saddr != 00:53:00:00:00:01",
    "ether daddr & 01:00:00:00:00:00 == 00:00:00:00:00:00",
    "ip hdrlength 5 ip id < 30000",
    "udp length 8-200",
    "ip saddr . tcp dport != { 10.1.0.9 . 25, 10.1.0.9 . 80-443 }",
    "ip saddr . ip daddr . meta l4proto != { 10.1.0.9 . 203.0.113.0/24 . tcp }",
];
const VERDICTS: [&str; 10] = [
    "drop",
    "counter drop",
    "accept",
    "counter accept",
    "counter",
    "counter",
    "counter",
    "return",
    "jump side",
    "goto side",
];
/// Of both directions, so that no connection is followed halfway.
const EARLY: [&str; 6] = [
    "",
    "",
    "udp dport { 53, 123 } notrack; udp sport { 53, 123 } notrack",
    "tcp dport 22-443 counter notrack comment \"e1\"; tcp sport 22-443 notrack",
    "meta l4proto { icmp, icmpv6 } notrack",
    "udp dport 1-1000 meta length > 0 jump early; udp sport 1-1000 jump early",
];

/// A rule set by chance; every rule says its number.
fn rule_set(chance: &mut Chance) -> String {
    let mut number = 0;
    let mut rule = |chance: &mut Chance, verdicts: &[&str]| {
        number += 1;
        let (state, count, other) = (chance.of(&STATES), chance.of(&COUNTS), chance.of(&OTHERS));
        format!("\t\t{state} {count} {other} {} comment \"r{number}\"\n", chance.of(verdicts))
    };
    let side: String = (0..1 + chance.below(3)).map(|_| rule(chance, &VERDICTS[..8])).collect();
    let forward: String = (0..3 + chance.below(5)).map(|_| rule(chance, &VERDICTS)).collect();
    let (early, policy) = (chance.of(&EARLY).replace("; ", "\n\t\t"), chance.of(&["accept", "accept", "drop"]));
    format!(
        "table inet t {{\n\tchain early {{\n\t\tcounter notrack comment \"e0\"\n\t}}\n\tchain pre {{\n\
         \t\ttype filter hook prerouting priority raw;\n\t\t{early}\n\t}}\n\tchain side {{\n{side}\t}}\n\
         \tchain forward {{\n\t\ttype filter hook forward priority 0; policy {policy};\n{forward}\t}}\n}}\n"
    )
}

#[test]
fn what_connections_have_sent_and_what_is_not_followed_is_as_in_the_kernel() {
    all_agree("what_connections_have_sent_and_what_is_not_followed_is_as_in_the_kernel", rule_set);
}
