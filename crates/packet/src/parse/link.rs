//! Everything between a frame's first byte and its IP header: the link header, tags, LLC/SNAP, an MPLS label stack, a PPPoE session.

use super::{ETHER_TYPE_MIN, be16};
use crate::headers::ether_type;
use crate::record::Link;

/// Stands for any payload other than IP.
const NOT_IP: u16 = 0;

/// Returns Ethernet type and offset of what follows the link header and everything before IP. `None` if the frame is cut.
pub(super) fn network_header(frame: &[u8], link: Link) -> Option<(u16, usize)> {
    let (kind, at) = link_header(frame, link)?;
    let (kind, at) = snap(frame, kind, at);
    let (kind, at) = tags(frame, kind, at)?;
    let (kind, at) = snap(frame, kind, at);
    let (kind, at) = mpls(frame, kind, at)?;
    pppoe(frame, kind, at)
}

/// Link-layer fields for keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkFields {
    /// VLAN of the outermost tag, 0 if there is none.
    pub(crate) vlan: u16,
    /// Ethernet type after the tags, 0 for 802.3 without SNAP.
    pub(crate) ether_type: u16,
    /// Offset of the payload with that type.
    pub(crate) at: usize,
}

impl LinkFields {
    /// Returns the fields; `None` if the link has no Ethernet types, or they are cut.
    pub(crate) fn of(frame: &[u8], link: Link) -> Option<LinkFields> {
        if !matches!(link, Link::Ethernet | Link::Cooked1 | Link::Cooked2) {
            return None;
        }
        let (kind, at) = link_header(frame, link)?;
        let (kind, at) = snap(frame, kind, at);
        let vlan = if is_tag(kind) { be16(frame, at)? & 0x0fff } else { 0 };
        let (kind, at) = tags(frame, kind, at)?;
        let (kind, at) = snap(frame, kind, at);
        let ether_type = if kind < ETHER_TYPE_MIN { 0 } else { kind };
        Some(LinkFields { vlan, ether_type, at })
    }

    /// Returns the outermost label of an MPLS packet.
    pub(crate) fn mpls_label(&self, frame: &[u8]) -> Option<u32> {
        if !matches!(self.ether_type, ether_type::MPLS | ether_type::MPLS_UPSTREAM) {
            return None;
        }
        let entry = frame.get(self.at..)?.first_chunk::<4>()?;
        Some(u32::from_be_bytes(*entry) >> 12)
    }
}

fn link_header(frame: &[u8], link: Link) -> Option<(u16, usize)> {
    Some(match link {
        Link::Ethernet => (be16(frame, 12)?, 14),
        Link::RawIp => (if *frame.first()? >> 4 == 4 { ether_type::IPV4 } else { ether_type::IPV6 }, 0),
        Link::Cooked1 => (be16(frame, 14)?, 16),
        Link::Cooked2 => (be16(frame, 0)?, 20),
        Link::Loopback => {
            let family = frame.first_chunk::<4>()?;
            // The address family is a small number in either byte order; each BSD and Darwin use a different one for IPv6.
            let kind = match family[0].max(family[3]) {
                2 => ether_type::IPV4,
                10 | 24 | 28 | 30 => ether_type::IPV6,
                _ => NOT_IP,
            };
            (kind, 4)
        }
        Link::Ppp => {
            // Address and control bytes may be left out (RFC 1662 section 3.1).
            ppp(frame, if frame.starts_with(&[0xff, 0x03]) { 2 } else { 0 })?
        }
        Link::Hdlc => (be16(frame, 2)?, 4),
        Link::Other => (NOT_IP, 0),
    })
}

/// What follows the PPP protocol number at an offset. The number has two bytes, or one if that is odd (RFC 1661 section 6.5): a peer expands such
/// a number even where nobody has negotiated to compress it.
fn ppp(frame: &[u8], at: usize) -> Option<(u16, usize)> {
    let first = *frame.get(at)?;
    let (number, len) = if first & 1 != 0 { (first.into(), 1) } else { (be16(frame, at)?, 2) };
    let kind = match number {
        0x0021 => ether_type::IPV4,
        0x0057 => ether_type::IPV6,
        _ => NOT_IP,
    };
    Some((kind, at + len))
}

/// Skips the RFC 1042 encapsulation of an Ethernet type in an 802.3 frame.
fn snap(frame: &[u8], kind: u16, at: usize) -> (u16, usize) {
    match frame.get(at..at + 8) {
        Some(&[0xaa, 0xaa, 0x03, 0, 0, 0, high, low]) if kind < ETHER_TYPE_MIN => {
            (u16::from_be_bytes([high, low]), at + 8)
        }
        _ => (kind, at),
    }
}

pub(crate) fn is_tag(kind: u16) -> bool {
    matches!(kind, ether_type::VLAN | ether_type::QINQ | ether_type::QINQ_OLD)
}

fn tags(frame: &[u8], mut kind: u16, mut at: usize) -> Option<(u16, usize)> {
    // A packet with more tags than fit before offset 255 is not parsed anyway.
    while is_tag(kind) && at <= 255 {
        kind = be16(frame, at + 2)?;
        at += 4;
    }
    Some((kind, at))
}

fn mpls(frame: &[u8], kind: u16, mut at: usize) -> Option<(u16, usize)> {
    if !matches!(kind, ether_type::MPLS | ether_type::MPLS_UPSTREAM) {
        return Some((kind, at));
    }
    loop {
        let bottom = frame.get(at + 2)? & 1 != 0;
        at += 4;
        if bottom || at > 255 {
            break;
        }
    }
    let nibble = frame.get(at)? >> 4;
    Some(match nibble {
        4 => (ether_type::IPV4, at),
        6 => (ether_type::IPV6, at),
        // An Ethernet pseudowire with its control word (RFC 4448 section 4.6), and the tags of its frame.
        0 if frame.len() > at + 18 => tags(frame, be16(frame, at + 16)?, at + 18)?,
        _ => (NOT_IP, at),
    })
}

fn pppoe(frame: &[u8], kind: u16, at: usize) -> Option<(u16, usize)> {
    if kind != ether_type::PPPOE_SESSION {
        return Some((kind, at));
    }
    ppp(frame, at + 6)
}
