//! What is made of numbers before they are compared, and what else few rules write, against the kernel: each spelling in a rule of its own;
//! compared is how many packets and bytes each rule has counted.

use std::fmt::Write;

use braid_testkit::Frame;

use super::known::{counted, counted_by_us, table};
use super::rulesets::Chance;
use super::*;

#[rustfmt::skip]
const SPELLINGS: &[&str] = &[
    "ip ttl ^ 1 == 65", "ip ttl xor 3 != 66", "ip ttl | 3 == 67", "ip ttl or 3 > 66", "ip ttl | 1 3-65", "ip ttl & 0x60 ^ 1 == 65",
    "ip ttl & 6 | 1 { 1, 5, 7 }", "ip ttl ^ 1 & 3 == 65", "ip ttl ^ 1 > 64", "ip ttl & 7 ^ 3 > 2", "ip ttl 64 | 1", "ip ttl != 64 & 0x40",
    "ip6 hoplimit ^ 1 == 65", "ip dscp ^ 1 == 47", "ip dscp | 1 == 11", "ip dscp & 0x38 == cs1",
    "tcp dport ^ 1 == 81", "tcp dport ^ 1 > 81", "tcp dport ^ 1 80-90", "tcp dport ^ 1 { 81, 442 }", "tcp dport & 0xff00 | 1 == 1",
    "tcp dport 80 | 3", "tcp dport | 0xff == 0x1ff", "udp sport & 3 | 4 != 5",
    "ip protocol & 6 == 6", "ip protocol ^ 1 == 7", "ip protocol > 6", "meta l4proto & 0xf == 1", "meta l4proto | 1 == 17",
    "meta l4proto & 1 { 0 }", "meta l4proto ^ 1 { 7, 16 }", "meta l4proto tcp | udp", "meta l4proto & 0xf . th dport { 6 . 80, 1 . 53 }",
    "meta l4proto >= 17", "ip6 nexthdr & 1 == 1",
    "icmp type & 7 == 0", "icmp type > 3", "icmp type lt 8", "icmp type ^ 1 == 9", "icmp type | 1 == 13", "icmp type & 7 { 0, 3 }",
    "icmpv6 type & 0x7f == 0", "icmpv6 type > 128", "icmpv6 type < echo-request", "icmpv6 max-delay 1000", "icmpv6 max-delay > 10",
    "tcp flags < 16", "tcp flags > 16", "tcp flags <= 0x12", "tcp flags > syn|fin", "tcp flags 2-18", "tcp flags { 2-18 }", "tcp flags != 2-18",
    "tcp flags & 3 < 2", "tcp flags & (fin|syn) > 1", "tcp flags & (fin|syn|rst|psh|ack|urg) < fin", "tcp flags & (syn | ack) ^ syn == ack",
    "tcp flags | syn == syn", "tcp flags | syn == 0x12", "tcp flags ^ syn == ack", "tcp flags & syn | ack == ack", "tcp flags & 0xff 2-18",
    "tcp option maxseg size & 1 == 0", "tcp option maxseg size ^ 1 == 1461",
    "ip saddr ^ 0.0.0.1 == 10.1.0.8", "ip saddr ^ 0.0.0.1 { 10.1.0.9, 10.1.0.8 }", "ip saddr | 0.0.0.255 == 10.1.0.255",
    "ip saddr & 0.0.0.255 { 0.0.0.9, 0.0.0.2 }", "ip daddr & 0.0.0.255 != { 0.0.0.9, 0.0.0.2 }", "ip daddr & 0.0.0.255 > 0.0.0.5",
    "ip daddr & 0.0.0.255 0.0.0.5-0.0.0.9", "ip saddr & 255.255.0.0 | 0.0.0.1 == 10.1.0.1", "ip saddr & 255.255.0.0 ^ 0.1.0.0 == 10.0.0.0",
    "ip6 daddr ^ ::1 == 2001:db8::6", "ip6 daddr | ::f == 2001:db8::f", "ip6 daddr & ::f { ::3, ::5 }",
    "ip frag-off 0", "ip frag-off != 0", "ip frag-off & 0x4000 != 0", "ip frag-off & 0x1fff != 0", "ip version != 4",
    "meta length ^ 1 == 41", "ip length & 1 == 0", "ip length | 1 > 60", "meta protocol 0x0800",
    "ip ttl vmap { 64 : continue, * : continue }",
];

/// A packet of a connection of its own.
fn opening(chance: &mut Chance, number: usize) -> (usize, Frame) {
    let (v6, outward) = (chance.below(3) == 0, chance.below(3) > 0);
    let at = chance.below(9) + 1;
    let (inside, outside) = if v6 {
        (format!("fd00:1::{at}"), format!("2001:db8::{at}"))
    } else {
        (format!("10.1.0.{at}"), format!("203.0.113.{at}"))
    };
    let (from, to) = if outward { (&inside, &outside) } else { (&outside, &inside) };
    let port = [53, 80, 83, 443, 256, 511][chance.below(6)];
    let written =
        |address: &str, port: usize| if v6 { format!("[{address}]:{port}") } else { format!("{address}:{port}") };
    let (source, destination) = (written(from, 1024 + number), written(to, port));
    let frame = match chance.below(8) {
        0..=3 => {
            let flags = ["S", "A", "PA", "SU", "AU", "PAU", "SE", "AC"][chance.below(8)];
            let segment = Frame::tcp(&source, &destination).flags(flags);
            let size = [1460u16, 1461, 536][chance.below(3)].to_be_bytes();
            if chance.below(2) == 0 { segment } else { segment.options(&[2, 4, size[0], size[1]]) }
        }
        4 | 5 => Frame::udp(&source, &destination),
        6 if v6 && chance.below(2) == 0 => {
            let delay = [0u16, 10, 1000][chance.below(3)].to_be_bytes();
            Frame::icmp(from, to, 130, 0, [delay[0], delay[1], 0, 0])
        }
        6 if !v6 && chance.below(2) == 0 => Frame::icmp(from, to, 13, 0, [(number >> 8) as u8, number as u8, 0, 1]),
        6 => Frame::echo_request(from, to, number as u16, 1),
        _ => Frame::ip(from, to, [47, 50, 2, 41][chance.below(4)]),
    };
    let frame =
        frame.ttl([2, 63, 64, 65, 66, 67, 68, 255][chance.below(8)]).tos([0, 40, 44, 184, 188][chance.below(5)] as u8);
    let frame = frame.payload(&vec![7; chance.below(40)]);
    (if outward { INSIDE } else { OUTSIDE }, if chance.below(3) == 0 { frame.may_be_fragmented() } else { frame })
}

#[test]
fn what_is_made_of_numbers_is_compared_as_in_the_kernel() {
    let test = "what_is_made_of_numbers_is_compared_as_in_the_kernel";
    if skipped(test) {
        return;
    }
    let mut rules = String::new();
    for (number, spelling) in SPELLINGS.iter().enumerate() {
        let _ = match spelling.contains("vmap") {
            true => writeln!(rules, "\t\t{spelling}"),
            false => writeln!(rules, "\t\t{spelling} counter comment \"r{number} {}\"", spelling.replace('"', "")),
        };
    }
    let rules = table("", "accept", &rules);
    let mut kernel = match KernelOracle::ruleset(OFFICE, &rules) {
        Ok(kernel) => kernel,
        Err(reason) => return note(test, &reason),
    };
    let path = std::env::temp_dir().join(format!("braid-made-{}.nft", std::process::id()));
    std::fs::write(&path, &rules).expect("a file");
    let config = format!("rules_file = {path:?}\nloose = true\nttl = 'decrement'\nwindows = 'off'");
    let mut ours = bench("firewall", &config, 2);
    std::fs::remove_file(&path).expect("it is there");
    let mut chance = Chance(0x2545_f491_4f6c_dd1d);
    for number in 0..3000 {
        let (port, frame) = opening(&mut chance, number);
        let bytes = frame.bytes();
        kernel.feed(port, &bytes).expect("the kernel takes it");
        ours.send(port as u16, 0, &bytes);
    }
    let (by_us, by_kernel) = (counted_by_us(ours), counted(&kernel.listing().expect("nft lists")));
    let known =
        |all: &[(String, (u64, u64))], name: &str| all.iter().find(|(it, _)| it == name).map(|(_, count)| *count);
    let differing: Vec<_> = by_kernel
        .iter()
        .filter(|(name, count)| known(&by_us, name).unwrap_or_default() != *count)
        .map(|(name, count)| format!("{name}: kernel {count:?}, ours {:?}", known(&by_us, name)))
        .collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    let counting = by_us.iter().filter(|(_, (packets, _))| *packets > 0).count();
    assert!(counting + 12 > SPELLINGS.len(), "{counting} have counted");
}
