//! The headers between that of IPv6 and what it carries, of packets for the router itself: what they ask for that a router has not is refused
//! as RFC 8200 sections 4.1 to 4.4 say. Packets that go on are not looked into.

use braid_nf::packet::headers::{Header, Ipv6, Ipv6Extension};
use braid_nf::packet::parse::protocol;

use super::Complaint;

/// Behind it comes nothing (RFC 8200 section 4.7).
pub(super) const NOTHING: u8 = 59;

/// Where the header of IPv6 says what follows it.
pub(super) const FIRST: u32 = 6;

/// Why a packet ends at its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Objection {
    /// Its sender is told.
    Told(Complaint),
    /// An option asks for silence, or is cut.
    Silent,
}

/// What is wrong with the headers of an IP packet, and where its last number of a header stands, from its beginning.
pub(super) fn walk(packet: &[u8]) -> Result<u32, Objection> {
    let Some(ip) = Ipv6::parse(packet).filter(|_| packet.first().is_some_and(|first| first >> 4 == 6)) else {
        return Ok(0);
    };
    // Of the field that announces the next header, and of that header.
    let (mut announced, mut at) = (FIRST, Ipv6::LEN as u32);
    for header in ip.extensions() {
        match header.number {
            // It comes first or not at all.
            protocol::HOP_BY_HOP if at > Ipv6::LEN as u32 => {
                return Err(Objection::Told(Complaint::NoProtocol(announced)));
            }
            protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS => options(&header, at)?,
            // No type of them is known here.
            protocol::ROUTING if header.bytes.get(3).is_some_and(|left| *left != 0) => {
                return Err(Objection::Told(Complaint::WrongField(at + 2)));
            }
            _ => {}
        }
        (announced, at) = (at, at + header.bytes.len() as u32);
    }
    Ok(announced)
}

/// An option that is not known says by its upper two bits what becomes of the packet.
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
