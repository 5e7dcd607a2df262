//! Load balancer tests: one worker, capture time, frames built and decoded by an independent library.

use std::collections::HashMap;

use braid_nf::Instance;
use braid_testkit::{Bench, Frame};
use proptest::prelude::*;

mod backups;
mod crossed;
mod health;
mod joining;
mod limits;
mod maglev;
mod modes;
mod path;
mod pieces;
mod ports;
mod quic;
mod refused;
mod remembered;
mod strays;
mod traffic;

use super::{Config, LoadBalancer};
use crate::catalog::FromConfig;
use crate::config::parse;
use crate::parts::testing::show;

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

fn heartbeat(from: &str) -> Frame {
    Frame::udp(&format!("{from}:9000"), "203.0.113.10:7000")
}

/// Sends a frame. Clients are behind port 1, backends behind port 0.
#[track_caller]
fn check(bench: &mut Bench, port: u16, ms: u64, frame: Frame, expected: &str) {
    assert_eq!(show::outcome(&bench.send(port, ms, &frame.bytes())), expected);
}

/// The backend that gets a client's segment to the web service, or the reason for dropping it.
fn backend(bench: &mut Bench, client: u16, ms: u64, flags: &str) -> String {
    let client = format!("192.0.2.{}:{}", client % 200 + 1, 1024 + client);
    let outcome = bench.send(1, ms, &Frame::tcp(&client, "203.0.113.10:80").flags(flags).bytes());
    let sent = show::outcome(&outcome);
    sent.split(' ').nth(4).unwrap_or(outcome.dropped.unwrap_or("?")).to_owned()
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
    // Neither to a service nor from a backend: unchanged.
    check(&mut lb, 1, 0, Frame::udp("192.0.2.1:9", "203.0.113.10:80"), "0: udp 192.0.2.1:9 > 203.0.113.10:80 ttl 64");
    check(&mut lb, 1, 0, Frame::tcp("192.0.2.1:9", "203.0.113.9:80"), "0: tcp 192.0.2.1:9 > 203.0.113.9:80 A ttl 64");
    check(&mut lb, 0, 0, Frame::tcp("10.0.0.1:22", "192.0.2.1:9"), "1: tcp 10.0.0.1:22 > 192.0.2.1:9 A ttl 64");
    check(&mut lb, 0, 0, Frame::arp("10.0.0.1", "10.0.0.2"), "1: not ip");
    // Clients cannot impersonate a backend: no translation applies.
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
    // The report shows that the table is full: 49 connections with two packets each.
    let told: Vec<_> = lb.findings().list().iter().map(|told| told.detail.clone()).collect();
    let refused = |told: &String| {
        told.split(", ")
            .find_map(|part| part.strip_suffix(" packets of others that found no room")?.parse::<u32>().ok())
    };
    assert_eq!(told.iter().filter_map(refused).sum::<u32>(), 98, "{told:?}");
}

#[test]
fn icmp_errors_find_the_backend_and_the_client() {
    let mut lb = bench(WEB);
    let chosen = backend(&mut lb, 7, 0, "S");
    let host = chosen.strip_suffix(":8080").unwrap();
    // From a router on the path to the client, about a reply.
    let reply = Frame::tcp("203.0.113.10:80", "192.0.2.8:1031").flags("A").bytes();
    let expected = format!("0: unreachable 192.0.2.200 > {host} [tcp {chosen} > 192.0.2.8:1031 A] ttl 63");
    check(&mut lb, 1, 0, Frame::unreachable("192.0.2.200", "203.0.113.10", &reply), &expected);
    // From the backend, about a request.
    let request = Frame::tcp("192.0.2.8:1031", &chosen).flags("A").bytes();
    let expected = "1: unreachable 203.0.113.10 > 192.0.2.8 [tcp 192.0.2.8:1031 > 203.0.113.10:80 A] ttl 63";
    check(&mut lb, 0, 0, Frame::unreachable(host, "192.0.2.8", &request), expected);
    // About a packet that belongs to no service.
    let other = Frame::udp("203.0.113.10:9", "192.0.2.8:1031").bytes();
    check(&mut lb, 1, 0, Frame::unreachable("192.0.2.200", "203.0.113.10", &other), "drop unrelated");
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

#[test]
fn a_service_whose_backends_all_drain_takes_nothing_new() {
    let config = "[[service]]\naddress = '203.0.113.10'\nport = 80\nprotocol = 'tcp'\nbackends = [{ address = '10.0.0.1', weight = 0 }]";
    let mut lb = bench(config);
    assert_eq!(backend(&mut lb, 1, 0, "S"), "no_backend");
    let reply = Frame::tcp("10.0.0.1:80", "192.0.2.8:1031").flags("A");
    check(&mut lb, 0, 0, reply, "1: tcp 203.0.113.10:80 > 192.0.2.8:1031 A ttl 63");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Bytes that are not packets, and packets that are altered or truncated, are forwarded or dropped; nothing panics.
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
            format!("{at} 10.0.0.1:53 up, weight 1, connections: {now} remembered, {all} in all"),
            format!("{at} 10.0.0.2:53 up, weight 0, connections: 0 remembered, 0 in all"),
            format!("{at} 10.0.0.3:53 down, weight 1, connections: 0 remembered, 0 in all"),
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
