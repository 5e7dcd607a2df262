//! Tests of packets: accessors, edits compared with rebuilt packets, and undo.

mod edits;

use std::sync::Arc;

use braid_memory::HugePages;

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

/// Checks that the edit turns one well-formed packet into the other, byte by byte.
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

/// A datagram in two fragments, whose addresses and port are translated fragment by fragment, must be right when reassembled.
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
fn what_most_packets_are_is_told_from_the_rest() {
    let is_udp = |frame: &[u8]| single(frame, Link::Ethernet).packet(0, None).plain().map(|(_, udp)| udp);
    let (mut udp, tcp) = (spec(V4, Transport::Udp).frame().0, spec(V4, Transport::Tcp).frame().0);
    udp.resize(60, 0);
    assert_eq!((is_udp(&udp), is_udp(&tcp)), (Some(true), Some(false)));
    assert_eq!(is_udp(&spec(V6, Transport::Udp).frame().0), None);
    assert_eq!(is_udp(&spec(V4, Transport::Sctp).frame().0), None);
    assert_eq!(is_udp(&tcp[..53]), None, "cut behind 39 of 40 bytes");
    let mut piece = udp.clone();
    piece[20] = 0x20;
    assert_eq!(is_udp(&piece), None);
    let is_whole = |frame: &[u8]| single(frame, Link::Ethernet).packet(0, None).is_whole();
    assert_eq!([is_whole(&udp), is_whole(&piece), is_whole(&tcp[..tcp.len() - 1])], [true, false, false]);
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
        assert_eq!(batch.is_ordinary(), lens == [len; 3]);
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

/// Everything that undo must restore.
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
