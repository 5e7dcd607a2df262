//! The kernel oracle on the project's own captures: what is known of a NAT, a firewall and a bridge must hold for the kernel,
//! or the oracle is wrong.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use braid_testkit::kernel::{INSIDE, KernelOracle, OUTSIDE, Reason, Replies, Screen, Tracking, network_packet};
use braid_testkit::skip::skip;
use pcap_file::pcapng::PcapNgReader;

const OFFICE: [&str; 2] = ["10.1.0.0/24", "fd00:1::/64"];
const NAT_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

/// True, and said so, if there is no oracle on this machine.
fn skipped(test: &str) -> bool {
    KernelOracle::probe().inspect_err(|reason| skip(test, reason)).is_err()
}

/// (interface, frame) of a capture of the project.
fn frames(name: &str) -> Vec<(usize, Vec<u8>)> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/traffic").join(name);
    let mut reader = PcapNgReader::new(File::open(path).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Some(packet) = block.unwrap().into_enhanced_packet() {
            frames.push((packet.interface_id as usize, packet.data.into_owned()));
        }
    }
    frames
}

enum Way {
    Out,
    In,
}

/// Which way a packet crosses the gateway; `None` for traffic that stays on one side.
fn way(frame: &[u8]) -> Option<Way> {
    let packet = network_packet(frame)?;
    let office = |address: &[u8]| address.starts_with(&[10, 1, 0]) || address.starts_with(&[0xfd, 0, 0, 1, 0, 0, 0, 0]);
    let (source, destination) = if packet[0] >> 4 == 4 { (12..16, 16..20) } else { (8..24, 24..40) };
    match (office(&packet[source]), office(&packet[destination.clone()])) {
        _ if packet[destination.start] >= 224 => None, // multicast and broadcast
        (true, false) => Some(Way::Out),
        (false, true) => Some(Way::In),
        _ => None,
    }
}

fn is_ipv4(frame: &[u8]) -> bool {
    frame[12..14] == [8, 0]
}

#[test]
fn the_kernel_translates_the_office_and_every_reply_comes_back_as_recorded() {
    if skipped("the_kernel_translates_the_office_and_every_reply_comes_back_as_recorded") {
        return;
    }
    let mut oracle = KernelOracle::nat(&OFFICE[..1], NAT_ADDRESS, Tracking::Strict).unwrap();
    let (mut screen, mut replies) = (Screen::default(), Replies::default());
    let (mut out, mut back) = (0, 0);
    for (_, frame) in frames("office.pcapng").into_iter().filter(|(_, frame)| is_ipv4(frame)) {
        let (None, Some(way)) = (screen.objection(&frame), way(&frame)) else { continue };
        let recorded = network_packet(&frame).unwrap();
        if recorded[8] < 2 {
            continue; // a router answers a TTL of 1 itself
        }
        match way {
            Way::Out => {
                let sent = oracle.feed(INSIDE, &frame).unwrap();
                assert_eq!(sent.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [OUTSIDE], "{recorded:02x?}");
                let packet = network_packet(&sent[0].1).unwrap();
                assert_eq!(packet[12..16], NAT_ADDRESS.octets());
                assert_eq!(packet[8], recorded[8] - 1, "TTL");
                replies.learn(&frame, &sent[0].1);
                out += 1;
            }
            Way::In => {
                let Some(reply) = replies.readdress(&frame) else { continue };
                let sent = oracle.feed(OUTSIDE, &reply).unwrap();
                assert_eq!(sent.len(), 1, "{recorded:02x?}");
                let packet = network_packet(&sent[0].1).unwrap();
                // all but the TTL and the checksum over it
                assert_eq!((sent[0].0, &packet[..8], &packet[12..]), (INSIDE, &recorded[..8], &recorded[12..]));
                back += 1;
            }
        }
    }
    assert!(out > 400 && back > 400, "{out} packets out, {back} back");
    assert_eq!(oracle.noise(), 0);
}

#[test]
fn the_kernel_lets_the_office_out_and_strangers_not_in() {
    if skipped("the_kernel_lets_the_office_out_and_strangers_not_in") {
        return;
    }
    let mut oracle = KernelOracle::firewall(&OFFICE, Tracking::Liberal).unwrap();
    let mut strangers = KernelOracle::firewall(&OFFICE, Tracking::Liberal).unwrap();
    let mut screen = Screen::default();
    let mut passed = [0; 2];
    for (_, frame) in frames("office.pcapng") {
        let (None, Some(way)) = (screen.objection(&frame), way(&frame)) else { continue };
        let packet = network_packet(&frame).unwrap();
        if (if is_ipv4(&frame) { packet[8] } else { packet[7] }) < 2 {
            continue;
        }
        let port = if matches!(way, Way::Out) { INSIDE } else { OUTSIDE };
        let sent = oracle.feed(port, &frame).unwrap();
        assert!(sent.iter().all(|(to, _)| *to != port), "answered {packet:02x?}");
        passed[port] += sent.len();
        if port == OUTSIDE {
            let unasked = strangers.feed(OUTSIDE, &frame).unwrap();
            assert!(unasked.is_empty(), "let in {packet:02x?}");
        }
    }
    assert!(passed[INSIDE] > 600 && passed[OUTSIDE] > 600, "{passed:?}");
    assert_eq!(oracle.noise() + strangers.noise(), 0);
}

#[test]
fn the_kernel_bridges_the_lan_and_follows_a_station_that_moves() {
    if skipped("the_kernel_bridges_the_lan_and_follows_a_station_that_moves") {
        return;
    }
    let frames = frames("lan.pcapng");
    let ports = 1 + frames.iter().map(|(port, _)| *port).max().unwrap();
    let mut oracle = KernelOracle::bridge(ports).unwrap();
    let (mut flooded, mut delivered) = (0, 0);
    for (port, frame) in frames {
        let sent = oracle.feed(port, &frame).unwrap();
        assert!(sent.iter().all(|(to, copy)| *to != port && *copy == frame));
        if frame[0] & 1 == 1 {
            assert_eq!(sent.len(), ports - 1, "a group address reaches every other port");
        }
        flooded += usize::from(sent.len() == ports - 1);
        delivered += usize::from(sent.len() == 1);
    }
    assert!(flooded > 20 && delivered > 100, "{flooded} flooded, {delivered} delivered to one port");
    let station = |last| [&[2, 0, 0, 0, 0xaa, last][..], &[2, 0, 0, 0, 0xaa, 3 - last], &[8, 6], &[0; 46]].concat();
    let mut sent_to =
        |port, frame: Vec<u8>| oracle.feed(port, &frame).unwrap().into_iter().map(|(to, _)| to).collect::<Vec<_>>();
    assert_eq!(sent_to(0, station(2)).len(), ports - 1, "station 1 on port 0 asks for 2");
    assert_eq!(sent_to(1, station(1)), [0]);
    sent_to(2, station(2));
    assert_eq!(sent_to(1, station(1)), [2], "station 1 has moved to port 2");
    assert_eq!(oracle.noise(), 0);
}

#[test]
fn a_wrong_checksum_is_invalid_unless_tracking_is_liberal() {
    if skipped("a_wrong_checksum_is_invalid_unless_tracking_is_liberal") {
        return;
    }
    let is_query = |frame: &[u8]| is_ipv4(frame) && frame[23] == 17 && frame[36..38] == [0, 53];
    let (_, mut query) = frames("office.pcapng").into_iter().find(|(_, frame)| is_query(frame)).unwrap();
    query[40] ^= 0x55;
    assert_eq!(Screen::default().objection(&query), Some(Reason::WrongChecksum));
    for (tracking, expected) in [(Tracking::Strict, 0), (Tracking::Liberal, 1)] {
        let mut oracle = KernelOracle::firewall(&OFFICE, tracking).unwrap();
        assert_eq!(oracle.feed(INSIDE, &query).unwrap().len(), expected, "{tracking:?}");
        assert_eq!(oracle.connections().unwrap(), expected as u64, "{tracking:?}");
    }
}

#[test]
fn fragments_wait_for_their_siblings() {
    if skipped("fragments_wait_for_their_siblings") {
        return;
    }
    let mut oracle = KernelOracle::nat(&OFFICE[..1], NAT_ADDRESS, Tracking::Strict).unwrap();
    let mut screen = Screen::default();
    let office = frames("office.pcapng");
    let is_fragment_out = |frame: &Vec<u8>| is_ipv4(frame) && matches!(way(frame), Some(Way::Out));
    let mut fragments = office.into_iter().map(|(_, frame)| frame).filter(is_fragment_out);
    let mut next = || fragments.by_ref().find(|frame| screen.objection(frame) == Some(Reason::Fragment)).unwrap();
    let sent: Vec<usize> = (0..3).map(|_| oracle.feed(INSIDE, &next()).unwrap().len()).collect();
    assert_eq!(sent, [0, 0, 3], "a ping of 4000 bytes");
}
