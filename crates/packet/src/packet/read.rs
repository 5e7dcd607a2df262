//! Accessors of a packet.

use super::Packet;
use crate::address::IpAddress;
use crate::checksum;
use crate::crc32c;
use crate::edit::{Headers, PLAIN, Side};
use crate::headers::{
    Arp, Ethernet, Header, Icmp, Icmpv6, Ipv4, Ipv6, Sctp, Tcp, Udp, View, Vlan, VlanTags, ether_type,
};
use crate::parse::{be16, protocol};
use crate::record::{Flags, Link, Record};

/// IP version of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpVersion {
    /// Both, in order.
    pub const BOTH: [IpVersion; 2] = [IpVersion::V4, IpVersion::V6];

    /// The length of an address, in bits.
    #[inline(always)]
    pub const fn address_bits(self) -> u32 {
        match self {
            IpVersion::V4 => 32,
            IpVersion::V6 => 128,
        }
    }

    /// The length of a header without options or extension headers, in bytes.
    #[inline(always)]
    pub const fn header_len(self) -> usize {
        match self {
            IpVersion::V4 => Ipv4::LEN,
            IpVersion::V6 => Ipv6::LEN,
        }
    }

    /// The other version, to which this one is translated.
    #[inline(always)]
    pub const fn other(self) -> IpVersion {
        match self {
            IpVersion::V4 => IpVersion::V6,
            IpVersion::V6 => IpVersion::V4,
        }
    }
}

impl Packet<'_> {
    /// Returns the link type.
    #[inline(always)]
    pub fn link(&self) -> Link {
        self.record.flags.link()
    }

    /// Returns the number of bytes present.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.record.len as usize
    }

    /// Returns the wire length in bytes: more than are present if a capture has cut the frame. Chains that read captures carry it; elsewhere it
    /// is the number of bytes present, unless a function of the chain declares that it reads the field `wire_len`.
    #[inline(always)]
    pub fn wire_len(&self) -> u32 {
        match self.among_cuts {
            true => self.meta(self.metas.layout().wire_len),
            false => self.record.len,
        }
    }

    /// Returns the time stamp in nanoseconds since the source's epoch, 0 if the chain does not carry it.
    #[inline(always)]
    pub fn timestamp_ns(&self) -> u64 {
        self.meta(self.metas.layout().timestamp)
    }

    /// Returns the packet's number in the source, 0 if the chain does not carry it.
    #[inline(always)]
    pub fn sequence(&self) -> u64 {
        self.meta(self.metas.layout().sequence)
    }

    /// Returns whether a complete IP header was found.
    #[inline(always)]
    pub fn is_ip(&self) -> bool {
        self.record.flags.has(Flags::IP)
    }

    /// Returns the version of the IP header.
    #[inline(always)]
    pub fn ip_version(&self) -> Option<IpVersion> {
        let v6 = self.record.flags.has(Flags::V6);
        self.is_ip().then_some(if v6 { IpVersion::V6 } else { IpVersion::V4 })
    }

    /// Returns whether the packet is a fragment.
    #[inline(always)]
    pub fn is_fragment(&self) -> bool {
        self.record.flags.has(Flags::FRAGMENT)
    }

    /// Returns whether the packet is not a fragment and no bytes of it are missing.
    #[inline(always)]
    pub fn is_whole(&self) -> bool {
        !self.record.flags.has(Flags::FRAGMENT | Flags::SHORT)
    }

    /// Returns whether the packet is a fragment other than the first, so that it has no transport header.
    #[inline(always)]
    pub fn is_later_fragment(&self) -> bool {
        self.record.flags.has(Flags::LATER_FRAGMENT)
    }

    /// Returns whether bytes are missing: cut by a snap length, or a length field exceeds what is present.
    #[inline(always)]
    pub fn is_short(&self) -> bool {
        self.record.flags.has(Flags::SHORT)
    }

    /// Returns whether the source reported more bytes on the wire than are present, as a capture with a snap length does; `false` if the chain
    /// does not carry the wire length.
    #[inline(always)]
    pub fn is_cut(&self) -> bool {
        self.wire_len() > self.record.len
    }

    /// Returns whether the length in the IP header does not fit the frame, although the frame is present in full: such a packet lost
    /// bytes on its way, or lies (RFC 1812 section 5.2.2; `IPSTATS_MIB_INTRUNCATEDPKTS` of Linux). Needs the wire length.
    #[inline(always)]
    pub fn is_truncated(&self) -> bool {
        self.record.flags.has(Flags::SHORT) && self.is_ip() && !self.is_cut()
    }

    /// Returns the Ethernet header.
    #[inline(always)]
    pub fn ethernet(&self) -> Option<&Ethernet> {
        if self.link() != Link::Ethernet {
            return None;
        }
        Some(Ethernet::parse(self.bytes())?.fixed())
    }

    /// Returns the outermost VLAN tag.
    #[inline(always)]
    pub fn vlan(&self) -> Option<&Vlan> {
        Some(self.vlans().next()?.fixed())
    }

    /// Returns the VLAN tags, outermost first.
    #[inline]
    pub fn vlans(&self) -> VlanTags<'_> {
        let bytes = self.bytes();
        let (kind, at) = match self.link() {
            Link::Ethernet => (be16(bytes, 12), 14),
            Link::Cooked1 => (be16(bytes, 14), 16),
            Link::Cooked2 => (be16(bytes, 0), 20),
            _ => (None, 0),
        };
        VlanTags::new(kind.unwrap_or(0), bytes.get(at..).unwrap_or_default())
    }

    /// Returns the Ethernet type after the VLAN tags; `None` if the link has no such types.
    #[inline]
    pub fn ether_type(&self) -> Option<u16> {
        let untagged = self.ethernet().map(Ethernet::ether_type);
        self.vlans().last().map(|tag| tag.ether_type()).or(untagged)
    }

    /// Returns the ARP packet for IPv4 over Ethernet.
    #[inline]
    pub fn arp(&self) -> Option<&Arp> {
        let mut at = Ethernet::LEN;
        let mut kind = self.ethernet()?.ether_type();
        for tag in self.vlans() {
            (kind, at) = (tag.ether_type(), at + Vlan::LEN);
        }
        if kind != ether_type::ARP {
            return None;
        }
        Some(Arp::parse(self.bytes().get(at..)?)?.fixed())
    }

    /// Returns the bytes from the IP header on.
    #[inline(always)]
    fn at_ip(&self) -> Option<&[u8]> {
        if self.is_ip() { self.bytes().get(self.record.l3 as usize..) } else { None }
    }

    /// Returns the IPv4 header; `None` if its options are cut.
    #[inline(always)]
    pub fn ipv4(&self) -> Option<View<'_, Ipv4>> {
        Ipv4::parse(self.at_ip()?)
    }

    /// Returns the IPv6 header.
    #[inline(always)]
    pub fn ipv6(&self) -> Option<View<'_, Ipv6>> {
        Ipv6::parse(self.at_ip()?)
    }

    #[inline(always)]
    pub(super) fn headers(&self) -> Option<Headers> {
        Headers::outer(self.record)
    }

    /// Returns the source address; [`IpAddress::UNSPECIFIED`] if the packet is not IP.
    #[inline(always)]
    pub fn src_ip(&self) -> IpAddress {
        self.headers().and_then(|at| at.address(self.bytes(), Side::Source)).unwrap_or_default()
    }

    /// Returns the destination address; [`IpAddress::UNSPECIFIED`] if the packet is not IP.
    #[inline(always)]
    pub fn dst_ip(&self) -> IpAddress {
        self.headers().and_then(|at| at.address(self.bytes(), Side::Destination)).unwrap_or_default()
    }

    /// Returns source and destination address of an IPv4 packet, in network byte order.
    #[inline(always)]
    pub fn addresses_v4(&self) -> Option<([u8; 4], [u8; 4])> {
        let ip = self.at_ip().filter(|_| !self.record.flags.has(Flags::V6))?;
        let both: &[u8; 8] = ip.get(12..)?.first_chunk()?;
        both.first_chunk().copied().zip(both.last_chunk().copied())
    }

    /// Returns the IP protocol number after the IP header and its extension headers; 0 if the packet is not IP.
    #[inline(always)]
    pub fn protocol(&self) -> u8 {
        self.record.proto
    }

    /// Returns source and destination port of TCP, UDP or SCTP; `None` for later fragments and if the ports are cut.
    #[inline(always)]
    pub fn ports(&self) -> Option<(u16, u16)> {
        self.headers()?.ports(self.bytes())
    }

    /// Returns the time to live or hop limit.
    #[inline(always)]
    pub fn ttl(&self) -> Option<u8> {
        let at = if self.record.flags.has(Flags::V6) { 7 } else { 8 };
        self.at_ip()?.get(at).copied()
    }

    /// Returns the offset of the transport header from the frame's first byte; `None` for later fragments. It may lie beyond
    /// the end.
    #[inline(always)]
    pub fn l4_offset(&self) -> Option<usize> {
        self.headers()?.transport()
    }

    /// Like [`l4_offset`](Self::l4_offset), but `None` also if bytes of the packet are missing.
    #[inline(always)]
    pub fn l4_offset_if_present(&self) -> Option<usize> {
        let (record, mask) = (&self.record, Flags::IP | Flags::LATER_FRAGMENT | Flags::SHORT);
        let at = usize::from(record.l3) + usize::from(record.l4) * 4;
        (record.flags.0 & mask == Flags::IP && record.l4 != 0).then_some(at)
    }

    /// Returns the first `N` bytes of the IP header and what follows, if all are present; for a packet that is not IP, of the frame.
    #[inline(always)]
    pub fn ip_chunk<const N: usize>(&self) -> Option<&[u8; N]> {
        self.chunk(self.record.l3.into())
    }

    #[inline(always)]
    fn chunk<const N: usize>(&self, at: usize) -> Option<&[u8; N]> {
        if at + N > self.record.len as usize {
            return None;
        }
        self.room.get(usize::from(self.record.start) + at..)?.first_chunk()
    }

    /// Returns the bytes from the transport header on, if its protocol is `number`.
    #[inline(always)]
    fn at_transport(&self, number: u8) -> Option<&[u8]> {
        if self.protocol() == number { self.bytes().get(self.l4_offset()?..) } else { None }
    }

    /// Returns the IP header and the 20 bytes after it of a *plain* packet, and whether it is UDP. Plain packets, the most
    /// common kind, are unfragmented TCP or UDP over IPv4 without options. `None` for all others, or if these bytes are not present.
    #[inline(always)]
    pub fn plain(&self) -> Option<(&[u8; PLAIN], bool)> {
        let (at, udp) = self.plain_at(Flags::FRAGMENT | Flags::LATER_FRAGMENT)?;
        Some((self.bytes().get(at..)?.first_chunk()?, udp))
    }

    /// Returns the IPv4 and UDP headers of an unfragmented packet without IPv4 options or Ethernet tags, as nearly all
    /// datagrams have.
    #[inline(always)]
    pub fn plainest_udp(&self) -> Option<&[u8; 28]> {
        if self.record.parsed() == Record::PLAINEST_UDP { self.chunk(14) } else { None }
    }

    /// Returns the offset of a plain packet's IP header, and whether the packet is UDP. For untagged Ethernet, which is
    /// nearly all traffic, this takes one comparison.
    #[inline(always)]
    pub(super) fn plain_at(&self, pieces: u8) -> Option<(usize, bool)> {
        match self.record.parsed() {
            Record::PLAINEST_UDP => Some((14, true)),
            Record::PLAINEST_TCP => Some((14, false)),
            _ => self.less_plain_at(pieces),
        }
    }

    /// A packet of which bytes are missing is not plain. This reads the record alone, so that the packet of a loop stays in registers.
    #[cold]
    fn less_plain_at(&self, pieces: u8) -> Option<(usize, bool)> {
        Some((self.record.l3.into(), self.is_plain_udp(pieces | Flags::SHORT)?))
    }

    /// For TCP or UDP over IPv4 without options, returns whether the packet is UDP; `None` for all others, and for fragments
    /// with one of the flags in `pieces`.
    fn is_plain_udp(&self, pieces: u8) -> Option<bool> {
        // The header length in words (five) and the protocol, compared together as one 16-bit word.
        const TCP: u16 = u16::from_le_bytes([5, protocol::TCP]);
        const UDP: u16 = u16::from_le_bytes([5, protocol::UDP]);
        let kind = u16::from_le_bytes([self.record.l4, self.record.proto]);
        let flags = self.record.flags.0 & (Flags::IP | Flags::V6 | pieces);
        (flags == Flags::IP && (kind == UDP || kind == TCP)).then_some(kind == UDP)
    }

    /// For TCP or UDP over IPv6 without extension headers, returns whether the packet is UDP; `None` for all others, and if bytes are
    /// missing.
    #[inline(always)]
    pub(super) fn is_plain_v6_udp(&self) -> Option<bool> {
        const TCP: u32 = Record::found(0, 10, protocol::TCP, Flags::IP | Flags::V6);
        const UDP: u32 = Record::found(0, 10, protocol::UDP, Flags::IP | Flags::V6);
        const MASK: u32 = Record::found(0, 0xff, 0xff, Flags::IP | Flags::V6 | Flags::FRAGMENT | Flags::SHORT);
        let found = self.record.parsed() & MASK;
        (found == UDP || found == TCP).then_some(found == UDP)
    }

    /// Returns the TCP header; `None` if it or its options are incomplete.
    #[inline(always)]
    pub fn tcp(&self) -> Option<View<'_, Tcp>> {
        Tcp::parse(self.at_transport(protocol::TCP)?)
    }

    /// Returns the UDP header.
    #[inline(always)]
    pub fn udp(&self) -> Option<View<'_, Udp>> {
        Udp::parse(self.at_transport(protocol::UDP)?)
    }

    /// Returns the SCTP common header.
    #[inline(always)]
    pub fn sctp(&self) -> Option<View<'_, Sctp>> {
        Sctp::parse(self.at_transport(protocol::SCTP)?)
    }

    /// Returns the ICMP header of an IPv4 packet.
    #[inline(always)]
    pub fn icmp(&self) -> Option<View<'_, Icmp>> {
        let bytes = self.at_transport(protocol::ICMP)?;
        if self.record.flags.has(Flags::V6) { None } else { Icmp::parse(bytes) }
    }

    /// Returns the ICMPv6 header of an IPv6 packet.
    #[inline(always)]
    pub fn icmpv6(&self) -> Option<View<'_, Icmpv6>> {
        let bytes = self.at_transport(protocol::ICMPV6)?;
        if self.record.flags.has(Flags::V6) { Icmpv6::parse(bytes) } else { None }
    }

    /// Returns the identifier of an ICMP or ICMPv6 query or reply.
    #[inline]
    pub fn icmp_id(&self) -> Option<u16> {
        be16(self.bytes(), self.headers()?.icmp_id_at(self.bytes())?)
    }

    /// Returns the TCP control bits; `None` if they are cut.
    #[inline(always)]
    pub fn tcp_flags(&self) -> Option<u8> {
        self.at_transport(protocol::TCP)?.get(13).copied()
    }

    /// Returns the payload of the IP packet after its extension headers, without link padding; cut to what is present.
    #[inline]
    pub fn ip_payload(&self) -> &[u8] {
        let Some(at) = self.record.l4_offset() else { return &[] };
        let (l3, bytes) = (self.record.l3 as usize, self.bytes());
        let v6 = self.record.flags.has(Flags::V6);
        let promised =
            if v6 { be16(bytes, l3 + 4).map(|n| n as usize + 40) } else { be16(bytes, l3 + 2).map(usize::from) };
        let end = (l3 + promised.unwrap_or(0)).min(bytes.len());
        bytes.get(at..end).unwrap_or_default()
    }

    /// Returns the payload of the transport protocol, without link padding; cut to what is present. For later fragments and
    /// for protocols other than TCP, UDP, SCTP and ICMP this is the whole IP payload; it is empty if the packet is not IP.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let bytes = self.ip_payload();
        if self.is_later_fragment() {
            return bytes;
        }
        let header = match self.protocol() {
            protocol::TCP => bytes.get(12).map_or(20, |offset| usize::from(offset >> 4) * 4).max(20),
            protocol::UDP | protocol::ICMP | protocol::ICMPV6 => 8,
            protocol::SCTP => 12,
            _ => 0,
        };
        bytes.get(header..).unwrap_or_default()
    }

    /// Returns whether the IPv4 header is complete and its checksum right; in IPv6 there is none.
    #[inline(always)]
    pub fn header_checksum_ok(&self) -> bool {
        let Some(len) = self.ipv4().map(|ip| ip.header_len()) else { return true };
        let at = usize::from(self.record.l3);
        self.bytes().get(at..at + len).is_some_and(checksum::ipv4_header_ok)
    }

    /// Returns whether every verifiable checksum is right: IPv4 header, and TCP, UDP, ICMP, ICMPv6 or SCTP if the datagram is
    /// whole. A checksum that is absent (zero in UDP), cut or fragmented counts as right. Reads the whole packet.
    pub fn checksums_ok(&self) -> bool {
        if !self.header_checksum_ok() {
            return false;
        }
        if self.is_fragment() || self.is_short() || !self.is_ip() {
            return true;
        }
        let (bytes, v6) = (self.ip_payload(), self.record.flags.has(Flags::V6));
        let over_addresses = || checksum::transport_ok(self.src_ip(), self.dst_ip(), self.protocol(), bytes);
        match self.protocol() {
            protocol::TCP if bytes.len() >= Tcp::LEN => over_addresses(),
            protocol::UDP => Udp::parse(bytes).is_none_or(|udp| udp.checksum() == 0 || over_addresses()),
            protocol::ICMP if !v6 && bytes.len() >= Icmp::LEN => checksum::ipv4_header_ok(bytes),
            protocol::ICMPV6 if v6 && bytes.len() >= Icmpv6::LEN => over_addresses(),
            protocol::SCTP => Sctp::parse(bytes).is_none_or(|sctp| sctp.checksum() == crc32c::sctp(bytes)),
            _ => true,
        }
    }
}
