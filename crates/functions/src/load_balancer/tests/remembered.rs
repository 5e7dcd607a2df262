//! What is remembered and for how long: connections that never open, persistent groups of clients, services that remember
//! nothing.

use braid_testkit::{Bench, Frame};

use super::{backend, bench, bench_with, show};

fn connections(mut lb: Bench, seconds: u64) -> String {
    // Expiry visits the table in small steps.
    for n in 0..100 {
        lb.send(1, seconds * 1000 + n * 10, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    }
    let told: Vec<_> = lb.findings().list().iter().map(|told| told.detail.clone()).collect();
    told.iter().map(|told| told.rsplit(": ").next().unwrap_or("?").to_owned()).collect::<Vec<_>>().join("; ")
}

const ONE: &str =
    "[[service]]\naddress = '203.0.113.10'\nport = 80\nprotocol = 'tcp'\nbackends = [{ address = '10.0.0.1' }]";

#[test]
fn a_connection_that_never_opens_is_forgotten_after_a_minute() {
    let after = |seconds: u64| {
        let mut lb = bench(ONE);
        for client in 0..20 {
            backend(&mut lb, client, 0, "S");
        }
        for client in 0..3 {
            backend(&mut lb, client, 100, "A");
        }
        connections(lb, seconds)
    };
    assert_eq!(after(55), "20 remembered, 20 in all");
    assert_eq!(after(130), "3 remembered, 20 in all");
    assert_eq!(after(1200), "0 remembered, 20 in all");
}

#[test]
fn a_flood_of_first_segments_moves_no_connection() {
    let mut lb = bench_with(
        "heartbeat_port = 7000\nmonitors = ['10.0.9.9']
        [[service]]\naddress = '203.0.113.10'\nport = 80\nprotocol = 'tcp'\nbackends = [{ address = '10.0.0.1' }, { address = '10.0.0.2', up = false }]",
        64,
    );
    for client in 0..10 {
        assert_eq!(backend(&mut lb, client, 0, "S"), "10.0.0.1:80");
        assert_eq!(backend(&mut lb, client, 1, "A"), "10.0.0.1:80");
    }
    let word = Frame::udp("10.0.9.9:9", "203.0.113.10:7000").payload(b"up 10.0.0.1\nup 10.0.0.2");
    lb.send(0, 2, &word.bytes());
    for host in 0..1000u32 {
        let from = format!("198.18.{}.{}:{}", host / 250, host % 250 + 1, 1024 + host);
        lb.send(1, 3 + u64::from(host), &Frame::tcp(&from, "203.0.113.10:80").flags("S").bytes());
    }
    assert!((0..10).all(|client| backend(&mut lb, client, 1100, "A") == "10.0.0.1:80"), "they are remembered");
    // Once these have expired there is room again.
    let mut late = (10..40).map(|client| backend(&mut lb, client, 150_000, "S")).collect::<Vec<_>>();
    late.sort();
    late.dedup();
    assert_eq!(late, ["10.0.0.1:80", "10.0.0.2:80"]);
    assert!(lb.counters().sets_refused > 0);
}

#[test]
fn who_closes_and_connects_from_the_same_port_begins_anew() {
    let mut lb = bench(
        "heartbeat_port = 7000\nmonitors = ['10.0.9.9']\nwhen_down = 'keep'
        [[service]]\naddress = '203.0.113.10'\nport = 80\nprotocol = 'tcp'\nbackends = [{ address = '10.0.0.1' }, { address = '10.0.0.2', up = false }]",
    );
    for (ms, flags) in [(0, "S"), (1, "A"), (2, "FA"), (3, "A")] {
        assert_eq!(backend(&mut lb, 1, ms, flags), "10.0.0.1:80");
    }
    for (ms, flags) in [(4, "S"), (5, "A")] {
        assert_eq!(backend(&mut lb, 2, ms, flags), "10.0.0.1:80");
    }
    let word = Frame::udp("10.0.9.9:9", "203.0.113.10:7000").payload(b"down 10.0.0.1\nup 10.0.0.2");
    lb.send(0, 50, &word.bytes());
    // The first backend keeps its open connections, and the last packets of the closed one.
    assert_eq!(backend(&mut lb, 1, 100, "A"), "10.0.0.1:80");
    assert_eq!(backend(&mut lb, 1, 101, "SA"), "10.0.0.1:80", "no client begins like that");
    assert_eq!(backend(&mut lb, 1, 102, "FA"), "10.0.0.1:80");
    assert_eq!(backend(&mut lb, 1, 103, "S"), "10.0.0.2:80", "a new connection");
    assert_eq!(backend(&mut lb, 1, 104, "A"), "10.0.0.2:80");
    assert_eq!(backend(&mut lb, 2, 105, "A"), "10.0.0.1:80");
    assert_eq!(backend(&mut lb, 2, 106, "S"), "10.0.0.1:80", "that one has not been closed");
    let told: Vec<_> = lb.findings().list().iter().map(|told| told.detail.clone()).collect();
    assert_eq!(
        told,
        ["down, weight 1, connections: 1 remembered, 2 in all", "up, weight 1, connections: 1 remembered, 1 in all"]
    );
}

#[test]
fn clients_of_one_range_stay_together() {
    let mut lb = bench(
        "[[service]]\naddress = '203.0.113.10'\npersistence = 'source'\npersistence_prefix = { v4 = 24 }
        backends = [{ address = '10.0.0.1' }, { address = '10.0.0.2' }, { address = '10.0.0.3' }, { address = '10.0.0.4' }]
        [[service]]\naddress = '2001:db8::10'\npersistence = 'source'\npersistence_prefix = { v6 = 64 }
        backends = [{ address = '2001:db8:1::1' }, { address = '2001:db8:1::2' }, { address = '2001:db8:1::3' }]",
    );
    let mut distinct = |froms: Vec<String>, to: &str| {
        let mut found: Vec<_> = froms
            .iter()
            .map(|from| {
                show::outcome(&lb.send(1, 0, &Frame::udp(from, to).bytes())).split(' ').nth(4).unwrap().to_owned()
            })
            .collect();
        found.sort();
        found.dedup();
        found.len()
    };
    assert_eq!(distinct((1..40).map(|host| format!("192.0.2.{host}:{host}")).collect(), "203.0.113.10:53"), 1);
    assert_eq!(distinct((1..40).map(|net| format!("192.0.{net}.1:9")).collect(), "203.0.113.10:53"), 4);
    assert_eq!(distinct((1..40).map(|host| format!("[2001:db8:9::{host:x}]:9")).collect(), "[2001:db8::10]:53"), 1);
    assert_eq!(distinct((1..40).map(|net| format!("[2001:db8:9:{net:x}::1]:9")).collect(), "[2001:db8::10]:53"), 3);
}

#[test]
fn a_service_that_remembers_nothing_takes_no_sets() {
    let config = "[[service]]\naddress = '203.0.113.10'\nport = 53\nprotocol = 'udp'\npersistence = 'none'
        backends = [{ address = '10.0.0.1' }, { address = '10.0.0.2' }]";
    let mut lb = bench_with(config, 64);
    let mut to = |port: u16, ms: u64| {
        let outcome = lb.send(1, ms, &Frame::udp(&format!("192.0.2.8:{port}"), "203.0.113.10:53").bytes());
        show::outcome(&outcome).split(' ').nth(4).unwrap().to_owned()
    };
    let first: Vec<_> = (1000..1200).map(|port| to(port, 0)).collect();
    let second: Vec<_> = (1000..1200).map(|port| to(port, 1)).collect();
    assert_eq!(first, second, "each goes by its hash");
    let share = first.iter().filter(|to| *to == "10.0.0.1:53").count();
    assert!((60..140).contains(&share), "{share}");
    let answer = lb.send(0, 2, &Frame::udp("10.0.0.1:53", "192.0.2.8:1000").bytes());
    assert_eq!(show::outcome(&answer), "1: udp 203.0.113.10:53 > 192.0.2.8:1000 ttl 63");
    let counters = lb.counters();
    assert_eq!((counters.sets_created, counters.sets_refused), (0, 0));
}

#[test]
fn clients_that_find_no_room_are_counted() {
    let mut lb = bench(
        "persistence_max = 4\n[[service]]\naddress = '203.0.113.10'\nport = 80\nprotocol = 'tcp'\npersistence = 'source'
        backends = [{ address = '10.0.0.1' }, { address = '10.0.0.2' }]",
    );
    for client in 0..10 {
        backend(&mut lb, client, 0, "S");
    }
    assert_eq!(lb.findings().sums().get("connections whose client found no room"), Some(&6));
}
