//! Locates the headers of a frame for which a kernel has left work undone: the outer IP header, and in a tunnel the inner one.
//!
//! The input is not trusted: a header that does not lie inside the frame counts as absent.

use braid_packet::checksum::Sum;
use braid_packet::protocol::{DESTINATION_OPTIONS, GRE, HOP_BY_HOP, ROUTING, UDP};

/// Protocol numbers of IP in IP, for both inner versions.
const IPV4: u8 = 4;
const IPV6: u8 = 41;

/// IPv6 extension headers that may precede the payload. After a routing header, checksums refer to the last address that it names,
/// so none of them looks undone; trains have theirs completed all the same. For fragments nothing is left undone.
const OPTIONS: [u8; 3] = [HOP_BY_HOP, ROUTING, DESTINATION_OPTIONS];

/// Size in bytes of a hop-by-hop header that contains only a 32-bit length (RFC 2675).
pub(super) const JUMBO: usize = 8;
const JUMBO_OPTION: [u8; 2] = [0xc2, 4];

/// GRE flags: checksum, key, sequence number (RFC 2784, RFC 2890); other bits are reserved or belong to another version.
pub(super) const GRE_CHECKSUM: u8 = 0x80;
const GRE_KNOWN: u8 = 0xb0;
/// Type of a complete Ethernet frame in GRE and Geneve.
const BRIDGED: [u8; 2] = [0x65, 0x58];
const GENEVE_PORT: u16 = 6081;
/// VXLAN flag: the network identifier is present (RFC 7348 section 5).
const VXLAN_FLAG: u8 = 0x08;
const UDP_HEADER: usize = 8;

/// An IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ip {
    pub at: usize,
    /// Offset of the first byte after the header and its options.
    pub end: usize,
    /// Protocol of the payload.
    pub protocol: u8,
}

impl Ip {
    /// The IP header of a frame, after the Ethernet header and its tags.
    pub(super) fn of_frame(frame: &[u8]) -> Option<Ip> {
        Ip::behind_ethernet(frame, 0)
    }

    fn behind_ethernet(frame: &[u8], from: usize) -> Option<Ip> {
        let mut at = from + 12;
        while matches!(frame.get(at..at + 2)?, [0x81, 0] | [0x88, 0xa8]) {
            at += 4;
        }
        Ip::of_type([frame[at], frame[at + 1]], frame, at + 2)
    }

    /// Interprets what an Ethernet type announces.
    fn of_type(kind: [u8; 2], frame: &[u8], at: usize) -> Option<Ip> {
        match kind {
            [8, 0] | [0x86, 0xdd] => Ip::at(frame, at),
            _ => None,
        }
    }

    fn at(frame: &[u8], at: usize) -> Option<Ip> {
        let packet = frame.get(at..)?;
        match packet.first()? >> 4 {
            4 => {
                let header = usize::from(packet[0] & 15) * 4;
                (header >= 20 && header <= packet.len()).then(|| Ip { at, end: at + header, protocol: packet[9] })
            }
            6 if packet.len() >= 40 => {
                let (mut end, mut protocol) = (40, packet[6]);
                while OPTIONS.contains(&protocol) {
                    let [next, eights] = *packet.get(end..end + 2)?.first_chunk()?;
                    (protocol, end) = (next, end + 8 + usize::from(eights) * 8);
                }
                (end <= packet.len()).then_some(Ip { at, end: at + end, protocol })
            }
            _ => None,
        }
    }

    /// Finds the IP header that ends where the transport header begins, in a tunnel that begins at `from`. The kind of tunnel does
    /// not matter: the header must announce this protocol, and its packet must end with the frame.
    pub(super) fn before(frame: &[u8], from: usize, l4: usize, protocol: u8) -> Option<Ip> {
        let fits = |ip: &Ip| (ip.end, ip.protocol) == (l4, protocol) && ip.is_to_the_end(frame);
        // Headers consist of four-byte words and have at least 20 bytes.
        (from..=l4.checked_sub(20)?).rev().step_by(4).find_map(|at| Ip::at(frame, at).filter(fits))
    }

    pub(super) fn is_v4(&self, frame: &[u8]) -> bool {
        frame[self.at] >> 4 == 4
    }

    /// Whether its length field says that its packet ends with the frame; for a packet too long for the field, the field must be 0.
    fn is_to_the_end(&self, frame: &[u8]) -> bool {
        let (length, said) = if self.is_v4(frame) {
            (frame.len() - self.at, be16(frame, self.at + 2))
        } else {
            (frame.len() - self.at - 40, be16(frame, self.at + 4))
        };
        usize::from(said) == if length > usize::from(u16::MAX) { 0 } else { length }
    }

    /// The protocol after a hop-by-hop header that contains only a length; `None` if there is no such header.
    pub(super) fn jumbo(&self, frame: &[u8]) -> Option<u8> {
        let packet = frame.get(self.at..self.end)?;
        let [next, eights, option @ ..] = *packet.get(40..)?.first_chunk::<4>()?;
        let is_jumbo = packet[0] >> 4 == 6 && packet[6] == HOP_BY_HOP && eights == 0 && option == JUMBO_OPTION;
        (is_jumbo && be16(packet, 4) == 0).then_some(next)
    }

    /// The end of its packet; `None` for a fragment and for an incomplete packet.
    pub(super) fn packet_end(&self, frame: &[u8]) -> Option<usize> {
        let end = if self.is_v4(frame) {
            let is_fragment = be16(frame, self.at + 6) & 0x3fff != 0;
            (!is_fragment).then(|| self.at + usize::from(be16(frame, self.at + 2)))?
        } else {
            self.at + 40 + usize::from(be16(frame, self.at + 4))
        };
        (self.end..=frame.len()).contains(&end).then_some(end)
    }

    /// The sum of the pseudo header for a payload of `length` bytes.
    pub(super) fn pseudo(&self, frame: &[u8], length: usize) -> Sum {
        let addresses = if self.is_v4(frame) { self.at + 12..self.at + 20 } else { self.at + 8..self.at + 40 };
        let sum = Sum::default().add_bytes(&frame[addresses]).add_u16(self.protocol.into());
        // In IPv6 the length has 32 bits.
        sum.add_u16((length >> 16) as u16).add_u16(length as u16)
    }

    /// Whether its payload may be another IP packet.
    pub(super) fn is_tunnel(&self) -> bool {
        matches!(self.protocol, UDP | GRE | IPV4 | IPV6)
    }

    /// The inner packet's header, if this packet is a tunnel's: IP, GRE, VXLAN on any port, Geneve, or IP in UDP.
    pub(super) fn within(&self, frame: &[u8]) -> Option<Ip> {
        let tunnel = frame.get(self.end..)?;
        match self.protocol {
            IPV4 | IPV6 => Ip::at(frame, self.end),
            GRE => {
                let [flags, version, kind @ ..] = *tunnel.first_chunk::<4>()?;
                let more = (flags & GRE_KNOWN).count_ones() as usize * 4;
                let at = self.end + 4 + more;
                let is_known = flags & !GRE_KNOWN == 0 && version == 0;
                is_known.then(|| Ip::carried(kind, frame, at))?
            }
            UDP => {
                let at = self.end + UDP_HEADER;
                let head = frame.get(at..)?.first_chunk::<8>()?;
                match *head {
                    // Test for Geneve first, because Geneve with options looks like VXLAN.
                    [options, _, high, low, ..] if be16(tunnel, 2) == GENEVE_PORT && options >> 6 == 0 => {
                        Ip::carried([high, low], frame, at + 8 + usize::from(options & 63) * 4)
                    }
                    [flags, .., 0] if flags & VXLAN_FLAG != 0 && flags >> 4 & 7 == 0 => {
                        Ip::behind_ethernet(frame, at + 8)
                    }
                    _ => Ip::at(frame, at),
                }
            }
            _ => None,
        }
    }

    /// Whether the tunnel has its own checksum.
    pub(super) fn has_checksum(&self, frame: &[u8]) -> bool {
        let Some(tunnel) = frame.get(self.end..).and_then(|tunnel| tunnel.first_chunk::<UDP_HEADER>()) else {
            return false;
        };
        match self.protocol {
            UDP => be16(tunnel, super::UDP_CHECKSUM) != 0,
            GRE => tunnel[0] & GRE_CHECKSUM != 0,
            _ => false,
        }
    }

    fn carried(kind: [u8; 2], frame: &[u8], at: usize) -> Option<Ip> {
        if kind == BRIDGED { Ip::behind_ethernet(frame, at) } else { Ip::of_type(kind, frame, at) }
    }
}

pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn put(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
}
