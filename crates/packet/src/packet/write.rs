//! Setters of a packet, which keep every checksum right.
//!
//! Checksums are updated incrementally: a right one stays right and a wrong one stays wrong, so a damaged packet is not
//! repaired by accident. Setters return whether they succeeded; if not, nothing has changed.

use super::Packet;
use crate::address::{IpAddress, MacAddress};
use crate::checksum::{self, Change};
use crate::crc32c;
use crate::edit::{self, Headers, PLAIN, Side};
use crate::headers::{Ethernet, Header, Icmp, Icmpv6, Ipv4, Sctp, Tcp, Udp, Vlan};
use crate::parse::{is_tag, protocol};
use crate::record::{Flags, Link, Port};

/// Result of a translation that decrements the hop count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Translated {
    /// Everything was written.
    Done,
    /// The time to live or hop limit is used up, so the packet must not be forwarded. Nothing was written.
    Expired,
    /// The packet has no such port, or the address is of the other family. Nothing was written.
    Refused,
}

impl Packet<'_> {
    /// Returns the Ethernet header for modification.
    #[inline(always)]
    pub fn ethernet_mut(&mut self) -> Option<&mut Ethernet> {
        if self.link() != Link::Ethernet {
            return None;
        }
        let header: &mut [u8; Ethernet::LEN] = self.change_chunk(0)?;
        Some(Ethernet::parse_mut(header)?.into_fixed())
    }

    /// Returns the outermost VLAN tag for modification.
    #[inline(always)]
    pub fn vlan_mut(&mut self) -> Option<&mut Vlan> {
        let tagged = is_tag(self.ethernet()?.ether_type());
        let at = Ethernet::LEN..Ethernet::LEN + Vlan::LEN;
        if tagged { Some(Vlan::parse_mut(self.change(at))?.into_fixed()) } else { None }
    }

    /// Sets the Ethernet source address.
    #[inline(always)]
    pub fn set_eth_src(&mut self, address: MacAddress) -> bool {
        self.ethernet_mut().map(|ethernet| ethernet.set_source(address)).is_some()
    }

    /// Sets the Ethernet destination address.
    #[inline(always)]
    pub fn set_eth_dst(&mut self, address: MacAddress) -> bool {
        self.ethernet_mut().map(|ethernet| ethernet.set_destination(address)).is_some()
    }

    /// Sets the arrival port.
    #[inline]
    pub fn set_port(&mut self, port: Port) {
        self.save_record();
        self.record.port = port;
    }

    /// Decrements the time to live or hop limit. Returns `false`, and writes nothing, if it is used up: the packet must not
    /// be forwarded (RFC 1812 section 5.3.1, RFC 8200 section 3). Returns `true` for a packet that is not IP.
    #[inline(always)]
    pub fn decrement_ttl(&mut self) -> bool {
        let Some(ttl) = self.ttl() else { return true };
        if ttl <= 1 {
            return false;
        }
        self.write_ttl(ttl, ttl - 1);
        true
    }

    /// Sets the time to live or hop limit. Returns `false` for a packet that is not IP.
    pub fn set_ttl(&mut self, ttl: u8) -> bool {
        let before = self.ttl();
        before.into_iter().for_each(|before| self.write_ttl(before, ttl));
        before.is_some()
    }

    #[inline(always)]
    fn write_ttl(&mut self, before: u8, ttl: u8) {
        let l3 = self.record.l3 as usize;
        if self.record.flags.has(Flags::V6) {
            self.change(l3 + 7..l3 + 8).fill(ttl);
        } else if let Some([field, _, high, low]) = self.change_chunk(l3 + 8) {
            *field = ttl;
            // Updates the checksum for the 16-bit word that it shares with the protocol field, which does not change.
            let sum = Change::NONE.u16(u16::from(before) << 8, u16::from(ttl) << 8);
            [*high, *low] = sum.apply(u16::from_be_bytes([*high, *low])).to_be_bytes();
        }
    }

    #[inline(always)]
    fn edit(&mut self, edit: impl FnOnce(&mut [u8], Headers) -> Option<Change>) -> bool {
        let Some(at) = self.headers() else { return false };
        edit(self.change(0..at.end()), at).is_some()
    }

    /// Sets the source address; it must be of the packet's own family. In a fragment without the transport checksum, only the
    /// IP header changes: the first fragment must be translated too.
    #[inline(always)]
    pub fn set_src_ip(&mut self, address: IpAddress) -> bool {
        self.set_address(Side::Source, address)
    }

    /// Sets the destination address, like [`Packet::set_src_ip`].
    #[inline(always)]
    pub fn set_dst_ip(&mut self, address: IpAddress) -> bool {
        self.set_address(Side::Destination, address)
    }

    /// Sets the source port of TCP, UDP or SCTP. This fails for later fragments, and for any SCTP fragment, because SCTP's
    /// checksum depends on the length of the whole datagram.
    #[inline(always)]
    pub fn set_src_port(&mut self, port: u16) -> bool {
        self.edit(|frame, at| edit::set_port(frame, at, Side::Source, port))
    }

    /// Sets the destination port, like [`Packet::set_src_port`].
    #[inline(always)]
    pub fn set_dst_port(&mut self, port: u16) -> bool {
        self.edit(|frame, at| edit::set_port(frame, at, Side::Destination, port))
    }

    /// Lowers the maximum segment size option of a TCP segment to `most` (RFC 9293 section 3.7.1); for segments that open a
    /// connection. Returns `false`, and writes nothing, if the option is absent or not larger.
    pub fn lower_segment_size(&mut self, most: u16) -> bool {
        const OPTIONS_MAX: usize = 40;
        let Some(at) = self.headers() else { return false };
        edit::lower_segment_size(self.change(0..at.end() + OPTIONS_MAX), at, most).is_some()
    }

    /// Sets source address and source port with one update of the transport checksum. Returns `false`, and writes nothing, if
    /// the packet has no ports or the address is of the other family.
    #[inline(always)]
    pub fn set_src(&mut self, address: IpAddress, port: u16) -> bool {
        self.set_end(Side::Source, address, port)
    }

    /// Sets destination address and destination port, like [`Packet::set_src`].
    #[inline(always)]
    pub fn set_dst(&mut self, address: IpAddress, port: u16) -> bool {
        self.set_end(Side::Destination, address, port)
    }

    /// Does what a translating router does, with one update of each checksum: decrements the hop count, sets the source
    /// address and, if given, the source port. Equivalent to [`Packet::decrement_ttl`] followed by [`Packet::set_src`] or
    /// [`Packet::set_src_ip`], but all or nothing.
    #[inline(always)]
    pub fn translate_src(&mut self, address: IpAddress, port: Option<u16>) -> Translated {
        self.translate(Side::Source, address, port)
    }

    /// Translates destination address and destination port, like [`Packet::translate_src`].
    #[inline(always)]
    pub fn translate_dst(&mut self, address: IpAddress, port: Option<u16>) -> Translated {
        self.translate(Side::Destination, address, port)
    }

    /// Translates the source, like [`Packet::translate_src`], if a predicate accepts the packet. `plainly` is called with the
    /// result of [`Packet::plain`]; if it returns `false` or the packet is not plain, `otherwise` is called. If neither
    /// accepts the packet, the result is [`Translated::Refused`].
    #[inline(always)]
    pub fn translate_src_if(
        &mut self,
        end: (IpAddress, u16),
        plainly: impl FnOnce(&[u8; PLAIN], bool) -> bool,
        otherwise: impl FnOnce(&Packet<'_>) -> bool,
    ) -> Translated {
        self.translate_if(Side::Source, end, plainly, otherwise)
    }

    /// Translates the destination, like [`Packet::translate_src_if`].
    #[inline(always)]
    pub fn translate_dst_if(
        &mut self,
        end: (IpAddress, u16),
        plainly: impl FnOnce(&[u8; PLAIN], bool) -> bool,
        otherwise: impl FnOnce(&Packet<'_>) -> bool,
    ) -> Translated {
        self.translate_if(Side::Destination, end, plainly, otherwise)
    }

    #[inline(always)]
    fn translate_if(
        &mut self,
        side: Side,
        (address, port): (IpAddress, u16),
        plainly: impl FnOnce(&[u8; PLAIN], bool) -> bool,
        otherwise: impl FnOnce(&Packet<'_>) -> bool,
    ) -> Translated {
        if let Some(new) = address.v4()
            && let Some((at, udp)) = self.plain_at(Flags::FRAGMENT | Flags::LATER_FRAGMENT)
            && let Some(ip) = self.change_chunk(at)
            && plainly(ip, udp)
        {
            if ip[8] <= 1 {
                return Translated::Expired;
            }
            edit::set_plain(ip, side, udp, new, Some(port), 1);
            return Translated::Done;
        }
        self.out_of_line(|packet| match otherwise(packet) {
            true => packet.translate_slowly(side, address, Some(port)),
            false => Translated::Refused,
        })
    }

    #[inline(always)]
    pub(super) fn translate(&mut self, side: Side, address: IpAddress, port: Option<u16>) -> Translated {
        if let Some(new) = address.v4()
            && let Some((ip, udp)) = self.plain_mut()
        {
            if ip[8] <= 1 {
                return Translated::Expired;
            }
            edit::set_plain(ip, side, udp, new, port, 1);
            return Translated::Done;
        }
        self.out_of_line(|packet| packet.translate_slowly(side, address, port))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn translate_slowly(&mut self, side: Side, address: IpAddress, port: Option<u16>) -> Translated {
        if self.ttl().is_some_and(|ttl| ttl <= 1) {
            return Translated::Expired;
        }
        let set = match port {
            Some(port) => self.set_end_slowly(side, address, port),
            None => self.set_address_slowly(side, address),
        };
        if set && self.decrement_ttl() { Translated::Done } else { Translated::Refused }
    }

    /// Returns the bytes for [`edit::set_plain`] if the packet is plain, and whether it is UDP.
    #[inline(always)]
    fn plain_mut(&mut self) -> Option<(&mut [u8; PLAIN], bool)> {
        let (at, udp) = self.plain_at(Flags::LATER_FRAGMENT)?;
        Some((self.change_chunk(at)?, udp))
    }

    #[inline(always)]
    pub(super) fn set_end(&mut self, side: Side, address: IpAddress, port: u16) -> bool {
        if let Some(new) = address.v4()
            && let Some((ip, udp)) = self.plain_mut()
        {
            edit::set_plain(ip, side, udp, new, Some(port), 0);
            return true;
        }
        self.out_of_line(|packet| packet.set_end_slowly(side, address, port))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn set_end_slowly(&mut self, side: Side, address: IpAddress, port: u16) -> bool {
        self.edit(|frame, at| edit::set_end(frame, at, side, address, port))
    }

    #[inline(always)]
    pub(super) fn set_address(&mut self, side: Side, address: IpAddress) -> bool {
        if let Some(new) = address.v4()
            && let Some((ip, udp)) = self.plain_mut()
        {
            edit::set_plain(ip, side, udp, new, None, 0);
            return true;
        }
        self.out_of_line(|packet| packet.set_address_slowly(side, address))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn set_address_slowly(&mut self, side: Side, address: IpAddress) -> bool {
        self.edit(|frame, at| edit::set_address(frame, at, side, address))
    }

    /// Sets the identifier of an ICMP or ICMPv6 query or reply.
    #[inline]
    pub fn set_icmp_id(&mut self, id: u16) -> bool {
        self.edit(|frame, at| edit::set_icmp_id(frame, at, id))
    }

    /// Computes all checksums, for a packet that a function has built: IPv4 header, and TCP, UDP, ICMP, ICMPv6 or SCTP if the
    /// datagram is whole and unfragmented. The headers must have been parsed. Reads the whole packet.
    pub fn fill_checksums(&mut self) {
        let l3 = self.record.l3 as usize;
        if let Some(header_len) = self.ipv4().map(|ip| ip.header_len()) {
            let bytes = self.change(l3..l3 + header_len);
            if let Some(mut ip) = Ipv4::parse_mut(bytes) {
                ip.set_checksum(0);
            }
            let sum = checksum::ipv4_header(bytes);
            if let Some(mut ip) = Ipv4::parse_mut(bytes) {
                ip.set_checksum(sum);
            }
        }
        if self.is_ip() && !self.is_fragment() && !self.is_short() {
            self.fill_transport_checksum();
        }
    }

    fn fill_transport_checksum(&mut self) {
        let (Some(at), v6) = (self.l4_offset(), self.record.flags.has(Flags::V6)) else { return };
        let (header, field) = match self.protocol() {
            protocol::TCP => (Tcp::LEN, 16..18),
            protocol::UDP => (Udp::LEN, 6..8),
            protocol::ICMP if !v6 => (Icmp::LEN, 2..4),
            protocol::ICMPV6 if v6 => (Icmpv6::LEN, 2..4),
            protocol::SCTP => (Sctp::LEN, 8..12),
            _ => return,
        };
        if self.ip_payload().len() < header {
            return;
        }
        self.change(at..at + header)[field.clone()].fill(0);
        let bytes = self.ip_payload();
        let (sum, crc) = match self.protocol() {
            protocol::SCTP => (0, crc32c::sctp(bytes)),
            protocol::ICMP => (checksum::ipv4_header(bytes), 0),
            protocol::UDP => {
                (checksum::udp_zero(checksum::transport(self.src_ip(), self.dst_ip(), protocol::UDP, bytes)), 0)
            }
            number => (checksum::transport(self.src_ip(), self.dst_ip(), number, bytes), 0),
        };
        match &mut self.change(at..at + header)[field] {
            [high, low] => [*high, *low] = sum.to_be_bytes(),
            field => field.copy_from_slice(&crc.to_le_bytes()),
        }
    }
}
