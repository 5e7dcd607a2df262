//! Rules that packets of known connections meet, against the kernel: rule sets by chance, with and without `established,related accept`,
//! rules before it, jumps, states and directions; compared is what becomes of each packet, and what each rule has counted.

use std::fmt::Write;

use braid_nf::Finding;
use braid_testkit::Frame;

use super::rulesets::{Chance, Talk, passed};
use super::*;

const STATES: [&str; 14] = [
    "",
    "",
    "",
    "ct state new",
    "ct state established",
    "ct state related",
    "ct state invalid",
    "ct state established,related",
    "ct state ! new",
    "ct state { new, invalid }",
    "ct state new ct direction original",
    "ct state established ct direction reply",
    "ct direction original",
    "ct state related ct direction reply",
];
const OTHERS: [&str; 36] = [
    "",
    "ip saddr 10.1.0.9",
    "ip daddr 10.1.0.9",
    "ip saddr { 10.1.0.5, 203.0.113.0/24 }",
    "ip daddr { 10.1.0.66, 198.51.100.0/24 }",
    "ip6 saddr fd00:1::9",
    "ip6 daddr fd00:1::9",
    "tcp dport 22-443",
    "tcp sport 22-443",
    "udp dport { 53, 123, 443, 5060 }",
    "udp sport { 53, 123, 443, 5060 }",
    "th dport 25",
    "tcp flags syn / syn,ack",
    "tcp flags & (syn | ack) == syn | ack",
    "tcp flags & (fin | syn | rst | ack) == ack",
    "tcp flags psh",
    "tcp flags rst",
    "tcp flags fin",
    "tcp flags & (fin | syn | rst | psh | ack | urg) == 0",
    "meta length > 300",
    "meta length < 100",
    "ip dscp ef",
    "ip6 dscp ef",
    "meta l4proto icmp",
    "icmp type echo-reply",
    "icmp type echo-request",
    "icmp type destination-unreachable",
    "icmpv6 type { destination-unreachable, echo-reply }",
    "iifname inside",
    "iifname outside",
    "ct original ip saddr 10.1.0.9",
    "ct original ip daddr 10.1.0.0/24",
    "ct original ip6 saddr fd00:1::9",
    "ct reply ip saddr { 10.1.0.5, 203.0.113.0/24 }",
    "ct reply ip6 daddr != fd00:1::9",
    "meta l4proto { tcp, udp } ct original proto-dst 22-443",
];
const VERDICTS: [&str; 12] = [
    "drop",
    "counter drop",
    "accept",
    "counter accept",
    "counter",
    "counter continue",
    "return",
    "jump side",
    "goto side",
    "counter jump side",
    "drop",
    "accept",
];

/// A rule set by chance; every rule says its number.
fn rule_set(chance: &mut Chance) -> String {
    let mut number = 0;
    let mut rule = |chance: &mut Chance, verdicts: &[&str]| {
        number += 1;
        format!("\t\t{} {} {} comment \"r{number}\"\n", chance.of(&STATES), chance.of(&OTHERS), chance.of(verdicts))
    };
    let side: String = (0..chance.below(4)).map(|_| rule(chance, &VERDICTS[..7])).collect();
    let policy = chance.of(&["accept", "drop"]);
    let (count, guard) = (2 + chance.below(5), chance.below(8));
    let mut forward = String::new();
    for at in 0..count {
        if at == guard {
            let guards =
                ["ct state established,related accept", "ct state vmap { established : accept, invalid : drop }"];
            let _ = writeln!(forward, "\t\t{}", chance.of(&guards));
        }
        forward += &rule(chance, &VERDICTS);
    }
    table(&side, policy, &forward)
}

/// A table of two chains, of which packets that are forwarded meet the second.
pub(super) fn table(side: &str, policy: &str, forward: &str) -> String {
    let hook = format!("type filter hook forward priority 0; policy {policy};");
    format!("table inet t {{\n\tchain side {{\n{side}\t}}\n\tchain forward {{\n\t\t{hook}\n{forward}\t}}\n}}\n")
}

/// What is said next in a talk: sometimes an ICMP error about what has come through, or an end of the connection.
fn says(talk: &Talk, last: &mut Option<(usize, Vec<u8>)>, chance: &mut Chance) -> (usize, Frame) {
    match (chance.below(12), last.take()) {
        (0, Some((who, frame))) => {
            let v6 = talk.hosts[0].contains(':');
            let router = if v6 { "2001:db8::77" } else { "192.0.2.77" };
            let from = if chance.below(2) == 0 { router } else { talk.hosts[1 - who] };
            (1 - who, Frame::unreachable(from, talk.hosts[who], &frame))
        }
        (1, _) if talk.kind > 2 && talk.come > 2 => {
            let who = chance.below(2);
            (who, talk.ends(who, chance.of(&["FA", "RA", "R"])))
        }
        (_, kept) => {
            *last = kept;
            talk.says(chance)
        }
    }
}

/// Whether it is "destination unreachable".
fn is_error(frame: &[u8]) -> bool {
    match frame[14] >> 4 {
        4 => frame[23] == 1 && frame[34] == 3,
        _ => frame[20] == 58 && frame[54] == 1,
    }
}

/// Packets and bytes.
type Count = (u64, u64);

/// What rules have counted in the kernel, by their comments.
pub(super) fn counted(listing: &str) -> Vec<(String, Count)> {
    let count = |line: &str| {
        let mut words = line.split_once("counter packets ")?.1.split(' ');
        let number = (words.next()?.parse().ok()?, words.nth(1)?.parse().ok()?);
        let comment = line.split_once("comment \"")?.1.split('"').next()?;
        Some((comment.to_owned(), number))
    };
    let mut all: Vec<_> = listing.lines().filter_map(count).collect();
    all.sort();
    all
}

/// What they have counted here.
pub(super) fn counted_by_us(ours: Bench) -> Vec<(String, Count)> {
    let told = ours.findings();
    let comment = |subject: &str| Some(subject.split_once('(')?.1.trim_end_matches(')').to_owned());
    let bytes = |detail: &str| detail.strip_suffix(" bytes")?.rsplit(' ').next()?.parse().ok();
    let count = |told: &Finding| Some((comment(&told.subject)?, (told.number?, bytes(&told.detail)?)));
    let mut all: Vec<(String, Count)> = told.list().iter().filter_map(count).collect();
    all.sort();
    all
}

/// Compares by talks of few hosts; how many rules have counted, if the kernel takes them.
fn compare(test: &str, seed: u64, rules: &str) -> Option<usize> {
    let mut chance = Chance(0x2545_f491_4f6c_dd1d ^ seed << 20);
    // Some of them fit nothing, which nft says first.
    let mut kernel = KernelOracle::ruleset(OFFICE, rules).inspect_err(|reason| note(test, reason)).ok()?;
    let path = std::env::temp_dir().join(format!("braid-{test:.8}-{}-{seed}.nft", std::process::id()));
    std::fs::write(&path, rules).expect("a file");
    let config = format!(
        "rules_file = {path:?}\ninterfaces = ['inside', 'outside']\nloose = true\nttl = 'decrement'\nwindows = 'liberal'"
    );
    let (mut ours, mut comparison) = (bench("firewall", &config, 2), Comparison::default());
    std::fs::remove_file(&path).expect("it is there");
    let mut talks: Vec<_> = (0..12).map(|number| (Talk::new(&mut chance, number), None, String::new())).collect();
    for number in 0..400 {
        let at = chance.below(talks.len());
        let (talk, last, before) = &mut talks[at];
        let (who, frame) = says(talk, last, &mut chance);
        let (port, bytes) = (talk.from ^ who, frame.bytes());
        let (expected, _) = passed(packets(kernel.feed(port, &bytes).expect("the kernel takes it")), port);
        // As the oracle does: a station by each port.
        let mut by_station = bytes.clone();
        by_station[11] = port as u8;
        let outcome = ours.send(port as u16, 0, &by_station);
        let (sent, _) = passed(packets(by_port(outcome.sent)), port);
        let what = format!("seed {seed} packet {number}: {}\nbefore:{before}\n{rules}", hex(&bytes));
        comparison.note(&what, &expected, &sent, outcome.dropped);
        let _ = write!(before, "\n{port} {} {}", hex(&bytes[14..]), if expected.is_empty() { "dropped" } else { "" });
        if !expected.is_empty() {
            // An error is no word of the talk.
            if !is_error(&bytes) {
                talk.comes(who);
                *last = Some((who, bytes));
            }
        }
    }
    comparison.check(400);
    let by_us = counted_by_us(ours);
    let mut by_kernel = counted(&kernel.listing().expect("nft lists"));
    // A rule to which no packet can come counts nothing here and is not there.
    by_kernel.retain(|(comment, (packets, _))| *packets > 0 || by_us.iter().any(|(known, _)| known == comment));
    assert_eq!(by_kernel, by_us, "seed {seed}\n{rules}");
    Some(by_us.iter().filter(|(_, (packets, _))| *packets > 0).count())
}

/// Compares sixty rule sets by chance.
pub(super) fn all_agree(test: &str, rule_set: impl Fn(&mut Chance) -> String) {
    if skipped(test) {
        return;
    }
    let rules = |seed: u64| rule_set(&mut Chance(0x9e37_79b9_7f4a_7c15 ^ seed << 20));
    let compared: Vec<_> = (1..=60).filter_map(|seed| compare(test, seed, &rules(seed))).collect();
    let counting = compared.iter().filter(|rules| **rules > 0).count();
    eprintln!("{} rule sets, of which {counting} have counted", compared.len());
    assert!(compared.len() >= 30 && counting >= 15, "{} and {counting}", compared.len());
}

#[test]
fn packets_of_known_connections_meet_the_rules_as_in_the_kernel() {
    all_agree("packets_of_known_connections_meet_the_rules_as_in_the_kernel", rule_set);
}
