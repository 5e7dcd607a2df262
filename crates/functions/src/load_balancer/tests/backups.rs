//! What happens to connections while backends are down: backups, and what clients are told if there is none.

use braid_testkit::{Bench, Frame};

use super::{backend, bench, check, show};

const SPARE: &str = "heartbeat_port = 7000\nmonitors = ['10.0.9.9']
    [[service]]\naddress = '203.0.113.10'\nport = 80\nprotocol = 'tcp'\nMORE
    backends = [{ address = '10.0.0.1' }, { address = '10.0.0.2' }, { address = '10.0.0.8', backup = true }, { address = '10.0.0.9', backup = true, weight = 0 }]";

fn monitor(lb: &mut Bench, ms: u64, word: &str) {
    let frame = Frame::udp("10.0.9.9:9", "203.0.113.10:7000").payload(word.as_bytes());
    check(lb, 0, ms, frame, "drop heartbeat");
}

#[test]
fn a_backup_gets_connections_only_while_no_other_one_is_up() {
    let mut lb = bench(&SPARE.replace("MORE", ""));
    let all = |lb: &mut Bench, clients: std::ops::Range<u16>, ms| -> Vec<String> {
        clients.map(|client| backend(lb, client, ms, "S")).collect()
    };
    assert!(all(&mut lb, 0..50, 0).iter().all(|to| to == "10.0.0.1:80" || to == "10.0.0.2:80"));
    monitor(&mut lb, 1, "down 10.0.0.1");
    assert!(all(&mut lb, 50..100, 2).iter().all(|to| to == "10.0.0.2:80"));
    monitor(&mut lb, 3, "down 10.0.0.2");
    assert!(all(&mut lb, 100..150, 4).iter().all(|to| to == "10.0.0.8:80"));
    monitor(&mut lb, 5, "up 10.0.0.1");
    assert!(all(&mut lb, 150..200, 6).iter().all(|to| to == "10.0.0.1:80"));
    assert_eq!(backend(&mut lb, 100, 7, "A"), "10.0.0.8:80", "what it has it keeps");
}

#[test]
fn a_client_that_stays_does_not_stay_with_a_backup() {
    let mut lb = bench(&SPARE.replace("MORE", "persistence = 'source'"));
    monitor(&mut lb, 1, "down 10.0.0.1\ndown 10.0.0.2");
    assert_eq!(backend(&mut lb, 7, 2, "S"), "10.0.0.8:80");
    monitor(&mut lb, 3, "up 10.0.0.2");
    assert_eq!(backend(&mut lb, 207, 4, "S"), "10.0.0.2:80", "the same host, another port");
}

const NOBODY: &str = "icmp_errors_per_s = 100
    [[service]]\naddress = '203.0.113.10'\nport = 80\nwhen_none = 'reject'\nbackends = [{ address = '10.0.0.1', up = false }]
    [[service]]\naddress = '2001:db8::10'\nwhen_none = 'reject'\nbackends = [{ address = '2001:db8:1::1', up = false }]
    [[service]]\naddress = '203.0.113.11'\nbackends = [{ address = '10.0.0.2', up = false }]";

#[test]
fn clients_are_told_that_there_is_no_backend_if_configured() {
    let mut lb = bench(NOBODY);
    let syn = Frame::tcp("192.0.2.8:1031", "203.0.113.10:80").flags("S");
    check(&mut lb, 1, 0, syn, "1: tcp 203.0.113.10:80 > 192.0.2.8:1031 RA ttl 64, drop no_backend");
    let v6 = Frame::tcp("[2001:db8:9::9]:9", "[2001:db8::10]:443").flags("S");
    check(&mut lb, 1, 0, v6, "1: tcp [2001:db8::10]:443 > [2001:db8:9::9]:9 RA ttl 64, drop no_backend");
    let told = lb.send(1, 0, &Frame::udp("192.0.2.8:9", "203.0.113.10:80").bytes());
    assert_eq!((told.dropped, told.sent.len()), (Some("no_backend"), 1));
    assert_eq!(&told.sent[0].1[34..36], [3, 3]);
    let told = lb.send(1, 0, &Frame::udp("[2001:db8:9::9]:9", "[2001:db8::10]:53").bytes());
    assert_eq!(&told.sent[0].1[54..56], [1, 4]);
    // A reset is not answered, nor is a packet to a service without `reject`.
    check(&mut lb, 1, 0, Frame::tcp("192.0.2.8:1031", "203.0.113.10:80").flags("R"), "drop no_backend");
    check(&mut lb, 1, 0, Frame::tcp("192.0.2.8:1031", "203.0.113.11:80").flags("S"), "drop no_backend");
}

#[test]
fn resets_have_the_rate_of_errors() {
    let mut lb = bench(NOBODY);
    let syn = |port: u16| Frame::tcp(&format!("192.0.2.8:{port}"), "203.0.113.10:80").flags("S").bytes();
    let told: usize = (1..=100).map(|port| lb.send(1, 0, &syn(port)).sent.len()).sum();
    assert_eq!(told, 10);
}

#[test]
fn a_connection_that_has_lost_its_last_backend_is_reset() {
    let mut lb = bench(
        "heartbeat_port = 7000\nmonitors = ['10.0.9.9']\n[[service]]\naddress = '203.0.113.10'\nport = 80\nprotocol = 'tcp'\n\
         when_none = 'reject'\nbackends = [{ address = '10.0.0.1' }]",
    );
    assert_eq!(backend(&mut lb, 1, 0, "S"), "10.0.0.1:80");
    monitor(&mut lb, 1, "down 10.0.0.1");
    let outcome = lb.send(1, 1500, &Frame::tcp("192.0.2.2:1025", "203.0.113.10:80").flags("A").bytes());
    assert_eq!(show::outcome(&outcome), "1: tcp 203.0.113.10:80 > 192.0.2.2:1025 R ttl 64, drop no_backend");
}
