//! Which subjects are heavy hitters, by which key and when, and the effect of a sketch with a single cell.

use braid_testkit::{Bench, Frame};

use super::*;
use crate::find;

fn bench(config: &str) -> Bench {
    let build = find("heavy_hitters").unwrap().build;
    Bench::new(2, |builder| build("watch", config.parse().unwrap(), builder, 2).unwrap())
}

/// Sends packets `ms, from, to` of 100 bytes each, and checks what is found.
#[track_caller]
fn check(config: &str, packets: &[(u64, &str, &str)], expected: &[&str]) {
    let mut bench = bench(config);
    for (ms, from, to) in packets {
        let frame = Frame::udp(from, to).len(100).bytes();
        assert_eq!(bench.send(0, *ms, &frame).only(), (1, &frame[..]), "it only looks on");
    }
    let findings = bench.findings();
    let found: Vec<_> = findings.list().iter().map(|found| format!("{}: {}", found.subject, found.detail)).collect();
    assert_eq!(found, expected);
}

const A: &str = "10.0.0.1:1";
const B: &str = "10.0.0.2:2";
const C: &str = "[2001:db8::3]:3";
const D: &str = "[2001:db8::4]:4";

#[test]
fn who_reaches_the_threshold_within_an_interval_is_found() {
    let config = "count = 'packets'\nthreshold = 3";
    check(config, &[(0, A, B), (1, A, B), (2, B, A)], &[]);
    check(config, &[(0, A, B), (1, A, B), (2, A, B)], &["10.0.0.1: once, 3 packets within 1.000 s, first at 0.002 s"]);
    check(
        config,
        &[(0, C, D), (1, C, D), (2, C, D)],
        &["2001:db8::3: once, 3 packets within 1.000 s, first at 0.002 s"],
    );
}

#[test]
fn intervals_are_counted_apart() {
    let config = "count = 'packets'\nthreshold = 2";
    check(config, &[(900, A, B), (1100, A, B), (2100, A, B)], &[]);
    let twice = [(0, A, B), (1, A, B), (2, A, B), (5000, A, B), (5001, A, B)];
    check(config, &twice, &["10.0.0.1: in 2 intervals, 3 packets within 1.000 s, first at 0.001 s"]);
    let short = "count = 'packets'\nthreshold = 2\ninterval_ms = 10";
    check(short, &[(0, A, B), (11, A, B)], &[]);
}

/// Workers that replay a capture side by side are in different intervals, and report in any order.
#[test]
fn an_interval_counts_once_whichever_workers_reach_it() {
    let count = |intervals: &[u64]| {
        let fresh = Hitter { first_ns: 0, interval: intervals[0], intervals: 0, recent: 0, most: 0 };
        let reached = intervals.iter().fold(fresh, |known, interval| known.reached(*interval, *interval));
        (reached.intervals, reached.interval, reached.most)
    };
    assert_eq!(count(&[7]), (1, 7, 7));
    assert_eq!(count(&[7, 7, 8, 8]), (2, 8, 8));
    assert_eq!(count(&[7, 8, 7, 8, 7]), (2, 8, 8), "by turns");
    assert_eq!(count(&[9, 7, 8, 7]), (3, 9, 9), "one that comes late counts as well");
    assert_eq!(count(&[7, 40, 8, 7]), (2, 40, 40), "what is too far back has been counted");
    assert_eq!(count(&[7, u64::MAX, 7]), (2, u64::MAX, u64::MAX));
}

#[test]
fn bytes_are_those_on_the_wire() {
    check("threshold = 201", &[(0, A, B), (0, A, B)], &[]);
    check("threshold = 200", &[(0, A, B), (0, A, B)], &["10.0.0.1: once, 200 bytes within 1.000 s, first at 0.000 s"]);
}

#[test]
fn sources_destinations_pairs_and_flows_are_counted() {
    let packets = [(0, A, B), (0, "10.0.0.3:1", B), (0, "10.0.0.1:9", B), (0, A, "10.0.0.4:2")];
    let found = |by: &str, threshold: u32| {
        let mut bench = bench(&format!("by = '{by}'\ncount = 'packets'\nthreshold = {threshold}"));
        for (ms, from, to) in packets {
            bench.send(0, ms, &Frame::udp(from, to).bytes());
        }
        bench.findings().list().iter().map(|found| found.subject.clone()).collect::<Vec<_>>()
    };
    assert_eq!(found("source", 3), ["10.0.0.1"]);
    assert_eq!(found("destination", 3), ["10.0.0.2"]);
    assert_eq!(found("pair", 2), ["10.0.0.1 > 10.0.0.2"]);
    assert_eq!(found("flow", 1).len(), 4);
    assert_eq!(found("flow", 1)[0], "udp 10.0.0.1:1 > 10.0.0.2:2");
}

#[test]
fn what_is_not_ip_is_not_counted_and_tags_change_nothing() {
    let mut bench = bench("count = 'packets'\nthreshold = 2");
    let tagged = Frame::udp(A, B).vlan(7).bytes();
    for frame in [Frame::arp("10.0.0.1", "10.0.0.2").bytes(), tagged.clone(), tagged[..20].to_vec(), tagged] {
        assert_eq!(bench.send(0, 0, &frame).only(), (1, &frame[..]));
    }
    assert_eq!(bench.findings().list().len(), 1);
}

#[test]
fn fragments_count_and_a_full_report_says_so() {
    let mut bench = bench("by = 'flow'\ncount = 'packets'\nthreshold = 2\nhitters_max = 1");
    for host in 1..=3 {
        for piece in [0, 64] {
            let frame = Frame::ip(&format!("10.0.0.{host}"), "10.0.1.1", 17).payload(&[0; 64]);
            bench.send(0, 0, &frame.clone().fragment(1, 8 + piece / 8, true).bytes());
        }
    }
    let findings = bench.findings();
    assert_eq!(findings.list()[0].subject, "udp 10.0.0.1:0 > 10.0.1.1:0");
    assert_eq!(findings.sums()["times that the log of alerts was full"], 2);
}

#[test]
fn in_a_sketch_that_is_too_small_everybody_is_taken_for_everybody() {
    let config = "count = 'packets'\nthreshold = 4\nrows = 1\ncolumns = 1";
    let packets: Vec<_> = (0..40).map(|host| format!("10.0.0.{host}:1")).collect();
    let packets: Vec<_> = packets.iter().map(|from| (0, from.as_str(), B)).collect();
    let mut bench = bench(config);
    packets.iter().for_each(|(ms, from, to)| drop(bench.send(0, *ms, &Frame::udp(from, to).bytes())));
    assert!(bench.findings().list().len() > 10, "six cells for forty hosts");
}

#[track_caller]
fn refuse(config: &str, expected: &str) {
    let config: Config = crate::parse(config.parse().unwrap()).unwrap();
    let error = config.threshold().map(drop).and(config.interval_ns().map(drop)).and(config.size().map(drop));
    assert_eq!(error.unwrap_err().to_string(), expected);
}

#[test]
fn impossible_values_are_refused() {
    refuse("threshold = 0", "`threshold`: everybody reaches 0; write a number of at least 1");
    refuse("interval_ms = 0", "`interval_ms`: 0 is out of range; write 1 to 86400000 milliseconds");
    refuse("rows = 9", "`rows`: a sketch of 9 rows is not possible; write 1 to 8");
    refuse("columns = 0", "`columns`: a sketch of 0 columns is not possible; write 1 to 67108864");
}
