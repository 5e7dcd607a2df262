//! The packet that an ICMP error quotes. A translator must translate it too, or its sender does not recognise it (RFC 5508
//! section 4.2, RFC 6146 section 3.4).
//!
//! The setters update the quoted IPv4 header checksum, the quoted transport checksum if it is among the quoted bytes, and the
//! checksum of the enclosing ICMP message.

use super::Packet;
use crate::address::IpAddress;
use crate::checksum::Change;
use crate::edit::{self, Headers, Side};
use crate::parse::{be16, protocol};

/// Fields of a quoted packet, as it travelled before the error.
#[derive(Clone, Copy, Debug)]
pub struct Embedded {
    /// Source address: the recipient of the error, unless the packet was translated.
    pub src_ip: IpAddress,
    /// Destination address.
    pub dst_ip: IpAddress,
    /// IP protocol number after IP header and extension headers.
    pub protocol: u8,
    /// Ports of TCP, UDP or SCTP, if quoted.
    pub ports: Option<(u16, u16)>,
    /// Identifier of an ICMP or ICMPv6 query or reply, if quoted.
    pub icmp_id: Option<u16>,
    /// Type of that query or reply.
    pub icmp_type: Option<u8>,
    at: Headers,
}

impl Embedded {
    fn new(frame: &[u8], outer: Headers) -> Option<Embedded> {
        let at = Headers::quoted(frame, outer.quoted_at(frame)?)?;
        let id_at = at.icmp_id_at(frame);
        Some(Embedded {
            src_ip: at.address(frame, Side::Source)?,
            dst_ip: at.address(frame, Side::Destination)?,
            protocol: at.proto,
            ports: at.ports(frame),
            icmp_id: id_at.and_then(|place| be16(frame, place)),
            icmp_type: id_at.map(|place| frame[place - 4]),
            at,
        })
    }

    /// Offset in the frame of the quoted transport header; `None` of a later fragment.
    pub fn l4_offset(&self) -> Option<usize> {
        self.at.transport()
    }
}

/// A quoted packet, for modification.
#[derive(Debug)]
pub struct EmbeddedMut<'p, 'a> {
    packet: &'p mut Packet<'a>,
    at: Headers,
    /// Offset of the checksum of the enclosing ICMP message.
    checksum: usize,
}

impl<'a> Packet<'a> {
    /// Returns the packet that this ICMP or ICMPv6 error quotes, if it is an error and the quoted IP header is complete.
    #[inline]
    pub fn embedded(&self) -> Option<Embedded> {
        // Nearly no packet is ICMP, and the protocol is already known.
        let may_quote = matches!(self.protocol(), protocol::ICMP | protocol::ICMPV6);
        if may_quote { self.quoted() } else { None }
    }

    #[inline(never)]
    fn quoted(&self) -> Option<Embedded> {
        Embedded::new(self.bytes(), self.headers()?)
    }

    /// Returns the quoted packet for modification.
    pub fn embedded_mut(&mut self) -> Option<EmbeddedMut<'_, 'a>> {
        let outer = self.headers()?;
        let at = self.embedded()?.at;
        let checksum = outer.transport()? + 2;
        Some(EmbeddedMut { packet: self, at, checksum })
    }
}

impl EmbeddedMut<'_, '_> {
    fn edit(&mut self, edit: impl FnOnce(&mut [u8], Headers) -> Option<Change>) -> bool {
        let frame = self.packet.change(0..self.at.end());
        let Some(change) = edit(frame, self.at) else { return false };
        edit::update_checksum(frame, self.checksum, false, change);
        true
    }

    /// Returns the current fields.
    pub fn read(&self) -> Option<Embedded> {
        self.packet.embedded()
    }

    /// Sets the quoted source address; it must be of the quoted packet's own family.
    pub fn set_src_ip(&mut self, address: IpAddress) -> bool {
        self.edit(|frame, at| edit::set_address(frame, at, Side::Source, address))
    }

    /// Sets the quoted destination address; it must be of the quoted packet's own family.
    pub fn set_dst_ip(&mut self, address: IpAddress) -> bool {
        self.edit(|frame, at| edit::set_address(frame, at, Side::Destination, address))
    }

    /// Sets the quoted source port.
    pub fn set_src_port(&mut self, port: u16) -> bool {
        self.edit(|frame, at| edit::set_port(frame, at, Side::Source, port))
    }

    /// Sets the quoted destination port.
    pub fn set_dst_port(&mut self, port: u16) -> bool {
        self.edit(|frame, at| edit::set_port(frame, at, Side::Destination, port))
    }

    /// Sets quoted source address and source port together; both must be quoted.
    pub fn set_src(&mut self, address: IpAddress, port: u16) -> bool {
        self.edit(|frame, at| edit::set_end(frame, at, Side::Source, address, port))
    }

    /// Sets quoted destination address and destination port together; both must be quoted.
    pub fn set_dst(&mut self, address: IpAddress, port: u16) -> bool {
        self.edit(|frame, at| edit::set_end(frame, at, Side::Destination, address, port))
    }

    /// Adds `by` to the quoted TCP sequence number.
    pub fn shift_sequence(&mut self, by: u32) -> bool {
        self.edit(|frame, at| edit::shift_number(frame, at, 4, by))
    }

    /// Adds `by` to the quoted TCP acknowledgement number, if it is quoted.
    pub fn shift_acknowledgement(&mut self, by: u32) -> bool {
        self.edit(|frame, at| edit::shift_number(frame, at, 8, by))
    }

    /// Sets the quoted identifier.
    pub fn set_icmp_id(&mut self, id: u16) -> bool {
        self.edit(|frame, at| edit::set_icmp_id(frame, at, id))
    }
}
