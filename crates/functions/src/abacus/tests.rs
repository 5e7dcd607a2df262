//! What is charged: each byte once, and bytes that only pretend to be retransmissions.

use braid_testkit::{Bench, Frame};

use super::stream::Found;
use super::*;
use crate::find;

fn bench(config: &str) -> Bench {
    let build = find("abacus").unwrap().build;
    Bench::with_sets(2, 1000, |builder| build("bill", config.parse().unwrap(), builder, 2).unwrap())
}

/// Takes segments of one stream in order, and checks how the bytes of each are classified.
#[track_caller]
fn check(segments: &[(u32, &str, (u64, u64, u64))]) {
    let mut stream = Stream::default();
    for (sequence, text, expected) in segments {
        let Found { fresh, repeated, tunnelled } = stream.take(*sequence, text.as_bytes());
        assert_eq!((fresh, repeated, tunnelled), *expected, "{sequence} {text}");
    }
}

#[test]
fn bytes_are_new_once() {
    check(&[(100, "hello", (5, 0, 0)), (105, "world", (5, 0, 0)), (100, "hello", (0, 5, 0))]);
    check(&[(100, "hello", (5, 0, 0)), (103, "loworld", (5, 2, 0)), (103, "loworld", (0, 7, 0))]);
    check(&[(u32::MAX - 1, "hello", (5, 0, 0)), (3, "world", (5, 0, 0)), (u32::MAX - 1, "hello", (0, 5, 0))]);
}

#[test]
fn other_bytes_in_the_same_place_are_a_tunnel() {
    check(&[(100, "hello", (5, 0, 0)), (105, "world", (5, 0, 0)), (100, "HELLO", (0, 0, 5))]);
    // With other boundaries a difference cannot be detected.
    check(&[(100, "hello", (5, 0, 0)), (101, "XXXX", (0, 4, 0))]);
}

#[test]
fn a_gap_is_charged_when_it_is_filled_in_the_highest_numbers_only() {
    check(&[(100, "hello", (5, 0, 0)), (110, "later", (5, 0, 0)), (105, "world", (0, 5, 0))]);
}

fn segment(up: bool, sequence: u32, text: &str) -> Vec<u8> {
    let (inside, outside) = ("10.0.0.1:5000", "192.0.2.1:80");
    let frame = if up { Frame::tcp(inside, outside) } else { Frame::tcp(outside, inside) };
    frame.flags("A").numbers(sequence, 0).payload(text.as_bytes()).bytes()
}

fn sums(bench: Bench) -> Vec<(String, u64)> {
    bench.findings().sums().iter().map(|(name, sum)| (name.clone(), *sum)).collect()
}

#[test]
fn both_directions_are_charged_to_the_subscriber() {
    let mut bench = bench("");
    bench.send(1, 0, &segment(false, 1, "from outside"));
    bench.send(0, 1, &segment(true, 500, "from inside"));
    bench.send(0, 2, &segment(true, 500, "from inside"));
    let own = |what: &str, sum| (format!("10.0.0.1 {what}"), sum);
    assert_eq!(sums(bench), [own("bytes charged", 23), own("bytes repeated", 11), own("sessions", 1)]);
}

/// A connection begins with a SYN on ports whose last one is closed, was reset, or ended with lower numbers.
#[test]
fn a_connection_on_the_same_ports_retransmits_nothing() {
    let flagged = |up: bool, flags: &str, sequence: u32| {
        let (inside, outside) = ("10.0.0.1:5000", "192.0.2.1:80");
        let frame = if up { Frame::tcp(inside, outside) } else { Frame::tcp(outside, inside) };
        frame.flags(flags).numbers(sequence, 0).bytes()
    };
    let own = |what: &str, sum| (format!("10.0.0.1 {what}"), sum);
    let again = |between: &[Vec<u8>], first: u32| {
        let mut bench = bench("");
        bench.send(0, 0, &flagged(true, "S", 499));
        bench.send(0, 1, &segment(true, 500, "hello"));
        between.iter().for_each(|frame| drop(bench.send(if frame[26..30] == [10, 0, 0, 1] { 0 } else { 1 }, 2, frame)));
        bench.send(0, 3, &flagged(true, "S", first));
        bench.send(0, 3, &flagged(true, "S", first));
        bench.send(0, 4, &segment(true, first + 1, "other"));
        sums(bench)
    };
    let other = [own("bytes charged", 10), own("sessions", 2)];
    assert_eq!(again(&[flagged(true, "FA", 505), flagged(false, "FA", 1)], 499), other);
    assert_eq!(again(&[flagged(false, "R", 0)], 400), other);
    assert_eq!(again(&[], 70_000), other);
    // A SYN that comes late, or one within a connection that only one end has closed.
    let same = [own("bytes charged", 10), own("sessions", 1)];
    assert_eq!(again(&[], 499), same, "other bytes in the same place");
    assert_eq!(again(&[flagged(true, "FA", 505)], 499), same);
}

#[test]
fn an_ended_session_is_on_its_account() {
    let mut bench = bench("idle_timeout_s = 1");
    bench.send(0, 0, &segment(true, 1, "hello"));
    bench.send(0, 5000, &segment(true, 900, "again"));
    let own = |what: &str, sum| (format!("10.0.0.1 {what}"), sum);
    assert_eq!(sums(bench), [own("bytes charged", 10), own("sessions", 2)]);
}

#[test]
fn a_tunnel_is_reported_and_dropped_if_so_configured() {
    for (config, dropped) in [("", None), ("action = 'drop'", Some("tunnelled_retransmission"))] {
        let mut bench = bench(config);
        bench.send(0, 0, &segment(true, 1, "hello"));
        assert_eq!(bench.send(0, 1500, &segment(true, 1, "HELLO")).dropped, dropped);
        let findings = bench.findings();
        let [found] = findings.list() else { panic!("{findings:?}") };
        assert_eq!((found.kind, found.subject.as_str()), ("tunnelled_retransmission", "10.0.0.1"));
        assert!(found.detail.starts_with("sequence 1 came again with other bytes (5"), "{}", found.detail);
    }
}

#[test]
fn accounts_that_do_not_exist_are_counted() {
    let mut bench = bench("idle_timeout_s = 1\nsubscribers_max = 1");
    for (n, host) in ["10.0.0.1", "10.0.0.2", "10.0.0.3"].iter().enumerate() {
        let frame = Frame::tcp(&format!("{host}:1"), "192.0.2.1:80").flags("A").numbers(1, 0).payload(b"four").bytes();
        bench.send(0, n as u64 * 10, &frame);
    }
    for ms in [5000, 6000, 7000] {
        bench.send(0, ms, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    }
    let sums = sums(bench);
    assert_eq!(sums.last(), Some(&("bytes charged to no account".to_owned(), 8)), "{sums:?}");
}

#[test]
fn a_session_without_room_is_charged_to_no_account() {
    let build = find("abacus").unwrap().build;
    let other = Frame::tcp("10.0.0.2:5000", "192.0.2.1:80").flags("A").numbers(1, 0).payload(b"seven b").bytes();
    for (config, dropped, unaccounted) in [("", None, 14), ("action = \"drop\"", Some("set_table_full"), 0)] {
        let mut bench = Bench::with_sets(2, 1, |builder| build("bill", config.parse().unwrap(), builder, 2).unwrap());
        bench.send(0, 0, &segment(true, 500, "hello"));
        for ms in [1, 2] {
            assert_eq!(bench.send(0, ms, &other).dropped, dropped, "{config}");
        }
        let sums = sums(bench);
        let sum = |name: &str| sums.iter().find(|(of, _)| of == name).map_or(0, |(_, sum)| *sum);
        assert_eq!((sum("bytes charged to no account"), sum("10.0.0.1 bytes charged")), (unaccounted, 5), "{config}");
    }
}
