//! Marks against the kernel: rule sets by chance that set and ask for marks of packets and connections, in chains that jump; compared is
//! what becomes of each packet, and what each rule has counted.

use super::known::{all_agree, table};
use super::rulesets::Chance;

const STATES: [&str; 8] = [
    "",
    "",
    "",
    "ct state new",
    "ct state established",
    "ct state related",
    "ct state invalid",
    "ct state established ct direction original",
];
const OTHERS: [&str; 9] = [
    "",
    "",
    "",
    "ip saddr 10.1.0.9",
    "tcp dport 22-443",
    "udp dport { 53, 123, 443, 5060 }",
    "meta l4proto icmp",
    "iifname inside",
    "meta length > 300",
];
const MARKS: [&str; 14] = [
    "",
    "",
    "meta mark 0",
    "meta mark 1",
    "meta mark != 0",
    "meta mark & 0x3 == 0x2",
    "meta mark & 0xf != 0x1",
    "meta mark { 1, 5-9 }",
    "ct mark 0",
    "ct mark 1",
    "ct mark != 1",
    "ct mark & 0x6 == 0x2",
    "ct mark > 3",
    "ct mark 1-5 meta mark != 3",
];
const SETS: [&str; 18] = [
    "",
    "",
    "",
    "meta mark set 1",
    "meta mark set 7",
    "meta mark set ct mark",
    "meta mark set meta mark | 0x4",
    "meta mark set meta mark & 0xfffffffd",
    "meta mark set ct mark & 0x3 | 0x8",
    "meta mark set ip dscp map { cs0 : 2, ef : 6 }",
    "ct mark set 1",
    "ct mark set 6",
    "ct mark set meta mark",
    "ct mark set ct mark | 0x2",
    "ct mark set meta mark ^ 0x5",
    "ct mark set meta mark meta mark set 3",
    "ct mark set tcp dport map { 22 : 1, 25 : 2, 80 : 5, 443 : 6 }",
    "meta mark set 2 ct mark set meta mark",
];
const VERDICTS: [&str; 12] = [
    "drop",
    "accept",
    "counter accept",
    "counter",
    "counter",
    "counter",
    "return",
    "jump side",
    "goto side",
    "counter jump side",
    "ct mark vmap { 1 : jump side, 2 : drop, 5-7 : accept }",
    "meta mark vmap { 1 : accept, 2 : goto side, 3 : drop }",
];

/// A rule set by chance; every rule says its number.
fn rule_set(chance: &mut Chance) -> String {
    let mut number = 0;
    let mut rule = |chance: &mut Chance, verdicts: &[&str]| {
        number += 1;
        let (mark, set) = (chance.of(&MARKS), chance.of(&SETS));
        // Before or behind what it asks for.
        let (one, other) = if chance.below(4) == 0 { (set, mark) } else { (mark, set) };
        let (state, else_, verdict) = (chance.of(&STATES), chance.of(&OTHERS), chance.of(verdicts));
        format!("\t\t{state} {one} {else_} {other} {verdict} comment \"r{number}\"\n")
    };
    let side: String = (0..1 + chance.below(3)).map(|_| rule(chance, &VERDICTS[..7])).collect();
    let policy = chance.of(&["accept", "accept", "drop"]);
    let forward: String = (0..3 + chance.below(5)).map(|_| rule(chance, &VERDICTS)).collect();
    table(&side, policy, &forward)
}

#[test]
fn marks_of_packets_and_connections_are_set_and_asked_for_as_in_the_kernel() {
    all_agree("marks_of_packets_and_connections_are_set_and_asked_for_as_in_the_kernel", rule_set);
}
