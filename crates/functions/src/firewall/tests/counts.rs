//! Counters of connections: `ct bytes`, `ct packets`, `ct avgpkt`.

use braid_testkit::{Bench, Frame};

use super::known::bench_of;
use super::rules::{PORTS, named, read_text};
use super::{back, check, to};
use crate::firewall::When;

fn bench(rules: &str) -> Bench {
    bench_of(&format!("table inet t {{\nchain f {{\ntype filter hook forward priority 0;\n{rules}\n}}\n}}\n"))
}

fn asks(len: usize) -> Frame {
    Frame::udp("10.0.0.1:5", "192.0.2.9:53").payload(&vec![7; len - 28])
}

fn answers(len: usize) -> Frame {
    Frame::udp("192.0.2.9:53", "10.0.0.1:5").payload(&vec![7; len - 28])
}

/// A packet is counted before the rules are asked about it, even if they drop it.
#[test]
fn bytes_of_a_connection_are_counted_each_way() {
    for (rule, expected) in [
        ("ct bytes > 300 drop", ["pass", "pass", "pass", "denied", "denied"]),
        ("ct original bytes > 200 drop", ["pass", "pass", "pass", "denied", "denied"]),
        ("ct reply bytes >= 100 drop", ["pass", "denied", "denied", "denied", "denied"]),
        ("ct reply bytes > 100 drop", ["pass", "pass", "pass", "pass", "denied"]),
        ("ct packets 3-4 drop", ["pass", "pass", "denied", "denied", "pass"]),
        ("ct original packets { 1, 3 } drop", ["denied", "pass", "pass", "pass", "denied"]),
        ("ct reply packets != 0 drop", ["pass", "denied", "denied", "denied", "denied"]),
        ("ct reply packets 0 drop", ["denied", "denied", "denied", "denied", "denied"]),
        ("ct avgpkt < 100 drop", ["pass", "pass", "pass", "pass", "pass"]),
        ("ct reply avgpkt > 100 drop", ["pass", "pass", "pass", "pass", "denied"]),
        ("tcp dport 53 ct bytes > 1 drop", ["pass"; 5]),
        ("ct bytes > 1 accept", ["pass"; 5]),
    ] {
        let mut fw = bench(rule);
        let denied_first = expected[0] == "denied";
        let frames: [(u16, Frame); 5] =
            [(0, asks(100)), (1, answers(100)), (0, asks(100)), (0, asks(100)), (1, answers(200))];
        for (number, ((port, frame), expected)) in frames.into_iter().zip(expected).enumerate() {
            // A refused packet opens nothing, so the next one is a first packet again.
            let expected = match (denied_first, number) {
                (true, 0) => "denied",
                (true, _) => continue,
                _ => expected,
            };
            let outcome = fw.send(port, 0, &frame.bytes());
            assert_eq!(outcome.dropped.unwrap_or("pass"), expected, "{rule}, packet {number}");
        }
    }
}

/// Repeated SYNs do not count, nor do late segments that are not believed; a connection that follows another one starts
/// at 0.
#[test]
fn segments_are_counted_from_the_first_on() {
    let mut fw = bench("ct packets > 4 drop");
    check(&mut fw, 0, 0, to("S"), "pass");
    check(&mut fw, 0, 0, to("S"), "pass");
    check(&mut fw, 1, 0, back("SA"), "pass");
    check(&mut fw, 1, 0, back("SA"), "pass");
    check(&mut fw, 0, 0, to("A"), "pass");
    check(&mut fw, 0, 0, to("A"), "pass");
    check(&mut fw, 0, 0, to("A"), "denied");
    let mut fw = bench("ct packets > 5 drop");
    for (port, frame) in [(0, to("S")), (1, back("SA")), (0, to("A")), (0, to("R"))] {
        check(&mut fw, port, 0, frame, "pass");
    }
    for (port, frame) in [(0, to("S").numbers(77_000, 0)), (1, back("SA").numbers(5, 77_001))] {
        check(&mut fw, port, 0, frame, "pass");
    }
}

#[test]
fn pings_and_errors_have_the_counts_of_their_connection() {
    let mut fw = bench(
        "icmp type echo-reply ct packets > 2 drop\nct state related ct bytes > 128 drop\nudp dport 53 ct bytes > 9999 drop",
    );
    let ping = |number| Frame::echo_request("10.0.0.1", "192.0.2.9", 5, number);
    let pong = |number| Frame::echo_reply("192.0.2.9", "10.0.0.1", 5, number);
    check(&mut fw, 0, 0, ping(1), "pass");
    check(&mut fw, 1, 0, pong(1), "pass");
    check(&mut fw, 0, 0, ping(2), "pass");
    check(&mut fw, 1, 0, pong(2), "denied");
    let error = || Frame::unreachable("203.0.113.9", "10.0.0.1", &asks(128).bytes());
    check(&mut fw, 0, 0, asks(128), "pass");
    check(&mut fw, 1, 0, error(), "pass");
    check(&mut fw, 1, 0, error(), "pass");
    check(&mut fw, 0, 0, asks(128), "pass");
    check(&mut fw, 1, 0, error(), "denied");
}

/// A first packet counts as one packet of its length.
#[test]
fn counts_of_a_first_packet_are_explained() {
    let mut config = named();
    read_text("ct bytes > 500 drop\nct packets 1 ct avgpkt 128 accept", &mut config, PORTS).expect("rules");
    let page = crate::firewall::explain(config, 2, (0, &asks(128).bytes()), When::Utc(0)).expect("a packet");
    assert!(page.contains("line 1 of the rule file does not fit by its bytes of the connection"), "{page}");
    assert!(page.contains("decides: packets of the connection 1, bytes a packet of the connection 128"), "{page}");
    let error = read_text("ct original state new drop", &mut named(), PORTS).expect_err("no such thing").to_string();
    assert!(error.contains("`state` of one direction is not known"), "{error}");
}
