//! Tests of interfaces in VLANs, byte by byte: tags, fragments, and packets that have waited in vain.

use braid_testkit::{Bench, Frame, assert_checksums};

use super::{HOST, OURS, bench};

const VLANS: &str = "[[interface]]\nport = 0\nvlan = 10\nmac = '02:00:00:00:0f:00'\naddresses = ['10.0.10.1/24']
    [[interface]]\nport = 0\nvlan = 20\nmac = '02:00:00:00:0f:00'\naddresses = ['10.0.20.1/24']\nmtu = 600
    [[interface]]\nport = 1\nmac = '02:00:00:00:0f:01'\naddresses = ['192.0.2.1/24']
    [[neighbour]]\naddress = '10.0.20.9'\nmac = '02:00:00:00:00:09'\nport = 0\nvlan = 20
    [[neighbour]]\naddress = '192.0.2.9'\nmac = '02:00:00:00:00:09'\nport = 1\n";

fn to(destination: &str) -> Frame {
    Frame::udp("10.0.10.7:1", destination).mac(HOST, OURS[0]).vlan(10)
}

/// What is sent because of a frame: the port, and the bytes from the end of the Ethernet addresses to the IP header.
fn tags(bench: &mut Bench, port: u16, frame: Frame) -> Vec<(u16, Vec<u8>)> {
    let sent = bench.send(port, 0, &frame.bytes()).sent;
    sent.into_iter()
        .map(|(port, frame)| {
            assert_checksums(&frame);
            let ip = frame.iter().skip(12).position(|byte| *byte == 0x45).expect("an IPv4 header");
            (port, frame[12..12 + ip].to_vec())
        })
        .collect()
}

#[test]
fn a_tag_is_exchanged_taken_off_and_put_on() {
    let mut bench = bench(10, VLANS);
    for _ in 0..2 {
        // The second time through the known set.
        assert_eq!(tags(&mut bench, 0, to("10.0.20.9:2")), [(0, vec![0x81, 0, 0, 20, 8, 0])]);
        assert_eq!(tags(&mut bench, 0, to("192.0.2.9:2")), [(1, vec![8, 0])]);
        let inward = Frame::udp("192.0.2.9:2", "10.0.20.9:1").mac(HOST, OURS[1]);
        assert_eq!(tags(&mut bench, 1, inward), [(0, vec![0x81, 0, 0, 20, 8, 0])]);
        let untagged = Frame::udp("10.0.10.7:1", "192.0.2.9:2").mac(HOST, OURS[0]);
        assert_eq!(bench.send(0, 0, &untagged.bytes()).dropped, Some("no_interface"));
        // A priority tag counts as no tag.
        assert_eq!(bench.send(0, 0, &untagged_priority()).dropped, Some("no_interface"));
    }
}

fn untagged_priority() -> Vec<u8> {
    Frame::udp("10.0.10.7:1", "192.0.2.9:2").mac(HOST, OURS[0]).vlan(0).bytes()
}

#[test]
fn pieces_have_the_tag_of_the_way_by_which_they_leave() {
    let mut bench = bench(10, VLANS);
    let long = to("10.0.20.9:2").may_be_fragmented().len(1400);
    let pieces = tags(&mut bench, 0, long);
    assert_eq!(pieces.len(), 3, "{pieces:?}");
    assert!(pieces.iter().all(|piece| *piece == (0, vec![0x81, 0, 0, 20, 8, 0])), "{pieces:?}");
}

#[test]
fn who_waited_in_vain_is_told_in_the_vlan_from_which_it_sent() {
    let mut bench = bench(10, VLANS);
    let sent = to("192.0.2.44:2").bytes();
    assert_eq!(bench.send(0, 0, &sent).dropped, Some("waits_for_neighbour"));
    let later = bench.send(0, 5_000, &to("192.0.2.9:2").bytes()).sent;
    let told: Vec<_> = later.iter().filter(|(port, _)| *port == 0).collect();
    let [(_, error)] = &told[..] else { panic!("{later:?}") };
    assert_checksums(error);
    assert_eq!(error[..18], [&HOST[..], &OURS[0], &[0x81, 0, 0, 10, 8, 0]].concat());
    // From 10.0.10.1: host unreachable, quoting the packet.
    assert_eq!((&error[30..34], &error[38..40]), (&[10, 0, 10, 1][..], &[3, 1][..]));
    assert_eq!(error[46..48], sent[18..20]);
}

/// Neighbours are keyed by port and VLAN, so they keep their identity when interfaces change.
#[test]
fn the_same_address_in_another_vlan_is_another_neighbour() {
    let text = "[[interface]]\nport = 0\nvlan = 10\naddresses = ['10.0.10.1/24']
        [[interface]]\nport = 0\nvlan = 20\naddresses = ['10.0.20.1/24']
        [[route]]\nto = '198.51.100.0/24'\nvia = '10.0.10.254'\nport = 0\nvlan = 20
        [[neighbour]]\naddress = '10.0.10.254'\nmac = '02:00:00:00:00:10'\nport = 0\nvlan = 10
        [[neighbour]]\naddress = '10.0.10.254'\nmac = '02:00:00:00:00:20'\nport = 0\nvlan = 20\n";
    let mut bench = bench(10, &format!("promiscuous = true\n{text}"));
    let sent = bench.send(0, 0, &to("198.51.100.9:2").bytes()).sent;
    assert_eq!((sent.len(), sent[0].1[5], sent[0].1[15]), (1, 0x20, 20));
}
