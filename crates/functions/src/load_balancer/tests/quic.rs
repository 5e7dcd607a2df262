//! QUIC connection identifiers that name their backend.

use braid_testkit::{Bench, Frame};

use super::{bench, check, show};

const QUIC: &str = "heartbeat_port = 7000\nmonitors = ['10.0.9.9']\nrecheck_ms = 1000
    [[service]]\naddress = '203.0.113.10'\nport = 443\nprotocol = 'udp'\nMODE
    backends = [{ address = '10.0.0.1', server_id = '0a01' }, { address = '10.0.0.2', server_id = '0a02' }]";

/// The destination of a datagram from one of a client's ports.
fn quic(lb: &mut Bench, ms: u64, port: u16, payload: &[u8]) -> String {
    let frame = Frame::udp(&format!("192.0.2.8:{port}"), "203.0.113.10:443").payload(payload);
    show::outcome(&lb.send(1, ms, &frame.bytes())).split(' ').nth(4).unwrap_or("none").to_owned()
}

/// A short header whose identifier names a backend.
fn short(backend: u8) -> [u8; 7] {
    [0x40, 0x05, 0x0a, backend, 7, 7, 7]
}

fn monitor(lb: &mut Bench, ms: u64, word: &str) {
    let frame = Frame::udp("10.0.9.9:9", "203.0.113.10:7000").payload(word.as_bytes());
    check(lb, 0, ms, frame, "drop heartbeat");
}

#[test]
fn a_quic_connection_names_its_backend_wherever_its_client_goes() {
    let mut lb = bench(
        "[[service]]\naddress = '203.0.113.10'\nport = 443\nprotocol = 'udp'\nbackends = [
            { address = '10.0.0.1', server_id = '0a01' }, { address = '10.0.0.2', server_id = '0a02' }]",
    );
    let mut to = |port: u16, payload: &[u8]| {
        let frame = Frame::udp(&format!("192.0.2.8:{port}"), "203.0.113.10:443").payload(payload);
        show::outcome(&lb.send(1, 0, &frame.bytes())).split(' ').nth(4).unwrap_or("none").to_owned()
    };
    for port in 1000..1020 {
        assert_eq!(to(port, &[0x40, 0x05, 0x0a, 0x01, 7, 7, 7]), "10.0.0.1:443");
        assert_eq!(to(port + 100, &[0xe0, 0, 0, 0, 1, 4, 0x05, 0x0a, 0x02, 7, 0]), "10.0.0.2:443");
    }
    // An identifier that a client made up, one that names no backend, and an unknown one: the table decides, so they
    // spread evenly.
    for payload in
        [&[0xc0, 0, 0, 0, 1, 3, 5, 0x0a, 0x02][..], &[0x40, 0xe5, 0x0a, 0x02], &[0x40, 0x05, 0x0a, 0x03], &[]]
    {
        let count = (2000..2100)
            .filter(|port| to(*port + u16::from(payload.len() as u8) * 200, payload) == "10.0.0.1:443")
            .count();
        assert!((20..80).contains(&count), "{count}");
    }
}

#[test]
fn a_quic_client_that_moves_to_a_port_of_another_one_keeps_its_backend() {
    for mode in ["", "mode = 'ipip'"] {
        let mut lb = bench(&QUIC.replace("MODE", mode));
        let ends: Vec<String> =
            [1, 2].map(|backend| quic(&mut lb, 0, 999 + u16::from(backend), &short(backend))).into();
        assert_ne!(ends[0], ends[1]);
        for (ms, backend) in (1..).zip([1, 2, 2, 1, 1, 2]) {
            assert_eq!(quic(&mut lb, ms, 1000, &short(backend)), ends[usize::from(backend) - 1]);
        }
        // A packet that names no backend follows its flow, now and after a recheck.
        for ms in [10, 1500, 1501] {
            assert_eq!(quic(&mut lb, ms, 1000, &[0xc0, 0, 0, 0, 1, 3, 5, 0x0a, 0x01]), ends[1]);
        }
    }
}

#[test]
fn a_quic_flow_moves_to_no_backend_that_is_down() {
    let mut lb = bench(&QUIC.replace("MODE", ""));
    assert_eq!(quic(&mut lb, 0, 1000, &short(1)), "10.0.0.1:443");
    monitor(&mut lb, 1, "up 10.0.0.1\ndown 10.0.0.2");
    assert_eq!(quic(&mut lb, 2, 1000, &short(2)), "10.0.0.1:443");
    monitor(&mut lb, 3, "up 10.0.0.2");
    assert_eq!(quic(&mut lb, 4, 1000, &short(2)), "10.0.0.2:443");
}

#[test]
fn long_headers_are_read_as_their_version_says() {
    let mut lb = bench(&QUIC.replace("MODE", ""));
    let mut long = |kind: u8, version: [u8; 4], flow: u8| {
        // Each packet has a flow of its own, on another backend than the one its identifier names.
        let port = 1000 + 10 * u16::from(kind >> 4) + u16::from(version[0]) + u16::from(version[3] % 10);
        quic(&mut lb, 0, port, &short(flow));
        let packet = [&[kind][..], &version, &[4, 0x05, 0x0a, 0x02, 7, 0]].concat();
        quic(&mut lb, 1, port, &packet) == "10.0.0.2:443"
    };
    let (v1, v2, draft) = ([0, 0, 0, 1], [0x6b, 0x33, 0x43, 0xcf], [0xff, 0, 0, 29]);
    assert!(long(0xe0, v1, 1) && long(0xe0, draft, 1) && long(0xf0, v2, 1), "Handshake");
    assert!(!long(0xc0, v1, 1) && !long(0xc0, draft, 1) && !long(0xd0, v2, 1), "Initial");
    assert!(!long(0xd0, v1, 1) && !long(0xd0, draft, 1) && !long(0xe0, v2, 1), "0-RTT");
    // Unknown versions, and versions reserved to trigger version negotiation.
    assert!(
        (0xc0..=0xf0).step_by(16).all(|kind| !long(kind, [0x1a, 0x2a, 0x3a, 0x4a], 1) && !long(kind, [0, 0, 0, 7], 1))
    );
}
