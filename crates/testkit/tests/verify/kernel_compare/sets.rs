//! Sets that packets change against the kernel: limits and bans for each address, and connections that are counted until they end.

use std::thread::sleep;
use std::time::Duration;

use braid_testkit::Frame;

use super::rulesets::compare;
use super::*;

#[test]
fn limits_bans_and_counts_for_each_address_decide_as_in_the_kernel() {
    let test = "limits_bans_and_counts_for_each_address_decide_as_in_the_kernel";
    if !skipped(test) {
        compare(test, &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verify/kernel_compare/rulesets/guard.nft"));
    }
}

const COUNTED: &str = "table inet t {
    set clients {
        type ipv4_addr
        size 1024
        flags dynamic
    }
    set pingers {
        type ipv4_addr
        size 1024
        flags dynamic
    }
    chain forward {
        type filter hook forward priority filter; policy accept;
        ct state established accept
        tcp dport 80 ct count over 4 drop
        tcp dport { 22, 80 } add @clients { ip saddr ct count over 2 } drop
        udp dport 53 add @clients { ip saddr ct count over 2 } drop
        icmp type echo-request add @pingers { ip saddr ct count over 2 } drop
    }
}
";

/// A segment or datagram of a connection from a host inside to a server: who sends it, flags and numbers.
fn said(host: u8, ports: (u16, u16), from_server: bool, flags: &str, numbers: (u32, u32)) -> (usize, Vec<u8>) {
    let (client, server) = (format!("10.1.0.{host}:{}", ports.0), format!("203.0.113.9:{}", ports.1));
    let (from, to) = if from_server { (&server, &client) } else { (&client, &server) };
    let frame = match ports.1 {
        53 => Frame::udp(from, to),
        _ => Frame::tcp(from, to).flags(flags).numbers(numbers.0, numbers.1),
    };
    (usize::from(from_server), frame.bytes())
}

#[test]
fn connections_are_counted_until_they_end_as_in_the_kernel() {
    let test = "connections_are_counted_until_they_end_as_in_the_kernel";
    if skipped(test) {
        return;
    }
    let mut kernel = match KernelOracle::ruleset(OFFICE, COUNTED) {
        Ok(kernel) => kernel,
        Err(reason) => return note(test, &reason),
    };
    let path = std::env::temp_dir().join(format!("braid-counted-{}.nft", std::process::id()));
    std::fs::write(&path, COUNTED).expect("a file");
    let config = format!("rules_file = {path:?}\nloose = true\nttl = 'decrement'\nwindows = 'liberal'");
    let (mut ours, mut comparison, mut through) = (bench("firewall", &config, 2), Comparison::default(), Vec::new());
    std::fs::remove_file(&path).expect("it is there");
    let mut feed = |(port, frame): (usize, Vec<u8>)| {
        // The kernel looks for connections that are over no more than once in a tick of its clock.
        sleep(Duration::from_millis(15));
        let expected = packets(kernel.feed(port, &frame).expect("the kernel takes it"));
        let outcome = ours.send(port as u16, 0, &frame);
        let what = format!("packet {}: {}", through.len(), hex(&frame));
        through.push(!expected.is_empty());
        comparison.note(&what, &expected, &packets(by_port(outcome.sent)), outcome.dropped);
    };
    let open = |feed: &mut dyn FnMut((usize, Vec<u8>)), host, ports| {
        feed(said(host, ports, false, "S", (1000, 0)));
        feed(said(host, ports, true, "SA", (5000, 1001)));
        feed(said(host, ports, false, "A", (1001, 5001)));
    };
    for (host, port) in [(9, 1), (9, 2), (5, 1), (9, 3), (5, 2), (11, 1), (66, 1)] {
        open(&mut feed, host, (port, 80));
    }
    for port in [1, 2, 3] {
        feed(said(9, (port, 53), false, "", (0, 0)));
        feed(said(11, (port, 53), false, "", (0, 0)));
    }
    for id in [1, 2, 1, 3] {
        for host in ["10.1.0.9", "10.1.0.11"] {
            feed((INSIDE, Frame::echo_request(host, "203.0.113.9", id, 1).bytes()));
        }
        feed((OUTSIDE, Frame::echo_reply("203.0.113.9", "10.1.0.9", id, 1).bytes()));
    }
    // One is reset, one ends from both sides, and then is opened again.
    feed(said(9, (1, 80), true, "RA", (5001, 1001)));
    open(&mut feed, 9, (4, 80));
    feed(said(5, (1, 80), false, "FA", (1001, 5001)));
    open(&mut feed, 5, (7, 22));
    feed(said(5, (1, 80), true, "FA", (5001, 1002)));
    feed(said(5, (1, 80), false, "A", (1002, 5002)));
    open(&mut feed, 5, (8, 22));
    feed(said(5, (1, 80), false, "S", (1000, 0)));
    open(&mut feed, 11, (9, 80));
    comparison.check(52);
    assert!(through.iter().any(|passes| !passes) && through.iter().any(|passes| *passes));
}
