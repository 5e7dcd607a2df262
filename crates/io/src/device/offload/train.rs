//! Cuts several segments that are still one packet, as a network card would cut them.

use braid_packet::checksum::Sum;
use braid_packet::protocol::{GRE, TCP, UDP};

use super::headers::{GRE_CHECKSUM, Ip, JUMBO, be16, put};
use super::{GSO_TCP4, GSO_TCP6, GSO_UDP, UDP_CHECKSUM, VnetHeader, complete_checksum};

const TCP_FIN_PSH: u8 = 0x09;
const TCP_CWR: u8 = 0x80;

/// A train of segments, which is cut into frames one after another.
#[derive(Debug, Default)]
pub(crate) struct Train {
    frame: Vec<u8>,
    header: VnetHeader,
    /// The outer IP header.
    outer: Ip,
    /// The IP header of the segments, if they are in a tunnel.
    inner: Option<Ip>,
    /// Offset of the first byte after all headers.
    payload: usize,
    /// Number of payload bytes already cut off.
    done: usize,
    /// Number of the next segment.
    number: u16,
}

impl Train {
    /// Loads a frame for which [`VnetHeader::is_train`] holds. Returns false if its headers do not match the kernel's description.
    pub(crate) fn load(&mut self, frame: &[u8], header: VnetHeader) -> bool {
        self.frame.clear();
        (self.done, self.number, self.payload) = (0, 0, 0);
        let l4 = header.csum_start;
        let (least, transport, protocol) = match header.gso_type {
            GSO_TCP4 | GSO_TCP6 => (20, frame.get(l4 + 12).map(|words| usize::from(words >> 4) * 4), TCP),
            GSO_UDP => (8, Some(8), UDP),
            _ => return false,
        };
        let (Some(transport), Some(outer)) = (transport, Ip::of_frame(frame)) else { return false };
        let inner = Ip::before(frame, outer.end, l4, protocol).filter(|_| outer.is_tunnel());
        if (outer.end != l4 && inner.is_none()) || transport < least || l4 + transport >= frame.len() {
            return false;
        }
        self.frame.extend_from_slice(frame);
        (self.header, self.outer, self.inner, self.payload) = (header, outer, inner, l4 + transport);
        if let Some(next) = outer.jumbo(frame).filter(|_| inner.is_none()) {
            self.take_out_jumbo(next);
        }
        true
    }

    /// Removes the jumbo option. For more than 64 KiB of IPv6, Linux states the length in an option that no
    /// segment has, since no packet on the wire is so long.
    fn take_out_jumbo(&mut self, next: u8) {
        let at = self.outer.at + 40;
        self.frame.drain(at..at + JUMBO);
        self.frame[self.outer.at + 6] = next;
        for place in [&mut self.header.csum_start, &mut self.outer.end, &mut self.payload] {
            *place -= JUMBO;
        }
    }

    /// Whether no segment is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.payload + self.done >= self.frame.len()
    }

    /// Writes the next segment to `into`; the train must not be empty.
    pub(crate) fn next(&mut self, into: &mut Vec<u8>) {
        let begin = self.payload + self.done;
        let end = (begin + self.header.gso_size).min(self.frame.len());
        into.clear();
        into.extend_from_slice(&self.frame[..self.payload]);
        into.extend_from_slice(&self.frame[begin..end]);
        self.mend(into, end == self.frame.len());
        self.done = end - self.payload;
        self.number = self.number.wrapping_add(1);
    }

    /// Corrects lengths, numbers and checksums of one segment, from the innermost header outwards.
    fn mend(&self, segment: &mut [u8], is_last: bool) {
        self.mend_ip(segment, self.inner.unwrap_or(self.outer));
        self.mend_transport(segment, is_last);
        if self.inner.is_some() {
            self.mend_ip(segment, self.outer);
            mend_tunnel(segment, self.outer);
        }
    }

    fn mend_ip(&self, segment: &mut [u8], Ip { at, end, .. }: Ip) {
        if segment[at] >> 4 == 4 {
            put(segment, at + 2, (segment.len() - at) as u16);
            let id = be16(segment, at + 4).wrapping_add(self.number);
            put(segment, at + 4, id);
            put(segment, at + 10, 0);
            let sum = Sum::default().add_bytes(&segment[at..end]).checksum();
            put(segment, at + 10, sum);
        } else {
            put(segment, at + 4, (segment.len() - at - 40) as u16);
        }
    }

    fn mend_transport(&self, segment: &mut [u8], is_last: bool) {
        let l4 = self.header.csum_start;
        let (transport_len, old_len) = (segment.len() - l4, self.frame.len() - l4);
        let field = l4 + self.header.csum_offset;
        if field + 2 > segment.len() {
            return;
        }
        if self.header.gso_type == GSO_UDP {
            put(segment, l4 + 4, transport_len as u16);
        } else {
            let sequence = u32::from_be_bytes([segment[l4 + 4], segment[l4 + 5], segment[l4 + 6], segment[l4 + 7]]);
            segment[l4 + 4..l4 + 8].copy_from_slice(&sequence.wrapping_add(self.done as u32).to_be_bytes());
            if !is_last {
                segment[l4 + 13] &= !TCP_FIN_PSH;
            }
            if self.number > 0 {
                segment[l4 + 13] &= !TCP_CWR;
            }
        }
        // The field holds the pseudo-header sum with the length of the whole train: replace the length.
        let former = Sum::default().add_u16(be16(segment, field)).add_u16(!(old_len as u16));
        let pseudo = former.add_u16(!((old_len >> 16) as u16)).add_u16(transport_len as u16);
        put(segment, field, pseudo.fold());
        complete_checksum(segment, l4, self.header.csum_offset);
    }
}

/// Corrects the header between the outer IP header and the inner packet: its length and checksum, if it has them. The checksum
/// field was complete when the train was made, or holds the sum of a pseudo header, so it is computed anew.
fn mend_tunnel(segment: &mut [u8], outer: Ip) {
    let (at, length) = (outer.end, segment.len() - outer.end);
    match outer.protocol {
        UDP => {
            put(segment, at + 4, length as u16);
            if be16(segment, at + UDP_CHECKSUM) != 0 {
                let pseudo = outer.pseudo(segment, length).fold();
                put(segment, at + UDP_CHECKSUM, pseudo);
                complete_checksum(segment, at, UDP_CHECKSUM);
            }
        }
        GRE if segment[at] & GRE_CHECKSUM != 0 => {
            put(segment, at + 4, 0);
            complete_checksum(segment, at, 4);
        }
        _ => {}
    }
}
