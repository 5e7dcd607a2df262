//! Which hosts are taken for scanners, after how many contacts, and what happens then.

use braid_testkit::{Bench, Frame};

use super::*;
use crate::find;

fn bench(config: &str) -> Bench {
    let build = find("port_scan").unwrap().build;
    Bench::with_sets(2, 1000, |builder| build("watch", config.parse().unwrap(), builder, 2).unwrap())
}

/// A packet from host 10.0.0.1 to a service.
fn packet(service: u16, flags: &str) -> Vec<u8> {
    let to = format!("192.0.2.{}:{}", service % 200, 1000 + service);
    Frame::tcp("10.0.0.1:40000", &to).flags(flags).bytes()
}

fn scanners(bench: Bench) -> Vec<String> {
    let findings = bench.findings();
    findings.list().iter().map(|finding| format!("{}: {}", finding.subject, finding.detail)).collect()
}

/// Makes `contacts` one second apart, each of which succeeds or fails, and checks whether the host is a scanner at the
/// end.
#[track_caller]
fn check(contacts: &[bool], expected: Option<&str>) {
    let mut bench = bench("");
    for (n, succeeds) in contacts.iter().enumerate() {
        let (service, ms) = (n as u16, 1100 * n as u64);
        bench.send(0, ms, &packet(service, "S"));
        if *succeeds {
            bench.send(0, ms + 20, &packet(service, "A"));
        }
    }
    assert_eq!(scanners(bench), expected.into_iter().collect::<Vec<_>>());
}

const YES: bool = true;
const NO: bool = false;

#[test]
fn four_failures_more_than_successes_convict() {
    check(&[NO; 3], None);
    check(&[NO; 4], Some("10.0.0.1: 4 of 4 first contacts failed, by the end"));
    check(&[NO; 9], Some("10.0.0.1: 4 of 5 first contacts failed, at 4.400 s"));
    check(&[NO, NO, YES, NO, YES, NO, NO, NO], Some("10.0.0.1: 6 of 8 first contacts failed, by the end"));
}

#[test]
fn who_mostly_succeeds_is_no_scanner() {
    check(&[YES; 30], None);
    check(&[YES, YES, NO, YES, YES, YES, NO, YES, YES, NO, YES], None);
    // Four successes end the walk: it starts again and does not go further down.
    check(&[YES, YES, YES, YES, NO, NO, NO, NO], Some("10.0.0.1: 4 of 8 first contacts failed, by the end"));
}

#[test]
fn the_same_service_asked_again_is_no_first_contact() {
    let mut bench = bench("");
    for n in 0..20 {
        bench.send(0, n * 3000, &packet(7, "S"));
    }
    assert_eq!(scanners(bench), [""; 0]);
}

#[test]
fn a_half_open_scan_fails_even_where_ports_are_open() {
    let mut bench = bench("");
    for service in 0..4 {
        bench.send(0, u64::from(service) * 10, &packet(service, "S"));
        bench.send(0, u64::from(service) * 10 + 5, &packet(service, "R"));
    }
    assert_eq!(scanners(bench), ["10.0.0.1: 4 of 4 first contacts failed, at 0.035 s"]);
}

#[test]
fn a_scanner_is_kept_out_if_so_configured() {
    let mut bench = bench("action = 'drop'");
    for service in 0..4 {
        bench.send(0, 0, &packet(service, "S"));
    }
    assert_eq!(bench.send(0, 2000, &packet(9, "S")).dropped, Some("scanner"));
    assert_eq!(bench.send(0, 2001, &packet(9, "A")).ports(), [1]);
    let other = Frame::tcp("10.0.0.2:40000", "192.0.2.1:80").flags("S").bytes();
    assert_eq!(bench.send(0, 2002, &other).ports(), [1]);
}

#[test]
fn segments_that_belong_to_nothing_are_failures() {
    for flags in ["", "F", "FPU"] {
        let mut bench = bench("action = 'drop'");
        for service in 0..4 {
            bench.send(0, u64::from(service), &packet(service, flags));
        }
        assert_eq!(bench.send(0, 10, &packet(9, flags)).dropped, Some("scanner"), "{flags}");
        assert_eq!(scanners(bench), ["10.0.0.1: 4 of 4 first contacts failed, at 0.003 s"], "{flags}");
    }
    // The end of a connection that was seen, and one in the middle of which the capture begins.
    let mut bench = bench("");
    for (service, flags) in (0..20).zip(["FA", "A", "PA", "RA", "R"].into_iter().cycle()) {
        bench.send(0, 0, &packet(service, flags));
    }
    assert_eq!(scanners(bench), [""; 0]);
}

#[test]
fn a_scanner_that_goes_on_sending_is_let_in_again_after_its_time() {
    let mut bench = bench("action = 'drop'\nforget_s = 60");
    for service in 0..4 {
        bench.send(0, 0, &packet(service, "S"));
    }
    for second in (2..=60).step_by(2) {
        assert_eq!(bench.send(0, 1000 * second, &packet(50, "S")).dropped, Some("scanner"), "{second}");
    }
    assert_eq!(bench.send(0, 62_000, &packet(50, "S")).ports(), [1]);
    assert_eq!(bench.send(0, 62_020, &packet(50, "A")).ports(), [1]);
    assert_eq!(bench.send(0, 63_000, &packet(51, "S")).ports(), [1]);
}

#[test]
fn who_has_proved_honest_is_not_tested_for_a_time() {
    // Proves honest, makes ten contacts that fail, and is tested again after its time.
    let after = |failed_from_ms: Option<u64>| {
        let mut bench = bench("honest_s = 60");
        for (n, flags) in (0..4).flat_map(|n| [(n, "S"), (n, "A")]) {
            bench.send(0, 0, &packet(n, flags));
        }
        for n in 10..20 {
            bench.send(0, 2000 * u64::from(n), &packet(n, "S"));
        }
        bench.send(0, 59_000, &packet(3, "A"));
        for n in 30..34 {
            failed_from_ms.map(|from| bench.send(0, from + 2000 * u64::from(n), &packet(n, "S")));
        }
        scanners(bench).len()
    };
    assert_eq!(after(None), 0);
    assert_eq!(after(Some(60_000)), 1);
}

#[test]
fn a_host_that_falls_silent_is_judged_when_it_is_forgotten() {
    let mut bench = bench("forget_s = 1");
    for service in 0..4 {
        bench.send(0, 0, &packet(service, "S"));
    }
    bench.send(0, 60_000, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    bench.send(0, 61_000, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    let found = scanners(bench);
    assert!(found.len() == 1 && found[0].starts_with("10.0.0.1: 4 of 4"), "{found:?}");
}

#[test]
fn what_is_not_tcp_passes_unseen() {
    let mut bench = bench("");
    for frame in [Frame::udp("10.0.0.1:1", "10.0.0.2:2").bytes(), Frame::arp("10.0.0.1", "10.0.0.2").bytes()] {
        assert_eq!(bench.send(0, 0, &frame).ports(), [1]);
    }
    assert!(bench.findings().is_empty());
}

#[test]
fn shares_are_shares() {
    let error = |config: Config| config.thresholds().unwrap_err().to_string();
    assert!(error(Config { misses: 0.0, ..Config::default() }).starts_with("`misses`: 0 is no share; write"));
    assert!(error(Config { scanner_success: 0.9, ..Config::default() }).contains("is not below `honest_success`"));
    assert!(error(Config { answer_ms: 0, ..Config::default() }).starts_with("`answer_ms`"));
    assert!(error(Config { forget_s: 0, ..Config::default() }).starts_with("`forget_s`"));
    assert!(error(Config { honest_s: 2_073_601, ..Config::default() }).ends_with("write 0 to 2073600 seconds"));
}

#[test]
fn who_cannot_be_watched_is_cut_off_only_where_scanners_are() {
    let build = find("port_scan").unwrap().build;
    for (config, expected) in [("", None), ("action = \"drop\"", Some("set_table_full"))] {
        let mut bench = Bench::with_sets(2, 1, |builder| build("watch", config.parse().unwrap(), builder, 2).unwrap());
        assert_eq!(bench.send(0, 0, &packet(1, "S")).dropped, None);
        let other = Frame::tcp("10.0.0.2:40000", "192.0.2.1:80").flags("S").bytes();
        assert_eq!(bench.send(0, 1, &other).dropped, expected, "{config}");
    }
}
