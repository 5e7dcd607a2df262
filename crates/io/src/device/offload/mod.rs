//! Completes what a kernel leaves undone when it hands a packet to a receiver on the same machine: the
//! checksum is not computed, and several segments are still one packet of up to 64 KiB. Both are completed
//! here, so that functions and other ports see packets as on the wire.
//!
//! The kernel describes this in a `virtio_net_hdr` before the frame (include/uapi/linux/virtio_net.h). The header is not trusted:
//! offsets are compared with the frame's length, and a frame to which they do not apply stays unchanged.
//!
//! For tunnels (VXLAN, Geneve, GRE, IP in IP) the undone work concerns the inner packet: its segments are still one packet inside
//! one tunnel packet, and the header says where the inner transport header begins.

mod headers;
#[cfg(test)]
mod tests;
mod train;

use braid_packet::checksum::{Sum, udp_zero};
use braid_packet::crc32c;
use braid_packet::protocol::{SCTP, TCP, UDP};

use headers::Ip;
pub(crate) use train::Train;

/// Size in bytes of a `virtio_net_hdr` without the count of merged buffers.
pub(crate) const VNET_HEADER: usize = 10;
/// Flag: the checksum must be computed from `csum_start` on and stored `csum_offset` bytes after it.
const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Flag in the segmentation type: the first segment keeps the CWR flag, the others do not have it (RFC 3168).
const GSO_ECN: u8 = 0x80;

/// Offset of the checksum in the TCP and UDP headers.
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;
/// Offset of the SCTP checksum, which has four bytes: a CRC of the packet without a pseudo header. Linux leaves 0 there
/// (`sctp_packet_pack`) and requests it like any other checksum; only the offset distinguishes it.
const SCTP_CHECKSUM: usize = 8;

/// `struct virtio_net_hdr`, in host byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VnetHeader {
    flags: u8,
    gso_type: u8,
    gso_size: usize,
    csum_start: usize,
    csum_offset: usize,
}

impl VnetHeader {
    pub(crate) fn read(bytes: &[u8; VNET_HEADER]) -> VnetHeader {
        let [flags, gso_type, _, _, s0, s1, c0, c1, o0, o1] = *bytes;
        let word = |a, b| usize::from(u16::from_ne_bytes([a, b]));
        VnetHeader {
            flags,
            gso_type: gso_type & !GSO_ECN,
            gso_size: word(s0, s1),
            csum_start: word(c0, c1),
            csum_offset: word(o0, o1),
        }
    }

    /// Whether the frame still contains several segments.
    pub(crate) fn is_train(&self) -> bool {
        self.gso_type != 0 && self.gso_size != 0
    }

    /// The header for the frame after a four-byte tag has been inserted, or the same header if `is_tagged` is false.
    pub(crate) fn behind(self, is_tagged: bool) -> VnetHeader {
        VnetHeader { csum_start: self.csum_start + if is_tagged { 4 } else { 0 }, ..self }
    }

    /// Computes the checksum if the kernel left it undone. The field then holds the sum of the pseudo header.
    pub(crate) fn complete(&self, frame: &mut [u8]) {
        if self.flags & NEEDS_CHECKSUM == 0 {
            return;
        }
        match self.csum_offset {
            SCTP_CHECKSUM if Ip::before(frame, 0, self.csum_start, SCTP).is_some() => {
                complete_crc(&mut frame[self.csum_start..]);
            }
            offset => complete_checksum(frame, self.csum_start, offset),
        }
    }
}

/// Replaces the pseudo-header sum at `start + offset` with the checksum of everything from `start` on.
pub(crate) fn complete_checksum(frame: &mut [u8], start: usize, offset: usize) {
    let Some(covered) = frame.get_mut(start..) else { return };
    let sum = Sum::default().add_bytes(covered).checksum();
    if let Some(field) = covered.get_mut(offset..offset + 2) {
        let sum = if offset == UDP_CHECKSUM { udp_zero(sum) } else { sum };
        field.copy_from_slice(&sum.to_be_bytes());
    }
}

/// Computes the checksum of an SCTP packet.
fn complete_crc(packet: &mut [u8]) {
    let crc = crc32c::sctp(packet);
    if let Some(field) = packet.get_mut(SCTP_CHECKSUM..SCTP_CHECKSUM + 4) {
        // RFC 9260 appendix A: the least significant byte goes first.
        field.copy_from_slice(&crc.to_le_bytes());
    }
}

fn checksum_offset(protocol: u8) -> Option<usize> {
    match protocol {
        TCP => Some(TCP_CHECKSUM),
        UDP => Some(UDP_CHECKSUM),
        _ => None,
    }
}

/// Completes checksums of a frame without a `virtio_net_hdr`, as AF_XDP delivers it on interfaces whose
/// other end is on this machine. A checksum counts as undone if its field holds exactly the folded sum of
/// the pseudo header and the checksum is therefore wrong; one in 65,536 packets damaged in transit looks
/// the same. An undone SCTP checksum is 0. Checksums of fragments are never undone. In a tunnel, the inner
/// packet's checksum is undone, while the tunnel's own checksum already assumes it to be complete.
pub(crate) fn complete_if_partial(frame: &mut [u8]) {
    let Some(outer) = Ip::of_frame(frame) else { return };
    let Some(end) = outer.packet_end(frame) else { return };
    complete_transport(frame, outer, end);
    let inner = outer.within(frame).filter(|inner| inner.packet_end(frame) == Some(end));
    // A CRC changes the sum of the surrounding data, and with it the tunnel's own checksum.
    if let Some(inner) = inner.filter(|inner| inner.protocol != SCTP || !outer.has_checksum(frame)) {
        complete_transport(frame, inner, end);
    }
}

fn complete_transport(frame: &mut [u8], ip: Ip, end: usize) {
    if ip.protocol == SCTP {
        let packet = &mut frame[ip.end..end];
        // A receiver that accepts packets without a checksum also accepts a correct one (RFC 9653).
        if packet.get(SCTP_CHECKSUM..SCTP_CHECKSUM + 4) == Some(&[0; 4]) {
            complete_crc(packet);
        }
        return;
    }
    let Some(offset) = checksum_offset(ip.protocol) else { return };
    let Some(field) = frame[ip.end..end].get(offset..offset + 2) else { return };
    let pseudo = ip.pseudo(frame, end - ip.end).fold();
    if u16::from_be_bytes([field[0], field[1]]) == pseudo {
        let covered = &mut frame[..end];
        if Sum::default().add_u16(pseudo).add_bytes(&covered[ip.end..]).fold() != 0xffff {
            complete_checksum(covered, ip.end, offset);
        }
    }
}
