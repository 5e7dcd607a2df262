//! Packets that exceed the MTU and must not be fragmented. The scenario `a_gateway_tells_the_mtu` has the errors
//! themselves.

use super::*;

/// A datagram with an IP length of `ip_len` bytes, in a frame with `padding` more.
fn datagram(ip_len: usize, padding: usize) -> Vec<u8> {
    let mut bytes = Frame::udp(HOST, SERVER).len(14 + ip_len).bytes();
    bytes.resize(bytes.len() + padding, 0);
    bytes
}

/// Checks that the first packet of a flow and a later one have the same outcome.
#[track_caller]
fn check_both(text: &str, ip_len: usize, padding: usize, dropped: Option<&str>) {
    let mut nat = bench(parse(text.parse().unwrap()).unwrap());
    for _ in 0..2 {
        let outcome = nat.send(0, 0, &datagram(ip_len, padding));
        assert_eq!((outcome.dropped, outcome.ports()), (dropped, vec![if dropped.is_some() { 0 } else { 1 }]));
    }
}

#[test]
fn the_length_is_that_of_the_packet_and_not_of_a_frame_that_was_filled_up() {
    check_both("outside_mtu = 1300", 1300, 0, None);
    check_both("outside_mtu = 1300", 1300, 6, None);
    check_both("outside_mtu = 1300", 1301, 0, Some("too_long"));
    check_both("outside_mtu = 1300", 1301, 6, Some("too_long"));
}

#[test]
fn without_an_mtu_nothing_is_too_long() {
    check_both("", 9000, 0, None);
    check_both("inside_mtu = 1300", 9000, 0, None);
}

#[test]
fn the_errors_of_a_network_have_its_tag() {
    let text = "networks = 'by_vlan'\nvlans = [10]\noutside_mtu = 1300\nrouter = '10.0.0.254'";
    let mut nat = bench(parse(text.parse().unwrap()).unwrap());
    for ip_len in [1301, 1301, 1300, 1301] {
        let outcome = nat.send(0, 0, &Frame::udp(HOST, SERVER).vlan(10).len(18 + ip_len).bytes());
        let (port, bytes) = outcome.only();
        assert_eq!((port, outcome.dropped.is_some()), if ip_len > 1300 { (0, true) } else { (1, false) });
        assert_eq!(bytes[12..14] == [0x81, 0], ip_len > 1300, "untagged outside");
    }
}

#[test]
fn of_pieces_that_must_not_be_cut_the_first_is_told() {
    let mut nat = bench(parse("outside_mtu = 1300".parse().unwrap()).unwrap());
    for (offset, told) in [(0, 1), (172, 0)] {
        let mut piece = Frame::udp(HOST, SERVER).len(1390).fragment(7, offset, true).bytes();
        piece[20] |= 0x40;
        piece[24..26].fill(0);
        let sum = braid_nf::packet::checksum::ipv4_header(&piece[14..34]);
        piece[24..26].copy_from_slice(&sum.to_be_bytes());
        let outcome = nat.send(0, 0, &piece);
        assert_eq!((outcome.dropped, outcome.sent.len()), (Some("too_long"), told));
    }
}

#[test]
fn more_room_to_wait_than_a_machine_has_is_refused_at_once() {
    check_error(
        "held_max = 999999999",
        "`held_max`: held: a capacity of 999999999 is not possible: 1048576 is the most; write a number up to 1048576",
    );
}

#[test]
fn an_mtu_that_no_link_has_is_refused() {
    check_error("outside_mtu = 67", "`outside_mtu`: 67 is out of range; write 68 to 9216: that of the link, 1492");
    check_error("inside_mtu = 9217", "`inside_mtu`: 9217 is out of range; write 68 to 9216");
}

#[test]
fn a_segment_size_needs_bytes_or_an_mtu() {
    check_error(
        "clamp_mss = true",
        "`clamp_mss`: there is no MTU to fit; add `outside_mtu` (1492 for PPPoE) or `inside_mtu`, or write the bytes: clamp_mss = 1452",
    );
    check_error("clamp_mss = 535", "`clamp_mss`: 535 is out of range; write 536 to 9176: 1452 for PPPoE");
}
