//! The packet that an ICMP error quotes. A translator must translate it too, or its sender does not recognise it
//! (RFC 5508 section 4.2, RFC 6146 section 3.4).
//!
//! The setters keep right: the quoted IPv4 header checksum, the quoted transport checksum if it is among the quoted bytes, and
//! the checksum of the ICMP message around it.

use super::Packet;
use crate::address::IpAddress;
use crate::checksum::Change;
use crate::edit::{self, Headers, Side};
use crate::parse::{be16, protocol};

/// What a quoted packet says, as it travelled before the error.
#[derive(Clone, Copy, Debug)]
pub struct Embedded {
    /// From whom: the one to whom the error goes, if nobody translated it.
    pub src_ip: IpAddress,
    /// To whom.
    pub dst_ip: IpAddress,
    /// IP protocol number behind IP header and extension headers.
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
}

/// A quoted packet, to change.
#[derive(Debug)]
pub struct EmbeddedMut<'p, 'a> {
    packet: &'p mut Packet<'a>,
    at: Headers,
    /// Offset of the checksum of the ICMP message around it.
    checksum: usize,
}

impl<'a> Packet<'a> {
    /// The packet that this ICMP or ICMPv6 error quotes, if it is one and the quoted IP header is whole.
    #[inline]
    pub fn embedded(&self) -> Option<Embedded> {
        // Nearly none is one of ICMP, and that is known already.
        let may_quote = matches!(self.protocol(), protocol::ICMP | protocol::ICMPV6);
        if may_quote { self.quoted() } else { None }
    }

    #[inline(never)]
    fn quoted(&self) -> Option<Embedded> {
        Embedded::new(self.bytes(), self.headers()?)
    }

    /// The same, to change.
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

    /// What it says now.
    pub fn read(&self) -> Option<Embedded> {
        self.packet.embedded()
    }

    /// Sets the quoted source address, of the quoted packet's own family.
    pub fn set_src_ip(&mut self, address: IpAddress) -> bool {
        self.edit(|frame, at| edit::set_address(frame, at, Side::Source, address))
    }

    /// Sets the quoted destination address, of the quoted packet's own family.
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

    /// Sets quoted source address and source port at once; needs both to be quoted.
    pub fn set_src(&mut self, address: IpAddress, port: u16) -> bool {
        self.edit(|frame, at| edit::set_end(frame, at, Side::Source, address, port))
    }

    /// Sets quoted destination address and destination port at once; needs both to be quoted.
    pub fn set_dst(&mut self, address: IpAddress, port: u16) -> bool {
        self.edit(|frame, at| edit::set_end(frame, at, Side::Destination, address, port))
    }

    /// Adds to the quoted sequence number of TCP.
    pub fn shift_sequence(&mut self, by: u32) -> bool {
        self.edit(|frame, at| edit::shift_number(frame, at, 4, by))
    }

    /// Adds to the quoted acknowledgement number of TCP, if that is quoted.
    pub fn shift_acknowledgement(&mut self, by: u32) -> bool {
        self.edit(|frame, at| edit::shift_number(frame, at, 8, by))
    }

    /// Sets the quoted identifier.
    pub fn set_icmp_id(&mut self, id: u16) -> bool {
        self.edit(|frame, at| edit::set_icmp_id(frame, at, id))
    }
}
