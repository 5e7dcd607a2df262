//! Sessions classified by content, or by their ports if their content is unknown, and none of them lost when they end.

use braid_testkit::{Bench, Frame};

use crate::find;

fn bench(config: &str) -> Bench {
    let build = find("protocol_classifier").unwrap().build;
    Bench::with_sets(2, 1000, |builder| build("dpi", config.parse().unwrap(), builder, 2).unwrap())
}

fn sums(bench: Bench, what: &str) -> Vec<String> {
    let findings = bench.findings();
    let sums = findings.sums().iter().filter_map(|(name, sum)| Some((name.strip_suffix(what)?, sum)));
    sums.map(|(name, sum)| format!("{name}{sum}")).collect()
}

/// Sends payloads of one session to a port, and checks its classification.
#[track_caller]
fn check(port: u16, payloads: &[&[u8]], expected: &str) {
    let mut bench = bench("");
    bench.send(0, 0, &Frame::tcp("10.0.0.1:50000", &format!("192.0.2.1:{port}")).flags("S").bytes());
    for payload in payloads {
        let to = format!("192.0.2.1:{port}");
        bench.send(0, 1, &Frame::tcp("10.0.0.1:50000", &to).flags("PA").payload(payload).bytes());
    }
    assert_eq!(sums(bench, " sessions"), [format!("{expected}1")]);
}

#[test]
fn bytes_come_before_ports_and_ports_before_nothing() {
    check(8080, &[b"GET / HTTP/1.1\r\n\r\n"], "http");
    check(443, &[b"SSH-2.0-x\r\n"], "ssh");
    check(443, &[], "tls");
    check(25, &[b"..."], "smtp");
    check(4711, &[b"..."], "unknown");
    check(4711, &[b"...", b"...", b"POST /x HTTP/1.1\r\n"], "http");
}

#[test]
fn after_enough_packets_nothing_is_looked_at_any_more() {
    let silence = [b"...".as_slice(); 8];
    check(4711, &[&silence[..7], &[b"GET / HTTP/1.1\r\n"]].concat(), "http");
    check(4711, &[&silence[..], &[b"GET / HTTP/1.1\r\n"]].concat(), "unknown");
}

#[test]
fn both_directions_and_ended_sessions_are_counted() {
    let mut bench = bench("idle_timeout_s = 1");
    let (client, server) = ("10.0.0.1:50000", "192.0.2.1:22");
    for ms in [0, 10_000] {
        bench.send(0, ms, &Frame::tcp(client, server).flags("S").bytes());
        bench.send(1, ms + 1, &Frame::tcp(server, client).flags("SA").bytes());
        bench.send(1, ms + 2, &Frame::tcp(server, client).flags("PA").payload(b"SSH-2.0-x\r\n").bytes());
    }
    let findings = bench.findings();
    assert_eq!((findings.sums()["ssh sessions"], findings.sums()["ssh packets"]), (2, 6));
}

#[test]
fn what_has_no_ports_is_no_session() {
    let mut bench = bench("");
    for frame in [Frame::arp("10.0.0.1", "10.0.0.2").bytes(), Frame::echo_request("10.0.0.1", "10.0.0.2", 1, 1).bytes()]
    {
        assert_eq!(bench.send(0, 0, &frame).ports(), [1]);
    }
    assert!(bench.findings().is_empty());
}
