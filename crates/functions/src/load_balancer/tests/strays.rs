//! ICMP errors about connections that are not on the backend their hash selects.

use std::collections::HashSet;

use braid_testkit::{Bench, Frame};

use super::{backend, bench, check, show};

const WATCHED: &str = "heartbeat_port = 7000\nmonitors = ['10.0.9.9']\nrecheck_ms = 1000
    [[service]]\naddress = '203.0.113.10'\nport = 80\nprotocol = 'tcp'\nMODE
    backends = [{ address = '10.0.0.1' }, { address = '10.0.0.2', up = false }]";

fn monitor(lb: &mut Bench, ms: u64, word: &str) {
    let frame = Frame::udp("10.0.9.9:9", "203.0.113.10:7000").payload(word.as_bytes());
    check(lb, 0, ms, frame, "drop heartbeat");
}

/// The backend that gets a router's error about a reply to a client.
fn reader(lb: &mut Bench, client: u16, ms: u64) -> String {
    let host = format!("192.0.2.{}:{}", client % 200 + 1, 1024 + client);
    let answer = Frame::tcp("203.0.113.10:80", &host).bytes();
    let outcome = lb.send(1, ms, &Frame::unreachable("198.18.0.9", "203.0.113.10", &answer).bytes());
    let sent = show::outcome(&outcome);
    format!("{}:80", sent.split(' ').nth(4).unwrap_or("none"))
}

#[test]
fn errors_about_connections_from_before_a_change_find_their_backend() {
    let mut lb = bench(&WATCHED.replace("MODE", ""));
    for client in 0..40 {
        assert_eq!(backend(&mut lb, client, 0, "S"), "10.0.0.1:80");
    }
    monitor(&mut lb, 1, "up 10.0.0.1\nup 10.0.0.2");
    // Existing connections note themselves with their first packet after a second; new ones follow the hash.
    for client in 0..40 {
        assert_eq!(backend(&mut lb, client, 1500, "A"), "10.0.0.1:80");
    }
    let readers: HashSet<String> = (0..40).map(|client| reader(&mut lb, client, 1600)).collect();
    assert_eq!(readers, HashSet::from(["10.0.0.1:80".to_owned()]));
    for client in 40..80 {
        let chosen = backend(&mut lb, client, 1600, "S");
        assert_eq!(reader(&mut lb, client, 1700), chosen);
    }
    // They stay noted while they have packets, and for a minute longer.
    for second in 2..90 {
        for client in 0..40 {
            backend(&mut lb, client, second * 1000 + 600, "A");
        }
    }
    assert!((0..40).all(|client| reader(&mut lb, client, 100_000) == "10.0.0.1:80"));
    assert!((0..40).any(|client| reader(&mut lb, client, 170_000) == "10.0.0.2:80"));
}

#[test]
fn a_connection_that_moves_to_its_hash_is_not_taken_for_where_it_was() {
    let mut lb = bench(&WATCHED.replace("MODE", "").replace("up = false", "up = true"));
    let chosen: Vec<String> = (0..40).map(|client| backend(&mut lb, client, 0, "S")).collect();
    monitor(&mut lb, 1, "up 10.0.0.1\ndown 10.0.0.2");
    assert!((0..40).all(|client| backend(&mut lb, client, 1500, "A") == "10.0.0.1:80"));
    monitor(&mut lb, 1501, "up 10.0.0.2");
    // The connections that moved are strays now: their hash selects the first choice again.
    (0..40).for_each(|client| _ = backend(&mut lb, client, 3000, "A"));
    assert!((0..40).all(|client| reader(&mut lb, client, 3100) == "10.0.0.1:80"));
    // Then their own backend fails.
    monitor(&mut lb, 3200, "down 10.0.0.1");
    (0..40).for_each(|client| _ = backend(&mut lb, client, 5000, "A"));
    (0..40).for_each(|client| _ = backend(&mut lb, client, 7000, "A"));
    assert!((0..40).all(|client| reader(&mut lb, client, 7100) == "10.0.0.2:80"));
    assert!(chosen.iter().any(|backend| backend == "10.0.0.1:80"));
}

#[test]
fn errors_in_tunnels_find_it_too_and_without_room_the_hash_decides() {
    let mut lb = bench(&format!("strays_max = 1\n{}", WATCHED.replace("MODE", "mode = 'ipip'")));
    let to = |frame: &[u8]| frame[33];
    for client in 0..40u16 {
        let syn = Frame::tcp(&format!("192.0.2.8:{}", 2000 + client), "203.0.113.10:80").flags("S").bytes();
        assert_eq!(to(lb.send(1, 0, &syn).only().1), 1);
    }
    monitor(&mut lb, 1, "up 10.0.0.1\nup 10.0.0.2");
    let mut found = [0; 3];
    for client in 0..40u16 {
        let end = format!("192.0.2.8:{}", 2000 + client);
        assert_eq!(to(lb.send(1, 1500, &Frame::tcp(&end, "203.0.113.10:80").flags("A").bytes()).only().1), 1);
        let answer = Frame::tcp("203.0.113.10:80", &end).bytes();
        let error = Frame::unreachable("198.18.0.9", "203.0.113.10", &answer).bytes();
        found[usize::from(to(lb.send(1, 1500, &error).only().1))] += 1;
    }
    assert!(found[1] > 1 && found[2] > 1, "{found:?}");
}

#[test]
fn errors_about_a_quic_connection_that_names_its_backend_find_it() {
    let mut lb = bench(
        "recheck_ms = 1000\n[[service]]\naddress = '203.0.113.10'\nport = 443\nprotocol = 'udp'\nbackends = [
            { address = '10.0.0.1', server_id = '0a01' }, { address = '10.0.0.2', server_id = '0a02' }]",
    );
    let end = |port: u16| format!("192.0.2.8:{port}");
    for ms in [0, 1500] {
        for port in 1000..1020 {
            let named = Frame::udp(&end(port), "203.0.113.10:443").payload(&[0x40, 0x05, 0x0a, 0x01, 7, 7, 7]);
            lb.send(1, ms, &named.bytes());
        }
    }
    for port in 1000..1020 {
        let answer = Frame::udp("203.0.113.10:443", &end(port)).bytes();
        let error = Frame::unreachable("198.18.0.9", "203.0.113.10", &answer).bytes();
        assert!(show::outcome(&lb.send(1, 1600, &error)).contains("> 10.0.0.1 "), "{port}");
    }
}

#[test]
fn connections_that_find_no_room_are_counted() {
    let mut lb = bench(&format!("strays_max = 4\n{}", WATCHED.replace("MODE", "")));
    for client in 0..40 {
        backend(&mut lb, client, 0, "S");
    }
    monitor(&mut lb, 1, "up 10.0.0.1\nup 10.0.0.2");
    for client in 0..40 {
        backend(&mut lb, client, 1500, "A");
    }
    let unkept = lb.findings().sums().get("looks at strays that found no room").copied();
    assert!(unkept.is_some_and(|unkept| (5..=36).contains(&unkept)), "{unkept:?}");
}
