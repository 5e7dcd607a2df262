//! Fragments IPv6 packets that already have a fragment header (RFC 7915 section 4: packets that may be fragmented over
//! IPv4 may reach IPv6 links that carry no more than 1280 bytes).

use braid_nf::packet::headers::{Header, Ipv6};
use braid_nf::prelude::*;

use super::header::{FRAGMENT_LEN, fragment_header};

/// The maximum length of a fragment with its link header.
const ROOM: usize = 9216 + 256;
/// Length of the headers before the data that is split.
const HEADERS: usize = Ipv6::LEN + FRAGMENT_LEN;

/// Sends all fragments except the first out by `port`, none longer than `most` bytes, and leaves the first in `packet`.
/// Returns false, and does nothing, if the packet is not complete.
pub(super) fn cut(cx: &mut Cx<'_>, packet: &mut Packet<'_>, port: Port, most: u16) -> bool {
    let l3 = packet.record().l3 as usize;
    let Some(ip) = packet.ipv6() else { return false };
    if packet.len() != l3 + Ipv6::LEN + usize::from(ip.payload_len()) {
        return false;
    }
    emit_pieces(cx, port, packet.bytes(), l3, most.into(), 1);
    let step = step(most.into());
    packet.set_len(l3 + HEADERS + step);
    let headers = packet.change(l3..l3 + HEADERS);
    write(headers, 0, step, true);
    packet.reparse();
    true
}

/// Sends the fragments of a complete frame, from number `first` on; the frame itself if its IP packet is at most `most`
/// bytes long.
pub(super) fn emit_pieces(cx: &mut Cx<'_>, port: Port, frame: &[u8], l3: usize, most: usize, first: usize) {
    if frame.len() <= l3.saturating_add(most) {
        cx.emit_onward(port, frame);
        return;
    }
    let (begin, step) = (l3 + HEADERS, step(most));
    let mut piece = [0; ROOM];
    for from in (0..frame.len() - begin).step_by(step).skip(first) {
        let to = (frame.len() - begin).min(from + step);
        piece[..begin].copy_from_slice(&frame[..begin]);
        piece[begin..begin + to - from].copy_from_slice(&frame[begin + from..begin + to]);
        write(&mut piece[l3..begin], from, to - from, begin + to < frame.len());
        cx.emit_onward(port, &piece[..begin + to - from]);
    }
}

/// All fragments except the last carry a multiple of eight bytes.
fn step(most: usize) -> usize {
    (most - HEADERS) / 8 * 8
}

/// Writes lengths and fragment fields of a fragment that begins `from` bytes after the start of the data.
fn write(headers: &mut [u8], from: usize, len: usize, more_behind: bool) {
    let [number, _, high, low, _, _, id_high, id_low] =
        *headers[Ipv6::LEN..].first_chunk().unwrap_or(&[0; FRAGMENT_LEN]);
    let fields = u16::from_be_bytes([high, low]);
    let more = more_behind || fields & 1 != 0;
    // `header.rs` has refused what ends behind 65,535 bytes.
    let offset = (fields & 0xfff8).saturating_add(from as u16);
    headers[4..6].copy_from_slice(&((FRAGMENT_LEN + len) as u16).to_be_bytes());
    let fragment = fragment_header(number, offset, more, u16::from_be_bytes([id_high, id_low]));
    headers[Ipv6::LEN..HEADERS].copy_from_slice(&fragment);
}
