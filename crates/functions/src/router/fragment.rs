//! Cuts an IPv4 packet that is longer than the next link takes (RFC 791 section 3.2).

use braid_nf::packet::checksum;
use braid_nf::packet::headers::{Header, Ipv4};
use braid_nf::{Cx, Packet, Port};

/// The largest MTU of an interface.
pub const MTU_MAX: u16 = 9216;
/// A piece with its link header.
const ROOM: usize = MTU_MAX as usize + 256;

/// Sends all pieces but the first out by `port`, and leaves the first in `packet`. False, and nothing happened, if the packet is
/// no whole IPv4 packet or has more header than a piece may have.
pub fn cut(cx: &mut Cx<'_>, packet: &mut Packet<'_>, port: Port, mtu: u16) -> bool {
    let l3 = usize::from(packet.record().l3);
    let first = send_later(packet.bytes(), l3, mtu, |piece| cx.emit_onward(port, piece));
    let Some(first) = first else { return false };
    packet.set_len(l3 + first.total);
    first.write(packet.change(l3..l3 + first.header));
    packet.reparse();
    true
}

/// The same with a frame, of which the IP header stands at `l3`: gives all pieces but the first to `send`, leaves the first in the frame, and
/// says how long that then is.
pub fn cut_frame(frame: &mut [u8], l3: usize, mtu: u16, send: impl FnMut(&[u8])) -> Option<usize> {
    let first = send_later(frame, l3, mtu, send)?;
    first.write(&mut frame[l3..l3 + first.header]);
    Some(l3 + first.total)
}

/// The first piece: bytes of its header, of all of it, and of the datagram before it.
struct First {
    header: usize,
    total: usize,
    offset: u16,
}

impl First {
    fn write(&self, header: &mut [u8]) {
        rewrite(header, self.total as u16, true, self.offset);
    }
}

fn send_later(frame: &[u8], l3: usize, mtu: u16, mut send: impl FnMut(&[u8])) -> Option<First> {
    let ip = Ipv4::parse(frame.get(l3..)?)?;
    let (header, total) = (ip.header_len(), usize::from(ip.total_len()));
    let (offset, more) = (ip.fragment_offset(), ip.more_fragments());
    // Pieces but the last carry whole units of eight bytes.
    let step = usize::from(mtu).saturating_sub(header) / 8 * 8;
    if step == 0 || total <= header || l3 + total > frame.len() || l3 + header + step > ROOM {
        return None;
    }
    // A piece that reaches beyond any datagram's end.
    if usize::from(offset) + total - header > usize::from(u16::MAX) {
        return None;
    }
    let mut piece = [0; ROOM];
    piece[..l3 + header].copy_from_slice(&frame[..l3 + header]);
    forget_options(&mut piece[l3 + Ipv4::LEN..l3 + header]);
    for from in (header..total).step_by(step).skip(1) {
        let to = total.min(from + step);
        piece[l3 + header..][..to - from].copy_from_slice(&frame[l3 + from..l3 + to]);
        let at = offset + (from - header) as u16;
        rewrite(&mut piece[l3..l3 + header], (header + to - from) as u16, more || to < total, at);
        send(&piece[..l3 + header + to - from]);
    }
    Some(First { header, total: header + step, offset })
}

fn rewrite(header: &mut [u8], total: u16, more: bool, offset: u16) {
    if let Some(mut ip) = Ipv4::parse_mut(header) {
        ip.set_total_len(total);
        ip.set_fragment(false, more, offset);
        ip.set_checksum(0);
    }
    let sum = checksum::ipv4_header(header);
    if let Some(mut ip) = Ipv4::parse_mut(header) {
        ip.set_checksum(sum);
    }
}

/// Only options with their first bit set are in later pieces; the others become "no operation".
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
