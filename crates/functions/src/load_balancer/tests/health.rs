//! Health by the backends' announcements.

use braid_testkit::{Bench, Frame};

use super::{WEB, backend, bench, check, heartbeat};

#[test]
fn the_connections_of_a_silent_backend_move_and_no_others() {
    let mut lb = bench(&format!("heartbeat_port = 7000\nheartbeat_timeout_ms = 3000\n{WEB}"));
    let hear = |lb: &mut Bench, ms, hosts: &[&str]| {
        for host in hosts {
            check(lb, 0, ms, heartbeat(host), "drop heartbeat");
        }
    };
    hear(&mut lb, 1, &["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let before: Vec<_> = (0..200).map(|client| backend(&mut lb, client, 2, "S")).collect();
    for second in 1..8 {
        hear(&mut lb, second * 1000, &["10.0.0.1", "10.0.0.3"]);
    }
    let after: Vec<_> = (0..200).map(|client| backend(&mut lb, client, 8000, "A")).collect();
    for (before, after) in before.iter().zip(&after) {
        assert_ne!(after, "10.0.0.2:8080");
        assert!(before == after || before == "10.0.0.2:8080");
    }
    assert!(
        ["10.0.0.1:8080", "10.0.0.3:8080"].iter().all(|up| before.iter().zip(&after).any(|(b, a)| b != a && a == up))
    );
    // It comes back: new connections are placed as before, and the moved ones stay.
    hear(&mut lb, 8500, &["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let stayed: Vec<_> = (0..200).map(|client| backend(&mut lb, client, 9600, "A")).collect();
    assert_eq!(stayed, after);
    hear(&mut lb, 909_000, &["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let anew: Vec<_> = (0..200).map(|client| backend(&mut lb, client, 909_700, "S")).collect();
    assert_eq!(anew, before);
}

#[test]
fn connections_stay_with_a_silent_backend_if_configured() {
    let mut lb = bench(&format!("heartbeat_port = 7000\nwhen_down = 'keep'\n{WEB}"));
    for host in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
        check(&mut lb, 0, 1, heartbeat(host), "drop heartbeat");
    }
    let before: Vec<_> = (0..30).map(|client| backend(&mut lb, client, 2, "S")).collect();
    for second in 1..8 {
        check(&mut lb, 0, second * 1000, heartbeat("10.0.0.1"), "drop heartbeat");
    }
    let after: Vec<_> = (0..30).map(|client| backend(&mut lb, client, 8000, "A")).collect();
    assert_eq!(before, after);
    assert!((30..60).all(|client| backend(&mut lb, client, 8000, "S") == "10.0.0.1:8080"));
}

/// The shares of the backends that are up, from 20,000 clients.
fn shares_of_those_up(backends: &[(u32, bool)]) -> Vec<f64> {
    let line = |(number, (weight, up)): (usize, &(u32, bool))| {
        format!("{{ address = '10.0.1.{}', weight = {weight}, up = {up} }}, ", number + 1)
    };
    let backends_of: String = backends.iter().enumerate().map(line).collect();
    let service = "[[service]]\naddress = '203.0.113.53'\nport = 53\nprotocol = 'udp'";
    let mut lb = super::bench_with(&format!("{service}\nbackends = [{backends_of}]"), 32_768);
    let mut got = vec![0.0; backends.len()];
    for client in 0..20_000u32 {
        let from = format!("192.0.2.{}:{}", client % 200, 1024 + client);
        let sent = lb.send(1, 0, &Frame::udp(&from, "203.0.113.53:53").bytes());
        got[usize::from(sent.only().1[33]) - 1] += 1.0 / 20_000.0;
    }
    got
}

#[test]
fn those_that_are_up_share_what_the_others_had_by_their_weights() {
    let mut many = [(1, false); 20];
    (many[10].1, many[11].1) = (true, true);
    let heavy = [(1, true), (10, true), (100, false), (100, false)];
    for backends in [&many[..], &[(100, false), (1, true), (1, true)], &heavy] {
        let total: u32 = backends.iter().filter(|(_, up)| *up).map(|(weight, _)| weight).sum();
        for (got, (weight, up)) in shares_of_those_up(backends).iter().zip(backends) {
            let fair = if *up { f64::from(*weight) / f64::from(total) } else { 0.0 };
            assert!((got - fair).abs() < 0.02, "{got} instead of {fair}: {backends:?}");
        }
    }
}

#[test]
fn without_any_backend_connections_are_dropped() {
    let mut lb = bench(&format!("heartbeat_port = 7000\n{WEB}"));
    backend(&mut lb, 1, 1, "S");
    for second in 1..6 {
        check(&mut lb, 0, second * 1000, Frame::arp("10.0.0.1", "10.0.0.2"), "1: not ip");
    }
    assert_eq!(backend(&mut lb, 1, 6000, "A"), "no_backend");
    assert_eq!(backend(&mut lb, 2, 6000, "S"), "no_backend");
    check(&mut lb, 0, 6001, heartbeat("10.0.0.2"), "drop heartbeat");
    assert_eq!(backend(&mut lb, 2, 6002, "S"), "10.0.0.2:8080");
}

#[test]
fn only_backends_announce_themselves() {
    let mut lb = bench(&format!("heartbeat_port = 7000\n{WEB}"));
    check(&mut lb, 0, 0, heartbeat("10.0.0.77"), "1: udp 10.0.0.77:9000 > 203.0.113.10:7000 ttl 64");
    check(&mut lb, 1, 0, heartbeat("10.0.0.1"), "0: udp 10.0.0.1:9000 > 203.0.113.10:7000 ttl 64");
}

#[test]
fn reports_that_change_nothing_are_counted() {
    let mut lb = bench(&format!("heartbeat_port = 7000\nmonitors = ['10.0.9.9']\n{WEB}"));
    let mut report = |words: &str| {
        let frame = Frame::udp("10.0.9.9:9", "203.0.113.10:7000").payload(words.as_bytes());
        check(&mut lb, 0, 1, frame, "drop heartbeat");
    };
    report("down 10.0.0.1\n\nDOWN\t10.0.0.2:8080\r\n");
    report("down\ngone 10.0.0.1\nup 10.0.0.3:http\nup 10.0.0.1 10.0.0.2");
    report("down 10.0.0.77\ndown 10.0.0.3:80");
    assert_eq!(backend(&mut lb, 1, 2, "S"), "10.0.0.3:8080");
    let findings = lb.findings();
    let sums = findings.sums();
    assert_eq!(sums["lines of monitors that say nothing"], 4);
    assert_eq!(sums["lines of monitors about no backend"], 2);
}
