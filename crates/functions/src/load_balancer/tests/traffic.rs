//! Packets and bytes of backends and services, counted exactly.

use braid_testkit::{Bench, Frame};

use super::joining::build;
use super::{bench, show};

const COUNTED: &str = "traffic = true\nrouter_v6 = '2001:db8::fe'
    [[service]]\naddress = '203.0.113.10'\nport = '80-89'\nbackends = [{ address = '10.0.0.1' }]
    [[service]]\naddress = '203.0.113.11'\nport = 53\nmode = 'gue'\nbackends = [{ address = '10.0.0.2' }]
    [[service]]\naddress = '203.0.113.12'\nport = 53\nmode = 'ipip'\nbackends = [{ address = '2001:db8:1::1' }]";

/// The counts of each subject: packets and bytes to it, then from it.
fn told(lb: Bench) -> Vec<String> {
    let findings = lb.findings();
    let of = |subject: &str, kind: &str| {
        findings.list().iter().find(|told| told.subject == subject && told.kind == kind).and_then(|told| told.number)
    };
    let counted = findings.list().iter().filter(|told| told.kind.ends_with("_packets_to"));
    let show = |kind: &str, subject: &str| {
        let [to, bytes_to, from, bytes_from] = ["packets_to", "bytes_to", "packets_from", "bytes_from"]
            .map(|what| of(subject, &format!("{kind}_{what}")).expect("all four"));
        format!("{kind} {subject}: {to} {bytes_to} {from} {bytes_from}")
    };
    counted.map(|told| show(told.kind.trim_end_matches("_packets_to"), &told.subject)).collect()
}

/// Sends a frame and returns its length.
fn send(lb: &mut Bench, port: u16, ms: u64, frame: Frame) -> usize {
    let bytes = frame.bytes();
    let outcome = lb.send(port, ms, &bytes);
    assert!(outcome.dropped.is_none(), "{}", show::outcome(&outcome));
    bytes.len()
}

#[test]
fn packets_and_bytes_are_counted_as_they_came() {
    let mut lb = bench(COUNTED);
    let (mut to, mut from) = (0, 0);
    for number in 0..5 {
        to += send(&mut lb, 1, number, Frame::tcp("192.0.2.8:9", "203.0.113.10:80").payload(&vec![7; number as usize]));
        from += send(&mut lb, 0, number, Frame::tcp("10.0.0.1:80", "192.0.2.8:9").payload(&[7; 1000]));
    }
    // Errors count, and so do later fragments, whether they come after the first one or waited for it.
    let answer = Frame::tcp("203.0.113.10:80", "192.0.2.8:9").bytes();
    to += send(&mut lb, 1, 6, Frame::unreachable("192.0.2.200", "203.0.113.10", &answer));
    let piece = |number: u16, at: u16| {
        Frame::ip("192.0.2.8", "203.0.113.10", 17).fragment(number, at, false).payload(&[7; 200])
    };
    let first = |number: u16| Frame::udp("192.0.2.8:9", "203.0.113.10:81").payload(&[7; 8]).fragment(number, 0, true);
    to += send(&mut lb, 1, 7, first(1)) + send(&mut lb, 1, 7, piece(1, 2));
    let waits = piece(2, 2).bytes();
    assert_eq!(lb.send(1, 8, &waits).dropped, Some("fragment_held"));
    to += waits.len() + send(&mut lb, 1, 8, first(2));
    // Dropped packets do not count, nor do packets that belong to no service.
    lb.send(1, 9, &Frame::tcp("192.0.2.8:9", "203.0.113.10:80").ttl(1).bytes());
    send(&mut lb, 1, 9, Frame::tcp("192.0.2.8:9", "203.0.113.10:90"));
    // Tunnelled packets count without the outer headers.
    let asked: usize = (0..3).map(|ms| send(&mut lb, 1, ms, Frame::udp("192.0.2.8:9", "203.0.113.11:53"))).sum();
    let crossed = send(&mut lb, 1, 9, Frame::udp("192.0.2.8:9", "203.0.113.12:53"));
    let expected = [
        format!("backend 203.0.113.10:80-89 at 10.0.0.1:80-89: 10 {to} 5 {from}"),
        format!("backend 203.0.113.11:53 at 10.0.0.2:53: 3 {asked} 0 0"),
        format!("backend 203.0.113.12:53 at [2001:db8:1::1]:53: 1 {crossed} 0 0"),
        format!("service 203.0.113.10:80-89: 10 {to} 5 {from}"),
        format!("service 203.0.113.11:53: 3 {asked} 0 0"),
        format!("service 203.0.113.12:53: 1 {crossed} 0 0"),
    ];
    assert_eq!(told(lb), expected);
}

#[test]
fn counts_go_on_over_changes_and_are_the_services_whoever_has_left() {
    let config = |backend: &str| {
        format!(
            "traffic = true\nudp_s = 1\n[[service]]\naddress = '203.0.113.10'\nport = 53\nbackends = [{{ address = '10.0.0.{backend}' }}]"
        )
    };
    let frame = || Frame::udp("192.0.2.8:9", "203.0.113.10:53");
    let len = frame().bytes().len();
    let mut lb = Bench::with_sets(2, 64, build(&config("1")));
    send(&mut lb, 1, 0, frame());
    send(&mut lb, 1, 1, frame());
    let mut lb = lb.restored(build(&config("1")));
    send(&mut lb, 1, 2, frame());
    let mut lb = lb.succeeded(build(&config("2")));
    send(&mut lb, 1, 5000, frame());
    let told = told(lb);
    assert!(told.contains(&format!("backend 203.0.113.10:53 at 10.0.0.2:53: 1 {len} 0 0")), "{told:?}");
    assert!(told.contains(&format!("service 203.0.113.10:53: 4 {} 0 0", 4 * len)), "{told:?}");
}

#[test]
fn services_of_one_address_and_port_are_told_apart_by_their_protocols() {
    let config = |protocols: &[&str]| {
        let service = |protocol: &&str| {
            format!(
                "[[service]]\naddress = '203.0.113.10'\nport = 53\nprotocol = '{protocol}'\nbackends = [{{ address = '10.0.0.1' }}]\n"
            )
        };
        "traffic = true\n".to_owned() + &protocols.iter().map(service).collect::<String>()
    };
    let asked = || Frame::udp("192.0.2.8:9", "203.0.113.10:53");
    let opened = || Frame::tcp("192.0.2.8:9", "203.0.113.10:53").flags("S");
    let begun = || {
        let mut lb = Bench::with_sets(2, 64, build(&config(&["udp", "tcp"])));
        send(&mut lb, 1, 0, asked());
        send(&mut lb, 1, 1, opened());
        lb
    };
    let rows = |lb: Bench| -> Vec<String> {
        let told = lb.findings().list().to_vec();
        let backends = told.iter().filter(|told| told.kind == "backend");
        backends.map(|told| format!("{} {:?}", told.subject, told.number)).collect()
    };
    // Each has one connection: equal counts are two rows as well.
    let [tcp, udp] = ["tcp", "udp"].map(|protocol| format!("{protocol} 203.0.113.10:53 at 10.0.0.1:53 Some(1)"));
    assert_eq!(rows(begun()), [tcp.as_str(), &udp]);
    // One that is gone is not taken for the one that has stayed, whose name is short again.
    let alone = || begun().succeeded(build(&config(&["tcp"])));
    assert_eq!(rows(alone()), ["203.0.113.10:53 at 10.0.0.1:53 Some(1)", &udp]);
    let (tcp, udp) = (opened().bytes().len(), asked().bytes().len());
    let expected = [
        format!("backend 203.0.113.10:53 at 10.0.0.1:53: 1 {tcp} 0 0"),
        format!("backend udp 203.0.113.10:53 at 10.0.0.1:53: 1 {udp} 0 0"),
        format!("service 203.0.113.10:53: 1 {tcp} 0 0"),
        format!("service udp 203.0.113.10:53: 1 {udp} 0 0"),
    ];
    assert_eq!(told(alone()), expected);
}

#[test]
fn nothing_is_counted_unless_it_is_wanted() {
    let mut lb = bench(&COUNTED.replace("traffic = true", "traffic = false"));
    send(&mut lb, 1, 0, Frame::tcp("192.0.2.8:9", "203.0.113.10:80"));
    assert!(told(lb).is_empty());
}
