//! Limits in bytes, quotas, and named ones that several rules share.

use braid_testkit::{Bench, Frame};

use super::check;
use super::known::bench_of;
use super::rules::{PORTS, named, read_text};

fn table(objects: &str, rules: &str) -> String {
    format!(
        "table inet t {{\n{objects}\nchain f {{\ntype filter hook forward priority 0; policy accept;\n{rules}\n}}\n}}\n"
    )
}

fn bench(objects: &str, rules: &str) -> Bench {
    bench_of(&table(objects, rules))
}

/// A datagram with a total length of `len` bytes.
fn of_len(port: u16, len: usize) -> Frame {
    Frame::udp(&format!("192.0.2.9:{port}"), "10.0.0.1:53").payload(&vec![7; len - 28])
}

/// A bucket for bytes holds the amount of one period plus the burst.
#[test]
fn a_limit_may_be_of_bytes() {
    let mut fw = bench("", "limit rate 1000 bytes/second burst 500 bytes accept; drop");
    check(&mut fw, 1, 0, of_len(1, 1000), "pass");
    check(&mut fw, 1, 0, of_len(2, 501), "denied");
    check(&mut fw, 1, 0, of_len(3, 500), "pass");
    check(&mut fw, 1, 0, of_len(4, 28), "denied");
    check(&mut fw, 1, 1, of_len(5, 1000), "pass");
    check(&mut fw, 1, 1, of_len(6, 28), "denied");
    let mut fw = bench("", "limit rate over 1 kbytes/hour drop");
    check(&mut fw, 1, 0, of_len(1, 1000), "pass");
    check(&mut fw, 1, 0, of_len(2, 28), "denied");
    check(&mut fw, 1, 100, of_len(2, 52), "pass");
    check(&mut fw, 1, 100, of_len(3, 28), "denied");
    let sets = "set floods { type ipv4_addr; flags dynamic; }";
    let mut fw = bench(sets, "add @floods { ip saddr limit rate over 100 bytes/minute } drop");
    check(&mut fw, 1, 0, of_len(1, 100), "pass");
    check(&mut fw, 1, 0, of_len(1, 28), "denied");
}

#[test]
fn a_quota_is_of_so_many_bytes() {
    for (rule, expected) in [
        ("quota 1000 bytes accept; drop", ["pass", "pass", "denied", "denied"]),
        ("quota until 1000 bytes accept; drop", ["pass", "pass", "denied", "denied"]),
        ("quota over 1000 bytes drop", ["pass", "pass", "denied", "denied"]),
        ("quota over 1 kbytes used 24 bytes drop", ["pass", "pass", "denied", "denied"]),
        ("quota over 1000 bytes used 1 bytes drop", ["pass", "denied", "denied", "denied"]),
        ("udp sport 9 quota over 1 bytes drop", ["pass"; 4]),
    ] {
        let mut fw = bench("", rule);
        for (port, expected) in (1..).zip(expected) {
            check(&mut fw, 1, 0, of_len(port, 500), expected);
        }
    }
}

#[test]
fn rules_that_name_a_limit_or_quota_have_it_together() {
    let objects = "limit slow { rate 1/day burst 2 packets }\nquota month { over 1000 bytes used 0 bytes }";
    let mut fw = bench(objects, "udp sport 1-2 limit name \"slow\" accept\nudp sport 3 limit name slow accept\ndrop");
    check(&mut fw, 1, 0, of_len(1, 100), "pass");
    check(&mut fw, 1, 0, of_len(3, 100), "pass");
    check(&mut fw, 1, 0, of_len(2, 100), "denied");
    let mut fw = bench(objects, "udp sport 1 quota name \"month\" drop\nudp sport 2 quota name month drop");
    check(&mut fw, 1, 0, of_len(1, 600), "pass");
    check(&mut fw, 1, 0, of_len(2, 600), "denied");
    check(&mut fw, 1, 0, of_len(3, 600), "pass");
    let objects = "limit slow {\nrate 1/day burst 2 packets\ncomment \"for }{ all\"\n}\nquota month { comment \"c\"; over 1000 bytes; comment \"C\"; }";
    let mut fw = bench(objects, "udp sport 1 limit name slow accept\nudp sport 1 drop\nquota name month drop");
    for (port, expected) in [(1, "pass"), (1, "pass"), (2, "pass"), (2, "denied")] {
        check(&mut fw, 1, 0, of_len(port, 600), expected);
    }
    // A map selects the quota of each sender.
    let quotas = "quota his { over 1000 bytes }\nquota hers { over 2000 bytes }\ncounter web { }";
    let rule =
        "quota name udp sport map { 1 : \"his\", 2 : \"hers\" } counter name udp dport map { 53 : \"web\" } drop";
    let mut fw = bench(quotas, rule);
    for (port, expected) in
        [(1, "pass"), (1, "denied"), (2, "pass"), (2, "pass"), (2, "denied"), (3, "pass"), (1, "denied")]
    {
        check(&mut fw, 1, 0, of_len(port, 900), expected);
    }
    let told = fw.findings().list().iter().map(|told| told.detail.clone()).collect::<Vec<_>>();
    assert!(told.contains(&"fitted 3 times, 2700 bytes".to_owned()), "{told:?}");
    // As a script writes it, in a command outside of the table.
    let text = format!(
        "{}add limit inet t slow {{ rate 1/day burst 1 packets }}\n",
        table("", "limit name slow accept; drop")
    );
    let mut fw = bench_of(&text);
    check(&mut fw, 1, 0, of_len(1, 100), "pass");
    check(&mut fw, 1, 0, of_len(2, 100), "denied");
}

/// Bytes count with IP headers, as in the kernel; for a padded frame only those within the header's length.
#[test]
fn rules_count_packets_and_their_bytes() {
    let mut fw =
        bench("", "ip6 nexthdr udp counter accept\nudp sport 1-2 counter accept\ncounter log prefix \"rest \" drop");
    check(&mut fw, 1, 0, of_len(1, 1000), "pass");
    check(&mut fw, 1, 0, of_len(2, 29), "pass");
    check(&mut fw, 1, 0, of_len(3, 500), "denied");
    check(&mut fw, 1, 0, Frame::udp("[2001:db8:1::2]:7", "[2001:db8::1]:5").payload(&[1; 10]), "pass");
    let bytes = [of_len(1, 30).bytes(), vec![0; 16]].concat();
    assert_eq!(fw.send(1, 0, &bytes).dropped, None);
    let rules: Vec<_> = fw.findings().list().iter().filter(|told| told.kind == "rule").cloned().collect();
    let told: Vec<_> = rules.iter().map(|told| (told.number, &*told.detail)).collect();
    assert_eq!(
        told,
        [
            (Some(1), "decided once, 58 bytes"),
            (Some(3), "decided 3 times, 1059 bytes"),
            (Some(1), "decided once, 500 bytes"),
        ]
    );
}

#[test]
fn amounts_that_are_none_are_refused() {
    for (rule, reason) in [
        ("quota over 25 drop", "`25 drop` is no number of bytes"),
        ("quota name \"month\" drop", "the table has no quota `month`"),
        ("limit name \"slow\" accept", "the table has no limit `slow`"),
        ("limit 5/second accept", "a limit without its rate"),
        ("limit rate 0 bytes/second accept", "is not possible"),
        ("limit rate 10 mbytes/second burst 5 packets accept", "is no rate"),
        ("limit rate 4000 mbytes/week accept", "is not possible"),
    ] {
        let error = read_text(&table("", rule), &mut named(), PORTS).expect_err(rule).to_string();
        assert!(error.contains(reason) && error.contains("line 5"), "{error}");
    }
}

/// Blanks around `/` mean nothing, and rates may be those of fast links.
#[test]
fn rates_are_read_as_nft_reads_them() {
    for rate in [
        "over 12500 mbytes/second",
        "over 10230 mbytes/second burst 5 mbytes",
        "4294967296/second",
        "400 / minute",
        "400/ minute burst 5 packets",
        "1 kbytes / second burst 8 kbytes",
    ] {
        read_text(&table("", &format!("limit rate {rate} drop")), &mut named(), PORTS)
            .unwrap_or_else(|error| panic!("{rate}: {error}"));
    }
    let error =
        read_text(&table("", "limit rate 4000 mbytes/week accept"), &mut named(), PORTS).expect_err("too much at once");
    assert!(error.instead.contains("by a shorter period"), "{error}");
}
