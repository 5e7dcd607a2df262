//! Tests of edits: random edits in any order, and single edits against the intended packet.

use proptest::prelude::*;

use super::*;
use crate::edit::Exchange;

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
    SegmentSize(u16),
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
        any::<u16>().prop_map(Edit::SegmentSize),
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
        Edit::SegmentSize(most) => drop(packet.lower_segment_size(most)),
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

/// Calls every accessor.
fn read_all(packet: &Packet<'_>) -> usize {
    let ip = (packet.ipv4().map(|ip| ip.options().count()), packet.ipv6().map(|ip| ip.extensions().count()));
    let transport =
        (packet.tcp().map(|tcp| tcp.options().count()), packet.udp(), packet.sctp(), packet.icmp(), packet.icmpv6());
    let link = (packet.ethernet(), packet.vlan(), packet.ether_type(), packet.arp());
    let v4 = packet.addresses_v4();
    let both = packet.src_ip().v4().zip(packet.dst_ip().v4()).filter(|_| packet.ip_version() == Some(IpVersion::V4));
    assert_eq!(v4, both);
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
        check(&spec, &Spec { ttl: !spec.ttl, ..spec.clone() }, |packet| packet.set_ttl(!spec.ttl));
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
        // Enough for the ports or the identifier and for every checksum before the payload; otherwise its change is not visible.
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
        let [mut one, mut other, mut known] = [(); 3].map(|()| testing::batch(std::slice::from_ref(&frame), Layout::bare()));
        for batch in [&mut one, &mut other, &mut known] {
            let mut packet = batch.packet(0, None);
            let (l3, l4) = (usize::from(packet.record().l3), packet.l4_offset());
            if let Some(ttl) = ttl {
                let at = l3 + if packet.record().flags.has(Flags::V6) { 7 } else { 8 };
                packet.change(at..at + 1).fill(ttl);
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
        // And the same if the end to be replaced is known in advance.
        let mut packet = known.packet(0, None);
        let (sent, came) = packet.ports().unwrap_or_default();
        let exchange = match side {
            Side::Source => Exchange::of_src((packet.src_ip(), sent), (address, port)),
            Side::Destination => Exchange::of_dst((packet.dst_ip(), came), (address, port)),
        };
        prop_assert_eq!(packet.exchange_if(&exchange, (|_, _| true, |_, _| true), |_| true), at_once);
        prop_assert_eq!(known.bytes(0), one.bytes(0));
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
        // Packet by packet, in any order, back to the mark; then the rest.
        for i in [1, 2, 0] {
            batch.restore(i, &mut undo, mark);
            prop_assert_eq!(state(&batch, i), at_mark[i].clone());
        }
        batch.restore_all(&mut undo, 0);
        prop_assert_eq!(all(&batch), before);
        prop_assert_eq!(undo.mark(), 0);
    }
}

#[test]
fn a_quoted_query_may_claim_to_end_before_its_header_does() {
    for (claimed, kind) in (20..28).flat_map(|claimed| [(claimed, 8), (claimed, 0)]) {
        let ip = |total: u8, ends: [[u8; 4]; 2]| {
            [&[0x45, 0, 0, total, 0, 1, 0, 0, 64, 1, 0, 0][..], ends.as_flattened()].concat()
        };
        // With a checksum of 0, which is right for these numbers or for none.
        let query = if kind == 8 { [8, 0, 0, 0, 0, 5, 0xf7, 0xfa] } else { [0; 8] };
        let quoted = [ip(claimed, [[198, 51, 100, 1], [192, 0, 2, 9]]), query.to_vec()].concat();
        let error = [ip(56, [[203, 0, 113, 1], [198, 51, 100, 1]]), vec![3, 1, 0, 0, 0, 0, 0, 0], quoted].concat();
        let frame = [&[2; 12][..], &[8, 0], &error].concat();
        let mut batch = testing::batch(&[(frame, Link::Ethernet)], Layout::bare());
        let id = u16::from_be_bytes([query[4], query[5]]);
        let mut packet = batch.packet(0, None);
        assert!(packet.embedded_mut().is_some_and(|mut quoted| quoted.set_icmp_id(id)), "{claimed}");
        assert_eq!(packet.bytes()[62..70], query, "{claimed}: what it claims is not believed");
    }
}
