//! Packets exempt from tracking: `notrack` in chains before connection tracking, and `ct state untracked`.

use braid_testkit::{Bench, Frame};

use super::check;
use super::known::bench_of;
use super::rules::{PORTS, named, read_text};
use crate::firewall::When;

fn table(early: &str, rules: &str) -> String {
    format!(
        "table inet t {{\nchain raw {{\ntype filter hook prerouting priority raw;\n{early}\n}}\n\
         chain f {{\ntype filter hook forward priority 0; policy drop;\n{rules}\n}}\n}}\n"
    )
}

fn bench(early: &str, rules: &str) -> Bench {
    bench_of(&table(early, rules))
}

const DNS: &str = "udp dport 53 notrack\nudp sport 53 notrack";

fn query(port: u16) -> Frame {
    Frame::udp("10.0.0.1:5", &format!("192.0.2.9:{port}"))
}

fn answer(port: u16) -> Frame {
    Frame::udp(&format!("192.0.2.9:{port}"), "10.0.0.1:5")
}

#[test]
fn what_is_not_followed_opens_no_connection() {
    // Replies need the rules too, and pass only by them.
    let mut fw = bench(DNS, "ct state untracked accept\niifname lan accept\nct state established accept");
    check(&mut fw, 1, 0, answer(53), "pass");
    check(&mut fw, 0, 0, query(53), "pass");
    check(&mut fw, 1, 0, answer(53), "pass");
    check(&mut fw, 1, 0, answer(54), "denied");
    check(&mut fw, 0, 0, query(54), "pass");
    check(&mut fw, 1, 0, answer(54), "pass");
    let mut fw = bench(DNS, "iifname lan accept\nct state established,related accept");
    check(&mut fw, 0, 0, query(53), "pass");
    check(&mut fw, 1, 0, answer(53), "denied");
    // An ICMP error about an untracked packet is not related.
    check(&mut fw, 1, 0, Frame::unreachable("203.0.113.9", "10.0.0.1", &query(53).bytes()), "unrelated");
    check(&mut fw, 0, 0, query(54), "pass");
    check(&mut fw, 1, 0, Frame::unreachable("203.0.113.9", "10.0.0.1", &query(54).bytes()), "pass");
}

/// Untracked TCP may begin anywhere and send anything, and an untracked echo reply needs no request.
#[test]
fn what_is_not_followed_is_never_invalid() {
    let mut fw = bench(
        "tcp dport 80 notrack\ntcp sport 80 notrack\nmeta l4proto icmp notrack",
        "ct state invalid drop\nct state untracked accept",
    );
    let to = |flags: &str| Frame::tcp("10.0.0.1:5", "192.0.2.9:80").flags(flags);
    for flags in ["A", "SF", "R", "S", "PA"] {
        check(&mut fw, 0, 0, to(flags), "pass");
        check(&mut fw, 1, 0, Frame::tcp("192.0.2.9:80", "10.0.0.1:5").flags(flags), "pass");
    }
    check(&mut fw, 0, 0, Frame::tcp("10.0.0.1:5", "192.0.2.9:81").flags("A"), "not_syn");
    check(&mut fw, 1, 0, Frame::echo_reply("192.0.2.9", "10.0.0.1", 5, 1), "pass");
    check(&mut fw, 0, 0, Frame::echo_request("10.0.0.1", "192.0.2.9", 5, 1), "pass");
    check(&mut fw, 1, 0, Frame::unreachable("203.0.113.9", "10.0.0.1", &to("S").bytes()), "pass");
}

#[test]
fn states_of_what_is_not_followed_may_be_written_in_all_ways() {
    for (condition, fits) in [
        ("ct state untracked", true),
        ("ct state { new, untracked }", true),
        ("ct state ! invalid", true),
        ("ct state != new", true),
        ("ct state & (untracked | new) != 0", true),
        ("ct state vmap { untracked : accept, new : drop };", true),
        ("ct state new", false),
        ("ct direction original", false),
        ("ct mark 0", false),
        ("ct packets > 0", false),
        ("ct original packets != 7", false),
        ("meta mark 0", true),
    ] {
        let text = match condition.strip_suffix(';') {
            Some(map) => map.to_owned(),
            None => format!("{condition} accept"),
        };
        let mut fw = bench("meta length > 0 counter notrack accept", &format!("ct state related accept\n{text}"));
        check(&mut fw, 0, 0, query(53), if fits { "pass" } else { "denied" });
        let counted: Vec<_> =
            fw.findings().list().iter().filter(|told| told.kind == "rule").map(|told| told.detail.clone()).collect();
        assert_eq!(counted, ["fitted once, 28 bytes"], "{condition}");
    }
}

#[test]
fn what_is_not_followed_is_explained() {
    let page = |text: &str| {
        let mut config = named();
        let notes = read_text(text, &mut config, PORTS).expect("rules");
        let page = crate::firewall::explain(config, 2, (0, &query(53).bytes()), When::Utc(0)).expect("a packet");
        page + &notes.iter().map(|note| note.text.clone()).collect::<String>()
    };
    let followed = page(&table(DNS, "ct state untracked accept"));
    assert!(followed.contains("passes, and opens no connection: nobody follows it"), "{followed}");
    assert!(followed.contains("is not followed: continue"), "{followed}");
    // After connection tracking it is too late, as in the kernel.
    let late = page(&table("", "notrack ct state new accept"));
    assert!(late.contains("passes, and opens a connection") && late.contains("notrack says nothing"), "{late}");
    let error = read_text("udp dport 53 notrack", &mut named(), PORTS).expect_err("no table").to_string();
    assert!(error.contains("write it into a chain of priority raw"), "{error}");
}

/// In one direction of a connection: resets, FINs and first answers that nobody follows, as in conntrack.
#[test]
fn what_is_not_followed_moves_no_connection() {
    let to = |flags: &str, seq: u32, ack: u32| Frame::tcp("10.0.0.1:5", "192.0.2.9:80").flags(flags).numbers(seq, ack);
    let from =
        |flags: &str, seq: u32, ack: u32| Frame::tcp("192.0.2.9:80", "10.0.0.1:5").flags(flags).numbers(seq, ack);
    // A reset, and the second FIN, would leave it seconds or minutes; one FIN leaves it two hours.
    for (ends, next) in [("R", 2), ("FA", 3)] {
        let mut fw = bench(
            "iifname wan tcp flags & (fin | rst) != 0 notrack",
            "ct state invalid drop\nct state untracked accept\niifname lan ct state new accept\nct state established accept",
        );
        check(&mut fw, 0, 0, to("S", 1, 0), "pass");
        check(&mut fw, 1, 0, from("SA", 100, 2), "pass");
        check(&mut fw, 0, 0, to("A", 2, 101), "pass");
        check(&mut fw, 1, 0, from(ends, 101, 2), "pass");
        if next == 3 {
            check(&mut fw, 0, 0, to("FA", 2, 101), "pass");
        }
        check(&mut fw, 0, 3600, to("A", next, 101), "pass");
    }
    // An answer that nobody follows confirms nothing: the rules still see the opener's packets as new, datagrams too.
    let rules = "ct state untracked accept\nct state new counter accept\nct state established drop";
    let mut fw = bench("iifname wan notrack", rules);
    for _ in 0..2 {
        check(&mut fw, 0, 0, query(53), "pass");
        check(&mut fw, 1, 0, answer(53), "pass");
        check(&mut fw, 0, 0, to("S", 1, 0), "pass");
        check(&mut fw, 1, 0, from("SA", 100, 2), "pass");
    }
}
