//! Modes of reaching a backend, persistent clients, and monitors' reports.

use braid_testkit::{Bench, Frame};

use super::{backend, bench, check, show};

const CLIENT: &str = "192.0.2.8:1031";
const CLIENT_V6: &str = "[2001:db8:9::9]:1031";

/// One service for each IP version, reached in the given mode.
fn direct(mode: &str, more: &str) -> Bench {
    bench(&format!(
        "router = '192.0.2.254'\nrouter_v6 = '2001:db8::fe'\n{more}
        [[service]]\naddress = '203.0.113.10'\nmode = '{mode}'\nbackends = [{{ address = '10.0.0.1' }}]
        [[service]]\naddress = '2001:db8::10'\nmode = '{mode}'\nbackends = [{{ address = '2001:db8:1::1' }}]"
    ))
}

fn ends(from: std::net::IpAddr, to: std::net::IpAddr, number: u8) -> String {
    format!("{from} > {to} proto {number}")
}

/// The outer headers, decoded by an independent library, and the inner packet as a frame of its own.
#[track_caller]
fn unwrap(bytes: &[u8], between: usize) -> (String, String) {
    let outer = etherparse::SlicedPacket::from_ethernet(bytes).expect("a whole frame");
    let (text, headers) = match outer.net.expect("IP") {
        etherparse::NetSlice::Ipv4(ip) => {
            let ip = ip.header().to_header();
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            assert!(ip.dont_fragment && usize::from(ip.total_len) == bytes.len() - 14);
            (ends(ip.source.into(), ip.destination.into(), ip.protocol.0), 20)
        }
        etherparse::NetSlice::Ipv6(ip) => {
            let ip = ip.header().to_header();
            assert_eq!(usize::from(ip.payload_length), bytes.len() - 54);
            (ends(ip.source.into(), ip.destination.into(), ip.next_header.0), 40)
        }
        _ => panic!("not IP"),
    };
    let inner = [&bytes[..14], &bytes[14 + headers + between..]].concat();
    (text, show::frame(&inner))
}

/// The flow label of an outer IPv6 header, or the source port of an outer UDP header over IPv4.
fn spread_by(bytes: &[u8]) -> u32 {
    match bytes[14] >> 4 {
        6 => u32::from_be_bytes([0, bytes[15], bytes[16], bytes[17]]) & 0x000f_ffff,
        _ => u16::from_be_bytes([bytes[34], bytes[35]]).into(),
    }
}

#[test]
fn outer_headers_spread_flows_and_keep_each_together() {
    for (mode, backend) in [("ipip", "fd00::1"), ("gre", "fd00::1"), ("gue", "fd00::1"), ("gue", "10.0.0.1")] {
        let service = "[[service]]\naddress = '203.0.113.10'\nmode";
        let keys =
            format!("router_v6 = '2001:db8::fe'\n{service} = '{mode}'\nbackends = [{{ address = '{backend}' }}]");
        let mut lb = bench(&keys);
        let mut of = |frame: Frame| spread_by(lb.send(1, 0, &frame.bytes()).only().1);
        let client = |port: u16| format!("192.0.2.8:{port}");
        let all: Vec<u32> = (1..=50).map(|port| of(Frame::udp(&client(port), "203.0.113.10:53"))).collect();
        let mut distinct = all.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() > 45 && !all.contains(&0), "{mode}: {all:?}");
        let again: Vec<u32> = (1..=50).map(|port| of(Frame::udp(&client(port), "203.0.113.10:53").len(99))).collect();
        assert_eq!(again, all, "{mode}");
        // What routers say of its answers goes the way of the connection.
        let about = |port: u16| Frame::udp("203.0.113.10:53", &client(port)).bytes();
        let errors = (1..=50).map(|port| of(Frame::unreachable("198.18.0.9", "203.0.113.10", &about(port))));
        assert_eq!(errors.collect::<Vec<_>>(), all, "{mode}");
    }
}

#[test]
fn a_packet_reaches_its_backend_whole() {
    for (mode, between, v4, v6) in [("ipip", 0, 4, 41), ("gre", 4, 47, 47), ("gue", 8, 17, 17)] {
        let mut lb = direct(mode, "");
        let sent = lb.send(1, 0, &Frame::tcp(CLIENT, "203.0.113.10:80").flags("S").bytes());
        let (outer, inner) = unwrap(sent.only().1, between);
        assert_eq!(outer, format!("192.0.2.254 > 10.0.0.1 proto {v4}"));
        assert_eq!(inner, "tcp 192.0.2.8:1031 > 203.0.113.10:80 S ttl 63");
        let frame = Frame::udp(CLIENT_V6, "[2001:db8::10]:53").payload(b"question");
        let sent = lb.send(1, 0, &frame.bytes());
        let (outer, inner) = unwrap(sent.only().1, between);
        assert_eq!(outer, format!("2001:db8::fe > 2001:db8:1::1 proto {v6}"));
        assert_eq!(inner, "udp [2001:db8:9::9]:1031 > [2001:db8::10]:53 ttl 63");
        // Replies of backends already have the service's address.
        let answer = Frame::tcp("203.0.113.10:80", CLIENT).flags("SA");
        check(&mut lb, 0, 0, answer, "1: tcp 203.0.113.10:80 > 192.0.2.8:1031 SA ttl 64");
    }
}

#[test]
fn headers_between_say_what_they_carry() {
    let bytes = |mode, frame: Frame| direct(mode, "").send(1, 0, &frame.bytes()).only().1.to_vec();
    let v4 = bytes("gre", Frame::udp(CLIENT, "203.0.113.10:53"));
    assert_eq!(v4[34..38], [0, 0, 8, 0]);
    let v6 = bytes("gre", Frame::udp(CLIENT_V6, "[2001:db8::10]:53"));
    assert_eq!(v6[54..58], [0, 0, 0x86, 0xdd]);
    let gue = bytes("gue", Frame::udp(CLIENT, "203.0.113.10:53"));
    assert_eq!((&gue[36..38], gue[34] & 0xc0), (&6080u16.to_be_bytes()[..], 0xc0));
    // Over IPv6 the checksum is present and correct.
    let gue = bytes("gue", Frame::udp(CLIENT_V6, "[2001:db8::10]:53"));
    assert!(show::frame(&gue).starts_with("udp [2001:db8::fe]:"));
}

#[test]
fn what_has_no_room_in_a_tunnel_is_told() {
    let mut lb = direct("ipip", "mtu = 1400");
    let segment = |len| Frame::tcp(CLIENT, "203.0.113.10:80").payload(&vec![7; len]);
    assert_eq!(lb.send(1, 0, &segment(1340).bytes()).only().1.len(), 14 + 1400);
    let told = lb.send(1, 0, &segment(1341).bytes());
    assert_eq!((told.dropped, told.sent.len()), (Some("too_big"), 1));
    let error = &told.sent[0].1[34..];
    assert_eq!((error[0], error[1], u16::from_be_bytes([error[6], error[7]])), (3, 4, 1380));
    let told = lb.send(1, 0, &Frame::udp(CLIENT_V6, "[2001:db8::10]:53").payload(&[7; 1313]).bytes());
    let error = &told.sent[0].1[54..];
    assert_eq!((error[0], u16::from_be_bytes([error[6], error[7]])), (2, 1360));
}

#[test]
fn what_may_be_cut_goes_in_pieces_that_the_backend_puts_together() {
    for (mode, header) in [("ipip", 0), ("gre", 4), ("gue", 8)] {
        let mut lb = direct(mode, "mtu = 1400");
        let inner = Frame::udp(CLIENT, "203.0.113.10:53").payload(&[7; 2000]).may_be_fragmented().bytes();
        let sent = lb.send(1, 0, &inner).sent;
        assert_eq!(sent.len(), 2, "{mode}");
        let mut whole = vec![0; 2048];
        let mut numbers = Vec::new();
        for (port, piece) in &sent {
            let ip = &piece[14..];
            let (len, field) = (usize::from(u16::from_be_bytes([ip[2], ip[3]])), u16::from_be_bytes([ip[6], ip[7]]));
            assert!((*port, len <= 1400, field & 0x4000) == (0, true, 0), "{mode}");
            let from = usize::from(field & 0x1fff) * 8;
            whole[from..from + len - 20].copy_from_slice(&ip[20..len]);
            numbers.push([ip[4], ip[5]]);
        }
        assert_eq!(numbers[0], numbers[1], "pieces of one packet");
        let carried = &whole[header..header + inner.len() - 14];
        // Except for the TTL and the header checksum, it is what the client sent.
        assert_eq!((&carried[..8], &carried[12..]), (&inner[14..22], &inner[26..]), "{mode}");
    }
}

#[test]
fn errors_and_later_fragments_take_the_same_tunnel() {
    let mut lb = direct("ipip", "");
    let answer = Frame::tcp("203.0.113.10:80", CLIENT).bytes();
    let sent = lb.send(1, 0, &Frame::unreachable("198.18.0.9", "203.0.113.10", &answer).bytes());
    let (outer, inner) = unwrap(sent.only().1, 0);
    assert_eq!(outer, "192.0.2.254 > 10.0.0.1 proto 4");
    assert_eq!(inner, "unreachable 198.18.0.9 > 203.0.113.10 [tcp 203.0.113.10:80 > 192.0.2.8:1031 A] ttl 63");
    let first = Frame::udp(CLIENT, "203.0.113.10:53").payload(&[7; 8]).fragment(9, 0, true);
    let later = Frame::ip("192.0.2.8", "203.0.113.10", 17).fragment(9, 2, false).payload(&[7; 24]);
    assert_eq!(lb.send(1, 0, &first.bytes()).only().1[14 + 9], 4);
    assert_eq!(lb.send(1, 0, &later.bytes()).only().1[14 + 9], 4);
}

const STICKY: &str = "heartbeat_port = 7000\nmonitors = ['10.0.9.9']
    [[service]]\naddress = '203.0.113.10'\nport = 80\nprotocol = 'tcp'\npersistence = 'source'
    backends = [{ address = '10.0.0.1' }, { address = '10.0.0.2' }, { address = '10.0.0.3', up = false }]";

fn monitor(lb: &mut Bench, ms: u64, word: &str) {
    let frame = Frame::udp("10.0.9.9:9", "203.0.113.10:7000").payload(word.as_bytes());
    check(lb, 0, ms, frame, "drop heartbeat");
}

/// The backend of a host's new connection.
fn of_host(lb: &mut Bench, host: u16, ms: u64, port: u16) -> String {
    let frame = Frame::tcp(&format!("192.0.2.{host}:{port}"), "203.0.113.10:80").flags("S");
    show::outcome(&lb.send(1, ms, &frame.bytes())).split(' ').nth(4).unwrap_or("none").to_owned()
}

#[test]
fn a_client_keeps_its_backend_though_others_come_back() {
    let mut lb = bench(STICKY);
    let before: Vec<_> = (1..=40).map(|host| of_host(&mut lb, host, 0, 1000)).collect();
    assert!(before.iter().all(|backend| backend == "10.0.0.1:80" || backend == "10.0.0.2:80"));
    monitor(&mut lb, 1, "up 10.0.0.3\ndown 10.0.0.2");
    for (host, backend) in (1..=40).zip(&before) {
        let now = of_host(&mut lb, host, 2, 2000);
        assert!(
            if backend == "10.0.0.1:80" { &now == backend } else { now != "10.0.0.2:80" },
            "{host}: {backend} {now}"
        );
    }
    monitor(&mut lb, 3, "up 10.0.0.2:80\ndown 10.0.0.1:81\nnonsense");
    let moved: Vec<_> = (1..=40).map(|host| of_host(&mut lb, host, 4, 3000)).collect();
    assert!(!moved.contains(&"10.0.0.2:80".to_owned()), "they have another one now");
    // For a backend that a monitor reports on, silence does not count.
    assert_eq!(of_host(&mut lb, 1, 60_000, 4000), moved[0]);
}

#[test]
fn who_is_configured_down_gets_nothing() {
    let web = "[[service]]\naddress = '203.0.113.10'\nport = 80\nprotocol = 'tcp'\nbackends = [{ address = '10.0.0.1', up = false }";
    let mut lb = bench(&format!("{web}, {{ address = '10.0.0.2' }}]"));
    assert!((0..50).all(|client| backend(&mut lb, client, 0, "S") == "10.0.0.2:80"));
    assert_eq!(backend(&mut bench(&format!("{web}]")), 1, 0, "S"), "no_backend");
}

#[test]
fn a_connection_without_any_backend_is_dropped_until_one_is_back() {
    let mut lb = bench(
        "heartbeat_port = 7000\nmonitors = ['10.0.9.9']\n[[service]]\naddress = '203.0.113.10'\nport = 80\nprotocol = 'tcp'\n\
         backends = [{ address = '10.0.0.1' }]",
    );
    assert_eq!(backend(&mut lb, 1, 0, "S"), "10.0.0.1:80");
    monitor(&mut lb, 1, "down 10.0.0.1");
    for ms in [1500, 1501, 1502] {
        assert_eq!(backend(&mut lb, 1, ms, "A"), "no_backend");
    }
    monitor(&mut lb, 1600, "up 10.0.0.1");
    assert_eq!(backend(&mut lb, 1, 1601, "A"), "10.0.0.1:80");
}
