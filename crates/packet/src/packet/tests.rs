//! Packets: questions, edits against packets written anew, undo.

use std::sync::Arc;

use braid_memory::HugePages;
use proptest::prelude::*;

use super::*;
use crate::address::{IpAddress, MacAddress};
use crate::batch::{Batch, FrameInfo};
use crate::edit::Side;
use crate::fields::Layout;
use crate::parse::protocol;
use crate::pool::{Buffers, Pool, PoolConfig};
use crate::record::Link;
use crate::testing::{self, Spec, Transport, noise, single, specs};

const V4: (&str, &str) = ("10.0.0.1", "192.0.2.7");
const V6: (&str, &str) = ("2001:db8::1", "2001:db8::7");

/// The edit must turn one well-formed packet into the other, byte by byte.
#[track_caller]
fn check(before: &Spec, after: &Spec, edit: impl FnOnce(&mut Packet<'_>) -> bool) {
    let (frame, link) = before.frame();
    let mut batch = single(&frame, link);
    assert!(edit(&mut batch.packet(0, None)));
    assert_eq!(batch.bytes(0), after.frame().0);
}

#[track_caller]
fn refused(spec: &Spec, edit: impl FnOnce(&mut Packet<'_>) -> bool) {
    let (frame, link) = spec.frame();
    let mut batch = single(&frame, link);
    assert!(!edit(&mut batch.packet(0, None)));
    assert_eq!(batch.bytes(0), frame);
}

fn spec((src, dst): (&str, &str), transport: Transport) -> Spec {
    Spec::new(src, dst, (1000, 53), transport)
}

#[test]
fn what_was_written_is_read() {
    let (frame, link) = spec(V4, Transport::Tcp).frame();
    let mut batch = single(&frame, link);
    let packet = batch.packet(0, None);
    assert_eq!((packet.src_ip().to_string(), packet.dst_ip().to_string()), (V4.0.to_owned(), V4.1.to_owned()));
    assert_eq!((packet.protocol(), packet.ports(), packet.ttl()), (6, Some((1000, 53)), Some(64)));
    assert_eq!((packet.tcp_flags(), packet.payload()), (Some(0x12), &[1, 2, 3, 4, 5][..]));
    assert_eq!((packet.ip_version(), packet.l4_offset()), (Some(IpVersion::V4), Some(34)));
    assert_eq!(packet.ethernet().unwrap().source(), MacAddress([2, 0, 0, 0, 0, 2]));
    assert!(packet.checksums_ok());
}

#[test]
fn link_padding_is_no_payload() {
    let (mut frame, link) = spec(V4, Transport::Udp).frame();
    frame.resize(60, 0xee);
    assert_eq!(single(&frame, link).packet(0, None).payload(), &[1, 2, 3, 4, 5]);
}

#[test]
fn vlan_tags_are_seen() {
    let (frame, link) = Spec { wrap: testing::Wrap::QinQ, ..spec(V4, Transport::Udp) }.frame();
    let mut batch = single(&frame, link);
    let mut packet = batch.packet(0, None);
    assert_eq!(packet.vlans().map(|tag| tag.id()).collect::<Vec<_>>(), [9, 5]);
    assert_eq!(packet.ether_type(), Some(0x0800));
    packet.vlan_mut().unwrap().set_id(77);
    assert_eq!(packet.vlan().unwrap().id(), 77);
}

#[test]
fn the_last_hop_is_not_taken() {
    for ttl in [0, 1] {
        refused(&Spec { ttl, ..spec(V4, Transport::Udp) }, |packet| packet.decrement_ttl());
        refused(&Spec { ttl, ..spec(V6, Transport::Udp) }, |packet| packet.decrement_ttl());
    }
}

#[test]
fn an_address_of_the_other_family_is_refused() {
    refused(&spec(V4, Transport::Udp), |packet| packet.set_src_ip(V6.0.parse().unwrap()));
    refused(&spec(V6, Transport::Udp), |packet| packet.set_dst_ip(V4.0.parse().unwrap()));
}

#[test]
fn ports_of_what_has_none_are_refused() {
    refused(&spec(V4, Transport::Echo), |packet| packet.set_src_port(1));
    refused(&spec(V4, Transport::Other(99)), |packet| packet.set_dst_port(1));
    refused(&spec(V6, Transport::Udp), |packet| packet.set_icmp_id(1));
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let (mut frame, link) = spec(V4, Transport::Udp).frame();
    let last = frame.len() - 1;
    frame[last] ^= 1;
    let mut batch = single(&frame, link);
    let mut packet = batch.packet(0, None);
    assert!(packet.set_src_ip("198.51.100.1".parse().unwrap()) && packet.set_src_port(9));
    assert!(!packet.checksums_ok());
    packet.fill_checksums();
    assert!(packet.checksums_ok());
}

/// A datagram in two pieces, whose addresses and port are translated piece by piece, must be right when put together.
#[test]
fn fragments_are_translated_piece_by_piece() {
    let whole = Spec { payload: vec![7; 40], ..spec(V4, Transport::Udp) };
    let frame = whole.frame().0;
    let piece = |flags: [u8; 2], data: &[u8]| {
        let mut piece = [&frame[..34], data].concat();
        piece[16..18].copy_from_slice(&(20 + data.len() as u16).to_be_bytes());
        piece[20..22].copy_from_slice(&flags);
        piece
    };
    let frames = [piece([0x20, 0], &frame[34..58]), piece([0, 3], &frame[58..])].map(|frame| (frame, Link::Ethernet));
    let mut batch = testing::batch(&frames, Layout::bare());
    let new: IpAddress = "203.0.113.9".parse().unwrap();
    assert!(batch.packet(0, None).set_src_ip(new) && batch.packet(0, None).set_src_port(4444));
    assert!(batch.packet(1, None).set_src_ip(new) && !batch.packet(1, None).set_src_port(4444));
    assert_eq!(batch.packet(1, None).ports(), None);
    let expected = Spec { src: new, ports: (4444, 53), ..whole }.frame().0;
    assert_eq!([&batch.bytes(0)[34..], &batch.bytes(1)[34..]].concat(), &expected[34..]);
    assert_eq!(batch.bytes(1)[26..30], [203, 0, 113, 9]);
}

#[test]
fn sctp_in_a_fragment_keeps_its_ports() {
    let mut frame = spec(V4, Transport::Sctp).frame().0;
    frame[20] = 0x20;
    let mut batch = single(&frame, Link::Ethernet);
    assert!(!batch.packet(0, None).set_src_port(1));
    assert_eq!(batch.bytes(0), frame);
}

#[test]
fn a_header_is_pushed_and_popped() {
    let (frame, link) = spec(V4, Transport::Udp).frame();
    let mut batch = single(&frame, link);
    let mut packet = batch.packet(0, None);
    assert!(packet.push_front(8));
    assert_eq!((packet.len(), packet.l4_offset()), (frame.len() + 8, Some(42)));
    assert!(!packet.push_front(crate::pool::HEADROOM));
    assert!(packet.pop_front(8 + 14));
    assert_eq!((packet.l4_offset(), packet.bytes()), (Some(20), &frame[14..]));
    assert!(packet.pop_front(1) && !packet.is_ip() && !packet.pop_front(4000));
}

#[test]
fn length_on_the_wire_moves_with_the_length() {
    let frames = [spec(V4, Transport::Udp).frame()];
    let mut batch = testing::batch(&frames, Layout::capture());
    let mut packet = batch.packet(0, None);
    let before = packet.wire_len();
    assert!(packet.extend(10) && packet.push_front(4));
    assert_eq!(packet.wire_len(), before + 14);
    assert!(!packet.set_len(100_000));
}

#[test]
fn a_cut_packet_among_whole_ones_has_its_own_length_on_the_wire() {
    let frame = spec(V4, Transport::Udp).frame().0;
    let pool = Pool::new(&PoolConfig { buffers: 16, jumbos: 0, pages: HugePages::Never }).unwrap();
    let (mut batch, mut buffers) = (Batch::new(&pool, &Arc::new(Layout::capture())), Buffers::new(&pool));
    let len = frame.len() as u32;
    for (lens, expected) in [([len, 1500, len], [len, 1500, len]), ([len; 3], [len; 3])] {
        for wire_len in lens {
            assert!(batch.copy_in(&mut buffers, &frame, &FrameInfo { wire_len, ..FrameInfo::default() }));
        }
        assert!(batch.packet(0, None).extend(4) && batch.packet(1, None).extend(4));
        let found: Vec<u32> = (0..3).map(|i| batch.packet(i, None).wire_len()).collect();
        assert_eq!(found, [expected[0] + 4, expected[1] + 4, expected[2]]);
        assert_eq!(batch.wire_bytes(), found.iter().map(|&len| u64::from(len)).sum::<u64>());
        let last = batch.pop().unwrap();
        batch.push(last);
        assert_eq!(batch.wire_len(2), expected[2]);
        batch.release(&mut buffers);
    }
}

#[test]
fn a_column_has_the_field_of_every_packet() {
    let frames = [5, 40, 90].map(|len| Spec { payload: vec![0; len], ..spec(V4, Transport::Udp) }.frame());
    let batch = testing::batch(&frames, Layout::capture());
    let sequences: Vec<u64> = batch.column(batch.layout().sequence).unwrap().collect();
    assert_eq!(sequences, [0, 1, 2]);
    let total = frames.iter().map(|(bytes, _)| bytes.len() as u64).sum::<u64>();
    assert_eq!((batch.wire_bytes(), batch.column(Layout::bare().sequence).is_none()), (total, true));
    assert_eq!(testing::batch(&frames, Layout::bare()).wire_bytes(), total);
}

/// Everything that undo must bring back.
fn state(batch: &Batch, i: usize) -> (Vec<u8>, String, Vec<u8>) {
    (batch.bytes(i).to_vec(), format!("{:?}", batch.records()[i]), batch.meta(i).to_vec())
}

#[test]
fn only_the_last_packets_are_rolled_back() {
    let frames = [0, 1, 2].map(|n| Spec { id: n, ..spec(V4, Transport::Udp) }.frame());
    let mut batch = testing::batch(&frames, Layout::capture());
    let mut undo = Undo::default();
    let mut marks = Vec::new();
    for i in 0..3 {
        marks.push((undo.mark(), state(&batch, i)));
        let mut packet = batch.packet(i, Some(&mut undo));
        assert!(packet.set_src_port(9) && packet.push_front(30) && packet.set_len(500));
        packet.bytes_mut().fill(i as u8);
    }
    let first = state(&batch, 0);
    batch.restore(2, &mut undo, marks[2].0);
    assert_eq!(state(&batch, 2), marks[2].1);
    batch.restore(1, &mut undo, marks[1].0);
    assert_eq!(state(&batch, 1), marks[1].1);
    assert_eq!(state(&batch, 0), first);
    batch.restore_all(&mut undo, 0);
    assert_eq!(state(&batch, 0), marks[0].1);
    assert_eq!(undo.mark(), 0);
}

#[test]
fn an_undo_of_another_batch_does_nothing() {
    let frame = spec(V4, Transport::Udp).frame();
    let frames = [frame.clone(), frame];
    let (mut one, mut undo) = (testing::batch(&frames, Layout::bare()), Undo::default());
    one.packet(1, Some(&mut undo)).bytes_mut().fill(0);
    let mut other = testing::batch(&frames[..1], Layout::bare());
    other.restore_all(&mut undo, 0);
    assert_eq!(other.bytes(0), frames[0].0);
}

#[derive(Clone, Debug)]
enum Edit {
    SrcIp(IpAddress),
    DstIp(IpAddress),
    SrcPort(u16),
    DstPort(u16),
    Src(IpAddress, u16),
    Dst(IpAddress, u16),
    TranslateSrc(IpAddress, Option<u16>),
    TranslateDst(IpAddress, Option<u16>),
    IcmpId(u16),
    Ttl,
    Macs([u8; 6]),
    Inner(IpAddress, u16),
    Push(usize),
    Pop(usize),
    Len(usize),
    Fill(usize, usize, u8),
    All(u8),
    Meta(u64),
    Port(u16),
    Reparse,
    Checksums,
}

fn edits() -> impl Strategy<Value = Edit> {
    let ip = || any::<bool>().prop_flat_map(testing::address);
    prop_oneof![
        ip().prop_map(Edit::SrcIp),
        ip().prop_map(Edit::DstIp),
        any::<u16>().prop_map(Edit::SrcPort),
        any::<u16>().prop_map(Edit::DstPort),
        (ip(), any::<u16>()).prop_map(|(ip, port)| Edit::Src(ip, port)),
        (ip(), any::<u16>()).prop_map(|(ip, port)| Edit::Dst(ip, port)),
        (ip(), any::<Option<u16>>()).prop_map(|(ip, port)| Edit::TranslateSrc(ip, port)),
        (ip(), any::<Option<u16>>()).prop_map(|(ip, port)| Edit::TranslateDst(ip, port)),
        any::<u16>().prop_map(Edit::IcmpId),
        Just(Edit::Ttl),
        any::<[u8; 6]>().prop_map(Edit::Macs),
        (ip(), any::<u16>()).prop_map(|(ip, port)| Edit::Inner(ip, port)),
        (0usize..140).prop_map(Edit::Push),
        (0usize..140).prop_map(Edit::Pop),
        (0usize..2500).prop_map(Edit::Len),
        (0usize..400, 0usize..400, any::<u8>()).prop_map(|(from, to, byte)| Edit::Fill(from, to, byte)),
        any::<u8>().prop_map(Edit::All),
        any::<u64>().prop_map(Edit::Meta),
        any::<u16>().prop_map(Edit::Port),
        Just(Edit::Reparse),
        Just(Edit::Checksums),
    ]
}

fn apply(packet: &mut Packet<'_>, edit: &Edit) {
    match *edit {
        Edit::SrcIp(ip) => drop(packet.set_src_ip(ip)),
        Edit::DstIp(ip) => drop(packet.set_dst_ip(ip)),
        Edit::SrcPort(port) => drop(packet.set_src_port(port)),
        Edit::DstPort(port) => drop(packet.set_dst_port(port)),
        Edit::Src(ip, port) => drop(packet.set_src(ip, port)),
        Edit::Dst(ip, port) => drop(packet.set_dst(ip, port)),
        Edit::TranslateSrc(ip, port) => _ = packet.translate_src(ip, port),
        Edit::TranslateDst(ip, port) => _ = packet.translate_dst(ip, port),
        Edit::IcmpId(id) => drop(packet.set_icmp_id(id)),
        Edit::Ttl => drop(packet.decrement_ttl()),
        Edit::Macs(mac) => drop((packet.set_eth_src(mac.into()), packet.set_eth_dst(mac.into()))),
        Edit::Inner(ip, port) => {
            if let Some(mut inner) = packet.embedded_mut() {
                let _ =
                    (inner.set_src_ip(ip), inner.set_dst_ip(ip), inner.set_src_port(port), inner.set_dst_port(port));
                let _ = (inner.set_icmp_id(port), inner.read());
            }
        }
        Edit::Push(bytes) => drop(packet.push_front(bytes)),
        Edit::Pop(bytes) => drop(packet.pop_front(bytes)),
        Edit::Len(len) => drop(packet.set_len(len)),
        Edit::Fill(from, to, byte) => packet.change(from..to).fill(byte),
        Edit::All(byte) => packet.bytes_mut().fill(byte),
        Edit::Meta(value) => packet.set_meta(packet.metas.layout().timestamp, value),
        Edit::Port(port) => packet.set_port(port),
        Edit::Reparse => packet.reparse(),
        Edit::Checksums => packet.fill_checksums(),
    }
}

/// Asks everything that can be asked.
fn read_all(packet: &Packet<'_>) -> usize {
    let ip = (packet.ipv4().map(|ip| ip.options().count()), packet.ipv6().map(|ip| ip.extensions().count()));
    let transport =
        (packet.tcp().map(|tcp| tcp.options().count()), packet.udp(), packet.sctp(), packet.icmp(), packet.icmpv6());
    let link = (packet.ethernet(), packet.vlan(), packet.ether_type(), packet.arp());
    let rest = (packet.src_ip(), packet.dst_ip(), packet.ports(), packet.ttl(), packet.icmp_id(), packet.tcp_flags());
    let more = (packet.payload(), packet.ip_payload(), packet.embedded(), packet.checksums_ok(), packet.wire_len());
    format!("{ip:?} {transport:?} {link:?} {rest:?} {more:?}").len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn every_edit_writes_the_packet_that_was_meant(spec in specs(), ports: (u16, u16), id: u16, mac: [u8; 6], other in specs()) {
        let same_family = other.src.is_v4() == spec.src.is_v4();
        if same_family {
            check(&spec, &Spec { src: other.src, ..spec.clone() }, |packet| packet.set_src_ip(other.src));
            check(&spec, &Spec { dst: other.dst, ..spec.clone() }, |packet| packet.set_dst_ip(other.dst));
        }
        if matches!(spec.transport, Transport::Tcp | Transport::Udp | Transport::UdpWithoutChecksum | Transport::Sctp) {
            let edit = |packet: &mut Packet<'_>| packet.set_src_port(ports.0) && packet.set_dst_port(ports.1);
            check(&spec, &Spec { ports, ..spec.clone() }, edit);
            if same_family {
                let after = Spec { src: other.src, dst: other.dst, ports, ..spec.clone() };
                check(&spec, &after, |packet| packet.set_src(other.src, ports.0) && packet.set_dst(other.dst, ports.1));
            } else {
                refused(&spec, |packet| packet.set_src(other.src, ports.0) || packet.set_dst(other.dst, ports.1));
            }
        }
        if matches!(spec.transport, Transport::Echo) {
            check(&spec, &Spec { id, ..spec.clone() }, |packet| packet.set_icmp_id(id));
        }
        if spec.ttl > 1 {
            check(&spec, &Spec { ttl: spec.ttl - 1, ..spec.clone() }, |packet| packet.decrement_ttl());
        }
        let (frame, link) = spec.frame();
        let mut batch = single(&frame, link);
        let mut packet = batch.packet(0, None);
        prop_assert!(packet.checksums_ok());
        prop_assert_eq!(packet.set_eth_src(mac.into()), link == Link::Ethernet);
        packet.fill_checksums();
        if !matches!(spec.transport, Transport::UdpWithoutChecksum) && link != Link::Ethernet {
            prop_assert_eq!(packet.bytes(), &frame[..]);
        }
    }

    #[test]
    fn the_quoted_packet_is_translated_with_all_checksums(spec in specs(), ports: (u16, u16), id: u16, other in specs()) {
        let Transport::Error(inner, keep) = &spec.transport else { return Ok(()) };
        let header = if inner.src.is_v4() { 20 } else { 40 } + inner.options * if inner.src.is_v4() { 4 } else { 8 };
        // Enough for the ports or the identifier, and for every checksum in front of the payload: else its change is not seen.
        prop_assume!(*keep >= header + 20);
        let outer = |inner: Spec| Spec { transport: Transport::Error(Box::new(inner), *keep), ..spec.clone() };
        if other.src.is_v4() == inner.src.is_v4() {
            check(&spec, &outer(Spec { src: other.src, ..(**inner).clone() }), |packet| {
                packet.embedded_mut().is_some_and(|mut quoted| quoted.set_src_ip(other.src))
            });
            check(&spec, &outer(Spec { dst: other.dst, ..(**inner).clone() }), |packet| {
                packet.embedded_mut().is_some_and(|mut quoted| quoted.set_dst_ip(other.dst))
            });
        }
        match inner.transport {
            Transport::Echo => check(&spec, &outer(Spec { id, ..(**inner).clone() }), |packet| {
                packet.embedded_mut().is_some_and(|mut quoted| quoted.set_icmp_id(id))
            }),
            Transport::Other(_) => {}
            _ if other.src.is_v4() == inner.src.is_v4() => {
                let after = Spec { src: other.src, dst: other.dst, ports, ..(**inner).clone() };
                check(&spec, &outer(after), |packet| {
                    let mut quoted = packet.embedded_mut().unwrap();
                    quoted.set_src(other.src, ports.0) && quoted.set_dst(other.dst, ports.1)
                });
            }
            _ => check(&spec, &outer(Spec { ports, ..(**inner).clone() }), |packet| {
                let mut quoted = packet.embedded_mut().unwrap();
                quoted.set_src_port(ports.0) && quoted.set_dst_port(ports.1)
            }),
        }
    }

    #[test]
    fn an_end_is_set_as_the_long_way_sets_it(
        frame in prop_oneof![noise(), specs().prop_map(|spec| spec.frame())], source: bool, v6: bool, octets: [u8; 16], port: u16,
    ) {
        let [a, b, c, d, ..] = octets;
        let address = if v6 { IpAddress::from_v6(octets) } else { IpAddress::from_v4([a, b, c, d]) };
        let [mut one, mut other] = [(); 2].map(|()| testing::batch(std::slice::from_ref(&frame), Layout::bare()));
        let side = if source { Side::Source } else { Side::Destination };
        let quickly = one.packet(0, None).set_end(side, address, port);
        prop_assert_eq!(quickly, other.packet(0, None).set_end_slowly(side, address, port));
        prop_assert_eq!(one.bytes(0), other.bytes(0));
        let quickly = one.packet(0, None).set_address(side, address);
        prop_assert_eq!(quickly, other.packet(0, None).set_address_slowly(side, address));
        prop_assert_eq!(one.bytes(0), other.bytes(0));
    }

    #[test]
    fn a_translation_is_its_steps_one_after_another_or_nothing(
        frame in prop_oneof![noise(), specs().prop_map(|spec| spec.frame())],
        ttl: Option<u8>, no_checksum: bool, source: bool, v6: bool, octets: [u8; 16], port: Option<u16>,
    ) {
        let [a, b, c, d, ..] = octets;
        let address = if v6 { IpAddress::from_v6(octets) } else { IpAddress::from_v4([a, b, c, d]) };
        let side = if source { Side::Source } else { Side::Destination };
        let [mut one, mut other] = [(); 2].map(|()| testing::batch(std::slice::from_ref(&frame), Layout::bare()));
        for batch in [&mut one, &mut other] {
            let mut packet = batch.packet(0, None);
            let (l3, l4) = (usize::from(packet.record().l3), packet.l4_offset());
            if let Some(ttl) = ttl {
                packet.change(l3 + 8..l3 + 9).fill(ttl);
            }
            if let Some(l4) = l4.filter(|_| no_checksum && packet.protocol() == protocol::UDP) {
                packet.change(l4 + 6..l4 + 8).fill(0);
            }
        }
        let before = one.bytes(0).to_vec();
        let at_once = one.packet(0, None).translate(side, address, port);
        let mut packet = other.packet(0, None);
        let expired = packet.ttl().is_some_and(|ttl| ttl <= 1);
        let set = !expired && match port {
            Some(port) => packet.set_end_slowly(side, address, port),
            None => packet.set_address_slowly(side, address),
        };
        let steps = match (expired, set) {
            (true, _) => Translated::Expired,
            (_, false) => Translated::Refused,
            _ => {
                prop_assert!(packet.decrement_ttl());
                Translated::Done
            }
        };
        prop_assert_eq!(at_once, steps);
        prop_assert_eq!(one.bytes(0), other.bytes(0));
        prop_assert!(at_once == Translated::Done || one.bytes(0) == before);
    }

    #[test]
    fn no_question_and_no_edit_panics(frame in noise(), edits in prop::collection::vec(edits(), 0..12)) {
        let mut batch = testing::batch(&[frame], Layout::capture());
        let mut packet = batch.packet(0, None);
        read_all(&packet);
        for edit in &edits {
            apply(&mut packet, edit);
            read_all(&packet);
        }
    }

    #[test]
    fn every_edit_can_be_undone(
        frames in prop::collection::vec(prop_oneof![noise(), specs().prop_map(|spec| spec.frame())], 3),
        edits in prop::collection::vec((0usize..3, prop::collection::vec(edits(), 0..6)), 0..6),
        keep in 0usize..6,
    ) {
        let mut batch = testing::batch(&frames, Layout::capture());
        let mut undo = Undo::default();
        let all = |batch: &Batch| [0, 1, 2].map(|i| state(batch, i));
        let before = all(&batch);
        let (mut mark, mut at_mark) = (0, before.clone());
        for (number, (i, edits)) in edits.iter().enumerate() {
            if number == keep {
                (mark, at_mark) = (undo.mark(), all(&batch));
            }
            let mut packet = batch.packet(*i, Some(&mut undo));
            edits.iter().for_each(|edit| apply(&mut packet, edit));
        }
        // Packet by packet, in any order, as far as the mark; then the rest.
        for i in [1, 2, 0] {
            batch.restore(i, &mut undo, mark);
            prop_assert_eq!(state(&batch, i), at_mark[i].clone());
        }
        batch.restore_all(&mut undo, 0);
        prop_assert_eq!(all(&batch), before);
        prop_assert_eq!(undo.mark(), 0);
    }
}
