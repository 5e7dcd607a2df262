//! Tests of each header type: what it reads, writes and rejects.

use etherparse::{ArpHardwareId, EtherType, IpNumber};
use proptest::prelude::*;

use super::*;
use crate::address::{IpAddress, MacAddress};

/// Calls every accessor and every setter of a header.
fn exercise<H: Header + std::fmt::Debug>(bytes: &[u8], read: impl Fn(View<'_, H>) -> usize, write: impl Fn(&mut H)) {
    if let Some(view) = H::parse(bytes) {
        assert_eq!(view.header_len() + view.payload().len(), bytes.len());
        read(view);
    }
    let mut copy = bytes.to_vec();
    if let Some(mut view) = H::parse_mut(&mut copy) {
        write(&mut view);
        view.variable_mut().fill(0);
        view.payload_mut().fill(0);
    }
    assert_eq!(copy.len(), bytes.len());
}

fn show(value: impl std::fmt::Debug) -> usize {
    format!("{value:?}").len()
}

fn every_header(bytes: &[u8], n: u32) {
    let (byte, half) = (n as u8, n as u16);
    exercise::<Ethernet>(
        bytes,
        |h| show((h.source(), h.destination(), h.ether_type(), h.is_8023())),
        |h| h.set_ether_type(half),
    );
    let tags =
        |h: View<'_, Vlan>| show((h.id(), h.priority(), h.drop_eligible(), VlanTags::new(0x8100, bytes).count()));
    exercise::<Vlan>(bytes, tags, |h| (h.set_id(half), h.set_priority(byte), h.set_ether_type(half)).0);
    let stack =
        |h: View<'_, Mpls>| show((h.label(), h.traffic_class(), h.is_bottom(), h.ttl(), MplsStack::new(bytes).count()));
    exercise::<Mpls>(bytes, stack, |h| {
        (h.set_label(n), h.set_ttl(byte), h.set_traffic_class(byte), h.set_bottom(n & 1 == 1)).0
    });
    exercise::<Pppoe>(bytes, |h| show((h.code(), h.session(), h.length(), h.ppp_protocol())), |h| h.set_code(byte));
    let arp = |h: View<'_, Arp>| show((h.operation(), h.sender_mac(), h.sender_ip(), h.target_mac(), h.target_ip()));
    exercise::<Arp>(bytes, arp, |h| h.set_operation(ArpOperation::Other(half)));
    let ipv4 =
        |h: View<'_, Ipv4>| show((h.options().collect::<Vec<_>>(), h.source(), h.fragment_offset(), h.total_len()));
    exercise::<Ipv4>(bytes, ipv4, |h| (h.set_fragment(true, false, half), h.set_total_len(half)).0);
    let ipv6 = |h: View<'_, Ipv6>| {
        let mut extensions = h.extensions();
        let all: Vec<_> = extensions.by_ref().map(|extension| (extension, extension.fragment())).collect();
        show((all, extensions.upper(), h.flow_label(), h.traffic_class()))
    };
    exercise::<Ipv6>(bytes, ipv6, |h| (h.set_flow_label(n), h.set_traffic_class(byte)).0);
    let tcp =
        |h: View<'_, Tcp>| show((h.options().collect::<Vec<_>>(), h.flags(), h.window(), h.urgent(), h.sequence()));
    exercise::<Tcp>(bytes, tcp, |h| (h.set_flags(byte), h.set_sequence(n), h.set_window(half)).0);
    exercise::<Udp>(bytes, |h| show((h.source_port(), h.destination_port(), h.length())), |h| h.set_length(half));
    exercise::<Icmp>(bytes, |h| show((h.kind(), h.code(), h.id(), h.is_error())), |h| h.set_kind(byte, byte));
    exercise::<Icmpv6>(bytes, |h| show((h.kind(), h.code(), h.id(), h.is_error())), |h| h.set_rest(n));
    exercise::<Sctp>(bytes, |h| show((h.verification_tag(), h.checksum())), |h| h.set_checksum(n));
    exercise::<Gre>(
        bytes,
        |h| show((h.protocol(), h.checksum(), h.key(), h.sequence())),
        |h| h.set_present(true, true, true),
    );
    exercise::<Vxlan>(bytes, |h| show(h.vni()), |h| h.set_vni(n));
    let gtp = |h: View<'_, GtpU>| show((h.teid(), h.sequence(), h.n_pdu(), h.extensions().collect::<Vec<_>>()));
    exercise::<GtpU>(bytes, gtp, |h| (h.set_teid(n), h.set_message(byte)).0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn no_accessor_panics_on_any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..200), first: u8, n: u32) {
        every_header(&bytes, n);
        // First bytes that reach deeper code than most random ones.
        let leads = [0x45, 0x46, 0x4f, 0x60, 0x30, 0x34, 0x37, 0x11, 0xb0, 0x08];
        if let Some(place) = bytes.first_mut() {
            *place = leads[usize::from(first) % leads.len()];
        }
        every_header(&bytes, n);
    }

    #[test]
    fn ethernet_and_vlan_agree_with_etherparse(source: [u8; 6], destination: [u8; 6], kind: u16, id in 0u16..4096, pcp in 0u8..8) {
        let outer = etherparse::Ethernet2Header { source, destination, ether_type: EtherType(kind) };
        let bytes = outer.to_bytes();
        let ours = Ethernet::parse(&bytes).unwrap();
        prop_assert_eq!((ours.source(), ours.destination(), ours.ether_type()), (MacAddress(source), MacAddress(destination), kind));
        let mut theirs = etherparse::SingleVlanHeader { ether_type: EtherType(kind), ..Default::default() };
        theirs.vlan_id = id.try_into().unwrap();
        theirs.pcp = pcp.try_into().unwrap();
        let mut written = [0; 4];
        let mut ours = Vlan::default();
        ours.set_id(id); ours.set_priority(pcp); ours.set_ether_type(kind);
        prop_assert!(ours.emit(&mut written));
        prop_assert_eq!(written, theirs.to_bytes());
        prop_assert!(!ours.emit(&mut written[..3]));
    }

    #[test]
    fn ipv4_agrees_with_etherparse(
        source: [u8; 4], destination: [u8; 4], ids: (u16, u8, u8), offset in 0u16..0x2000, bits: (bool, bool), words in 0usize..=10,
    ) {
        let mut theirs = etherparse::Ipv4Header::new(100, ids.1, IpNumber(ids.2), source, destination).unwrap();
        theirs.identification = ids.0;
        theirs.fragment_offset = offset.try_into().unwrap();
        (theirs.dont_fragment, theirs.more_fragments) = bits;
        theirs.options = vec![1; words * 4][..].try_into().unwrap();
        theirs.header_checksum = theirs.calc_header_checksum();
        let bytes = theirs.to_bytes();
        let ours = Ipv4::parse(&bytes).unwrap();
        prop_assert_eq!(ours.header_len(), bytes.len());
        prop_assert_eq!(ours.options().count(), words * 4);
        prop_assert_eq!((ours.source(), ours.destination()), (IpAddress::from_v4(source), IpAddress::from_v4(destination)));
        prop_assert_eq!((ours.identification(), ours.ttl(), ours.protocol()), ids);
        prop_assert_eq!((ours.dont_fragment(), ours.more_fragments(), ours.fragment_offset()), (bits.0, bits.1, offset << 3));
        prop_assert!(crate::checksum::ipv4_header_ok(&bytes));
        let mut written = Ipv4::new(ids.2, 100);
        written.set_identification(ids.0); written.set_ttl(ids.1); written.set_fragment(bits.0, bits.1, offset << 3);
        written.set_source(source); written.set_destination(destination);
        if words == 0 {
            written.set_checksum(theirs.header_checksum);
            prop_assert_eq!(zerocopy::IntoBytes::as_bytes(&written), &bytes[..]);
        }
        prop_assert!(words == 0 || Ipv4::parse(&bytes[..bytes.len() - 1]).is_none());
    }

    #[test]
    fn ipv6_agrees_with_etherparse(source: [u8; 16], destination: [u8; 16], class: u8, label in 0u32..0x10_0000, rest: (u16, u8, u8)) {
        let theirs = etherparse::Ipv6Header {
            traffic_class: class,
            flow_label: label.try_into().unwrap(),
            payload_length: rest.0,
            next_header: IpNumber(rest.1),
            hop_limit: rest.2,
            source,
            destination,
        };
        let mut ours = Ipv6::new(rest.1, rest.0);
        ours.set_traffic_class(class); ours.set_flow_label(label); ours.set_hop_limit(rest.2);
        ours.set_source(source); ours.set_destination(destination);
        let bytes = theirs.to_bytes();
        prop_assert_eq!(zerocopy::IntoBytes::as_bytes(&ours), &bytes[..]);
        let ours = Ipv6::parse(&bytes).unwrap();
        prop_assert_eq!((ours.traffic_class(), ours.flow_label()), (class, label));
    }

    #[test]
    fn tcp_options_agree_with_etherparse(mss: u16, shift: u8, stamps: (u32, u32), flags in 0u8..=255) {
        use etherparse::TcpOptionElement as Theirs;
        let mut theirs = etherparse::TcpHeader::new(1, 2, 3, 4);
        let options = [Theirs::MaximumSegmentSize(mss), Theirs::WindowScale(shift), Theirs::SelectiveAcknowledgementPermitted,
            Theirs::Timestamp(stamps.0, stamps.1), Theirs::Noop];
        theirs.set_options(&options).unwrap();
        let mut bytes = theirs.to_bytes().to_vec();
        bytes[13] = flags;
        let ours = Tcp::parse(&bytes).unwrap();
        prop_assert_eq!((ours.source_port(), ours.destination_port(), ours.sequence(), ours.window()), (1, 2, 3, 4));
        prop_assert_eq!(ours.flags(), flags);
        let expected = [TcpOption::MaximumSegment(mss), TcpOption::WindowScale(shift), TcpOption::SackPermitted,
            TcpOption::Timestamps(stamps.0, stamps.1), TcpOption::NoOperation];
        prop_assert_eq!(ours.options().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn arp_agrees_with_etherparse(macs: ([u8; 6], [u8; 6]), ips: ([u8; 4], [u8; 4]), operation: u16) {
        let theirs = etherparse::ArpPacket::new(
            ArpHardwareId::ETHERNET, EtherType::IPV4, etherparse::ArpOperation(operation), &macs.0, &ips.0, &macs.1, &ips.1,
        ).unwrap().to_bytes();
        let mut ours = Arp::new(ArpOperation::Other(operation));
        ours.set_sender(MacAddress(macs.0), ips.0); ours.set_target(MacAddress(macs.1), ips.1);
        prop_assert_eq!(zerocopy::IntoBytes::as_bytes(&ours), &theirs[..]);
        prop_assert_eq!(Arp::parse(&theirs).unwrap().target_ip(), IpAddress::from_v4(ips.1));
    }
}

#[test]
fn gre_fields_stand_in_their_order() {
    let bytes = [0xb0, 0, 0x08, 0, 0x12, 0x34, 0, 0, 0, 0, 0, 7, 0, 0, 0, 9, 0xaa];
    let gre = Gre::parse(&bytes).unwrap();
    assert_eq!(
        (gre.checksum(), gre.key(), gre.sequence(), gre.payload()),
        (Some(0x1234), Some(7), Some(9), &[0xaa][..])
    );
    assert!(Gre::parse(&bytes[..15]).is_none());
    assert!(Gre::parse(&[0, 1, 0x88, 0x0b]).is_none());
}

#[test]
fn gtp_extension_headers_are_walked() {
    let bytes = [0x36, 255, 0, 9, 0, 0, 0, 5, 0x12, 0x34, 0, 0x85, 1, 0x10, 9, 0xc0, 1, 2, 3, 0, 0x45];
    let gtp = GtpU::parse(&bytes).unwrap();
    assert_eq!((gtp.teid(), gtp.sequence(), gtp.n_pdu(), gtp.payload()), (5, Some(0x1234), None, &[0x45][..]));
    let extensions: Vec<_> = gtp.extensions().map(|extension| (extension.kind, extension.content.to_vec())).collect();
    assert_eq!(extensions, [(0x85, vec![0x10, 9]), (0xc0, vec![2, 3])]);
    assert_eq!(GtpU::parse(&GtpU::new(9, 0).into_array()).unwrap().header_len(), 8);
    // A length of zero would never end.
    assert!(GtpU::parse(&[0x34, 255, 0, 4, 0, 0, 0, 5, 0, 0, 0, 0x85, 0, 0, 0, 0x85]).is_none());
}

impl GtpU {
    fn into_array(self) -> [u8; 8] {
        zerocopy::transmute!(self)
    }
}

#[test]
fn an_mpls_stack_ends_at_its_bottom() {
    let labels: Vec<u32> =
        MplsStack::new(&[0, 1, 0, 64, 0, 2, 1, 64, 0, 3, 1, 64]).map(|entry| entry.label()).collect();
    assert_eq!(labels, [16, 32]);
}

#[test]
fn a_malformed_option_ends_the_list() {
    let header = [0x46, 0, 0, 24, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let options = |bytes: [u8; 4]| Ipv4::parse(&[&header[..], &bytes].concat()).unwrap().options().count();
    assert_eq!(options([1, 1, 0, 1]), 2);
    assert_eq!(options([7, 3, 4, 1]), 2);
    assert_eq!(options([7, 9, 4, 1]), 0);
    assert_eq!(options([7, 0, 4, 1]), 0);
    assert_eq!(options([7, 1, 4, 1]), 0);
}
