//! Segments that the proxy writes: SYNs, their answers and bare acknowledgements. Options are in the order that Linux's
//! `nf_synproxy_core.c` uses.

use braid_nf::packet::headers::{Header, Ipv4, Ipv6, Tcp};
use braid_nf::packet::{IpVersion, Packet};

use super::cookie::Offer;

/// The maximum length of a TCP header, in bytes.
const MOST: usize = 60;

/// A segment without payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    bytes: [u8; MOST],
    len: usize,
}

impl Segment {
    /// A segment with this header and the options of `offer`; a segment size of 0 is left out.
    pub(super) fn new(header: Tcp, offer: &Offer) -> Segment {
        let mut segment = Segment { bytes: [0; MOST], len: Tcp::LEN };
        if offer.size != 0 {
            segment.push(&[2, 4]);
            segment.push(&offer.size.to_be_bytes());
        }
        // The SACK-permitted option or padding aligns the time stamp.
        match (offer.sack, offer.stamps) {
            (true, _) if offer.stamps.is_some() => segment.push(&[4, 2]),
            (true, _) => segment.push(&[1, 1, 4, 2]),
            (false, Some(_)) => segment.push(&[1, 1]),
            (false, None) => {}
        }
        if let Some((value, echo)) = offer.stamps {
            segment.push(&[8, 10]);
            segment.push(&value.to_be_bytes());
            segment.push(&echo.to_be_bytes());
        }
        if let Some(shift) = offer.shift {
            segment.push(&[1, 3, 3, shift]);
        }
        header.emit(&mut segment.bytes);
        segment.bytes[12] = (segment.len as u8 / 4) << 4;
        segment
    }

    /// The segment's bytes, with a checksum of zero.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    /// Replaces a packet's segment and payload by this one; the addresses stay. Returns false, and leaves the packet
    /// unusable, if the buffer is too small.
    pub(super) fn replace(&self, packet: &mut Packet<'_>) -> bool {
        let (Some(l4), l3) = (packet.l4_offset(), usize::from(packet.record().l3)) else { return false };
        if !packet.set_len(l4 + self.len) {
            return false;
        }
        packet.change(l4..l4 + self.len).copy_from_slice(&self.bytes[..self.len]);
        let version = packet.ip_version();
        let header = packet.change(l3..l4);
        let total = (l4 - l3 + self.len) as u16;
        if version == Some(IpVersion::V6) {
            if let Some(mut ip) = Ipv6::parse_mut(header) {
                ip.set_payload_len(total - Ipv6::LEN as u16);
            }
        } else if let Some(mut ip) = Ipv4::parse_mut(header) {
            ip.set_total_len(total);
        }
        packet.reparse();
        packet.fill_checksums();
        true
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// A header with these ports (source, destination), sequence and acknowledgement numbers, flags and window.
pub(super) fn header(ports: (u16, u16), (sequence, acknowledgement): (u32, u32), flags: u8, window: u16) -> Tcp {
    let mut header = Tcp::new(ports.0, ports.1);
    header.set_sequence(sequence);
    header.set_acknowledgement(acknowledgement);
    header.set_flags(flags);
    header.set_window(window);
    header
}
