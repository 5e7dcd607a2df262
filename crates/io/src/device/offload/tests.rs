//! Tests that undone work is completed; the results are compared with etherparse's view of each frame.

use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::headers::put;
use super::*;

fn tcp(payload: &[u8], v6: bool, tagged: bool) -> Vec<u8> {
    let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let mut frame = Vec::new();
    let numbers = (1234, 80, 0xffff_fff0, 512);
    let (source, port, sequence, window) = numbers;
    macro_rules! ip {
        ($link:expr) => {
            if v6 { $link.ipv6([1; 16], [2; 16], 60) } else { $link.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 60) }
        };
    }
    let packet = if tagged { ip!(link.single_vlan(7.try_into().unwrap())) } else { ip!(link) };
    packet.tcp(source, port, sequence, window).psh().fin().write(&mut frame, payload).unwrap();
    frame
}

fn l4_of(frame: &[u8]) -> usize {
    Ip::of_frame(frame).unwrap().end
}

/// Leaves the sum of the pseudo header in the checksum field, as Linux does.
fn leave_undone(frame: &mut [u8]) {
    let ip = Ip::of_frame(frame).unwrap();
    let pseudo = ip.pseudo(frame, frame.len() - ip.end).fold();
    put(frame, ip.end + checksum_offset(ip.protocol).unwrap(), pseudo);
}

fn assert_right(frame: &[u8]) {
    let parsed = SlicedPacket::from_ethernet(frame).unwrap();
    let (net, Some(TransportSlice::Tcp(tcp))) = (parsed.net.unwrap(), parsed.transport) else { panic!("no TCP") };
    let sum = match net {
        etherparse::NetSlice::Ipv4(ip) => {
            assert_eq!(ip.header().header_checksum(), ip.header().to_header().calc_header_checksum());
            tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination()).unwrap()
        }
        etherparse::NetSlice::Ipv6(ip) => {
            tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination()).unwrap()
        }
        _ => panic!("no IP"),
    };
    assert_eq!(tcp.checksum(), sum);
}

#[test]
fn the_checksum_of_sctp_is_a_crc() {
    let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    // Ports 7 and 9, a tag, no checksum; then a HEARTBEAT chunk.
    let packet = [0, 7, 0, 9, 1, 2, 3, 4, 0, 0, 0, 0, 4, 0, 0, 8, 0, 1, 0, 4];
    let mut undone = Vec::new();
    link.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 60).write(&mut undone, SCTP.into(), &packet).unwrap();
    let l4 = l4_of(&undone);
    let mut right = undone.clone();
    right[l4 + 8..l4 + 12].copy_from_slice(&crc32c::crc32c(&packet).to_le_bytes());
    let mut frame = undone.clone();
    let header = VnetHeader { flags: NEEDS_CHECKSUM, csum_start: l4, csum_offset: 8, ..VnetHeader::default() };
    header.complete(&mut frame);
    assert_eq!(frame, right, "as AF_PACKET says it");
    complete_if_partial(&mut undone);
    assert_eq!(undone, right, "as AF_XDP does not");
    complete_if_partial(&mut frame);
    assert_eq!(frame, right, "what is there stays");
}

/// What Linux sends with a `gso_max_size` beyond 64 KiB: the length is in an option (IPv6) or absent (IPv4).
#[test]
fn a_train_of_more_than_64_kib_is_cut_like_any_other() {
    let payload: Vec<u8> = (0..150_000u32).map(|i| i as u8).collect();
    for v6 in [false, true] {
        let mut whole = tcp(b"?", v6, false);
        let (l4, long) = (l4_of(&whole), payload.len() + 20);
        whole.truncate(l4 + 20);
        whole.extend_from_slice(&payload);
        let ip = Ip::of_frame(&whole).unwrap();
        let pseudo = ip.pseudo(&whole, long).fold();
        put(&mut whole, l4 + TCP_CHECKSUM, pseudo);
        put(&mut whole, ip.at + if v6 { 4 } else { 2 }, 0);
        let (kind, option) = if v6 { (GSO_TCP6, 8) } else { (GSO_TCP4, 0) };
        if v6 {
            let [a, b, c, d] = (long as u32 + 8).to_be_bytes();
            whole[ip.at + 6] = 0;
            whole.splice(l4..l4, [TCP, 0, 0xc2, 4, a, b, c, d]);
        }
        let header = VnetHeader {
            flags: NEEDS_CHECKSUM,
            gso_type: kind,
            gso_size: 1440,
            csum_start: l4 + option,
            csum_offset: TCP_CHECKSUM,
        };
        let (mut train, mut segment, mut joined) = (Train::default(), Vec::new(), Vec::new());
        assert!(train.load(&whole, header));
        while !train.is_empty() {
            train.next(&mut segment);
            assert_right(&segment);
            assert!(segment.len() <= 14 + 1500);
            joined.extend_from_slice(&segment[l4 + 20..]);
        }
        assert!(joined == payload, "IPv6: {v6}");
    }
}

/// How a tunnel carries a frame or its packet.
#[derive(Clone, Copy, Debug)]
enum Tunnel {
    Vxlan,
    /// What Linux sends over IPv4 by default.
    VxlanWithoutChecksum,
    Geneve,
    /// With so many options that the first bytes look like VXLAN.
    GeneveWithOptions,
    Gre,
    /// Complete frames, with checksum and key.
    GreOfFrames,
    IpInIp,
}

fn tunnels() -> impl Strategy<Value = Tunnel> {
    use Tunnel::*;
    prop::sample::select(vec![Vxlan, VxlanWithoutChecksum, Geneve, GeneveWithOptions, Gre, GreOfFrames, IpInIp])
}

/// A frame inside a tunnel, and the number of bytes that belong to the tunnel.
fn carried(inner: &[u8], tunnel: Tunnel, v6: bool) -> (Vec<u8>, usize) {
    let is_inner_v4 = inner[12..14] == [8, 0];
    let (ethernet, packet) = inner.split_at(14);
    let kind = [ethernet[12], ethernet[13]];
    let (protocol, header, content) = match tunnel {
        Tunnel::Vxlan | Tunnel::VxlanWithoutChecksum => (17, vec![8, 0, 0, 0, 0, 0, 7, 0], inner),
        Tunnel::Geneve => (17, vec![1, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 2, 3, 4], inner),
        Tunnel::GeneveWithOptions => (17, [&[8, 0, 0x65, 0x58, 0, 0, 7, 0][..], &[0; 32]].concat(), inner),
        Tunnel::Gre => (47, vec![0, 0, kind[0], kind[1]], packet),
        Tunnel::GreOfFrames => (47, vec![0xa0, 0, 0x65, 0x58, 0, 0, 0, 0, 0, 0, 0, 7], inner),
        Tunnel::IpInIp => (if is_inner_v4 { 4 } else { 41 }, Vec::new(), packet),
    };
    let mut payload = [header, content.to_vec()].concat();
    if matches!(tunnel, Tunnel::GreOfFrames) {
        complete_checksum(&mut payload, 0, 4);
    }
    let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 3], [2, 0, 0, 0, 0, 4]);
    let ip = if v6 { link.ipv6([3; 16], [4; 16], 60) } else { link.ipv4([192, 0, 2, 1], [192, 0, 2, 2], 60) };
    let mut frame = Vec::new();
    if protocol == 17 {
        let port = if matches!(tunnel, Tunnel::Geneve | Tunnel::GeneveWithOptions) { 6081 } else { 8472 };
        ip.udp(50_000, port).write(&mut frame, &payload).unwrap();
        if matches!(tunnel, Tunnel::VxlanWithoutChecksum) {
            let at = l4_of(&frame);
            put(&mut frame, at + UDP_CHECKSUM, 0);
        }
    } else {
        ip.write(&mut frame, protocol.into(), &payload).unwrap();
    }
    let of_tunnel = frame.len() - content.len();
    (frame, of_tunnel)
}

/// The inner frame, after the outer headers have been checked.
fn unpacked(segment: &[u8], tunnel: Tunnel, of_tunnel: usize, like: &[u8]) -> Vec<u8> {
    let ip = Ip::of_frame(segment).unwrap();
    assert_eq!(ip.packet_end(segment), Some(segment.len()));
    let length = segment.len() - ip.end;
    if ip.is_v4(segment) {
        assert_eq!(Sum::default().add_bytes(&segment[ip.at..ip.end]).fold(), 0xffff);
    }
    let behind = Sum::default().add_bytes(&segment[ip.end..]);
    let sum = match tunnel {
        Tunnel::Vxlan | Tunnel::Geneve | Tunnel::GeneveWithOptions => {
            ip.pseudo(segment, length).add_u16(behind.fold()).fold()
        }
        Tunnel::GreOfFrames => behind.fold(),
        _ => 0xffff,
    };
    assert_eq!(sum, 0xffff, "the tunnel's checksum");
    if ip.protocol == UDP {
        assert_eq!(usize::from(super::headers::be16(segment, ip.end + 4)), length);
    }
    let is_packet = matches!(tunnel, Tunnel::Gre | Tunnel::IpInIp);
    let ethernet = if is_packet { &like[..14] } else { &[] };
    [ethernet, &segment[of_tunnel..]].concat()
}

/// The segments into which a train of TCP with segments of this size is cut; its TCP header is at `l4`.
fn segments(whole: &[u8], (v6, size, l4): (bool, usize, usize)) -> Vec<Vec<u8>> {
    let kind = if v6 { GSO_TCP6 } else { GSO_TCP4 };
    let header = VnetHeader { flags: NEEDS_CHECKSUM, gso_type: kind, gso_size: size, csum_start: l4, csum_offset: 16 };
    let (mut train, mut segment, mut segments) = (Train::default(), Vec::new(), Vec::new());
    assert!(train.load(whole, header));
    while !train.is_empty() {
        train.next(&mut segment);
        segments.push(segment.clone());
    }
    segments
}

proptest! {
    #[test]
    fn segments_in_a_tunnel_are_what_a_wire_would_carry(
        len in 1usize..9000, size in 100usize..1400, v6: bool, tunnel in tunnels(), over_v6: bool,
    ) {
        let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let mut inner = tcp(&payload, v6, false);
        leave_undone(&mut inner);
        let (whole, of_tunnel) = carried(&inner, tunnel, over_v6);
        let l4 = whole.len() - len - 20;
        let mut joined = Vec::new();
        for segment in segments(&whole, (v6, size, l4)) {
            assert_right(&unpacked(&segment, tunnel, of_tunnel, &inner));
            joined.extend_from_slice(&segment[l4 + 20..]);
        }
        prop_assert_eq!(joined, payload);
    }

    #[test]
    fn a_checksum_that_was_left_undone_in_a_tunnel_is_completed_and_a_right_one_stays(
        payload in prop::collection::vec(any::<u8>(), 0..200), v6: bool, tunnel in tunnels(), over_v6: bool,
    ) {
        let inner = tcp(&payload, v6, false);
        let (right, of_tunnel) = carried(&inner, tunnel, over_v6);
        let mut frame = right.clone();
        complete_if_partial(&mut frame);
        prop_assert_eq!(&frame, &right);
        // The tunnel's checksum already covers the completed inner packet.
        let mut undone = inner.clone();
        leave_undone(&mut undone);
        let within = frame.len() - of_tunnel;
        frame[of_tunnel..].copy_from_slice(&undone[undone.len() - within..]);
        complete_if_partial(&mut frame);
        prop_assert_eq!(&frame, &right);
    }

    #[test]
    fn a_checksum_that_was_left_undone_is_completed_and_a_right_one_stays(
        payload in prop::collection::vec(any::<u8>(), 0..200), v6: bool, tagged: bool,
    ) {
        let right = tcp(&payload, v6, tagged);
        let mut frame = right.clone();
        complete_if_partial(&mut frame);
        prop_assert_eq!(&frame, &right);
        leave_undone(&mut frame);
        complete_if_partial(&mut frame);
        prop_assert_eq!(&frame, &right);
    }

    #[test]
    fn no_bytes_make_a_completion_panic(mut frame in prop::collection::vec(any::<u8>(), 0..120), start: u16, offset: u16) {
        complete_if_partial(&mut frame);
        complete_checksum(&mut frame, start.into(), offset.into());
    }

    #[test]
    fn no_bytes_make_a_train_panic(frame in prop::collection::vec(any::<u8>(), 0..200), header: [u8; 10]) {
        let (mut train, mut segment) = (Train::default(), Vec::new());
        let header = VnetHeader::read(&header);
        if header.is_train() && train.load(&frame, header) {
            while !train.is_empty() {
                train.next(&mut segment);
            }
        }
    }

    #[test]
    fn segments_of_a_train_are_what_a_wire_would_carry(len in 1usize..9000, size in 100usize..1448, v6: bool, tagged: bool) {
        let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let mut whole = tcp(&payload, v6, tagged);
        let l4 = l4_of(&whole);
        leave_undone(&mut whole);
        let mut joined = Vec::new();
        for segment in segments(&whole, (v6, size, l4)) {
            assert_right(&segment);
            let sequence = u32::from_be_bytes(segment[l4 + 4..l4 + 8].try_into().unwrap());
            prop_assert_eq!(sequence, 0xffff_fff0u32.wrapping_add(joined.len() as u32));
            joined.extend_from_slice(&segment[l4 + 20..]);
            prop_assert!(segment.len() - l4 - 20 <= size);
            prop_assert_eq!(segment[l4 + 13] & 0x09 != 0, joined.len() == len);
        }
        prop_assert_eq!(joined, payload);
    }
}
