//! The load balancer at work: one worker, capture time, frames built and read by another library.

use std::collections::HashMap;

use braid_nf::Instance;
use braid_testkit::{Bench, Frame};
use proptest::prelude::*;

mod modes;

use super::maglev::{Candidate, Maglev, SIZE_DEFAULT, is_prime};
use super::{Config, LoadBalancer};
use crate::catalog::FromConfig;
use crate::config::parse;
use crate::parts::show;

const WEB: &str = r#"
    [[service]]
    address = "203.0.113.10"
    port = 80
    protocol = "tcp"
    backends = [{ address = "10.0.0.1", port = 8080 }, { address = "10.0.0.2", port = 8080 }, { address = "10.0.0.3", port = 8080 }]
    [[service]]
    address = "2001:db8::10"
    backends = [{ address = "2001:db8:1::1" }]
    [[service]]
    address = "203.0.113.53"
    port = 53
    protocol = "udp"
    backends = [{ address = "10.0.0.9" }]
"#;

fn bench(config: &str) -> Bench {
    bench_with(config, 1024)
}

fn bench_with(config: &str, sets: usize) -> Bench {
    let config: Config = parse(config.parse().unwrap()).unwrap();
    Bench::with_sets(2, sets, |builder| {
        let balancer = LoadBalancer::from_config(config, builder.scope("lb"), 2).expect("a configuration that works");
        Box::new(Instance::new("lb", balancer))
    })
}

/// Clients are behind port 1, backends behind port 0.
#[track_caller]
fn check(bench: &mut Bench, port: u16, ms: u64, frame: Frame, expected: &str) {
    assert_eq!(show::outcome(&bench.send(port, ms, &frame.bytes())), expected);
}

/// A client's segment to the web service, and the backend that gets it; or why none does.
fn backend(bench: &mut Bench, client: u16, ms: u64, flags: &str) -> String {
    let client = format!("192.0.2.{}:{}", client % 200 + 1, 1024 + client);
    let outcome = bench.send(1, ms, &Frame::tcp(&client, "203.0.113.10:80").flags(flags).bytes());
    let sent = show::outcome(&outcome);
    sent.split(' ').nth(4).unwrap_or(outcome.dropped.unwrap_or("?")).to_owned()
}

fn heartbeat(from: &str) -> Frame {
    Frame::udp(&format!("{from}:9000"), "203.0.113.10:7000")
}

#[test]
fn a_connection_goes_to_one_backend_and_its_replies_come_from_the_service() {
    let mut lb = bench(WEB);
    let first = backend(&mut lb, 7, 0, "S");
    assert!(first.starts_with("10.0.0.") && first.ends_with(":8080"), "{first}");
    for ms in 1..5 {
        assert_eq!(backend(&mut lb, 7, ms, "A"), first);
        let reply = Frame::tcp(&first, "192.0.2.8:1031").flags("A");
        check(&mut lb, 0, ms, reply, "1: tcp 203.0.113.10:80 > 192.0.2.8:1031 A ttl 63");
    }
}

#[test]
fn services_have_ports_protocols_and_families() {
    let mut lb = bench(WEB);
    check(&mut lb, 1, 0, Frame::udp("192.0.2.1:9", "203.0.113.53:53"), "0: udp 192.0.2.1:9 > 10.0.0.9:53 ttl 63");
    check(&mut lb, 0, 0, Frame::udp("10.0.0.9:53", "192.0.2.1:9"), "1: udp 203.0.113.53:53 > 192.0.2.1:9 ttl 63");
    let v6 = Frame::tcp("[2001:db8:9::9]:9", "[2001:db8::10]:443").flags("S");
    check(&mut lb, 1, 0, v6, "0: tcp [2001:db8:9::9]:9 > [2001:db8:1::1]:443 S ttl 63");
    let v6 = Frame::tcp("[2001:db8:1::1]:443", "[2001:db8:9::9]:9").flags("SA");
    check(&mut lb, 0, 0, v6, "1: tcp [2001:db8::10]:443 > [2001:db8:9::9]:9 SA ttl 63");
    // Neither of them: as it came.
    check(&mut lb, 1, 0, Frame::udp("192.0.2.1:9", "203.0.113.10:80"), "0: udp 192.0.2.1:9 > 203.0.113.10:80 ttl 64");
    check(&mut lb, 1, 0, Frame::tcp("192.0.2.1:9", "203.0.113.9:80"), "0: tcp 192.0.2.1:9 > 203.0.113.9:80 A ttl 64");
    check(&mut lb, 0, 0, Frame::tcp("10.0.0.1:22", "192.0.2.1:9"), "1: tcp 10.0.0.1:22 > 192.0.2.1:9 A ttl 64");
    check(&mut lb, 0, 0, Frame::arp("10.0.0.1", "10.0.0.2"), "1: not ip");
    // Clients cannot speak in the name of a backend.
    let forged = Frame::tcp("10.0.0.1:8080", "192.0.2.1:9");
    check(&mut lb, 1, 0, forged, "0: tcp 10.0.0.1:8080 > 192.0.2.1:9 A ttl 64");
}

#[test]
fn connections_are_spread_evenly() {
    let mut lb = bench_with(WEB, 4096);
    let mut shares = HashMap::<String, u32>::new();
    for client in 0..3000 {
        *shares.entry(backend(&mut lb, client, 0, "S")).or_default() += 1;
    }
    assert_eq!(shares.len(), 3);
    assert!(shares.values().all(|share| (850..1150).contains(share)), "{shares:?}");
}

#[test]
fn a_full_table_changes_no_choice() {
    let mut lb = bench_with(WEB, 1);
    let first: Vec<_> = (0..50).map(|client| backend(&mut lb, client, 0, "S")).collect();
    let again: Vec<_> = (0..50).map(|client| backend(&mut lb, client, 1, "A")).collect();
    assert_eq!(first, again);
}

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
    // It comes back: new connections as before, the moved ones stay.
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
fn icmp_errors_find_the_backend_and_the_client() {
    let mut lb = bench(WEB);
    let chosen = backend(&mut lb, 7, 0, "S");
    let host = chosen.strip_suffix(":8080").unwrap();
    // From a router on the way to the client, about a reply.
    let reply = Frame::tcp("203.0.113.10:80", "192.0.2.8:1031").flags("A").bytes();
    let expected = format!("0: unreachable 192.0.2.200 > {host} [tcp {chosen} > 192.0.2.8:1031 A] ttl 63");
    check(&mut lb, 1, 0, Frame::unreachable("192.0.2.200", "203.0.113.10", &reply), &expected);
    // From the backend, about a request.
    let request = Frame::tcp("192.0.2.8:1031", &chosen).flags("A").bytes();
    let expected = "1: unreachable 203.0.113.10 > 192.0.2.8 [tcp 192.0.2.8:1031 > 203.0.113.10:80 A] ttl 63";
    check(&mut lb, 0, 0, Frame::unreachable(host, "192.0.2.8", &request), expected);
    // About nothing that is served.
    let other = Frame::udp("203.0.113.10:9", "192.0.2.8:1031").bytes();
    check(&mut lb, 1, 0, Frame::unreachable("192.0.2.200", "203.0.113.10", &other), "drop unrelated");
}

#[test]
fn later_fragments_follow_the_first() {
    let mut lb = bench(WEB);
    let later = |id| Frame::ip("192.0.2.1", "203.0.113.53", 17).fragment(id, 2, false).payload(&[7; 24]);
    check(&mut lb, 1, 0, later(9), "drop fragment_held");
    let first = Frame::udp("192.0.2.1:9", "203.0.113.53:53").payload(&[7; 8]).fragment(9, 0, true);
    assert_eq!(lb.send(1, 0, &first.bytes()).ports(), [0, 0], "and the one that waited");
    check(&mut lb, 1, 0, later(9), "0: ip 192.0.2.1 > 10.0.0.9 proto 17 ttl 63");
    let others = Frame::ip("192.0.2.1", "192.0.2.2", 17).fragment(9, 2, false).payload(&[7; 24]);
    check(&mut lb, 1, 0, others, "0: ip 192.0.2.1 > 192.0.2.2 proto 17 ttl 64");
}

#[test]
fn without_room_no_fragment_waits_and_for_a_tunnel_none_does() {
    let later = || Frame::ip("192.0.2.1", "203.0.113.53", 17).fragment(9, 2, false).payload(&[7; 24]);
    check(&mut bench(&format!("held_max = 0\n{WEB}")), 1, 0, later(), "drop fragment_before_first");
    let tunnel = "[[service]]\naddress = '203.0.113.53'\nmode = 'ipip'\nbackends = [{ address = '10.0.0.9' }]";
    check(&mut bench(tunnel), 1, 0, later(), "drop fragment_before_first");
}

#[test]
fn the_last_hop_is_told_to_the_client() {
    let mut lb = bench(WEB);
    let expected = "1: exceeded 192.0.0.8 > 192.0.2.1 [udp 192.0.2.1:9 > 203.0.113.53:53] ttl 64, drop ttl_exceeded";
    check(&mut lb, 1, 0, Frame::udp("192.0.2.1:9", "203.0.113.53:53").ttl(1), expected);
}

#[test]
fn a_backend_without_weight_drains() {
    let config =
        WEB.replace("{ address = \"10.0.0.2\", port = 8080 }", "{ address = \"10.0.0.2\", port = 8080, weight = 0 }");
    let mut lb = bench(&config);
    assert!((0..200).all(|client| backend(&mut lb, client, 0, "S") != "10.0.0.2:8080"));
    let reply = Frame::tcp("10.0.0.2:8080", "192.0.2.8:1031").flags("A");
    check(&mut lb, 0, 0, reply, "1: tcp 203.0.113.10:80 > 192.0.2.8:1031 A ttl 63");
}

#[track_caller]
fn check_error(from: &str, to: &str, expected: &str) {
    let text = WEB.replace(from, to);
    let error = match parse::<Config>(text.parse().unwrap()) {
        Err(error) => error.to_string(),
        Ok(config) => super::Settings::check(&config, 2).unwrap_err().to_string(),
    };
    assert!(error.contains(expected), "{error}");
}

#[test]
fn configurations_that_cannot_work_are_refused_with_what_to_write() {
    check_error("10.0.0.9", "2001:db8::9", "is of another family than 203.0.113.53; use one family");
    check_error("10.0.0.2", "10.0.0.1", "10.0.0.1 port 8080 is a backend twice, so its replies are ambiguous");
    check_error("port = 80\n", "", "10.0.0.1 has a port but the service has none");
    check_error("[{ address = \"10.0.0.9\" }]", "[]", "`service[2].backends`: none has a weight");
    check_error("{ address = \"10.0.0.9\" }", "{ address = \"10.0.0.9\", weight = 0 }", "none has a weight");
    check_error(
        "203.0.113.53\"\n    port = 53\n    protocol = \"udp\"",
        "203.0.113.10\"\n    port = 80",
        "has this service already",
    );
    check_error(
        "[[service]]\n    address = \"203.0.113.10\"",
        "table_size = 65536\n[[service]]\naddress = \"203.0.113.10\"",
        "65536 is no prime",
    );
    check_error("\"tcp\"", "\"sctp\"", "unknown variant `sctp`");
    check_error("10.0.0.9", "224.0.0.1", "`service[2].backends`: 224.0.0.1 is no address of a backend");
    check_error("10.0.0.9", "203.0.113.53", "`service[2].backends`: 203.0.113.53 is no address of a backend");
    check_error("203.0.113.53", "0.0.0.0", "0.0.0.0 is no host's address");
    check_error("203.0.113.53", "127.0.0.1", "127.0.0.1 is no host's address");
    check_error("port = 53", "port = 0", "0 is no port; write the port that clients ask for");
    let first = "[[service]]\n    address = \"203.0.113.10\"";
    for (key, wanted) in [
        ("heartbeat_port = 0", "`heartbeat_port`: 0 is no port"),
        ("heartbeat_timeout_ms = 5", "`heartbeat_timeout_ms`: says nothing to any service; add heartbeat_port"),
        ("persistence_s = 5", "`persistence_s`: says nothing to any service; add persistence = \"source\""),
        ("persistence_max = 5", "`persistence_max`: says nothing to any service"),
        ("mtu = 9000", "`mtu`: says nothing to any service; add a mode with tunnels"),
    ] {
        check_error(first, &format!("{key}\n{first}"), wanted);
    }
    let page = "port = 53\n    check = { kind = \"tcp\", path = \"/x\" }";
    check_error("port = 53", page, "`service[2].check`: a connection alone asks for no page; write kind = \"http\"");
}

fn candidates(count: usize) -> Vec<Candidate> {
    (0..count).map(|n| Candidate { name: format!("10.0.{}.{}:80", n / 256, n % 256), weight: 1 }).collect()
}

/// Shares of the candidates in a table, each divided by its fair share.
fn shares(table: &Maglev, count: usize) -> Vec<f64> {
    let mut places = vec![0u32; count];
    table.places().iter().for_each(|place| places[usize::from(*place)] += 1);
    places.iter().map(|share| f64::from(*share) * count as f64 / table.places().len() as f64).collect()
}

#[test]
fn every_backend_has_its_share_of_the_table() {
    for count in [1, 3, 10, 100, 600] {
        let table = Maglev::new(SIZE_DEFAULT, &candidates(count));
        assert!(shares(&table, count).iter().all(|share| (0.99..=1.01).contains(share)), "{count} backends");
    }
}

#[test]
fn shares_follow_the_weights() {
    let mut weighted = candidates(4);
    for (candidate, weight) in weighted.iter_mut().zip([1, 2, 3, 4]) {
        candidate.weight = weight;
    }
    let shares = shares(&Maglev::new(SIZE_DEFAULT, &weighted), 4);
    for (share, weight) in shares.iter().zip([1.0, 2.0, 3.0, 4.0]) {
        assert!((share / (weight * 0.4) - 1.0).abs() < 0.01, "{shares:?}");
    }
}

#[test]
fn the_table_does_not_depend_on_the_order_of_backends() {
    let (forward, mut backward) = (candidates(20), candidates(20));
    backward.reverse();
    let (a, b) = (Maglev::new(SIZE_DEFAULT, &forward), Maglev::new(SIZE_DEFAULT, &backward));
    assert!(a.places().iter().zip(b.places()).all(|(a, b)| *a == 19 - *b));
}

/// The share of places that change though their backend is still there, when the last `gone` of `count` backends go.
fn disruption(count: usize, gone: usize) -> f64 {
    let left = count - gone;
    let (before, after) = (Maglev::new(SIZE_DEFAULT, &candidates(count)), Maglev::new(SIZE_DEFAULT, &candidates(left)));
    let places = || before.places().iter().zip(after.places());
    let surviving = places().filter(|(before, _)| usize::from(**before) < left).count();
    let moved = places().filter(|(before, after)| usize::from(**before) < left && before != after).count();
    moved as f64 / surviving as f64
}

#[test]
fn few_places_change_when_backends_are_taken_out_of_the_configuration() {
    for (count, gone, bound) in [(10, 1, 0.01), (100, 1, 0.01), (100, 10, 0.015), (1000, 100, 0.05)] {
        let moved = disruption(count, gone);
        assert!(moved <= bound, "{gone} of {count}: {:.2} % moved", moved * 100.0);
    }
}

#[test]
fn the_size_of_a_table_is_prime() {
    assert!(is_prime(65_537) && is_prime(655_373) && is_prime(2) && is_prime(101));
    assert!(!is_prime(0) && !is_prime(1) && !is_prime(65_536) && !is_prime(65_535));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Bytes that are no packets, and packets with bytes changed or cut, are forwarded or dropped; nothing panics.
    #[test]
    fn damaged_packets_do_no_harm(flips in prop::collection::vec((0usize..80, any::<u8>()), 0..6), cut in 1usize..90, port in 0u16..2) {
        let mut lb = bench(&format!("heartbeat_port = 7000\n{WEB}"));
        let quoted = Frame::tcp("203.0.113.10:80", "192.0.2.8:1031").bytes();
        let frames = [
            Frame::tcp("192.0.2.1:9", "203.0.113.10:80").flags("S").bytes(),
            Frame::udp("192.0.2.1:9", "203.0.113.53:53").payload(&[7; 8]).fragment(9, 0, true).bytes(),
            Frame::unreachable("192.0.2.200", "203.0.113.10", &quoted).bytes(),
            Frame::tcp("[2001:db8:9::9]:9", "[2001:db8::10]:443").bytes(),
            heartbeat("10.0.0.1").bytes(),
        ];
        for mut frame in frames {
            for (at, value) in &flips {
                if let Some(byte) = frame.get_mut(*at) {
                    *byte = *value;
                }
            }
            frame.truncate(cut);
            let outcome = lb.send(port, 0, &frame);
            prop_assert!(outcome.dropped != Some("handler_panic"));
            prop_assert!(!outcome.sent.is_empty() || outcome.dropped.is_some());
        }
    }
}

#[test]
fn the_report_says_what_each_backend_has() {
    let config = "udp_s = 10
        [[service]]\naddress = '203.0.113.10'\nport = 53
        backends = [{ address = '10.0.0.1' }, { address = '10.0.0.2', weight = 0 }, { address = '10.0.0.3', up = false }]";
    let told = |seconds: u64| {
        let mut lb = bench(config);
        for port in 1..=5 {
            lb.send(1, 0, &Frame::udp(&format!("192.0.2.8:{port}"), "203.0.113.10:53").bytes());
        }
        lb.send(0, 0, &Frame::udp("10.0.0.1:53", "192.0.2.8:1").bytes());
        lb.send(1, seconds * 1000, &Frame::udp("192.0.2.8:5", "203.0.113.10:53").bytes());
        lb.wait_until(seconds * 1_000_000_000 + 1);
        lb.findings().list().iter().map(|told| format!("{} {}", told.subject, told.detail)).collect::<Vec<_>>()
    };
    let page = |now: u32, all: u32| {
        let at = "203.0.113.10:53 at";
        [
            format!("{at} 10.0.0.1:53 up, weight 1, connections: {now} now, {all} in all"),
            format!("{at} 10.0.0.2:53 up, weight 0, connections: 0 now, 0 in all"),
            format!("{at} 10.0.0.3:53 down, weight 1, connections: 0 now, 0 in all"),
        ]
    };
    assert_eq!(told(5), page(5, 5));
    assert_eq!(told(30), page(1, 6));
}

#[test]
fn errors_have_a_rate() {
    let mut lb = bench(&format!("icmp_errors_per_s = 10\n{WEB}"));
    let mut told = 0;
    for port in 1..=30 {
        let outcome = lb.send(1, 0, &Frame::tcp(&format!("192.0.2.8:{port}"), "203.0.113.10:80").ttl(1).bytes());
        assert_eq!(outcome.dropped, Some("ttl_exceeded"));
        told += outcome.sent.len();
    }
    assert_eq!(told, 10);
    assert_eq!(lb.findings().sums()["icmp_errors_withheld"], 20);
}
