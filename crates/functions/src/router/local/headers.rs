//! Checks the IPv6 extension headers of packets for the router itself. What they demand and a router does not support is
//! refused as in RFC 8200 sections 4.1 to 4.4. Forwarded packets are not examined.

use braid_nf::packet::headers::{Header, Ipv6, Ipv6Extension};
use braid_nf::packet::parse::protocol;

use crate::router::Complaint;

/// "No next header" (RFC 8200 section 4.7).
pub(in crate::router) const NOTHING: u8 = 59;

/// The offset at which the IPv6 header names what follows it.
pub(in crate::router) const FIRST: u32 = 6;

/// Why a packet ends at its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::router) enum Objection {
    /// Its sender is told.
    Told(Complaint),
    /// An option demands that the packet be dropped silently, or is truncated.
    Silent,
}

/// Walks the extension headers of an IP packet. Returns the offset, from the start of the packet, of the field that names the
/// protocol behind them, or what is wrong with them.
pub(in crate::router) fn walk(packet: &[u8]) -> Result<u32, Objection> {
    let Some(ip) = Ipv6::parse(packet).filter(|_| packet.first().is_some_and(|first| first >> 4 == 6)) else {
        return Ok(0);
    };
    // The offset of the field that names the next header, and the offset of that header.
    let (mut announced, mut at) = (FIRST, Ipv6::LEN as u32);
    for header in ip.extensions() {
        match header.number {
            // A hop-by-hop header must be the first.
            protocol::HOP_BY_HOP if at > Ipv6::LEN as u32 => {
                return Err(Objection::Told(Complaint::NoProtocol(announced)));
            }
            protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS => options(&header, at)?,
            // No routing type is supported, so no segments may be left.
            protocol::ROUTING if header.bytes.get(3).is_some_and(|left| *left != 0) => {
                return Err(Objection::Told(Complaint::WrongField(at + 2)));
            }
            _ => {}
        }
        (announced, at) = (at, at + header.bytes.len() as u32);
    }
    Ok(announced)
}

/// Checks the options of a header: the two high bits of an unknown option's type say what to do with the packet.
fn options(header: &Ipv6Extension<'_>, at: u32) -> Result<(), Objection> {
    const PAD_1: u8 = 0;
    const PAD_N: u8 = 1;
    const ROUTER_ALERT: u8 = 5;
    let mut next = 2;
    while let Some(kind) = header.bytes.get(next).copied() {
        if kind == PAD_1 {
            next += 1;
            continue;
        }
        let Some(len) = header.bytes.get(next + 1) else { return Err(Objection::Silent) };
        match (kind, kind >> 6) {
            (PAD_N | ROUTER_ALERT, _) | (_, 0) => {}
            (_, 1) => return Err(Objection::Silent),
            _ => return Err(Objection::Told(Complaint::UnknownOption(at + next as u32))),
        }
        next += 2 + usize::from(*len);
    }
    if next == header.bytes.len() { Ok(()) } else { Err(Objection::Silent) }
}
