//! What rules write into packets (`ip dscp set`, `ip ttl set`), and sets of stations, against the kernel: rule sets by chance; compared are the
//! bytes of each packet, and what each rule has counted. Values by a map are not among them: nft 1.0.6 cannot translate these.

use super::known::all_agree;
use super::rulesets::Chance;

const STATES: [&str; 6] = ["", "", "", "ct state new", "ct state established", "ct state { established, related }"];
const OTHERS: [&str; 9] = [
    "",
    "",
    "ip saddr 10.1.0.9",
    "tcp dport 22-443",
    "udp dport { 53, 123, 443, 5060 }",
    "meta l4proto icmp",
    "iifname inside",
    "meta length > 100",
    "ether saddr @stations",
];
const WRITES: [&str; 14] = [
    "",
    "",
    "ip dscp set ef",
    "ip dscp set 0",
    "ip dscp set cs7",
    "ip6 dscp set af43",
    "ip6 dscp set cs0",
    "ip ttl set 1",
    "ip ttl set 254",
    "ip6 hoplimit set 64",
    "ip dscp set cs1 ip ttl set 33",
    "add @stations { ether saddr }",
    "ip dscp set va",
    "update @stations { ether saddr }",
];
const VERDICTS: [&str; 9] =
    ["drop", "counter drop", "accept", "counter accept", "counter", "counter", "return", "jump side", "goto side"];

/// A rule set by chance; every rule says its number.
fn rule_set(chance: &mut Chance) -> String {
    let mut number = 0;
    let mut rule = |chance: &mut Chance, verdicts: &[&str]| {
        number += 1;
        let (state, other, writes) = (chance.of(&STATES), chance.of(&OTHERS), chance.of(&WRITES));
        format!("\t\t{state} {other} {writes} {} comment \"r{number}\"\n", chance.of(verdicts))
    };
    let side: String = (0..1 + chance.below(3)).map(|_| rule(chance, &VERDICTS[..7])).collect();
    let forward: String = (0..3 + chance.below(5)).map(|_| rule(chance, &VERDICTS)).collect();
    let policy = chance.of(&["accept", "accept", "drop"]);
    format!(
        "table inet t {{\n\tset stations {{\n\t\ttype ether_addr\n\t\tsize 100\n\t\tflags dynamic\n\t}}\n\
         \tchain side {{\n{side}\t}}\n\tchain forward {{\n\t\ttype filter hook forward priority 0; policy {policy};\n{forward}\t}}\n}}\n"
    )
}

#[test]
fn what_rules_write_into_packets_is_as_in_the_kernel() {
    all_agree("what_rules_write_into_packets_is_as_in_the_kernel", rule_set);
}
