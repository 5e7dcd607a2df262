//! Fragments IPv4 packets that are longer than the next link's MTU (RFC 791 section 3.2), and the router's own IPv6 packets.

use braid_nf::packet::checksum;
use braid_nf::packet::headers::{Header, Ipv4, Ipv6};
use braid_nf::packet::parse::protocol;
use braid_nf::{Cx, Packet, Port};

/// The largest MTU of an interface.
pub const MTU_MAX: u16 = 9216;
/// Bytes of the IPv6 fragment header.
const PIECE_V6: usize = 8;
/// Room for a fragment with its link header.
pub const ROOM: usize = MTU_MAX as usize + 256;

/// Sends all fragments but the first out by `port`, and leaves the first in `packet`. Returns false, with nothing done, if the
/// packet is not a complete IPv4 packet or its header leaves no room for a fragment.
pub fn cut(cx: &mut Cx<'_>, packet: &mut Packet<'_>, port: Port, mtu: u16) -> bool {
    cut_by(packet, mtu, |piece| cx.emit_onward(port, piece))
}

/// Like [`cut`], but passes all fragments except the first to `send`.
pub fn cut_by(packet: &mut Packet<'_>, mtu: u16, mut send: impl FnMut(&[u8])) -> bool {
    let l3 = usize::from(packet.record().l3);
    let Some(cut) = Cut::of(packet.bytes(), l3, mtu) else { return false };
    let mut piece = [0; ROOM];
    for number in 1..cut.pieces() {
        let len = cut.write(packet.bytes(), number, &mut piece);
        send(&piece[..len]);
    }
    packet.set_len(l3 + cut.header + cut.step);
    rewrite(packet.change(l3..l3 + cut.header), cut.step, true, cut.offset);
    packet.reparse();
    true
}

/// Passes all fragments of a frame, whose IP header is at `l3`, to `send`, the first one first. Returns false, with nothing
/// done, under the conditions of [`cut`].
pub fn cut_frame(frame: &[u8], l3: usize, mtu: u16, mut send: impl FnMut(&[u8])) -> bool {
    let Some(cut) = Cut::of(frame, l3, mtu) else { return false };
    let mut piece = [0; ROOM];
    for number in 0..cut.pieces() {
        let len = cut.write(frame, number, &mut piece);
        send(&piece[..len]);
    }
    true
}

/// Fragments an IPv6 packet of the router's own under this identification (RFC 8200 section 4.5). The fragment header follows
/// the fixed header.
pub fn cut_own_v6(frame: &[u8], l3: usize, mtu: u16, identification: u32, mut send: impl FnMut(&[u8])) {
    let (start, step) = (l3 + Ipv6::LEN, usize::from(mtu).saturating_sub(Ipv6::LEN + PIECE_V6) / 8 * 8);
    let Some(carried) = frame.get(start..).filter(|_| step > 0 && start + PIECE_V6 + step <= ROOM) else { return };
    let mut piece = [0; ROOM];
    piece[..start].copy_from_slice(&frame[..start]);
    let next = std::mem::replace(&mut piece[l3 + 6], protocol::FRAGMENT);
    for (number, bytes) in carried.chunks(step).enumerate() {
        let (from, len) = (number * step, PIECE_V6 + bytes.len());
        let more = u16::from(from + bytes.len() < carried.len());
        piece[l3 + 4..l3 + 6].copy_from_slice(&(len as u16).to_be_bytes());
        piece[start..start + 2].copy_from_slice(&[next, 0]);
        piece[start + 2..start + 4].copy_from_slice(&(from as u16 | more).to_be_bytes());
        piece[start + 4..start + PIECE_V6].copy_from_slice(&identification.to_be_bytes());
        piece[start + PIECE_V6..][..bytes.len()].copy_from_slice(bytes);
        send(&piece[..start + len]);
    }
}

/// How a frame is fragmented.
struct Cut {
    /// The offset of its IP header.
    l3: usize,
    /// Bytes of that header, and of what follows it.
    header: usize,
    carried: usize,
    /// The offset of this payload in its datagram, in bytes, and whether more of the datagram follows it.
    offset: u16,
    more: bool,
    /// Payload bytes of each fragment but the last, a multiple of eight.
    step: usize,
}

impl Cut {
    fn of(frame: &[u8], l3: usize, mtu: u16) -> Option<Cut> {
        let ip = Ipv4::parse(frame.get(l3..)?)?;
        let (header, total) = (ip.header_len(), usize::from(ip.total_len()));
        let (offset, more) = (ip.fragment_offset(), ip.more_fragments());
        let step = usize::from(mtu).saturating_sub(header) / 8 * 8;
        if step == 0 || total <= header || l3 + total > frame.len() || l3 + header + step > ROOM {
            return None;
        }
        // A packet that reaches beyond the end of any datagram is not fragmented.
        let carried = total - header;
        let fits = usize::from(offset) + carried <= usize::from(u16::MAX);
        fits.then_some(Cut { l3, header, carried, offset, more, step })
    }

    fn pieces(&self) -> usize {
        self.carried.div_ceil(self.step)
    }

    /// Writes a fragment with its headers and returns its length.
    fn write(&self, frame: &[u8], number: usize, piece: &mut [u8; ROOM]) -> usize {
        let Cut { l3, header, .. } = *self;
        let (from, start) = (number * self.step, l3 + header);
        let len = self.step.min(self.carried - from);
        piece[..start].copy_from_slice(&frame[..start]);
        piece[start..start + len].copy_from_slice(&frame[start + from..][..len]);
        if number > 0 {
            forget_options(&mut piece[l3 + Ipv4::LEN..start]);
        }
        let more = self.more || from + len < self.carried;
        rewrite(&mut piece[l3..start], len, more, self.offset + from as u16);
        start + len
    }
}

/// Rewrites an IPv4 header for a fragment that carries `carried` bytes.
pub(super) fn rewrite(header: &mut [u8], carried: usize, more: bool, offset: u16) {
    let total = header.len() + carried;
    if let Some(mut ip) = Ipv4::parse_mut(header) {
        ip.set_total_len(total as u16);
        ip.set_fragment(false, more, offset);
        ip.set_checksum(0);
    }
    let sum = checksum::ipv4_header(header);
    if let Some(mut ip) = Ipv4::parse_mut(header) {
        ip.set_checksum(sum);
    }
}

/// Keeps in later fragments only the options whose first bit is set, and replaces the others with "no operation".
fn forget_options(options: &mut [u8]) {
    let mut at = 0;
    while let Some(kind) = options.get(at).copied().filter(|kind| *kind != 0) {
        let len = if kind == 1 { 1 } else { options.get(at + 1).map_or(0, |len| usize::from(*len)).max(2) };
        let end = options.len().min(at + len);
        if kind & 0x80 == 0 {
            options[at..end].fill(1);
        }
        at = end;
    }
}
